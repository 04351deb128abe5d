"""Clients and servers on a network: gRPC over TLS."""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._costs import Cost, of_phases
from ._jobs import LabelTerms, SumTerms
from ._label import Labels
from ._party import Path
from ._record import Record, given
from ._table import as_labels, columns_of, stated


@dataclass(frozen=True)
class Joined:
    """What a job gave and cost a client."""

    labels: Labels | None
    """With label propagation: the labels of this client's rows."""
    mean: dict[str, NDArray[Any]] | None
    """With sums: the last mean."""
    sessions: int
    """The number of sessions that the client began."""
    returned: int
    """How often it returned after it lost its connection."""
    seconds: float
    """Time of the last session."""
    costs: list[Cost]
    """What the client spent, phase by phase."""


class JobOver(BaseException):
    """Raised in the functions of :func:`join_sum` where they are, when the job has ended without
    them: the server has dropped this client or is lost, or has ended the job.

    Clean up in ``finally``. ``except Exception`` does not catch it. What :func:`join_sum` raises
    says why the job ended.
    """

    def __init__(self, why: str = "the job ended while this function was at work") -> None:
        super().__init__(why)


def _interrupt(thread: int, is_over: bool) -> None:
    """Raises :class:`JobOver` in a thread at its next step, or takes that back."""
    error = ctypes.py_object(JobOver) if is_over else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


def _link(
    server: str,
    keys: Path,
    server_name: str | None,
    retry: float,
    patience: float,
    record: Record | str | None,
    records: Path | None,
    accept_volatile: bool,
) -> dict[str, Any]:
    is_named = record is None or isinstance(record, str)
    return {
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


def join(
    server: str,
    keys: Path = ".",
    *,
    features: NDArray[Any],
    labels: NDArray[Any],
    codes: bool = False,
    bits: int | None = None,
    classes: int | Sequence[str] | None = None,
    terms: LabelTerms | None = None,
    noise: tuple[float, bytes] | None = None,
    server_name: str | None = None,
    retry: float = 60.0,
    patience: float = 900.0,
    record: Record | str | None = None,
    records: Path | None = None,
    accept_volatile: bool = False,
    progress: Callable[[str], object] | None = None,
) -> Joined:
    """Takes part in a job of label propagation, as ``undertone join`` does.

    ``server`` is ``HOST:PORT``. The folder ``keys`` has ca.pem, roster.toml and client.key, as
    ``undertone keys`` makes them. ``features`` and ``labels`` are this client's, as for
    :func:`undertone.label`; they stay here. The server gets a digest of the names of a DataFrame's
    columns. It refuses a client whose columns are not those of most others. With ``codes=True``
    codes of ``bits`` bits are given in place of features (default: eight for each byte).
    ``classes`` is the number of classes or their names (default: what the job states, or the labels
    that occur). ``terms`` are what this client agrees to (default: ``LabelTerms()``). ``noise`` is
    as for :class:`LabelClient`, and needs ``classes``.

    ``record`` is the :class:`Record` of this client's data, or its name (default: the client's name
    on its roster). ``records`` is the folder of records, and ``accept_volatile`` takes a risk, as
    for :class:`Record`; if ``keys`` has a folder ``records``, it is the default after
    ``UNDERTONE_RECORDS``.

    Returns when the job ends. ``progress`` is called with the name of each phase, on the thread
    that called. An exception in it, or Ctrl-C, ends the client's part in the job. ``patience`` is
    the longest time in seconds without progress; in a phase with a longer deadline the client waits
    as long as the server does.

    Raises :class:`RefusedError` when client or server declines, when there is no record, and when
    the record does not allow an answer; its text is for the owner, the others read less. Raises
    :class:`AbortedError` when the job
    fails, :class:`UndertoneError` when the server cannot be reached.
    """
    rows = _arrays.rows(features, codes=codes)
    if codes and bits is None and rows.ndim == 2:
        bits = 8 * rows.shape[1]
    link = _link(
        server, keys, server_name, retry, patience, record, records, accept_volatile
    )
    found, (sessions, returned, seconds, costs) = _engine.join_label(
        link,
        (terms or LabelTerms())._rules(),
        rows,
        as_labels(labels),
        columns_of(features),
        None if bits is None else _checks.whole("bits", bits),
        stated(classes),
        _checks.noise(noise),
        progress,
    )
    return Joined(Labels(*found), None, sessions, returned, seconds, of_phases(costs))


def _contribution(given: Any) -> tuple[dict[str, NDArray[Any]], float]:
    """What the function of a client returned, as the engine takes it."""
    try:
        arrays, weight = given
    except (TypeError, ValueError):
        arrays, weight = None, None
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"contribute returned {type(given).__name__}; a dict of arrays by name and their "
            "weight are needed"
        )
    found = {
        _checks.text("the name of an array", name): _arrays.summands(array, f"array {name!r}")
        for name, array in arrays.items()
    }
    return found, _checks.real("weight", weight)


def join_sum(
    server: str,
    keys: Path = ".",
    *,
    contribute: Callable[
        [int, int, dict[str, NDArray[Any]] | None], tuple[dict[str, NDArray[Any]], float]
    ],
    mean: Callable[[int, dict[str, NDArray[Any]], float, list[int]], object] | None = None,
    terms: SumTerms | None = None,
    server_name: str | None = None,
    retry: float = 60.0,
    patience: float = 900.0,
    record: Record | str | None = None,
    records: Path | None = None,
    accept_volatile: bool = False,
    progress: Callable[[str], object] | None = None,
) -> Joined:
    """Takes part in a job of rounds of sums or weighted means, as ``undertone join`` does.

    In each round ``contribute(round, attempt, last_mean)`` returns this client's arrays by name,
    float16 to float64, and their weight. It may take long: a model is trained here. If ``attempt``
    is above 1, an earlier upload of this round was lost, and it must return other values: the same
    values in two sums could be told from their difference. ``mean(round, arrays, weight,
    contributors)`` receives each mean.

    Both run on the thread that called. If either raises, this client leaves the job:
    :class:`AbortedError` has the exception as its cause, and the others do not learn it. Ctrl-C and
    ``SystemExit`` leave as they are. If the job ends while a function is at work,
    :class:`JobOver` is raised in it, at its next step in Python.

    ``terms`` are what this client agrees to (default: ``SumTerms()``). Of a job of several rounds
    it asks for fixed groups of clients that contribute whole or not at all. Without groups
    (``allow_free_sampling``) its weight, and all that hardly changes from round to round, follow
    from the means of many rounds.

    The other arguments and the exceptions are those of :func:`join`.
    """
    link = _link(
        server, keys, server_name, retry, patience, record, records, accept_volatile
    )
    last, (sessions, returned, seconds, costs) = _engine.join_sum(
        link,
        (terms or SumTerms())._rules(),
        lambda *asked: _contribution(contribute(*asked)),
        mean,
        progress,
    )
    return Joined(None, last, sessions, returned, seconds, of_phases(costs))


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
