"""Training with propagated labels on Flower."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from logging import WARNING, getLogger
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from .. import _engine
from .._engine import RefusedError, UndertoneError
from .._jobs import TrainJob
from .._party import Path
from .._train import TrainServer
from . import _wire
from ._grid import read
from ._relay import Relay, roster_of
from ._wire import ACTION, Exchange, Told

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value

_log = getLogger("undertone")


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


class _Nodes:
    """The node of each client, in a file beside the state of the job."""

    def __init__(self, checkpoint: Path | None, job: TrainJob) -> None:
        self._file: _engine.Checkpoint | None = None
        self.nodes: dict[int, int] = {}
        if checkpoint is None:
            return
        path = FilePath(checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _engine.Checkpoint(path.with_name(f"{path.name}.nodes"), job.offer)
        if self._file.found is not None:
            self.nodes = {int(at): node for at, node in json.loads(self._file.found).items()}

    def save(self) -> None:
        if self._file is not None:
            self._file.save(json.dumps(self.nodes).encode())

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
    action: str = ACTION,
    attempts: int = 5,
    wait: float = 600.0,
    timeout: float = 3600.0,
    poll: float = 0.25,
) -> TrainRun:
    """Trains a model with propagated labels, from the ServerApp. The clients need :func:`client`,
    which makes an :class:`undertone.TrainClient`.

    ``params`` are those of the first model. ``nodes`` are the node ids of the clients; all by
    default. A round takes whole groups: a group that lacks a node sits out. ``on_round(round,
    params)`` is called after each round; evaluate the model there, on rows that the server has.

    ``checkpoint`` is a file in which the server keeps its state; a second one, ``.nodes``, has the
    node of each client. A ServerApp that is started again continues from them; they are removed at
    the end. ``malicious_server`` needs ``roster``. After
    ``attempts`` sessions that failed one after the other the error is raised. ``wait`` is the
    longest time in seconds for a whole group to be present, ``timeout`` that for each message: one
    of them is answered after training. ``poll`` is the number of seconds between questions to the
    SuperLink, ``action`` the one under which the ClientApp has :func:`client`.
    """
    if job.malicious_server and roster is None:
        raise ValueError("malicious_server=True needs roster, the path of roster.toml")
    entries: dict[str, Value] = {
        "application": "train",
        "job": job.offer.decode(),
        "roster": roster_of(job, roster),
    }
    kept = _Nodes(checkpoint, job)
    places = None if not job.malicious_server or roster is None else len(read(roster))
    run = TrainRun(np.asarray(params, np.float32), [], [])
    ids = sorted(grid.get_node_ids() if nodes is None else nodes)
    server = TrainServer(job, params=params, checkpoint=checkpoint)
    # Before the census anybody may still come.
    if places is not None or server.clients is None:
        kept.nodes = _hello(grid, ids, entries, action, places, timeout, poll, run)
        kept.save()
    elif not kept.nodes:
        raise UndertoneError(
            f"{checkpoint} has a job that has begun, and {checkpoint}.nodes is missing: it has the "
            "node of each client"
        )

    failed = 0
    while True:
        party = server.session(_present(grid, server, kept.nodes, wait, poll))
        members = {index: kept.nodes[index] for index in party.clients}
        relay = Relay(grid, members, entries, party, action, None, timeout, poll)
        try:
            report = relay.run("training")
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


def _hello(
    grid: Grid,
    ids: list[int],
    entries: dict[str, Value],
    action: str,
    places: int | None,
    timeout: float,
    poll: float,
    run: TrainRun,
) -> dict[int, int]:
    """Asks all nodes whether they agree to the job. Returns the node of each client."""
    messages = {}
    for index, node in enumerate(ids):
        terms = _wire.terms({"kind": "hello", **entries}, 0, -1)
        messages[index] = Message(
            RecordDict({_wire.TERMS: terms}), node, f"query.{action}"
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
