"""Moves frames between a server and its clients in Flower's messages."""

from __future__ import annotations

from collections.abc import Mapping
from logging import WARNING, getLogger
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Generic

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from .._client import R_co, Session
from .._costs import SERVER
from .._engine import RefusedError, UndertoneError
from .._job import Job
from .._party import Path, pack, unpack
from . import _state, _wire
from ._wire import Exchange

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value

_log = getLogger("undertone")


def roster_of(job: Job, roster: Path | None) -> str:
    """The fingerprint of the roster, if the job needs one."""
    if roster is None or not getattr(job, "malicious_server", None):
        return ""
    return _state.fingerprint(FilePath(roster).read_text(encoding="utf-8"))


class Relay(Generic[R_co]):
    """One session.

    ``nodes`` has the node id of each client. ``places`` is the number of places on a roster; the
    clients then name theirs in their first reply.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: dict[int, int],
        entries: Mapping[str, Value],
        server: Session[R_co],
        action: str,
        places: int | None,
        timeout: float,
        poll: float,
    ) -> None:
        self.grid, self.timeout, self.poll = grid, timeout, poll
        self.server, self.action, self.places = server, action, places
        self.entries: dict[str, Value] = {
            "kind": "session",
            "session": server.session,
            "number": server.number,
            **entries,
        }
        self.nodes = dict(nodes)
        self.steps = dict.fromkeys(self.nodes, 0)
        self.frames: dict[int, list[tuple[int, bytes]]] = {index: [] for index in self.nodes}
        self.gone: dict[int, list[int]] = {index: [] for index in self.nodes}
        self.done: set[int] = set()
        self.dropped: dict[int, str] = {}
        """Why nodes dropped out, by node id."""
        self.exchanges: list[Exchange] = []
        """Seconds and bytes of each message."""

    def _drop(self, index: int, reason: str) -> None:
        """Tells all others that a client has dropped out."""
        if index in self.nodes:
            node = self.nodes.pop(index)
            self.dropped[node] = reason
            _log.log(WARNING, "node %d drops out: %s", node, reason)
        self.server.gone(index)
        for other in self.nodes:
            self.gone[other].append(index)

    def _seat(self, replies: _wire.Replies, places: int) -> None:
        """Moves the clients to the places on the roster that they name."""
        seated: dict[int, int] = {}
        contents = {}
        for index, content in replies.contents.items():
            place = _wire.place_of(content, range(places))
            if place is None or place in seated:
                self.dropped[self.nodes[index]] = "named no free place on the roster"
            else:
                seated[place], contents[place] = self.nodes[index], content
        for index, error in replies.errors.items():
            self.dropped[self.nodes[index]] = error
        replies.contents, replies.errors, self.nodes = contents, {}, seated
        self.steps = dict.fromkeys(seated, 1)
        self.frames = {index: [] for index in seated}
        self.gone = {index: [] for index in seated}
        for absent in set(range(places)) - set(seated):
            self._drop(absent, "")

    def _message(self, index: int) -> Message:
        claimed = index if self.places is None else -1
        terms = _wire.terms(self.entries, self.steps[index], claimed)
        bundle = pack(self.frames[index], gone=self.gone[index])
        self.frames[index], self.gone[index] = [], []
        self.steps[index] += 1
        content = _wire.carry(RecordDict({_wire.TERMS: terms}), bundle)
        return Message(content, self.nodes[index], f"query.{self.action}")

    def _poll(self) -> None:
        while frames := self.server.poll():
            for to, frame in frames:
                if to in self.nodes:
                    self.frames[to].append((SERVER, frame))

    def run(self, what: str) -> R_co:
        """All messages of the session. Returns what it gave the server.

        Raises :class:`undertone.RefusedError` when no client takes part, and
        :class:`undertone.AbortedError` when the server aborts.
        """
        first = True
        self._poll()
        while True:
            due = [
                index
                for index in self.nodes
                if index not in self.done
                and (first or self.frames[index] or self.gone[index])
            ]
            if not due:
                break
            messages = {index: self._message(index) for index in due}
            name = f"message {len(self.exchanges) + 1}"
            replies, exchange = _wire.ask(self.grid, messages, name, self.timeout, self.poll)
            self.exchanges.append(exchange)
            if first and not replies.contents:
                reasons = "; ".join(sorted(set(replies.errors.values()))[:3])
                raise RefusedError(f"no client takes part: {reasons}")
            if first and self.places is not None:
                self._seat(replies, self.places)
            if first:
                _wire.turn_away(replies, self.nodes)
            first = False
            for index, content in sorted(replies.contents.items()):
                try:
                    self._take(index, content)
                except ValueError as error:
                    replies.errors[index] = str(error)
            for index, reason in sorted(replies.errors.items()):
                self._drop(index, reason)
            self._poll()
        result = self.server.result()
        if result is None:
            raise self._stuck(what)
        return result

    def _take(self, index: int, content: RecordDict) -> None:
        """Moves the frames of a reply to their receivers."""
        frames, gone = unpack(_wire.carried(content))
        if gone:
            raise ValueError("its reply speaks for other clients")
        for to, frame in frames:
            if to == SERVER:
                self.server.push(index, frame)
            elif to in self.nodes and to != index:
                self.frames[to].append((index, frame))
        said = content.config_records.get(_wire.TERMS) if _wire.TERMS in content else None
        if said is not None and said.get("done") is True:
            self.done.add(index)

    def _stuck(self, what: str) -> UndertoneError:
        """The error of a session that has ended without a result."""
        waits = ", ".join(str(who) for who in self.server.waits_for)
        return UndertoneError(
            f"{what} stands still in phase {self.server.phase}; the server waits for clients "
            f"{waits}"
        )
