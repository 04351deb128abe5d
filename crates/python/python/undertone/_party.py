"""Parties that do no I/O."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from numpy.typing import NDArray

from . import _checks, _engine
from ._costs import Cost, of_phases

BYTES_PER_POLL = 4 << 20

Path = str | PathLike[str]


def session_id(session: bytes | None) -> bytes:
    """The given session id, or a fresh one of 32 bytes."""
    return secrets.token_bytes(32) if session is None else _checks.octets("session", session)


class Party:
    """One party of a protocol. It does no I/O.

    Hand it the frames that arrive (:meth:`push`) and send the frames that are due (:meth:`poll`).
    Say who dropped out (:meth:`gone`). Frames may arrive in any order.
    """

    _party: _engine.Party

    @property
    def id(self) -> int:
        """The party's number; -1 is the server."""
        return self._party.id

    @property
    def done(self) -> bool:
        """Whether the protocol has ended and all frames are sent."""
        return self._party.done

    @property
    def phase(self) -> str:
        """The name of the phase of the last step."""
        return self._party.phase

    @property
    def waits_for(self) -> list[int]:
        """The parties whose frames are due."""
        return self._party.waits_for

    def push(self, sender: int, frame: bytes) -> None:
        """Takes a frame that ``sender`` sent. The caller vouches for the sender.

        Raises ``ValueError`` for a frame that is malformed or not for this party. The party
        continues without it.
        """
        self._party.push(sender, frame)

    def gone(self, who: int) -> None:
        """Says that ``who`` has dropped out. Frames of it that have arrived still count."""
        self._party.gone(who)

    def abandon(self) -> None:
        """Abandons the protocol. The next :meth:`poll` gives the notices for the others."""
        self._party.abandon()

    def poll(self, most: int = BYTES_PER_POLL) -> list[tuple[int, bytes]]:
        """The frames that are due, in order, as ``(receiver, frame)``.

        At most about ``most`` bytes come at once, so that large arrays are never in memory twice.
        Call it until the list is empty. The interpreter lock is free while it computes.

        Raises :class:`AbortedError` when the protocol has failed and all notices are sent, and
        :class:`RefusedError` when a client's record of answers has refused. Its text is for the
        owner; the notices say less.
        """
        return self._party.poll(most)

    def exchange(self, bundle: bytes) -> bytes:
        """Takes a bundle of frames, and returns the bundle of all frames that are due.

        A bundle is what :func:`undertone.pack` makes and :func:`undertone.unpack` reads.
        """
        return self._party.exchange(bundle)

    @property
    def costs(self) -> list[Cost]:
        """What the party has spent so far, phase by phase."""
        return of_phases(self._party.costs())

    def __repr__(self) -> str:
        who = "server" if self.id < 0 else f"client {self.id}"
        return f"<{type(self).__name__}: {who}, {self.phase}>"


def pack(frames: list[tuple[int, bytes]], gone: list[int] | None = None) -> bytes:
    """A bundle: frames with their peers, and parties that dropped out.

    The peer is the sender where a party takes the bundle, the receiver where it made it.

    >>> unpack(pack([(-1, b"frame")], gone=[2]))
    ([(-1, b'frame')], [2])
    """
    parts = []
    for peer in gone or []:
        parts.append((peer & 0xFFFFFFFF).to_bytes(4, "little") + bytes(4))
    for peer, frame in frames:
        if not frame:
            raise ValueError("a frame is empty")
        parts.append((peer & 0xFFFFFFFF).to_bytes(4, "little"))
        parts.append(len(frame).to_bytes(4, "little"))
        parts.append(frame)
    return b"".join(parts)


def unpack(bundle: bytes) -> tuple[list[tuple[int, bytes]], list[int]]:
    """The frames of a bundle with their peers, and the parties that dropped out.

    Raises ``ValueError`` when the bundle is cut short.
    """
    frames, gone, at, view = [], [], 0, memoryview(bundle)
    while at < len(view):
        if at + 8 > len(view):
            raise ValueError("the bundle is cut short")
        peer = int.from_bytes(view[at : at + 4], "little")
        size = int.from_bytes(view[at + 4 : at + 8], "little")
        peer = -1 if peer == 0xFFFFFFFF else peer
        at += 8
        if at + size > len(view):
            raise ValueError("the bundle is cut short")
        if size:
            frames.append((peer, bytes(view[at : at + size])))
        else:
            gone.append(peer)
        at += size
    return frames, gone


def replayed(
    party: _engine.Party,
    journal: Path,
    past: Sequence[bytes],
    message: bytes,
    values: Callable[[], tuple[Any, float, int | None]] = lambda: ([], 0.0, None),
    sent: bytes | None = None,
) -> bytes:
    """Runs a new party again over ``past``, and takes ``message``."""
    return party.replay(journal, [bytes(one) for one in past], bytes(message), values, sent)


PublicKeys = Sequence[bytes] | Mapping[str, bytes]
"""The public keys of all clients, in order, perhaps by name."""


def credentials(
    key: str | None, public_keys: PublicKeys | None
) -> tuple[str, Sequence[bytes], list[str]] | None:
    """The keys as the engine takes them."""
    if (key is None) != (public_keys is None):
        raise ValueError("give both key and public_keys, or neither")
    if key is None or public_keys is None:
        return None
    if isinstance(public_keys, Mapping):
        return key, list(public_keys.values()), list(public_keys)
    return key, public_keys, []
