"""The data of each client, and the model: softmax regression in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone import Examples, Schedule

CLASSES = 10
Arrays = dict[str, NDArray[np.float32]]


@dataclass
class Rows:
    """Images as rows from 0 to 1, and their classes."""

    features: NDArray[np.float32]
    classes: NDArray[np.int64]

    def part(self, index: int, parts: int) -> Rows:
        """Every row whose number leaves the remainder ``index``."""
        return Rows(self.features[index::parts], self.classes[index::parts])


def load(path: str) -> tuple[Rows, Rows]:
    """Rows for training and for tests, in a fixed random order."""
    features: NDArray[Any]
    classes: NDArray[Any]
    if path:
        with np.load(path) as file:
            features, classes = file["features"], file["labels"]
    else:
        from sklearn.datasets import load_digits

        features, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(classes))
    rows = Rows(
        (features[order] / features.max()).astype(np.float32), classes[order].astype(np.int64)
    )
    test = len(classes) // 5
    return (
        Rows(rows.features[test:], rows.classes[test:]),
        Rows(rows.features[:test], rows.classes[:test]),
    )


def known(rows: Rows, index: int) -> NDArray[np.int64]:
    """The labels of a client: one in ten is known, the others are -1."""
    shown = np.random.default_rng([1, index]).random(len(rows.classes)) < 0.1
    return np.where(shown, rows.classes, -1)


def new_model() -> Arrays:
    return {
        "weights": np.zeros((64, CLASSES), np.float32),
        "bias": np.zeros(CLASSES, np.float32),
    }


def scores(model: Arrays, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The probability of each class, float32 of shape [rows, classes]."""
    raw = features @ model["weights"] + model["bias"]
    raw = np.exp(raw - raw.max(axis=1, keepdims=True))
    return np.asarray(raw / raw.sum(axis=1, keepdims=True), np.float32)


def train(model: Arrays, rows: Rows, epochs: int = 20, rate: float = 1.0) -> Arrays:
    """Gradient descent on all rows."""
    model = {name: array.copy() for name, array in model.items()}
    wanted = np.eye(CLASSES, dtype=np.float32)[rows.classes]
    for _ in range(epochs):
        error = (scores(model, rows.features) - wanted) / np.float32(len(wanted))
        model["weights"] -= np.float32(rate) * (rows.features.T @ error)
        model["bias"] -= np.float32(rate) * error.sum(axis=0)
    return model


def accuracy(model: Arrays, rows: Rows) -> float:
    return float(np.mean(scores(model, rows.features).argmax(axis=1) == rows.classes))


class Model:
    """The same regression, as training with propagated labels calls it. Its embeddings are the
    rows."""

    def __init__(self) -> None:
        self.arrays = new_model()

    def params(self) -> NDArray[np.float32]:
        return np.concatenate([array.ravel() for array in self.arrays.values()])

    def set_params(self, params: NDArray[np.float32]) -> None:
        weights, bias = np.split(params, [64 * CLASSES])
        self.arrays = {"weights": weights.reshape(64, CLASSES), "bias": bias}

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return scores(self.arrays, rows)

    def update(self, examples: Examples, schedule: Schedule) -> None:
        weights, bias = self.arrays["weights"].copy(), self.arrays["bias"].copy()
        self.arrays = {"weights": weights, "bias": bias}
        for rows, classes, weight in schedule.batches(examples):
            batch = examples.rows[rows]
            error = scores(self.arrays, batch) - np.eye(CLASSES, dtype=np.float32)[classes]
            error *= np.float32(schedule.learning_rate) * weight[:, None] / np.float32(len(rows))
            weights -= batch.T @ error
            bias -= error.sum(axis=0)
