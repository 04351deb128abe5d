"""What travels between ServerApp and ClientApp."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import WARNING, getLogger
from typing import TYPE_CHECKING

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from .._engine import RefusedError, columns_digest, strangers

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value

_log = getLogger("undertone")
VERSION = 3
TERMS = "undertone"
"""Name of the ConfigRecord with the terms of a session and the number of the message."""
FRAMES = "undertone.frames"
"""Name of the ArrayRecord with a bundle of frames."""
ACTION = "undertone"
"""The action of query messages of jobs. Another one begins with it and an underscore."""
TRAINS = 2
"""The message, from 0, in which clients train and upload."""
GONE = "gone: the SuperLink no longer lists it"
"""Why a node that is offline does not reply."""
LISTED = 2.0
"""Seconds between questions for the list of nodes, while replies are due."""


def about(arrays: ArrayRecord, metrics: Iterable[str], weighted_by: str) -> bytes:
    """A digest of what the values of a mean are, in their order: arrays, metrics, the weight.

    The values of the arrays that the server sent are in it: all clients train the same model. From
    others' models that do not learn, a server would read the update of a single client.
    """
    shapes = [
        [name, one.dtype, one.stype, [int(length) for length in one.shape]]
        for name, one in arrays.items()
    ]
    text = json.dumps([shapes, list(metrics), weighted_by])
    digest = hashlib.sha256(text.encode())
    for one in arrays.values():
        digest.update(len(one.data).to_bytes(8, "little"))
        digest.update(one.data)
    return digest.digest()


class Told(RefusedError):
    """A refusal whose text is made for the server: Flower sends the text of exceptions to it."""


def is_ours(action: str) -> bool:
    """Whether an action is one of query messages of jobs."""
    return action == ACTION or action.startswith(f"{ACTION}_")


def carry(content: RecordDict, bundle: bytes) -> RecordDict:
    """Puts a bundle of frames into a message's content.

    Flower moves arrays in chunks and in parallel, but a ConfigRecord in one piece.
    """
    if bundle:
        array = Array(dtype="uint8", shape=(len(bundle),), stype="undertone.frames", data=bundle)
        content[FRAMES] = ArrayRecord({"bundle": array})
    return content


def carried(content: RecordDict) -> bytes:
    """The bundle of frames in a message's content."""
    if FRAMES not in content:
        return b""
    record = content.array_records.get(FRAMES)
    if record is None or list(record) != ["bundle"]:
        raise ValueError(f"the record {FRAMES} holds no bundle")
    return bytes(record["bundle"].data)


def said(index: int, done: bool, columns: list[str], step: int) -> ConfigRecord:
    """What a reply tells beside frames. The first one tells the digest of the names of columns."""
    told = ConfigRecord({"index": index, "done": done})
    digest = columns_digest(columns) if step == 0 else b""
    if digest:
        told["columns"] = digest
    return told


def turn_away(replies: Replies, nodes: Mapping[int, int]) -> None:
    """Refuses the clients whose columns are not those of most others. They become errors."""
    clients = sorted(replies.contents)
    columns = []
    for index in clients:
        content = replies.contents[index]
        told = content.config_records.get(TERMS) if TERMS in content else None
        digest = None if told is None else told.get("columns")
        columns.append((f"node {nodes[index]}", digest if isinstance(digest, bytes) else b""))
    odd, why = strangers(columns)
    for place in odd:
        del replies.contents[clients[place]]
        replies.errors[clients[place]] = why


def without_ours(content: RecordDict) -> RecordDict:
    """The records that are not Undertone's. The records themselves are shared."""
    ours = (TERMS, FRAMES)
    return RecordDict({name: record for name, record in content.items() if name not in ours})


def size_of(content: RecordDict) -> int:
    """Bytes of all arrays in a message's content."""
    records = content.array_records.values()
    return sum(len(array.data) for record in records for array in record.values())


def check_groups(given: int | None, asked: int | None, shown: str) -> None:
    """Raises :class:`Told` if a client asks for groups and they are smaller, or there are none.

    ``shown`` is what many rounds show without groups."""
    if asked is None:
        return
    if given is None:
        raise Told(
            "the server draws clients freely: over many rounds it could compute this client's "
            f"{shown} (allow_free_sampling accepts this)"
        )
    if given < asked:
        raise Told(
            f"the server has groups of {given} clients, this client asks for {asked} "
            "(groups_at_least)"
        )


class Terms:
    """The terms of a message, as a client reads them. A missing or odd entry is a refusal."""

    def __init__(self, content: RecordDict, what: str) -> None:
        record = content.config_records.get(TERMS) if TERMS in content else None
        if record is None:
            raise Told(what)
        self._record: Mapping[str, Value] = record
        version = self.number("version")
        if version != VERSION:
            raise Told(
                f"the server speaks version {version} of this exchange, this client version "
                f"{VERSION}; install the same undertone on both sides"
            )

    def _odd(self, name: str, kind: str) -> Told:
        return Told(f"the server's terms have no {kind} {name!r}")

    def number(self, name: str) -> int:
        value = self._record.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._odd(name, "integer")
        return value

    def real(self, name: str) -> float:
        value = self._record.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self._odd(name, "number")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self._record.get(name)
        if not isinstance(value, bool):
            raise self._odd(name, "boolean")
        return value

    def text(self, name: str) -> str:
        value = self._record.get(name)
        if not isinstance(value, str):
            raise self._odd(name, "string")
        return value

    def session(self) -> bytes:
        value = self._record.get("session")
        if not isinstance(value, bytes) or len(value) != 32:
            raise self._odd("session", "id of 32 bytes")
        return value

    def digest(self, name: str) -> bytes:
        value = self._record.get(name)
        if not isinstance(value, bytes) or len(value) != 32:
            raise self._odd(name, "digest of 32 bytes")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._record.get(name)
        if not isinstance(value, list):
            raise self._odd(name, "list")
        return [str(one) for one in value]

    def frozen(self) -> str:
        """All entries that must not change within a session."""
        entries = {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in self._record.items()
            if name != "step"
        }
        return json.dumps(entries, sort_keys=True, default=str)


@dataclass
class Exchange:
    """One message to every client of a session, and the replies."""

    name: str
    seconds: float = 0.0
    """From the first message to the last reply."""
    sent: int = 0
    """Bytes of arrays that the server sent: frames and, where clients train, the model."""
    received: int = 0
    """Bytes of arrays that the server received."""


@dataclass
class Replies:
    """The replies to the messages of one exchange, by client."""

    contents: dict[int, RecordDict] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    """Why the others did not reply."""


def ask(
    grid: Grid, messages: dict[int, Message], name: str, timeout: float | None, poll: float
) -> tuple[Replies, Exchange]:
    """Sends a message to each client and waits for the replies.

    A node that the SuperLink no longer lists gets no message and is not waited for. A reply that it
    sent before counts. ``poll`` is the number of seconds between questions to the SuperLink.
    Flower's own ``send_and_receive`` asks every three seconds.
    """
    exchange, replies, begun = Exchange(name), Replies(), time.monotonic()
    nodes = {index: message.metadata.dst_node_id for index, message in messages.items()}

    def gone(index: int) -> None:
        _log.log(WARNING, "node %d is %s", nodes[index], GONE)
        replies.errors[index] = GONE

    listed, asked = set(grid.get_node_ids()), time.monotonic()
    reached: dict[int, Message] = {}
    for index, message in messages.items():
        if nodes[index] in listed:
            reached[index] = message
        else:
            gone(index)
    exchange.sent = sum(size_of(message.content) for message in reached.values())
    accepted = set(grid.push_messages(list(reached.values()))) if reached else set()
    waiting: dict[str, int] = {}
    for index, message in reached.items():
        if message.metadata.message_id in accepted:
            waiting[message.metadata.message_id] = index
        else:
            replies.errors[index] = "Flower did not accept the message"
    while waiting and (timeout is None or time.monotonic() - begun < timeout):
        # The list comes first: a node that has left it may have replied before, so pull once more.
        if time.monotonic() - asked >= LISTED:
            listed, asked = set(grid.get_node_ids()), time.monotonic()
        for reply in grid.pull_messages(list(waiting)):
            client = waiting.pop(reply.metadata.reply_to_message_id, None)
            if client is None:
                continue
            if reply.has_error() and reply.error.code == ErrorCode.NODE_UNAVAILABLE:
                gone(client)
            elif reply.has_error():
                replies.errors[client] = reply.error.reason or f"error {reply.error.code}"
            elif reply.metadata.src_node_id != nodes[client]:
                replies.errors[client] = f"node {reply.metadata.src_node_id} replied in its place"
            else:
                replies.contents[client] = reply.content
                exchange.received += size_of(reply.content)
        for message_id, index in list(waiting.items()):
            if nodes[index] not in listed:
                del waiting[message_id]
                gone(index)
        if waiting:
            time.sleep(poll)
    for index in waiting.values():
        replies.errors[index] = f"no reply within {timeout} seconds"
    exchange.seconds = time.monotonic() - begun
    return replies, exchange


def terms(entries: dict[str, Value], step: int, index: int) -> ConfigRecord:
    """The terms of one message to one client. Index -1: the client knows its place itself."""
    return ConfigRecord({"version": VERSION, **entries, "step": step, "index": index})


def place_of(content: RecordDict, clients: Iterable[int]) -> int | None:
    """The place on the roster that a client names in its first reply."""
    record = content.config_records.get(TERMS) if TERMS in content else None
    place = None if record is None else record.get("index")
    return place if isinstance(place, int) and place in clients else None
