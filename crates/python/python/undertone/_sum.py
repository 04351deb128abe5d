"""Secure sums and weighted means of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arrays, _checks, _engine
from ._party import Party, Path, PublicKeys, credentials, replayed
from ._record import Record, given

Arrays = NDArray[Any] | Sequence[NDArray[Any]]


@dataclass(frozen=True)
class SumResult:
    """What the server of a sum learns."""

    values: NDArray[np.float64]
    """The weighted mean, or the sum: float64 of shape [size]."""
    weight: float
    """The total weight of the contributors. For a sum, their number."""
    contributors: list[int]
    """The clients whose values are in it."""
    suspects: list[int]
    """Clients that revealed a false share of a secret, or were dealt one. The values are right."""


_RULES = {
    "clients": "int",
    "size": "int",
    "bound": "float",
    "max_weight": "float",
    "mean": "bool",
    "clip": "bool",
    "bits": "int | None",
    "min_clients": "int",
    "malicious_server": "bool",
    "suite": "str",
    "groups": "int | None",
}


def _rules(
    session: bytes,
    clients: int,
    size: int,
    bound: float,
    max_weight: float,
    mean: bool,
    clip: bool,
    bits: int | None,
    min_clients: int,
    malicious_server: bool,
    suite: str,
    groups: int | None,
    about: bytes,
) -> dict[str, Any]:
    rules: dict[str, Any] = {
        "clients": clients,
        "size": size,
        "bound": bound,
        "max_weight": max_weight,
        "mean": mean,
        "clip": clip,
        "bits": bits,
        "min_clients": min_clients,
        "malicious_server": malicious_server,
        "suite": suite,
        "groups": groups,
    }
    rules = _checks.fields(rules, _RULES)
    if bits is None:
        weight = rules["max_weight"] if rules["mean"] else None
        rules["bits"] = _engine.word_bits(rules["bound"], weight, rules["clients"])
    return {
        **rules,
        "session": _checks.octets("session", session),
        "about": _checks.octets("about", about, None),
    }


def _listed(arrays: Arrays) -> list[NDArray[Any]]:
    if isinstance(arrays, (list, tuple)):
        return [_arrays.summands(one, f"array {place}") for place, one in enumerate(arrays)]
    return [_arrays.summands(arrays, "the array")]


class SumClient(Party):
    """A client of a secure sum or weighted mean.

    The server learns the mean over all contributors and their total weight. It learns no single
    client's values or weight, also if it colludes with a tenth of the clients (at least one).

    ``session`` is 32 bytes that the server chose afresh. All parties need the same ``clients``
    (their number), ``size`` (values of each client), ``bound`` (largest magnitude of a value),
    ``max_weight``, ``mean`` (otherwise the sum), ``bits`` of a word (32 halves the bytes, 64 is
    more precise; by default 32 if a step of the last bit is then at most 2**-16 of the bound, in a
    mean of total weight 1), ``min_clients``, ``malicious_server``, ``suite`` and ``clip``. With
    ``clip`` values beyond the bound are moved to it and counted. Otherwise they are refused.
    With ``groups`` the clients form fixed groups of that many or more, in the order of their
    numbers, which contribute whole or not at all: many means of the same clients then tell sums
    over groups, and no client's weight. ``about`` is whatever else they agree on, such as a digest
    of what the values mean and in which order. A client with other arguments than the rest ends the
    sum before it adds anything.

    The values are due late, at the upload, when :attr:`needs_values` is true. A client that trains
    a model trains then. ``values`` given here are used at once.

    With ``malicious_server`` the sum withstands a server that lies about who dropped out. It needs
    ``key``, this client's private key (PEM), and ``public_keys`` of all clients, in order: a list,
    or a dict by name, as :func:`undertone.read_roster` returns it.

    ``record`` is the :class:`Record` of this client's data, or its name. Without one the client
    refuses before its first answer, unless :func:`run` moves its frames.
    It refuses values that were sent before: two sums of the same values, one with another client
    and one without it, show that client's values.

    ``seed`` (32 bytes) fixes all secrets. It serves one session only. Leave it out, except in tests
    and with :meth:`replay`.

    >>> import numpy as np, undertone
    >>> session = undertone.session_id(None)
    >>> rules = dict(session=session, clients=3, size=2, bound=8.0, max_weight=100.0)
    >>> server = undertone.SumServer(**rules)
    >>> clients = [undertone.SumClient(index, **rules) for index in range(3)]
    >>> undertone.run(server, clients)  # until values are due
    >>> for weight, client in enumerate(clients, start=1):
    ...     clipped = client.contribute(np.array([0.5, weight], np.float32), weight)
    >>> undertone.run(server, clients)
    >>> result = server.result()
    >>> result.values.round(4).tolist(), result.weight, result.contributors
    ([0.5, 2.3333], 6.0, [0, 1, 2])
    """

    def __init__(
        self,
        index: int,
        *,
        session: bytes,
        clients: int,
        size: int,
        bound: float,
        max_weight: float = 1.0,
        mean: bool = True,
        clip: bool = False,
        bits: int | None = None,
        min_clients: int = 3,
        malicious_server: bool = False,
        suite: str = "aes128ctr",
        groups: int | None = None,
        about: bytes = b"",
        values: Arrays | None = None,
        weight: float = 1.0,
        key: str | None = None,
        public_keys: PublicKeys | None = None,
        record: Record | str | None = None,
        seed: bytes | int | None = None,
    ) -> None:
        rules = _rules(
            session, clients, size, bound, max_weight, mean, clip, bits, min_clients,
            malicious_server, suite, groups, about,
        )
        self._party = _engine.sum_client(
            rules,
            _checks.whole("index", index),
            credentials(key, public_keys),
            given(record),
            _checks.seed(seed),
        )
        self.clipped = 0
        """Number of values that were clipped."""
        if values is not None:
            self.contribute(values, weight)

    @property
    def needs_values(self) -> bool:
        """Whether the protocol waits for :meth:`contribute`."""
        return self._party.status == "held"

    def contribute(self, values: Arrays, weight: float = 1.0) -> int:
        """Gives the values: one array, or a list of arrays, with ``size`` values in all.

        float32 and float64 arrays are read where they are, without the interpreter lock: no other
        thread may write to them meanwhile. If one does, some value of the sum is old or new; each
        is read once, and what is checked is what is summed. float16 is widened. Returns how many
        values were clipped.

        Raises ``ValueError`` for values beyond the bound (without ``clip``), for NaN and
        infinities, and for another number of values, and ``TypeError`` for arrays of other types;
        then other values can be given.
        """
        self.clipped = self._party.contribute(_listed(values), _checks.real("weight", weight))
        return self.clipped

    def replay(
        self,
        journal: Path,
        past: Sequence[bytes],
        message: bytes,
        values: Callable[[], tuple[Arrays, float] | tuple[Arrays, float, int]],
        *,
        sent: bytes | None = None,
    ) -> bytes:
        """Runs this new party again over the bundles ``past``, then takes ``message``.

        For frameworks that start a new process for each message. The caller keeps the seed and the
        bundles. ``journal`` is a folder on disk in which each step is noted before its reply is
        returned. ``values`` is called when values are due, and returns arrays and weight, and
        perhaps the number of arrays by which the record is to know them, the first ones. By default
        it knows them by all. Messages after this one need the :attr:`sent` of then.

        Raises :class:`RefusedError` when the session would be rewound: when a step was taken before
        with another message or another reply, or when the journal is lost.
        """

        def due() -> tuple[Arrays, float, int | None]:
            arrays, weight, *first = values()
            known = _checks.whole("the number of known arrays", first[0]) if first else None
            return _listed(arrays), _checks.real("weight", weight), known

        before = None if sent is None else _checks.octets("sent", sent)
        return replayed(self._party, journal, past, message, due, before)

    @property
    def sent(self) -> bytes | None:
        """The digest of the values that were given, by which the record knows them."""
        return self._party.sent

    def result(self) -> list[int] | None:
        """The contributors that the server named, once this client has done its part. The values
        are for the server only, and only the server knows whether the sum succeeded."""
        contributors: list[int] | None = self._party.result()
        return contributors


class SumServer(Party):
    """The server of a secure sum or weighted mean. See :class:`SumClient` for the arguments."""

    def __init__(
        self,
        *,
        session: bytes,
        clients: int,
        size: int,
        bound: float,
        max_weight: float = 1.0,
        mean: bool = True,
        clip: bool = False,
        bits: int | None = None,
        min_clients: int = 3,
        malicious_server: bool = False,
        suite: str = "aes128ctr",
        groups: int | None = None,
        about: bytes = b"",
    ) -> None:
        rules = _rules(
            session, clients, size, bound, max_weight, mean, clip, bits, min_clients,
            malicious_server, suite, groups, about,
        )
        self._party = _engine.sum_server(rules)

    def result(self) -> SumResult | None:
        """The mean or the sum, once; None before the protocol has ended.

        Raises ``ValueError`` when all weights are 0.
        """
        result = self._party.result()
        return None if result is None else SumResult(*result)
