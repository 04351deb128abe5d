"""The parameters of jobs, and the terms of clients.

A test of the engine prints this file (tests/documents/printed.rs).
"""

from __future__ import annotations

from dataclasses import dataclass

from ._job import Job, Terms, VotesJob


@dataclass(frozen=True, kw_only=True)
class CotrainJob(VotesJob, application="cotrain"):
    """The parameters of co-training by votes on public rows. All parties need the same one. Raises
    ``ValueError`` if it is impossible."""

    classes: int
    """The number of classes: up to 1024."""
    rows: int | None = None
    """The number of public rows. Default: that of the server's file."""
    features: int | None = None
    """The number of values in a row. Default: that of the server's file."""
    public: bytes | None = None
    """The digest of the public rows. Default: that of the server's file."""
    standardise: bool = True
    """Whether clients and server standardise all rows of their files by the means and deviations of
    the public rows. Parties outside of a network take rows as they are."""
    consensus: str = "majority"
    """Which public rows get a label: ``majority`` (all: the class with the most votes, of several
    the lowest) or ``qualified:Q`` (those in which that class has the share Q of the votes)."""
    votes: str = "winners"
    """What the server sees of the votes: ``winners`` (the consensus and nothing else), ``counts``
    (how many votes each class has) or ``clear`` (every client's votes)."""
    noise: str = "none"
    """The noise that clients put on their votes: ``none``, ``krr:E`` (randomised response; ε of a
    vote is E) or ``xor:E:S`` (flips bits of the one-hot vote; ε of a vote is 2E/S)."""
    exchanges: int = 10
    """Most exchanges: up to 1000. Those that fail count."""
    min_clients: int = 3
    """Fewest clients of an exchange."""
    suite: str = "aes128ctr"
    """The cipher of the sums' masks: ``aes128ctr`` or ``chacha20``."""
    malicious_server: bool | None = None
    """Whether sums withstand a server that lies about keys and about who dropped out, but not one
    that departs from the protocol elsewhere. Every client then needs a key. Default: whether all
    clients of the roster have keys; without a roster no."""


@dataclass(frozen=True, kw_only=True)
class CotrainTerms(Terms):
    """What a client agrees to in co-training, whatever the server asks for."""

    min_clients: int = 3
    """Fewest clients of an exchange."""
    malicious_server: bool | str = "signed"
    """Whether sums must withstand a server that cheats: if all clients of the roster have keys
    (``"signed"``), always or never."""
    votes: str = "winners"
    """The most that the server may see of the votes: ``winners``, ``counts`` or ``clear``."""
    allow_unanimous: bool = False
    """Whether a consensus may tell all votes, because its quorum is all clients."""
    max_rounds: int = 1000
    """Most exchanges. Each tells more about the client's rows."""
    max_epsilon: float | str = "inf"
    """Largest ε of a vote over the whole job. With ``inf`` jobs need no noise."""


@dataclass(frozen=True, kw_only=True)
class PsslJob(Job, application="pssl"):
    """The parameters of a graph between pairs of clients, and of label propagation over it.
    Distances are in units of ``scale``, the largest value of a feature. All parties need the same
    one. Raises ``ValueError`` if it is impossible."""

    features: int
    """F, the features of a row: up to 4096."""
    classes: int
    """The number of classes: up to 64."""
    asked: int
    """R, the edges asked for per pair of clusters: about 0.64 times the rows of a client, by its
    number of clusters."""
    scale: int = 255
    """s: rows are rounded to whole numbers from 0 to this, at most 255."""
    range: float | None = None
    """The value of a feature, in the clients' files, that becomes ``scale``. Greater ones do, too.
    Default: ``scale``."""
    clusters: int | None = None
    """L, the clusters of each client. Default: ``classes``."""
    neighbours: int = 10
    """K, the neighbours of a row in the graph of its client."""
    iterations: int = 20
    """J, the iterations of k-means."""
    lambda_: int = 1
    """λ: in how many edges a row may be with one other client. Only 1 is possible."""
    d_min: float = 1.5
    """The least distance of rows that an edge between clients joins."""
    d_max: float = 2.75
    """The greatest such distance."""
    epsilon: float | None = None
    """ε: an edge of length d has the weight exp(−d²/ε). Default: ``d_max``²/9.45."""
    reveal: str = "bucket"
    """What an edge tells its ends about its length: ``bucket`` (its quarter of the range from
    ``d_min`` to ``d_max``), ``distance`` (its square) or ``accept`` (nothing more)."""
    rounds: int = 20
    """T, the rounds of propagation."""
    alpha: float = 0.99
    """α, the share of the neighbours' scores in a row's."""
    local_start: bool = False
    """Whether scores begin as the result of propagation at each client alone. Otherwise they begin
    as the labels."""
    allow_single: bool = False
    """Whether rows with edges to one client only get a slot. Their owner then sees the scores of
    single rows."""
    min_clients: int = 3
    """Fewest clients with which the job goes on: 3 or more."""
    suite: str = "aes128ctr"
    """The cipher of the sums' masks: ``aes128ctr`` or ``chacha20``."""
    malicious_server: bool | None = None
    """Whether the sums withstand a server that lies. Every client then needs a key. Default:
    whether all clients of the roster have keys; without a roster no."""


@dataclass(frozen=True, kw_only=True)
class PsslTerms(Terms):
    """What a client agrees to in a graph between pairs of clients, whatever the server asks for."""

    min_clients: int = 3
    """Fewest clients with which a job may go on."""
    malicious_server: bool | str = "signed"
    """Whether sums must withstand a server that cheats: if all clients of the roster have keys
    (``"signed"``), always or never."""
    reveal: str = "bucket"
    """The most that an edge may tell about its length: ``accept``, ``bucket`` or ``distance``."""
    d_min: float = 0.5
    """The least length that edges must have. Shorter ones tell more about rows."""
    allow_single: bool = False
    """Whether rows with edges to one client may have a slot: that client's scores are then seen."""
    max_rounds: int = 1000
    """Most rounds."""
