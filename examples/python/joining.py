"""What clients gain by joining, and what the server sees.

Five clients hold the digits and know a few labels each. The program compares three accuracies:
each client alone, all clients by Undertone, and all rows pooled in one place. It draws them
over the share of known labels, and beside them what the server sees: the distances between rows,
and no row.

    pip install . matplotlib
    python examples/python/joining.py data/digits.npz joining.svg
"""

import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

import undertone

CLIENTS, BITS, SEEDS = 5, 4096, 3
SHARES = [0.02, 0.05, 0.1, 0.2]


def deal(rows, labels, share, seed):
    """The rows, the known labels and all labels of each client."""
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(len(labels)), CLIENTS)
    known = np.where(rng.random(len(labels)) < share, labels, -1)
    return [rows[p] for p in parts], [known[p] for p in parts], [labels[p] for p in parts]


def accuracy(found, known, truth):
    hidden = np.concatenate(known) == -1
    return 100 * np.mean((np.concatenate(found) == np.concatenate(truth))[hidden])


def alone(rows, known, classes, seed):
    """The labels that each client finds by itself: its rows, dealt to three parties of its own."""
    found = []
    for r, k in zip(rows, known):
        thirds = np.array_split(np.arange(len(r)), 3)
        run = undertone.label(
            [r[t] for t in thirds], [k[t] for t in thirds],
            backend="clear", classes=classes, bits=BITS, seed=seed,
        )
        found.append(np.concatenate(run))
    return found


def main(data, picture):
    with np.load(data) as file:
        rows, labels = file["features"].astype(float), file["labels"].astype(int)
    classes = 1 + labels.max()
    together, by_themselves = [], []
    print("known   each alone   together")
    for share in SHARES:
        each = []
        for seed in range(SEEDS):
            r, k, truth = deal(rows, labels, share, seed)
            run = undertone.label(r, k, classes=classes, bits=BITS, seed=seed)
            each.append(
                (accuracy(alone(r, k, classes, seed), k, truth), accuracy(run, k, truth))
            )
        by_themselves.append(np.mean([a for a, _ in each]))
        together.append(np.mean([b for _, b in each]))
        print(f"{share:5.0%}   {by_themselves[-1]:9.1f}   {together[-1]:8.1f}")

    r, _, _ = deal(rows, labels, 0.1, 0)
    seen = undertone.distances(r[0][:40], r[1][:40], bits=BITS)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(SHARES, together, "o-", label="together, by Undertone")
    left.plot(SHARES, by_themselves, "s--", label="each client alone")
    left.set(xlabel="share of labels that are known", ylabel="accuracy on hidden rows (%)")
    left.set(title="What joining gains")
    left.legend()
    shown = right.imshow(seen.hamming, cmap="viridis")
    figure.colorbar(shown, ax=right, label=f"bits of {BITS} that differ")
    right.set(title="What the server sees of 40 × 40 rows")
    right.set(xlabel="rows of client 1", ylabel="rows of client 0")
    figure.savefig(picture)
    print(f"written to {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
