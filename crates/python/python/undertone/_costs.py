"""What parties spend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SERVER = -1
"""The number of the server. Clients are numbered from 0."""


@dataclass(frozen=True)
class Cost:
    """What one party spent in one phase."""

    phase: str
    """The name of the phase."""
    bytes_sent: int
    """Bytes of the frames that the party sent."""
    bytes_received: int
    """Bytes of the frames that the party consumed."""
    messages: int
    """Messages that the party sent."""
    rounds: int
    """Distinct causal depths of the messages: how many had to follow one another."""
    seconds: float
    """Time that the party computed."""


def of_phases(phases: Sequence[tuple[str, int, int, int, int, float]]) -> list[Cost]:
    return [Cost(*phase) for phase in phases]


def of_parties(
    parties: Sequence[tuple[int, Sequence[tuple[str, int, int, int, int, float]]]],
) -> dict[int, list[Cost]]:
    return {party: of_phases(phases) for party, phases in parties}
