"""Labels, classes and columns as users bring them. The engine decides what they mean."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _engine
from ._arrays import refuse_sparse


def stated(classes: int | Sequence[str] | None) -> int | list[str] | None:
    """The number of classes, or their names."""
    if classes is None:
        return None
    if isinstance(classes, str):
        raise TypeError(f"classes is {classes!r}; it is a number, or a list of names")
    try:
        return operator.index(classes)  # type: ignore[arg-type]
    except TypeError:
        pass
    names = list(classes)  # type: ignore[arg-type]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"classes has {name!r}; it is a number, or a list of names")
    return [str(name) for name in names]


def columns_of(features: Any) -> list[str]:
    """The names of a DataFrame's columns. Arrays have none, nor has a DataFrame that numbers its
    columns."""
    columns = getattr(features, "columns", None)
    if columns is None or not hasattr(features, "shape"):
        return []
    names = [name.item() if isinstance(name, np.generic) else name for name in columns]
    return [] if names == list(range(len(names))) else [str(name) for name in names]


def as_labels(labels: Any) -> NDArray[Any] | list[str]:
    """Labels as int64 or float64, or as texts. An entry that is missing becomes an empty text."""
    if isinstance(labels, np.ma.MaskedArray):
        whole: Any = labels.astype(object)
        is_masked = np.ma.getmaskarray(labels).any()
        return as_labels(whole.filled(None) if is_masked else labels.data)
    refuse_sparse(labels, "labels are")
    array = np.asarray(labels)
    kind = array.dtype.kind
    if kind == "i" or (kind == "u" and not (array.size and array.max() > np.iinfo(np.int64).max)):
        return np.ascontiguousarray(array, dtype=np.int64)
    if kind == "f":
        return np.ascontiguousarray(array, dtype=np.float64)
    if kind not in "ubOSUT":
        raise TypeError(f"labels are of {array.dtype}; whole numbers or texts are needed")
    if array.ndim != 1:
        raise ValueError(f"labels have shape {array.shape}; [rows] is needed")
    return [_text(entry, row) for row, entry in enumerate(array.tolist())]


def as_classes(labels: Any) -> NDArray[np.int64]:
    """Labels as class numbers, int64 with -1 where there is none."""
    given = as_labels(labels)
    if isinstance(given, np.ndarray) and given.dtype == np.int64:
        return given
    if isinstance(given, list) and set(given) <= {"False", "True", ""}:
        return np.array([-1 if one == "" else one == "True" for one in given], np.int64)
    numbers, names = _engine.parse_labels(given, None)
    if names:
        raise TypeError(
            "labels are texts; class numbers are needed: numpy.unique(labels, return_inverse=True) "
            "gives them"
        )
    return numbers


def complete(labels: Any, what: str) -> NDArray[np.int64]:
    """Labels of which each row needs one, as class numbers."""
    try:
        numbers = as_classes(labels)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None
    if numbers.ndim != 1:
        raise ValueError(f"{what} have shape {numbers.shape}; [rows] is needed")
    return numbers


def _text(entry: Any, row: int) -> str:
    """A label as a file would have it."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, bytes):
        return entry.decode()
    if isinstance(entry, (bool, int)):
        return str(entry)
    if isinstance(entry, float):
        return "" if entry != entry else repr(entry)
    if isinstance(entry, np.generic):
        return _text(entry.item(), row)
    # pandas has values of its own for what is missing.
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return ""
    raise TypeError(
        f"labels[{row}] is of {type(entry).__name__}; whole numbers or texts are needed, None "
        "where there is no label"
    )
