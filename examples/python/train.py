"""A PyTorch network, trained by ten owners of digits with a hundred labels in all.

The same network is trained twice from the same start: on the labels alone, and with labels for all
other rows from label propagation across the owners (XCLP). All parties run in this process with
the real messages. The backend `clear` keeps the run short; the server sees more than with `psm`.

    pip install '.[torch]'
    python examples/python/train.py data/digits.npz
    python examples/python/train.py data/digits.npz --rounds 100 --backend psm
"""

import argparse
import copy

import numpy as np
import torch
from torch import nn

import undertone
from undertone.torch import TorchModel

CLIENTS, TESTS = 10, 360


class Net(nn.Module):
    """Two convolutions and two layers; 13,706 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(128, 64)
        self.embedding = nn.ReLU()
        self.fc2 = nn.Linear(64, 10)

    def forward(self, images):
        images = self.conv1(images).relu()
        images = self.conv2(images).relu()
        return self.fc2(self.embedding(self.fc1(images.flatten(1))))


def shift(images, generator):
    """Moves each image by -1, 0 or 1 pixels in each direction. Zeros move in."""
    count, _, height, width = images.shape
    moves = torch.randint(0, 3, (2, count, 1), generator=generator)
    down = torch.arange(height) + moves[0]
    right = torch.arange(width) + moves[1]
    padded = nn.functional.pad(images, (1, 1, 1, 1))[:, 0]
    number = torch.arange(count)[:, None, None]
    return padded[number, down[:, :, None], right[:, None, :]][:, None]


def deal(rows, labels, count, rng):
    """The test rows, and the rows and known labels of each client."""
    order = rng.permutation(len(labels))
    tests, training = order[:TESTS], order[TESTS:]
    known = np.full(len(labels), -1)
    for digit in range(10):
        of_digit = training[labels[training] == digit][: count // 10]
        known[of_digit] = digit
    clients = [(rows[part], known[part]) for part in np.array_split(training, CLIENTS)]
    return (rows[tests], labels[tests]), clients


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="digits.npz")
    parser.add_argument("--label-rounds", type=int, default=60, help="rounds on labels alone")
    parser.add_argument("--rounds", type=int, default=20, help="rounds after these")
    parser.add_argument("--labels", type=int, default=50, help="labels of all clients together")
    parser.add_argument("--backend", default="clear")
    parser.add_argument("--teacher", action="store_true", help="with a mean teacher")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    with np.load(options.file) as file:
        rows, labels = file["features"].astype(np.float32) / 16, file["labels"].astype(int)
    test, clients = deal(rows, labels, options.labels, np.random.default_rng(options.seed))
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the network is small
    first = TorchModel(
        Net(), embed="embedding", shape=(1, 8, 8), augment=shift, teacher=options.teacher
    )
    for source in ("labels", "xclp"):
        run = undertone.train(
            copy.deepcopy(first),
            clients,
            test=test,
            labels_from=source,
            label_rounds=options.label_rounds,
            rounds=options.rounds,
            backend=options.backend,
            seed=options.seed,
        )
        last = np.mean(run.accuracies[-5:])
        print(f"{source:7} {last:.1%} of the test rows are right (mean of the last rounds)")


if __name__ == "__main__":
    main()
