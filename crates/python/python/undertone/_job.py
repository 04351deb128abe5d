"""What jobs, and terms of clients, have in common."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar

from . import _checks, _engine

if TYPE_CHECKING:
    from typing_extensions import Self


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

    @property
    def offer(self) -> bytes:
        """The job as a server offers it, with a value for every key."""
        return _engine.job_offer(self._application, _stated(self))

    @property
    def file(self) -> str:
        """The job as a job file of ``undertone serve``. What is None follows from the server's
        files there, such as ``malicious_server`` from the keys on its roster."""
        unstated = {key for key, value in _stated(self).items() if value is None}
        lines = [f'application = "{self._application}"']
        for line in self.offer.decode().splitlines():
            if line.partition(" ")[0] not in unstated:
                lines.append(line)
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, offer: bytes) -> Self:
        """The job of an :attr:`offer`. Raises ``ValueError`` if it is none."""
        values = _engine.job_read(cls._application, offer)
        return cls(**{key + "_" * iskeyword(key): value for key, value in values.items()})

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

    def check(self, job: Job, *, signed: bool) -> None:
        """Raises :class:`RefusedError` if the job does not meet these terms. ``signed`` says
        whether the client knows a key of every client."""
        _engine.check_terms(job._application, job._rules(), self._rules(), signed)

    def _rules(self) -> dict[str, Any]:
        return _stated(self)
