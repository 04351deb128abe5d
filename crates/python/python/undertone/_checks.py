"""Single arguments as users bring them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """A whole number of any type. Nothing is rounded."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; a whole number is needed") from None
    if number < least or (most is not None and number > most):
        most_text = "or more" if most is None else f"to {most}"
        raise ValueError(f"{name} is {number}; it must be {least} {most_text}")
    return number


def real(name: str, value: Any) -> float:
    """A number of any type."""
    if not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} is {value!r}; a number is needed")


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    number = real(name, value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} is {number:g}; it must be above 0 and finite")
    return number


def word(name: str, value: Any) -> int:
    """The bits of a word."""
    number = whole(name, value)
    if number not in (32, 64):
        raise ValueError(f"{name} is {number}; it must be 32 or 64")
    return number


def seconds(name: str, value: Any) -> float:
    """A time."""
    number = real(name, value)
    if not 0 <= number < 1e9:
        raise ValueError(f"{name} is {number:g}; it must be a number of seconds, 0 or more")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {value!r}; True or False is needed")
    return bool(value)


def text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; a text is needed")
    return value


def octets(name: str, value: Any, length: int | None = 32) -> bytes:
    """Bytes, of this length if it is given."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        needed = "bytes" if length is None else f"{length} bytes"
        raise TypeError(f"{name} is of {type(value).__name__}; {needed} are needed")
    found = bytes(value)
    if length is not None and len(found) != length:
        raise ValueError(f"{name} has {len(found)} bytes; {length} are needed")
    return found


def seed(value: Any) -> bytes | None:
    """A seed: 32 bytes, or a number."""
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return octets("seed", value)
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise ValueError(
            f"seed is {value!r}; it is 32 bytes, or a whole number from 0 to 2**64 - 1"
        )
    return number.to_bytes(8, "little") + bytes(24)


def noise(value: Any) -> tuple[float, bytes] | None:
    """Noise on labels: epsilon, and a secret of 32 bytes."""
    if value is None:
        return None
    try:
        epsilon, secret = value
    except (TypeError, ValueError):
        raise TypeError("noise is a pair, (epsilon, secret)") from None
    return real("epsilon of noise", epsilon), octets("the secret of noise", secret)


def _count(name: str, value: Any) -> int:
    return whole(name, value, most=(1 << 32) - 1)


def texts(name: str, values: Any) -> list[str]:
    """A sequence of texts, which is no text itself."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a sequence of texts, not {type(values).__name__}")
    return [text(name, value) for value in values]


_KINDS = {
    "int": _count,
    "float": real,
    "bool": flag,
    "str": text,
    "bytes": octets,
    "tuple[str, ...]": texts,
}


def fields(values: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The values, each checked by the annotation of its field, such as ``"int | None"``."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        kind, _, rest = kinds[name].partition(" | ")
        if value is None and rest == "None":
            checked[name] = None
        elif isinstance(value, str) and rest == "str":
            checked[name] = value
        else:
            checked[name] = _KINDS[kind](name, value)
    return checked


def job(given: Any) -> dict[str, Any]:
    """The checked fields of a job, a dataclass without others inside."""
    kinds = {name: str(kind) for name, kind in type(given).__annotations__.items()}
    return fields({name: getattr(given, name) for name in kinds}, kinds)
