"""Clients and servers on a network, and the command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertone


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "undertone", *arguments]
    return subprocess.run(run, cwd=cwd, capture_output=True, text=True, check=False)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Network:
    """A server in a process of its own, and keys for its clients."""

    def __init__(self, folder: Path, clients: int, job: str) -> None:
        made = command("keys", "--clients", str(clients), "--out", "keys", cwd=folder)
        assert made.returncode == 0, made.stderr
        self.keys = folder / "keys"
        (self.keys / "job.toml").write_text(job)
        self.server = f"localhost:{free_port()}"
        port = self.server.rpartition(":")[2]
        serve = (
            "import sys, json, undertone\n"
            "reports = undertone.serve(sys.argv[1], listen='127.0.0.1:' + sys.argv[2])\n"
            "print(json.dumps(reports))\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", serve, str(self.keys / "roster.toml"), port],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )

    def folders(self) -> list[Path]:
        return sorted(path for path in self.keys.iterdir() if path.is_dir())

    def all(self, join: Callable[[int, str, Path], Any]) -> list[Any]:
        """What each client gets, in threads of this process."""
        results: list[Any] = [None] * len(self.folders())

        def client(index: int, keys: Path) -> None:
            try:
                results[index] = join(index, self.server, keys)
            except Exception as error:  # noqa: BLE001
                results[index] = error

        threads = [
            threading.Thread(target=client, args=(index, keys))
            for index, keys in enumerate(self.folders())
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return results

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=20)

    def end(self) -> str:
        out, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return out


def test_labels_over_tls(tmp_path: Path, digits: Callable[..., Any]) -> None:
    rows, known, truth = digits(3, 0.2, 0)
    network = Network(tmp_path, 3, "bits = 1024\n")
    phases: list[str] = []

    def join(index: int, server: str, keys: Path) -> undertone.Joined:
        return undertone.join(
            server, keys, features=rows[index], labels=known[index],
            progress=phases.append if index == 0 else None,
        )

    joined = network.all(join)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    right = [one.labels.labels == y for one, y in zip(joined, truth, strict=True)]
    assert np.mean(np.concatenate(right)) > 0.9
    assert "distances" in " ".join(phases) and joined[0].costs and joined[0].sessions == 1
    assert '"result": "done"' in network.end()


def test_rounds_of_means_over_tls(tmp_path: Path) -> None:
    job = 'application = "sum"\nrounds = 3\nbound = 10.0\n'
    network = Network(tmp_path, 3, job)
    means: list[float] = []

    def join(index: int, server: str, keys: Path) -> undertone.Joined:
        def contribute(
            number: int, attempt: int, last: dict[str, Any] | None
        ) -> tuple[dict[str, Any], float]:
            base = 0.0 if last is None else float(last["w"][0, 0])
            return {"w": np.full((2, 2), base + index, np.float32)}, 1.0

        def mean(number: int, arrays: dict[str, Any], weight: float, who: list[int]) -> None:
            assert weight == 3.0 and who == [0, 1, 2]
            if index == 0:
                means.append(float(arrays["w"][0, 0]))

        return undertone.join_sum(server, keys, contribute=contribute, mean=mean)

    joined = network.all(join)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    assert np.allclose(means, [1.0, 2.0, 3.0], atol=1e-6)
    assert joined[1].mean["w"].shape == (2, 2) and joined[1].mean["w"].dtype == np.float32
    network.end()


def test_a_client_that_raises_leaves_and_a_client_that_declines_says_why(tmp_path: Path) -> None:
    network = Network(tmp_path, 3, 'application = "sum"\nrounds = 1\n')

    def join(index: int, server: str, keys: Path) -> undertone.Joined:
        def contribute(*_: object) -> tuple[dict[str, Any], float]:
            raise ValueError("no data today")

        return undertone.join_sum(server, keys, contribute=contribute, min_clients=4)

    joined = network.all(join)
    network.kill()
    assert all(isinstance(one, undertone.RefusedError) for one in joined), joined
    assert "this client asks for 4" in str(joined[0])


def test_nobody_there() -> None:
    with pytest.raises(ValueError, match="roster"):
        undertone.join(
            "localhost:1", "/nonexistent", features=np.ones((2, 2)), labels=np.array([0, 1])
        )


def test_rosters_and_keys(tmp_path: Path) -> None:
    assert command("keys", "--clients", "3", "--out", "k", cwd=tmp_path).returncode == 0
    roster = undertone.read_roster(tmp_path / "k" / "roster.toml")
    assert len(roster) == 3
    folders = sorted(path for path in (tmp_path / "k").iterdir() if path.is_dir())
    keys = [undertone.public_key((path / "client.key").read_text()) for path in folders]
    assert keys == list(roster.values())


def test_the_command(tmp_path: Path, data: Path) -> None:
    done = command("label", str(data / "wine.npz"), "--runs", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0 and '"accuracy' in done.stdout, done.stderr
    assert command("label", "missing.npz", cwd=tmp_path).returncode == 66
    assert command("--version", cwd=tmp_path).stdout.startswith("undertone ")
    assert command("nonsense", cwd=tmp_path).returncode == 2


def test_the_experiment_of_the_readme(data: Path) -> None:
    found = undertone.experiment(data / "digits.npz")
    assert str(found) == (
        "together 96.54 ± 1.06, each client alone 82.50 ± 2.50 (% of hidden rows, 10 runs)"
    )
    with pytest.raises(undertone.UndertoneError, match="missing.npz"):
        undertone.experiment("missing.npz")
