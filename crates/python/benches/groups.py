"""What fixed groups cost in accuracy: FedAvg on digits, ten of 20 clients a round.

Run it with ``python crates/python/benches/groups.py`` after ``pip install '.[flower]'``. Means are
taken in the clear: those of SecureGrid are the same up to 10**-7. With ``--skew`` each client has
mostly three classes, which is the hard case.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone import _engine

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples/flower"))

from digits import task  # noqa: E402

CLIENTS, DRAWN, LEAST = 20, 10, 5


def parts(rows: task.Rows, skew: bool, rng: np.random.Generator) -> list[task.Rows]:
    """The rows of each client."""
    if not skew:
        owner = rng.integers(0, CLIENTS, len(rows.classes))
    else:
        chance = rng.dirichlet([0.3] * CLIENTS, task.CLASSES)
        owner = np.array([rng.choice(CLIENTS, p=chance[one]) for one in rows.classes])
        owner[:CLIENTS] = range(CLIENTS)  # nobody has no rows
    return [
        task.Rows(rows.features[owner == one], rows.classes[owner == one])
        for one in range(CLIENTS)
    ]


def drawn(groups: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    if not groups:
        return rng.permutation(CLIENTS)[:DRAWN]
    whole = _engine.groups(CLIENTS, LEAST)
    order = rng.permutation(len(whole))
    return np.concatenate([whole[one] for one in order[: DRAWN // LEAST]])


def accuracy(groups: bool, rounds: int, skew: bool, seed: int) -> float:
    """The mean accuracy of the last ten rounds."""
    rng = np.random.default_rng(seed)
    rows, test = task.load(str(ROOT / "data/digits.npz"))
    clients, model, reached = parts(rows, skew, rng), task.new_model(), []
    for number in range(rounds):
        who = drawn(groups, rng)
        weights = [len(clients[one].classes) for one in who]
        trained = [task.train(model, clients[one], epochs=5) for one in who]
        model = {
            name: np.average([one[name] for one in trained], axis=0, weights=weights).astype("f")
            for name in model
        }
        if number >= rounds - 10:
            reached.append(task.accuracy(model, test))
    return float(np.mean(reached))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--skew", action="store_true")
    options = parser.parse_args()
    found = {
        name: [
            100 * accuracy(groups, options.rounds, options.skew, seed)
            for seed in range(options.seeds)
        ]
        for name, groups in [("free sampling", False), ("groups of five", True)]
    }
    for name, values in found.items():
        print(f"{name}: {np.mean(values):.2f} % (standard deviation {np.std(values):.2f})")
    difference = np.subtract(found["groups of five"], found["free sampling"])
    print(f"difference: {difference.mean():+.2f} points")


if __name__ == "__main__":
    main()
