"""Co-training by votes on public rows."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import undertone
from undertone import (
    SERVER,
    CotrainClient,
    CotrainExchange,
    CotrainJob,
    CotrainServer,
    CotrainStep,
    CotrainTerms,
    Record,
    Session,
)

Rows = NDArray[np.float32]
Classes = NDArray[np.int64]
Dealt = tuple[list[tuple[Any, Any]], NDArray[Any], Classes]
Deal = Callable[..., Dealt]


class Nearest:
    """The class of the nearest mean."""

    def fit(self, X: Rows, y: Classes) -> None:
        assert X.dtype == np.float32 and y.dtype == np.int64 and len(X) == len(y)
        self.known = np.unique(y).astype(np.uint16)
        self.means = np.array([X[y == kind].mean(axis=0) for kind in self.known])
        self.rows = len(X)

    def predict(self, X: Rows) -> NDArray[np.uint16]:
        apart = (X**2).sum(axis=1)[:, None] - 2 * X @ self.means.T + (self.means**2).sum(axis=1)
        return np.asarray(self.known[apart.argmin(axis=1)])


@pytest.fixture(scope="session")
def dealt(data: Path) -> Deal:
    """Deals the digits: each client's rows with labels, the public rows, and their classes."""
    with np.load(data / "digits.npz") as file:
        features, labels = file["features"] / 16, file["labels"].astype(np.int64)

    def deal(clients: int = 5, rows: int = 40, public: int = 150) -> Dealt:
        order = np.random.default_rng(clients).permutation(len(labels))
        shared, own = order[:public], order[public:]
        parts = [own[i * rows : (i + 1) * rows] for i in range(clients)]
        return [(features[p], labels[p]) for p in parts], features[shared], labels[shared]

    return deal


def plainly(
    data: list[tuple[Any, Any]], public: Any, make: Callable[[], Any], quorum: float, most: int
) -> list[Classes]:
    """Co-training in the clear: the consensus of each exchange."""
    shared = np.asarray(public, np.float32)
    labels = np.full(len(shared), -1)
    consensuses: list[Classes] = []
    while len(consensuses) < most:
        votes = np.zeros((len(shared), 10), int)
        for rows, known in data:
            learner, has = make(), labels >= 0
            everything = np.vstack([np.asarray(rows, np.float32), shared[has]])
            learner.fit(everything, np.concatenate([known, labels[has]]))
            votes[np.arange(len(shared)), learner.predict(shared)] += 1
        is_enough = votes.max(axis=1) >= quorum * len(data)
        labels = np.where(is_enough, votes.argmax(axis=1), -1)
        consensuses.append(labels)
        if len(consensuses) > 1 and (consensuses[-2] == labels).all():
            break
    return consensuses


LEARNERS: dict[str, Callable[[], Any]] = {
    "by hand": Nearest,
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "logistic": lambda: LogisticRegression(max_iter=200),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("quorum", [0.0, 0.6])
def test_all_votes_give_the_labels_of_plain_voting(name: str, quorum: float, dealt: Deal) -> None:
    data, public, truth = dealt()
    due = plainly(data, public, LEARNERS[name], quorum, 4)
    consensus = f"qualified:{quorum}" if quorum else "majority"
    for votes in ("clear", "counts", "winners"):
        run = undertone.cotrain(
            data, public, LEARNERS[name], votes=votes, consensus=consensus, exchanges=4, seed=1
        )
        assert (run.labels == due[-1]).all() and run.labels.dtype == np.int64
        assert run.exchanges == [
            CotrainExchange(number, [0, 1, 2, 3, 4], int((labels >= 0).sum()), 0)
            for number, labels in enumerate(due, 1)
        ]
        assert run.settled == (len(due) > 1 and bool((due[-1] == due[-2]).all()))
        covered = run.labels >= 0
        assert np.mean(run.labels[covered] == truth[covered]) > (0.6 if name == "tree" else 0.75)
        assert sorted(run.costs) == [SERVER, 0, 1, 2, 3, 4]
        assert any(cost.phase == "votes" for cost in run.costs[0])
        # The learners have learned from the last consensus.
        if name == "by hand":
            assert [one.rows for one in run.learners] == [40 + covered.sum()] * 5


def test_learners_of_many_kinds(dealt: Deal) -> None:
    data, public, truth = dealt(clients=4)
    own = Nearest()
    given = [own, GaussianNB, lambda: DecisionTreeClassifier(max_depth=5), LogisticRegression()]
    run = undertone.cotrain(data, public, given, exchanges=2)
    assert run.learners[0] is own and isinstance(own, undertone.Learner)
    kinds = [Nearest, GaussianNB, DecisionTreeClassifier, LogisticRegression]
    assert [type(one) for one in run.learners] == kinds and run.learners[3] is given[3]
    assert np.mean(run.labels == truth) > 0.6
    # One learner is copied, and stays as it was.
    one = LogisticRegression()
    run = undertone.cotrain(data, public, one, exchanges=1)
    assert len({id(learner) for learner in [one, *run.learners]}) == 5
    assert not hasattr(one, "classes_") and hasattr(run.learners[0], "classes_")
    with pytest.raises(ValueError, match="clients 0 and 2 have the same learner"):
        undertone.cotrain(data, public, [one, Nearest, one, Nearest])
    with pytest.raises(ValueError, match="3 learners for 4 clients"):
        undertone.cotrain(data, public, [Nearest] * 3)
    with pytest.raises(TypeError, match=r"client 1: object is no learner: .* no method fit\(\)"):
        undertone.cotrain(data, public, [Nearest, object(), Nearest, Nearest])


def test_clients_that_know_few_classes(dealt: Deal) -> None:
    data, public, truth = dealt(clients=5, rows=200)
    pairs = [np.isin(y, [2 * i, 2 * i + 1]) for i, (_, y) in enumerate(data)]
    few = [(x[kept], y[kept]) for (x, y), kept in zip(data, pairs, strict=True)]
    run = undertone.cotrain(few, public, LogisticRegression, consensus="qualified:0.4", exchanges=3)
    # No two clients know the same class, so no class ever has two votes.
    assert (run.labels == -1).all() and run.exchanges[-1].covered == 0 and run.settled
    assert [sorted(one.classes_) for one in run.learners] == [[2 * i, 2 * i + 1] for i in range(5)]
    run = undertone.cotrain(few, public, LogisticRegression, exchanges=1)
    assert (run.labels >= 0).all() and truth.shape == run.labels.shape


def test_noise(dealt: Deal) -> None:
    data, public, _ = dealt()
    plain = undertone.cotrain(data, public, Nearest, exchanges=2)
    for noise in ("none", "krr:32", "xor:32:1"):  # noise that changes nothing
        run = undertone.cotrain(data, public, Nearest, exchanges=2, noise=noise)
        assert (run.labels == plain.labels).all()
    for votes in ("clear", "counts", "winners"):
        for noise in ("krr:0.5", "xor:1:1"):
            run = undertone.cotrain(data, public, Nearest, exchanges=1, noise=noise, votes=votes)
            assert 0.1 < np.mean(run.labels != plain.labels) < 0.98
    job = CotrainJob(rows=5, features=2, classes=3, public=bytes(32))
    assert job.vote_epsilon is None
    noisy = [
        CotrainJob(rows=5, features=2, classes=3, public=bytes(32), noise=noise)
        for noise in ("krr:2", "xor:2:1")
    ]
    assert [one.vote_epsilon for one in noisy] == [2.0, 4.0]
    assert len({one.digest for one in [job, *noisy]}) == 3


def test_a_quorum_of_all_clients(dealt: Deal) -> None:
    data, public, _ = dealt()
    options: dict[str, Any] = {"consensus": "qualified:0.9", "exchanges": 1}
    with pytest.raises(ValueError, match="of 5 clients is all of them: .*allow_unanimous=True"):
        undertone.cotrain(data, public, Nearest, **options)
    run = undertone.cotrain(data, public, Nearest, allow_unanimous=True, **options)
    assert 0 < run.exchanges[0].covered < 150
    for votes in ("clear", "counts"):  # if two drop out, three are left
        with pytest.raises(ValueError, match="0.8 of 3 clients is all of them: .*raise min_clie"):
            undertone.cotrain(data, public, Nearest, consensus="qualified:0.8", votes=votes)
        undertone.cotrain(
            data, public, Nearest, consensus="qualified:0.8", votes=votes, min_clients=5
        )
    # With noise no vote is told.
    undertone.cotrain(data, public, Nearest, noise="krr:9", **options)


def test_a_seed_fixes_the_run_and_other_options(dealt: Deal) -> None:
    data, public, _ = dealt()
    noisy = [
        undertone.cotrain(data, public, Nearest, noise="krr:1", exchanges=1, seed=seed).labels
        for seed in (7, 7, 8, bytes(32))
    ]
    assert (noisy[0] == noisy[1]).all() and (noisy[0] != noisy[2]).any()
    plain = undertone.cotrain(data, public, Nearest)
    options: dict[str, Any]
    for options in (
        {"malicious_server": True}, {"suite": "chacha20"}, {"classes": 17}, {"min_clients": 5},
    ):
        other = undertone.cotrain(data, public, Nearest, **options)
        assert (other.labels == plain.labels).all(), options


@pytest.mark.parametrize(
    ("returned", "error", "match"),
    [
        (np.zeros(150), TypeError, r"client 2: predict\(\) of Odd returned float64; class numbers"),
        (np.zeros(150, bool), TypeError, "returned bool"),
        (np.zeros((150, 10), int), ValueError, r"returned shape \(150, 10\); \(150,\) is needed"),
        (np.zeros(149, int), ValueError, r"returned shape \(149,\)"),
        (np.arange(150), ValueError, "returned 10 for row 10; there are 10 classes, counted from"),
        (np.full(150, -1), ValueError, "returned -1 for row 0"),
        (np.full(150, 2**63, np.uint64), ValueError, "returned 9223372036854775808 for row 0"),
        (None, TypeError, "returned object"),
    ],
)
def test_predictions_that_are_no_classes(
    returned: Any, error: type[Exception], match: str, dealt: Deal
) -> None:
    data, public, _ = dealt()

    class Odd(Nearest):
        def predict(self, X: Rows) -> Any:
            return returned

    with pytest.raises(error, match=match):
        undertone.cotrain(data, public, [Nearest, Nearest, Odd, Nearest, Nearest], classes=10)


@pytest.mark.parametrize("method", ["fit", "predict"])
def test_exceptions_of_the_learner_surface(method: str, dealt: Deal) -> None:
    data, public, _ = dealt()
    called = []

    class Broken(Nearest):
        def __getattribute__(self, name: str) -> Any:
            if name == method:
                called.append(name)
                if len(called) > 3:  # the first exchange goes well
                    raise LookupError(f"no {name}")
            return super().__getattribute__(name)

    with pytest.raises(LookupError, match=f"no {method}"):
        undertone.cotrain(data, public, [Nearest, Nearest, Broken(), Nearest, Nearest])


def test_arguments_that_cannot_be(dealt: Deal) -> None:
    data, public, _ = dealt()
    x, y = data[0]

    def refused(match: str, error: type[Exception] = ValueError, **options: Any) -> None:
        with pytest.raises(error, match=match):
            undertone.cotrain(**{"data": data, "public": public, "learners": Nearest, **options})

    refused("2 clients, at least 3", data=data[:2])
    refused("consensus: it must be 'majority'", consensus="most")
    refused("consensus: it must be", consensus="qualified:1.5")
    refused("votes: it must be 'clear'", votes="all")
    refused("noise: it must be 'none'", noise="krr")
    refused("epsilon of the noise", noise="krr:-1")
    refused("exchanges: 0", exchanges=0)
    refused("classes: 1025", classes=1025)
    refused("public rows: 0", public=public[:0])
    refused("public rows: .*row 3, column 2 is NaN",
            public=np.where(np.arange(150 * 64).reshape(150, 64) == 194, np.nan, public))
    refused(r"public rows have shape \(64,\); \[rows, features\] is needed", public=public[0])
    texts = [data[0], (np.full((2, 2), "x"), y), data[2]]
    refused("client 1: features are of .*U", TypeError, data=texts)
    refused(r"client 0: labels: labels\[0\] has the label 2.5", data=[(x, y * 0.5)] * 3)
    refused(r"client 0: labels have shape \(20, 2\); \[rows\] is needed",
            data=[(x, y.reshape(20, 2))] * 3)
    refused("exchanges is 1.5; a whole number", TypeError, exchanges=1.5)
    refused("client 2: row 0: label 15, but there are 10",
            data=[*data[:2], (x, y + 10)], classes=10)
    refused("client 2: row 7 has no label; leave out",
            data=[*data[:2], (x, np.where(np.arange(40) == 7, -1, y))])
    refused("client 2: 40 rows have 39 labels", data=[*data[:2], (x, y[:-1])])
    refused("client 2: rows of 63 features, but public rows of 64",
            data=[*data[:2], (x[:, 1:], y)])
    with pytest.raises(ValueError, match="public has 1 bytes"):
        CotrainJob(rows=5, features=2, classes=3, public=b"?")


def test_public_rows_have_a_digest(dealt: Deal) -> None:
    _, public, _ = dealt()
    digest = undertone.public_digest(public)
    assert len(digest) == 32 and digest == undertone.public_digest(public.astype(np.float32))
    assert digest != undertone.public_digest(public[::-1])
    assert digest != undertone.public_digest(public, standardise=False)


INTERRUPTED = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np, undertone
from test_cotrain import Nearest

class Slow(Nearest):
    def fit(self, X, y):
        print("ready", flush=True)
        time.sleep(60)

rng = np.random.default_rng(0)
data = [(rng.normal(size=(90, 4)), np.arange(90) % 2) for _ in range(3)]
try:
    undertone.cotrain(data, data[0][0], Slow)
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_control_c_ends_a_run() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted"


def test_exceptions_of_progress_end_the_run(dealt: Deal) -> None:
    data, public, _ = dealt()

    class Slow(Nearest):
        def fit(self, X: Rows, y: Classes) -> None:
            time.sleep(0.06)
            super().fit(X, y)

    def fail(text: str) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        undertone.cotrain(data, public, Slow, progress=fail)


class Own:
    """A job over a transport of one's own: each session has new parties, made of what was kept."""

    def __init__(self, dealt: Dealt, allow_unanimous: bool = False, **options: Any) -> None:
        self.data, self.public, _ = dealt
        self.terms = CotrainTerms(
            allow_unanimous=allow_unanimous, votes=options.get("votes", "winners")
        )
        self.records, self.state = dict[int, Record](), Path(tempfile.mkdtemp(), "state")
        digest = undertone.public_digest(self.public, standardise=False)
        self.job = CotrainJob(
            rows=len(self.public), features=64, classes=10, public=digest, standardise=False,
            **{"exchanges": 3, **options},
        )

    def server(self) -> CotrainServer:
        return CotrainServer(self.job, checkpoint=self.state)

    def client(self, index: int, learner: Any = None) -> CotrainClient:
        return CotrainClient(
            learner or Nearest(), *self.data[index], self.public,
            record=self.records.setdefault(index, Record.simulated()),
            terms=self.terms,
        )

    def party(self, index: int, session: bytes, learner: Any = None) -> Session[CotrainStep]:
        return self.client(index, learner).session(self.job, session, index=index)

    def run(self, present: list[int], without: int | None = None) -> tuple[Any, list[Any]]:
        """A session of clients, one of which may drop out at once."""
        party = self.server().session(present)
        here = [one for one in party.clients if one != without]
        clients = [self.party(one, party.session) for one in here]
        if without is not None:
            party.gone(without)
        undertone.run(party, clients)
        return party.result(), [client.result() for client in clients]


@pytest.mark.parametrize("votes", ["clear", "counts", "winners"])
def test_parties_without_io(votes: str, dealt: Deal) -> None:
    own = Own(dealt(), votes=votes)
    due = plainly(own.data, own.public, Nearest, 0, 3)
    everybody = list(range(5))
    assert own.server().labels is None and own.client(0).last == 0
    for number, labels in enumerate(due, 1):
        report, steps = own.run(everybody[::-1])
        assert report.kind == "exchange" and (report.labels == labels).all()
        assert report.exchange == CotrainExchange(number, everybody, 150, 0)
        assert [(step.kind, step.number) for step in steps] == [("exchange", number)] * 5
        assert all((step.labels == labels).all() for step in steps)
        server = own.server()
        assert server.begun == number
        assert server.labels is not None and np.array_equal(server.labels, labels)
        assert own.client(2).last == number
    server = own.server()
    assert server.over and len(server.exchanges) == len(due)
    assert server.settled == bool((due[-1] == due[-2]).all())
    # The end: all clients get the last consensus, also one by one.
    learner = Nearest()
    party = server.session([3])
    client = own.party(3, party.session, learner)
    undertone.run(party, [client])
    report, step = party.result(), client.result()
    assert report is not None and report.kind == "over" and report.labels is None
    assert step is not None and step.kind == "over" and step.labels is not None
    assert (step.labels == due[-1]).all() and learner.rows == 40 + 150


def test_clients_that_drop_out_and_come_back(dealt: Deal) -> None:
    own = Own(dealt(clients=6))
    report, steps = own.run(list(range(6)), without=4)
    assert report.exchange.contributors == [0, 1, 2, 3, 5] and report.exchange.lost == 0
    due = plainly([own.data[one] for one in (0, 1, 2, 3, 5)], own.public, Nearest, 0, 1)
    assert (report.labels == due[0]).all() and len(steps) == 5
    report, _ = own.run([1, 3, 4])
    assert report.exchange.contributors == [1, 3, 4] and own.client(0).last == 1
    with pytest.raises(ValueError, match=r"clients \[1, 2\] 2 can take part, 3 are needed"):
        own.server().session([2, 1])
    assert own.server().begun == 2
    report, _ = own.run(list(range(6)))
    assert report.exchange.number == 3 and own.server().over


def test_parties_with_keys(dealt: Deal) -> None:
    own = Own(dealt(clients=4), malicious_server=True, exchanges=1)
    keys = [undertone.generate_key() for _ in range(4)]
    public = [undertone.public_key(key) for key in keys]
    clients = [own.client(one) for one in range(4)]
    kinds: list[str] = []
    while kinds[-1:] != ["over"]:
        party = own.server().session(range(4))
        parties = [
            one.session(own.job, party.session, index=index, key=key, public_keys=public)
            for index, (one, key) in enumerate(zip(clients, keys, strict=True))
        ]
        undertone.run(party, parties)
        report = party.result()
        assert report is not None and party.costs and "<Session: server" in repr(party)
        kinds.append(report.kind)
    assert kinds == ["exchange", "over"]
    with pytest.raises(ValueError, match="does not belong to its public key"):
        clients[0].session(own.job, bytes(32), index=0, key=keys[1], public_keys=public)
    with pytest.raises(ValueError, match="needs key and public_keys"):
        clients[0].session(own.job, bytes(32), index=0)


def test_a_client_votes_once_in_an_exchange(dealt: Deal) -> None:
    own = Own(dealt())
    own.run(list(range(5)))
    own.state.unlink()  # a server that goes back
    party = own.server().session(range(5))
    client = own.party(0, party.session)
    for to, frame in party.poll():
        if to == 0:
            client.push(SERVER, frame)
    with pytest.raises(undertone.AbortedError, match="an exchange that is over") as caught:
        while client.poll():
            pass
    assert caught.value.culprit == SERVER and own.client(0).last == 1


def test_a_client_refuses_to_be_unanimous(dealt: Deal) -> None:
    own = Own(dealt(), consensus="qualified:0.8")
    report, _ = own.run(list(range(5)))
    assert report.exchange.covered > 0
    # Four of four would tell every vote.
    party = own.server().session(range(4))
    client = own.party(0, party.session)
    for to, frame in party.poll():
        if to == 0:
            client.push(SERVER, frame)
    with pytest.raises(undertone.AbortedError, match="of 4 clients is all of them"):
        while client.poll():
            pass
    with pytest.raises(undertone.AbortedError):  # one drops out, and four are left
        own.run(list(range(5)), without=4)
    own = Own(dealt(), consensus="qualified:0.8", allow_unanimous=True)
    report, _ = own.run(list(range(4)))
    assert report.exchange.contributors == [0, 1, 2, 3]


def test_a_job_that_does_not_meet_the_terms_is_refused(dealt: Deal) -> None:
    def session(terms: CotrainTerms, **options: Any) -> None:
        own = Own(dealt(), **options)
        own.terms = terms
        own.party(0, undertone.session_id(None))

    session(CotrainTerms())
    refused: list[tuple[CotrainTerms, dict[str, Any], str]] = [
        (CotrainTerms(), {"votes": "counts"}, "votes"),
        (CotrainTerms(), {"min_clients": 2}, "min_clients"),
        (CotrainTerms(max_rounds=2), {}, "max_rounds"),
        (CotrainTerms(max_epsilon=2), {}, "max_epsilon"),
        (CotrainTerms(max_epsilon=2), {"noise": "krr:1"}, "max_epsilon"),
        (CotrainTerms(malicious_server=True), {}, "malicious_server"),
    ]
    for terms, options, term in refused:
        with pytest.raises(undertone.RefusedError, match=rf"\(term {term}\)"):
            session(terms, **options)
    session(CotrainTerms(votes="clear"), votes="counts")
    session(CotrainTerms(max_epsilon=3.5), noise="krr:1")


def test_parties_that_cannot_be(dealt: Deal) -> None:
    own = Own(dealt())
    with pytest.raises(TypeError, match="record is b'.*a Record or the name of one"):
        wrong: Any = b"?"
        CotrainClient(Nearest(), *own.data[0], own.public, record=wrong)
    own.state.write_bytes(b"?")
    with pytest.raises(ValueError, match="it is no checkpoint"):
        own.server()
    own.state.unlink()
    own.public = own.public[::-1]
    with pytest.raises(ValueError, match="the public rows differ from the job's"):
        own.party(0, bytes(32))
    own.public = own.public[1:]
    with pytest.raises(ValueError, match="public rows: 149, the job has 150"):
        own.party(0, bytes(32))
    with pytest.raises(ValueError, match="numbered from 0"):
        own.server().session([-1, 0, 1])


def test_exceptions_leave_through_the_party(dealt: Deal) -> None:
    own = Own(dealt())

    class Failing(Nearest):
        def fit(self, X: Rows, y: Classes) -> None:
            raise LookupError("a secret of the owner")

    def first(party: Any, client: Any) -> list[tuple[int, bytes]]:
        """Lets the client work until it raises or waits. Returns what peers are told."""
        told: list[tuple[int, bytes]] = []
        for to, frame in party.poll():
            if to == 0:
                client.push(SERVER, frame)
        while frames := client.poll():
            told += frames
        return told

    party = own.server().session(range(5))
    with pytest.raises(LookupError, match="a secret"):
        first(party, own.party(0, party.session, Failing()))

    # The others finish without it, and are not told why.
    party = own.server().session(range(5))
    broken = own.party(0, party.session, Failing())
    clients = [own.party(one, party.session) for one in range(1, 5)]
    told: list[tuple[int, bytes]] = []
    for to, frame in party.poll():
        (broken if to == 0 else clients[to - 1]).push(SERVER, frame)
    with pytest.raises(LookupError):
        while True:
            told += broken.poll()
    # The server is told that it has left.
    assert told[-1][0] == SERVER and b"secret" not in b"".join(frame for _, frame in told)
    party.gone(0)
    undertone.run(party, clients)
    report = party.result()
    assert report is not None and report.exchange is not None
    assert report.exchange.contributors == [1, 2, 3, 4]


def test_a_learner_must_not_use_its_own_party(dealt: Deal) -> None:
    own, parties = Own(dealt()), list[Any]()

    class Curious(Nearest):
        def fit(self, X: Rows, y: Classes) -> None:
            parties[0].poll()

    party = own.server().session(range(5))
    parties.append(own.party(0, party.session, Curious()))
    for to, frame in party.poll():
        if to == 0:
            parties[0].push(SERVER, frame)
    with pytest.raises(RuntimeError, match="must not use the party that calls it"):
        while True:
            parties[0].poll()


def test_the_example_runs() -> None:
    script = ROOT / "examples" / "python" / "cotrain.py"
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT / "data" / "breast_cancer.npz")],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines[-2:]] == ["alone", "co-trained"]
