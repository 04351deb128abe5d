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
    """Whether all rows are standardised by the means and deviations of the public rows."""
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
class FedGraphJob(Job, application="fedgraph"):
    """The parameters of a graph network over clients with different features of the same rows. All
    parties need the same one. Raises ``ValueError`` if it is impossible."""

    clients: int | None = None
    """The number of clients: 3 to 256. All of them take part, to the end. Default: all of the
    roster; no other number is possible there."""
    rows: int
    """Rows with a label, the same at all clients."""
    queries: int = 0
    """Rows to predict, the same at all clients."""
    classes: int
    """The number of classes: up to 1024."""
    width: int = 64
    """The number of values of an embedding, and of units of each layer: up to 256."""
    cluster: int = 17
    """δ, the rows of a cluster: the network trains on means over so many rows. With 1 it sees
    single rows."""
    clustering: str = "conditioned"
    """How rows are put into clusters: ``conditioned`` (most rows of a cluster are of one class) or
    ``random``."""
    steps: int | None = None
    """Steps of training of the graph network. With 0 there is none, only the vote. Default: 300 if
    ``predict`` is ``graph``, else 0."""
    rate: float = 0.001
    """Adam's step size."""
    cut: str = "client"
    """Who has the graph network: ``client`` (the clients; the server adds up masked words),
    ``server`` (clients have the first layer; the server sees its sums) or ``embeddings`` (the
    server, which sees the embeddings of clusters)."""
    predict: str = "vote"
    """How rows are predicted: ``vote`` (by the mean of all clients' class probabilities) or
    ``graph`` (by the graph network, which sees single rows)."""
    reveal_embeddings: bool = False
    """Whether the server may see embeddings, or sums of the first layer, of single rows. A graph
    network that predicts needs it unless ``cut`` is ``client``."""
    checkpoint: int = 50
    """Steps from one checkpoint to the next."""
    suite: str = "aes128ctr"
    """The cipher of the masks: ``aes128ctr`` or ``chacha20``."""


@dataclass(frozen=True, kw_only=True)
class FedGraphTerms(Terms):
    """What a client agrees to in a graph network over clients, whatever the server asks for. From
    ``show_embeddings`` on, terms are for jobs that train a graph network."""

    min_clients: int = 3
    """Fewest clients."""
    reveal_embeddings: bool = False
    """Whether the graph network may predict single rows, whose embeddings others then learn
    about."""
    show_embeddings: bool = False
    """Whether a graph network may be trained. The training shows embeddings of this client's
    clusters, which are means over rows: with the cut ``client`` to its neighbours, with ``server``
    their sum to every client, with ``embeddings`` to the server."""
    cuts: tuple[str, ...] = ("client",)
    """The cuts. The server sees nothing with ``client``, sums of the first layer with ``server``,
    and embeddings of clusters with ``embeddings``."""
    min_cluster: int = 10
    """Fewest rows of a cluster: what others see is a mean over so many rows. The last cluster may
    have half as many."""
    min_network: int = 5
    """Least size of the network around this client with the cut ``client``. It refuses the runs in
    which neighbours see the most, and protects nothing in the others. A network that turns out
    smaller ends the job for all after the votes."""
    max_rounds: int = 1000
    """Most steps. Every step tells more about the embeddings."""


@dataclass(frozen=True, kw_only=True)
class LabelJob(Job, application="label"):
    """The parameters of label propagation over the rows of all clients. All parties need the same
    one. Raises ``ValueError`` if it is impossible."""

    backend: str = "lwe"
    """The protocol that brings distances to the server: ``lwe``, ``shade``, ``phe``, ``psm``,
    ``sketch`` or ``clear``."""
    bits: int = 4096
    """L, the length of a code in bits. ``lwe`` takes 16384 at most."""
    neighbours: int = 10
    """k, the neighbours of each row."""
    alpha: float = 0.99
    """α, the share of a row's score that comes from its neighbours, 0.001 to 0.9999."""
    variant: str = "balanced"
    """Weights and scaling: ``balanced``, or ``paper`` for those that were published."""
    key_bits: int = 3072
    """Bits of the keys of ``phe``: 2048, 3072 or 4096."""
    min_clients: int = 3
    """Fewest clients with which a run continues. With two, a sum tells each client the other's
    part."""
    suite: str = "aes128ctr"
    """The cipher of all masks: ``aes128ctr`` or ``chacha20``."""
    malicious_server: bool | None = None
    """Whether keys and sums withstand a server that lies about keys and about who dropped out.
    Every client then needs a key. Default: whether all clients of the roster have keys; without a
    roster no."""
    standardise: bool = False
    """Whether a first session computes the mean and the deviation of every feature over all
    clients. Clients then bring the features to mean 0 and deviation 1."""
    cells: int = 0
    """The number of cells within which rows are compared, for many rows: one for every 400 rows or
    so of all clients. Clients first compute their centres, by sums with noise. 0 compares all
    rows."""
    probes: int = 5
    """The number of nearest cells that each row names to the server, if there are cells: 1 to 16.
    More find more of the nearest rows."""
    cells_epsilon: float = 4.0
    """ε of a row, for all that other clients learn of the centres and sizes of cells: 0.1 to 16. δ
    is 1/(10 n) for n rows of all clients."""
    classes: int | None = None
    """The number of classes: 2 to 65536, or 0 to leave it to the clients. Default: the number of
    ``class_names``."""
    class_names: tuple[str, ...] = ()
    """The name of each class. Without names, clients whose labels are names need the same classes
    in the same order."""


@dataclass(frozen=True, kw_only=True)
class LabelTerms(Terms):
    """What a client agrees to in label propagation, whatever the server asks for."""

    min_clients: int = 3
    """Fewest clients with which a job may go on."""
    malicious_server: bool | str = "signed"
    """Whether sums must withstand a server that cheats: if all clients of the roster have keys
    (``"signed"``), always or never."""
    standardise: bool = True
    """Whether jobs may standardise features. They tell every client the mean and the deviation of
    each feature over all clients."""
    max_cells_epsilon: float = 0.0
    """Most ε of a job with cells: with 0 there may be none. Other clients learn noisy sums of
    features and sizes of cells, the server the cells of each row. A server that departs from the
    protocol chooses the centres."""
    max_bits: int = 16384
    """Most bits of a code. Longer codes give the server more precise distances."""
    max_neighbours: int = 64
    """Most neighbours of a row. With more, the owner's scores depend on more rows of other
    clients."""
    min_alpha: float = 0.5
    """Least α. Below, scores barely depend on neighbours."""
    max_alpha: float = 0.9999
    """Largest α. Above, scores follow single neighbours, and the server may take very long to solve
    for them."""
    backends: tuple[str, ...] = ("lwe", "shade", "phe")
    """The backends. They protect from different parties, so no order of them is one of privacy."""
    max_peer_rows: int | str = "any"
    """Most rows of another client: a number, ``features`` (as many as a row has features) or
    ``any``. A client with more rows than that computes, with the server, the codes of everybody's
    rows."""


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


@dataclass(frozen=True, kw_only=True)
class SumJob(Job, application="sum"):
    """The parameters of sums or weighted means of arrays, round after round. All parties need the
    same one. Raises ``ValueError`` if it is impossible."""

    rounds: int = 1
    """The number of rounds."""
    mean: bool = True
    """Whether a round gives the weighted mean of the clients' values. If not, it gives their
    sum."""
    bound: float = 1024.0
    """The largest magnitude of a value."""
    max_weight: float = 1000000.0
    """The largest weight of a client. Sums have no weights."""
    clip: bool = False
    """Whether values beyond the bound are clipped to it. If not, they are refused."""
    min_clients: int = 3
    """Fewest contributors of a round."""
    clients: int | None = None
    """The number of clients. No sum of so many contributions overflows. Default: all of the roster;
    no other number is possible there."""
    sample: int = 0
    """The number of clients of a round, drawn at random, as far as groups allow. With 0 all take
    part."""
    groups: int = 5
    """With several rounds, fewest clients of a fixed group: 5 or more. A group takes part whole or
    not at all, so that many rounds reveal sums over groups only."""
    free_sampling: bool = False
    """Whether any clients take part, as published, and not whole groups. Over many rounds the
    server can then compute every client's weight, or its updates."""
    suite: str = "aes128ctr"
    """The cipher of the masks: ``aes128ctr`` or ``chacha20``."""
    malicious_server: bool | None = None
    """Whether sums withstand a server that lies about keys and about who dropped out. Every client
    then needs a key. Default: whether all clients of the roster have keys; without a roster no."""


@dataclass(frozen=True, kw_only=True)
class SumTerms(Terms):
    """What a client agrees to in sums and means, whatever the server asks for."""

    min_clients: int = 3
    """Fewest contributors of a round. With two, each learns the other's values from the mean."""
    malicious_server: bool | str = "signed"
    """Whether sums must withstand a server that cheats: if all clients of the roster have keys
    (``"signed"``), always or never."""
    groups_at_least: int = 5
    """With several rounds, fewest clients of a fixed group."""
    allow_free_sampling: bool = False
    """Whether jobs may draw clients freely. Over many rounds the server can then compute this
    client's weight, or its updates."""
    max_rounds: int = 1000
    """Most rounds. Every round reveals another mean."""
    max_bound: float | str = 1000000000.0
    """The largest ``bound``. The larger it is, the coarser the values are."""
    max_weight: float | str = 1000000000.0
    """The largest ``max_weight``, for the same reason."""


@dataclass(frozen=True, kw_only=True)
class TrainJob(Job, application="train"):
    """The parameters of training with propagated labels. All parties need the same one. Raises
    ``ValueError`` if it is impossible."""

    model: str = ""
    """The model: ``conv`` (square images), ``mlp`` (tables), or another name that all parties know.
    Empty for ``mlp``, or for a model whose first parameters the server is given."""
    features: int
    """The number of features of a row."""
    classes: int
    """The number of classes."""
    parameters: int | None = None
    """The number of parameters of the model. Default: that of ``model``, if the command knows
    it."""
    scale: float = 1.0
    """All features are divided by this."""
    labels_from: str = "xclp"
    """Where the labels of unlabelled rows come from: ``labels`` (there are none), ``network`` (the
    model's own predictions), ``local`` (label propagation in each client) or ``xclp`` (across the
    clients of the round)."""
    mean_teacher: bool = False
    """Whether the model has a mean teacher."""
    consistency: float = 20.0
    """For models with a mean teacher: the largest weight of the consistency loss."""
    label_rounds: int = 20
    """Rounds of the first stage, in which clients train on their labels only."""
    rounds: int = 100
    """Rounds of the second stage, with pseudo-labels."""
    epochs: int = 5
    """Passes over the rows in one update."""
    learning_rate: float | str = "auto"
    """The learning rate of the first round. With ``auto`` it is 0.1, or 0.3 where a batch has 50
    labels. It falls from round to round."""
    weight_decay: float = 0.0002
    """The decay of weights."""
    clip: float = 4.0
    """Each change of a parameter in one update is clipped to this magnitude."""
    sampled: int = 5
    """The number of clients in a round, as far as groups allow."""
    groups: int = 5
    """With several rounds, fewest clients of a fixed group: 5 or more. A group takes part whole or
    not at all, so that many rounds reveal sums over groups only."""
    free_sampling: bool = False
    """Whether any clients take part, as published, and not whole groups. Over many rounds the
    server can then compute every client's weight, or its updates."""
    backend: str = "lwe"
    """The protocol that brings distances to the server: ``lwe``, ``shade``, ``phe``, ``psm``,
    ``sketch`` or ``clear``."""
    bits: int = 4096
    """L, the length of a code in bits. ``lwe`` takes 16384 at most."""
    neighbours: int = 10
    """k, the neighbours of each row."""
    alpha: float = 0.9
    """α, the share of a row's score that comes from its neighbours, 0.001 to 0.9999."""
    variant: str = "balanced"
    """Weights and scaling: ``balanced``, or ``paper`` for those that were published."""
    key_bits: int = 3072
    """Bits of the keys of ``phe``: 2048, 3072 or 4096."""
    min_clients: int = 3
    """Fewest clients with which a run continues. With two, a sum tells each client the other's
    part."""
    suite: str = "aes128ctr"
    """The cipher of all masks: ``aes128ctr`` or ``chacha20``."""
    malicious_server: bool | None = None
    """Whether keys and sums withstand a server that lies about keys and about who dropped out.
    Every client then needs a key. Default: whether all clients of the roster have keys; without a
    roster no."""


@dataclass(frozen=True, kw_only=True)
class TrainTerms(Terms):
    """What a client agrees to in training, whatever the server asks for."""

    min_clients: int = 3
    """Fewest clients of a round."""
    malicious_server: bool | str = "signed"
    """Whether sums must withstand a server that cheats: if all clients of the roster have keys
    (``"signed"``), always or never."""
    groups_at_least: int = 5
    """With several rounds, fewest clients of a fixed group."""
    allow_free_sampling: bool = False
    """Whether jobs may draw clients freely. Over many rounds the server can then compute this
    client's weight, or its updates."""
    max_rounds: int = 1000
    """Most rounds. Every round shows the server more of the embeddings."""
    max_epochs: int = 100
    """Most passes over the rows in one round: time that the server makes this client spend."""
    max_bits: int = 16384
    """Most bits of a code. Longer codes give the server more precise distances."""
    max_neighbours: int = 64
    """Most neighbours of a row. With more, the owner's scores depend on more rows of other
    clients."""
    min_alpha: float = 0.5
    """Least α. Below, scores barely depend on neighbours."""
    max_alpha: float = 0.9999
    """Largest α. Above, scores follow single neighbours, and the server may take very long to solve
    for them."""
    backends: tuple[str, ...] = ("lwe", "shade", "phe")
    """The backends. They protect from different parties, so no order of them is one of privacy."""
    max_peer_rows: int | str = "any"
    """Most rows of another client: a number, ``features`` (as many as a row has features) or
    ``any``. A client with more rows than that computes, with the server, the codes of everybody's
    rows."""
