"""Cross-client label propagation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._client import Client, Server
from ._costs import Cost, of_parties
from ._jobs import LabelJob, LabelTerms
from ._record import Record, given
from ._table import as_labels, columns_of, stated


@dataclass(frozen=True)
class Labels:
    """What a client takes home."""

    labels: NDArray[np.int64]
    """A class for each row, int64 of shape [rows]; -1 where no label reaches the row."""
    confidences: NDArray[np.float64]
    """From 0 to 1 for each row, float64 of shape [rows]; 1 where the client brought the label."""
    scores: NDArray[np.float64]
    """Scores of the rows without a label, float64 of shape [unlabelled rows, classes]."""


@dataclass(frozen=True)
class LabelReport:
    """What the server learns."""

    clients: list[int]
    """The clients whose rows are in the graph."""
    contributors: list[int]
    """The clients whose labels are in the scores."""
    method: str
    """How scores were solved for: cholesky or iterative."""
    neighbours: NDArray[np.int64]
    """The neighbours of each row, int64 of shape [rows of all clients, k]. -1 where there are
    fewer. Rows are numbered in the order of the clients."""
    distances: NDArray[np.int64]
    """The distances to them, in bits, with the same shape."""


class LabelRun(list[NDArray[np.int64]]):
    """The labels of each client's rows, and everything else about the run.

    It is a list with an int64 array of shape [rows] for each client.
    """

    def __init__(
        self,
        clients: list[Labels],
        report: LabelReport,
        costs: dict[int, list[Cost]],
        class_names: list[str],
    ) -> None:
        super().__init__(client.labels for client in clients)
        self.clients = clients
        """Labels, confidences and scores of each client."""
        self.report = report
        """What the server has learned."""
        self.costs = costs
        """What each party spent, phase by phase; -1 is the server."""
        self.class_names = class_names
        """The name of each class; empty where classes are numbers."""

    @property
    def confidences(self) -> list[NDArray[np.float64]]:
        """The confidences of each client's labels, float64 of shape [rows]."""
        return [client.confidences for client in self.clients]


def _enough(clients: int, job: LabelJob) -> int:
    if _checks.whole("clients", clients) < job.min_clients:
        raise ValueError(
            f"{clients} clients, at least {job.min_clients} are needed. With two clients each "
            "learns the other's part of every sum; min_clients=2 in the job, and in the terms of "
            "each client, accepts that"
        )
    return clients


def label(
    features: Sequence[NDArray[Any]],
    labels: Sequence[NDArray[Any]],
    *,
    classes: int | Sequence[str] | None = None,
    label_epsilon: float | None = None,
    codes: bool = False,
    seed: bytes | int | None = None,
    progress: Callable[[str], object] | None = None,
    **parameters: Any,
) -> LabelRun:
    """Labels the rows of all clients, with all parties in this process and the real messages.

    ``features`` has a float array of shape [rows, features] for each client, or a DataFrame: then
    all clients need the same columns in the same order. ``labels`` has the labels of each client's
    rows: whole numbers with -1 where there is no label, or texts, which are names of classes, with
    None, NaN or what else a file may have where there is none. Features must be on one scale;
    ``standardise`` brings them to one by a secure sum. With ``codes=True`` these are codes in place
    of features: uint8 of shape [rows, bits / 8], as ``numpy.packbits`` makes them.

    ``classes`` is the number of classes, or the names of all of them (default: the largest label
    and one, or the names that occur). ``label_epsilon`` puts noise on labels. ``parameters`` are
    those of :class:`LabelJob`, such as ``backend`` and ``bits``. ``seed`` (32 bytes, or a number)
    fixes everything random; it is for tests.

    ``progress`` is called now and then with a text. An exception in it, or Ctrl-C, ends the run.

    >>> import numpy as np, undertone
    >>> rng = np.random.default_rng(0)
    >>> truth = [np.arange(30) % 2 for client in range(3)]
    >>> rows = [rng.normal(size=(30, 5)) + 9 * (y[:, None] - 0.5) for y in truth]
    >>> known = [np.where(np.arange(30) < 4, y, -1) for y in truth]
    >>> found = undertone.label(rows, known, bits=1024)
    >>> float(np.mean(np.concatenate(found) == np.concatenate(truth)))
    1.0
    """
    if len(features) != len(labels):
        raise ValueError(f"features of {len(features)} clients, labels of {len(labels)}")
    job = LabelJob(**parameters)
    if job.class_names:
        raise ValueError("class_names is for jobs on a network; here classes= names them")
    _enough(len(features), job)
    each, learned, spent, names = _engine.label(
        job._rules(),
        [
            _arrays.rows(one, codes=codes, what=f"client {client}: ")
            for client, one in enumerate(features)
        ],
        [as_labels(one) for one in labels],
        [columns_of(one) for one in features],
        stated(classes),
        None if label_epsilon is None else _checks.real("label_epsilon", label_epsilon),
        _checks.seed(seed),
        progress,
    )
    clients = [Labels(*one) for one in each]
    return LabelRun(clients, LabelReport(*learned), of_parties(spent), names)


class LabelClient(Client[Labels]):
    """A client of label propagation: see :class:`Client`.

    See :func:`label` for rows and labels. With ``codes=True`` codes of ``bits`` bits are given in
    place of features (default: eight for each byte). ``classes`` is the number of classes, or their
    names (default: the number that the job states). ``terms`` are what this client agrees to
    (default: ``LabelTerms()``), whoever made the job. ``noise`` is ``(epsilon, secret)``: noise on
    labels, drawn from a secret of 32 bytes that the client keeps for all its jobs. It needs
    ``classes``.

    A job that standardises features has two sessions. The first gives no result.
    """

    def __init__(
        self,
        features: NDArray[Any],
        labels: NDArray[Any],
        *,
        codes: bool = False,
        bits: int | None = None,
        classes: int | Sequence[str] | None = None,
        noise: tuple[float, bytes] | None = None,
        terms: LabelTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        rows = _arrays.rows(features, codes=codes)
        if codes and bits is None and rows.ndim == 2:
            bits = 8 * rows.shape[1]
        self._client = _engine.label_client(
            (terms or LabelTerms())._rules(),
            rows,
            as_labels(labels),
            columns_of(features),
            None if bits is None else _checks.whole("bits", bits),
            stated(classes),
            _checks.noise(noise),
            given(record),
        )

    @staticmethod
    def _gave(result: Any) -> Labels:
        return Labels(*result)


class LabelServer(Server[LabelReport]):
    """The server of label propagation: see :class:`Server`."""

    def __init__(self, job: LabelJob | None = None) -> None:
        job = job or LabelJob()
        super().__init__(_engine.label_server(job._rules()))

    @staticmethod
    def _gave(result: Any) -> LabelReport:
        return LabelReport(*result)
