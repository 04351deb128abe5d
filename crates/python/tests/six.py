"""A small job of each application, and what three or five clients bring to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from test_cotrain import Nearest
from test_train import Softmax

import undertone
from undertone import Client

CLIENTS, ROWS, FEATURES, CLASSES = 5, 30, 6, 3


@dataclass(frozen=True)
class Trial:
    """A job, its clients, and whether a client's result is right."""

    job: Any
    make: Callable[[int], Client[Any]]
    is_right: Callable[[int, Any], bool]
    params: NDArray[np.float32] | None = None


def trials() -> dict[str, Trial]:
    """A trial of each application, by its name."""
    rng = np.random.default_rng(0)
    truth = [rng.integers(CLASSES, size=ROWS) for _ in range(CLIENTS)]
    centres = 3 * rng.normal(size=(CLASSES, FEATURES))
    rows = [centres[y] + rng.normal(size=(ROWS, FEATURES)) for y in truth]
    known = [np.where(np.arange(ROWS) < 8, y, -1) for y in truth]
    public = centres[np.arange(24) % CLASSES] + rng.normal(size=(24, FEATURES))
    whole = [one - min(each.min() for each in rows) for one in rows]
    hidden = [centres[truth[0]] / 4 + 0.2 * rng.random((ROWS, FEATURES)) for _ in range(CLIENTS)]
    guesses = [rng.dirichlet(np.ones(CLASSES), 4) for _ in range(CLIENTS)]
    last = np.mean([np.full(3, float(index)) for index in range(CLIENTS)], axis=0)

    def good(share: float) -> Callable[[int, Any], bool]:
        return lambda index, found: bool(np.mean(found.labels == truth[index]) > share)

    return {
        "label": Trial(
            undertone.LabelJob(bits=512, classes=CLASSES, standardise=True, neighbours=5),
            lambda i: undertone.LabelClient(rows[i], known[i]),
            good(0.7),
        ),
        "sum": Trial(
            undertone.SumJob(clients=CLIENTS, rounds=2, bound=16.0),
            lambda i: undertone.RoundsClient(
                lambda number, attempt, mean: ({"w": np.full(3, i + number / 8)}, 1.0)
            ),
            lambda i, mean: mean.round == 2 and np.allclose(mean.arrays["w"], last + 0.25),
        ),
        "train": Trial(
            undertone.TrainJob(
                features=FEATURES, classes=CLASSES, parameters=(FEATURES + 1) * CLASSES,
                label_rounds=1, rounds=1, bits=512, epochs=1, neighbours=4,
            ),
            lambda i: undertone.TrainClient(Softmax(FEATURES, CLASSES), rows[i], known[i]),
            lambda i, step: step.kind == "over" and bool(np.any(step.params)),
            Softmax(FEATURES, CLASSES).params(),
        ),
        "cotrain": Trial(
            undertone.CotrainJob(
                classes=CLASSES, rows=24, features=FEATURES,
                public=undertone.public_digest(public), exchanges=2,
            ),
            lambda i: undertone.CotrainClient(Nearest(), rows[i], truth[i], public),
            lambda i, step: step.kind == "over"
            and bool(np.mean(step.labels == np.arange(24) % CLASSES) > 0.7),
        ),
        "pssl": Trial(
            undertone.PsslJob(
                features=FEATURES, classes=CLASSES, asked=4, scale=63, d_min=0.1, d_max=1.1,
                range=float(max(one.max() for one in whole)),
            ),
            lambda i: undertone.PsslClient(
                whole[i], known[i], terms=undertone.PsslTerms(d_min=0.1)
            ),
            good(0.5),
        ),
        "fedgraph": Trial(
            undertone.FedGraphJob(
                clients=CLIENTS, rows=ROWS, queries=4, classes=CLASSES, width=FEATURES, cluster=6,
                steps=2,
            ),
            lambda i: undertone.FedGraphClient(
                ["age", "dose"], np.clip(hidden[i], -8, 8), guesses[i], truth[0], rows=rows[i],
                terms=undertone.FedGraphTerms(show_embeddings=True, min_cluster=1),
            ),
            lambda i, found: np.allclose(found.votes, np.mean(guesses, axis=0), atol=1e-4),
        ),
    }
