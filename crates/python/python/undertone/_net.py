"""Clients and servers on a network: gRPC over TLS."""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Generic

from . import _checks, _engine
from ._client import Client, R_co
from ._costs import Cost, of_phases
from ._party import Path
from ._record import Record, given


@dataclass(frozen=True)
class Joined(Generic[R_co]):
    """What a job gave and cost a client."""

    result: R_co
    """What the client has at the end, as of :meth:`Session.result` in the last session."""
    sessions: int
    """The number of sessions that the client began."""
    returned: int
    """How often it returned after it lost its connection."""
    seconds: float
    """Time of the last session."""
    costs: list[Cost]
    """What the client spent, phase by phase."""


class JobOver(BaseException):
    """Raised where they are in the functions and objects of a client that :func:`join` takes to a
    job, when the job has ended without them: the server has dropped this client or is lost, or has
    ended the job.

    Clean up in ``finally``. ``except Exception`` does not catch it. What :func:`join` raises says
    why the job ended.
    """

    def __init__(self, why: str = "the job ended while this function was at work") -> None:
        super().__init__(why)


def _interrupt(thread: int, is_over: bool) -> None:
    """Raises :class:`JobOver` in a thread at its next step, or takes that back."""
    error = ctypes.py_object(JobOver) if is_over else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


def join(
    server: str,
    client: Client[R_co],
    keys: Path = ".",
    *,
    server_name: str | None = None,
    retry: float = 60.0,
    patience: float = 900.0,
    record: Record | str | None = None,
    records: Path | None = None,
    accept_volatile: bool = False,
    progress: Callable[[str], object] | None = None,
) -> Joined[R_co]:
    """Takes part in a job on a network, as ``undertone join`` does.

    ``server`` is ``HOST:PORT``. ``client`` brings data and terms: a :class:`LabelClient`, a
    :class:`RoundsClient`, a :class:`TrainClient`, a :class:`CotrainClient`, a :class:`PsslClient`
    or a :class:`FedGraphClient`. It is used up. The folder ``keys`` has ca.pem, roster.toml and
    client.key, as ``undertone keys`` makes them. The server gets a digest of the names of a
    DataFrame's columns, and refuses a client whose columns are not those of most others.

    If the client has no record, ``record`` is one, or its name (default: the client's name on its
    roster). ``records`` is the folder of records, and ``accept_volatile`` takes a risk, as for
    :class:`Record`; if ``keys`` has a folder ``records``, it is the default after
    ``UNDERTONE_RECORDS``.

    Returns when the job ends. The functions and objects of the client run on the thread that
    called. If one raises, this client leaves the job: :class:`AbortedError` has the exception as
    its cause, and the others do not learn it. Ctrl-C and ``SystemExit`` leave as they are. If the
    job ends while a function is at work, :class:`JobOver` is raised in it, at its next step in
    Python. ``progress`` is called with the name of each phase; an exception in it ends the client's
    part in the job. ``patience`` is the longest time in seconds without progress; in a phase with a
    longer deadline the client waits as long as the server does.

    Raises :class:`RefusedError` when client or server declines, when there is no record, and when
    the record does not allow an answer; its text is for the owner, the others read less. Raises
    :class:`AbortedError` when the job fails, :class:`UndertoneError` when the server cannot be
    reached.
    """
    is_named = record is None or isinstance(record, str)
    link = {
        "record": None if is_named else given(record),
        "record_name": record if is_named else None,
        "records": None if records is None else FilePath(records).expanduser(),
        "accept_volatile": _checks.flag("accept_volatile", accept_volatile),
        "server": _checks.text("server", server),
        "keys": keys,
        "server_name": server_name,
        "retry": _checks.seconds("retry", retry),
        "patience": _checks.seconds("patience", patience),
        "interrupt": functools.partial(_interrupt, threading.get_ident()),
    }
    if not isinstance(client, Client):
        raise TypeError(
            f"client is {type(client).__name__}; a client such as LabelClient(features, labels) is "
            "needed"
        )
    found, (sessions, returned, seconds, costs) = _engine.join(link, client._client, progress)
    return Joined(client._gave(found), sessions, returned, seconds, of_phases(costs))


def serve(
    roster: Path,
    *,
    job: Path | None = None,
    listen: str = "127.0.0.1:7431",
    jobs: int | None = 1,
    status: str | None = None,
    wait: float | None = None,
    quiet: bool = True,
    options: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Runs a server for the clients of a roster, as ``undertone serve`` does.

    server.pem, server.key and job.toml are read from the roster's folder. ``jobs`` is the number of
    jobs to run, ``status`` the address of a status page, ``wait`` seconds after which a job starts
    with the clients that are there. ``options`` are further options of the command.

    The server runs in a process of its own, and Ctrl-C ends it. Its log goes to standard error.
    Returns the report of each job. Raises :class:`UndertoneError` when the command fails.
    """
    with tempfile.TemporaryDirectory() as reports:
        command = [sys.executable, "-m", "undertone", "serve", "--roster", str(roster)]
        command += ["--listen", listen, "--reports", reports]
        if job is not None:
            command += ["--job", str(job)]
        if jobs is not None:
            command += ["--jobs", str(jobs)]
        if status is not None:
            command += ["--status", status]
        if wait is not None:
            command += ["--wait", str(wait)]
        if quiet:
            command += ["--quiet"]
        command += options or []
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise _engine.UndertoneError(f"undertone serve ended with code {done.returncode}")
        files = sorted(FilePath(reports).glob("job-*.json"))
        return [json.loads(file.read_text()) for file in files]
