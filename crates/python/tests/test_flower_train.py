"""Training with propagated labels on Flower."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_fake import FIRST, FakeGrid
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from test_train import Softmax

import undertone
from undertone import Examples, Schedule, TrainJob, TrainStep, TrainTerms
from undertone.flower import SIMULATED, TrainRun, client, secure, train
from undertone.flower._train import _Nodes
from undertone.flower._wire import FRAMES, GONE, TERMS

FEATURES, CLASSES = 6, 3
SMALL: dict[str, Any] = {"label_rounds": 1, "rounds": 2, "bits": 512, "epochs": 2, "neighbours": 4}


class Counting(Softmax):
    updates = 0

    def update(self, examples: Examples, schedule: Schedule) -> None:
        Counting.updates += 1
        super().update(examples, schedule)


def frames_of(message: Message) -> bytes:
    if not message.has_content() or FRAMES not in message.content:
        return b""
    return message.content.array_records[FRAMES]["bundle"].data


class Owners:
    """Rows of clients, and the models that they take home."""

    def __init__(self, clients: int = 5) -> None:
        rng = np.random.default_rng(0)
        self.truth = [rng.integers(CLASSES, size=30) for _ in range(clients)]
        centres = 3 * rng.normal(size=(CLASSES, FEATURES))
        self.rows = [centres[y] + rng.normal(size=(30, FEATURES)) for y in self.truth]
        self.final: dict[int, NDArray[np.float32]] = {}

    def load(self, context: Context) -> tuple[NDArray[Any], NDArray[Any]]:
        index = int(context.node_config["partition-id"])
        return self.rows[index], np.where(np.arange(30) < 5, self.truth[index], -1)

    def save(self, step: TrainStep, context: Context) -> None:
        assert step.params is not None
        self.final[int(context.node_config["partition-id"])] = step.params

    def app(self, **terms: Any) -> ClientApp:
        app = ClientApp(mods=[secure(clip=2.0, max_weight=400.0)])
        classes = terms.pop("classes", None)

        def make(context: Context) -> undertone.TrainClient:
            return undertone.TrainClient(
                Counting(FEATURES, CLASSES), *self.load(context), classes=classes,
                terms=TrainTerms(**terms),
            )

        app.query("undertone")(client(make, self.save, record=SIMULATED))
        return app


def job(**rules: Any) -> TrainJob:
    parameters = (FEATURES + 1) * CLASSES
    return TrainJob(features=FEATURES, classes=CLASSES, parameters=parameters, **SMALL | rules)


def start(grid: FakeGrid, rules: dict[str, Any] | None = None, **options: Any) -> TrainRun:
    first = np.zeros((FEATURES + 1) * CLASSES)
    return train(grid, job(**rules or {}), first, **{"poll": 0.0, "wait": 0.0, **options})


@pytest.mark.parametrize("source", ["xclp", "network"])
def test_a_job(source: str, tmp_path: Path) -> None:
    owners, Counting.updates = Owners(), 0
    grid = FakeGrid(owners.app(), 5, tmp_path)
    seen: list[int] = []
    run = start(grid, {"labels_from": source}, on_round=lambda number, params: seen.append(number))
    assert seen == [1, 2, 3] and not run.dropped
    assert run.rounds == [(number, [100, 101, 102, 103, 104]) for number in (1, 2, 3)]
    assert run.groups == [[100, 101, 102, 103, 104]]
    # Each client trains once a round, although its party runs again for each message.
    assert Counting.updates == 15
    assert sorted(owners.final) == [0, 1, 2, 3, 4]
    for params in owners.final.values():
        np.testing.assert_array_equal(params, run.params)
    model = Softmax(FEATURES, CLASSES)
    model.set_params(run.params)
    found = model.predict(np.concatenate(owners.rows).astype("f")).argmax(axis=1)
    assert np.mean(found == np.concatenate(owners.truth)) > 0.8
    for reply in grid.replies:
        assert set(reply.content) <= {TERMS, FRAMES}
    # Hello, census, three rounds, end.
    assert len(run.sessions) == 6 and run.seconds > 0
    assert grid.contexts[FIRST].state["undertone.train"]["seed"] == b""


def test_a_group_that_lacks_a_node_sits_out(tmp_path: Path) -> None:
    class Leaving(FakeGrid):
        def get_node_ids(self) -> list[int]:
            return [node for node in super().get_node_ids() if not away or node != 103]

    away: list[int] = []
    grid = Leaving(Owners(10).app(), 10, tmp_path)
    run = start(grid, {"rounds": 3}, on_round=lambda number, params: away.append(number))
    assert sorted(map(len, run.groups)) == [5, 5] and not run.dropped
    group = next(group for group in run.groups if 103 not in group)
    assert [number for number, _ in run.rounds] == [1, 2, 3, 4]
    assert all(who == group for _, who in run.rounds[1:])


def test_a_round_that_lacks_a_node_fails(tmp_path: Path) -> None:
    def before(index: int, message: Message) -> None:
        terms = message.content.config_records[TERMS]
        if index == 3 and terms.get("number") not in (None, 0) and terms["step"] == 2:
            raise RuntimeError("lost")

    grid = FakeGrid(Owners().app(), 5, tmp_path, before=before)
    with pytest.raises(undertone.AbortedError):
        start(grid, attempts=2)
    # The rest of the job: two rounds failed, and the third does too.
    run = start(FakeGrid(Owners().app(), 5, tmp_path / "other"), attempts=1)
    assert len(run.rounds) == 3


def test_a_node_that_goes_offline_is_not_waited_for(tmp_path: Path) -> None:
    """The round fails, and its group sits out from then on. A timeout is an hour."""

    def leave(index: int, message: Message) -> None:
        terms = message.content.config_records[TERMS]
        if not grid.offline and terms.get("number") not in (None, 0) and terms["step"] == 2:
            grid.offline.add(FIRST + index)

    grid = FakeGrid(Owners(10).app(), 10, tmp_path, before=leave)
    run = start(grid, {"rounds": 3})
    (node,) = grid.offline
    assert run.dropped[node] == GONE
    group = next(group for group in run.groups if node not in group)
    assert [number for number, _ in run.rounds] == [2, 3, 4]
    assert all(who == group for _, who in run.rounds)


def test_a_server_continues_from_its_checkpoint(tmp_path: Path) -> None:
    owners = Owners()
    grid, file = FakeGrid(owners.app(), 5, tmp_path), tmp_path / "checkpoint"

    def killed(number: int, params: NDArray[np.float32]) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(grid, checkpoint=file, on_round=killed)
    with pytest.raises(ValueError, match="belongs to another job"):
        start(grid, {"epochs": 3}, checkpoint=file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="it is damaged"):
        start(grid, checkpoint=file)
    file.write_bytes(whole)
    seen: list[int] = []
    run = start(grid, checkpoint=file, on_round=lambda number, params: seen.append(number))
    assert seen == [3] and [number for number, _ in run.rounds] == [1, 2, 3]
    assert not file.exists() and len(owners.final) == 5
    # These nodes begin no other job.
    with pytest.raises(undertone.UndertoneError, match="record does not allow it"):
        start(grid)


def test_a_round_is_not_repeated_on_a_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owners = Owners()
    grid, file = FakeGrid(owners.app(), 5, tmp_path), tmp_path / "checkpoint"
    copies: list[bytes] = []

    def killed(number: int, params: NDArray[np.float32]) -> None:
        copies.append(file.read_bytes())
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(grid, checkpoint=file, on_round=killed)
    file.write_bytes(copies[0])  # a server that goes back to round 1
    replies = len(grid.replies)
    with pytest.raises(undertone.UndertoneError):
        start(grid, checkpoint=file, attempts=1)
    assert all(reply.has_error() for reply in grid.replies[replies:])
    # Nor with another number for a node, which would be in other groups.
    file.write_bytes(copies[1])
    kept = _Nodes(file, job())
    kept.nodes[0], kept.nodes[1] = kept.nodes[1], kept.nodes[0]
    kept.save()
    replies = len(grid.replies)
    with pytest.raises(undertone.UndertoneError):
        start(grid, checkpoint=file, attempts=1)
    assert any(reply.has_error() for reply in grid.replies[replies:])
    assert "gives it another number" in caplog.text


def test_a_lost_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"ward-{index}" for index in range(5)]
    for name in names:
        undertone.Record.new(name, tmp_path / "records", accept_volatile=True)
    config = {"undertone-record": names, "undertone-records": str(tmp_path / "records")}
    grid = FakeGrid(Owners().app(), 5, tmp_path, config=config)
    file = tmp_path / "checkpoint"

    def killed(number: int, params: NDArray[np.float32]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(grid, checkpoint=file, on_round=killed)
    shutil.rmtree(tmp_path / "records" / "ward-2")
    with pytest.raises(undertone.UndertoneError):
        start(grid, checkpoint=file, attempts=1)
    assert "no record of answers at" in caplog.text
    # Nor with a new one.
    undertone.Record.new("ward-2", tmp_path / "records", accept_volatile=True)
    with pytest.raises(undertone.UndertoneError):
        start(grid, checkpoint=file, attempts=1)
    assert "its record is lost" in caplog.text


def test_a_restarted_node_keeps_its_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A SuperLink gives a node that starts again another id, and a lying one needs no restart."""
    records = tmp_path / "records"
    names = [f"ward-{index}" for index in range(10)]
    for name in names:
        undertone.Record.new(name, records, accept_volatile=True)
    config = {
        "undertone-record": names, "undertone-records": str(records),
        "undertone-accept": "volatile-record", "undertone-journal": "",
    }

    def restarted(first: int, run: int) -> FakeGrid:
        grid = FakeGrid(Owners(10).app(), 10, tmp_path, config=config)
        grid.contexts = {
            first + index: Context(run, first + index, old.node_config, RecordDict(), {})
            for index, old in enumerate(grid.contexts.values())
        }
        return grid

    # All nodes are in the last round.
    rules = {"sampled": 10, "rounds": 1, "labels_from": "network"}
    start(restarted(100, 7), rules)
    for first, run, change in ((100, 7, {"rounds": 3}), (500, 8, {"rounds": 3}), (900, 9, {})):
        caplog.clear()
        grid = restarted(first, run)
        with pytest.raises(undertone.UndertoneError, match="record does not allow it"):
            start(grid, {**rules, **change}, attempts=1)
        assert "were in round 2 of a training job" in caplog.text
    # Journals do not depend on the node's id, and lie with the record.
    journals = sorted(one.name for one in (records / "ward-3" / "journal").iterdir())
    assert journals == [f"run-{run:016x}-train" for run in (7, 8, 9)]


@pytest.mark.parametrize(
    ("terms", "rules", "why"),
    [
        ({}, {"free_sampling": True}, "allow_free_sampling"),
        ({"groups_at_least": 7}, {}, "groups_at_least"),
        ({"max_rounds": 2}, {}, "max_rounds"),
        ({"min_clients": 4}, {}, "min_clients"),
        ({"malicious_server": True}, {}, "malicious_server"),
        ({}, {"backend": "sketch"}, "backends"),
        ({"max_epochs": 1}, {}, "max_epochs"),
        ({"classes": 11}, {}, "agreeing to the job failed"),
        ({"max_bits": 256}, {}, "max_bits"),
        ({}, {"alpha": 0.1}, "min_alpha"),
    ],
)
def test_terms(terms: dict[str, Any], rules: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(undertone.RefusedError, match=why):
        start(FakeGrid(Owners().app(**terms), 5, tmp_path), rules)


def test_noise_needs_classes() -> None:
    with pytest.raises(ValueError, match="noise needs classes"):
        undertone.TrainClient(
            Softmax(FEATURES, CLASSES), np.ones((3, FEATURES)), np.arange(3), noise=(1.0, bytes(32))
        )


def test_why_training_fails_stays_on_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Softmax):
        def update(self, examples: Examples, schedule: Schedule) -> None:
            raise RuntimeError("patient 4711 has no age")

    app = ClientApp(mods=[secure(clip=2.0, max_weight=400.0)])
    owners = Owners()

    def make(context: Context) -> undertone.TrainClient:
        return undertone.TrainClient(Failing(FEATURES, CLASSES), *owners.load(context))

    app.query("undertone")(client(make, record=SIMULATED))
    grid = FakeGrid(app, 5, tmp_path)
    with pytest.raises(undertone.UndertoneError):
        start(grid, attempts=1)
    errors = [str(reply.error.reason) for reply in grid.replies if reply.has_error()]
    assert errors and not any("4711" in error for error in errors)
    assert all(b"4711" not in frames_of(reply) for reply in grid.replies)
    assert "4711" in caplog.text


def test_a_job_with_keys(pinned: dict[str, Any], tmp_path: Path) -> None:
    grid = FakeGrid(Owners().app(malicious_server=True), 5, tmp_path, config=pinned)
    run = start(grid, {"malicious_server": True}, roster=pinned["undertone-roster"])
    assert [who for _, who in run.rounds] == [[104, 103, 102, 101, 100]] * 3
    with pytest.raises(ValueError, match="needs roster"):
        start(grid, {"malicious_server": True})
