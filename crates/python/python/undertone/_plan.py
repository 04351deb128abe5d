"""What a run will cost, before anybody runs it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._command import run
from ._job import Job


@dataclass(frozen=True)
class PlanCosts:
    """What a party needs for a whole job."""

    bytes_sent: int
    """Bytes of the frames that it sends."""
    bytes_received: int
    """Bytes of the frames that it receives."""
    memory: int | None
    """Bytes of memory, within a factor of two; None where nothing is known."""
    seconds: float | None
    """Time that it computes; None where nothing was measured."""


@dataclass(frozen=True)
class PlanWay:
    """One way to run a job."""

    name: str
    """The backend, or what the job is."""
    client: PlanCosts
    """The client that sends, receives or computes the most."""
    server: PlanCosts
    rounds: int
    """Rounds of all sessions together."""
    rounds_are_exact: bool
    """Whether a run has exactly these rounds."""
    bytes_are_bounds: bool
    """Whether bytes are the most that a run can take."""
    bytes_are_expected: bool
    """Whether bytes are those that are expected, because clients are drawn for each round."""
    cells_are_even: bool
    """Whether all cells are taken to have the same number of rows. If bytes are none of these
    three, they are exact."""
    server_learns: str | None
    """What the server alone learns of distances."""
    withstands_collusion: bool | None
    """Whether distances are all that a server and clients together learn about codes."""
    warning: str | None
    """What a server and a client together could do with these sizes."""
    over: dict[str, float]
    """Seconds over each link, as it was given."""


@dataclass(frozen=True)
class Plan:
    """What a job will cost."""

    application: str
    what: str
    """The job and its sizes, for people."""
    ways: list[PlanWay]
    take: str | None
    """The way that takes the least time over the first link, or else the least computing."""


def plan(
    job: Job,
    *,
    clients: int,
    rows: int | None = None,
    labelled: float | None = None,
    features: int | None = None,
    classes: int | None = None,
    values: int | None = None,
    backends: Iterable[str] = (),
    links: Iterable[str] = (),
    signed: bool = False,
    times: bool = True,
    calibrate: bool = False,
) -> Plan:
    """Estimates what a job will cost, as ``undertone plan`` does.

    ``rows`` are those of all clients together, of which ``labelled`` (0.1) have a label;
    ``features`` and ``classes`` are for label propagation, ``features`` of a client for
    ``FedGraphJob``, ``values`` of a client for ``SumJob``. ``signed`` says whether every client
    has a key in the roster. ``links`` are rates and delays of a client's link, such as
    ``"100Mbit/s,40ms"``.

    With ``times`` this machine is measured, which takes some seconds the first time, and again
    with ``calibrate``. Raises :class:`UndertoneError` if something is missing or wrong.
    """
    options: list[str] = ["--json", "--clients", str(clients)]
    for name, value in [
        ("rows", rows),
        ("labelled", labelled),
        ("features", features),
        ("classes", classes),
        ("values", values),
    ]:
        if value is not None:
            options += [f"--{name}", str(value)]
    names = list(backends)
    if names:
        options += ["--backends", ",".join(names)]
    links = list(links)
    for link in links:
        options += ["--link", link]
    options += ["--signed"] * signed + ["--no-times"] * (not times)
    options += ["--calibrate"] * calibrate
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.toml"
        file.write_text(job.file, encoding="utf-8")
        found = json.loads(run("plan", str(file), *options))
    return Plan(
        application=found["application"],
        what=found["what"],
        ways=[_way(way, links) for way in found["ways"]],
        take=found["take"],
    )


def _way(way: dict[str, Any], links: list[str]) -> PlanWay:
    own = {key: way[key] for key in way if key not in {"client", "server", "over"}}
    return PlanWay(
        client=PlanCosts(**way["client"]),
        server=PlanCosts(**way["server"]),
        over={link: one["seconds"] for link, one in zip(links, way["over"], strict=True)},
        **own,
    )
