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
from ._client import Client, Server
from ._costs import Cost, of_parties
from ._jobs import TrainJob, TrainTerms
from ._party import Path
from ._record import Record, given
from ._table import as_classes, as_labels, columns_of, stated

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
    """A model as the engine calls it.

    With a ``memo`` of results its work in a session is done once, although its party runs again for
    each message."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.memo: dict[str, NDArray[Any]] | None = None
        self._params: NDArray[np.float32] | None = None

    def _once(self, name: str, work: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        if self.memo is None:
            return work()
        if name not in self.memo:
            if self._params is not None:
                self.model.set_params(self._params.copy())
            self.memo[name] = work()
        return self.memo[name]

    def params(self) -> NDArray[np.float32]:
        if self._params is not None:
            return self._params
        return _single(self.model.params(), "params()", 1)

    def set_params(self, params: NDArray[np.float32]) -> None:
        if self.memo is None:
            self.model.set_params(params)
        else:
            self._params = params

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._once("embeddings", lambda: _single(self.model.embed(rows), "embed()", 2))

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._once("predictions", lambda: _single(self.model.predict(rows), "predict()", 2))

    def update(
        self,
        rows: NDArray[np.float32],
        labelled: tuple[Any, Any, Any],
        pseudo: tuple[Any, Any, Any],
        sizes: tuple[int, int, int],
        rates: tuple[float, float, float],
        seed: bytes,
    ) -> None:
        def update() -> NDArray[np.float32]:
            examples = Examples(rows, Targets(*labelled), Targets(*pseudo))
            self.model.update(examples, Schedule(*sizes, *rates, seed))
            return _single(self.model.params(), "params()", 1)

        params = self._once("params", update)
        if self.memo is not None:
            self._params = params


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


def as_matrix(
    features: Any, what: str = "features", kind: type[Any] = np.float32
) -> NDArray[Any]:
    """Features as the engine takes them."""
    array = _arrays.numbers(features, f"{what} are")
    if array.ndim != 2:
        raise ValueError(
            f"{what} have shape {array.shape}; [rows, features] is needed: flatten images, and "
            "give TorchModel their shape"
        )
    return np.asarray(array, dtype=kind, order="C")


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
    scale = _checks.positive("scale", parameters.get("scale") or 1.0)

    def scaled(rows: Any, what: str) -> NDArray[np.float32]:
        if scale == 1:
            return as_matrix(rows, what)
        return np.asarray(as_matrix(rows, what, np.float64) / scale, np.float32, "C")

    features = [
        scaled(rows, f"client {client}: features") for client, (rows, _) in enumerate(clients)
    ]
    known = [as_classes(labels) for _, labels in clients]
    tested = None
    if test is not None:
        tested = scaled(test[0], "test features"), as_classes(test[1])
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


class TrainClient(Client[TrainStep]):
    """A client of a training job: see :class:`Client`.

    A job is a sequence of sessions: a census, then one session a round, then one in which all
    clients get the final model. A client need not be in all rounds. Groups are sets of the clients'
    numbers.

    ``model`` has the methods of :class:`Model`. ``features`` and ``labels`` are as for
    :func:`train`; the job says by which ``scale`` features are divided. ``classes`` is the number
    of classes or their names (default: the number that the job states). ``noise`` is
    ``(epsilon, secret)``: noise on the labels that go to label propagation, drawn from a secret of
    32 bytes that the client keeps for all its jobs. It needs ``classes``.

    The record has the census, and the rounds in which the client took part. Another process with
    the same record continues the job. ``terms`` are what this client agrees to (default:
    :class:`TrainTerms`).
    """

    def __init__(
        self,
        model: Model,
        features: NDArray[Any],
        labels: NDArray[Any],
        *,
        classes: int | Sequence[str] | None = None,
        noise: tuple[float, bytes] | None = None,
        terms: TrainTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        self.model = model
        self._adapter = _adapted(model)
        self._client = _engine.train_client(
            (terms or TrainTerms())._rules(),
            self._adapter,
            as_matrix(features, kind=np.float64),
            as_labels(labels),
            columns_of(features),
            stated(classes),
            _checks.noise(noise),
            given(record),
        )

    @property
    def last(self) -> int | None:
        """The last round in which this client began to take part; 0 before the first, None before
        the census."""
        return self._client.last_round()

    def _remember(self, memo: dict[str, NDArray[Any]]) -> None:
        self._adapter.memo = memo

    @staticmethod
    def _gave(result: Any) -> TrainStep:
        return TrainStep(*result)


@dataclass(frozen=True)
class TrainReport:
    """What a session gave the server."""

    kind: str
    """``"census"``, ``"round"`` or ``"over"``."""
    number: int
    """The round, from 1."""
    clients: list[int]
    """With a census, the clients of the job. With a round, those whose updates are in the model."""


class TrainServer(Server[TrainReport]):
    """The server of a training job: see :class:`Server`. It begins with the parameters ``params``
    of a first model, unless its ``checkpoint`` has a later one."""

    def __init__(
        self, job: TrainJob, *, params: ArrayLike, checkpoint: Path | None = None
    ) -> None:
        self.job = job
        first = _single(params, "params", 1)
        super().__init__(_engine.train_server(job._rules(), first), checkpoint)

    @property
    def params(self) -> NDArray[np.float32]:
        """The parameters of the model."""
        found: NDArray[np.float32] = self._server.look("params")
        return found

    @property
    def begun(self) -> int:
        """The last round begun."""
        return int(self._server.look("begun"))

    @property
    def over(self) -> bool:
        """Whether all rounds are over. The next session brings all clients the final model."""
        return bool(self._server.look("over"))

    @property
    def clients(self) -> list[int] | None:
        """The clients of the job; None before the census."""
        found: list[int] | None = self._server.look("clients")
        return found

    @property
    def groups(self) -> list[list[int]]:
        """The fixed groups of clients."""
        found: list[list[int]] = self._server.look("groups")
        return found

    @property
    def rounds(self) -> list[tuple[int, list[int]]]:
        """The rounds that are finished, and their contributors."""
        found: list[tuple[int, list[int]]] = self._server.look("rounds")
        return found

    @staticmethod
    def _gave(result: Any) -> TrainReport:
        return TrainReport(*result)
