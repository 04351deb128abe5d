"""Compares secure means with Flower's SecAgg+, on the same arrays.

    python crates/python/benches/secagg.py [--clients 5] [--values 1000000] [--rounds 4]
    python crates/python/benches/secagg.py --deploy [--rounds 2] [--poll 0.25]

Without `--deploy` it runs simulations with Ray. With `--deploy` it starts one SuperLink and one
SuperNode for each client, as processes on loopback, and runs one app after the other on them.

The time is the median of the rounds after the first, which starts the workers. With `--rounds 1` it
is the time of that round. Bytes are those of the records of all messages, per round, the model
included. SecAgg+ uploads 8 bytes for each value. Its mean is float64, so from the second round on
it sends the model with 8 bytes for each value, too. Messages are those that one client receives in
a round.

The ServerApp asks the SuperLink for replies every `--poll` seconds, the same for all ways. Flower's
own `send_and_receive` asks every 3 seconds in a deployment and every 0.1 seconds in a simulation.
`SecureGrid` asks every 0.25 seconds by default. `--poll 0` keeps these intervals.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.simulation import run_simulation

BENCHES = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCHES.parents[2] / "examples/flower"))

from means import NAMES, Measured, Task, build
from run import run, superlink

PROJECT = """
[project]
name = "way-{number}"
version = "1.0.0"
description = "One way to compute a mean"
license = "MIT OR Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "undertone"
fab-include = ["*.py"]

[tool.flwr.app.components]
serverapp = "way:server"
clientapp = "way:client"

[tool.flwr.app.config]
"""

APP = """
import means

_way = means.build({name!r}, means.{task!r}, means.saved({report!r}))
server = _way.server
client = _way.client
"""


def simulate(task: Task, folder: Path) -> list[Measured]:
    """Runs all ways in simulations."""
    measured: list[Measured] = []
    task = replace(task, journal=str(folder))
    for name in NAMES:
        way = build(name, task, measured.append)
        run_simulation(way.server, way.client, task.clients)
    return measured


def deploy(task: Task, folder: Path, timeout: float) -> list[Measured]:
    """Runs all ways on one SuperLink and its SuperNodes."""
    measured: list[Measured] = []
    with superlink(folder, task.clients) as env:
        for number, name in enumerate(NAMES):
            app, report = folder / f"app-{number}", folder / f"report-{number}.npz"
            app.mkdir()
            (app / "pyproject.toml").write_text(PROJECT.format(number=number))
            (app / "means.py").write_text((BENCHES / "means.py").read_text())
            text = APP.format(name=name, task=task, report=str(report))
            (app / "way.py").write_text(text)
            run(["flwr", "run", str(app)], env, report, timeout)
            measured.append(Measured.load(report))
            print(line(name, task, measured[-1]), file=sys.stderr, flush=True)
    return measured


def line(name: str, task: Task, measured: Measured) -> str:
    """A line of the table."""
    times = measured.times[1:] or measured.times
    error = np.abs(measured.mean - task.exact()).max()
    return (
        f"{name:20} {statistics.median(times):8.2f} "
        f"{measured.moved / task.rounds / 1e6:8.1f} {error:9.1e} "
        f"{measured.messages / task.rounds / task.clients:9.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, help="default: 4, and 2 with --deploy")
    parser.add_argument("--deploy", action="store_true", help="SuperLink and SuperNodes")
    parser.add_argument("--poll", type=float, help="default: 0.1, and 0.25 with --deploy")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each way")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rounds, poll = (2, 0.25) if options.deploy else (4, 0.1)
    rounds = rounds if options.rounds is None else options.rounds
    poll = poll if options.poll is None else options.poll
    task = Task(options.clients, options.values, rounds, poll)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if options.deploy:
            measured = deploy(task, Path(folder), options.timeout)
        else:
            measured = simulate(task, Path(folder))
    where = "deployment" if options.deploy else "simulation"
    print(f"{where}, {task.clients} clients, {task.values} float32, {task.rounds} rounds, ", end="")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[1]:.1f}")
    print(f"{'':20} {'s/round':>8} {'MB/round':>8} {'error':>9} {'messages':>9}")
    for name, one in zip(NAMES, measured, strict=True):
        print(line(name, task, one))


if __name__ == "__main__":
    main()
