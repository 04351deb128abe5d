"""The record of answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import NoReturn

from . import _checks, _engine
from ._party import Path


@dataclass(frozen=True)
class RecordAnswer:
    """What was answered."""

    day: str
    """The day, such as ``4 May 2026``; empty where answers of several days are counted together."""
    what: str
    """The application, and what was answered."""


@dataclass(frozen=True)
class RecordAllowance:
    """What the owner allowed once."""

    day: str
    """The day, such as ``4 May 2026``."""
    what: str
    """What was allowed: see :meth:`Record.allow`."""
    reason: str
    """Why."""
    used: bool
    """Whether an answer has used it."""


@dataclass(frozen=True)
class RecordContent:
    """What a record says."""

    made: str
    """The day on which it was made."""
    rows: int
    """The number of rows that it knows."""
    answers: list[RecordAnswer]
    """What was answered, in order."""
    allowed: list[RecordAllowance]
    """What the owner allowed."""
    left: list[str]
    """What may be answered without an allowance, one text for each application."""


class Record:
    """The record of answers of a client's data, on disk.

    A client's data may answer some questions once: a sum of the same values, a round, an exchange,
    a graph, three sessions of label propagation. A second answer, or one among other clients, shows
    single clients. The record has what was answered. A client writes to it before the message
    leaves, and refuses what the record does not allow.

    ``name`` is a name that the owner of the data gives. ``records`` is the folder of all records.
    The default is the environment variable ``UNDERTONE_RECORDS``, else the folder of a systemd
    service, else ``undertone/records`` in the user's state folder. :meth:`new` makes a record,
    before a first job, as ``undertone record new NAME`` does. Make no backup of it.
    ``accept_volatile=True`` takes the risk of a folder that a restart may lose.

    Several processes may use a record, also forked ones: each answer is judged by what all of them
    have written. A record cannot be pickled; another process opens it by its name.

    Raises ``ValueError`` if there is none, or if it cannot be read, written and locked.

    >>> import tempfile, undertone
    >>> folder = tempfile.mkdtemp()
    >>> record = undertone.Record.new("ward-7", folder, accept_volatile=True)
    >>> record.allow("session", "the hospital agreed to a fourth one")
    >>> record.show().left[0], record.show().allowed[0].what
    ('label: 3 of 3 sessions', 'session')
    """

    _record: _engine.Record

    def __init__(
        self, name: str, records: Path | None = None, accept_volatile: bool = False
    ) -> None:
        self._record = _engine.Record(
            _checks.text("name", name),
            _folder(records),
            _checks.flag("accept_volatile", accept_volatile),
        )

    @classmethod
    def _of(cls, record: _engine.Record) -> Record:
        made = cls.__new__(cls)
        made._record = record
        return made

    @classmethod
    def new(
        cls, name: str, records: Path | None = None, accept_volatile: bool = False
    ) -> Record:
        """Makes the record ``name``.

        Raises ``ValueError`` if it exists or cannot be kept there.
        """
        made = _engine.Record.create(
            _checks.text("name", name),
            _folder(records),
            _checks.flag("accept_volatile", accept_volatile),
        )
        return cls._of(made)

    @classmethod
    def simulated(cls) -> Record:
        """A record in memory, which this process forgets. It is for trials."""
        return cls._of(_engine.Record.simulated(None))

    @property
    def name(self) -> str | None:
        """The name; None in memory."""
        return self._record.name

    @property
    def folder(self) -> FilePath | None:
        """The folder of this record; None in memory."""
        return self._record.folder

    def allow(self, what: str, reason: str) -> None:
        """Lets the owner allow once what the record refuses. It keeps ``reason``.

        ``what`` is ``"session"`` (one more session of label propagation), ``"contributors"`` (label
        propagation or scaling among other clients), ``"values"`` (values that were sent before),
        ``"new-job"`` (a new job of training or co-training), ``"again"`` (another graph over the
        same rows) or ``"rows"`` (rows of which the record knows none, or that another one knows).
        """
        reason = _checks.text("reason", reason).strip()
        if not reason or not reason.isprintable():
            raise ValueError("reason must be one line that says why")
        self._record.allow(_checks.text("what", what), reason)

    def show(self) -> RecordContent:
        """What the record says."""
        made, rows, answers, allowed, left = self._record.shown()
        return RecordContent(
            made,
            rows,
            [RecordAnswer(*one) for one in answers],
            [RecordAllowance(*one) for one in allowed],
            left,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a record cannot be pickled; open it by its name in the other process")

    def __repr__(self) -> str:
        return f"<Record: {'in memory' if self.name is None else self.name}>"


def _folder(records: Path | None) -> Path | None:
    return None if records is None else FilePath(records).expanduser()


def given(record: Record | str | None) -> _engine.Record | None:
    """The record of a party, as the engine takes it."""
    if record is None:
        return None
    if isinstance(record, str):
        record = Record(record)
    if not isinstance(record, Record):
        raise TypeError(f"record is {record!r}; a Record or the name of one is needed")
    return record._record
