"""Clients and servers on a network, and the command."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frame import Frame
from numpy.typing import NDArray
from ports import free_port
from six import CLIENTS, trials
from test_train import Softmax

import undertone


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "undertone", *arguments]
    return subprocess.run(run, cwd=cwd, capture_output=True, text=True, check=False)


class Network:
    """A server in a process of its own, and keys for its clients."""

    def __init__(
        self, folder: Path, clients: int, job: str, params: NDArray[np.float32] | None = None
    ) -> None:
        made = command("keys", "--clients", str(clients), "--out", "keys", cwd=folder)
        assert made.returncode == 0, made.stderr
        self.keys = folder / "keys"
        (self.keys / "job.toml").write_text(job)
        self.server = f"localhost:{free_port()}"
        port = self.server.rpartition(":")[2]
        options = []
        if params is not None:
            np.savez(folder / "first.npz", params=params)
            options = ["--first", str(folder / "first.npz")]
        serve = (
            "import sys, json, undertone\n"
            "roster, port, *options = sys.argv[1:]\n"
            "listen = '127.0.0.1:' + port\n"
            "reports = undertone.serve(roster, listen=listen, options=options)\n"
            "print(json.dumps(reports))\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", serve, str(self.keys / "roster.toml"), port, *options],
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

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        client = undertone.LabelClient(rows[index], known[index])
        return undertone.join(
            server, client, keys, progress=phases.append if index == 0 else None
        )

    joined = network.all(join)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    right = [one.result.labels == y for one, y in zip(joined, truth, strict=True)]
    assert np.mean(np.concatenate(right)) > 0.9
    assert "distances" in " ".join(phases) and joined[0].costs and joined[0].sessions == 1
    assert '"result": "done"' in network.end()


@pytest.mark.parametrize("application", list(trials()))
def test_every_application_over_tls(application: str, tmp_path: Path) -> None:
    trial = trials()[application]
    network = Network(tmp_path, CLIENTS, trial.job.file, trial.params)

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        return undertone.join(server, trial.make(index), keys)

    joined = network.all(join)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    assert all(trial.is_right(index, one.result) for index, one in enumerate(joined)), joined
    assert '"result": "done"' in network.end()


def test_an_exception_of_a_model_is_the_cause(tmp_path: Path) -> None:
    trial = trials()["train"]
    network = Network(tmp_path, CLIENTS, trial.job.file, trial.params)

    class Failing(Softmax):
        def update(self, examples: Any, schedule: Any) -> None:
            raise OSError("patient 4711 has no age")

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        client = trial.make(index)
        if index == 2:
            rng = np.random.default_rng(0)
            client = undertone.TrainClient(
                Failing(6, 3), rng.normal(size=(30, 6)), np.arange(30) % 3
            )
        return undertone.join(server, client, keys)

    joined = network.all(join)
    network.kill()
    assert isinstance(joined[2], undertone.AbortedError), joined
    assert isinstance(joined[2].__cause__, OSError)
    assert all("4711" not in str(one) for one in joined), joined


def test_a_client_is_used_up(tmp_path: Path) -> None:
    trial = trials()["label"]
    network = Network(tmp_path, CLIENTS, trial.job.file)
    clients = [trial.make(index) for index in range(CLIENTS)]
    joined = network.all(lambda index, server, keys: undertone.join(server, clients[index], keys))
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    network.end()
    with pytest.raises(ValueError, match="this client is used up"):
        clients[0].session(trial.job, bytes(32), index=0)


def test_other_columns_are_refused_by_the_server(
    tmp_path: Path, digits: Callable[..., Any]
) -> None:
    rows, known, _ = digits(4, 0.2, 0)
    network = Network(tmp_path, 4, "bits = 256\n")
    names, refused = [f"pixel {at}" for at in range(64)], []

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        def once(frame: Any) -> undertone.Joined[Any]:
            return undertone.join(server, undertone.LabelClient(frame, known[index]), keys)

        if index == 1:
            with pytest.raises(undertone.RefusedError) as error:
                once(Frame(rows[1][:, ::-1], names[::-1]))
            refused.append(str(error.value))
        return once(Frame(rows[index], names))

    joined = network.all(join)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    assert "are not those of client-0, client-2, client-3;" in refused[0]
    assert '"result": "done"' in network.end()


def test_rounds_of_means_over_tls(tmp_path: Path) -> None:
    job = 'application = "sum"\nrounds = 3\nbound = 10.0\n'
    network = Network(tmp_path, 3, job)
    means: list[float] = []

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        def contribute(
            number: int, attempt: int, last: dict[str, Any] | None
        ) -> tuple[dict[str, Any], float]:
            base = 0.0 if last is None else float(last["w"][0, 0])
            return {"w": np.full((2, 2), base + index, np.float32)}, 1.0

        def mean(number: int, arrays: dict[str, Any], weight: float, who: list[int]) -> None:
            assert weight == 3.0 and who == [0, 1, 2]
            if index == 0:
                means.append(float(arrays["w"][0, 0]))

        return undertone.join(server, undertone.RoundsClient(contribute, mean), keys)

    joined = network.all(join)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    assert np.allclose(means, [1.0, 2.0, 3.0], atol=1e-6)
    assert joined[1].result.arrays["w"].shape == (2, 2)
    assert joined[1].result.arrays["w"].dtype == np.float32 and joined[1].result.round == 3
    network.end()


def test_a_client_that_raises_leaves_and_a_client_that_declines_says_why(tmp_path: Path) -> None:
    network = Network(tmp_path, 3, 'application = "sum"\nrounds = 1\n')

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        def contribute(*_: object) -> tuple[dict[str, Any], float]:
            raise ValueError("no data today")

        terms = undertone.SumTerms(min_clients=4)
        return undertone.join(server, undertone.RoundsClient(contribute, terms=terms), keys)

    joined = network.all(join)
    network.kill()
    assert all(isinstance(one, undertone.RefusedError) for one in joined), joined
    assert "this client asks for 4" in str(joined[0])


FREE = undertone.SumTerms(allow_free_sampling=True)


def raised_by(network: Network, **functions: Any) -> list[Any]:
    """What the clients of a job of sums get, if each has these functions."""

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        options = {name: function(index) for name, function in functions.items()}
        progress = options.pop("progress", None)
        return undertone.join(server, undertone.RoundsClient(**options), keys, progress=progress)

    return network.all(join)


def ones(number: int, attempt: int, _: object) -> tuple[dict[str, Any], float]:
    """Other values each time: the record refuses the same ones."""
    return {"w": np.full(3, number + attempt / 8, np.float32)}, 1.0


def test_arrays_keep_their_places_in_every_order(tmp_path: Path) -> None:
    network = Network(tmp_path, 3, 'application = "sum"\nrounds = 1\n')
    due = np.arange(12, dtype=np.float32).reshape(4, 3)
    third = np.ones((2, 3, 4)) * np.arange(3)[:, None]
    given: list[dict[str, Any]] = [
        {"w": due.T.copy().T, "v": np.asfortranarray(third), "u": np.float16(0.5)},
        {"w": due[::-1].copy()[::-1], "v": third.astype(">f8"), "u": np.array(0.5, ">f2")},
        {"w": np.repeat(due, 2, axis=1)[:, ::2], "v": third.tolist(), "u": 0.5},
    ]
    given[2]["v"] = np.array(given[2]["v"])
    given[1]["u"].flags.writeable = False
    # Half precision is widened to float32, and so is a Python number to float64: not the same.
    given[2]["u"] = np.float32(0.5)
    joined = raised_by(network, contribute=lambda index: lambda *_: (given[index], 1.0))
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    for one in joined:
        mean = one.result.arrays
        assert np.array_equal(mean["w"], due) and np.allclose(mean["v"], third)
        assert mean["u"].shape == () and mean["u"] == 0.5
    network.end()


BAD_CONTRIBUTIONS: list[tuple[Any, str]] = [
    (({"w": np.ones(3), "v": np.array([1.0, np.nan])}, 1.0), "array 'v' at [1] is NaN"),
    (({"w": np.full((2, 2), np.inf, "f")}, 1.0), "array 'w' at [0, 0] is inf; it must be from -8"),
    (({"w": np.array([[1.0, 9.0]])}, 1.0), "array 'w' at [0, 1] is 9; it must be from -8 to 8"),
    (({"w": np.ones(3, np.int64)}, 1.0), "array 'w' is of int64; float16, float32 or float64"),
    (({"w": np.ones(3, np.bool_)}, 1.0), "array 'w' is of bool; float16"),
    (({"w": np.ones(3, np.complex64)}, 1.0), "array 'w' is of complex64; real numbers"),
    (({3: np.ones(3)}, 1.0), "the name of an array is 3; a text is needed"),
    ([np.ones(3)], "contribute returned list; a dict of arrays by name and their weight"),
    (({"w": np.ones(3)}, "heavy"), "weight is 'heavy'; a number is needed"),
]


@pytest.mark.parametrize(("given", "text"), BAD_CONTRIBUTIONS, ids=lambda one: str(one)[:20])
def test_arrays_that_cannot_be_are_named(tmp_path: Path, given: Any, text: str) -> None:
    network = Network(tmp_path, 4, 'application = "sum"\nrounds = 1\nbound = 8.0\nclip = true\n'
                      if "inf" in text else 'application = "sum"\nrounds = 1\nbound = 8.0\n')
    joined = raised_by(
        network, contribute=lambda index: (lambda *_: given) if index == 1 else ones
    )
    assert isinstance(joined[1], undertone.AbortedError) and text in str(joined[1]), joined[1]
    others = [one for index, one in enumerate(joined) if index != 1]
    assert all(isinstance(one, undertone.Joined) for one in others), joined
    assert text not in network.end()


def test_another_job_gets_no_values_that_an_earlier_one_got(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    job = 'application = "sum"\nrounds = 1\n'
    network = Network(first, 3, job)
    joined = raised_by(network, contribute=lambda _: ones)
    assert all(isinstance(one, undertone.Joined) for one in joined), joined
    network.end()
    # Another server, other keys, the same data.
    folders = network.folders()
    again = Network(second, 3, job)

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        records = folders[index] / "records"
        name = folders[index].name
        record = undertone.Record(name, records, True) if index == 0 else name
        if index == 0:
            return undertone.join(server, undertone.RoundsClient(ones, record=record), keys)
        return undertone.join(
            server, undertone.RoundsClient(ones), keys, record=record, records=records,
            accept_volatile=True,
        )

    refused = again.all(join)
    again.kill()
    for one in refused:
        assert isinstance(one, undertone.RefusedError), refused
        assert "exactly these values were sent" in str(one) and "allow client-" in str(one)


def test_without_a_record_nobody_joins(tmp_path: Path) -> None:
    made = command("keys", "--clients", "3", "--out", "keys", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    keys = next(path for path in (tmp_path / "keys").iterdir() if path.is_dir())
    with pytest.raises(undertone.RefusedError, match="no record of answers at .*record new"):
        undertone.join("localhost:9", undertone.RoundsClient(ones), keys, records=tmp_path)
    with pytest.raises(undertone.RefusedError, match="no record of answers at .*nobody"):
        rows = undertone.LabelClient(np.eye(4), np.arange(4))
        undertone.join("localhost:9", rows, keys, record="nobody")


def test_an_exception_is_the_cause_with_its_traceback(tmp_path: Path) -> None:
    network = Network(tmp_path, 4, 'application = "sum"\nrounds = 2\nfree_sampling = true\n')

    def contribute(index: int) -> Callable[..., Any]:
        def deep_in_training(*_: object) -> Any:
            layers: dict[str, Any] = {}
            return layers["missing layer"]

        return deep_in_training if index == 2 else ones

    joined = raised_by(network, contribute=contribute, terms=lambda _: FREE)
    error = joined[2]
    assert isinstance(error, undertone.AbortedError), joined
    assert "the function contribute failed: KeyError: 'missing layer'" in str(error)
    assert (error.party, error.phase) == (2, "contribution")
    cause = error.__cause__
    assert isinstance(cause, KeyError)
    frames = traceback.extract_tb(cause.__traceback__)
    assert frames[-1].name == "deep_in_training"
    assert "missing layer" not in network.end()


def test_an_exception_of_mean_is_the_cause(tmp_path: Path) -> None:
    network = Network(tmp_path, 4, 'application = "sum"\nrounds = 2\nfree_sampling = true\n')

    def mean(index: int) -> Callable[..., Any]:
        def keep(*_: object) -> None:
            raise OSError("the disk is full")

        return keep if index == 0 else lambda *_: None

    joined = raised_by(
        network, contribute=lambda _: ones, mean=mean, terms=lambda _: FREE
    )
    assert isinstance(joined[0], undertone.AbortedError), joined
    assert isinstance(joined[0].__cause__, OSError)
    assert all(isinstance(one, undertone.Joined) for one in joined[1:]), joined
    assert "disk" not in network.end()


def test_an_exception_of_progress_ends_the_part_in_the_job(tmp_path: Path) -> None:
    network = Network(tmp_path, 4, 'application = "sum"\nrounds = 1\n')
    threads: list[tuple[int, int]] = []

    def progress(index: int) -> Callable[[str], None]:
        caller = threading.get_ident()

        def note(phase: str) -> None:
            threads.append((caller, threading.get_ident()))
            if index == 3:
                raise ZeroDivisionError(phase)

        return note

    joined = raised_by(network, contribute=lambda _: ones, progress=progress)
    assert isinstance(joined[3], ZeroDivisionError), joined
    assert all(isinstance(one, undertone.Joined) for one in joined[:3]), joined
    assert threads and all(caller == thread for caller, thread in threads)
    network.end()


def test_a_function_that_exits_leaves_as_it_is(tmp_path: Path) -> None:
    network = Network(tmp_path, 4, 'application = "sum"\nrounds = 1\n')
    seen: list[BaseException] = []

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any] | None:
        def leave(*_: object) -> Any:
            raise SystemExit(7)

        try:
            client = undertone.RoundsClient(leave if index == 0 else ones)
            return undertone.join(server, client, keys)
        except SystemExit as error:
            seen.append(error)
            return None

    joined = network.all(join)
    assert [error.code for error in seen if isinstance(error, SystemExit)] == [7]
    assert all(isinstance(one, undertone.Joined) for one in joined[1:]), joined
    network.end()


def test_a_function_that_is_too_slow_is_ended(tmp_path: Path) -> None:
    job = 'application = "sum"\nrounds = 1\n[deadlines]\ncontribution = 1\n'
    network = Network(tmp_path, 4, job)
    ended: list[str] = []

    def contribute(index: int) -> Callable[..., Any]:
        def train(*_: object) -> Any:
            caller = threading.get_ident()
            try:
                while True:
                    try:
                        sum(range(1000))
                    except Exception:  # noqa: BLE001, S112
                        continue
            except undertone.JobOver as error:
                assert threading.get_ident() == caller
                ended.append(str(error))
                raise
            finally:
                ended.append("cleaned up")

        return train if index == 1 else ones

    joined = raised_by(network, contribute=contribute)
    assert isinstance(joined[1], undertone.AbortedError), joined
    assert joined[1].__cause__ is None
    assert ended == ["the job ended while this function was at work", "cleaned up"]
    assert all(isinstance(joined[index], undertone.Joined) for index in (0, 2, 3)), joined
    network.end()


def test_a_function_ends_with_a_lost_server(tmp_path: Path) -> None:
    network = Network(tmp_path, 3, 'application = "sum"\nrounds = 1\n')
    host, _, port = network.server.rpartition(":")
    while socket.socket().connect_ex((host, int(port))):
        assert network.process.poll() is None
    started = threading.Barrier(4)
    ended: list[int] = []

    def join(index: int, server: str, keys: Path) -> undertone.Joined[Any]:
        def train(*_: object) -> Any:
            started.wait(60)
            try:
                while True:
                    sum(range(1000))
            finally:
                ended.append(index)

        return undertone.join(server, undertone.RoundsClient(train), keys, retry=1.0)

    def end() -> None:
        started.wait(60)
        network.kill()

    killer = threading.Thread(target=end)
    killer.start()
    joined = network.all(join)
    killer.join()
    assert all(isinstance(one, undertone.UndertoneError) for one in joined), joined
    assert "cannot reach the server" in str(joined[0])
    assert sorted(ended) == [0, 1, 2]


INTERRUPTED = """
import sys, threading, time
import numpy as np, undertone
server, keys, catch = sys.argv[1:]
count = [0]
def contribute(*_):
    print("training", flush=True)
    while True:
        count[0] += 1
try:
    undertone.join(server, undertone.RoundsClient(contribute), keys)
except KeyboardInterrupt:
    if catch == "no":
        raise
    seen = count[0]
    time.sleep(0.2)
    print("still training" if count[0] > seen else "stopped", threading.active_count(), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_a_function(tmp_path: Path) -> None:
    network = Network(tmp_path, 3, 'application = "sum"\nrounds = 1\n')
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, network.server, str(keys), catch],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for keys, catch in zip(network.folders(), ("no", "yes", "yes"), strict=True)
    ]
    for client in clients:
        assert client.stdout is not None and client.stdout.readline() == "training\n"
        client.send_signal(signal.SIGINT)
    found = [client.communicate(timeout=60) for client in clients]
    network.kill()
    assert clients[0].returncode == -signal.SIGINT, found[0]
    assert "KeyboardInterrupt" in found[0][1] and "in contribute" in found[0][1]
    pairs = zip(clients[1:], found[1:], strict=True)
    assert [(one.returncode, out) for one, (out, _) in pairs] == [
        (0, "stopped 1\n")
    ] * 2, found


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_a_client_that_waits(tmp_path: Path) -> None:
    network = Network(tmp_path, 3, "bits = 1024\n")
    script = (
        "import sys, numpy as np, undertone\n"
        "rows = np.random.default_rng(0).normal(size=(9, 4))\n"
        "print('joins', flush=True)\n"
        "client = undertone.LabelClient(rows, np.arange(9) % 2)\n"
        "undertone.join(sys.argv[1], client, sys.argv[2])\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", script, network.server, str(network.folders()[0])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert client.stdout is not None and client.stdout.readline() == "joins\n"
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=60)
    network.kill()
    assert client.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors, errors


WRONG_LINKS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"retry": -1}, ValueError, "retry is -1; it must be a number of seconds"),
    ({"patience": float("nan")}, ValueError, "patience is nan"),
    ({"retry": "long"}, TypeError, "retry is 'long'; a number is needed"),
]


@pytest.mark.parametrize(("link", "error", "text"), WRONG_LINKS)
def test_links_that_cannot_be(link: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        undertone.join("localhost:1", undertone.RoundsClient(ones), "/nonexistent", **link)


WRONG_TERMS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"min_clients": 3.0}, TypeError, "min_clients is 3.0; a whole number is needed"),
    ({"allow_free_sampling": "no"}, TypeError, "allow_free_sampling is 'no'; True or False"),
    ({"max_bound": -1.0}, ValueError, "max_bound"),
    ({"malicious_server": "maybe"}, ValueError, "malicious_server"),
]


@pytest.mark.parametrize(("terms", "error", "text"), WRONG_TERMS)
def test_terms_that_cannot_be(terms: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        undertone.RoundsClient(ones, terms=undertone.SumTerms(**terms))


def test_nobody_there() -> None:
    with pytest.raises(ValueError, match="roster"):
        client = undertone.LabelClient(np.ones((2, 2)), np.array([0, 1]))
        undertone.join("localhost:1", client, "/nonexistent")
    wrong: Any = "keys"
    with pytest.raises(TypeError, match="client is str; a client such as LabelClient"):
        undertone.join("localhost:1", wrong)


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
    # It starts itself again, for each party.
    done = command("bench", "network", "--values", "100", "--repeat", "2", cwd=tmp_path)
    assert done.returncode == 0 and "processes over TLS" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_experiment_of_the_readme(data: Path) -> None:
    found = undertone.experiment(data / "digits.npz")
    assert str(found) == (
        "together 96.54 ± 1.06, each client alone 82.50 ± 2.50 (% of hidden rows, 10 runs)"
    )


def test_an_experiment_reports_means_and_deviations(data: Path) -> None:
    found = undertone.experiment(data / "wine.npz", runs=2)
    assert re.fullmatch(
        r"together \d+\.\d\d ± \d\.\d\d, each client alone \d+\.\d\d ± \d+\.\d\d "
        r"\(% of hidden rows, 2 runs\)",
        str(found),
    )
    assert found.accuracy > 0.8
    with pytest.raises(undertone.UndertoneError, match="missing.npz"):
        undertone.experiment("missing.npz")
