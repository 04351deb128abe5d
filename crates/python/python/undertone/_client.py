"""Clients and servers of jobs, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from . import _checks, _engine
from ._job import Job
from ._party import Party, Path, PublicKeys, credentials, replayed, session_id
from ._record import Record, given

R_co = TypeVar("R_co", covariant=True)
"""What a client or a server has at the end of a session."""


class Session(Party, Generic[R_co]):
    """A client or a server in one session of a job. It does no I/O: see :class:`Party`.

    An exception of a function or an object of the caller, such as a model, leaves through
    :meth:`poll` or :meth:`exchange`. Peers are told that this party failed, and not why.
    """

    def __init__(
        self,
        party: _engine.Party,
        session: bytes,
        number: int,
        clients: list[int],
        result: Callable[[Any], R_co],
    ) -> None:
        self._party = party
        self._result = result
        self.session = session
        """The id of the session."""
        self.number = number
        """The number of the session in the job. Clients need it."""
        self.clients = clients
        """At the server: the clients of the session."""

    def replay(self, journal: Path, past: Sequence[bytes], message: bytes) -> bytes:
        """Runs this new party again over the bundles ``past``, then takes ``message``.

        See :meth:`SumClient.replay`. A model or a learner must do the same each time.
        """
        return replayed(self._party, journal, past, message)

    def result(self) -> R_co | None:
        """What the session gave, once; None before it has ended, and None where a session has no
        result."""
        result = self._party.result()
        return None if result is None else self._result(result)


class Client(Generic[R_co]):
    """What a client brings to a job: its data, its terms and its record.

    Each application has a class that makes one: :class:`LabelClient`, :class:`RoundsClient`,
    :class:`TrainClient`, :class:`CotrainClient`, :class:`PsslClient`, :class:`FedGraphClient`.
    :func:`join` takes it to a job on a network, :mod:`undertone.flower` to one on Flower, and
    :meth:`session` to one whose messages you move. It takes part in one job.

    ``record`` is the :class:`Record` of the client's data, or its name. It says what these data
    have answered, and refuses the rest. Without a record the client refuses before its first
    answer, unless :func:`run` moves its frames.

    Raises :class:`RefusedError` if the record is of other rows.
    """

    _client: _engine.Client

    @property
    def application(self) -> str:
        """The application, as users type it."""
        return self._client.application

    def session(
        self,
        job: Job,
        session: bytes,
        *,
        index: int,
        number: int = 0,
        key: str | None = None,
        public_keys: PublicKeys | None = None,
        seed: bytes | int | None = None,
    ) -> Session[R_co]:
        """The client's party in a session of ``job``. It begins when the session before has
        ended.

        ``session`` is the id that the server chose, 32 bytes, ``number`` that of the session in the
        job. ``index`` is the client's number, the same in all sessions of a job. ``key`` and
        ``public_keys`` are as for :class:`SumClient`. Give them where there are any: without them
        nobody knows whether the clients of a second job are those of the first. ``seed`` is for
        tests.

        Raises :class:`RefusedError` if the job does not meet the client's terms, and ``ValueError``
        if its data do not fit the job, or if it has taken part in another one.
        """
        signing = credentials(key, public_keys)
        if signing is None and getattr(job, "malicious_server", None):
            raise ValueError("a job with malicious_server=True needs key and public_keys")
        session = _checks.octets("session", session)
        party = self._client.session(
            job._rules(),
            session,
            _checks.whole("index", index),
            _checks.whole("number", number, least=0),
            signing,
            _checks.seed(seed),
        )
        return Session(party, session, number, [], self._gave)

    def agree(self, job: Job, *, signed: bool) -> None:
        """Agrees to a job, and to no other from now on. ``signed`` says whether the client knows a
        key of every client. :meth:`session` agrees, too; it raises the same."""
        self._client.agree(job._rules(), signed)

    def keep(self, record: Record | str) -> None:
        """From now on this is the client's record. It has none yet."""
        self._client.keep(given(record))

    def _remember(self, memo: dict[str, NDArray[Any]]) -> None:
        """Parties of this client run again for each message: what its objects do once is in
        ``memo`` from then on."""

    @staticmethod
    def _gave(result: Any) -> R_co:
        raise NotImplementedError


class Server(Generic[R_co]):
    """The server of a job, for a transport of your own.

    Each application has a class that makes one: :class:`LabelServer`, :class:`RoundsServer`,
    :class:`TrainServer`, :class:`CotrainServer`, :class:`PsslServer`, :class:`FedGraphServer`.
    A job is one session, or a sequence of them. A client need not be in all sessions::

        while not server.done:
            party = server.session(present)
            ...                       # move frames between party and the clients party.clients
            report = party.result()

    ``checkpoint``, where there is such an argument, is a file in which the server keeps the state
    of the job. A server with the same job and the same file continues the job. What it must
    remember is in the file before :meth:`session` returns: no round begins twice. The file is
    removed when the job is done, unless the application says otherwise. A session that fails is
    followed by another one, until ``done``: of training and co-training with the next number, of
    others with the same.
    """

    _server: _engine.Server

    def __init__(self, server: _engine.Server, checkpoint: Path | None = None) -> None:
        self._server = server
        if checkpoint is not None:
            server.restore(checkpoint)

    @property
    def done(self) -> bool:
        """Whether the job is over: its last session has ended."""
        return self._server.done

    def members(self, present: Sequence[int]) -> list[int]:
        """The clients of the next session if these are present; empty if there can be none. Where
        an application draws them, each call draws anew."""
        return self._server.members(list(present), None)

    def session(
        self,
        present: int | Sequence[int],
        *,
        session: bytes | None = None,
        seed: bytes | int | None = None,
    ) -> Session[R_co]:
        """Begins the next session. ``present`` are the clients that could take part, or their
        number; ``clients`` of the result do. ``session`` is its id, 32 bytes (default: a fresh
        one). ``seed`` is for tests.

        Raises ``ValueError`` if these are too few.
        """
        if isinstance(present, int):
            present = range(_checks.whole("present", present, least=0))
        session = session_id(session)
        number, clients, party = self._server.begin(list(present), session, _checks.seed(seed))
        return Session(party, session, number, clients, self._gave)

    @staticmethod
    def _gave(result: Any) -> R_co:
        raise NotImplementedError
