"""Secure sums and means."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import clear_mean, sum_parties
from numpy.typing import NDArray

import undertone
from undertone import SERVER


def models(clients: int, size: int) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, size).astype(np.float32) for _ in range(clients)]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_mean_is_that_of_the_clear(bits: int, kind: type) -> None:
    arrays: list[NDArray[np.float32]] = [one.astype(kind) for one in models(5, 1000)]
    weights = [100.0, 250.0, 50.0, 1.5, 600.0]
    server, clients = sum_parties(5, 1000, bits=bits)
    for client, array, weight in zip(clients, arrays, weights, strict=True):
        assert client.contribute(array, weight) == 0
    undertone.run(server, clients)
    result = server.result()
    assert result is not None
    error = np.abs(result.values - clear_mean(arrays, weights)).max()
    assert error < (1e-6 if bits == 32 else 1e-12)
    assert abs(result.weight - sum(weights)) < 1e-3
    assert result.contributors == [0, 1, 2, 3, 4]
    assert [client.result() for client in clients] == [[0, 1, 2, 3, 4]] * 5
    assert server.result() is None


def test_a_list_of_arrays_is_one_input() -> None:
    server, clients = sum_parties(3, 10)
    for client in clients:
        weights = [np.ones((2, 3), np.float32), np.full(4, 2.0)]
        client.contribute(weights, 5)
    undertone.run(server, clients)
    result = server.result()
    assert result is not None and result.values.tolist() == [1.0] * 6 + [2.0] * 4


@pytest.mark.parametrize(
    "other", [{"bound": 8.0 * 2**10}, {"max_weight": 1e6}, {"clip": True}, {"size": 5}]
)
@pytest.mark.parametrize("malicious_server", [False, True])
def test_clients_with_different_rules_add_nothing(
    other: dict[str, Any], malicious_server: bool
) -> None:
    """A server that offered one client another bound than all others could read its values."""
    keys = [undertone.generate_key() for _ in range(5)]
    public = [undertone.public_key(key) for key in keys]
    rules: dict[str, Any] = {
        "session": undertone.session_id(None), "clients": 5, "size": 4, "bound": 8.0,
        "max_weight": 1000.0, "malicious_server": malicious_server,
    }
    server = undertone.SumServer(**rules)

    def client(index: int) -> undertone.SumClient:
        signed = {"key": keys[index], "public_keys": public} if malicious_server else {}
        return undertone.SumClient(index, **rules | signed | (other if index == 2 else {}))

    clients = [client(index) for index in range(5)]
    with pytest.raises(undertone.AbortedError, match="rules"):
        undertone.run(server, clients)


def test_a_plain_sum() -> None:
    server, clients = sum_parties(3, 2, mean=False)
    for client in clients:
        client.contribute(np.array([1.0, -2.5]))
    undertone.run(server, clients)
    result = server.result()
    assert result is not None
    assert result.values.tolist() == [3.0, -7.5] and result.weight == 3.0


def test_values_are_due_at_the_upload_and_whoever_fails_then_is_missing() -> None:
    server, clients = sum_parties(4, 3)
    undertone.run(server, clients)
    assert all(client.needs_values for client in clients)
    assert not server.done and server.waits_for == [0]
    for client in clients[:3]:
        client.contribute(np.full(3, client.id, np.float32), 10)
    server.gone(3)
    undertone.run(server, clients[:3])
    result = server.result()
    assert result is not None
    assert result.contributors == [0, 1, 2] and result.values.tolist() == [1.0] * 3


def test_frames_may_come_in_any_order() -> None:
    order = random.Random(3)
    server, clients = sum_parties(5, 300_000, bits=32)
    for client, array in zip(clients, models(5, 300_000), strict=True):
        client.contribute(array, 2)
    parties: dict[int, undertone.Party] = {client.id: client for client in clients}
    parties[SERVER] = server
    under_way: list[tuple[int, int, bytes]] = []
    while not server.done:
        for who, party in parties.items():
            under_way += [(who, to, frame) for to, frame in party.poll()]
        order.shuffle(under_way)
        for _ in range((len(under_way) + 1) // 2):
            who, to, frame = under_way.pop()
            parties[to].push(who, frame)
    result = server.result()
    assert result is not None and len(result.contributors) == 5


def test_values_beyond_the_bound_are_refused_or_clipped_and_counted() -> None:
    _, clients = sum_parties(3, 2)
    with pytest.raises(ValueError, match=r"array 0 at \[1\] is 9; it must be from -8 to 8"):
        clients[0].contribute(np.array([1.0, 9.0]))
    with pytest.raises(ValueError, match="3 values, the sum is of 2"):
        clients[0].contribute(np.zeros(3))
    with pytest.raises(ValueError, match="the weight is 2000"):
        clients[0].contribute(np.zeros(2), 2000)
    with pytest.raises(TypeError, match="numbers are needed"):
        clients[0].contribute(np.array(["a", "b"]))
    assert clients[0].contribute(np.zeros(2)) == 0
    _, clients = sum_parties(3, 2, clip=True)
    assert clients[0].contribute(np.array([-99.0, 1e300])) == 2
    assert clients[0].clipped == 2
    for value in (np.nan, np.inf, -np.inf):
        place = rf"array 1 at \[0, 0\] is {value}".replace("nan", "NaN")
        with pytest.raises(ValueError, match=place):
            clients[1].contribute([np.zeros(1, np.float32), np.array([[value]])])


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f4", "g"])
def test_floats_of_any_size_are_taken(kind: str) -> None:
    server, clients = sum_parties(3, 3)
    for client in clients:
        half: Any = np.float16(0.125)
        client.contribute([np.array([0.5, -0.25], kind), half])
    undertone.run(server, clients)
    result = server.result()
    assert result is not None and result.values.round(9).tolist() == [0.5, -0.25, 0.125]


@pytest.mark.parametrize("kind", ["int64", "uint8", "bool", "complex64", "object", "V2"])
def test_other_arrays_are_named_with_the_way_out(kind: str) -> None:
    _, clients = sum_parties(3, 3)
    with pytest.raises(TypeError, match=r"array 1 is of .*astype|array 1 is of complex64"):
        clients[0].contribute([np.zeros(1), np.zeros(2, kind)])
    with pytest.raises(TypeError, match="the array is of"):
        clients[0].contribute(np.zeros(3, kind))
    assert clients[0].contribute([np.zeros(1), np.zeros(2)]) == 0


RULES: dict[str, Any] = {
    "session": bytes(32), "clients": 3, "size": 2, "bound": 8.0, "max_weight": 100.0
}


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"bound": 0.0}, ValueError, "bound is 0; it must be above 0 and finite"),
        ({"bound": -2}, ValueError, "bound is -2; it must be above 0 and finite"),
        ({"bound": np.inf}, ValueError, "bound is inf; it must be above 0"),
        ({"bound": np.nan}, ValueError, "bound is NaN; it must be above 0"),
        ({"bound": "8"}, TypeError, "bound is '8'; a number is needed"),
        ({"max_weight": 0}, ValueError, "max_weight is 0; it must be above 0 and finite"),
        ({"bound": 1e200, "max_weight": 1e200}, ValueError, "bound times max_weight is inf"),
        ({"clients": 2}, ValueError, "clients is 2, fewer than min_clients, which is 3"),
        ({"min_clients": 5}, ValueError, "clients is 3, fewer than min_clients, which is 5"),
        ({"min_clients": 1}, ValueError, "min_clients must be 2 or more"),
        ({"clients": -1}, ValueError, "clients is -1; it must be 0 to"),
        ({"clients": 3.0}, TypeError, "clients is 3.0; a whole number is needed"),
        ({"clients": 2**40}, ValueError, "clients is 1099511627776; it must be 0 to"),
        ({"size": 1.5}, TypeError, "size is 1.5; a whole number is needed"),
        ({"bits": 16}, ValueError, "bits is 16; it must be 32 or 64"),
        ({"mean": 1}, TypeError, "mean is 1; True or False is needed"),
        ({"session": b"x"}, ValueError, "session has 1 bytes?; 32 are needed"),
        ({"session": 5}, TypeError, "session is of int; 32 bytes are needed"),
        ({"session": None}, TypeError, "session is of NoneType; 32 bytes"),
        ({"suite": "rot13"}, ValueError, "rot13"),
        ({"about": "text"}, TypeError, "about is of str; bytes are needed"),
    ],
    ids=str,
)
def test_rules_that_cannot_be_are_named(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    rules = {**RULES, **wrong}
    with pytest.raises(error, match=text):
        undertone.SumServer(**rules)
    with pytest.raises(error, match=text):
        undertone.SumClient(0, **rules)


def test_a_session_is_no_number_of_bytes() -> None:
    with pytest.raises(TypeError, match="session is of int; 32 bytes are needed"):
        undertone.session_id(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="index is 0.5; a whole number is needed"):
        undertone.SumClient(0.5, **RULES)  # type: ignore[arg-type]


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="bits is 16"):
        sum_parties(3, 2, bits=16)
    with pytest.raises(ValueError, match="bound is inf; it must be above 0"):
        sum_parties(3, 2, bits=32, bound=float("inf"))
    with pytest.raises(ValueError, match="client 3 of 3"):
        undertone.SumClient(3, session=bytes(32), clients=3, size=1, bound=1.0)
    with pytest.raises((TypeError, ValueError)):
        undertone.SumClient(0, session=bytes(31), clients=3, size=1, bound=1.0)
    with pytest.raises(ValueError, match="credentials"):
        undertone.SumClient(
            0, session=bytes(32), clients=3, size=1, bound=1.0, malicious_server=True
        )
    _, clients = sum_parties(3, 2)
    with pytest.raises(ValueError, match="-2 is no party"):
        clients[0].push(-2, b"")
    with pytest.raises(ValueError, match="frame"):
        clients[0].push(-1, b"not a frame")


def test_a_server_that_lies_is_caught_and_named() -> None:
    server, clients = sum_parties(3, 2)
    victim = clients[1]
    for client in clients:
        for _, frame in client.poll():
            server.push(client.id, frame)
    with pytest.raises(undertone.AbortedError) as caught:
        for to, frame in server.poll():
            if to == victim.id:
                changed = bytearray(frame)
                changed[70] ^= 1
                victim.push(SERVER, bytes(changed))
                victim.poll()
                victim.poll()
    assert caught.value.party == 1 and caught.value.culprit == SERVER
    assert caught.value.phase == "sum keys" and "server" in str(caught.value)


def test_signed_keys_and_a_server_that_may_lie() -> None:
    keys = [undertone.generate_key() for _ in range(3)]
    public = [undertone.public_key(key) for key in keys]
    rules = {
        "session": undertone.session_id(None),
        "clients": 3,
        "size": 1,
        "bound": 1.0,
        "malicious_server": True,
    }
    server = undertone.SumServer(**rules)  # type: ignore[arg-type]
    clients = [
        undertone.SumClient(i, key=keys[i], public_keys=public, **rules)  # type: ignore[arg-type]
        for i in range(3)
    ]
    for client in clients:
        client.contribute(np.array([0.5]))
    undertone.run(server, clients)
    result = server.result()
    assert result is not None and result.values.tolist() == [0.5]
    with pytest.raises(ValueError, match="private key of client 0"):
        undertone.SumClient(0, key=keys[1], public_keys=public, **rules)  # type: ignore[arg-type]


def test_too_few_clients_end_the_sum() -> None:
    server, clients = sum_parties(4, 1)
    undertone.run(server, clients)
    server.gone(0)
    server.gone(1)
    for client in clients[2:]:
        client.contribute(np.zeros(1))
    with pytest.raises(undertone.AbortedError, match="too few clients: 2 left, 3 needed"):
        undertone.run(server, clients[2:])


def test_the_same_seed_gives_the_same_frames() -> None:
    def first(seed: bytes) -> list[tuple[int, bytes]]:
        rules = {"session": bytes(32), "clients": 3, "size": 1, "bound": 1.0, "seed": seed}
        return undertone.SumClient(0, **rules).poll()  # type: ignore[arg-type]

    assert first(bytes(32)) == first(bytes(32)) != first(b"1" * 32)


def test_frames_hide_values() -> None:
    array = np.full(50_000, 1.25, np.float32)
    server, clients = sum_parties(3, 50_000, bits=32, bound=2.0, max_weight=1.0)
    seen = b""
    for client in clients:
        client.contribute(array, 1)
    while not server.done:
        for client in clients:
            for _, frame in client.poll():
                seen += frame
                server.push(client.id, frame)
        for to, frame in server.poll():
            clients[to].push(SERVER, frame)
    # Equal values would compress; masked words do not.
    import zlib

    assert len(zlib.compress(seen)) > 0.99 * len(seen)


def test_the_interpreter_is_free_while_rust_computes() -> None:
    server, clients = sum_parties(3, 4_000_000)
    for client in clients:
        client.contribute(np.zeros(4_000_000, np.float32), 1)
    ticks, stop = 0, False

    def tick() -> None:
        nonlocal ticks
        while not stop:
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    undertone.run(server, clients)
    stop = True
    thread.join()
    assert ticks > 10


MEMORY = """
import numpy as np, undertone

# The peak of this program alone: getrusage counts the parent before exec, too.
def peak():
    line = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line[0].split()[1]) // 1024

size = 95 * 2**20 // 4
before = peak()
array = np.ones(size, np.float32)
rules = dict(session=bytes(32), clients=3, size=size, bound=2.0, bits=32)
server = undertone.SumServer(**{**rules, "size": size})
client = undertone.SumClient(0, **rules)
others = [undertone.SumClient(i, **rules) for i in (1, 2)]
undertone.run(server, [client, *others])
client.contribute(array, 1.0)
sent = 0
while frames := client.poll():
    sent += sum(len(frame) for _, frame in frames)
assert sent > 95 * 2**20
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_float32_is_encoded_without_copies(tmp_path: Path) -> None:
    run = [sys.executable, "-c", MEMORY]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
    # The array, its words, and the frames of one poll: a copy would be 95 more.
    assert int(done.stdout) <= 230, done.stdout


def test_costs_are_counted() -> None:
    server, clients = sum_parties(3, 1000, bits=32)
    for client in clients:
        client.contribute(np.zeros(1000))
    undertone.run(server, clients)
    spent = {cost.phase: cost for cost in clients[0].costs}
    assert list(spent) == ["sum keys", "sum shares", "masked words", "unmasking"]
    assert 4 * 1001 <= spent["masked words"].bytes_sent <= 4 * 1001 + 64
    assert "client 0" in repr(clients[0]) and "server" in repr(server)


def test_words_are_as_long_as_the_limits_need() -> None:
    for max_weight, bits in [(1.0, 32), (1e4, 32), (2e4, 64), (1e6, 64)]:
        server, clients = sum_parties(3, 5000, bits=None, bound=8.0, max_weight=max_weight)
        for client in clients:
            client.contribute(np.ones(5000, np.float32), 1.0)
        undertone.run(server, clients)
        sent = sum(cost.bytes_sent for cost in clients[0].costs)
        assert 5000 * bits // 8 < sent < 5000 * bits // 8 + 10_000, (max_weight, sent)
    with pytest.raises(ValueError, match="no value would survive; lower max_weight"):
        undertone.SumServer(
            session=bytes(32), clients=3, size=1, bound=8.0, max_weight=1e9, bits=32
        )


def test_values_that_the_mean_would_lose_are_refused_and_coarse_ones_named() -> None:
    small = [np.array([0.5, -0.25], np.float32), np.array([1e-3])]
    rules: dict[str, Any] = {"bound": 1024.0, "max_weight": 1e6, "bits": 32}

    def client(**more: Any) -> Any:
        return undertone.SumClient(0, session=bytes(32), clients=3, size=3, **{**rules, **more})

    with pytest.raises(ValueError, match="little of them would be left"):
        client().contribute(small, 1.0)
    with pytest.warns(UserWarning, match="array 1: one step of the last bit is worth"):
        client(max_weight=10.0).contribute(small, 10.0)
    with pytest.raises(ValueError, match="less than one step of the last bit of weights"):
        client(bound=1.0).contribute(small, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client(bits=None).contribute(small, 100.0)
        client().contribute([np.zeros(3)], 1.0)
        client().contribute(small, 0.0)
        client(max_weight=10.0, bound=1.0).contribute(small, 10.0)
