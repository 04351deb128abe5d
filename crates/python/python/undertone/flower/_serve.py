"""Jobs of any application on a connection of their own, within one message of Flower."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from .._engine import UndertoneError
from .._job import Job
from .._party import Path
from . import _wire
from ._wire import ACTION, Exchange

if TYPE_CHECKING:
    from flwr.app import ConfigRecordValues as Value


@dataclass
class Served:
    """What the ServerApp has learned, and what it cost."""

    job: dict[str, Any] | None
    """The report of ``undertone serve``."""
    nodes: list[int]
    """The nodes that have their result."""
    dropped: dict[int, str]
    """Why the other nodes dropped out, by node id."""
    exchange: Exchange
    """Seconds of the whole run. Frames do not travel in Flower's message."""
    params: NDArray[np.float32] | None = None
    """With ``params``: the parameters after the last round."""


def serve(
    grid: Grid,
    job: Job,
    *,
    roster: Path,
    params: ArrayLike | None = None,
    nodes: Iterable[int] | None = None,
    listen: str = "127.0.0.1:7431",
    address: str | None = None,
    options: Sequence[str] = (),
    action: str = ACTION,
    timeout: float = 600.0,
    poll: float = 0.25,
) -> Served:
    """Runs a job of any application, from the ServerApp, on Undertone's own connection, within one
    message of Flower. The clients need :func:`client`.

    This host runs ``undertone serve`` with ``roster``, whose folder has server.pem and server.key,
    at ``listen``. Clients connect to ``address`` (default: ``listen``). They check its certificate
    against their ca.pem. ``params`` are those of the first model of a training job; without them
    the job names a model of the command. ``options`` are further options of the command, such as
    ``["--checkpoint", "job.state"]``. ``nodes`` are the node ids of the clients; all by default.
    ``action`` is the one under which the ClientApp has them.
    ``timeout`` is in seconds, for the whole job. ``poll`` is the number of seconds between
    questions to the SuperLink.

    Raises :class:`undertone.UndertoneError` when no client has a result.
    """
    ids = sorted(grid.get_node_ids() if nodes is None else nodes)
    entries: dict[str, Value] = {
        "kind": "grpc",
        "application": job._application,
        "server": address or listen,
        "patience": float(timeout),
    }
    with tempfile.TemporaryDirectory() as folder:
        file, log = FilePath(folder) / "job.toml", FilePath(folder) / "log"
        file.write_text(job.file, encoding="utf-8")
        model = FilePath(folder) / "model.npz"
        if params is not None:
            first = FilePath(folder) / "first.npz"
            np.savez(first, params=np.asarray(params, np.float32))
            options = [*options, "--first", str(first), "--model", str(model)]
        command = [
            sys.executable, "-m", "undertone", "serve", "--roster", str(roster), "--job", str(file),
            "--listen", listen, "--jobs", "1", "--reports", folder,
            "--wait", str(max(1, int(timeout / 2))), *options,
        ]  # fmt: skip
        with open(log, "wb") as errors:
            serving = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                time.sleep(0.3)
                messages = {
                    index: Message(
                        RecordDict({_wire.TERMS: _wire.terms(entries, 0, -1)}),
                        node,
                        f"query.{action}",
                    )
                    for index, node in enumerate(ids)
                    if serving.poll() is None
                }
                replies, exchange = _wire.ask(grid, messages, "job", timeout, poll)
                code = serving.wait(timeout=5.0) if replies.contents else serving.poll()
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if serving.poll() is None:
                    serving.terminate()
                    serving.wait()
        reports = sorted(FilePath(folder).glob("job-*.json"))
        dropped = {ids[index]: error for index, error in replies.errors.items()}
        if not replies.contents:
            reasons = "; ".join(sorted(set(dropped.values()))[:3])
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise UndertoneError(
                f"no client has a result ({reasons or 'none was asked'}); undertone serve ended "
                f"with {code}: {' '.join(last)}"
            )
        report = json.loads(reports[-1].read_text(encoding="utf-8")) if reports else None
        learned = None
        if model.exists():
            with np.load(model) as arrays:
                learned = arrays["params"]
    took_part = [ids[index] for index in sorted(replies.contents)]
    return Served(report, took_part, dropped, exchange, learned)
