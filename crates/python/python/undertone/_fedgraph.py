"""A graph network over clients with different features of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._client import Client, Server
from ._costs import Cost, of_parties
from ._jobs import FedGraphJob, FedGraphTerms
from ._party import Path
from ._record import Record, given
from ._table import complete
from ._train import Seed


@dataclass(frozen=True)
class FedGraphOutcome:
    """What a client has at the end."""

    votes: NDArray[np.float64] | None
    """The means of all clients' class probabilities, float64 of shape [queries, classes]; None
    without rows to predict."""
    graph: NDArray[np.float64] | None
    """The graph network's class probabilities, float64 of shape [queries, classes]; None unless it
    predicts."""
    loss: float | None
    """The mean cross entropy before the last step, with ``cut="client"``."""
    members: list[int]
    """The clients in the graph network."""
    neighbours: list[list[int]]
    """For each client, those that have features in common with it. With ``cut="client"`` only
    clients with two neighbours or more are in the network."""


@dataclass(frozen=True)
class FedGraphReport:
    """What the server has at the end."""

    clients: list[int]
    """The clients."""
    members: list[int]
    """The clients in the graph network."""
    neighbours: list[list[int]]
    """For each client, those that have features in common with it."""
    clusters: int
    """The number of clusters; 0 without a graph network."""
    loss: float | None
    """The mean cross entropy before the last step; None with ``cut="client"``."""
    predicted: NDArray[np.float64] | None
    """The graph network's class probabilities, float64 of shape [queries, classes], if it predicts
    and the server has its weights."""


@dataclass(frozen=True)
class FedGraphRun:
    """Predictions, and everything else about the run."""

    votes: NDArray[np.float64] | None
    """The means of all clients' class probabilities, float64 of shape [queries, classes]; None
    without rows to predict. All clients have them."""
    graph: NDArray[np.float64] | None
    """The graph network's class probabilities, float64 of shape [queries, classes]; None unless
    ``predict="graph"``. All clients have them."""
    loss: float | None
    """The mean cross entropy before the last step. Clients have it with ``cut="client"``, and
    otherwise the server. None without steps."""
    members: list[int]
    """The clients in the graph network."""
    neighbours: list[list[int]]
    """For each client, those that have features in common with it."""
    clients: list[FedGraphOutcome]
    """What each client has."""
    report: FedGraphReport
    """What the server has."""
    costs: dict[int, list[Cost]]
    """What each party spent, phase by phase; -1 is the server."""


def _matrix(array: Any, what: str, shape: str) -> NDArray[np.float64]:
    return _arrays.matrix(array, what, np.float64, shape)


def _columns(names: Any, what: str) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"{what} are one text; a list of texts is needed")
    texts: list[str] = []
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(
                f"{what}: the one at {place} is {type(name).__name__}; texts are needed"
            )
        texts.append(name)
    return texts


def _brought(
    columns: Any, embeddings: Any, probabilities: Any, labels: Any, queries: Any, prefix: str = ""
) -> dict[str, Any]:
    """What a client brings, as the engine reads it."""
    embeddings = _matrix(embeddings, f"{prefix}embeddings", "[rows, width]")
    if queries is None:
        queries = np.zeros((0, embeddings.shape[1]))
    return {
        "columns": _columns(columns, f"{prefix}names of features"),
        "embeddings": embeddings,
        "probabilities": _matrix(probabilities, f"{prefix}probabilities", "[queries, classes]"),
        "labels": labels,
        "queries": _matrix(
            queries, f"{prefix}embeddings of rows to predict", "[queries, width]"
        ),
    }


def _check_queries(predict: str, queries: object) -> None:
    if predict == "graph" and queries is None:
        raise ValueError(
            'predict="graph" needs queries: the embeddings of the rows to predict, from each client'
        )


def fedgraph(
    columns: Sequence[Sequence[str]],
    embeddings: Sequence[Any],
    probabilities: Sequence[Any],
    labels: Any,
    *,
    queries: Sequence[Any] | None = None,
    seed: Seed = None,
    progress: Callable[[str], object] | None = None,
    **parameters: Any,
) -> FedGraphRun:
    """Combines clients that have different features of the same rows (FedGraph).

    All parties run in this process, with the real messages. All clients know the same rows and
    their labels. Each has a network of its own, over its own features: of any framework, because
    only arrays come here. Rows without a label are predicted by a soft vote, the mean of all
    clients' class probabilities, which adds up under masks. A graph network over the clients, in
    which clients with a feature in common are neighbours, trains on their embeddings. It sees means
    over clusters of rows. With ``predict="graph"`` it predicts too, and sees single rows.

    ``columns`` has the names of the features of each client. ``embeddings`` has an array of shape
    [rows, width] for each client: what its network makes of the rows with a label, such as the
    activations of a hidden layer, from -64 to 64. ``probabilities`` has an array of shape [queries,
    classes] for each client: class probabilities of the rows to predict. ``labels`` are integers of
    shape [rows], counted from 0, the same for all clients. ``queries`` has an array of shape
    [queries, width] for each client, the embeddings of the rows to predict; only
    ``predict="graph"`` needs it. All clients have the rows in the same order. Arrays are float32 or
    float64.

    ``parameters`` are others of :class:`FedGraphJob`. ``steps=0`` is the soft vote alone. ``seed``
    (32 bytes, or a number) fixes everything random; it is for tests.

    **No cut protects the embeddings themselves.** The server sees nothing of them only with
    ``cut="client"``, and clients then see means over their neighbours. In training the means over
    clusters are all that hides single rows.

    Raises ``ValueError`` or ``TypeError`` for arguments that cannot be, and :class:`AbortedError`
    if no graph network is possible, as when no three clients have features in common.

    >>> import numpy as np, undertone
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(60) % 2
    >>> names = [["age", "dose"], ["dose", "pulse"], ["pulse", "age"]]
    >>> hidden = [rng.random((60, 4)) + truth[:, None] for client in names]
    >>> guesses = [rng.dirichlet([2, 1], 5) for client in names]
    >>> training = {"cluster": 6, "steps": 20, "rate": 0.05}
    >>> run = undertone.fedgraph(names, hidden, guesses, truth, **training, seed=1)
    >>> bool(np.allclose(run.votes, np.mean(guesses, axis=0))), run.loss < 0.5
    (True, True)
    >>> run.neighbours
    [[1, 2], [0, 2], [0, 1]]
    """
    counts = {
        "columns": len(columns),
        "embeddings": len(embeddings),
        "probabilities": len(probabilities),
    }
    if queries is not None:
        counts["queries"] = len(queries)
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{what} of {count}" for what, count in counts.items())
        raise ValueError(f"{each} clients; each needs one for every client")
    if len(columns) < 3:
        raise ValueError(f"{len(columns)} clients, at least 3 are needed")
    _check_queries(parameters.get("predict", "vote"), queries)
    known = complete(labels, "labels")
    clients = [
        _brought(*own, known, None if queries is None else queries[client], f"client {client}: ")
        for client, own in enumerate(zip(columns, embeddings, probabilities, strict=True))
    ]
    first = clients[0]
    if len(known) != len(first["embeddings"]):
        raise ValueError(
            f"{len(known)} labels, but client 0 has embeddings of {len(first['embeddings'])} rows"
        )
    job = FedGraphJob(
        clients=len(clients),
        rows=len(known),
        queries=first["probabilities"].shape[0],
        classes=first["probabilities"].shape[1],
        width=first["embeddings"].shape[1],
        **parameters,
    )
    had, learned, spent = _engine.fedgraph(job._rules(), clients, _checks.seed(seed), progress)
    outcomes, report = [_outcome(one) for one in had], _report(learned)
    one = outcomes[0]
    return FedGraphRun(
        one.votes,
        one.graph,
        report.loss if one.loss is None else one.loss,
        one.members,
        one.neighbours,
        outcomes,
        report,
        of_parties(spent),
    )


def _outcome(had: Any) -> FedGraphOutcome:
    votes, graph, loss, (members, neighbours) = had
    return FedGraphOutcome(votes, graph, loss, members, neighbours)


def _report(learned: Any) -> FedGraphReport:
    clients, (members, neighbours), clusters, loss, predicted = learned
    return FedGraphReport(clients, members, neighbours, clusters, loss, predicted)


class FedGraphClient(Client[FedGraphOutcome]):
    """A client of a graph network over clients: see :class:`Client`.

    ``columns``, ``embeddings``, ``probabilities``, ``labels`` and ``queries`` are the client's own
    of what :func:`fedgraph` takes. ``rows`` are the rows with a label as they were loaded, of shape
    [rows, features]: the record knows them again, also under another local network. A record on
    disk needs them.

    ``checkpoint`` is the file of the client's last two checkpoints (default: the file ``fedgraph``
    in the folder of its record, if it is on disk). If a run breaks off, all parties make new ones
    with the same files, and continue. Once the training has begun, a client that lost its
    checkpoints cannot: a run that started anew would tell more about the same rows, and the others
    refuse it. Checkpoints are secret.

    ``terms`` are what this client agrees to (default: :class:`FedGraphTerms`): the cut, the
    clusters and what predicts decide what others see. A job with ``steps`` trains a graph network,
    and needs ``FedGraphTerms(show_embeddings=True)``.
    """

    def __init__(
        self,
        columns: Sequence[str],
        embeddings: Any,
        probabilities: Any,
        labels: Any,
        *,
        queries: Any = None,
        rows: Any = None,
        checkpoint: Path | None = None,
        terms: FedGraphTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        self._votes: list[NDArray[np.float64]] = []
        self._client = _engine.fedgraph_client(
            (terms or FedGraphTerms())._rules(),
            _brought(columns, embeddings, probabilities, complete(labels, "labels"), queries),
            None if rows is None else _matrix(rows, "rows", "[rows, features]"),
            checkpoint,
            self._votes.append,
            given(record),
        )

    @property
    def votes(self) -> NDArray[np.float64] | None:
        """The means of all clients' class probabilities, float64 of shape [queries, classes], as
        soon as they are known. They are final, also if the run ends early."""
        return self._votes[-1] if self._votes else None

    @staticmethod
    def _gave(result: Any) -> FedGraphOutcome:
        return _outcome(result)


class FedGraphServer(Server[FedGraphReport]):
    """The server of a graph network over clients: see :class:`Server`. A job with ``steps`` needs a
    ``checkpoint``: a run that broke off can only continue, and not start anew with the same rows.
    The file stays when the job is done."""

    def __init__(self, job: FedGraphJob, *, checkpoint: Path | None = None) -> None:
        if FedGraphJob.read(job.offer).steps and checkpoint is None:
            raise ValueError(
                "a job with steps needs checkpoint, a file: a run that broke off can only "
                "continue, and not start anew with the same rows"
            )
        super().__init__(_engine.fedgraph_server(job._rules()), checkpoint)

    @staticmethod
    def _gave(result: Any) -> FedGraphReport:
        return _report(result)
