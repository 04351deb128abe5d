"""Distances, oblivious transfer and Paillier's cryptosystem, for measurements and lessons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _engine
from ._costs import Cost, of_parties
from ._party import as_rows


@dataclass(frozen=True)
class Distances:
    """Distances between the rows of two clients, as the server gets them."""

    hamming: NDArray[np.uint16]
    """Bits in which two codes differ, uint16 of shape [rows of a, rows of b]."""
    bits: int
    """The length of a code."""
    costs: dict[int, list[Cost]]
    """What each party spent, phase by phase; -1 is the server."""

    @property
    def angles(self) -> NDArray[np.float64]:
        """Estimated angles between rows in radians, float64 with the same shape."""
        return np.asarray(self.hamming * (np.pi / self.bits), np.float64)


def distances(
    a: NDArray[Any],
    b: NDArray[Any],
    *,
    backend: str = "psm",
    bits: int = 4096,
    suite: str = "aes128ctr",
    seed: bytes | None = None,
) -> Distances:
    """The distances between the rows of two clients, by a protocol.

    ``a`` and ``b`` are float arrays of shape [rows, features]. Each row is hashed to a code of
    ``bits`` bits. Both clients and the server run in this process, with the real messages.

    >>> import numpy as np, undertone
    >>> a = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> found = undertone.distances(a, a, backend="lwe", bits=1024)
    >>> found.hamming.diagonal().tolist()
    [0, 0]
    >>> abs(float(found.angles[0, 1]) - np.pi / 2) < 0.3
    True
    """
    hamming, costs = _engine.distances(as_rows(a), as_rows(b), bits, backend, suite, seed)
    return Distances(hamming, bits, of_parties(costs))


@dataclass(frozen=True)
class Transfers:
    """The result of oblivious transfers."""

    messages: NDArray[np.uint8]
    """The chosen message of each pair, uint8 of shape [pairs, 16]."""
    costs: dict[int, list[Cost]]
    """What the sender (0) and the receiver (1) spent. The chosen messages add 33 bytes to each
    pair: one for eight choices, and two messages of 16."""


def ot(
    messages: NDArray[np.uint8],
    choices: NDArray[Any],
    *,
    malicious: bool = True,
    seed: bytes | None = None,
) -> Transfers:
    """Oblivious transfers of chosen messages, by an extension.

    ``messages`` is uint8 of shape [pairs, 2, 16], ``choices`` of shape [pairs] with 0 or 1 (or
    booleans). The receiver learns one message of each pair. The sender does not learn which. With
    ``malicious`` the sender is safe from a receiver that cheats.

    >>> import numpy as np, undertone
    >>> pairs = np.arange(96, dtype=np.uint8).reshape(3, 2, 16)
    >>> undertone.ot(pairs, np.array([0, 1, 0])).messages[:, 0].tolist()
    [0, 48, 64]
    """
    if np.asarray(messages).dtype != np.uint8:
        raise TypeError(f"messages are of {np.asarray(messages).dtype}; uint8 is needed")
    if not np.isin(choices, (0, 1)).all():
        raise ValueError("choices must be 0 or 1")
    chosen, costs = _engine.ot(
        np.ascontiguousarray(messages, dtype=np.uint8),
        np.ascontiguousarray(choices, dtype=np.bool_),
        malicious,
        seed,
    )
    return Transfers(chosen, of_parties(costs))


class Ciphertexts:
    """Numbers that are encrypted under one key. They can be added and scaled."""

    def __init__(self, encrypted: _engine.Encrypted) -> None:
        self._encrypted = encrypted

    def __len__(self) -> int:
        return len(self._encrypted)

    def __add__(self, other: Ciphertexts | Sequence[int]) -> Ciphertexts:
        """Adds number by number, modulo the key's modulus."""
        if isinstance(other, Ciphertexts):
            return Ciphertexts(self._encrypted.add(other._encrypted))
        return Ciphertexts(self._encrypted.add_plain([int(number) for number in other]))

    def __mul__(self, numbers: Sequence[int]) -> Ciphertexts:
        """Multiplies number by number, modulo the key's modulus."""
        return Ciphertexts(self._encrypted.multiply([int(number) for number in numbers]))

    def __bytes__(self) -> bytes:
        """The ciphertexts on the wire. They are not re-randomised."""
        return self._encrypted.encode()


class PaillierKey:
    """A key of Paillier's cryptosystem. See :func:`paillier`."""

    def __init__(self, bits: int) -> None:
        self._key = _engine.Paillier(bits)

    @property
    def modulus(self) -> int:
        """The public key."""
        return self._key.modulus

    def encrypt(self, numbers: Sequence[int]) -> Ciphertexts:
        """Encrypts numbers from 0 to the modulus."""
        return Ciphertexts(self._key.encrypt([int(number) for number in numbers]))

    def decrypt(self, ciphertexts: Ciphertexts) -> list[int]:
        """Decrypts."""
        return self._key.decrypt(ciphertexts._encrypted)

    def decode(self, data: bytes) -> Ciphertexts:
        """The ciphertexts of ``bytes(ciphertexts)``. Raises ``ValueError`` for invalid bytes."""
        return Ciphertexts(self._key.decode(data))


def paillier(bits: int = 3072) -> PaillierKey:
    """A new key of Paillier's cryptosystem, with a modulus of ``bits`` bits (2048 or more).

    >>> import undertone
    >>> key = undertone.paillier(2048)
    >>> sums = key.encrypt([1, 2]) + key.encrypt([10, 20]) + [100, 200]
    >>> key.decrypt(sums * [2, 3])
    [222, 666]
    """
    return PaillierKey(bits)
