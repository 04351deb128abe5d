"""Distances, oblivious transfer, Paillier, bundles."""

from __future__ import annotations

import numpy as np
import pytest

import undertone


@pytest.mark.parametrize("backend", ["clear", "sketch", "psm", "lwe", "shade"])
def test_distances_are_those_of_codes(backend: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (70, 32), np.uint8), rng.integers(0, 256, (45, 32), np.uint8)
    found = undertone.distances(a, b, backend=backend, bits=256)
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
        undertone.distances(a.astype(np.uint8), a.astype(np.uint8), bits=256)


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
