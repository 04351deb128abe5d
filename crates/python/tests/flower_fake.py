"""A grid in this process, which calls the handlers of a ClientApp with persistent contexts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message.message import make_message
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

RUN, FIRST = 7, 100


def copied(message: Message) -> Message:
    """The message as another process would receive it."""
    content = message.content if message.has_content() else None
    return make_message(
        metadata=copy.deepcopy(message.metadata),
        content=None if content is None else copy.deepcopy(content),
        error=message.error if message.has_error() else None,
    )


@dataclass
class FakeGrid(Grid):
    """Nodes 100, 101, … Each message is handled when it is pushed.

    ``before`` sees each message before its client does. It may change it, or raise: then the
    client fails. ``after`` may change the reply. With ``parallel`` nodes work at the same time.

    Nodes in ``offline`` are not listed and do not reply. What they replied before can be pulled.
    With ``reports`` the grid replies in place of the others, as Flower's SuperLink does.
    """

    app: ClientApp
    nodes: int
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    before: Callable[[int, Message], object] | None = None
    after: Callable[[int, Message], Message] | None = None
    parallel: bool = False
    reports: bool = True
    offline: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id = RUN, 1
        TaskIdentity._task_id = 1
        self.contexts = {FIRST + index: self._context(index) for index in range(self.nodes)}
        self.sent: list[Message] = []
        self.replies: list[Message] = []
        self._waiting: dict[str, Message] = {}
        self._numbers = count(1)

    def _context(self, index: int) -> Context:
        config: UserConfig = {
            "partition-id": index,
            "undertone-journal": str(self.folder / f"node-{index}"),
            **{
                name: value[index] if isinstance(value, list) else value
                for name, value in self.config.items()
            },
        }
        return Context(RUN, FIRST + index, config, RecordDict(), {})

    def handle(self, message: Message) -> Message:
        """What the node replies to a message. Its context changes only if it succeeds."""
        node = message.metadata.dst_node_id
        context = copy.deepcopy(self.contexts[node])
        try:
            if self.before is not None:
                self.before(node - FIRST, message)
            reply = self.app(copied(message), context)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=2, reason=reason), reply_to=message)
        self.contexts[node] = context
        return reply

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            self.sent.append(copied(message))
        with ThreadPoolExecutor(len(messages) if self.parallel else 1) as pool:
            replies = list(pool.map(self.handle, messages))
        for message, reply in zip(messages, replies, strict=True):
            if message.metadata.dst_node_id in self.offline:
                if self.reports:
                    error = Error(code=ErrorCode.NODE_UNAVAILABLE, reason="Node Unavailable")
                    self._waiting[message.metadata.message_id] = Message(error, reply_to=message)
                continue
            if self.after is not None:
                reply = self.after(message.metadata.dst_node_id - FIRST, reply)
            self.replies.append(copied(reply))
            self._waiting[message.metadata.message_id] = reply
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._waiting.pop(one) for one in list(message_ids) if one in self._waiting]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node not in self.offline]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node) for node in self.get_node_ids()]

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError
