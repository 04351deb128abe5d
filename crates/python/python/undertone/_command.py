"""The command line in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from . import _engine
from ._engine import UndertoneError
from ._party import Path


def run(*arguments: str) -> str:
    """Runs ``undertone ARGUMENTS`` and returns what it prints.

    Raises :class:`UndertoneError` with the command's message when it fails.
    """
    command = [sys.executable, "-m", "undertone", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = done.stderr.strip() or f"undertone {arguments[0]}: exit code {done.returncode}"
        raise UndertoneError(message.removeprefix("undertone: "))
    return done.stdout


@dataclass(frozen=True)
class Experiment:
    """What label propagation finds of hidden labels. Accuracies are fractions of hidden rows."""

    accuracy: float
    """The mean accuracy over all runs, all clients together."""
    accuracy_sd: float
    """Its standard deviation."""
    alone: float
    """The mean accuracy of each client on its own rows and labels."""
    alone_sd: float
    """Its standard deviation."""
    runs: int
    """The number of runs."""
    report: dict[str, Any]
    """The command's whole report, with costs."""

    def __str__(self) -> str:
        def percent(mean: float, sd: float) -> str:
            return f"{100 * mean:.2f} ± {100 * sd:.2f}"

        return (
            f"together {percent(self.accuracy, self.accuracy_sd)}, "
            f"each client alone {percent(self.alone, self.alone_sd)} "
            f"(% of hidden rows, {self.runs} runs)"
        )


def experiment(
    file: Path,
    *,
    clients: int = 5,
    labelled: float = 0.1,
    runs: int = 10,
    seed: int = 0,
    backend: str = _engine.BACKEND,
    options: list[str] | None = None,
) -> Experiment:
    """Deals a labelled file to clients, hides most labels, and finds them again.

    ``file`` (.npz or CSV) has a label in every row. ``labelled`` is the fraction of rows that keep
    theirs. This is ``undertone label FILE``, in a process of its own; ``options`` are further
    options of it.
    """
    arguments = ["label", str(file), "--json", "--clients", str(clients)]
    arguments += ["--labelled", str(labelled), "--runs", str(runs), "--seed", str(seed)]
    report = json.loads(run(*arguments, "--backend", backend, *(options or [])))
    return Experiment(
        report["accuracy_mean"] / 100,
        report["accuracy_sd"] / 100,
        report["local_accuracy_mean"] / 100,
        report["local_accuracy_sd"] / 100,
        report["runs"],
        report,
    )
