"""Runs the app on this machine, in a simulation or with one SuperLink and five SuperNodes.

    python run.py                      # simulation
    python run.py --deploy             # six processes on loopback
    python run.py --deploy --mode label --backend psm

It leaves ~/.flwr alone: Flower's files go to a temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

APP = Path(__file__).resolve().parent
CLIENTS = 5
TRAINS = 3  # clients train in the third message of a round


def free_port() -> int:
    """A free port below those that systems give to whoever asks for any port."""
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)):
                return port


@contextlib.contextmanager
def running(command: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    """A process that ends with the block. It has its own session, to end its children too.

    Its id is in a file beside the log.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=env, stdout=file, stderr=file, start_new_session=True
        )
        log.with_suffix(".pid").write_text(str(process.pid))
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def connect(port: int, seconds: float = 60.0) -> None:
    """Waits until something listens on a port."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        if time.monotonic() > end:
            raise SystemExit(f"nothing listens on port {port}")
        time.sleep(0.2)


def record(folder: Path, index: int) -> str:
    """Makes the record of answers of a client. Returns the entries of its node config."""
    name, records = f"owner-{index}", folder / "records"
    risk = ["--accept", "volatile-record"]  # the folder is temporary, and goes with the run
    make = [sys.executable, "-m", "undertone", "record", "new", name, "--records", str(records)]
    subprocess.run([*make, *risk, "--quiet"], check=True)
    entries = {"undertone-record": name, "undertone-records": str(records)}
    entries |= {"undertone-accept": "volatile-record"}
    return " ".join(f"{key}={json.dumps(value)}" for key, value in entries.items())


@contextlib.contextmanager
def superlink(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """A SuperLink and SuperNodes as processes; without SuperNodes, a SuperLink for simulations.

    Yields the environment for `flwr run`. Logs and Flower's files go to the folder.
    """
    port, home = free_port(), folder / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
        f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    env = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "XDG_STATE_HOME": str(folder / "state"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    link = ["flower-superlink", "--insecure", "--port", str(port)]
    link += ["--disable-runtime-dependency-installation"]
    link += [] if nodes else ["--simulation"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(link, env, folder / "superlink.log"))
        connect(port)
        for index in range(nodes):
            node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}"]
            node += ["--port", str(free_port()), "--node-config"]
            node += [f"partition-id={index} num-partitions={nodes} {record(folder, index)}"]
            log = folder / f"supernode-{index}.log"
            stack.enter_context(running(node, {**env, "FLWR_HOME": f"{home}-{index}"}, log))
        yield env


def kill(folder: Path, index: int) -> None:
    """Kills a SuperNode and its children when it receives the message in which it trains."""
    log = folder / f"supernode-{index}.log"
    while log.read_text(errors="replace").count("Receiving: train message") < TRAINS:
        time.sleep(0.1)
    os.killpg(int(log.with_suffix(".pid").read_text()), signal.SIGKILL)
    print(f"killed SuperNode {index}", file=sys.stderr)


def run(command: list[str], env: dict[str, str], report: Path, timeout: float) -> None:
    """Runs `flwr run`, and waits until the ServerApp has written its report."""
    begun = time.monotonic()
    subprocess.run(command, env=env, check=True)
    while not report.exists():
        if time.monotonic() - begun > timeout:
            for log in sorted(report.parent.glob("*.log")):
                print(f"--- {log.name}", log.read_text(errors="replace")[-3000:], sep="\n")
            raise SystemExit(f"no result within {timeout:g} seconds")
        time.sleep(0.5)
    time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deploy", action="store_true", help="SuperLink and SuperNodes")
    modes = ["train", "label", "both", "propagate"]
    parser.add_argument("--mode", choices=modes, default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="lwe")
    parser.add_argument("--data", default="", help="path of digits.npz")
    parser.add_argument("--fails", type=int, default=-1, help="client that fails in round 2")
    parser.add_argument(
        "--kill", type=int, choices=range(CLIENTS),
        help="client whose SuperNode is killed (SIGKILL) when it trains in round 1",
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the run")
    options = parser.parse_args()
    if options.kill is not None and not options.deploy:
        parser.error("--kill needs --deploy")

    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        )
        report = folder / "report.json"
        env = stack.enter_context(superlink(folder, CLIENTS if options.deploy else 0))
        config = {"mode": options.mode, "rounds": options.rounds, "backend": options.backend}
        config |= {"data": options.data and str(Path(options.data).resolve())}
        config |= {"report": str(report), "fails": options.fails}
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        app = folder / "app"
        shutil.copytree(APP, app, ignore=shutil.ignore_patterns("__pycache__"))
        begun = time.monotonic()
        start = ["flwr", "run", str(app), "-c", pairs]
        if not options.deploy:
            start += ["--federation-config", f"num-supernodes={CLIENTS}"]
        if options.kill is not None:
            Thread(target=kill, args=(folder, options.kill), daemon=True).start()
        run(start, env, report, options.timeout)
        print(report.read_text())
        print(f"{time.monotonic() - begun:.1f} seconds", file=sys.stderr)


if __name__ == "__main__":
    main()
