"""A graph that is built between pairs of clients, and label propagation over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._client import Client, Server
from ._costs import Cost, of_parties
from ._jobs import PsslJob, PsslTerms
from ._record import Record, given
from ._table import as_classes, columns_of
from ._train import Seed


@dataclass(frozen=True)
class PsslEdges:
    """The edges of a client with another one. Both have them in the same order."""

    client: int
    """The other client."""
    rows: NDArray[np.int64]
    """This client's row of each edge, int64 of shape [edges]."""
    weights: NDArray[np.float64]
    """The weight of each edge, float64 of shape [edges]."""


@dataclass(frozen=True)
class PsslLabels:
    """What a client takes home."""

    labels: NDArray[np.int64]
    """The class of each row, int64 of shape [rows]; -1 where no label reaches the row."""
    scores: NDArray[np.float64]
    """The scores, float64 of shape [rows, classes]."""
    edges: list[PsslEdges]
    """The edges with each client that finished the graph."""
    contributors: list[int]
    """The clients whose scores are in the last round."""


@dataclass(frozen=True)
class PsslReport:
    """What the server learns."""

    clients: dict[int, int]
    """The number of rows of each client."""
    contributors: list[int]
    """The clients whose scores are in the last round."""
    suspects: list[int]
    """Clients that revealed a false share of a secret, or were dealt one."""


class PsslRun(list[NDArray[np.int64]]):
    """The labels of each client's rows, and everything else about the run.

    It is a list with an int64 array of shape [rows] for each client.
    """

    def __init__(
        self, clients: list[PsslLabels], report: PsslReport, costs: dict[int, list[Cost]]
    ) -> None:
        super().__init__(client.labels for client in clients)
        self.clients = clients
        """Labels, scores and edges of each client."""
        self.report = report
        """What the server has learned."""
        self.costs = costs
        """What each party spent, phase by phase; -1 is the server."""


def _rows(features: Any, what: str) -> NDArray[np.uint8]:
    array = _arrays.numbers(features, f"{what} are")
    if array.dtype != np.uint8:
        raise TypeError(
            f"{what} are of {array.dtype}; uint8 is needed. Bring all clients' features to whole "
            "numbers by one scale, as in np.clip(np.rint(x / largest * 255), 0, 255)"
        )
    if array.ndim != 2:
        raise ValueError(f"{what} have {array.ndim} dimensions; shape [rows, features] is needed")
    return np.asarray(array, order="C")


def _labels(one: Any) -> PsslLabels:
    labels, scores, edges, contributors = one
    return PsslLabels(labels, scores, [PsslEdges(*edge) for edge in edges], contributors)


def _report(learned: Any) -> PsslReport:
    clients, contributors, suspects = learned
    return PsslReport(dict(clients), contributors, suspects)


def pssl(
    features: Sequence[NDArray[np.uint8]],
    labels: Sequence[NDArray[Any]],
    *,
    classes: int | None = None,
    asked: int | None = None,
    clusters: int | None = None,
    seed: Seed = None,
    progress: Callable[[str], object] | None = None,
    **parameters: Any,
) -> PsslRun:
    """Labels the rows of all clients over a graph that they build pair by pair (PSSL).

    All parties run in this process, with the real messages. The server relays sealed messages and
    adds up masked words. It learns no distance, no label and no score. It protects features, and
    labels less: a client often learns the class of a labelled row that has an edge to one of its
    own.

    ``features`` has a uint8 array of shape [rows, features] for each client, on one scale.
    ``labels`` has an integer array of shape [rows], with -1 where there is no label. ``classes`` is
    their number (default: the largest label and one), ``asked`` and ``clusters`` as in
    :class:`PsslJob` (default of ``asked``: 0.64 times the mean number of rows of a client, by the
    number of clusters). ``parameters`` are the others of :class:`PsslJob`; the default of ``scale``
    is the largest value. ``seed`` (32 bytes, or a number) fixes everything random; it is for tests.

    >>> import numpy as np, undertone
    >>> rng = np.random.default_rng(0)
    >>> truth = [np.arange(40) % 2 for client in range(3)]
    >>> rows = [(60 * y[:, None] + rng.integers(0, 60, (40, 8))).astype(np.uint8) for y in truth]
    >>> known = [np.where(np.arange(40) < 4, y, -1) for y in truth]
    >>> found = undertone.pssl(rows, known, d_min=0.2, d_max=1.0)
    >>> float(np.mean(np.concatenate(found) == np.concatenate(truth))) > 0.9
    True
    """
    if len(features) != len(labels):
        raise ValueError(f"features of {len(features)} clients, labels of {len(labels)}")
    least = parameters.get("min_clients", 3)
    if len(features) < least:
        raise ValueError(f"{len(features)} clients, at least {least} are needed")
    rows = [_rows(one, f"client {client}: features") for client, one in enumerate(features)]
    known = [as_classes(one) for one in labels]
    if classes is None:
        classes = max(2, 1 + max((int(one.max()) for one in known if one.size), default=-1))
    if clusters is None:
        clusters = classes
    if asked is None:
        mean = sum(len(one) for one in rows) / len(rows)
        asked = max(1, round(0.64 * mean / clusters))
    parameters.setdefault("scale", max((int(one.max()) for one in rows if one.size), default=1))
    job = PsslJob(
        features=rows[0].shape[1], classes=classes, asked=asked, clusters=clusters, **parameters
    )
    each, learned, spent = _engine.pssl(job._rules(), rows, known, _checks.seed(seed), progress)
    return PsslRun([_labels(one) for one in each], _report(learned), of_parties(spent))


class PsslClient(Client[PsslLabels]):
    """A client of a graph between pairs: see :class:`Client`.

    ``features`` are numbers from 0, of shape [rows, features], and ``labels`` integers of shape
    [rows], with -1 where there is no label. The job says how features become whole numbers: its
    ``range`` becomes its ``scale``. **Rows take part once**: another session joins them by further
    edges with the same clients, and tells more. ``terms`` are what this client agrees to (default:
    ``PsslTerms()``), whoever made the job.
    """

    def __init__(
        self,
        features: NDArray[Any],
        labels: NDArray[Any],
        *,
        terms: PsslTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        self._client = _engine.pssl_client(
            (terms or PsslTerms())._rules(),
            _arrays.matrix(features, "features", np.float64, "[rows, features]"),
            as_classes(labels),
            columns_of(features),
            given(record),
        )

    @staticmethod
    def _gave(result: Any) -> PsslLabels:
        return _labels(result)


class PsslServer(Server[PsslReport]):
    """The server of a graph between pairs: see :class:`Server`."""

    def __init__(self, job: PsslJob) -> None:
        super().__init__(_engine.pssl_server(job._rules()))

    @staticmethod
    def _gave(result: Any) -> PsslReport:
        return _report(result)
