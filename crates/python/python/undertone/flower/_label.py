"""Label propagation on Flower."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp import Grid

from .._jobs import LabelJob
from .._label import LabelReport, LabelServer
from .._party import Path
from ._grid import read
from ._relay import Relay, roster_of
from ._wire import ACTION, Exchange


@dataclass
class LabelRound:
    """What the ServerApp has learned, and what it cost."""

    report: LabelReport
    """What the server has learned."""
    nodes: list[int]
    """The node id of each client, by its number in the report."""
    dropped: dict[int, str]
    """Why the other nodes dropped out, by node id."""
    exchanges: list[Exchange] = field(default_factory=list)
    """Seconds and bytes of each message."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(exchange.seconds for exchange in self.exchanges)


def label(
    grid: Grid,
    *,
    classes: int,
    nodes: Iterable[int] | None = None,
    roster: Path | None = None,
    action: str = ACTION,
    timeout: float = 600.0,
    poll: float = 0.25,
    **parameters: Any,
) -> LabelRound:
    """Labels the rows of all nodes, from the ServerApp. The clients need :func:`client`, which
    makes an :class:`undertone.LabelClient`.

    ``classes`` is their number. ``nodes`` are the node ids of the clients; all by default.
    ``action`` is the one under which the ClientApp has them.
    ``parameters`` are the others of :class:`undertone.LabelJob`; only :func:`serve` can standardise
    features. ``timeout`` is in seconds, for each message. ``poll`` is the number of seconds between
    questions to the SuperLink. ``malicious_server`` needs ``roster``, as for :class:`SecureGrid`.

    The records of the nodes allow three sessions of the same rows, all among the same clients. So
    call this once all nodes are there.

    Frames travel in Flower's messages, as many as it takes. Each client runs its party again for
    each message. Frames between clients travel through the server, sealed by the protocol.

    Raises :class:`undertone.AbortedError` when label propagation fails, and
    :class:`undertone.RefusedError` when no client takes part.
    """
    ids = sorted(grid.get_node_ids() if nodes is None else nodes)
    job = LabelJob(classes=classes, **parameters)
    if job.standardise:
        raise ValueError(
            "standardise takes a session of its own; bring features to one scale before, or use "
            "serve()"
        )
    if job.malicious_server and roster is None:
        raise ValueError("malicious_server=True needs roster, the path of roster.toml")
    places = None if not job.malicious_server or roster is None else len(read(roster))
    party = LabelServer(job).session(len(ids) if places is None else places)
    entries = {"application": "label", "job": job.offer.decode(), "roster": roster_of(job, roster)}
    relay = Relay(grid, dict(enumerate(ids)), entries, party, action, places, timeout, poll)
    report = relay.run("label propagation")
    return LabelRound(report, ids, relay.dropped, relay.exchanges)
