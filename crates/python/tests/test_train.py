"""Training with propagated labels."""

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

import undertone
from undertone import (
    SERVER,
    Examples,
    Schedule,
    Session,
    Targets,
    TrainClient,
    TrainJob,
    TrainServer,
    TrainStep,
    TrainTerms,
)

Array = NDArray[np.float32]
Dealt = tuple[list[tuple[Any, Any]], tuple[Any, Any]]
FEATURES, CLASSES = 64, 10


class Softmax:
    """Multinomial logistic regression. Its embeddings are the rows."""

    def __init__(self, features: int = FEATURES, classes: int = CLASSES) -> None:
        self.weights: Array = np.zeros((features + 1, classes), np.float32)
        self.batches: list[tuple[list[int], list[float]]] = []

    def params(self) -> Array:
        return self.weights.ravel()

    def set_params(self, params: Array) -> None:
        self.weights = params.reshape(self.weights.shape)

    def embed(self, rows: Array) -> Array:
        return rows

    def predict(self, rows: Array) -> Array:
        logits = rows @ self.weights[:-1] + self.weights[-1]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)

    def update(self, examples: Examples, schedule: Schedule) -> None:
        for rows, classes, weights in schedule.batches(examples):
            self.batches.append((rows.tolist(), weights.tolist()))
            batch = examples.rows[rows]
            slope = self.predict(batch)
            slope[np.arange(len(rows)), classes] -= 1
            slope *= weights[:, None] / len(rows)
            gradient = np.vstack([batch.T @ slope, slope.sum(axis=0)])
            gradient += schedule.weight_decay * self.weights
            self.weights = np.asarray(self.weights - schedule.learning_rate * gradient, "f")


@pytest.fixture(scope="session")
def dealt(data: Path) -> Callable[..., Dealt]:
    """Deals the digits to clients: features with few labels, and a test set."""
    with np.load(data / "digits.npz") as file:
        features, labels = file["features"] / 16, file["labels"].astype(np.int64)

    def deal(clients: int = 5, rows: int = 60, known: int = 10, seed: int = 0) -> Dealt:
        order = np.random.default_rng(seed).permutation(len(labels))
        parts = [order[i * rows : (i + 1) * rows] for i in range(clients)]
        each = [
            (features[part], np.where(np.arange(rows) < known, labels[part], -1))
            for part in parts
        ]
        test = order[-300:]
        return each, (features[test], labels[test])

    return deal


FAST: dict[str, Any] = {"label_rounds": 2, "rounds": 3, "bits": 512, "seed": 1}


def test_training_finds_more_than_the_labels_tell(dealt: Callable[..., Dealt]) -> None:
    clients, test = dealt(known=4)
    seen: list[tuple[int, int]] = []
    model = Softmax()
    run = undertone.train(
        model, clients, test=test, **FAST | {"rounds": 12},
        on_round=lambda number, params: seen.append((number, params.size)),
    )
    alone = undertone.train(
        Softmax(), clients, test=test, labels_from="labels", **FAST | {"rounds": 12}
    )
    assert run.accuracy is not None and alone.accuracy is not None
    assert run.accuracy > max(0.6, alone.accuracy)
    assert seen == [(number, 650) for number in range(1, 15)]
    assert [one.number for one in run.rounds] == list(range(1, 15))
    assert all(one.contributors == [0, 1, 2, 3, 4] for one in run.rounds)
    assert run.groups == [[0, 1, 2, 3, 4]]
    assert [sum(one.pseudo.values()) > 0 for one in run.rounds] == [False] * 2 + [True] * 12
    assert run.model is model and (model.params() == run.params).all()
    assert sorted(run.costs) == [SERVER, 0, 1, 2, 3, 4]
    assert any(cost.phase == "local update" for cost in run.costs[0])
    assert len(run.accuracies) == 14 and run.accuracies[-1] == run.accuracy


def test_the_sum_is_the_mean_of_the_clients_updates(dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt()
    made: list[Softmax] = []

    def factory() -> Softmax:
        made.append(Softmax())
        return made[-1]

    one = FAST | {"label_rounds": 1, "rounds": 1, "labels_from": "labels"}
    run = undertone.train(factory, clients, **one)
    assert len(made) == 6 and run.model is made[0]
    # The same update in the clear, from the batches that each client had.
    params = np.zeros(650)
    for number in range(2):
        updates = []
        for client, (features, labels) in zip(made[1:], clients, strict=True):
            again = Softmax()
            again.set_params(np.asarray(params, np.float32))
            batches = client.batches[number * 5 : number * 5 + 5]
            for rows, weights in batches:
                known = np.asarray(labels)[rows]
                batch = np.asarray(features, np.float32)[rows]
                slope = again.predict(batch)
                slope[np.arange(len(rows)), known] -= 1
                slope *= np.array(weights, np.float32)[:, None] / len(rows)
                gradient = np.vstack([batch.T @ slope, slope.sum(axis=0)])
                gradient += 2e-4 * again.weights
                again.weights = np.asarray(again.weights - 0.1 * gradient, "f")
            updates.append(again.params())
        params = np.mean(updates, axis=0)
    np.testing.assert_allclose(run.params, params, atol=1e-5)


@pytest.mark.parametrize("source", ["labels", "network", "local", "xclp"])
@pytest.mark.parametrize("free", [False, True])
def test_every_source(source: str, free: bool, dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt(clients=6)
    options = FAST | {"label_rounds": 1, "rounds": 2, "labels_from": source}
    runs = [
        undertone.train(Softmax(), clients, free_sampling=free, sampled=4, **options)
        for _ in range(2)
    ]
    assert (runs[0].params == runs[1].params).all()
    assert all(len(one.contributors) == (4 if free else 6) for one in runs[0].rounds)
    assert (sum(runs[0].rounds[-1].pseudo.values()) > 0) == (source != "labels")


def test_other_options(dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt()
    plain = undertone.train(Softmax, clients, backend="clear", **FAST)
    options: dict[str, Any]
    for options in ({"backend": "psm"}, {"backend": "lwe"}, {"malicious_server": True}):
        other = undertone.train(Softmax(), clients, **FAST | {"backend": "clear"} | options)
        # The batches and the projection follow from the job, too.
        assert np.corrcoef(plain.params, other.params)[0, 1] > 0.98, options
    for options in (
        {"label_epsilon": 1.0}, {"variant": "paper"}, {"alpha": 0.5}, {"neighbours": 3},
        {"epochs": 1}, {"learning_rate": 0.5}, {"weight_decay": 0.1}, {"bits": 256},
    ):
        other = undertone.train(Softmax(), clients, **{**FAST, "backend": "clear", **options})
        assert (plain.params != other.params).any(), options


def test_clipped_and_diverging_updates_are_told(dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt()

    class Odd(Softmax):
        def update(self, examples: Examples, schedule: Schedule) -> None:
            self.weights = self.weights + np.float32(self.by)

        by = 0.0

    made = []

    def factory() -> Odd:
        made.append(Odd())
        made[-1].by = [0.0, 0.5, 9.0, float("nan"), 0.5, 0.5][len(made) - 1]
        return made[-1]

    run = undertone.train(factory, clients, **FAST | {"label_rounds": 0, "rounds": 1}, clip=2.0)
    assert run.rounds[0].diverged == [2] and run.rounds[0].clipped == {1: 650}
    np.testing.assert_allclose(run.params, (0.5 + 2 + 0 + 0.5 + 0.5) / 5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value).*:RuntimeWarning")
def test_an_infinite_change_diverges(dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt()
    far = np.float32(3e38)

    class Far(Softmax):
        def __init__(self) -> None:
            super().__init__()
            self.weights = self.weights - far

        def update(self, examples: Examples, schedule: Schedule) -> None:
            if self is made[3]:
                # From one finite number to another one.
                self.weights = self.weights * -1

        def predict(self, rows: Any) -> Any:
            return np.full((len(rows), 10), 0.1, np.float32)

    made: list[Far] = []

    def factory() -> Far:
        made.append(Far())
        return made[-1]

    run = undertone.train(factory, clients, **FAST | {"label_rounds": 0, "rounds": 1}, clip=2.0)
    assert run.rounds[0].diverged == [2] and not run.rounds[0].clipped
    assert (run.params == -far).all()


def test_batches_are_those_of_the_engine() -> None:
    def targets(first: int, last: int) -> Targets:
        rows = np.arange(first, last)
        return Targets(rows, rows % 3, np.full(len(rows), 0.25, np.float32))

    schedule = Schedule(3, 2, 4, 0.1, 0.0, 0.0, bytes([3]) * 32)
    examples = Examples(np.zeros((13, 1), np.float32), targets(0, 3), targets(3, 13))
    batches = list(schedule.batches(examples))
    assert [len(rows) for rows, _, _ in batches] == [6, 6, 4] * 3
    for rows, classes, weights in batches:
        assert (classes == rows % 3).all() and (weights == 0.25).all()
        assert (rows[:2] < 3).all() and (rows[2:] >= 3).all()
    # Each epoch is one pass over the rows with pseudo-labels.
    for epoch in range(3):
        passed = np.concatenate([rows[2:] for rows, _, _ in batches[3 * epoch : 3 * epoch + 3]])
        assert sorted(passed) == list(range(3, 13))
    again = list(schedule.batches(examples))
    assert all((a[0] == b[0]).all() for a, b in zip(batches, again, strict=True))
    assert 0 <= schedule.random_state < 2**63
    with pytest.raises(ValueError, match="targets have 2 rows, 1 classes"):
        schedule.batches(
            Examples(
                examples.rows, Targets(np.arange(2), np.arange(1), np.ones(2, "f")), targets(0, 0)
            )
        )
    with pytest.raises(ValueError, match="below 0"):
        schedule.batches(Examples(examples.rows, targets(-1, 1), targets(0, 0)))


@pytest.mark.parametrize("method", ["params", "set_params", "embed", "predict", "update"])
def test_exceptions_of_the_model_surface(method: str, dealt: Callable[..., Dealt]) -> None:
    clients, test = dealt()
    called = []

    class Broken(Softmax):
        def __getattribute__(self, name: str) -> Any:
            if name == method and self.__dict__.get("is_client"):
                called.append(name)
                if len(called) > 5:  # not the first call of each
                    raise LookupError(f"no {name}")
            return super().__getattribute__(name)

    made = []

    def factory() -> Broken:
        made.append(Broken())
        made[-1].__dict__["is_client"] = len(made) > 1
        return made[-1]

    options = FAST | {"labels_from": "network" if method == "predict" else "xclp"}
    with pytest.raises(LookupError, match=f"no {method}"):
        undertone.train(factory, clients, test=test, **options)


def test_results_of_the_wrong_shape(dealt: Callable[..., Dealt]) -> None:
    clients, test = dealt()

    class Flat(Softmax):
        def embed(self, rows: Array) -> Array:
            return rows[:, 0]

    with pytest.raises(ValueError, match=r"embed\(\) returned an array of shape \(60,\)"):
        undertone.train(Flat(), clients, **FAST)

    class Short(Softmax):
        def embed(self, rows: Array) -> Array:
            return rows[1:]

    with pytest.raises(undertone.AbortedError, match="59 embeddings for 60 rows"):
        undertone.train(Short(), clients, **FAST)

    class Grown(Softmax):
        def update(self, examples: Examples, schedule: Schedule) -> None:
            self.weights = np.zeros((1, 1), np.float32)

    with pytest.raises(undertone.AbortedError, match="changed its size"):
        undertone.train(Grown(), clients, **FAST)

    class Wide(Softmax):
        def predict(self, rows: Array) -> Array:
            return np.zeros((len(rows), 3), np.float32)

        def update(self, examples: Examples, schedule: Schedule) -> None:
            pass

    with pytest.raises(ValueError, match="for 300 rows of 10 classes"):
        undertone.train(Wide(), clients, test=test, **FAST)
    with pytest.raises(undertone.AbortedError, match="180 values for 60 rows of 10 classes"):
        undertone.train(Wide(), clients, **FAST | {"labels_from": "network"})


def test_arguments_that_cannot_be(dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt()
    with pytest.raises(ValueError, match="2 clients, at least 3"):
        undertone.train(Softmax(), clients[:2])
    with pytest.raises(TypeError, match=r"object is no model: it has no method params\(\)"):
        undertone.train(object(), clients)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="groups is 2"):
        undertone.train(Softmax(), clients, groups=2)
    with pytest.raises(ValueError, match="unknown arm"):
        undertone.train(Softmax(), clients, labels_from="me")
    with pytest.raises(ValueError, match="client 0: features have shape .*flatten images"):
        undertone.train(Softmax(), [(f.reshape(-1, 8, 8), y) for f, y in clients])
    with pytest.raises(ValueError, match="client 3: .*row"):
        undertone.train(Softmax(), [*clients[:3], (np.full((60, 64), np.nan), clients[3][1])])
    with pytest.raises(ValueError, match="parameters is 0"):
        TrainJob(features=2, classes=2, parameters=0)
    job = TrainJob(features=2, classes=2, parameters=9)
    assert job.digest != TrainJob(features=2, classes=2, parameters=9, epochs=4).digest


def test_exceptions_of_callbacks_end_the_run(dealt: Callable[..., Dealt]) -> None:
    clients, _ = dealt()

    def fail(*arguments: object) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        undertone.train(Softmax(), clients, **FAST, on_round=fail)

    class Slow(Softmax):
        def update(self, examples: Examples, schedule: Schedule) -> None:
            time.sleep(0.06)
            super().update(examples, schedule)

    with pytest.raises(LookupError):
        undertone.train(Slow(), clients, **FAST, progress=fail)


INTERRUPTED = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np, undertone
from test_train import Softmax

class Slow(Softmax):
    def update(self, examples, schedule):
        print("ready", flush=True)
        {wait}

rng = np.random.default_rng(0)
clients = [(rng.normal(size=(900, 64)), np.arange(900) % 10) for _ in range(5)]
try:
    undertone.train(Slow(), clients, label_rounds=1, rounds=2, backend="{backend}")
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(("wait", "backend"), [("time.sleep(60)", "psm"), ("pass", "phe")])
def test_control_c_ends_a_run(wait: str, backend: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(wait=wait, backend=backend),
         str(Path(__file__).parent)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted"


class Own:
    """A job over a transport of one's own: each session has new parties, made of what was kept."""

    def __init__(self, clients: list[tuple[Any, Any]], **options: Any) -> None:
        self.data, self.records = clients, dict[int, undertone.Record]()
        self.state = Path(tempfile.mkdtemp(), "state")
        self.job = TrainJob(
            features=FEATURES, classes=CLASSES, parameters=650,
            **{"label_rounds": 1, "rounds": 2, "bits": 512, **options},
        )

    def server(self) -> TrainServer:
        return TrainServer(self.job, params=Softmax().params(), checkpoint=self.state)

    def client(self, index: int, model: Any = None) -> TrainClient:
        return TrainClient(
            model or Softmax(), *self.data[index],
            record=self.records.setdefault(index, undertone.Record.simulated()),
        )

    def party(self, index: int, at: Session[Any], model: Any = None) -> Session[TrainStep]:
        client = self.client(index, model)
        return client.session(self.job, at.session, index=index, number=at.number)

    def run(self, server: TrainServer, present: list[int]) -> tuple[Any, list[Any]]:
        party = server.session(present)
        clients = [self.party(one, party) for one in party.clients]
        undertone.run(party, clients)
        return party.result(), [client.result() for client in clients]


def test_a_client_declines_what_its_terms_do_not_allow(dealt: Callable[..., Dealt]) -> None:
    clients = dealt(clients=5, rows=40)[0]

    def session(terms: TrainTerms, **options: Any) -> None:
        job = Own(clients, **options).job
        client = TrainClient(
            Softmax(), *clients[0], terms=terms, record=undertone.Record.simulated()
        )
        client.session(job, bytes(32), index=0)

    session(TrainTerms())
    refused: list[tuple[TrainTerms, dict[str, Any], str]] = [
        (TrainTerms(), {"free_sampling": True}, "allow_free_sampling"),
        (TrainTerms(groups_at_least=6), {}, "groups_at_least"),
        (TrainTerms(max_rounds=2), {}, "max_rounds"),
        (TrainTerms(max_epochs=4), {}, "max_epochs"),
        (TrainTerms(max_bits=511), {}, "max_bits"),
        (TrainTerms(malicious_server=True), {}, "malicious_server"),
        (TrainTerms(), {"backend": "psm"}, "backends"),
    ]
    for terms, options, why in refused:
        with pytest.raises(undertone.RefusedError, match=f"term {why}"):
            session(terms, **options)
    session(TrainTerms(backends=("psm",)), backend="psm")
    job = Own(clients).job
    assert TrainJob.read(job.offer).digest == job.digest
    with pytest.raises(ValueError, match="max_peer_rows"):
        session(TrainTerms(max_peer_rows="many"))
    session(TrainTerms(max_peer_rows=500))


def test_parties_without_io(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt(clients=11, rows=40)[0], groups=5, sampled=5)
    everybody = list(range(11))
    report, steps = own.run(own.server(), everybody)
    assert report.kind == "census" and report.clients == everybody
    assert [step.kind for step in steps] == ["census"] * 11
    server = own.server()
    assert server.clients == everybody and server.begun == 0 and not server.over
    assert sorted(map(len, server.groups)) == [5, 6]
    # A group that lacks a client sits out.
    absent = server.groups[0][0]
    present = [one for one in everybody if one != absent]
    for number in (1, 2, 3):
        report, steps = own.run(own.server(), present)
        assert (report.kind, report.number) == ("round", number)
        assert report.clients == own.server().groups[1]
        assert all(step.number == number for step in steps)
        assert all((step.pseudo > 0) == (number > 1) for step in steps)
    server = own.server()
    assert server.over and [number for number, _ in server.rounds] == [1, 2, 3]
    assert own.client(server.groups[1][0]).last == 3 and own.client(absent).last == 0
    report, steps = own.run(server, everybody)
    assert report.kind == "over"
    assert all((step.params == server.params).all() for step in steps)
    assert (server.params != 0).any()


def test_a_client_that_declines_a_job_takes_the_next(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt()[0])
    client = own.client(0)
    wrong = TrainJob(features=FEATURES, classes=CLASSES, parameters=7)
    with pytest.raises(ValueError, match="model parameters: 650, the job has 7"):
        client.agree(wrong, signed=False)
    client.agree(own.job, signed=False)
    with pytest.raises(undertone.RefusedError, match="another job than the client agreed to"):
        client.agree(TrainJob.read(wrong.offer), signed=False)


def test_names_of_classes_are_stated(dealt: Callable[..., Dealt]) -> None:
    rows = np.ones((3, FEATURES))
    with pytest.raises(ValueError, match="labels are names; state all classes"):
        TrainClient(Softmax(), rows, ["a", "b", "a"])  # type: ignore[arg-type]
    TrainClient(Softmax(), rows, ["a", "b", "a"], classes=["b", "a"])  # type: ignore[arg-type]


def test_the_job_says_by_what_features_are_divided(dealt: Callable[..., Dealt]) -> None:
    (features, labels), _ = dealt(clients=5, rows=40)[0][0], None
    own = Own([(16 * np.asarray(features), labels)] * 5, scale=16.0)
    seen: list[Array] = []

    class Seeing(Softmax):
        def embed(self, rows: Array) -> Array:
            seen.append(rows)
            return super().embed(rows)

    server = own.server()
    for _ in range(3):
        party = server.session(5)
        undertone.run(party, [own.party(one, party, Seeing()) for one in party.clients])
    assert seen and np.array_equal(seen[0], np.asarray(features, np.float32))


def test_a_server_learns_that_a_session_failed(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt()[0])
    server = own.server()
    for _ in range(5):  # the attempts of a server
        assert not server.done
        party = server.session(5)
        for one in range(5):
            party.gone(one)
        with pytest.raises(undertone.AbortedError):
            while party.poll():
                pass
    assert server.done


def test_parties_with_keys_and_noise(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt()[0], malicious_server=True)
    keys = [undertone.generate_key() for _ in range(5)]
    public = [undertone.public_key(key) for key in keys]
    server = own.server()
    clients = [
        TrainClient(
            Softmax(), *own.data[one], classes=CLASSES, noise=(2.0, bytes([one]) * 32)
        )
        for one in range(5)
    ]
    kinds: list[str] = []
    while kinds[-1:] != ["over"]:
        party = server.session(range(5))
        parties = [
            one.session(
                own.job, party.session, index=index, number=party.number, key=key,
                public_keys=public,
            )
            for index, (one, key) in enumerate(zip(clients, keys, strict=True))
        ]
        undertone.run(party, parties)
        report = party.result()
        assert report is not None and party.costs and repr(party).startswith("<Session: server")
        kinds.append(report.kind)
    assert kinds == ["census", "round", "round", "round", "over"]
    with pytest.raises(ValueError, match="does not belong to its public key"):
        clients[0].session(own.job, bytes(32), index=0, key=keys[1], public_keys=public)
    with pytest.raises(ValueError, match="needs key and public_keys"):
        clients[0].session(own.job, bytes(32), index=0)


def test_a_round_runs_once(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt()[0])
    everybody = list(range(5))
    own.run(own.server(), everybody)
    old = own.state.read_bytes()
    own.run(own.server(), everybody)
    own.state.write_bytes(old)  # a server that goes back
    server = own.server()
    party = server.session(everybody)
    clients = [own.party(one, party) for one in everybody]
    with pytest.raises(undertone.AbortedError):
        undertone.run(party, clients)
    # The round is over all the same.
    assert own.server().begun == 1
    # A client that has forgotten takes part in no round.
    lost = own.records.pop(3)
    party = own.server().session(everybody)
    forgetful = own.party(3, party)
    party.poll()
    with pytest.raises(ValueError, match="no session can begin"):
        own.server().session([0, 1, 2, 4])
    assert forgetful.result() is None and lost


def test_exceptions_leave_through_the_party(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt()[0])
    everybody = list(range(5))
    own.run(own.server(), everybody)

    class Failing(Softmax):
        def set_params(self, params: Array) -> None:
            raise LookupError("a secret of the owner")

    party = own.server().session(everybody)
    clients = [own.party(one, party) for one in everybody[1:]]
    broken = own.party(0, party, Failing())
    with pytest.raises((LookupError, undertone.AbortedError)) as caught:
        undertone.run(party, [broken, *clients])
    # What peers were told.
    assert isinstance(caught.value, LookupError) or "secret" not in str(caught.value)


def test_a_model_must_not_use_its_own_party(dealt: Callable[..., Dealt]) -> None:
    own = Own(dealt()[0])
    everybody = list(range(5))
    own.run(own.server(), everybody)
    parties: list[Any] = []

    class Curious(Softmax):
        def set_params(self, params: Array) -> None:
            parties[0].poll()

    party = own.server().session(everybody)
    parties.append(own.party(0, party, Curious()))
    for to, frame in party.poll():
        if to == 0:
            parties[0].push(SERVER, frame)
    with pytest.raises(RuntimeError, match="must not use the party that calls it"):
        while True:
            parties[0].poll()


# PyTorch


def conv() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, stride=2), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(36, 10),
    )  # fmt: skip


@pytest.mark.torch
def test_torch_parameters_go_and_come(dealt: Callable[..., Dealt]) -> None:
    torch = pytest.importorskip("torch")
    from undertone.torch import TorchModel

    model = TorchModel(conv(), embed="2", shape=(1, 8, 8), teacher=True)
    params = model.params()
    # Convolution, normalisation with its buffers, linear; twice.
    assert params.dtype == np.float32 and len(params) == 2 * (40 + 16 + 370)
    model.set_params(params + 1)
    np.testing.assert_array_equal(model.params(), params + 1)
    with pytest.raises(ValueError, match="5 parameters; the module has 852"):
        model.set_params(params[:5])
    rows = np.asarray(dealt()[0][0][0], np.float32)
    model.set_params(params)
    assert model.embed(rows).shape == (60, 36)
    np.testing.assert_allclose(model.predict(rows).sum(axis=1), 1, atol=1e-5)
    chunked = TorchModel(model.module, embed="2", shape=(1, 8, 8), chunk=7)
    np.testing.assert_allclose(chunked.embed(rows), model.embed(rows), atol=1e-6)
    by_function = TorchModel(
        model.module, embed=lambda module, x: module[:3](x), shape=(1, 8, 8)
    )
    np.testing.assert_array_equal(by_function.embed(rows), model.embed(rows))
    with pytest.raises(AttributeError):
        TorchModel(conv(), embed="missing")
    assert isinstance(model, undertone.Model) and torch


@pytest.mark.torch
def test_a_torch_step_is_that_of_the_engine(dealt: Callable[..., Dealt]) -> None:
    torch = pytest.importorskip("torch")
    from undertone.torch import TorchModel

    linear, numpy = torch.nn.Linear(FEATURES, CLASSES), Softmax()
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    features, labels = dealt()[0][0]
    known = Targets(np.arange(10), labels[:10], np.ones(10, np.float32))
    found = Targets(np.arange(10, 60), np.arange(50) % 10, np.linspace(0.1, 1, 50, dtype="f"))
    examples = Examples(np.asarray(features, np.float32), known, found)
    schedule = Schedule(3, 10, 10, 0.3, 0.01, 0.0, bytes(32))
    TorchModel(linear, lambda module, rows: rows).update(examples, schedule)
    numpy.update(examples, schedule)
    np.testing.assert_allclose(linear.weight.detach().numpy(), numpy.weights[:-1].T, atol=1e-5)
    np.testing.assert_allclose(linear.bias.detach().numpy(), numpy.weights[-1], atol=1e-5)


@pytest.mark.torch
def test_a_mean_teacher_learns(dealt: Callable[..., Dealt]) -> None:
    pytest.importorskip("torch")
    from undertone.torch import TorchModel

    clients, test = dealt(rows=30, known=20)
    model = TorchModel(
        conv(), embed="2", shape=(1, 8, 8), teacher=True,
        augment=lambda x, generator: x + 0.05 * x.new_ones(x.shape),
    )
    run = undertone.train(model, clients, test=test, **FAST, consistency=2.0)
    half = len(run.params) // 2
    assert (run.params[:half] != run.params[half:]).any() and np.isfinite(run.params).all()
    assert run.accuracy is not None and run.accuracy > 0.2


@pytest.mark.torch
def test_the_example_runs() -> None:
    pytest.importorskip("torch")
    script = ROOT / "examples" / "python" / "train.py"
    command = [sys.executable, str(script), str(ROOT / "data" / "digits.npz")]
    done = subprocess.run(
        [*command, "--rounds", "2", "--label-rounds", "2"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["labels", "xclp"]
