"""A graph network over clients with different features of the same rows."""

from __future__ import annotations

import hashlib
import hmac
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import undertone
from undertone import (
    SERVER,
    FedGraphClient,
    FedGraphJob,
    FedGraphOutcome,
    FedGraphServer,
    FedGraphTerms,
    Session,
)

CLIENTS, ROWS, QUERIES, CLASSES, WIDTH = 5, 90, 12, 3, 16
TRUTH = np.arange(ROWS, dtype=np.int64) * 7 % CLASSES
ASKED = np.arange(QUERIES) * 5 % CLASSES
SEED = bytes(range(32))
TRAINING: dict[str, Any] = {"cluster": 6, "steps": 40, "rate": 0.02}
PREDICTING: dict[str, Any] = {**TRAINING, "predict": "graph", "reveal_embeddings": True}
CUTS = ["client", "server", "embeddings"]

Floats = NDArray[np.float64]


def arrays(clients: int = CLIENTS) -> dict[str, Any]:
    """What clients bring. Client c has the features c, c + 1 and c + 2 of a circle."""
    rng = np.random.default_rng(2)
    centres = 2 * rng.random((clients, CLASSES, WIDTH))

    def hidden(client: int, labels: NDArray[np.int64]) -> Floats:
        return np.asarray(centres[client, labels] + 0.3 * rng.random((len(labels), WIDTH)))

    circle = range(clients)
    return {
        "columns": [[f"feature {(c + k) % clients}" for k in range(3)] for c in circle],
        "embeddings": [hidden(c, TRUTH) for c in circle],
        "probabilities": [rng.dirichlet(np.ones(CLASSES), QUERIES) for _ in circle],
        "labels": TRUTH,
        "queries": [hidden(c, ASKED) for c in circle],
    }


ANYTHING = FedGraphTerms(
    reveal_embeddings=True, show_embeddings=True, cuts=("client", "server", "embeddings"),
    min_cluster=1, min_network=3,
)


def job(**changes: Any) -> FedGraphJob:
    sizes = {
        "clients": CLIENTS, "rows": ROWS, "queries": QUERIES, "classes": CLASSES, "width": WIDTH,
    }
    return FedGraphJob(**{**sizes, **PREDICTING, **changes})


def derive(seed: bytes, purpose: str, session: bytes, ids: bytes = b"") -> bytes:
    """HKDF: what the engine derives from the seed of a run in one process."""
    secret = hmac.digest(bytes(32), seed, hashlib.sha256)
    info = b"undertone/v1/" + purpose.encode() + session + ids
    return hmac.digest(secret, info + b"\x01", hashlib.sha256)


class Parties:
    """The parties of a run, with seeds as in a run in one process. Each keeps its checkpoints in a
    file of the folder."""

    def __init__(self, rules: FedGraphJob, folder: Path, seed: bytes = SEED) -> None:
        session = derive(seed, "simulated session", bytes(32))
        self.folder = folder
        self.kept: dict[int, list[bytes]] = {who: [] for who in range(-1, CLIENTS)}

        def own_seed(who: int) -> bytes:
            number = (who & 0xFFFFFFFF).to_bytes(4, "little")
            return derive(seed, "simulated client", session, number)

        self.server = FedGraphServer(rules, checkpoint=folder / "-1").session(
            CLIENTS, session=session, seed=own_seed(SERVER)
        )
        self.owners = [client(c, folder / str(c)) for c in range(CLIENTS)]
        self.clients = [
            one.session(rules, session, index=c, seed=own_seed(c))
            for c, one in enumerate(self.owners)
        ]

    def run(self, until: Callable[[], bool] = lambda: False) -> list[FedGraphOutcome]:
        """Moves frames until all have ended or `until` says so. Notes what each party keeps."""
        for one in self.clients:
            one._party.simulate()
        parties: dict[int, Any] = {**dict(enumerate(self.clients)), SERVER: self.server}
        moved = True
        while moved:
            moved = False
            for who, party in parties.items():
                while frames := party.poll():
                    moved = True
                    for to, frame in frames:
                        parties[to].push(who, frame)
                    self.note(who)
                    if until():
                        return []
        outcomes = [client.result() for client in self.clients]
        assert all(client.done and client.result() is None for client in self.clients)
        return [one for one in outcomes if one is not None]

    def note(self, who: int) -> None:
        file = self.folder / str(who)
        now = file.read_bytes() if file.exists() else b""
        if now and now != [b"", *self.kept[who]][-1]:
            self.kept[who].append(now)


def client(
    c: int, checkpoint: Path | None = None, terms: FedGraphTerms = ANYTHING, **changes: Any
) -> FedGraphClient:
    """What client `c` brings, with these changes."""
    own = {name: each[c] for name, each in arrays().items() if name != "labels"}
    brought = {"labels": TRUTH, **own, **changes}
    return FedGraphClient(**brought, checkpoint=checkpoint, terms=terms)


def same(one: Floats | None, other: Floats | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def right(predicted: Floats | None) -> float:
    assert predicted is not None and predicted.shape == (QUERIES, CLASSES)
    assert predicted.dtype == np.float64 and np.allclose(predicted.sum(axis=1), 1, atol=1e-5)
    return float(np.mean(predicted.argmax(axis=1) == ASKED))


def test_votes_are_the_mean() -> None:
    own = arrays()
    due = np.mean(own["probabilities"], axis=0)
    for options in ({"steps": 0}, TRAINING):
        run = undertone.fedgraph(**own, **options)
        assert run.votes is not None and run.graph is None
        assert np.allclose(run.votes, due, rtol=0, atol=1e-12)
        assert all(same(one.votes, run.votes) for one in run.clients)
        assert (run.loss is None) == (options["steps"] == 0)
        assert run.members == run.report.members == run.report.clients == [0, 1, 2, 3, 4]
        # Two features apart on a circle of five are neighbours.
        assert run.neighbours == run.report.neighbours
        assert run.neighbours == [[o for o in range(5) if o != c] for c in range(5)]
        assert run.report.clusters == (ROWS // 6 if options["steps"] else 0)
        assert sorted(run.costs) == [SERVER, 0, 1, 2, 3, 4]
        phases = {cost.phase for cost in run.costs[0] if cost.bytes_sent}
        assert {"features", "soft vote"} <= phases
        assert ("graph network" in phases) == bool(options["steps"])
    # Single precision does, and votes need no embeddings of the rows to predict.
    single = [one.astype(np.float32) for one in own["probabilities"]]
    own.update(probabilities=single, queries=None)
    votes = undertone.fedgraph(**own, steps=0).votes
    assert votes is not None and np.allclose(votes, due, rtol=0, atol=1e-6)
    # Without rows to predict there are none.
    own.update(probabilities=[np.zeros((0, CLASSES))] * CLIENTS)
    assert undertone.fedgraph(**own, steps=0).votes is None


@pytest.mark.parametrize("cut", CUTS)
def test_the_graph_network_predicts(cut: str) -> None:
    run = undertone.fedgraph(**arrays(), cut=cut, seed=3, **PREDICTING)
    assert right(run.graph) > 0.9
    assert run.loss is not None and run.loss < 0.8 * np.log(CLASSES)  # clusters are mixed
    assert all(same(one.graph, run.graph) for one in run.clients)
    # Who has the weights has the loss.
    if cut == "client":
        assert run.report.loss is None and run.report.predicted is None
        assert {one.loss for one in run.clients} == {run.loss}
    else:
        assert {one.loss for one in run.clients} == {None} and run.report.loss == run.loss
        assert right(run.report.predicted) > 0.9
    again = undertone.fedgraph(**arrays(), cut=cut, seed=3, **PREDICTING)
    assert same(again.graph, run.graph)
    # Random clusters of few rows teach the network, too.
    options = {**PREDICTING, "clustering": "random", "cluster": 2}
    assert right(undertone.fedgraph(**arrays(), cut=cut, seed=3, **options).graph) > 0.9


@pytest.mark.parametrize("cut", CUTS)
def test_parties_moved_by_hand_give_the_same(cut: str, tmp_path: Path) -> None:
    one = undertone.fedgraph(**arrays(), cut=cut, seed=SEED, **PREDICTING)
    parties = Parties(job(cut=cut), tmp_path)
    assert parties.owners[0].votes is None and parties.clients[3].id == 3
    outcomes = parties.run()
    assert len(outcomes) == CLIENTS
    for owner, outcome, due in zip(parties.owners, outcomes, one.clients, strict=True):
        assert same(outcome.votes, due.votes) and same(owner.votes, due.votes)
        assert same(outcome.graph, due.graph)
        assert (outcome.loss, outcome.members) == (due.loss, due.members)
        assert outcome.neighbours == due.neighbours
    report = parties.server.result()
    assert report is not None and report.clusters == one.report.clusters
    assert report.loss == one.report.loss and parties.server.result() is None
    phases = [[cost.phase, cost.bytes_sent] for cost in parties.clients[2].costs]
    assert phases == [[cost.phase, cost.bytes_sent] for cost in one.costs[2]]


@pytest.mark.parametrize("cut", CUTS)
def test_a_checkpoint_continues(cut: str, tmp_path: Path) -> None:
    rules = job(cut=cut, checkpoint=10)
    (tmp_path / "whole").mkdir()
    whole = Parties(rules, tmp_path / "whole").run()

    # The run breaks off after the second checkpoint of steps of one party.
    broken_at = tmp_path / "broken"
    broken_at.mkdir()
    who, due = (SERVER, 3) if cut == "embeddings" else (2, 4)
    broken = Parties(rules, broken_at)
    broken.run(lambda: len(broken.kept[who]) >= due - 1)
    assert all(one.result() is None for one in broken.clients)
    # The votes are there.
    assert same(broken.owners[0].votes, whole[0].votes)

    forgetful = shutil.copytree(broken_at, tmp_path / "forgetful")
    other = shutil.copytree(broken_at, tmp_path / "other")
    # Another session continues, and reaches the same.
    for outcome, one in zip(Parties(rules, broken_at, bytes(32)).run(), whole, strict=True):
        assert same(outcome.graph, one.graph) and outcome.loss == one.loss

    # Without its checkpoint a client cannot take part, and none begins anew.
    (forgetful / "1").unlink()
    lost = Parties(rules, forgetful, bytes(32))
    with pytest.raises(undertone.AbortedError, match="checkpoint"):
        undertone.run(lost.server, lost.clients)
    with pytest.raises(ValueError, match="it belongs to another job"):
        Parties(job(cut=cut, checkpoint=10, rate=0.5), other)
    (other / "0").write_bytes((other / "0").read_bytes()[:-1])
    with pytest.raises(ValueError, match="0: "):
        Parties(rules, other)


def test_parties_that_were_one_checkpoint_apart_stay_so(tmp_path: Path) -> None:
    rules = job(checkpoint=10)
    run = Parties(rules, tmp_path)
    whole = run.run()
    # All but one kept the last checkpoint. The others continue from the one before.
    (tmp_path / "4").write_bytes(run.kept[4][-2])
    again = Parties(rules, tmp_path, bytes(32))
    assert same(again.run()[0].graph, whole[0].graph)


def test_signed_keys() -> None:
    keys = [undertone.generate_key() for _ in range(CLIENTS)]
    public = [undertone.public_key(key) for key in keys]
    rules = job(steps=0, predict="vote")
    server = FedGraphServer(rules).session(CLIENTS)
    owners = [client(c) for c in range(CLIENTS)]

    def party(c: int, key: str) -> Session[FedGraphOutcome]:
        return owners[c].session(rules, server.session, index=c, key=key, public_keys=public)

    undertone.run(server, [party(c, key) for c, key in enumerate(keys)])
    votes = owners[1].votes
    assert votes is not None and np.allclose(votes, np.mean(arrays()["probabilities"], axis=0))
    with pytest.raises(ValueError, match="private key of client 0"):
        party(0, keys[1])


def test_arguments_that_cannot_be() -> None:
    def refused(match: str, error: type[Exception] = ValueError, **options: Any) -> None:
        with pytest.raises(error, match=match):
            undertone.fedgraph(**{**arrays(), **TRAINING, **options})

    def but(what: str, client: int, change: Callable[[Any], Any]) -> dict[str, Any]:
        each = arrays()[what]
        each[client] = change(each[client])
        return {what: each}

    def nan(array: Floats) -> Floats:
        array[4, 1] = np.nan
        return array

    def without_a_row(array: Floats) -> Floats:
        return array[1:]

    refused("2 clients, at least 3", **arrays(2))
    refused("embeddings of 4, probabilities of 5", embeddings=arrays()["embeddings"][:4])
    refused(r"client 1: embeddings: \(89, 16\), the job has \(90, 16\)",
            **but("embeddings", 1, without_a_row))
    refused(r"client 2: probabilities: \(11, 3\), the job has \(12, 3\)",
            **but("probabilities", 2, without_a_row))
    refused(r"client 3: embeddings have shape \(1440,\); \[rows, width\] is needed",
            **but("embeddings", 3, np.ravel))
    refused("client 3: embeddings: row 4 has the value NaN", **but("embeddings", 3, nan))
    refused("client 0: embeddings: row .* from -64 to 64", **but("embeddings", 0, lambda a: a * 99))
    refused("client 1: probabilities: row 0 has the value -.*; from 0 to 1",
            **but("probabilities", 1, lambda a: a - 1))
    refused("client 2: probabilities: those of row 0 add up to 0.5, not to 1",
            **but("probabilities", 2, lambda a: a / 2))
    refused("client 1: embeddings are of complex128", TypeError,
            **but("embeddings", 1, lambda a: a + 1j))
    refused("client 4: names of features are one text", TypeError,
            **but("columns", 4, lambda _: "age"))
    refused("client 4: names of features: the one at 1 is int", TypeError,
            **but("columns", 4, lambda _: ["age", 1]))
    refused("client 0: two features have the name 'age'",
            **but("columns", 0, lambda _: ["age", "dose", "age"]))
    refused("client 0: 0 features", **but("columns", 0, lambda _: []))
    refused("row 7 has no label", labels=np.where(np.arange(ROWS) == 7, -1, TRUTH))
    refused("row 7 has label 3; the job has 3", labels=np.where(np.arange(ROWS) == 7, 3, TRUTH))
    refused("labels: .*0.5", labels=TRUTH * 0.5)
    refused("89 labels, but client 0 has embeddings of 90 rows", labels=TRUTH[1:])
    refused("cluster: 91; from 1 to 90", cluster=91)
    refused("rate must be above 0", rate=0.0)
    refused("cut: 'none' is none of embeddings, server, client", cut="none")
    refused("clustering: 'k-means' is none of", clustering="k-means")
    refused("predict: 'both' is none of vote, graph", predict="both")
    refused("needs queries", predict="graph", queries=None)
    refused(r"client 2: embeddings of rows to predict: \(11, 16\), the job has \(12, 16\)",
            predict="graph", **but("queries", 2, without_a_row))
    for cut in ("server", "embeddings"):
        refused("reveal_embeddings", predict="graph", cut=cut)
    # Nobody shares a feature.
    alone = [[f"feature {c}"] for c in range(CLIENTS)]
    refused("no three clients have features in common", undertone.AbortedError, columns=alone)
    votes = undertone.fedgraph(**{**arrays(), "columns": alone}, steps=0)
    assert votes.neighbours == [[]] * CLIENTS and votes.votes is not None

    with pytest.raises(ValueError, match="needs checkpoint"):
        FedGraphServer(job())
    with pytest.raises(ValueError, match=r"can take part, 5 are needed"):
        FedGraphServer(job(steps=0, predict="vote")).session(4)
    assert len({job().digest, job(checkpoint=49).digest, job(cluster=7).digest}) == 3


def test_clients_leave_networks_that_are_too_small(tmp_path: Path) -> None:
    rules = job(predict="vote")
    server = FedGraphServer(rules, checkpoint=tmp_path / "server").session(CLIENTS)
    # The last client has no feature in common with others.
    names = [*[["age", "dose"]] * (CLIENTS - 1), ["pulse"]]
    owners = [
        client(c, columns=names[c], terms=replace(ANYTHING, min_network=5 if c == 1 else 4))
        for c in range(CLIENTS)
    ]
    clients = [one.session(rules, server.session, index=c) for c, one in enumerate(owners)]
    with pytest.raises(undertone.AbortedError, match="left before the protocol ended"):
        undertone.run(server, clients)
    with pytest.raises(undertone.AbortedError, match="network of 4 clients, and asks for one of 5"):
        clients[1].poll()
    assert same(owners[1].votes, owners[4].votes)


def test_a_client_declines_what_its_terms_do_not_allow() -> None:
    def agree(terms: FedGraphTerms, **changes: Any) -> None:
        client(0, terms=terms).session(job(**changes), bytes(32), index=0)

    agree(ANYTHING)
    agree(FedGraphTerms(), predict="vote", steps=0, reveal_embeddings=False)
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"show_embeddings": False}, {"predict": "vote"}, "to its neighbours.*show_embeddings"),
        ({"reveal_embeddings": False}, {}, "reveal_embeddings"),
        ({"cuts": ("server",)}, {}, "cuts"),
        ({"min_cluster": 99}, {}, "min_cluster"),
        ({"min_network": CLIENTS + 1}, {}, "min_network"),
        ({"min_clients": CLIENTS + 1}, {}, "min_clients"),
        ({"max_rounds": 1}, {"steps": 2}, "max_rounds"),
    ]
    for terms, changes, why in refused:
        with pytest.raises(undertone.RefusedError, match=f"{why}\\)$"):
            agree(replace(ANYTHING, **terms), **changes)


def test_parties_of_different_jobs_and_labels(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    parties = Parties(job(), tmp_path / "one")
    other = Parties(job(rate=0.5), tmp_path / "other")
    parties.clients[2] = other.clients[2]
    with pytest.raises(undertone.AbortedError, match="client 2: its job differs"):
        undertone.run(parties.server, parties.clients)

    # Two clients have other labels. Clients see it, and leave.
    rules = job(steps=0, predict="vote")
    server = FedGraphServer(rules).session(CLIENTS)
    clients = [
        client(c, labels=np.roll(TRUTH, c // 3)).session(rules, server.session, index=c)
        for c in range(CLIENTS)
    ]
    with pytest.raises(undertone.AbortedError, match="left before the protocol ended"):
        undertone.run(server, clients)
    with pytest.raises(undertone.AbortedError, match="labels differ"):
        clients[3].poll()


def test_an_exception_of_progress_ends_the_run() -> None:
    def stop(_: str) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        undertone.fedgraph(**arrays(), cluster=6, steps=2000, progress=stop)
