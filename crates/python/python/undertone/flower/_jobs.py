"""The ClientApp's part in jobs of any application."""

from __future__ import annotations

from collections.abc import Callable
from logging import INFO, WARNING, getLogger
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from .._client import Client, Session
from .._engine import RefusedError
from .._job import Job
from .._jobs import LabelJob, TrainJob
from .._net import Joined, join
from .._party import Path
from .._record import Record
from .._train import TrainStep
from . import _state, _wire
from ._state import RecordChoice
from ._wire import Terms, Told

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable

MEMO = "undertone.memo."
"""The beginning of the name of what objects have done, before that of the application."""

REPLAYED: dict[str, type[Job]] = {"label": LabelJob, "train": TrainJob}
"""The applications whose frames can travel in Flower's messages. For each message the client runs
its party again: a message of the others would take minutes and gigabytes."""

_log = getLogger("undertone")


def client(
    make: Callable[[Context], Client[Any]],
    receive: Callable[[Any, Context], object] | None = None,
    *,
    key: Path | None = None,
    roster: Path | None = None,
    record: RecordChoice = None,
    keys: Path | Callable[[Context], Path] | None = None,
    server: str | None = None,
    server_name: str | None = None,
    patience: float = 900.0,
    journal: Path | None = None,
) -> ClientAppCallable:
    """A query handler for the ClientApp that takes part in a job.

    Register it under the action ``undertone``, or under one that begins with ``undertone_``::

        app.query("undertone")(client(make, receive))

    ``make(context)`` returns what this node brings, without a record: an
    :class:`undertone.LabelClient` or another :class:`undertone.Client`. It is called for each
    message, and must bring the same each time. Data and terms are this node's; they do not leave
    it. If the rows are a DataFrame, the ServerApp learns a digest of the names of its columns, and
    leaves out nodes whose columns are not those of most others. ``receive(result, context)`` gets
    what the client has at the end of the job: :class:`undertone.Labels`, or a
    :class:`undertone.TrainStep` with the final model.

    The ServerApp runs the job: :func:`label` and :func:`train` in Flower's messages, :func:`serve`
    on a connection of its own, where ``make`` is called once.

    ``key`` and ``roster`` are for sums that withstand a server that lies; ``keys`` is the folder
    with ca.pem, roster.toml and client.key for :func:`serve`, a path or a function of the context.
    ``server`` is then the only ``HOST:PORT`` to which this client connects; by default the
    ServerApp names it, and ca.pem decides. ``server_name`` is the name in its certificate, if it is
    not the host. ``patience`` is the longest time in seconds without any progress.

    ``record`` is the :class:`undertone.Record` of this node's data, its name, or :data:`SIMULATED`.
    It says what these data have answered, whatever the node id and the run, and refuses the rest.
    Without ``malicious_server`` nobody knows whether the clients of a second job are those of the
    first, and it is refused, too. The default is the client's name on its own roster, if it has
    ``key`` and ``roster``. Without a record the node takes no part.

    The node config entries ``undertone-record``, ``undertone-records`` (the folder of records),
    ``undertone-accept`` (``"volatile-record"`` takes the risk of a folder that a restart may lose),
    ``undertone-key``, ``undertone-roster``, ``undertone-keys`` and ``undertone-journal`` come
    first.
    """
    _state.check_record(record)

    def made(context: Context, told: Terms) -> Client[Any]:
        def without_a_record() -> Client[Any]:
            brought = make(context)
            if brought._client.has_record:
                raise ValueError("make returns a client with a record; give it to client()")
            return brought

        brought = _state.own(without_a_record, "making the client")
        application = told.text("application")
        if brought.application != application:
            raise Told(
                f"the server runs a job of {application}, this client takes part in "
                f"{brought.application}"
            )
        return brought

    def replayed(message: Message, context: Context, told: Terms) -> Message:
        brought = made(context, told)
        application = brought.application
        kind = REPLAYED.get(application)
        if kind is None:
            raise Told(f"jobs of {application} take undertone.flower.serve at the ServerApp")
        try:
            job = kind.read(told.text("job").encode())
        except (ValueError, OverflowError) as error:
            raise Told(f"the server's job is impossible: {error}") from None
        index, signing = told.number("index"), None
        if getattr(job, "malicious_server", None):
            signing = _state.identity(context, key, roster)
            if index not in (-1, signing.index):
                raise Told("the server's number for this node is not its place on the roster")
            index = signing.index
            if told.text("roster") != signing.digest:
                raise Told("all parties need the same roster.toml")
        answers = _state.record(context, record, key, roster)
        _state.own(lambda: brought.keep(answers), "the record")
        _agree(brought, job, _state.is_signed(context, key, roster))
        if told.text("kind") == "hello":
            _state.keep(context, answers)
            said = _wire.said(index, False, brought._client.columns, 0)
            return Message(RecordDict({_wire.TERMS: said}), reply_to=message)

        kept = _state.Kept.load(context, f"undertone.{application}", told)
        folder = _state.journal(context, journal, application, answers)
        step = told.number("step")
        if step == 0:
            _state.clean(folder, kept.session)
        memo_of = MEMO + application
        memo = _memo(context, memo_of, kept.session)
        brought._remember(memo)

        def begun() -> Session[Any]:
            return brought.session(
                job,
                kept.session,
                index=index,
                number=told.number("number"),
                key=None if signing is None else signing.key,
                public_keys=None if signing is None else signing.public_keys,
                seed=kept.seed,
            )

        party = _state.own(begun, "beginning a session")
        bundle = _wire.carried(message.content)
        reply = _state.own(lambda: party.replay(folder, kept.past, bundle), "the protocol")
        if party.done:
            result = party.result()
            _tell(result)
            if receive is not None and result is not None and _is_last(result):
                take = receive
                _state.own(lambda: take(result, context), "keeping the result")
            kept.forget(told)
            memo.clear()
        else:
            kept.save(told, bundle)
        _state.keep(context, answers)
        context.state[memo_of] = ArrayRecord({name: Array(array) for name, array in memo.items()})
        context.state[f"{memo_of}.of"] = ConfigRecord({"session": kept.session})
        said = _wire.said(index, party.done, brought._client.columns, step)
        return Message(_wire.carry(RecordDict({_wire.TERMS: said}), reply), reply_to=message)

    def joined(message: Message, context: Context, told: Terms) -> Message:
        folder = context.node_config.get("undertone-keys") or keys
        if callable(folder):
            function = folder
            folder = _state.own(lambda: function(context), "finding the keys")
        if not folder:
            raise Told(
                "a job on a connection of its own needs the folder with ca.pem, roster.toml and "
                "client.key: start the SuperNode with --node-config 'undertone-keys=\"FOLDER\"'"
            )
        address = told.text("server")
        if server is not None and address != server:
            raise Told(
                f"the ServerApp asks to connect to {address}, this client connects to {server} only"
            )
        brought = made(context, told)
        answers, records, accepts = _state.chosen(context, record)

        def taken() -> Joined[Any]:
            return join(
                address,
                brought,
                str(folder),
                server_name=server_name,
                patience=min(told.real("patience"), patience),
                record=answers,
                records=records,
                accept_volatile=accepts,
            )

        found = _state.own(taken, "taking part in the job")
        if isinstance(answers, Record):
            _state.keep(context, answers)
        if receive is not None:
            take = receive
            _state.own(lambda: take(found.result, context), "keeping the result")
        said = ConfigRecord({"done": True})
        return Message(RecordDict({_wire.TERMS: said}), reply_to=message)

    def handled(message: Message, context: Context) -> Message:
        told = Terms(message.content, "the query is not Undertone's; it has no terms")
        kind = told.text("kind")
        if kind in ("hello", "session"):
            return replayed(message, context, told)
        if kind == "grpc":
            return joined(message, context, told)
        raise Told(f"the server asks for {kind!r}; this client takes part in jobs")

    def handler(message: Message, context: Context) -> Message:
        return _state.own(lambda: handled(message, context), "taking part")

    return handler


def _agree(brought: Client[Any], job: Job, is_signed: bool) -> None:
    """Agrees to a job, or tells the server which term it does not meet. What others are not told
    stays here."""

    def agreed() -> RefusedError | None:
        try:
            brought.agree(job, signed=is_signed)
        except RefusedError as why:
            if hasattr(why, "told"):
                raise
            return why
        return None

    why = _state.own(agreed, "agreeing to the job")
    if why is not None:
        raise Told(str(why))


def _memo(context: Context, name: str, session: bytes) -> dict[str, NDArray[Any]]:
    """What the objects of a client have done in this session."""
    if f"{name}.of" not in context.state:
        return {}
    if context.state.config_records[f"{name}.of"].get("session") != session:
        return {}
    record = context.state.array_records[name]
    return {name: np.asarray(array.numpy(), np.float32) for name, array in record.items()}


def _is_last(result: Any) -> bool:
    """Whether the job is over for the client."""
    return not isinstance(result, TrainStep) or result.kind == "over"


def _tell(result: Any) -> None:
    if not isinstance(result, TrainStep):
        return
    if result.diverged:
        _log.log(
            WARNING,
            "round %d: the update has values that are no numbers; this node contributed no change",
            result.number,
        )
    elif result.clipped:
        _log.log(WARNING, "round %d: %d changes were clipped", result.number, result.clipped)
    elif result.kind == "round":
        _log.log(INFO, "round %d: %d pseudo-labels", result.number, result.pseudo)
