"""What jobs, and terms of clients, have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from . import _checks, _engine


def _stated(given: Any) -> dict[str, Any]:
    """The values by their keys. Python's keywords have an underscore more as names of fields."""
    return {key.removesuffix("_"): value for key, value in _checks.job(given).items()}


class Job:
    """A job of an application. Its subclasses are frozen dataclasses."""

    _application: ClassVar[str]

    def __init_subclass__(cls, application: str) -> None:
        cls._application = application

    def __post_init__(self) -> None:
        _engine.job_digest(self._application, _stated(self))

    @property
    def digest(self) -> bytes:
        """32 bytes, by which parties compare their jobs."""
        return _engine.job_digest(self._application, _stated(self))

    def _rules(self) -> dict[str, Any]:
        return _stated(self)


class VotesJob(Job, application=""):
    """A job whose clients vote, perhaps with noise."""

    def __init_subclass__(cls, application: str) -> None:
        super().__init_subclass__(application)

    @property
    def vote_epsilon(self) -> float | None:
        """Epsilon of one vote in one exchange; None without noise.

        One training row can change a client's votes for all public rows in all exchanges. The
        epsilon of a training row is therefore only bounded by this number times ``rows`` times
        ``exchanges``.
        """
        return _engine.cotrain_epsilon(self._rules())


class Terms:
    """What a client agrees to. Its subclasses are frozen dataclasses."""

    def _rules(self) -> dict[str, Any]:
        return _stated(self)
