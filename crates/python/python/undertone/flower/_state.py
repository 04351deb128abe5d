"""What a client keeps between messages: seed and inbound bundles, record, journal, identity."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from logging import ERROR, INFO, getLogger
from pathlib import Path as FilePath
from typing import Final, Literal, NamedTuple, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Context

from .. import _engine
from .._engine import RefusedError
from .._party import Path
from .._record import Record
from ._wire import Terms, Told

_log = getLogger("undertone")

RECORD = "undertone.record"


class Simulated(Enum):
    """A record in memory."""

    SIMULATED = "in memory"

    def __repr__(self) -> str:
        return "undertone.flower.SIMULATED"


SIMULATED: Final[Literal[Simulated.SIMULATED]] = Simulated.SIMULATED
"""A record of answers in memory, which a node forgets with the run. It is for trials in which one
machine runs all nodes. The node config entry ``undertone-record`` comes first."""

RecordChoice = Record | str | Simulated | None

KEEP_JOURNALS = 30 * 24 * 3600.0
"""Seconds after which the journals of other runs are deleted."""


@dataclass
class Kept:
    """A session in ``context.state``: only its seed and the bundles that came.

    The party is run again from these for each message. Nothing of it leaves the node.
    """

    context: Context
    name: str
    session: bytes
    seed: bytes
    past: list[bytes]
    sent: bytes | None = None
    """The digest of the values that were sent, if they were."""

    @classmethod
    def begin(cls, context: Context, name: str, terms: Terms) -> Kept:
        """A new session. What was kept of the last one is replaced when it is saved."""
        return cls(context, name, terms.session(), secrets.token_bytes(32), [])

    @classmethod
    def load(cls, context: Context, name: str, terms: Terms) -> Kept:
        """The session of a message.

        Raises :class:`undertone.RefusedError` unless the message is the next one of the session
        and has its terms.
        """
        step, session = terms.number("step"), terms.session()
        record = context.state.config_records.get(name) if name in context.state else None
        kept = None if record is None else record["session"]
        if step == 0:
            if kept == session:
                raise Told(
                    "the server repeats the first message of a session; a client takes each "
                    "message once"
                )
            return cls.begin(context, name, terms)
        if record is None or kept != session:
            raise Told(
                f"message {step} is of a session that this node has not begun, or has forgotten"
            )
        if record["terms"] != terms.frozen():
            raise Told("the server has changed the terms within a session")
        bundles = context.state.array_records[f"{name}.past"]
        taken = int(str(record["taken"]))
        if step != taken:
            raise Told(
                f"the server sends message {step} of a session where message {taken} is due; a "
                "client takes each message once, in order"
            )
        past = [bytes(bundles[str(i)].data) if str(i) in bundles else b"" for i in range(taken)]
        seed, sent = record["seed"], record.get("sent")
        assert isinstance(seed, bytes)
        return cls(context, name, session, seed, past, sent if isinstance(sent, bytes) else None)

    def save(self, terms: Terms, bundle: bytes, sent: bytes | None = None) -> None:
        """Keeps the bundle that was taken, and the digest of the values that were sent."""
        self.past.append(bundle)
        self.context.state[self.name] = ConfigRecord(
            {
                "session": self.session,
                "seed": self.seed,
                "terms": terms.frozen(),
                "taken": len(self.past),
                **({} if sent is None else {"sent": sent}),
            }
        )
        record = ArrayRecord()
        for step, past in enumerate(self.past):
            if past:
                record[str(step)] = Array(
                    dtype="uint8", shape=(len(past),), stype="undertone.frames", data=past
                )
        self.context.state[f"{self.name}.past"] = record

    def forget(self, terms: Terms) -> None:
        """Forgets the seed of a session that has ended. The session's id stays, so that it is not
        begun again."""
        self.context.state[self.name] = ConfigRecord(
            {"session": self.session, "seed": b"", "terms": terms.frozen(), "taken": -1}
        )
        self.context.state[f"{self.name}.past"] = ArrayRecord()


def check_record(record: RecordChoice) -> RecordChoice:
    """Checks the argument ``record``."""
    if isinstance(record, Record) and record.name is None:
        raise ValueError(
            "a Record in memory is forgotten after each message; write "
            "record=undertone.flower.SIMULATED"
        )
    if record is not None and not isinstance(record, (Record, str, Simulated)):
        raise TypeError(f"record is {record!r}; a Record, the name of one or SIMULATED is needed")
    return record


class Chosen(NamedTuple):
    """A record, and where it lies."""

    record: Record | str | None
    records: str | None
    accept_volatile: bool


def chosen(context: Context, given: RecordChoice) -> Chosen:
    """The record of this node, or its name if that is known: node config, else the argument."""
    config = context.node_config
    name, folder = config.get("undertone-record"), config.get("undertone-records")
    record: Record | str | None
    if name:
        record = str(name)
    elif not isinstance(given, Simulated):
        record = given
    elif RECORD in context.state:
        state = context.state.config_records[RECORD]["state"]
        assert isinstance(state, bytes)
        record = Record._of(_engine.Record.simulated(state))
    else:
        _log.log(INFO, "the record of answers is in memory; this node forgets it with the run")
        record = Record.simulated()
    accepts = config.get("undertone-accept") == "volatile-record"
    return Chosen(record, str(folder) if folder else None, accepts)


def record(
    context: Context, given: RecordChoice, key: Path | None, roster: Path | None
) -> Record:
    """The record of this node: see :func:`chosen`. Without either it has the name of the client on
    its own roster."""

    def found() -> Record:
        one, folder, accepts = chosen(context, given)
        if one is None:
            paths = _paths(context, key, roster)
            one = None if paths is None else _read_identity(*paths).name
        if one is None:
            raise ValueError(
                "this node has no record of answers. Make one, `undertone record new NAME`, and "
                "start the SuperNode with --node-config 'undertone-record=\"NAME\"'; for trials "
                "in one process write record=undertone.flower.SIMULATED"
            )
        return one if isinstance(one, Record) else Record(one, folder, accepts)

    try:
        return found()
    except Exception:
        _log.log(ERROR, "this node takes no part", exc_info=True)
        raise Told(
            "this node has no record of answers that it can use; the log of the node has the reason"
        ) from None


def keep(context: Context, record: Record) -> None:
    """Keeps a record in memory until the next message."""
    state = record._record.state()
    if state is not None:
        context.state[RECORD] = ConfigRecord({"state": state})


def journal(context: Context, given: Path | None, kind: str, record: Record) -> FilePath:
    """The folder of the journals of this node in this run.

    It lies in the folder that the node config names, else in that of the argument, else in that of
    the record, else in the user's state folder.
    """
    run = f"run-{context.run_id & (1 << 64) - 1:016x}-{kind}"
    base = context.node_config.get("undertone-journal") or given
    if not base and record.folder is not None:
        return record.folder / "journal" / run
    if not base:
        base = FilePath(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "undertone/journal")
    # The server chooses the node's id. Without a record on disk there is no other name.
    node = f"node-{context.node_id & (1 << 64) - 1:016x}"
    return FilePath(str(base)).expanduser() / node / run


def clean(folder: FilePath, session: bytes) -> None:
    """Deletes the journals of other sessions. A session without its journal is refused, so this
    can only end sessions. It waits until no other process takes a step."""
    _engine.keep_journal(folder, session)
    with contextlib.suppress(OSError):
        for run in folder.parent.iterdir():
            if run != folder and time.time() - run.stat().st_mtime > KEEP_JOURNALS:
                shutil.rmtree(run, ignore_errors=True)


T = TypeVar("T")


class TrainingError(Exception):
    """Training failed on this node. The reason is in the node's log only: Flower sends the text of
    exceptions to the server."""


class NodeError(RuntimeError):
    """Something failed on this node. The text names no path and no value."""


def own(function: Callable[[], T], what: str) -> T:
    """Calls a function of the owner, or reads the owner's files and data. Flower sends the text of
    exceptions to the server, so only texts that are made for it leave."""
    try:
        return function()
    except (Told, TrainingError, NodeError):
        raise
    except RefusedError as error:
        _log.log(ERROR, "%s: %s", what, error, exc_info=True)
        told = getattr(error, "told", None) or f"{what} failed; the log of the node has the reason"
        raise Told(told) from None
    except Exception:
        _log.log(ERROR, "%s failed; this node drops out", what, exc_info=True)
        raise NodeError(f"{what} failed; the log of the node has the reason") from None


@dataclass(frozen=True)
class Identity:
    """A client's key and the public keys of all clients of the roster, in order."""

    index: int
    name: str
    key: str
    public_keys: dict[str, bytes]

    @property
    def digest(self) -> str:
        """A fingerprint of the roster."""
        return _fingerprint(list(self.public_keys.values()))


def _fingerprint(public_keys: list[bytes]) -> str:
    return hashlib.sha256(b"".join(public_keys)).hexdigest()


def fingerprint(roster: str) -> str:
    """A fingerprint of a roster (TOML): that of :class:`Identity` for its clients."""
    return _fingerprint([key or b"" for _, key in _engine.read_roster(roster)])


def identity(context: Context, key: Path | None, roster: Path | None) -> Identity:
    """The identity from the node config entries ``undertone-key`` and ``undertone-roster``, else
    from the arguments."""
    paths = _paths(context, key, roster)
    if paths is None:
        raise Told(
            "malicious_server=True needs this node's key and the roster: start the SuperNode with "
            "--node-config 'undertone-key=\"client.key\" undertone-roster=\"roster.toml\"'"
        )
    return own(lambda: _read_identity(*paths), "reading key and roster")


def is_signed(context: Context, key: Path | None, roster: Path | None) -> bool:
    """Whether this node has a key, and a roster with those of all."""
    return _paths(context, key, roster) is not None


def _paths(context: Context, key: Path | None, roster: Path | None) -> tuple[str, str] | None:
    """Key and roster: node config, else the arguments."""
    key = str(context.node_config.get("undertone-key") or key or "")
    roster = str(context.node_config.get("undertone-roster") or roster or "")
    return (key, roster) if key and roster else None


def _read_identity(key: str, roster: str) -> Identity:
    pem = FilePath(key).expanduser().read_text(encoding="utf-8")
    clients = _engine.read_roster(FilePath(roster).expanduser().read_text(encoding="utf-8"))
    public: dict[str, bytes] = {}
    for name, one in clients:
        if one is None:
            raise ValueError(f"{roster}: client {name!r} has no public key")
        public[name] = one
    mine = _engine.public_key(pem)
    for index, (name, one) in enumerate(public.items()):
        if one == mine:
            return Identity(index, name, pem, public)
    raise ValueError(f"{roster}: no client has the public key of {key}")
