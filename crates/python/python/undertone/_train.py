"""Training with propagated labels."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _checks, _engine
from ._costs import Cost, of_parties
from ._jobs import TrainJob, TrainTerms
from ._party import Party, Path, PublicKeys, credentials, replayed, session_id
from ._record import Record, given
from ._table import as_classes

Seed = bytes | int | None


@dataclass(frozen=True)
class Targets:
    """Rows, and what they are trained towards."""

    rows: NDArray[np.int64]
    """The numbers of the rows, int64 of shape [targets]."""
    classes: NDArray[np.int64]
    """Their classes, int64 of shape [targets]."""
    weights: NDArray[np.float32]
    """The weights of their losses, float32 of shape [targets]: 1 for labels, the confidence for
    pseudo-labels."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Examples:
    """A client's examples of one round."""

    rows: NDArray[np.float32]
    """All rows of the client, float32 of shape [rows, features]."""
    labelled: Targets
    """The rows with labels, each of weight 1."""
    pseudo: Targets
    """The rows with pseudo-labels of a weight above 0."""


@dataclass(frozen=True)
class Schedule:
    """How a client trains in one round."""

    epochs: int
    """Passes over the rows: over those with pseudo-labels if there are any, else over the
    labels."""
    labelled: int
    """Rows with labels in a batch."""
    pseudo: int
    """Rows with pseudo-labels in a batch."""
    learning_rate: float
    """The learning rate of plain stochastic gradient descent."""
    weight_decay: float
    """The decay of weights."""
    consistency: float
    """For models with a mean teacher: the weight of the consistency loss in this round."""
    seed: bytes
    """32 bytes, from which batches follow."""

    def batches(
        self, examples: Examples
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """The batches of the round, all epochs: numbers of rows, classes and weights.

        The engine draws them, so that models in Python and in Rust train on the same batches. The
        loss of a batch is the sum of each row's cross-entropy times its weight, divided by the
        number of rows in the batch.

        >>> import numpy as np, undertone
        >>> known = undertone.Targets(np.array([0, 1]), np.array([1, 0]), np.ones(2, np.float32))
        >>> found = undertone.Targets(np.arange(2, 7), np.arange(5) % 2, np.full(5, 0.5, "f"))
        >>> examples = undertone.Examples(np.zeros((7, 3), np.float32), known, found)
        >>> schedule = undertone.Schedule(1, 2, 3, 0.1, 0.0, 0.0, bytes(32))
        >>> [len(rows) for rows, classes, weights in schedule.batches(examples)]
        [5, 4]
        """
        return _engine.batches(
            _triple(examples.labelled),
            _triple(examples.pseudo),
            (self.epochs, self.labelled, self.pseudo),
            self.seed,
        )

    @property
    def random_state(self) -> int:
        """A seed from 0 to 2**63 - 1 for augmentations."""
        digest = hashlib.sha256(b"undertone augmentation" + self.seed).digest()
        return int.from_bytes(digest[:8], "little") >> 1


def _triple(
    targets: Targets,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    return (
        np.ascontiguousarray(targets.rows, np.int64),
        np.ascontiguousarray(targets.classes, np.int64),
        np.ascontiguousarray(targets.weights, np.float32),
    )


@runtime_checkable
class Model(Protocol):
    """A model that can be trained. Any object with these methods will do.

    The parameters travel as one vector of float32. Buffers of normalisation layers are parameters,
    too. A model with a mean teacher has the parameters of the student, then those of the teacher.
    :class:`undertone.torch.TorchModel` makes one of a PyTorch module.
    """

    def params(self) -> NDArray[np.float32]:
        """All parameters, float32 of shape [parameters]."""
        ...

    def set_params(self, params: NDArray[np.float32], /) -> object:
        """Replaces all parameters."""
        ...

    def embed(self, rows: NDArray[np.float32], /) -> NDArray[np.float32]:
        """The embedding of each row without augmentation, of shape [rows, any number]."""
        ...

    def predict(self, rows: NDArray[np.float32], /) -> NDArray[np.float32]:
        """The probability of each class for each row without augmentation, of shape [rows,
        classes]. A model with a mean teacher asks the teacher."""
        ...

    def update(self, examples: Examples, schedule: Schedule, /) -> object:
        """Trains on the batches of the schedule: see :meth:`Schedule.batches`."""
        ...


def _single(array: ArrayLike, what: str, dimensions: int) -> NDArray[np.float32]:
    given = _arrays.numbers(array, f"{what} is an array")
    if given.ndim != dimensions:
        shape = "[parameters]" if dimensions == 1 else "[rows, values]"
        raise ValueError(f"{what} returned an array of shape {given.shape}; {shape} is needed")
    return np.asarray(given, dtype=np.float32, order="C")


class _Adapter:
    """A model as the engine calls it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def params(self) -> NDArray[np.float32]:
        return _single(self.model.params(), "params()", 1)

    def set_params(self, params: NDArray[np.float32]) -> None:
        self.model.set_params(params)

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return _single(self.model.embed(rows), "embed()", 2)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return _single(self.model.predict(rows), "predict()", 2)

    def update(
        self,
        rows: NDArray[np.float32],
        labelled: tuple[Any, Any, Any],
        pseudo: tuple[Any, Any, Any],
        sizes: tuple[int, int, int],
        rates: tuple[float, float, float],
        seed: bytes,
    ) -> None:
        examples = Examples(rows, Targets(*labelled), Targets(*pseudo))
        self.model.update(examples, Schedule(*sizes, *rates, seed))


def _adapted(model: object) -> _Adapter:
    methods = ("params", "set_params", "embed", "predict", "update")
    missing = [name for name in methods if not callable(getattr(model, name, None))]
    if missing:
        raise TypeError(
            f"{type(model).__name__} is no model: it has no method {missing[0]}(). For a PyTorch "
            "module write undertone.torch.TorchModel(module, embed=...)"
        )
    return _Adapter(model)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TrainRound:
    """A round that is finished."""

    number: int
    """The round, from 1."""
    contributors: list[int]
    """The clients whose updates are in the model."""
    pseudo: dict[int, int]
    """The number of rows with a pseudo-label, by client."""
    clipped: dict[int, int]
    """The number of changes that were clipped, by client."""
    diverged: list[int]
    """Clients whose update had values that are no numbers. They contributed no change."""
    accuracy: float | None
    """Accuracy of the model on the test rows, from 0 to 1."""


@dataclass(frozen=True)
class TrainResult:
    """A job that is over."""

    params: NDArray[np.float32]
    """The parameters of the final model."""
    model: Any
    """The final model: the one that was given, or a new one of the factory."""
    rounds: list[TrainRound]
    """All rounds."""
    groups: list[list[int]]
    """The fixed groups of clients. With free sampling there are none."""
    costs: dict[int, list[Cost]]
    """What each party spent, phase by phase; -1 is the server."""
    accuracies: list[float] = field(default_factory=list)
    """Accuracy on the test rows after each round, from 0 to 1."""

    @property
    def accuracy(self) -> float | None:
        """Accuracy of the final model on the test rows, from 0 to 1."""
        return self.accuracies[-1] if self.accuracies else None


def as_matrix(features: Any, what: str = "features") -> NDArray[np.float32]:
    """Features as the engine takes them."""
    array = _arrays.numbers(features, f"{what} are")
    if array.ndim != 2:
        raise ValueError(
            f"{what} have shape {array.shape}; [rows, features] is needed: flatten images, and "
            "give TorchModel their shape"
        )
    return np.asarray(array, dtype=np.float32, order="C")


def train(
    model: Model | Callable[[], Model],
    clients: Sequence[tuple[Any, Any]],
    *,
    test: tuple[Any, Any] | None = None,
    classes: int | None = None,
    label_epsilon: float | None = None,
    seed: Seed = None,
    on_round: Callable[[int, NDArray[np.float32]], object] | None = None,
    progress: Callable[[str], object] | None = None,
    **parameters: Any,
) -> TrainResult:
    """Trains a model with many clients, few of whose rows have labels: FedAvg+XCLP.

    All parties run in this process, with the real messages. In each round some clients get the
    model. They label their rows by label propagation on embeddings of them, and train on labels and
    pseudo-labels. A secure sum brings the server the mean of their updates.

    ``model`` is an object with the methods of :class:`Model`, of which each client gets a copy, or
    a function that returns a new one. ``clients`` has ``(features, labels)`` for each client: a
    float array of shape [rows, features], and an integer array of shape [rows] with -1 where there
    is no label. Features must be on one scale. ``test`` is such a pair, too, with a label for each
    row.

    ``on_round(round, params)`` is called after each round. ``label_epsilon`` puts noise on the
    labels that clients bring to label propagation. ``parameters`` are those of :class:`TrainJob`.
    ``seed`` (32 bytes, or a number) fixes what the engine draws; it is for tests.

    An exception of the model or of a callback ends the run, as does Ctrl-C.

    >>> import numpy as np, undertone
    >>> class Nearest:  # the mean of each class
    ...     means = np.zeros((2, 3), np.float32)
    ...     def params(self): return self.means.ravel()
    ...     def set_params(self, params): self.means = params.reshape(2, 3)
    ...     def embed(self, rows): return rows
    ...     def predict(self, rows):
    ...         near = np.exp(-((rows[:, None] - self.means) ** 2).sum(axis=2)) + 1e-9
    ...         return near / near.sum(axis=1, keepdims=True)
    ...     def update(self, examples, schedule):
    ...         for rows, classes, weights in schedule.batches(examples):
    ...             for row, kind, weight in zip(examples.rows[rows], classes, weights):
    ...                 self.means[kind] += 0.1 * weight * (row - self.means[kind])
    >>> rng = np.random.default_rng(0)
    >>> truth = [np.arange(40) % 2 for client in range(5)]
    >>> rows = [rng.normal(size=(40, 3)) + 3 * y[:, None] for y in truth]
    >>> known = [np.where(np.arange(40) < 4, y, -1) for y in truth]
    >>> clients = list(zip(rows, known))
    >>> run = undertone.train(
    ...     Nearest(), clients, test=(rows[0], truth[0]), label_rounds=1, rounds=2, bits=512
    ... )
    >>> [this.contributors for this in run.rounds], run.accuracy > 0.9
    ([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], True)
    """
    least = parameters.get("min_clients", 3)
    if len(clients) < least:
        raise ValueError(f"{len(clients)} clients, at least {least} are needed")
    features = [
        as_matrix(rows, f"client {client}: features") for client, (rows, _) in enumerate(clients)
    ]
    known = [as_classes(labels) for _, labels in clients]
    tested = None
    if test is not None:
        tested = as_matrix(test[0], "test features"), as_classes(test[1])
    if classes is None:
        seen = [*known, *([] if tested is None else [tested[1]])]
        classes = max(2, 1 + max((int(one.max()) for one in seen if one.size), default=-1))
    own: Any
    if callable(model) and (isinstance(model, type) or not hasattr(model, "params")):
        own = model()
        each: list[Any] = [model() for _ in clients]
    else:
        own, each = model, [copy.deepcopy(model) for _ in clients]
    shown = _adapted(own)
    first = shown.params()
    job = TrainJob(
        features=features[0].shape[1], classes=classes, parameters=len(first), **parameters
    )
    run = _engine.Training(
        job._rules(),
        None if label_epsilon is None else _checks.real("label_epsilon", label_epsilon),
        [_adapted(one) for one in each], features, known, first,
        _checks.seed(seed),
    )
    done: list[TrainRound] = []
    while True:
        (kind, number, contributors), steps = run.step(progress)
        if kind == "over":
            break
        if kind == "census":
            continue
        params = run.params()
        accuracy = None
        if tested is not None:
            shown.set_params(params.copy())
            found = shown.predict(tested[0])
            if found.shape != (len(tested[0]), classes):
                raise ValueError(
                    f"predict() returned shape {found.shape} for {len(tested[0])} rows of "
                    f"{classes} classes"
                )
            accuracy = float(np.mean(found.argmax(axis=1) == tested[1]))
        done.append(
            TrainRound(
                number,
                contributors,
                {who: pseudo for who, (_, _, pseudo, _, _, _) in steps},
                {who: clipped for who, (_, _, _, clipped, _, _) in steps if clipped},
                [who for who, (_, _, _, _, diverged, _) in steps if diverged],
                accuracy,
            )
        )
        if on_round is not None:
            on_round(number, params)
    params = run.params()
    shown.set_params(params.copy())
    accuracies = [one.accuracy for one in done if one.accuracy is not None]
    return TrainResult(params, own, done, run.groups, of_parties(run.costs()), accuracies)


@dataclass(frozen=True)
class TrainStep:
    """What a client did in a session."""

    kind: str
    """``"census"``: the job has begun. ``"round"``: a round is finished. ``"over"``: the job is
    over, and the client has the final model."""
    number: int
    """The round, from 1."""
    pseudo: int
    """The number of rows with a pseudo-label."""
    clipped: int
    """The number of changes that were clipped."""
    diverged: bool
    """Whether the update had values that are no numbers. The client then contributed no change."""
    params: NDArray[np.float32] | None
    """The final model, once the job is over."""


class TrainClientSession(Party):
    """A client in one session of a job. It does no I/O: see :class:`Party`.

    An exception of the model leaves through :meth:`poll` or :meth:`exchange`. Peers are told that
    the client failed, and not why.
    """

    def __init__(self, party: _engine.Party) -> None:
        self._party = party

    def replay(self, journal: Path, past: Sequence[bytes], message: bytes) -> bytes:
        """Runs this new party again over the bundles ``past``, then takes ``message``.

        See :meth:`SumClient.replay`. The model must give the same embeddings, predictions and
        parameters each time.
        """

        return replayed(self._party, journal, past, message)

    def result(self) -> TrainStep | None:
        """What the client did, once; None before the session has ended."""
        result = self._party.result()
        return None if result is None else TrainStep(*result)


class TrainClient:
    """A client of a training job, for a transport of your own.

    A job is a sequence of sessions: a census, then one session a round, then one in which all
    clients get the final model. A client need not be in all rounds. :meth:`session` makes its
    party for one of them.

    ``index`` is the client's number. It must be the same in all sessions of a job: groups are sets
    of numbers. ``model`` has the methods of :class:`Model`. ``features`` and ``labels`` are as for
    :func:`train`. ``noise`` is ``(epsilon, secret)``: noise on the labels that go to label
    propagation, drawn from a secret of 32 bytes that the client keeps for all its jobs.

    ``record`` is the :class:`Record` of this client's data, or its name. Without one the client
    refuses before its first answer, unless :func:`run` moves its frames.
    It has the census, and the rounds in which the client took part. Another process with the same
    record continues the job.

    ``terms`` are what this client agrees to (default: :class:`TrainTerms`). :meth:`session` raises
    :class:`RefusedError` if the job does not meet them.
    """

    def __init__(
        self,
        index: int,
        job: TrainJob,
        model: Model,
        features: NDArray[Any],
        labels: NDArray[Any],
        *,
        noise: tuple[float, bytes] | None = None,
        terms: TrainTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        self.index = _checks.whole("index", index)
        self.job = job
        self.model = model
        self._client = _engine.TrainClient(
            job._rules(), _adapted(model), as_matrix(features), as_classes(labels),
            _checks.noise(noise), (terms or TrainTerms())._rules(), given(record),
        )

    @property
    def last(self) -> int | None:
        """The last round in which this client began to take part; 0 before the first, None before
        the census."""
        return self._client.last

    def session(
        self,
        session: bytes,
        *,
        key: str | None = None,
        public_keys: PublicKeys | None = None,
        seed: bytes | int | None = None,
    ) -> TrainClientSession:
        """The client's party in a session. Parties of earlier sessions can do nothing more.

        ``session`` is the id that the server chose. With ``malicious_server`` it needs ``key`` and
        ``public_keys``, as :class:`SumClient` does.
        """
        signing = credentials(key, public_keys)
        if self.job.malicious_server and signing is None:
            raise ValueError("a job with malicious_server=True needs key and public_keys")
        return TrainClientSession(
            self._client.party(
                self.index,
                _checks.octets("session", session),
                signing,
                _checks.seed(seed),
            )
        )


@dataclass(frozen=True)
class TrainReport:
    """What a session gave the server."""

    kind: str
    """``"census"``, ``"round"`` or ``"over"``."""
    number: int
    """The round, from 1."""
    clients: list[int]
    """With a census, the clients of the job. With a round, those whose updates are in the model."""


class TrainServerSession(Party):
    """The server in one session of a job. It does no I/O: see :class:`Party`."""

    def __init__(
        self, server: TrainServer, party: _engine.Party, session: bytes, members: list[int]
    ) -> None:
        self._server = server
        self._party = party
        self.session = session
        """The id of the session."""
        self.members = members
        """The clients of the session."""

    def result(self) -> TrainReport | None:
        """What the session gave, once; None before it has ended. The server then has the new model,
        and its state is kept."""
        result = self._party.result()
        if result is None:
            return None
        self._server._keep()
        return TrainReport(*result)


class TrainServer:
    """The server of a training job, for a transport of your own.

    It begins with the parameters ``params`` of a first model, or continues from the ``state`` that
    an earlier process kept. ``on_state`` receives the state as bytes, and must keep it where it
    survives a crash before it returns: a round never begins twice.

    ::

        server = TrainServer(job, params=model.params(), on_state=save)
        while not finished:
            party = server.session(present=channel.clients())
            ...                       # move frames between party and the clients party.members
            report = party.result()   # the new model is in server.params
            finished = report.kind == "over"

    A round that fails is over; the next session has the next number.
    """

    def __init__(
        self,
        job: TrainJob,
        *,
        params: ArrayLike | None = None,
        state: bytes | None = None,
        on_state: Callable[[bytes], object],
    ) -> None:
        self.job = job
        self._on_state = on_state
        first = None if params is None else _single(params, "params", 1)
        self._server = _engine.TrainServer(job._rules(), first, state)

    def _keep(self) -> None:
        self._on_state(self.state)

    @property
    def state(self) -> bytes:
        """The state."""
        return self._server.state()

    @property
    def params(self) -> NDArray[np.float32]:
        """The parameters of the model."""
        return self._server.params()

    @property
    def begun(self) -> int:
        """The last round begun."""
        return self._server.begun

    @property
    def over(self) -> bool:
        """Whether all rounds are over. The next session brings all clients the final model."""
        return self._server.over

    @property
    def clients(self) -> list[int] | None:
        """The clients of the job; None before the census."""
        return self._server.clients

    @property
    def groups(self) -> list[list[int]]:
        """The fixed groups of clients."""
        return self._server.groups

    @property
    def rounds(self) -> list[tuple[int, list[int]]]:
        """The rounds that are finished, and their contributors."""
        return self._server.taken

    def members(self, present: Sequence[int]) -> list[int]:
        """The clients of the next session if these are present; empty if there can be none: no
        whole group is present, or too few clients are. With more than one group they are drawn at
        random."""
        return self._server.members(list(present), None)

    def session(
        self,
        present: Sequence[int],
        *,
        session: bytes | None = None,
        seed: bytes | int | None = None,
    ) -> TrainServerSession:
        """Begins the next session, and keeps the state. ``present`` are the clients that could take
        part; ``members`` of the result do.

        Raises ``ValueError`` if these are too few.
        """
        if self.clients is not None:
            present = [one for one in present if one in self.clients]
        members = self.members(present)
        if not self.over and len(members) < self.job.min_clients:
            raise ValueError(
                f"no session can begin with clients {list(present)}: a round needs whole groups, "
                f"and {self.job.min_clients} clients at least"
            )
        session = session_id(session)
        party = self._server.begin(members, session, _checks.seed(seed))
        self._keep()
        return TrainServerSession(self, party, session, members)
