"""Distances, oblivious transfer, Paillier, bundles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertone


@pytest.mark.parametrize("backend", ["clear", "sketch", "psm", "lwe", "shade"])
def test_distances_are_those_of_codes(backend: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (70, 32), np.uint8), rng.integers(0, 256, (45, 32), np.uint8)
    found = undertone.distances(a, b, codes=True, backend=backend, bits=256)
    due = np.unpackbits(a[:, None] ^ b[None], axis=2).sum(axis=2)
    assert (found.hamming == due).all() and found.hamming.dtype == np.uint16
    assert set(found.costs) == {-1, 0, 1}


def test_angles_are_estimated() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(20, 6)), rng.normal(size=(30, 6))
    found = undertone.distances(a, b, bits=4096)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    assert np.abs(found.angles - np.arccos(unit[0] @ unit[1].T)).max() < 0.15


def test_distances_with_arguments_that_cannot_be() -> None:
    a = np.ones((2, 3))
    with pytest.raises(ValueError, match="must be 1 to 16384 with lwe"):
        undertone.distances(a, a, backend="lwe", bits=20_000)
    with pytest.raises(ValueError, match="codes have 3 bytes a row"):
        undertone.distances(a.astype(np.uint8), a.astype(np.uint8), bits=256, codes=True)


@pytest.mark.parametrize("malicious", [False, True])
def test_the_receiver_gets_what_it_chose(malicious: bool) -> None:
    rng = np.random.default_rng(3)
    count = 70_001
    pairs = rng.integers(0, 256, (count, 2, 16), np.uint8)
    choices = rng.integers(0, 2, count)
    found = undertone.ot(pairs, choices, malicious=malicious)
    assert (found.messages == pairs[np.arange(count), choices]).all()
    with pytest.raises(ValueError, match=r"\[n, 2, 16\]"):
        undertone.ot(pairs[:, :, :8], choices)


def test_paillier_adds_under_encryption() -> None:
    key = undertone.paillier(2048)
    a, b = [0, 5, key.modulus - 1], [1, 2**70, 3]
    sums = key.encrypt(a) + key.encrypt(b)
    assert key.decrypt(sums) == [1, 2**70 + 5, 2]
    assert key.decrypt(key.decode(bytes(sums * [2, 1, 4]))) == [2, 2**70 + 5, 8]
    assert len(sums) == 3
    with pytest.raises(ValueError):
        key.encrypt([key.modulus])
    with pytest.raises(ValueError):
        key.encrypt([1]) + key.encrypt([1, 2])
    with pytest.raises(ValueError):
        undertone.paillier(512)


def test_arithmetic_is_modulo_the_modulus() -> None:
    key = undertone.paillier(2048)
    n = key.modulus
    a, b = key.encrypt([7, 0, n - 1]), key.encrypt([3, 1, 5])
    cases: list[tuple[Any, list[int]]] = [
        (a + 3, [10, 3, 2]),
        (3 + a, [10, 3, 2]),
        (a + [1, 2, 3], [8, 2, 2]),
        ([1, 2, 3] + a, [8, 2, 2]),
        (np.array([1, 2, 3]) + a, [8, 2, 2]),
        (a * 3, [21, 0, -3]),
        (3 * a, [21, 0, -3]),
        (np.int64(3) * a, [21, 0, -3]),  # type: ignore[operator]
        (a * [2, 3, 4], [14, 0, -4]),
        (np.array([2, 3, 4], np.uint64) * a, [14, 0, -4]),  # type: ignore[operator]
        (a - b, [4, -1, -6]),
        (a - 1, [6, -1, -2]),
        (a - [1, 2, 3], [6, -2, -4]),
        (10 - a, [3, 10, 11]),
        ([1, 2, 3] - a, [-6, 2, 4]),
        (-a, [-7, 0, 1]),
        (sum([a, b]), [10, 1, 4]),
        (a * True, [7, 0, -1]),
    ]
    for found, due in cases:
        assert isinstance(found, undertone.Ciphertexts)
        assert key.decrypt(found) == [number % n for number in due]
    a += b
    assert key.decrypt(a) == [10, 1, 4] and repr(a) == "<Ciphertexts: 3 under 2048 bits>"


def test_numbers_are_never_rounded() -> None:
    key = undertone.paillier(2048)
    one = key.encrypt([1])
    bad: list[tuple[Any, type[Exception], str]] = [
        ([1.5], TypeError, r"number 0 is 1.5; whole numbers are needed: scale fractions"),
        ([1, 2.0], TypeError, "number 1 is 2.0"),
        (np.array([0.5]), TypeError, "number 0 is .*0.5"),
        (["7"], TypeError, "number 0 is '7'"),
        ("7", TypeError, "numbers are str; a list of whole numbers"),
        ([None], TypeError, "number 0 is None"),
        ([-1], ValueError, r"number 0 is -1; .*add the modulus, as in x % key.modulus"),
        (np.array([3, -2]), ValueError, "number 1 is -2"),
        (np.array([[1, 2], [3, 4]]), ValueError, r"numbers have shape \(2, 2\); pass x.ravel"),
        (np.ma.MaskedArray([1, 2], [False, True]), ValueError, r"masked at \[1\]"),
    ]
    for given, error, text in bad:
        for use in (key.encrypt, one.__add__, one.__mul__, one.__sub__, one.__radd__):
            with pytest.raises(error, match=text):
                use(given)
    for number, error, text in [
        (0.5, TypeError, "the number is 0.5; whole numbers"),
        (-3, ValueError, "the number is -3; .*add the modulus"),
        (None, TypeError, "the number is None"),
    ]:
        for use in (one.__add__, one.__mul__, one.__sub__, one.__rmul__):
            with pytest.raises(error, match=text):
                use(number)  # type: ignore[operator]
    with pytest.raises(TypeError, match="numbers are 5; a list of whole numbers"):
        key.encrypt(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be multiplied with each other"):
        one * one  # type: ignore[operator]
    with pytest.raises(TypeError, match="bits is 2048.0; a whole number"):
        undertone.paillier(2048.0)  # type: ignore[arg-type]
    for kind in ("i1", "i8", "u8", "?"):
        whole: Any = np.array([0, 1], kind)
        assert key.decrypt(key.encrypt(whole)) == [0, 1]


def test_seeds_are_whole_numbers_or_bytes() -> None:
    rows = np.eye(3)
    due = undertone.distances(rows, rows, bits=64, seed=5)
    seed = (5).to_bytes(8, "little") + bytes(24)
    assert (undertone.distances(rows, rows, bits=64, seed=seed).hamming == due.hamming).all()
    for wrong in (-1, 1.5, 2**64, "7"):
        with pytest.raises(ValueError, match="it is 32 bytes, or a whole number from 0"):
            undertone.distances(rows, rows, bits=64, seed=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed has 3 bytes; 32 are needed"):
        undertone.distances(rows, rows, bits=64, seed=b"abc")


def test_bundles() -> None:
    frames = [(-1, b"a"), (3, b"bcd")]
    bundle = undertone.pack(frames, gone=[7])
    assert undertone.unpack(bundle) == (frames, [7])
    for cut in range(1, len(bundle)):
        if cut not in (8, 17):
            with pytest.raises(ValueError):
                undertone.unpack(bundle[:cut])
    with pytest.raises(ValueError):
        undertone.pack([(0, b"")])
