"""Training with propagated labels on Flower."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from logging import INFO, WARNING, getLogger
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from .. import _engine
from .._engine import RefusedError, UndertoneError
from .._jobs import TrainJob, TrainTerms
from .._party import Path
from .._train import Examples, Model, Schedule, TrainClient, TrainServer, TrainStep
from . import _state, _wire
from ._grid import read
from ._label import Data
from ._relay import Relay
from ._state import RecordChoice
from ._wire import Exchange, Terms, Told

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value
    from flwr.clientapp.typing import ClientAppCallable

STATE = "undertone.train"
CACHE = "undertone.train.cache"

_log = getLogger("undertone")


def _job(told: Terms) -> TrainJob:
    """The job that the server offers."""
    try:
        return TrainJob.read(told.text("job").encode())
    except (ValueError, OverflowError) as error:
        raise Told(f"the server's job is impossible: {error}") from None


class _Cached:
    """A model whose work in one session is done once, although its party runs again for each
    message. ``cache`` has the results so far. The model is made when it is first needed."""

    def __init__(
        self, make: Callable[[], Model], parameters: int, cache: dict[str, NDArray[np.float32]]
    ) -> None:
        self._make = make
        self._made: Model | None = None
        self._params = np.zeros(parameters, np.float32)
        self.cache = cache

    def model(self) -> Model:
        """The caller's model, with the last parameters."""
        if self._made is None:
            self._made = self._make()
        self._made.set_params(self._params.copy())
        return self._made

    def params(self) -> NDArray[np.float32]:
        return self._params

    def set_params(self, params: NDArray[np.float32]) -> None:
        self._params = params

    def _once(self, name: str, work: Callable[[], Any]) -> NDArray[np.float32]:
        if name not in self.cache:
            self.cache[name] = np.ascontiguousarray(work(), np.float32)
        return self.cache[name]

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._once("embeddings", lambda: self.model().embed(rows))

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._once("predictions", lambda: self.model().predict(rows))

    def update(self, examples: Examples, schedule: Schedule) -> None:
        def updated() -> NDArray[np.float32]:
            model = self.model()
            model.update(examples, schedule)
            return np.array(model.params(), np.float32)

        self._params = self._once("params", updated)


def trained(
    model: Callable[[Context], Model],
    data: Data,
    receive: Callable[[Any, Context], object] | None = None,
    *,
    terms: TrainTerms | None = None,
    classes: int | None = None,
    noise: Callable[[Context], tuple[float, bytes]] | None = None,
    key: Path | None = None,
    roster: Path | None = None,
    record: RecordChoice = None,
    journal: Path | None = None,
) -> ClientAppCallable:
    """A query handler for the ClientApp that takes part in training with propagated labels.

    Register it under the action ``undertone_train``::

        app.query("undertone_train")(trained(make, load, save))

    ``model(context)`` returns a new :class:`undertone.Model`. ``data(context)`` returns features,
    float of shape [rows, features] and on one scale, and labels, integers of shape [rows] with -1
    where there is none. It must return the same for every message. ``receive(model, context)`` gets
    the final model. Rows, labels and this node's updates do not leave the node in the clear.

    ``terms`` are what this client agrees to (default: :class:`undertone.TrainTerms`). ``classes``
    is the number of classes (default: the server's). ``noise(context)`` returns epsilon and a
    secret of 32 bytes that the client keeps; it needs ``classes``.

    See :func:`labelled` for the rest. The ``record`` has the census and the rounds in which this
    node took part. After a round it refuses another job: each job has other groups, and shows other
    sums of this node's updates. The owner allows one by ``undertone record allow NAME new-job``. A
    node that has lost its record takes part in no more rounds.
    """
    agreed = terms or TrainTerms()
    _state.check_record(record)
    if noise is not None and classes is None:
        raise ValueError(
            "noise needs classes: with another number of classes every label is drawn anew, so the "
            "server must not choose it"
        )

    def check(job: TrainJob, context: Context) -> None:
        try:
            agreed.check(job, signed=_state.is_signed(context, key, roster))
        except RefusedError as why:
            raise Told(str(why)) from None
        if classes is not None and job.classes != classes:
            raise Told(f"the job has {job.classes} classes, this client has {classes} (classes)")

    def handler(message: Message, context: Context) -> Message:
        return _state.own(lambda: handled(message, context), "training")

    def handled(message: Message, context: Context) -> Message:
        told = Terms(message.content, "the query is not Undertone's; it has no terms")
        kind = told.text("kind")
        if kind not in ("train hello", "train"):
            raise Told(f"the server asks for {kind!r}; this client trains")
        job = _job(told)
        check(job, context)
        index, signing = told.number("index"), None
        if job.malicious_server:
            signing = _state.identity(context, key, roster)
            index = signing.index
            if told.text("roster") != signing.digest:
                raise Told("all parties need the same roster.toml")
        if kind == "train hello":
            said = ConfigRecord({"index": index})
            return Message(RecordDict({_wire.TERMS: said}), reply_to=message)
        if index != told.number("index"):
            raise Told("the server's number for this node is not its place on the roster")

        kept = _state.Kept.load(context, STATE, told)
        answers = _state.record(context, record, key, roster)
        folder = _state.journal(context, journal, "train", answers)
        if told.number("step") == 0:
            _state.clean(folder, kept.session)
        features, labels = _state.own(lambda: data(context), "loading the rows")
        cached = _Cached(lambda: model(context), job.parameters or 0, _cache(context, kept.session))

        def made() -> Any:
            client = TrainClient(
                index,
                job,
                cached,
                features,
                labels,
                noise=None if noise is None else noise(context),
                terms=agreed,
                record=answers,
            )
            return client.session(
                kept.session,
                key=None if signing is None else signing.key,
                public_keys=None if signing is None else signing.public_keys,
                seed=kept.seed,
            )

        party = _state.own(made, "reading rows and labels")
        bundle = _wire.carried(message.content)
        reply = _state.own(lambda: party.replay(folder, kept.past, bundle), "the protocol")
        if party.done:
            step: TrainStep | None = party.result()
            if step is not None:
                _tell(step)
                if step.params is not None and receive is not None:
                    take = receive
                    _state.own(lambda: take(cached.model(), context), "keeping the model")
            kept.forget(told)
            cached.cache.clear()
        else:
            kept.save(told, bundle)
        _state.keep(context, answers)
        cache = ArrayRecord({name: Array(array) for name, array in cached.cache.items()})
        context.state[CACHE] = cache
        context.state[f"{CACHE}.of"] = ConfigRecord({"session": kept.session})
        said = _wire.said(index, party.done, features, told.number("step"))
        return Message(_wire.carry(RecordDict({_wire.TERMS: said}), reply), reply_to=message)

    return handler


def _cache(context: Context, session: bytes) -> dict[str, NDArray[np.float32]]:
    """What the model has given in this session."""
    if f"{CACHE}.of" not in context.state:
        return {}
    if context.state.config_records[f"{CACHE}.of"].get("session") != session:
        return {}
    record = context.state.array_records[CACHE]
    return {name: np.asarray(array.numpy(), np.float32) for name, array in record.items()}


def _tell(step: TrainStep) -> None:
    if step.diverged:
        _log.log(
            WARNING,
            "round %d: the update has values that are no numbers; this node contributed no change",
            step.number,
        )
    elif step.clipped:
        _log.log(WARNING, "round %d: %d changes were clipped", step.number, step.clipped)
    elif step.kind == "round":
        _log.log(INFO, "round %d: %d pseudo-labels", step.number, step.pseudo)


@dataclass
class TrainRun:
    """What the ServerApp has learned, and what it cost."""

    params: NDArray[np.float32]
    """The parameters of the final model."""
    rounds: list[tuple[int, list[int]]]
    """The rounds that are finished: number, and the node ids of the contributors."""
    groups: list[list[int]]
    """The fixed groups, by node id."""
    dropped: dict[int, str] = field(default_factory=dict)
    """The last reason why a node dropped out of a session, by node id."""
    sessions: list[list[Exchange]] = field(default_factory=list)
    """Seconds and bytes of each message of each session: the census, the rounds, the end."""

    @property
    def seconds(self) -> float:
        """Seconds of all messages."""
        return sum(exchange.seconds for session in self.sessions for exchange in session)


class _Checkpoint:
    """The server's state in a file, with the node of each client."""

    def __init__(self, path: Path | None, job: TrainJob) -> None:
        self._file: _engine.TrainCheckpoint | None = None
        self.nodes: dict[int, int] = {}
        self.state: bytes | None = None
        if path is None:
            return
        FilePath(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = _engine.TrainCheckpoint(path, job._rules())
        if self._file.found is not None:
            nodes, _, self.state = self._file.found.partition(b"\n")
            self.nodes = {int(index): node for index, node in json.loads(nodes).items()}

    def save(self, state: bytes) -> None:
        if self._file is not None:
            self._file.save(json.dumps(self.nodes).encode() + b"\n" + state)

    def remove(self) -> None:
        if self._file is not None:
            self._file.remove()


def train(
    grid: Grid,
    job: TrainJob,
    params: ArrayLike,
    *,
    nodes: Iterable[int] | None = None,
    roster: Path | None = None,
    checkpoint: Path | None = None,
    on_round: Callable[[int, NDArray[np.float32]], object] | None = None,
    attempts: int = 5,
    wait: float = 600.0,
    timeout: float = 3600.0,
    poll: float = 0.25,
) -> TrainRun:
    """Trains a model with propagated labels, from the ServerApp. The clients need :func:`trained`.

    ``params`` are those of the first model. ``nodes`` are the node ids of the clients; all by
    default. A round takes whole groups: a group that lacks a node sits out. ``on_round(round,
    params)`` is called after each round; evaluate the model there, on rows that the server has.

    ``checkpoint`` is a file in which the server keeps its state. A ServerApp that is started again
    continues from it; it is removed at the end. ``malicious_server`` needs ``roster``. After
    ``attempts`` sessions that failed one after the other the error is raised. ``wait`` is the
    longest time in seconds for a whole group to be present, ``timeout`` that for each message: one
    of them is answered after training. ``poll`` is the number of seconds between questions to the
    SuperLink.
    """
    if job.malicious_server and roster is None:
        raise ValueError("malicious_server=True needs roster, the path of roster.toml")
    entries: dict[str, Value] = {"job": job.offer.decode()}
    entries["roster"] = _digest(roster) if job.malicious_server and roster is not None else ""
    kept = _Checkpoint(checkpoint, job)
    places = None if not job.malicious_server or roster is None else len(read(roster))
    run = TrainRun(np.asarray(params, np.float32), [], [])
    ids = sorted(grid.get_node_ids() if nodes is None else nodes)
    if places is not None or not kept.nodes:
        kept.nodes = _hello(grid, ids, entries, places, timeout, poll, run)
    server = TrainServer(job, params=params, state=kept.state, on_state=kept.save)

    failed = 0
    while True:
        party = server.session(_present(grid, server, kept.nodes, wait, poll))
        session: dict[str, Value] = {
            "kind": "train",
            "session": party.session,
            "census": server.clients is None,
            **entries,
        }
        members = {index: kept.nodes[index] for index in party.members}
        relay = Relay(grid, members, session, party, _wire.TRAIN, None, timeout, poll)
        try:
            relay.run()
            report = party.result()
            if report is None:
                raise relay.stuck("training")
        except UndertoneError as error:
            failed += 1
            if failed == attempts or (server.clients is None and isinstance(error, RefusedError)):
                raise
            _log.log(WARNING, "a session of training failed: %s", error)
            continue
        finally:
            run.sessions.append(relay.exchanges)
            run.dropped.update(relay.dropped)
        failed = 0
        if report.kind == "round" and on_round is not None:
            on_round(report.number, server.params)
        if report.kind == "over":
            break
    kept.remove()
    run.params = server.params
    run.rounds = [
        (number, [kept.nodes[index] for index in who]) for number, who in server.rounds
    ]
    run.groups = [[kept.nodes[index] for index in group] for group in server.groups]
    return run


def _digest(roster: Path) -> str:
    """The fingerprint of a roster, as :class:`_state.Identity` has it."""
    return _state.fingerprint(FilePath(roster).read_text(encoding="utf-8"))


def _hello(
    grid: Grid,
    ids: list[int],
    entries: dict[str, Value],
    places: int | None,
    timeout: float,
    poll: float,
    run: TrainRun,
) -> dict[int, int]:
    """Asks all nodes whether they agree to the job. Returns the node of each client."""
    messages = {}
    for index, node in enumerate(ids):
        terms = _wire.terms({"kind": "train hello", **entries}, 0, -1)
        messages[index] = Message(
            RecordDict({_wire.TERMS: terms}), node, f"query.{_wire.TRAIN}"
        )
    replies, exchange = _wire.ask(grid, messages, "hello", timeout, poll)
    run.sessions.append([exchange])
    for index, error in replies.errors.items():
        run.dropped[ids[index]] = error
    if not replies.contents:
        reasons = "; ".join(sorted(set(replies.errors.values()))[:3])
        raise Told(f"no client takes part: {reasons or 'none was asked'}")
    if places is None:
        return {place: ids[index] for place, index in enumerate(sorted(replies.contents))}
    nodes: dict[int, int] = {}
    for index, content in sorted(replies.contents.items()):
        place = _wire.place_of(content, range(places))
        if place is None or place in nodes:
            run.dropped[ids[index]] = "named no free place on the roster"
        else:
            nodes[place] = ids[index]
    return nodes


def _present(
    grid: Grid, server: TrainServer, nodes: dict[int, int], wait: float, poll: float
) -> list[int]:
    """The clients that could take part, once a session can begin."""
    begun = time.monotonic()
    while True:
        here = set(grid.get_node_ids())
        present = sorted(index for index, node in nodes.items() if node in here)
        is_known = server.clients is None or any(one in present for one in server.clients)
        if server.over or (is_known and len(server.members(present)) >= server.job.min_clients):
            return present
        if time.monotonic() - begun >= wait:
            raise UndertoneError(
                f"no session could begin for {wait:g} seconds: {len(present)} of {len(nodes)} "
                "nodes are present, and a round needs all nodes of a group"
            )
        time.sleep(max(poll, 0.01))
