"""Arrays of numbers as users bring them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_REMEDIES = {
    "c": "real numbers are needed: pass x.real, or numpy.abs(x)",
    "m": "numbers are needed: divide by a unit, as in x / numpy.timedelta64(1, 'D')",
    "M": "numbers are needed: pass a difference in a unit, as in (x - x.min()) / "
    "numpy.timedelta64(1, 'D')",
    "O": "numbers are needed: pass x.astype(float), or x.to_numpy(float) of a table",
    "S": "numbers are needed: pass x.astype(float), or a number for each text",
    "U": "numbers are needed: pass x.astype(float), or a number for each text",
}
_OTHERS = "numbers are needed: pass x.astype(numpy.float32)"


def refuse_sparse(given: Any, what: str) -> None:
    """Raises ``TypeError`` for a sparse matrix of any library."""
    if isinstance(given, np.ndarray) or not hasattr(given, "nnz"):
        return
    for method in ("toarray", "todense"):
        if hasattr(given, method):
            raise TypeError(f"{what} a sparse matrix; pass x.{method}()")


def numbers(given: Any, what: str) -> NDArray[Any]:
    """The given array of integers, floats or booleans. ``what`` begins messages: "features are".

    Raises ``TypeError`` for everything else, and ``ValueError`` for an array with masked entries.
    """
    refuse_sparse(given, what)
    is_masked = isinstance(given, np.ma.MaskedArray)
    if not is_masked and isinstance(given, (list, tuple)):
        # numpy.asarray drops the masks of the entries.
        is_masked = any(isinstance(one, np.ma.MaskedArray) for one in given)
    if is_masked:
        mask = np.ma.getmaskarray(np.ma.array(given))
        if mask.any():
            first = [int(at) for at in np.argwhere(mask)[0]]
            raise ValueError(
                f"{what} masked at {first}; fill what is masked, as in x.filled(0), or leave out "
                "such rows"
            )
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{what} no array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        if array.dtype.names:
            names = ", ".join(array.dtype.names[:3])
            raise TypeError(
                f"{what} records with the fields {names}; numbers are needed: pass "
                "numpy.lib.recfunctions.structured_to_unstructured(x)"
            )
        raise TypeError(f"{what} of {array.dtype}; {_REMEDIES.get(array.dtype.kind, _OTHERS)}")
    return array


def floats(given: Any, what: str) -> NDArray[Any]:
    """The same numbers as float32 if it holds them exactly, else as float64, row after row.

    They are copied only if they are not stored so.
    """
    array = numbers(given, what)
    kind = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
    # numpy.ascontiguousarray makes a list of a single number.
    return np.asarray(array, dtype=kind, order="C")


def matrix(given: Any, what: str, kind: type[Any], shape: str) -> NDArray[Any]:
    """Numbers of two dimensions as ``kind``, row after row. ``what`` is as in "features"."""
    array = numbers(given, f"{what} are")
    if array.ndim != 2:
        raise ValueError(f"{what} have shape {array.shape}; {shape} is needed")
    return np.asarray(array, dtype=kind, order="C")


def rows(given: Any, *, codes: bool = False, what: str = "") -> NDArray[Any]:
    """Features as floats, or ``codes`` as they are. ``what`` begins messages: "client 0: "."""
    if not codes:
        return floats(given, f"{what}features are")
    array = numbers(given, f"{what}codes are")
    if array.dtype != np.uint8:
        raise TypeError(
            f"{what}codes are of {array.dtype}; uint8 is needed, as numpy.packbits(bits, axis=1) "
            "makes them"
        )
    return np.asarray(array, order="C")


def summands(given: Any, what: str) -> NDArray[Any]:
    """An array of a sum: float32 or float64. Half precision is widened; ``what`` is as in
    "array 'w'".

    Raises ``TypeError`` for integers and booleans, whose means are no such numbers.
    """
    array = numbers(given, f"{what} is")
    if array.dtype.kind != "f":
        raise TypeError(
            f"{what} is of {array.dtype}; float16, float32 or float64 is needed: leave it out, or "
            "pass x.astype(numpy.float32)"
        )
    return floats(array, f"{what} is")
