"""Secure computation over data that may not leave its owners.

================================  ==============================================================
:func:`experiment`                what joining would gain, on one labelled file
:func:`label`                     labels the rows of all clients, all parties in this process
:func:`train`                     trains a model with many clients, all parties in this process
:func:`cotrain`                   co-trains classifiers of any kind by votes on public rows, all
                                  parties in this process
:func:`pssl`                      labels the rows of all clients over a graph that they build pair
                                  by pair, all parties in this process
:func:`fedgraph`                  combines clients with different features of the same rows, all
                                  parties in this process
:func:`join`                      takes a client to a job on a network
:func:`serve`                     runs the jobs of a roster on a network
:func:`plan`                      estimates what a job will cost
:class:`Client`,                  what a client brings to a job, and the server of one, without I/O:
:class:`Server`                   you move the frames
:class:`LabelClient`,             label propagation
:class:`LabelServer`
:class:`RoundsClient`,            rounds of sums or weighted means
:class:`RoundsServer`
:class:`TrainClient`,             training with propagated labels
:class:`TrainServer`
:class:`CotrainClient`,           co-training
:class:`CotrainServer`
:class:`PsslClient`,              a graph between pairs of clients
:class:`PsslServer`
:class:`FedGraphClient`,          a graph network over clients
:class:`FedGraphServer`
:class:`SumClient`,               one secure sum or weighted mean of arrays, without I/O
:class:`SumServer`
:class:`Record`                   what a client's data have answered, and may answer once
:func:`run`                       moves frames between parties in this process
:func:`distances`, :func:`ot`,    the primitives, for measurements and lessons
:func:`paillier`
:mod:`undertone.torch`            PyTorch modules as models for training
:mod:`undertone.flower`           secure means and label propagation on Flower
================================  ==============================================================

Who learns what is in the project's SECURITY.md. The software is young and not audited.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as _FilePath

from . import _engine
from ._client import Client, Server, Session
from ._command import Experiment, experiment
from ._costs import SERVER, Cost
from ._cotrain import (
    CotrainClient,
    Cotrained,
    CotrainExchange,
    CotrainReport,
    CotrainServer,
    CotrainStep,
    Learner,
    cotrain,
    public_digest,
)
from ._engine import (
    AbortedError,
    RefusedError,
    UndertoneError,
    __version__,
    generate_key,
    public_key,
)
from ._fedgraph import (
    FedGraphClient,
    FedGraphOutcome,
    FedGraphReport,
    FedGraphRun,
    FedGraphServer,
    fedgraph,
)
from ._jobs import (
    CotrainJob,
    CotrainTerms,
    FedGraphJob,
    FedGraphTerms,
    LabelJob,
    LabelTerms,
    PsslJob,
    PsslTerms,
    SumJob,
    SumTerms,
    TrainJob,
    TrainTerms,
)
from ._label import LabelClient, LabelReport, LabelRun, Labels, LabelServer, label
from ._net import JobOver, Joined, join, serve
from ._party import Party, Path, pack, session_id, unpack
from ._plan import Plan, PlanCosts, PlanWay, plan
from ._primitives import Ciphertexts, Distances, PaillierKey, Transfers, distances, ot, paillier
from ._pssl import PsslClient, PsslEdges, PsslLabels, PsslReport, PsslRun, PsslServer, pssl
from ._record import Record, RecordAllowance, RecordAnswer, RecordContent
from ._rounds import RoundMean, RoundsClient, RoundsServer
from ._sum import SumClient, SumResult, SumServer
from ._train import (
    Examples,
    Model,
    Schedule,
    Targets,
    TrainClient,
    TrainReport,
    TrainResult,
    TrainRound,
    TrainServer,
    TrainStep,
    train,
)

__all__ = [
    "SERVER",
    "AbortedError",
    "Ciphertexts",
    "Client",
    "Cost",
    "CotrainClient",
    "CotrainExchange",
    "CotrainJob",
    "CotrainReport",
    "CotrainServer",
    "CotrainStep",
    "CotrainTerms",
    "Cotrained",
    "Distances",
    "Examples",
    "Experiment",
    "FedGraphClient",
    "FedGraphJob",
    "FedGraphOutcome",
    "FedGraphReport",
    "FedGraphRun",
    "FedGraphServer",
    "FedGraphTerms",
    "JobOver",
    "Joined",
    "LabelClient",
    "LabelJob",
    "LabelReport",
    "LabelRun",
    "LabelServer",
    "LabelTerms",
    "Labels",
    "Learner",
    "Model",
    "PaillierKey",
    "Party",
    "Plan",
    "PlanCosts",
    "PlanWay",
    "PsslClient",
    "PsslEdges",
    "PsslJob",
    "PsslLabels",
    "PsslReport",
    "PsslRun",
    "PsslServer",
    "PsslTerms",
    "Record",
    "RecordAllowance",
    "RecordAnswer",
    "RecordContent",
    "RefusedError",
    "RoundMean",
    "RoundsClient",
    "RoundsServer",
    "Schedule",
    "Server",
    "Session",
    "SumClient",
    "SumJob",
    "SumResult",
    "SumServer",
    "SumTerms",
    "Targets",
    "TrainClient",
    "TrainJob",
    "TrainReport",
    "TrainResult",
    "TrainRound",
    "TrainServer",
    "TrainStep",
    "TrainTerms",
    "Transfers",
    "UndertoneError",
    "__version__",
    "cotrain",
    "distances",
    "experiment",
    "fedgraph",
    "generate_key",
    "join",
    "label",
    "ot",
    "pack",
    "paillier",
    "plan",
    "pssl",
    "public_digest",
    "public_key",
    "read_roster",
    "run",
    "serve",
    "session_id",
    "train",
    "unpack",
]


def read_roster(path: Path) -> dict[str, bytes | None]:
    """The clients of a roster file (TOML), in order: name and public key (None without one).

    The position of a client is its number in sessions of all these clients.
    """
    return dict(_engine.read_roster(_FilePath(path).read_text(encoding="utf-8")))


def run(server: Party, clients: Sequence[Party]) -> None:
    """Moves frames between parties in this process until none has anything to send.

    Returns when all have ended, or when clients of a sum wait for values
    (:attr:`SumClient.needs_values`). A client without a record gets one in memory
    (:meth:`Record.simulated`). A client that aborts, or whose record refuses, is dropped. Raises
    :class:`AbortedError` when the server aborts, or the :class:`RefusedError` of the first client
    that has refused.
    """
    for client in clients:
        client._party.simulate()
    refused: RefusedError | None = None
    parties: dict[int, Party] = {client.id: client for client in clients}
    parties[SERVER] = server
    moved, left = True, set(parties)
    while moved:
        moved = False
        for who in sorted(left):
            while True:
                try:
                    frames = parties[who].poll()
                except (AbortedError, RefusedError) as error:
                    if who == SERVER:
                        raise error if refused is None else refused from error
                    if isinstance(error, RefusedError):
                        refused = refused or error
                    left.discard(who)
                    for other in left:
                        parties[other].gone(who)
                    break
                if not frames:
                    break
                moved = True
                for to, frame in frames:
                    if to in left:
                        parties[to].push(who, frame)
