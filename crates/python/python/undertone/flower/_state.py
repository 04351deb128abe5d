"""What a client keeps between messages: seed and inbound bundles, journal, identity."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path as FilePath
from typing import TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Context

from .. import _engine
from .._party import Path
from ._wire import Terms, Told

_log = getLogger("undertone")

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
        return cls(context, name, session, bytes(record["seed"]), past)  # type: ignore[arg-type]

    def save(self, terms: Terms, bundle: bytes) -> None:
        """Keeps the bundle that was taken."""
        self.past.append(bundle)
        self.context.state[self.name] = ConfigRecord(
            {
                "session": self.session,
                "seed": self.seed,
                "terms": terms.frozen(),
                "taken": len(self.past),
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


def journal_base(context: Context, given: Path | None) -> FilePath:
    """The folder of all journals: node config, else the argument, else the user's state folder."""
    configured = context.node_config.get("undertone-journal")
    if configured:
        return FilePath(str(configured)).expanduser()
    if given is not None:
        return FilePath(given).expanduser()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return FilePath(state).expanduser() / "undertone" / "journal"


def journal(context: Context, given: Path | None, kind: str) -> FilePath:
    """The folder of the journals of this node in this run."""
    node = f"node-{context.node_id & (1 << 64) - 1:016x}"
    return journal_base(context, given) / node / f"run-{context.run_id & (1 << 64) - 1:016x}-{kind}"


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
    except Exception:
        _log.log(ERROR, "%s failed; this node drops out", what, exc_info=True)
        raise NodeError(f"{what} failed; the log of the node has the reason") from None


@dataclass(frozen=True)
class Identity:
    """A client's key and the public keys of all clients of the roster, in order."""

    index: int
    key: str
    public_keys: list[bytes]

    @property
    def digest(self) -> str:
        """A fingerprint of the roster."""
        return _fingerprint(self.public_keys)


def _fingerprint(public_keys: list[bytes]) -> str:
    return hashlib.sha256(b"".join(public_keys)).hexdigest()


def fingerprint(roster: str) -> str:
    """A fingerprint of a roster (TOML): that of :class:`Identity` for its clients."""
    return _fingerprint([key or b"" for _, key in _engine.read_roster(roster)])


def identity(context: Context, key: Path | None, roster: Path | None) -> Identity:
    """The identity from the node config entries ``undertone-key`` and ``undertone-roster``, else
    from the arguments."""
    key = str(context.node_config.get("undertone-key") or key or "")
    roster = str(context.node_config.get("undertone-roster") or roster or "")
    if not key or not roster:
        raise Told(
            "malicious_server=True needs this node's key and the roster: start the SuperNode with "
            "--node-config 'undertone-key=\"client.key\" undertone-roster=\"roster.toml\"'"
        )
    return own(lambda: _read_identity(key, roster), "reading key and roster")


def _read_identity(key: str, roster: str) -> Identity:
    pem = FilePath(key).expanduser().read_text(encoding="utf-8")
    clients = _engine.read_roster(FilePath(roster).expanduser().read_text(encoding="utf-8"))
    public = []
    for name, one in clients:
        if one is None:
            raise ValueError(f"{roster}: client {name!r} has no public key")
        public.append(one)
    mine = _engine.public_key(pem)
    if mine not in public:
        raise ValueError(f"{roster}: no client has the public key of {key}")
    return Identity(public.index(mine), pem, public)
