"""Distances, oblivious transfer and Paillier's cryptosystem, for measurements and lessons."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._costs import Cost, of_parties


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
    backend: str = _engine.BACKEND,
    bits: int = 4096,
    suite: str = "aes128ctr",
    codes: bool = False,
    seed: bytes | int | None = None,
) -> Distances:
    """The distances between the rows of two clients, by a protocol.

    ``a`` and ``b`` are float arrays of shape [rows, features]. Each row is hashed to a code of
    ``bits`` bits. With ``codes=True`` they are codes: uint8 of shape [rows, bits / 8], as
    ``numpy.packbits`` makes them. Both clients and the server run in this process, with the real
    messages.

    >>> import numpy as np, undertone
    >>> a = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> found = undertone.distances(a, a, backend="lwe", bits=1024)
    >>> found.hamming.diagonal().tolist()
    [0, 0]
    >>> abs(float(found.angles[0, 1]) - np.pi / 2) < 0.3
    True
    """
    hamming, costs = _engine.distances(
        _arrays.rows(a, codes=codes, what="a: "),
        _arrays.rows(b, codes=codes, what="b: "),
        _checks.whole("bits", bits),
        _checks.text("backend", backend),
        _checks.text("suite", suite),
        _checks.seed(seed),
    )
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
    seed: bytes | int | None = None,
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
    pairs, wanted = _arrays.numbers(messages, "messages are"), _arrays.numbers(
        choices, "choices are"
    )
    if pairs.dtype != np.uint8:
        raise TypeError(f"messages are of {pairs.dtype}; uint8 is needed")
    if pairs.ndim != 3 or wanted.shape != (len(pairs),):
        raise ValueError(
            f"messages have shape {pairs.shape}, choices {wanted.shape}; [pairs, 2, 16] and "
            "[pairs] are needed"
        )
    if not np.isin(wanted, (0, 1)).all():
        raise ValueError("choices must be 0 or 1")
    chosen, costs = _engine.ot(
        np.asarray(pairs, order="C"),
        np.asarray(wanted, dtype=np.bool_, order="C"),
        _checks.flag("malicious", malicious),
        _checks.seed(seed),
    )
    return Transfers(chosen, of_parties(costs))


def _whole(number: Any, place: str) -> int:
    """A number to encrypt, or to add to or to multiply with a ciphertext."""
    if isinstance(number, np.bool_):
        number = bool(number)
    try:
        found = operator.index(number)
    except TypeError:
        raise TypeError(
            f"{place} is {number!r}; whole numbers are needed: scale fractions, as in "
            "round(x * 2**20), and divide the result"
        ) from None
    if found < 0:
        raise ValueError(
            f"{place} is {found}; numbers are from 0 to the modulus: add the modulus, as in "
            "x % key.modulus"
        )
    return found


def _numbers(given: Any) -> list[int]:
    _arrays.refuse_sparse(given, "numbers are")
    if isinstance(given, (str, bytes, bytearray)):
        raise TypeError(f"numbers are {type(given).__name__}; a list of whole numbers is needed")
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise ValueError(f"numbers have shape {given.shape}; pass x.ravel()")
        if given.dtype.kind in "iub":
            given = _arrays.numbers(given, "numbers are")
    return [_whole(number, f"number {place}") for place, number in enumerate(given)]


class Ciphertexts:
    """Numbers that are encrypted under one key. They can be added and scaled.

    All arithmetic is modulo the key's modulus N, number by number: a sum, difference or product
    that leaves the range from 0 to N - 1 comes back into it. So -1 decrypts to N - 1. ``+`` and
    ``-`` take other ciphertexts of the same key, as many whole numbers, or one whole number for
    all. ``*`` takes whole numbers. Negative ones are refused: add N to them, as in ``x % N``.
    """

    __array_ufunc__ = None
    """So that arrays of NumPy leave arithmetic to this class."""

    def __init__(self, encrypted: _engine.Encrypted) -> None:
        self._encrypted = encrypted

    def __len__(self) -> int:
        return len(self._encrypted)

    def __repr__(self) -> str:
        return f"<Ciphertexts: {len(self)} under {self._encrypted.modulus.bit_length()} bits>"

    def _plain(self, given: Any) -> list[int]:
        """Whole numbers, or one for all."""
        if np.ndim(given) == 0 and not hasattr(given, "__iter__"):
            return [_whole(given, "the number")] * len(self)
        return _numbers(given)

    def _times(self, number: int) -> Ciphertexts:
        return Ciphertexts(self._encrypted.multiply([number] * len(self)))

    def __add__(self, other: Ciphertexts | Sequence[int] | int) -> Ciphertexts:
        """Adds number by number."""
        if isinstance(other, Ciphertexts):
            return Ciphertexts(self._encrypted.add(other._encrypted))
        return Ciphertexts(self._encrypted.add_plain(self._plain(other)))

    def __radd__(self, other: Sequence[int] | int) -> Ciphertexts:
        """Adds number by number. So ``sum`` adds ciphertexts."""
        return self + other

    def __neg__(self) -> Ciphertexts:
        """The modulus minus each number."""
        return self._times(self._encrypted.modulus - 1)

    def __sub__(self, other: Ciphertexts | Sequence[int] | int) -> Ciphertexts:
        """Subtracts number by number."""
        if isinstance(other, Ciphertexts):
            return self + -other
        modulus = self._encrypted.modulus
        return self + [-number % modulus for number in self._plain(other)]

    def __rsub__(self, other: Sequence[int] | int) -> Ciphertexts:
        """Subtracts from numbers."""
        return -self + other

    def __mul__(self, numbers: Sequence[int] | int) -> Ciphertexts:
        """Multiplies number by number."""
        if isinstance(numbers, Ciphertexts):
            raise TypeError("ciphertexts cannot be multiplied with each other, only with numbers")
        return Ciphertexts(self._encrypted.multiply(self._plain(numbers)))

    def __rmul__(self, numbers: Sequence[int] | int) -> Ciphertexts:
        """Multiplies number by number."""
        return self * numbers

    def __bytes__(self) -> bytes:
        """The ciphertexts on the wire. They are not re-randomised."""
        return self._encrypted.encode()


class PaillierKey:
    """A key of Paillier's cryptosystem. See :func:`paillier`."""

    def __init__(self, bits: int) -> None:
        self._key = _engine.Paillier(_checks.whole("bits", bits))

    @property
    def modulus(self) -> int:
        """The public key."""
        return self._key.modulus

    def encrypt(self, numbers: Sequence[int]) -> Ciphertexts:
        """Encrypts whole numbers from 0 to the modulus. Fractions and negative numbers are refused:
        scale the first, and add the modulus to the others."""
        if np.ndim(numbers) == 0 and not hasattr(numbers, "__iter__"):
            raise TypeError(f"numbers are {numbers!r}; a list of whole numbers is needed")
        return Ciphertexts(self._key.encrypt(_numbers(numbers)))

    def decrypt(self, ciphertexts: Ciphertexts) -> list[int]:
        """The numbers, from 0 to the modulus."""
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
    >>> key.decrypt(sum([sums, sums]) - 22)
    [200, 422]
    """
    return PaillierKey(bits)
