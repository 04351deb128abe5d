"""Label propagation on Flower."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from .._engine import RefusedError, UndertoneError
from .._jobs import LabelJob, LabelTerms
from .._label import LabelClient, LabelReport, Labels, LabelServer
from .._net import Joined, join
from .._party import Path, session_id
from .._record import Record
from . import _state, _wire
from ._grid import read
from ._relay import Relay
from ._state import RecordChoice
from ._wire import Exchange, Terms, Told

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value
    from flwr.clientapp.typing import ClientAppCallable

STATE = "undertone.label"


def _job(told: Terms) -> LabelJob:
    """The job that the server offers."""
    try:
        return LabelJob.read(told.text("job").encode())
    except (ValueError, OverflowError) as error:
        raise Told(f"the server's job is impossible: {error}") from None


Data = Callable[[Context], tuple[NDArray[Any], NDArray[Any]]]


@dataclass
class LabelRound:
    """What the ServerApp has learned, and what it cost."""

    report: LabelReport | None
    """What the server has learned; None with ``channel="grpc"``, where :attr:`job` has it."""
    nodes: list[int]
    """The node id of each client, by its number in the report. With ``channel="grpc"``: the nodes
    that have their labels."""
    dropped: dict[int, str]
    """Why the other nodes dropped out, by node id."""
    exchanges: list[Exchange] = field(default_factory=list)
    """Seconds and bytes of each message."""
    job: dict[str, Any] | None = None
    """With ``channel="grpc"``: the report of ``undertone serve``."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(exchange.seconds for exchange in self.exchanges)


def labelled(
    data: Data,
    receive: Callable[[Labels, Context], object],
    *,
    terms: LabelTerms | None = None,
    codes: bool = False,
    classes: int | None = None,
    noise: Callable[[Context], tuple[float, bytes]] | None = None,
    key: Path | None = None,
    roster: Path | None = None,
    record: RecordChoice = None,
    keys: Path | Callable[[Context], Path] | None = None,
    server: str | None = None,
    server_name: str | None = None,
    patience: float = 900.0,
    journal: Path | None = None,
) -> ClientAppCallable:
    """A query handler for the ClientApp that labels this node's rows.

    Register it under the action ``undertone``::

        app.query("undertone")(labelled(load, save))

    ``data(context)`` returns features, float of shape [rows, features], and labels, integers of
    shape [rows] with -1 where there is none. With ``codes=True`` it returns codes in place of
    features. It must return the same for every message of a run. Features may be a DataFrame: the
    ServerApp then learns a digest of the names of its columns, and leaves out nodes whose columns
    are not those of most others.
    ``receive(labels, context)`` gets the :class:`undertone.Labels` of the rows. Neither features
    nor labels leave the node in the clear.

    ``terms`` are what this client agrees to (default: :class:`undertone.LabelTerms`). ``classes``
    is the number of classes; by default the server's counts. ``noise`` returns epsilon and a secret
    of 32 bytes that the client keeps; it needs ``classes``. ``key`` and ``roster`` are for sums
    that withstand a server that lies; ``keys`` is the folder with ca.pem, roster.toml and
    client.key for ``channel="grpc"``, a path or a function of the context. ``server`` is then the
    only ``HOST:PORT`` to which this client connects; by default the ServerApp names it, and ca.pem
    decides. ``server_name`` is the name in its certificate, if it is not the host. ``patience`` is
    the longest time in seconds without any progress.

    ``record`` is the :class:`undertone.Record` of this node's data, its name, or :data:`SIMULATED`.
    It says what these data have answered, whatever the node id and the run, and refuses the rest:
    a fourth session, or one with other clients. Without ``malicious_server`` nobody knows whether
    the clients of a second session are those of the first, and it is refused, too. The default is
    the client's name on its own roster, if it has ``key`` and ``roster``. Without a record the node
    takes no part.

    The node config entries ``undertone-record``, ``undertone-records`` (the folder of records),
    ``undertone-accept`` (``"volatile-record"`` takes the risk of a folder that a restart may lose),
    ``undertone-key``, ``undertone-roster``, ``undertone-keys`` and ``undertone-journal`` come
    first.
    """
    agreed = terms or LabelTerms()
    with contextlib.suppress(RefusedError):  # Terms that cannot be are said at once.
        agreed.check(LabelJob(), signed=False)
    _state.check_record(record)
    if noise is not None and classes is None:
        raise ValueError(
            "noise needs classes: their number must follow neither from the labels nor from the "
            "server"
        )

    def check_classes(asked: int | None) -> None:
        if asked is None or asked < 2 or asked != (asked if classes is None else classes):
            raise Told(f"the server asks for {asked} classes, this client has {classes}")

    def check(job: LabelJob, context: Context) -> None:
        try:
            agreed.check(job, signed=_state.is_signed(context, key, roster))
        except RefusedError as why:
            raise Told(str(why)) from None
        check_classes(job.classes)
        if job.class_names:
            raise Told("class_names are for jobs on a network: here classes are numbers")

    def replayed(message: Message, context: Context, told: Terms) -> Message:
        job = _job(told)
        check(job, context)
        kept = _state.Kept.load(context, STATE, told)
        clients, index, signing = told.number("clients"), told.number("index"), None
        if clients < job.min_clients:
            raise Told(f"the server labels with {clients} clients, the job has {job.min_clients}")
        if job.malicious_server:
            signing = _state.identity(context, key, roster)
            index = signing.index
            if clients != len(signing.public_keys):
                raise Told(
                    f"the server's roster has {clients} clients, this node's "
                    f"{len(signing.public_keys)}; all parties need the same roster.toml"
                )
        answers = _state.record(context, record, key, roster)
        features, labels = _state.own(lambda: data(context), "loading the rows")

        def made() -> LabelClient:
            return LabelClient(
                index,
                features,
                labels,
                job,
                session=kept.session,
                clients=clients,
                classes=job.classes or 0,
                codes=codes,
                noise=None if noise is None else noise(context),
                key=None if signing is None else signing.key,
                public_keys=None if signing is None else signing.public_keys,
                terms=agreed,
                record=answers,
                seed=kept.seed,
            )

        party = _state.own(made, "reading rows and labels")
        folder = _state.journal(context, journal, "label", answers)
        if told.number("step") == 0:
            _state.clean(folder, kept.session)
        bundle = _wire.carried(message.content)
        reply = _state.own(lambda: party.replay(folder, kept.past, bundle), "the protocol")
        if party.done:
            found = party.result()
            if found is not None:
                _state.own(lambda: receive(found, context), "keeping the labels")
            kept.forget(told)
        else:
            kept.save(told, bundle)
        _state.keep(context, answers)
        said = _wire.said(index, party.done, features, told.number("step"))
        return Message(_wire.carry(RecordDict({_wire.TERMS: said}), reply), reply_to=message)

    def joined(message: Message, context: Context, told: Terms) -> Message:
        folder = context.node_config.get("undertone-keys") or keys
        if callable(folder):
            function = folder
            folder = _state.own(lambda: function(context), "finding the keys")
        if not folder:
            raise Told(
                "channel='grpc' needs the folder with ca.pem, roster.toml and client.key: start "
                "the SuperNode with --node-config 'undertone-keys=\"FOLDER\"'"
            )
        check_classes(told.number("classes"))
        address = told.text("server")
        if server is not None and address != server:
            raise Told(
                f"the ServerApp asks to connect to {address}, this client connects to {server} only"
            )
        features, labels = _state.own(lambda: data(context), "loading the rows")
        answers, records, accepts = _state.chosen(context, record)

        def gained() -> Joined:
            return join(
                address,
                str(folder),
                features=features,
                labels=labels,
                codes=codes,
                classes=told.number("classes"),
                terms=agreed,
                noise=None if noise is None else noise(context),
                server_name=server_name,
                patience=min(told.real("patience"), patience),
                record=answers,
                records=records,
                accept_volatile=accepts,
            )

        found = _state.own(gained, "joining the job")
        if isinstance(answers, Record):
            _state.keep(context, answers)
        brought = found.labels
        if brought is not None:
            _state.own(lambda: receive(brought, context), "keeping the labels")
        said = ConfigRecord({"done": True})
        return Message(RecordDict({_wire.TERMS: said}), reply_to=message)

    def handler(message: Message, context: Context) -> Message:
        return _state.own(lambda: handled(message, context), "label propagation")

    def handled(message: Message, context: Context) -> Message:
        told = Terms(message.content, "the query is not Undertone's; it has no terms")
        kind = told.text("kind")
        if kind == "label":
            return replayed(message, context, told)
        if kind == "label by grpc":
            return joined(message, context, told)
        raise Told(f"the server asks for {kind!r}; this client labels rows")

    return handler


def label(
    grid: Grid,
    *,
    classes: int,
    channel: str = "replay",
    nodes: Iterable[int] | None = None,
    roster: Path | None = None,
    listen: str = "127.0.0.1:7431",
    address: str | None = None,
    timeout: float = 600.0,
    poll: float = 0.25,
    **parameters: Any,
) -> LabelRound:
    """Labels the rows of all nodes, from the ServerApp. The clients need :func:`labelled`.

    ``classes`` is their number. ``nodes`` are the node ids of the clients; all by default.
    ``parameters`` are the others of :class:`undertone.LabelJob`; only ``channel="grpc"`` can
    standardise features. ``timeout`` is in seconds, for each message. ``poll`` is the number of
    seconds between questions to the SuperLink.

    The records of the nodes allow three sessions of the same rows, all among the same clients. So
    call this once all nodes are there.

    ``channel`` says how frames travel:

    - ``"replay"``: in Flower's messages, as many as it takes. Each client runs its party again for
      each message. Frames between clients travel through the server, sealed by the protocol.
      ``malicious_server`` needs ``roster``, as for :class:`SecureGrid`.
    - ``"grpc"``: on Undertone's own connection, within one message of Flower. This host runs
      ``undertone serve`` with ``roster``, whose folder has server.pem and server.key, at
      ``listen``. Clients connect to ``address`` (default: ``listen``). They check its certificate
      against their ca.pem.

    Raises :class:`undertone.AbortedError` when label propagation fails, and
    :class:`undertone.RefusedError` when no client takes part.
    """
    ids = sorted(grid.get_node_ids() if nodes is None else nodes)
    job = LabelJob(classes=classes, **parameters)
    if job.class_names:
        raise ValueError("class_names are for jobs on a network: here classes are numbers")
    if channel == "grpc":
        if roster is None:
            raise ValueError("channel='grpc' needs roster, the path of roster.toml")
        return _by_grpc(
            grid, ids, job, roster, listen, address or listen, timeout, poll
        )
    if channel != "replay":
        raise ValueError(f"channel is {channel!r}; it is 'replay' or 'grpc'")
    if job.malicious_server and roster is None:
        raise ValueError("malicious_server=True needs roster, the path of roster.toml")
    places = None if not job.malicious_server or roster is None else len(read(roster))
    session, clients = session_id(None), len(ids) if places is None else places
    server = LabelServer(job, session=session, clients=clients)
    entries: dict[str, Value] = {
        "kind": "label",
        "session": session,
        "clients": clients,
        "job": job.offer.decode(),
    }
    relay = Relay(
        grid, dict(enumerate(ids)), entries, server, _wire.ACTION, places, timeout, poll
    )
    relay.run()
    report = server.result()
    if report is None:
        raise relay.stuck("label propagation")
    return LabelRound(report, ids, relay.dropped, relay.exchanges)


def _by_grpc(
    grid: Grid,
    ids: list[int],
    job: LabelJob,
    roster: Path,
    listen: str,
    address: str,
    timeout: float,
    poll: float,
) -> LabelRound:
    """Runs ``undertone serve`` beside one message of Flower."""
    entries: dict[str, Value] = {
        "kind": "label by grpc",
        "server": address,
        "patience": float(timeout),
        "classes": job.classes or 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        file, log = FilePath(folder) / "job.toml", FilePath(folder) / "log"
        lines = ['application = "label"', *job.offer.decode().splitlines()]
        if job.malicious_server is None:  # It follows from the roster.
            lines = [line for line in lines if not line.startswith("malicious_server ")]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [
            sys.executable, "-m", "undertone", "serve", "--roster", str(roster), "--job", str(file),
            "--listen", listen, "--jobs", "1", "--reports", folder,
            "--wait", str(max(1, int(timeout / 2))),
        ]  # fmt: skip
        with open(log, "wb") as errors:
            serving = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                time.sleep(0.3)
                messages = {
                    index: Message(
                        RecordDict({_wire.TERMS: _wire.terms(entries, 0, -1)}),
                        node,
                        f"query.{_wire.ACTION}",
                    )
                    for index, node in enumerate(ids)
                    if serving.poll() is None
                }
                replies, exchange = _wire.ask(grid, messages, "job", timeout, poll)
                code = serving.wait(timeout=5.0) if replies.contents else serving.poll()
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if serving.poll() is None:
                    serving.terminate()
                    serving.wait()
        reports = sorted(FilePath(folder).glob("job-*.json"))
        dropped = {ids[index]: error for index, error in replies.errors.items()}
        if not replies.contents:
            reasons = "; ".join(sorted(set(dropped.values()))[:3])
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise UndertoneError(
                f"no client has its labels ({reasons or 'none was asked'}); undertone serve ended "
                f"with {code}: {' '.join(last)}"
            )
        report = json.loads(reports[-1].read_text(encoding="utf-8")) if reports else None
    took_part = [ids[index] for index in sorted(replies.contents)]
    return LabelRound(None, took_part, dropped, [exchange], report)
