"""An estimator with scikit-learn's conventions (needs scikit-learn)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)

from . import _engine
from ._label import label
from ._table import as_labels


def _numbered(y: NDArray[Any]) -> tuple[NDArray[Any], list[str]]:
    """Labels as numbers, -1 where there is none, and the names that they are places of, if any."""
    given = as_labels(y)
    if isinstance(given, list):
        return _engine.parse_labels(given, None)
    if given.dtype == np.int64:
        return given, []
    whole = np.where(np.isnan(given), -1, given)
    if (whole != np.rint(whole)).any():
        type_of_target(given, raise_unknown=True)
        raise ValueError("y must have whole numbers or texts, and -1 where there is no label")
    return whole.astype(np.int64), []


class FederatedLabelPropagation(BaseEstimator):  # type: ignore[misc]
    """Label propagation over the rows of several clients, under encryption.

    It takes the place of :class:`sklearn.semi_supervised.LabelSpreading` in an experiment: ``fit``
    gets all rows, a label for each (-1 where there is none), and the client of each row. All
    parties run in this process, with the real messages. It is transductive: it labels the rows that
    it is fitted on, and has no ``predict`` for others.

    Parameters
    ----------
    backend, neighbours, alpha, bits, variant, label_epsilon, standardise
        As for :func:`undertone.label`.
    n_clients : int
        Number of clients to which rows are dealt at random if ``fit`` is not told their clients.
    random_state : int, RandomState or None
        Fixes the codes and how rows are dealt.

    Attributes
    ----------
    classes_ : array of shape [classes]
        The labels that occur.
    transduction_ : array of shape [rows]
        The label of each row; the label that was given, where there was one. -1 where no label
        reaches a row; with texts it is an array of objects.
    confidences_ : float64 array of shape [rows]
        From 0 to 1; 1 where the label was given.
    clients_ : array of shape [rows]
        The client of each row.
    costs_ : dict
        What each party spent; -1 is the server.

    Examples
    --------
    >>> import numpy as np
    >>> from undertone.sklearn import FederatedLabelPropagation
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(2, size=90)
    >>> rows = rng.normal(size=(90, 4)) + 8 * (truth[:, None] - 0.5)
    >>> known = np.where(rng.random(90) < 0.2, truth, -1)
    >>> model = FederatedLabelPropagation(bits=512, random_state=0)
    >>> float((model.fit_predict(rows, known, clients=np.arange(90) % 3) == truth).mean())
    1.0
    """

    def __init__(
        self,
        *,
        backend: str = _engine.BACKEND,
        neighbours: int = 10,
        alpha: float = 0.99,
        bits: int = 4096,
        variant: str = "balanced",
        label_epsilon: float | None = None,
        standardise: bool = False,
        n_clients: int = 3,
        random_state: Any = None,
    ) -> None:
        self.backend = backend
        self.neighbours = neighbours
        self.alpha = alpha
        self.bits = bits
        self.variant = variant
        self.label_epsilon = label_epsilon
        self.standardise = standardise
        self.n_clients = n_clients
        self.random_state = random_state

    def fit(self, X: Any, y: Any, clients: Any = None) -> FederatedLabelPropagation:
        """Labels the rows of ``X``.

        ``X`` is a float array of shape [rows, features]. ``y`` has a label for each row: whole
        numbers with -1 where there is none, or texts with -1, None or NaN where there is none.
        ``clients`` is the number or name of the client of each row.
        """
        rows = check_array(X, dtype=[np.float64, np.float32])
        check_consistent_length(rows, y)
        known, texts = _numbered(column_or_1d(y, warn=True))
        random = check_random_state(self.random_state)
        if clients is None:
            owner = random.permutation(np.arange(len(rows)) % self.n_clients)
        else:
            owner = np.asarray(clients)
            check_consistent_length(rows, owner)
        occur = np.unique(known[known != -1])
        if len(occur) < 2:
            raise ValueError(f"{len(occur)} classes occur in y; at least two are needed")
        number = np.searchsorted(occur, known)
        number = np.where(known == -1, -1, number).astype(np.int64)
        self.classes_ = np.array(texts)[occur] if texts else occur
        names = np.unique(owner)
        parts = [np.flatnonzero(owner == name) for name in names]
        run = label(
            [rows[part] for part in parts],
            [number[part] for part in parts],
            backend=self.backend,
            neighbours=self.neighbours,
            alpha=self.alpha,
            bits=self.bits,
            variant=self.variant,
            classes=len(self.classes_),
            label_epsilon=self.label_epsilon,
            standardise=self.standardise,
            seed=int(random.randint(2**31)),
        )
        found: NDArray[np.int64] = np.empty(len(rows), np.int64)
        self.confidences_ = np.empty(len(rows))
        for part, labels, confidences in zip(parts, run, run.confidences, strict=True):
            found[part] = labels
            self.confidences_[part] = confidences
        if texts:
            self.transduction_ = np.full(len(rows), -1, object)
            self.transduction_[found != -1] = self.classes_[found[found != -1]]
        else:
            self.transduction_ = np.where(found == -1, -1, self.classes_[found])
        self.clients_, self.costs_, self.n_features_in_ = owner, run.costs, rows.shape[1]
        return self

    def fit_predict(self, X: Any, y: Any, clients: Any = None) -> NDArray[Any]:
        """Labels the rows of ``X`` and returns the labels; -1 where no label reaches a row."""
        self.fit(X, y, clients)
        return np.asarray(self.transduction_)
