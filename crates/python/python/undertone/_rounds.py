"""Rounds of sums or weighted means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._client import Client, Server
from ._jobs import SumJob, SumTerms
from ._party import Path
from ._record import Record, given


@dataclass(frozen=True)
class RoundMean:
    """The mean, or the sum, of a round."""

    round: int
    """The number of the round, from 1."""
    arrays: dict[str, NDArray[Any]]
    """The weighted mean of the contributors' arrays, or their sum."""
    weight: float
    """The total weight. For a sum: the number of contributors."""
    contributors: list[int]
    """The clients that contributed."""


def _contribution(given: Any) -> tuple[dict[str, NDArray[Any]], float]:
    """What the function of a client returned, as the engine takes it."""
    try:
        arrays, weight = given
    except (TypeError, ValueError):
        arrays, weight = None, None
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"contribute returned {type(given).__name__}; a dict of arrays by name and their "
            "weight are needed"
        )
    found = {
        _checks.text("the name of an array", name): _arrays.summands(array, f"array {name!r}")
        for name, array in arrays.items()
    }
    return found, _checks.real("weight", weight)


class RoundsClient(Client[RoundMean]):
    """A client of rounds of sums or weighted means: see :class:`Client`.

    In each round ``contribute(round, attempt, last_mean)`` returns this client's arrays by name,
    float16 to float64, and their weight. It may take long: a model is trained here. If ``attempt``
    is above 1, an earlier upload of this round was lost, and it must return other values: the same
    values in two sums could be told from their difference. ``mean(round, arrays, weight,
    contributors)`` receives each mean.

    ``terms`` are what this client agrees to (default: ``SumTerms()``). Of a job of several rounds
    it asks for fixed groups of clients that contribute whole or not at all. Without groups
    (``allow_free_sampling``) its weight, and all that hardly changes from round to round, follow
    from the means of many rounds.
    """

    def __init__(
        self,
        contribute: Callable[
            [int, int, dict[str, NDArray[Any]] | None], tuple[dict[str, NDArray[Any]], float]
        ],
        mean: Callable[[int, dict[str, NDArray[Any]], float, list[int]], object] | None = None,
        *,
        terms: SumTerms | None = None,
        record: Record | str | None = None,
    ) -> None:
        self._client = _engine.rounds_client(
            (terms or SumTerms())._rules(),
            lambda *asked: _contribution(contribute(*asked)),
            mean,
            given(record),
        )

    @staticmethod
    def _gave(result: Any) -> RoundMean:
        return RoundMean(*result)


class RoundsServer(Server[RoundMean]):
    """The server of rounds of sums or weighted means: see :class:`Server`."""

    def __init__(self, job: SumJob, *, checkpoint: Path | None = None) -> None:
        super().__init__(_engine.rounds_server(job._rules()), checkpoint)

    @staticmethod
    def _gave(result: Any) -> RoundMean:
        return RoundMean(*result)
