"""The grid of the ServerApp: strategies see one reply, the secure mean."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING, getLogger
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from .. import _checks, _engine
from .._costs import SERVER
from .._engine import AbortedError, RefusedError, UndertoneError
from .._party import Path, pack, unpack
from .._sum import SumServer
from . import _wire
from ._client import CLIPPED, summable
from ._wire import TRAINS, Exchange

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

_log = getLogger("undertone")
_NAMES = ("keys", "shares", "train and upload")
_SINGLE = "it compares single updates, and a secure mean shows none"
_TREES = "it collects trees, and a secure mean adds numbers"
_REFUSED = {
    "Bulyan": _SINGLE,
    "Krum": _SINGLE,
    "MultiKrum": _SINGLE,
    "FedMedian": "it takes the median of single updates, and a secure mean shows none",
    "FedTrimmedAvg": "it drops the extremes of single updates, and a secure mean shows none",
    "QFedAvg": "it weighs each update by the loss of its client, and a secure mean shows neither",
    "FedXgbBagging": _TREES,
    "FedXgbCyclic": _TREES,
    "DifferentialPrivacyServerSideFixedClipping": "it clips single updates on the server",
    "DifferentialPrivacyServerSideAdaptiveClipping": "it clips single updates on the server",
    "DifferentialPrivacyClientSideFixedClipping": (
        "it sizes its noise by the number of replies, and there is one reply"
    ),
    "DifferentialPrivacyClientSideAdaptiveClipping": (
        "it reads the norm bit of each reply, and there is one reply"
    ),
}


@dataclass
class Round:
    """What the server has learned in a round, apart from the mean, and what it cost."""

    contributors: list[int] = field(default_factory=list)
    """The node ids of the clients whose updates are in the mean."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Why nodes stopped replying, by node id. A node that stopped after its upload is a
    contributor, too."""
    suspects: list[int] = field(default_factory=list)
    """Nodes that revealed a false share of a secret, or were dealt one. The mean is right."""
    weight: float = 0.0
    """The total weight of the contributors."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The means of the metrics that the grid was asked for."""
    exchanges: list[Exchange] = field(default_factory=list)
    """Seconds and bytes of each message: keys, shares, training and upload, unmasking. With
    ``malicious_server`` there is one more, for signatures."""
    failed: str | None = None
    """Why there is no mean; None if there is one."""

    @property
    def seconds(self) -> float:
        """Seconds of the round."""
        return sum(exchange.seconds for exchange in self.exchanges)


class SecureGrid(Grid):
    """A grid that turns each training round into a secure mean.

    Wrap the grid that the ServerApp receives and give it to the strategy. The clients need the mod
    :func:`secure` with the same rules::

        @app.main()
        def main(grid: Grid, context: Context) -> None:
            strategy = FedAvg(fraction_evaluate=0.0)
            secured = SecureGrid(grid, clip=4.0, max_weight=1000.0, strategy=strategy)
            strategy.start(grid=secured, initial_arrays=arrays, num_rounds=10)

    The strategy sees one reply: the weighted mean, with the total weight as ``weighted_by``.
    FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi and FedProx work unchanged. Name the strategy as
    ``strategy``, or call :meth:`check`: strategies that need single updates are refused by name.
    A grid cannot see its strategy otherwise, and those would take the mean for the only update.

    **Clients contribute in fixed groups**, whole or not at all. In the first training round all
    nodes that are connected form groups of ``groups`` or more, for as long as this grid lives. A
    round has whole groups, drawn at random until there are as many clients as the strategy asks.
    Nodes that come later take part in the next run: let the strategy wait for all
    (``min_available_nodes``). With fewer than ten nodes there is one group, and a round in which a
    node fails gives no mean.

    A round is four messages: keys, shares, training with upload, unmasking; five with
    ``malicious_server``. A client that fails in one of the first three, training included, drops
    out with its group, and the mean is that of the others. If too few are left, the strategy sees
    no reply and keeps its arrays. If no client takes part at all, :class:`undertone.RefusedError`
    says why.

    ============================  ==================================================================
    ``clip``                      largest magnitude of a value of an array or metric
    ``max_weight``                largest weight of a client. Precision is best if it is close to
                                  the largest real one.
    ``metrics``                   training metrics to include in the mean; the clients must allow
                                  them
    ``weighted_by``               the metric that is the weight
    ``bits``                      of a word, 32 or 64. By default 32 if a step of the last bit is
                                  then at most 2**-16 of the clip, in a mean of total weight 1
    ``min_clients``               fewest contributors
    ``groups``                    fewest clients of a group
    ``free_sampling``             True: no groups, any clients contribute. Many rounds then tell the
                                  server each client's weight, and arrays that are constant at a
                                  client. Clients refuse unless they allow it.
    ``malicious_server``          needs ``roster``: clients sign, and every session is one of all
                                  clients of the roster. Node ids are not identities: each client
                                  names its place on the roster.
    ``roster``                    path of ``roster.toml``
    ``setup_timeout``             seconds for a message in which clients do not train; the timeout
                                  of the strategy holds for the message in which they do
    ``poll``                      seconds between questions to the SuperLink
    ============================  ==================================================================

    Evaluation and query messages pass unchanged, in the clear. :attr:`rounds` tells about each
    round.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        clip: float,
        max_weight: float,
        metrics: Iterable[str] = (),
        weighted_by: str = "num-examples",
        bits: int | None = None,
        min_clients: int = 3,
        malicious_server: bool = False,
        roster: Path | None = None,
        suite: str = "aes128ctr",
        groups: int = 5,
        free_sampling: bool = False,
        strategy: Strategy | None = None,
        setup_timeout: float = 300.0,
        poll: float = 0.25,
    ) -> None:
        if malicious_server and roster is None:
            raise ValueError("malicious_server=True needs roster, the path of roster.toml")
        self._grid = grid
        self._rules: dict[str, Any] = {
            "max_weight": _checks.positive("max_weight", max_weight),
            "min_clients": _checks.whole("min_clients", min_clients, least=2),
            "malicious_server": _checks.flag("malicious_server", malicious_server),
            "suite": _checks.text("suite", suite),
            "groups": None
            if _checks.flag("free_sampling", free_sampling)
            else _checks.whole("groups", groups),
        }
        if self._rules["groups"] is not None:
            _engine.groups(1, self._rules["groups"])  # refuses groups that are too small
        self._nodes: list[int] | None = None
        self._late: set[int] = set()
        self._clip = _checks.positive("clip", clip)
        self._bits = None if bits is None else _checks.word("bits", bits)
        self._metrics = list(metrics)
        self._weighted_by = weighted_by
        self._roster = None if roster is None else len(read(roster))
        self._setup_timeout = setup_timeout
        self._poll = poll
        self.rounds: list[Round] = []
        """One entry for each training round."""
        if strategy is not None:
            self.check(strategy)
            if getattr(strategy, "fraction_evaluate", 0.0) > 0.0:
                _log.log(
                    WARNING,
                    "the strategy evaluates on clients. Their replies are in the clear, and "
                    "clients refuse unless they have secure(evaluate='clear'). Use "
                    "fraction_evaluate=0.0 and an evaluate_fn",
                )
            key = getattr(strategy, "weighted_by_key", weighted_by)
            if key != weighted_by:
                raise ValueError(
                    f"the strategy is weighted by {key!r}, the grid by {weighted_by!r}; write "
                    f"SecureGrid(..., weighted_by={key!r})"
                )

    @staticmethod
    def check(strategy: Strategy) -> None:
        """Raises :class:`undertone.RefusedError` for a strategy that needs single updates.

        Other strategies that extend none of these are let through. They work if they need only the
        mean.
        """
        for kind in type(strategy).__mro__:
            reason = _REFUSED.get(kind.__name__)
            if reason is not None and kind.__module__.startswith("flwr."):
                raise RefusedError(
                    f"the strategy {type(strategy).__name__} does not work over SecureGrid: "
                    f"{reason}. Use FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi or FedProx"
                )

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Training messages: the secure mean, as one reply. Others: as the wrapped grid."""
        messages = list(messages)
        training = [one.metadata.message_type.partition(".")[0] == "train" for one in messages]
        if not any(training):
            return self._grid.send_and_receive(messages, timeout=timeout) if messages else []
        if not all(training):
            raise ValueError("send training messages apart from others")
        this = Round()
        mean = _Mean(self, messages, this)
        self.rounds.append(this)
        if not mean.places:
            this.failed = (
                f"no group of clients is whole among the {len(messages)} that were asked"
            )
            _log.log(WARNING, "the round gives no mean: %s", this.failed)
            return []
        try:
            return [mean.run(timeout)]
        except RefusedError as error:
            this.failed = str(error)
            raise
        except (AbortedError, UndertoneError, ValueError) as error:
            this.failed = str(error)
            _log.log(WARNING, "the round gives no mean: %s", error)
            return []

    def _draw(self, messages: Sequence[Message]) -> dict[int, Message]:
        """The message of each client of a round, by its place.

        Without groups these are the clients that the strategy asks. With a roster clients name
        their place later: in place of it there are numbers that nobody sees.
        """
        groups, asked = self._rules["groups"], {}
        for message in messages:
            asked[message.metadata.dst_node_id] = message
        if groups is None:
            return dict(enumerate(messages))
        # Others may take the place of those that the strategy drew if all get the same.
        first, kind = messages[0], messages[0].metadata.message_type
        alike = all(
            one.metadata.message_type == kind and one.content == first.content
            for one in messages[1:]
        )
        present = {*self._grid.get_node_ids(), *asked} if alike else set(asked)

        def to(node: int) -> Message:
            if node in asked:
                return asked[node]
            meta, content = first.metadata, RecordDict(dict(first.content.items()))
            return Message(content, node, kind, ttl=meta.ttl, group_id=meta.group_id)

        if self._roster is not None:
            return {index: to(node) for index, node in enumerate(sorted(present))}
        fewest = self._rules["min_clients"]
        nodes = self._nodes or sorted({*self._grid.get_node_ids(), *asked})
        if len(nodes) < fewest:
            return dict(enumerate(messages))  # refused
        self._nodes = nodes
        late = present.difference(nodes, self._late)
        if late:
            self._late |= late
            _log.log(
                WARNING,
                "%d nodes came after the groups were formed, and take part in the next run. Let "
                "the strategy wait for all nodes (min_available_nodes)",
                len(late),
            )
        whole = [
            group
            for group in _engine.groups(len(nodes), groups)
            if all(nodes[place] in present for place in group)
        ]
        secrets.SystemRandom().shuffle(whole)
        drawn: dict[int, Message] = {}
        for group in whole:
            if len(drawn) >= max(len(messages), fewest):
                break
            drawn |= {place: to(nodes[place]) for place in group}
        return drawn

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the wrapped grid. Training messages are refused: a mean takes several messages."""
        messages = list(messages)
        if any(one.metadata.message_type.partition(".")[0] == "train" for one in messages):
            raise RefusedError("send training messages with send_and_receive")
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the wrapped grid."""
        return self._grid.pull_messages(message_ids)

    def set_run(self, run: Run) -> None:
        """As the wrapped grid. Another run has other groups."""
        self._grid.set_run(run)
        self._nodes, self._late = None, set()

    @property
    def run(self) -> Run:
        """As the wrapped grid."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As the wrapped grid."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """As the wrapped grid."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """As the wrapped grid."""
        return self._grid.get_nodes()


def read(roster: Path) -> list[str]:
    """The names of a roster's clients."""
    with open(roster, encoding="utf-8") as file:
        return [name for name, _ in _engine.read_roster(file.read())]


class _Mean:
    """One secure mean."""

    def __init__(self, grid: SecureGrid, messages: list[Message], this: Round) -> None:
        self.grid, self.this = grid, this
        self.asked = messages
        self.places = grid._draw(messages)
        records = list(messages[0].content.array_records.values())
        if len(records) != 1:
            raise ValueError(f"a training message has {len(records)} ArrayRecords; it needs one")
        if any(name.startswith("fitins.") for name in messages[0].content):
            raise RefusedError(
                "strategies of flwr.server.strategy do not work over SecureGrid; use "
                "flwr.serverapp.strategy"
            )
        self.like = records[0]
        self.record = next(iter(messages[0].content.array_records))
        for name, array in self.like.items():
            summable(name, array)
        self.shapes = {name: tuple(array.shape) for name, array in self.like.items()}
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes.values()]
        self.size = sum(sizes) + len(grid._metrics)
        self.clients = len(messages)
        if grid._roster is not None:
            self.clients = grid._roster
        elif grid._nodes is not None:
            self.clients = len(grid._nodes)
        if self.clients < grid._rules["min_clients"]:
            raise RefusedError(
                f"the round has {self.clients} clients, {grid._rules['min_clients']} at least are "
                "needed (min_clients). With two clients each learns the other's update"
            )
        self.bits = grid._bits or _engine.word_bits(
            grid._clip, grid._rules["max_weight"], self.clients
        )
        self.session = secrets.token_bytes(32)
        self.about = _wire.about(self.like, grid._metrics, grid._weighted_by)
        self.server = SumServer(
            session=self.session,
            clients=self.clients,
            size=self.size,
            bound=grid._clip,
            clip=True,
            bits=self.bits,
            about=self.about,
            **grid._rules,
        )

    def _message(self, index: int, bundle: bytes, step: int, claimed: int) -> Message:
        """A message to the client of ``places[index]``."""
        asked, rules = self.places[index], self.grid._rules
        content = RecordDict(dict(asked.content.items())) if step == TRAINS else RecordDict()
        entries: dict[str, Value] = {
            "kind": "sum",
            "session": self.session,
            "clients": self.clients,
            "size": self.size,
            "clip": self.grid._clip,
            "max-weight": rules["max_weight"],
            "bits": self.bits,
            "min-clients": rules["min_clients"],
            "malicious-server": rules["malicious_server"],
            "suite": rules["suite"],
            "groups": rules["groups"] or 0,
            "weighted-by": self.grid._weighted_by,
            "metrics": self.grid._metrics,
            "about": self.about,
        }
        content[_wire.TERMS] = _wire.terms(entries, step, claimed)
        meta = asked.metadata
        return Message(
            _wire.carry(content, bundle),
            meta.dst_node_id,
            meta.message_type,
            ttl=meta.ttl,
            group_id=meta.group_id,
        )

    def _node(self, index: int) -> int:
        return self.places[index].metadata.dst_node_id

    def _seat(self, replies: _wire.Replies) -> None:
        """Moves the clients to the places on the roster that they name."""
        contents, seated = replies.contents, {}
        replies.contents = {}
        for index, content in contents.items():
            place = _wire.place_of(content, range(self.clients))
            if place is None or place in seated:
                self.this.dropped[self._node(index)] = (
                    "named no place on the roster"
                    if place is None
                    else f"named place {place} on the roster, as another node has done"
                )
                continue
            seated[place] = self.places[index]
            replies.contents[place] = content
        for index, error in replies.errors.items():
            self.this.dropped[self._node(index)] = error
        replies.errors = {}
        self.places = seated

    def run(self, timeout: float | None) -> Message:
        """All messages of the mean. Returns the reply that the strategy sees."""
        this, server, roster = self.this, self.server, self.grid._roster is not None
        if server.poll():
            raise UndertoneError("the server has frames before any client has spoken")
        if not roster:
            for index in set(range(self.clients)).difference(self.places):
                server.gone(index)
        due, step = {index: b"" for index in self.places}, 0
        while not server.done:
            if not due:
                raise UndertoneError("no client is due a message, and the mean is not complete")
            name = _NAMES[step] if step <= TRAINS else "unmask"
            if roster and step == TRAINS + 1:
                name = "signatures"
            limit = timeout
            if step != TRAINS:
                limit = min(timeout or self.grid._setup_timeout, self.grid._setup_timeout)
            messages = {
                index: self._message(index, bundle, step, -1 if roster else index)
                for index, bundle in due.items()
            }
            replies, exchange = _wire.ask(
                self.grid._grid, messages, name, limit, self.grid._poll
            )
            this.exchanges.append(exchange)
            if step == 0 and not replies.contents:
                reasons = "; ".join(sorted(set(replies.errors.values()))[:3])
                raise RefusedError(f"no client takes part: {reasons}")
            silent = set(due)
            if step == 0 and roster:
                self._seat(replies)
                silent = set(range(self.clients))
            for index, content in replies.contents.items():
                try:
                    self._take(index, content)
                except ValueError as error:
                    replies.errors[index] = str(error)
                    continue
                silent.discard(index)
            for index, reason in replies.errors.items():
                _log.log(WARNING, "node %d drops out (%s): %s", self._node(index), name, reason)
                this.dropped[self._node(index)] = reason
            if step <= TRAINS:
                silent |= self._left_out(silent)
            for index in sorted(silent):
                server.gone(index)
            due = self._due(silent)
            step += 1
        return self._reply()

    def _left_out(self, silent: set[int]) -> set[int]:
        """The clients that cannot contribute without those that are `silent`."""
        least = self.grid._rules["groups"]
        if least is None:
            return set()
        left_out: set[int] = set()
        for group in map(set, _engine.groups(self.clients, least)):
            if group & silent:
                left_out |= group - silent
        for index in left_out & self.places.keys():
            self.this.dropped.setdefault(
                self._node(index), "another client of its group dropped out"
            )
        return left_out

    def _take(self, index: int, content: RecordDict) -> None:
        """Hands the server the frames of a reply. They are from this client and for the server."""
        frames, gone = unpack(_wire.carried(content))
        if gone or any(to != SERVER for to, _ in frames):
            raise ValueError("its reply has frames that are not for the server")
        for _, frame in frames:
            self.server.push(index, frame)

    def _due(self, silent: set[int]) -> dict[int, bytes]:
        """The bundles that are due, by client."""
        due: dict[int, list[bytes]] = {}
        while frames := self.server.poll():
            for to, frame in frames:
                if to not in silent and to in self.places:
                    due.setdefault(to, []).append(pack([(SERVER, frame)]))
        return {index: b"".join(parts) for index, parts in due.items()}

    def _reply(self) -> Message:
        """The reply that the strategy sees."""
        result = self.server.result()
        if result is None:
            raise UndertoneError("the mean ended without a result")
        this, values = self.this, result.values
        this.contributors = [self._node(index) for index in result.contributors]
        this.suspects = [self._node(index) for index in result.suspects if index in self.places]
        for index in self.places:
            if index not in result.contributors:
                this.dropped.setdefault(self._node(index), "dropped out")
        this.weight, arrays, at = result.weight, {}, 0
        for name, like in self.like.items():
            size = int(np.prod(self.shapes[name], dtype=np.int64))
            part = values[at : at + size].reshape(self.shapes[name])
            kind = np.dtype(like.dtype)
            arrays[name] = Array(np.asarray(np.rint(part) if kind.kind in "iu" else part, kind))
            at += size
        this.metrics = dict(zip(self.grid._metrics, values[at:].tolist(), strict=True))
        if CLIPPED in this.metrics:
            this.metrics[CLIPPED] /= min(1.0, self.grid._clip)
        weight = int(this.weight) if this.weight.is_integer() else this.weight
        content = RecordDict(
            {
                self.record: ArrayRecord(arrays),
                "metrics": MetricRecord({**this.metrics, self.grid._weighted_by: weight}),
            }
        )
        _log.log(
            INFO,
            "secure mean of %d clients in %.2f s, %d dropped out",
            len(this.contributors), this.seconds, len(this.dropped),
        )
        return Message(content, reply_to=self.asked[0])
