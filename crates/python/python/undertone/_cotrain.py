"""Co-training by votes on public rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._client import Client, Server
from ._costs import Cost, of_parties
from ._jobs import CotrainJob, CotrainTerms
from ._party import Path
from ._record import Record, given
from ._table import columns_of, complete
from ._train import Seed


MAX_CLASSES = 1024
"""Most classes of a job."""


@runtime_checkable
class Learner(Protocol):
    """A classifier that can be co-trained. Any object with these methods will do.

    Classifiers of scikit-learn are learners as they are.
    """

    def fit(self, X: NDArray[np.float32], y: NDArray[np.int64], /) -> object:
        """Forgets what it learned, and learns from ``X``, float32 of shape [rows, features], and
        ``y``, int64 of shape [rows]: classes, counted from 0. Classes may be missing."""
        ...

    def predict(self, X: NDArray[np.float32], /) -> Any:
        """The class of each row of ``X``: an array of any integer type, of shape [rows]."""
        ...


class _Adapter:
    """A learner as the engine calls it."""

    def __init__(self, learner: Learner, classes: int, who: str) -> None:
        self.learner = learner
        self._classes = classes
        self._who = who

    def fit(self, rows: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        self.learner.fit(rows, labels)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        found = np.asarray(self.learner.predict(rows))
        what = f"{self._who}: predict() of {type(self.learner).__name__} returned"
        if found.dtype.kind not in "iu":
            raise TypeError(f"{what} {found.dtype}; class numbers, which are integers, are needed")
        if found.shape != (len(rows),):
            raise ValueError(f"{what} shape {found.shape}; ({len(rows)},) is needed")
        wrong = np.flatnonzero((found < 0) | (found >= self._classes))
        if wrong.size:
            raise ValueError(
                f"{what} {found[wrong[0]]} for row {wrong[0]}; there are {self._classes} classes, "
                "counted from 0"
            )
        return np.asarray(found, dtype=np.int64, order="C")


def _is_learner(learner: object) -> bool:
    methods = (getattr(learner, name, None) for name in ("fit", "predict"))
    return not isinstance(learner, type) and all(map(callable, methods))


def _learner(who: str, given: Any) -> Any:
    """The learner that is given, or a new one of the function that is given."""
    learner = given() if not _is_learner(given) and callable(given) else given
    for name in ("fit", "predict"):
        if not callable(getattr(learner, name, None)):
            raise TypeError(
                f"{who}: {type(learner).__name__} is no learner: it has no method {name}()"
            )
    return learner


def _learners(given: Any, count: int) -> list[Any]:
    if not isinstance(given, (list, tuple)):
        given = [copy.deepcopy(given) if _is_learner(given) else given for _ in range(count)]
    if len(given) != count:
        raise ValueError(f"{len(given)} learners for {count} clients; give one for each, or one")
    learners = [_learner(f"client {client}", one) for client, one in enumerate(given)]
    owners: dict[int, int] = {}
    for client, learner in enumerate(learners):
        other = owners.setdefault(id(learner), client)
        if other != client:
            raise ValueError(
                f"clients {other} and {client} have the same learner; give each its own, or give "
                "one alone, and each client gets a copy"
            )
    return learners


def _matrix(rows: Any, what: str) -> NDArray[np.float32]:
    return _arrays.matrix(rows, what, np.float32, "[rows, features]")


def _as_loaded(rows: Any, what: str) -> NDArray[np.float64]:
    return _arrays.matrix(rows, what, np.float64, "[rows, features]")


def public_digest(public: Any, *, standardise: bool = True) -> bytes:
    """32 bytes, by which parties compare their public rows.

    ``public`` are numbers of shape [rows, features]. The digest is that of the rows as float32, in
    their order, after a job with this ``standardise`` has prepared them. Raises ``ValueError`` for
    another shape, or if a value is not finite.

    >>> import undertone
    >>> undertone.public_digest([[1.0, 2.0], [3.0, 4.0]]).hex()[:16]
    '1929571aa34bb931'
    """
    return _engine.public_digest(
        _as_loaded(public, "public rows"), _checks.flag("standardise", standardise)
    )


@dataclass(frozen=True)
class CotrainExchange:
    """An exchange that is finished."""

    number: int
    """The exchange, from 1."""
    contributors: list[int]
    """The clients whose votes were counted. With ``votes="winners"`` fewer may be counted in the
    part of the rows whose helper dropped out."""
    covered: int
    """The number of public rows with a consensus."""
    lost: int
    """The number of public rows without a consensus because their helper dropped out late."""


@dataclass(frozen=True)
class Cotrained:
    """A co-training job that is over."""

    labels: NDArray[np.int64]
    """The last consensus: the class of each public row, int64 of shape [rows], -1 for none."""
    exchanges: list[CotrainExchange]
    """All exchanges."""
    learners: list[Any]
    """The learners, in the order of the clients. Each is fitted on its client's rows and on the
    public rows with a consensus."""
    costs: dict[int, list[Cost]]
    """What each party spent, phase by phase; -1 is the server."""
    settled: bool
    """Whether the consensus repeated. Otherwise the exchanges were used up."""


def cotrain(
    data: Sequence[tuple[Any, Any]],
    public: Any,
    learners: Any,
    *,
    classes: int | None = None,
    consensus: str = "majority",
    votes: str = "winners",
    noise: str | None = None,
    exchanges: int = 10,
    min_clients: int = 3,
    malicious_server: bool = False,
    suite: str = "aes128ctr",
    allow_unanimous: bool = False,
    seed: Seed = None,
    progress: Callable[[str], object] | None = None,
) -> Cotrained:
    """Co-trains the learners of many clients: FedCT, with votes that nobody sees.

    All parties run in this process, with the real messages. Each client fits its learner on its own
    rows, and predicts a class for each public row: a vote. The votes make a consensus, and the
    clients fit again on their own rows and on the public rows with the consensus as labels. This is
    an exchange. Exchanges go on until the consensus repeats. Learners may be of different kinds,
    and no parameters travel.

    ``data`` has ``(X, y)`` for each client: numbers of shape [rows, features], and classes,
    integers of shape [rows], counted from 0. Every row needs a label. ``public`` are rows without
    labels, of shape [rows, features]. Rows are used as they are, as float32: features must be on
    one scale, the same for all clients and for the public rows.

    ``learners`` is a list with a learner for each client (:class:`Learner`), or functions that
    return one. These objects are fitted. If it is one learner, each client gets a copy of it; if it
    is one function, it is called for each client. Each ``fit`` must forget the fit before.

    ``classes`` is the number of classes (default: the largest label of all clients and one).
    :class:`CotrainJob` explains the other arguments. ``seed`` (32 bytes, or a number) fixes what
    the engine draws; it is for tests.

    With ``consensus="qualified:Q"`` and no noise, a Q that needs the votes of all clients makes
    each row with a consensus tell every client's vote. This is refused unless
    ``allow_unanimous=True``. If votes are clear or counts, it concerns every number of clients from
    ``min_clients`` on.

    If all follow the protocol, and votes are winners, the server and the clients learn the
    consensus of each exchange, and nothing else. The server together with a client learns how many
    votes each class has in that client's part of the public rows. What a learner predicts tells
    about the rows that it learned from. ``noise`` bounds what one vote tells.

    Raises ``ValueError`` or ``TypeError`` for arguments that cannot be, and for predictions that
    are no classes. An exception of a learner or of ``progress`` ends the run, as does Ctrl-C.

    >>> import numpy as np, undertone
    >>> class Nearest:  # the mean of each class
    ...     def fit(self, X, y):
    ...         self.known = np.unique(y)
    ...         self.means = np.array([X[y == kind].mean(axis=0) for kind in self.known])
    ...     def predict(self, X):
    ...         apart = ((X[:, None] - self.means) ** 2).sum(axis=2)
    ...         return self.known[apart.argmin(axis=1)]
    >>> rng = np.random.default_rng(0)
    >>> def rows(y): return rng.normal(size=(len(y), 3)) + 3 * y[:, None]
    >>> truth = np.arange(60) % 2
    >>> data = [(rows(truth[:8]), truth[:8]) for client in range(3)]
    >>> run = undertone.cotrain(data, rows(truth), Nearest())
    >>> float(np.mean(run.labels == truth)) > 0.9, run.exchanges[0].contributors, run.settled
    (True, [0, 1, 2], True)
    """
    if len(data) < min_clients:
        raise ValueError(f"{len(data)} clients, at least {min_clients} are needed")
    features = [_matrix(rows, f"client {one}: features") for one, (rows, _) in enumerate(data)]
    labels = [complete(known, f"client {one}: labels") for one, (_, known) in enumerate(data)]
    shared = _matrix(public, "public rows")
    for one, rows in enumerate(features):
        if rows.shape[1] != shared.shape[1]:
            raise ValueError(
                f"client {one}: rows of {rows.shape[1]} features, but public rows of "
                f"{shared.shape[1]}"
            )
    if classes is None:
        largest = max((int(one.max()) for one in labels if one.size), default=-1)
        classes = max(2, 1 + largest)
    job = CotrainJob(
        rows=shared.shape[0],
        features=shared.shape[1],
        classes=classes,
        public=public_digest(shared, standardise=False),
        standardise=False,
        consensus=consensus,
        votes=votes,
        noise=noise or "none",
        exchanges=exchanges,
        min_clients=min_clients,
        malicious_server=malicious_server,
        suite=suite,
    )
    each = _learners(learners, len(data))
    adapted = [_Adapter(one, classes, f"client {client}") for client, one in enumerate(each)]
    run = _engine.Cotraining(
        job._rules(), adapted, features, labels, shared, allow_unanimous, _checks.seed(seed)
    )
    while not run.step(progress):
        pass
    found = run.labels()
    assert found is not None, "a job has one exchange at least"
    return Cotrained(
        found,
        [CotrainExchange(*one) for one in run.exchanges],
        each,
        of_parties(run.costs()),
        run.settled,
    )


@dataclass(frozen=True)
class CotrainStep:
    """What a client did in a session."""

    kind: str
    """``"exchange"``: an exchange is finished. ``"over"``: the job is over, and the learner is
    fitted on the client's rows and on the last consensus."""
    number: int
    """The exchange, from 1; 0 when the job is over."""
    labels: NDArray[np.int64] | None
    """The consensus, int64 of shape [rows], -1 for none. None if the job is over and no exchange
    succeeded."""


class CotrainClient(Client[CotrainStep]):
    """A client of a co-training job: see :class:`Client`.

    A job is a sequence of sessions: one for each exchange, then one in which all clients get the
    last consensus. A client need not be in all exchanges.

    ``learner`` has the methods of :class:`Learner`. ``features`` and ``labels`` are the client's
    rows, and ``public`` the public rows, as for :func:`cotrain`; the job says whether they are
    standardised. ``terms`` are what this client agrees to (default: ``CotrainTerms()``), whoever
    made the job.

    The record has the last exchange in which the client voted: a second vote in one exchange, with
    other noise, would undo the noise.
    """

    def __init__(
        self,
        learner: Learner,
        features: Any,
        labels: Any,
        public: Any,
        *,
        terms: CotrainTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        self.learner = _learner("this client", learner)
        self._client = _engine.cotrain_client(
            (terms or CotrainTerms())._rules(),
            _Adapter(self.learner, MAX_CLASSES, "this client"),
            _as_loaded(features, "features"),
            complete(labels, "labels"),
            columns_of(features),
            _as_loaded(public, "public rows"),
            given(record),
        )

    @property
    def last(self) -> int:
        """The last exchange in which this client began to vote; 0 before the first."""
        return self._client.last_vote()

    @staticmethod
    def _gave(result: Any) -> CotrainStep:
        return CotrainStep(*result)


@dataclass(frozen=True)
class CotrainReport:
    """What a session gave the server."""

    kind: str
    """``"exchange"`` or ``"over"``."""
    exchange: CotrainExchange | None
    """The exchange; None when the job is over."""
    labels: NDArray[np.int64] | None
    """Its consensus, int64 of shape [rows], -1 for none; None when the job is over."""


class CotrainServer(Server[CotrainReport]):
    """The server of a co-training job: see :class:`Server`. It has no rows; the job has the digest
    of the public ones."""

    def __init__(self, job: CotrainJob, *, checkpoint: Path | None = None) -> None:
        self.job = job
        super().__init__(_engine.cotrain_server(job._rules()), checkpoint)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The last consensus, int64 of shape [rows], -1 for none; None before the first."""
        found: NDArray[np.int64] | None = self._server.look("labels")
        return found

    @property
    def begun(self) -> int:
        """The last exchange begun."""
        return int(self._server.look("begun"))

    @property
    def over(self) -> bool:
        """Whether no exchange is left: the consensus has repeated, or the exchanges are used up.
        The next session brings all clients the last consensus."""
        return bool(self._server.look("over"))

    @property
    def settled(self) -> bool:
        """Whether the last two consensuses are the same."""
        return bool(self._server.look("settled"))

    @property
    def exchanges(self) -> list[CotrainExchange]:
        """The exchanges that are finished."""
        return [CotrainExchange(*one) for one in self._server.look("exchanges")]

    @staticmethod
    def _gave(result: Any) -> CotrainReport:
        kind, exchange, labels = result
        return CotrainReport(kind, exchange and CotrainExchange(*exchange), labels)
