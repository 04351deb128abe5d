"""Secure means and label propagation on Flower."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_fake import FIRST, FakeGrid, copied
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, Krum, Strategy
from frame import Frame
from numpy.typing import NDArray
from ports import free_port
from six import trials

import undertone
from undertone.flower import (
    CLIPPED,
    SIMULATED,
    LabelRound,
    SecureGrid,
    _wire,
    label,
    secure,
    serve,
)
from undertone.flower import client as taking_part
from undertone.flower._wire import FRAMES, GONE, TERMS, about

#: What a server learns of a refusal.
TOLD = "this client's record does not allow it"

RULES: dict[str, Any] = {"clip": 2.0, "max_weight": 400.0}
#: Any nodes contribute, so that one of five can drop out. Groups are in test_flower_groups.py.
FREE: dict[str, Any] = {"free_sampling": True}
ALLOWED: dict[str, Any] = {"allow_free_sampling": True}
WEIGHTS = [300, 400, 250, 350, 380]
ROOT = Path(__file__).resolve().parents[3]


def initial() -> ArrayRecord:
    return ArrayRecord(
        {"w": Array(np.zeros((20, 10), np.float32)), "b": Array(np.zeros((), np.float32))}
    )


def update(index: int, name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    """What client ``index`` trains. It depends on nothing else."""
    rng = np.random.default_rng([index, *name.encode()])
    return np.asarray(0.9 * array + rng.uniform(-0.3, 0.3, array.shape), np.float32)


def train(message: Message, context: Context) -> Message:
    index = int(context.node_config["partition-id"])
    assert TERMS not in message.content and FRAMES not in message.content
    arrays = {
        name: Array(update(index, name, array.numpy()))
        for name, array in message.content.array_records["arrays"].items()
    }
    metrics = MetricRecord(
        {"loss": 0.1 * index, "secret": 7.0, "num-examples": WEIGHTS[index]}
    )
    return Message(
        RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message
    )


def evaluate(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"accuracy": 0.5, "num-examples": 1})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def client(*, plain: bool = False, trainer: Any = train, **terms: Any) -> ClientApp:
    terms = {**RULES, **ALLOWED, "record": SIMULATED, **terms}
    app = ClientApp(mods=[] if plain else [secure(**terms)])
    app.train()(trainer)
    app.evaluate()(evaluate)
    app.query()(evaluate)
    return app


def averaging(kind: type[Any] = FedAvg, **options: Any) -> Any:
    return kind(fraction_evaluate=0.0, **options)


def start(
    grid: FakeGrid, kind: Strategy | None = None, rounds: int = 1, **rules: Any
) -> tuple[SecureGrid, dict[str, NDArray[Any]]]:
    kind = averaging() if kind is None else kind
    rules = {**RULES, **FREE, "strategy": kind, "poll": 0.0, **rules}
    secured = SecureGrid(grid, **rules)
    result = kind.start(grid=secured, initial_arrays=initial(), num_rounds=rounds)
    return secured, {name: array.numpy() for name, array in result.arrays.items()}


def mean_of(indices: list[int], name: str = "w") -> NDArray[Any]:
    """The weighted mean of what the clients train in the first round."""
    start = initial()[name].numpy()
    weights = [WEIGHTS[index] for index in indices]
    updates = np.array([update(index, name, start) for index in indices], np.float64)
    mean: NDArray[Any] = np.average(updates, axis=0, weights=weights)
    return mean


def why(reply: Message) -> str:
    """Why a node did not do what it was asked."""
    return str(reply.error.reason)


# Means


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, FedAdam, FedProx])
def test_strategies_give_what_they_give_in_the_clear(kind: type[Any], tmp_path: Path) -> None:
    options = {"proximal_mu": 0.1} if kind is FedProx else {}
    plain = averaging(kind, **options).start(
        grid=FakeGrid(client(plain=True), 5, tmp_path), initial_arrays=initial(), num_rounds=3
    )
    grid = FakeGrid(client(metrics=["loss"]), 5, tmp_path)
    secured, arrays = start(grid, averaging(kind, **options), rounds=3, metrics=["loss"])
    for name, array in plain.arrays.items():
        assert arrays[name].dtype == array.numpy().dtype
        assert arrays[name].shape == array.numpy().shape
        np.testing.assert_allclose(arrays[name], array.numpy(), rtol=0, atol=1e-6)
    assert len(secured.rounds) == 3
    for this in secured.rounds:
        assert sorted(this.contributors) == [100, 101, 102, 103, 104]
        assert this.weight == sum(WEIGHTS)
        assert this.metrics["loss"] == pytest.approx(0.20654762, abs=1e-6)
        names = [exchange.name for exchange in this.exchanges]
        assert names == ["keys", "shares", "train and upload", "unmask"]
        assert not this.dropped and not this.suspects and this.failed is None


@pytest.mark.parametrize("bits", [32, 64])
def test_the_strategy_sees_one_reply_with_the_total_weight(bits: int, tmp_path: Path) -> None:
    grid = FakeGrid(client(bits=bits), 5, tmp_path)
    secured = SecureGrid(grid, **RULES, bits=bits, poll=0.0)
    asked = list(averaging().configure_train(1, initial(), ConfigRecord(), secured))
    (reply,) = secured.send_and_receive(asked)
    assert reply.content["metrics"] == MetricRecord({"num-examples": sum(WEIGHTS)})
    mean = reply.content.array_records["arrays"]["w"].numpy()
    assert mean.dtype == np.float32 and mean.shape == (20, 10)
    np.testing.assert_allclose(mean, mean_of([0, 1, 2, 3, 4]), rtol=0, atol=1e-6)


def test_integers_are_rounded(tmp_path: Path) -> None:
    def counting(message: Message, context: Context) -> Message:
        record = ArrayRecord({"n": Array(np.array([3, 4], np.int64))})
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    app = client(trainer=counting, clip=8.0)
    kind = averaging()
    secured = SecureGrid(FakeGrid(app, 3, tmp_path), clip=8.0, max_weight=400.0, poll=0.0)
    record = ArrayRecord({"n": Array(np.zeros(2, np.int64))})
    (reply,) = secured.send_and_receive(
        list(kind.configure_train(1, record, ConfigRecord(), secured))
    )
    mean = reply.content.array_records["arrays"]["n"].numpy()
    assert mean.dtype == np.int64 and mean.tolist() == [3, 4]


def test_a_client_that_fails_in_training_leaves_the_mean_of_the_others(tmp_path: Path) -> None:
    def failing(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            raise RuntimeError("patient 4711 has no age")
        return train(message, context)

    grid = FakeGrid(client(trainer=failing), 5, tmp_path)
    secured, arrays = start(grid)
    np.testing.assert_allclose(arrays["w"], mean_of([0, 1, 3, 4]), rtol=0, atol=1e-6)
    (this,) = secured.rounds
    assert sorted(this.contributors) == [100, 101, 103, 104]
    assert list(this.dropped) == [102] and "training failed" in this.dropped[102]
    # Flower sends the text of exceptions to the server.
    assert not any("4711" in why(reply) for reply in grid.replies if reply.has_error())


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_client_can_drop_out_in_any_message(step: int, tmp_path: Path) -> None:
    def fail(index: int, message: Message) -> None:
        if index == 1 and message.content.config_records[TERMS]["step"] == step:
            raise RuntimeError("gone")

    grid = FakeGrid(client(), 5, tmp_path, before=fail)
    secured, arrays = start(grid)
    others = [0, 1, 2, 3, 4] if step == 3 else [0, 2, 3, 4]
    np.testing.assert_allclose(arrays["w"], mean_of(others), rtol=0, atol=1e-6)
    assert sorted(secured.rounds[0].contributors) == [FIRST + index for index in others]
    assert secured.rounds[0].dropped.keys() == {101}


def test_a_silent_client_is_dropped_after_the_timeout(tmp_path: Path) -> None:
    class Silent(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = super().pull_messages(message_ids)
            return [one for one in replies if one.metadata.src_node_id != 104]

    secured, arrays = start(Silent(client(), 5, tmp_path), setup_timeout=0.2)
    np.testing.assert_allclose(arrays["w"], mean_of([0, 1, 2, 3]), rtol=0, atol=1e-6)
    assert secured.rounds[0].dropped == {104: "no reply within 0.2 seconds"}


def steps_of(grid: FakeGrid, node: int) -> list[Any]:
    """The numbers of the messages that were sent to a node."""
    messages = [one for one in grid.sent if one.metadata.dst_node_id == node]
    return [message.content.config_records[TERMS]["step"] for message in messages]


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_node_that_goes_offline_is_not_waited_for(
    step: int, reports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It goes while it has a message to answer. The timeouts are five minutes and none."""

    def leave(index: int, message: Message) -> None:
        if index == 1 and message.content.config_records[TERMS]["step"] == step:
            grid.offline.add(101)

    monkeypatch.setattr(_wire, "LISTED", 0.0)
    grid = FakeGrid(client(), 5, tmp_path, before=leave, reports=reports)
    secured, arrays = start(grid)
    others = [0, 1, 2, 3, 4] if step == 3 else [0, 2, 3, 4]
    np.testing.assert_allclose(arrays["w"], mean_of(others), rtol=0, atol=1e-6)
    assert sorted(secured.rounds[0].contributors) == [FIRST + index for index in others]
    assert secured.rounds[0].dropped == {101: GONE}
    assert "node 101 is gone: the SuperLink no longer lists it" in caplog.text
    assert steps_of(grid, 101) == list(range(step + 1))


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_node_that_goes_offline_between_messages_gets_no_more(
    step: int, tmp_path: Path
) -> None:
    """Its last reply counts."""

    def leave(index: int, reply: Message) -> Message:
        if index == 1 and steps_of(grid, 101)[-1] == step:
            grid.offline.add(101)
        return reply

    grid = FakeGrid(client(), 5, tmp_path, after=leave, reports=False)
    secured, arrays = start(grid)
    others = [0, 1, 2, 3, 4] if step == 2 else [0, 2, 3, 4]
    np.testing.assert_allclose(arrays["w"], mean_of(others), rtol=0, atol=1e-6)
    assert secured.rounds[0].dropped == {101: GONE}
    assert steps_of(grid, 101) == list(range(step + 1))


def test_a_reply_that_comes_before_its_node_is_seen_gone_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its upload a node is gone. The reply arrives between a pull and the next list."""

    class Late(FakeGrid):
        pulls = 0

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            if steps_of(self, 104)[-1] < 2 or 104 in self.offline:
                return super().pull_messages(message_ids)
            self.pulls += 1
            late = {key for key, one in self._waiting.items() if one.metadata.src_node_id == 104}
            return super().pull_messages([one for one in message_ids if one not in late])

        def get_node_ids(self) -> Iterable[int]:
            if self.pulls:
                self.offline.add(104)
            return super().get_node_ids()

    monkeypatch.setattr(_wire, "LISTED", 0.0)
    grid = Late(client(), 5, tmp_path, reports=False)
    secured, arrays = start(grid)
    assert grid.pulls == 1
    np.testing.assert_allclose(arrays["w"], mean_of([0, 1, 2, 3, 4]), rtol=0, atol=1e-6)
    assert len(secured.rounds[0].contributors) == 5
    assert secured.rounds[0].dropped == {104: GONE} and steps_of(grid, 104) == [0, 1, 2]


def test_a_node_that_comes_back_is_in_the_next_round(tmp_path: Path) -> None:
    def leave(index: int, message: Message) -> None:
        step = message.content.config_records[TERMS]["step"]
        if index == 1 and step == 1 and not left:
            left.append(index)
            grid.offline.add(101)
        elif index == 4 and step == 3:
            grid.offline.clear()

    left: list[int] = []
    grid = FakeGrid(client(), 5, tmp_path, before=leave)
    secured, _ = start(grid, rounds=2)
    assert [len(this.contributors) for this in secured.rounds] == [4, 5]
    assert secured.rounds[0].dropped == {101: GONE} and not secured.rounds[1].dropped


def test_a_node_does_not_speak_for_another(tmp_path: Path) -> None:
    def forge(index: int, reply: Message) -> Message:
        if index == 4:
            reply.metadata.__dict__["_src_node_id"] = FIRST
        return reply

    secured, arrays = start(FakeGrid(client(), 5, tmp_path, after=forge))
    np.testing.assert_allclose(arrays["w"], mean_of([0, 1, 2, 3]), rtol=0, atol=1e-6)
    assert secured.rounds[0].dropped == {104: "node 100 replied in its place"}


def test_too_few_clients_are_a_round_without_a_mean(tmp_path: Path) -> None:
    def fail(index: int, message: Message) -> None:
        if index < 3 and message.content.config_records[TERMS]["step"] == 2:
            raise RuntimeError("gone")

    secured, arrays = start(FakeGrid(client(), 5, tmp_path, before=fail))
    assert not arrays
    assert "too few clients" in str(secured.rounds[0].failed)


def test_clipping_is_counted_if_both_sides_ask_for_it(tmp_path: Path) -> None:
    terms: dict[str, Any] = {"clip": 0.25, "metrics": [CLIPPED]}
    secured, arrays = start(FakeGrid(client(**terms), 5, tmp_path), **terms)
    assert secured.rounds[0].metrics[CLIPPED] == pytest.approx(1.0, abs=1e-4)
    assert np.abs(arrays["w"]).max() <= 0.25 + 1e-6


def test_the_server_sees_no_update_and_no_weight(tmp_path: Path) -> None:
    grid = FakeGrid(client(), 5, tmp_path)
    start(grid)
    updates = [update(index, "w", initial()["w"].numpy()) for index in range(5)]
    rows = [one[0].tobytes() for one in updates]
    rows += [one[0].astype(np.float64).tobytes() for one in updates]
    for reply in grid.replies:
        assert set(reply.content) <= {TERMS, FRAMES}
        assert list(reply.content.config_records[TERMS]) == ["index"]
        for array in reply.content.array_records[FRAMES].values():
            assert not any(row in array.data for row in rows)


# Refusals


def refusal(grid: FakeGrid, **rules: Any) -> str:
    with pytest.raises(undertone.RefusedError, match="no client takes part") as refused:
        start(grid, **rules)
    return str(refused.value)


def test_a_server_that_asks_for_a_plain_update_is_refused(tmp_path: Path) -> None:
    grid = FakeGrid(client(), 5, tmp_path)
    result = averaging().start(grid=grid, initial_arrays=initial(), num_rounds=1)
    assert not result.arrays
    assert all("in the clear" in why(reply) for reply in grid.replies)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"clip": 4.0}, "clip 4.0"),
        ({"max_weight": 1000.0}, "max_weight 1000.0"),
        ({"bits": 64}, "bits 64"),
        ({"suite": "chacha20"}, "suite"),
        ({"min_clients": 2}, "min_clients"),
        ({"metrics": ["secret"]}, "the metric 'secret'"),
    ],
)
def test_other_rules_are_refused(rules: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(FakeGrid(client(), 5, tmp_path), **rules)


def test_arrays_in_another_order_are_refused(tmp_path: Path) -> None:
    """With another order at one client its values would lie where the others' are known."""

    def reorder(index: int, message: Message) -> None:
        records = message.content.array_records
        if index == 2 and message.content.config_records[TERMS]["step"] == 2:
            (name,) = [name for name in records if name != FRAMES]
            swapped = dict(reversed(list(records[name].items())))
            message.content[name] = ArrayRecord(swapped)

    secured, _ = start(FakeGrid(client(), 5, tmp_path, before=reorder))
    assert list(secured.rounds[0].dropped) == [102]
    assert "named at the beginning" in secured.rounds[0].dropped[102]


@pytest.mark.parametrize("forges", [False, True])
def test_another_model_for_one_client_is_refused(forges: bool, tmp_path: Path) -> None:
    """Pasquini et al. 2022: with a model that does not learn at all clients but one, the mean would
    be that one's update."""
    other = ArrayRecord(
        {name: Array(np.full_like(one.numpy(), 1)) for name, one in initial().items()}
    )

    def replace(index: int, message: Message) -> None:
        terms = message.content.config_records[TERMS]
        if index == 2 and terms["step"] == 2:
            message.content["arrays"] = other
        if index == 2 and forges:
            terms["about"] = about(other, [], "num-examples")

    secured, _ = start(FakeGrid(client(), 5, tmp_path, before=replace))
    (this,) = secured.rounds
    if forges:
        assert not this.contributors and "its rules" in str(this.failed)
    else:
        assert "named at the beginning" in this.dropped[102]


@pytest.mark.parametrize("forges", [False, True])
def test_other_metrics_for_one_client_are_refused(forges: bool, tmp_path: Path) -> None:
    def ask(index: int, message: Message) -> None:
        terms = message.content.config_records[TERMS]
        if index == 2:
            terms["metrics"] = ["secret"]
            if forges:
                terms["about"] = about(initial(), ["secret"], "num-examples")

    grid = FakeGrid(client(metrics=["loss", "secret"]), 5, tmp_path, before=ask)
    secured, _ = start(grid, metrics=["loss"])
    (this,) = secured.rounds
    if forges:
        # The client would mask for another sum than the others.
        assert not this.contributors and "its rules" in str(this.failed)
    else:
        assert 102 not in this.contributors and 102 in this.dropped


def test_a_grid_with_too_few_clients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(undertone.RefusedError, match="2 clients, 3 at least"):
        start(FakeGrid(client(), 2, tmp_path), averaging(min_train_nodes=2))


@pytest.mark.parametrize("category", ["evaluate", "query"])
def test_evaluation_is_refused_unless_it_may_be_in_the_clear(
    category: str, tmp_path: Path
) -> None:
    def replies(**terms: Any) -> list[Message]:
        grid = FakeGrid(client(**terms), 3, tmp_path)
        secured = SecureGrid(grid, **RULES)
        asked = [Message(RecordDict(), node, category) for node in secured.get_node_ids()]
        return list(secured.send_and_receive(asked))

    assert all("in the clear" in why(reply) for reply in replies())
    assert all(reply.has_content() for reply in replies(evaluate="clear"))


def test_strategies_of_the_old_api_are_refused(tmp_path: Path) -> None:
    secured = SecureGrid(FakeGrid(client(), 3, tmp_path), **RULES)
    record = RecordDict({"fitins.parameters": initial(), "fitins.config": ConfigRecord()})
    with pytest.raises(undertone.RefusedError, match="flwr.serverapp.strategy"):
        secured.send_and_receive([Message(record, 100 + node, "train") for node in range(3)])


def test_bytes_have_no_mean(tmp_path: Path) -> None:
    secured = SecureGrid(FakeGrid(client(), 3, tmp_path), **RULES)
    record = ArrayRecord({"trees": Array(np.zeros(9, np.uint8))})
    with pytest.raises(ValueError, match="'trees' is of uint8"):
        secured.send_and_receive(
            list(averaging().configure_train(1, record, ConfigRecord(), secured))
        )


def test_training_messages_are_not_pushed_past_the_mean(tmp_path: Path) -> None:
    secured = SecureGrid(FakeGrid(client(), 3, tmp_path), **RULES)
    with pytest.raises(undertone.RefusedError, match="send_and_receive"):
        secured.push_messages([Message(RecordDict({"arrays": initial()}), 100, "train")])


SINGLE = [
    name
    for name in strategies.__all__
    if name not in ("Result", "Strategy", "FedAvg", "FedAvgM", "FedAdam", "FedAdagrad", "FedYogi")
    and name != "FedProx"
]


@pytest.mark.parametrize("name", SINGLE)
def test_strategies_that_need_single_updates_are_refused_by_name(name: str) -> None:
    kind = getattr(strategies, name)
    one = kind.__new__(kind)
    with pytest.raises(undertone.RefusedError, match=f"{name} does not work over SecureGrid: it"):
        SecureGrid.check(one)


def test_a_strategy_that_extends_a_refused_one_is_refused(tmp_path: Path) -> None:
    class Mine(Krum):
        pass

    with pytest.raises(undertone.RefusedError, match="Mine does not work"):
        SecureGrid(FakeGrid(client(), 3, tmp_path), **RULES, strategy=Mine())


def test_grid_and_strategy_have_one_weight(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weighted by 'rows'"):
        SecureGrid(
            FakeGrid(client(), 3, tmp_path), **RULES, strategy=FedAvg(weighted_by_key="rows")
        )


def test_an_update_is_uploaded_once(tmp_path: Path) -> None:
    def same(message: Message, context: Context) -> Message:
        for name, array in initial().items():
            message.content.array_records["arrays"][name] = array
        return train(message, context)

    grid = FakeGrid(client(trainer=same), 5, tmp_path)
    secured, _ = start(grid, rounds=2)
    first, second = secured.rounds
    assert len(first.contributors) == 5 and len(second.dropped) == 5
    # The reason is for the owner.
    assert all(reason.endswith(TOLD) for reason in second.dropped.values())


def test_an_update_is_known_again_under_other_metrics(tmp_path: Path) -> None:
    def same(message: Message, context: Context) -> Message:
        for name, array in initial().items():
            message.content.array_records["arrays"][name] = array
        return train(message, context)

    grid = FakeGrid(client(trainer=same, metrics=["loss"]), 5, tmp_path)
    assert len(start(grid)[0].rounds[0].contributors) == 5
    again = start(grid, metrics=["loss"])[0].rounds[0]
    assert len(again.dropped) == 5
    with pytest.raises(undertone.RefusedError, match="names a metric twice"):
        start(grid, metrics=["loss", "loss"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_says_nothing_of_it(
    value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def diverges(message: Message, context: Context) -> Message:
        reply = train(message, context)
        if int(context.node_config["partition-id"]) == 1:
            broken = reply.content.array_records["arrays"]["w"].numpy().copy()
            broken[7, 3] = value
            reply.content.array_records["arrays"]["w"] = Array(broken)
        return reply

    secured, _ = start(FakeGrid(client(trainer=diverges), 5, tmp_path))
    assert len(secured.rounds[0].contributors) == 4
    assert "no usable update" in secured.rounds[0].dropped[FIRST + 1]
    assert "7" not in secured.rounds[0].dropped[FIRST + 1]
    assert f"'w' at [7, 3] is {value}" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"clip": 0}, ValueError, "clip is 0; it must be above 0 and finite"),
        ({"clip": np.inf}, ValueError, "clip is inf; it must be above 0"),
        ({"clip": "4"}, TypeError, "clip is '4'; a number is needed"),
        ({"max_weight": -1.0}, ValueError, "max_weight is -1; it must be above 0"),
        ({"bits": 16}, ValueError, "bits is 16; it must be 32 or 64"),
        ({"min_clients": 2.5}, TypeError, "min_clients is 2.5; a whole number"),
        ({"malicious_server": None}, TypeError, "malicious_server is None; True or False"),
    ],
    ids=str,
)
def test_rules_are_checked_when_they_are_made(
    wrong: dict[str, Any], error: type[Exception], text: str, tmp_path: Path
) -> None:
    rules: dict[str, Any] = {"clip": 4.0, "max_weight": 100.0, **wrong}
    with pytest.raises(error, match=text):
        secure(**rules)
    with pytest.raises(error, match=text):
        SecureGrid(FakeGrid(client(), 5, tmp_path), **rules)


# Replay


class Recorded:
    """A round, with the messages to node 100 and its contexts before each."""

    def __init__(self, folder: Path) -> None:
        self.grid = FakeGrid(client(), 5, folder)
        self.messages: list[Message] = []
        self.contexts: list[Context] = []
        self.grid.before = self._keep
        start(self.grid)
        self.grid.before = None
        self.replies = [one for one in self.grid.replies if one.metadata.src_node_id == FIRST]
        self.journal = folder / "node-0"

    def _keep(self, index: int, message: Message) -> None:
        if index == 0:
            self.messages.append(copy.deepcopy(message))
            self.contexts.append(copy.deepcopy(self.grid.contexts[FIRST]))

    def again(self, step: int, message: Message | None = None) -> Message:
        """Message ``step`` comes again, as if the node had not stored its state."""
        self.grid.contexts[FIRST] = copy.deepcopy(self.contexts[step])
        return self.grid.handle(self.messages[step] if message is None else message)


def bundle(message: Message) -> bytes:
    data: bytes = message.content.array_records[FRAMES]["bundle"].data
    return data


def with_bundle(message: Message, data: bytes) -> Message:
    changed = copy.deepcopy(message)
    changed.content.array_records[FRAMES]["bundle"].data = data
    return changed


@pytest.mark.parametrize("step", [1, 2, 3])
def test_after_a_crash_between_note_and_reply_the_reply_is_the_same(
    step: int, tmp_path: Path
) -> None:
    grid = FakeGrid(client(), 5, tmp_path)
    lost: list[Message] = []

    def crash(index: int, message: Message) -> None:
        if index == 0 and message.content.config_records[TERMS]["step"] == step and not lost:
            lost.append(message)
            kept = copy.deepcopy(grid.contexts[FIRST])
            lost[0] = copied(grid.handle(message))
            grid.contexts[FIRST] = kept

    grid.before = crash
    secured, _ = start(grid)
    assert len(secured.rounds[0].contributors) == 5
    sent = [one for one in grid.replies if one.metadata.src_node_id == FIRST]
    assert bundle(lost[0]) == bundle(sent[step])


#: The server is told no more: the reason can have a path of the node.
REFUSED = "the mod secure() failed"


def test_a_session_is_not_rewound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded(tmp_path)
    for step in (1, 2):
        caplog.clear()
        assert REFUSED in why(recorded.again(step)) and "go back to step" in caplog.text
    # Another set of contributors would make the client reveal both shares of a secret.
    other = with_bundle(recorded.messages[3], bundle(recorded.messages[3])[:-1] + b"\0")
    assert REFUSED in why(recorded.again(3, other)) and "another message" in caplog.text


def test_a_first_message_with_a_new_seed_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = Recorded(tmp_path)
    assert REFUSED in why(recorded.again(0)) and "RefusedError" in caplog.text


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_message_is_taken_once(step: int, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    assert "each message once" in why(recorded.grid.handle(recorded.messages[step]))


def test_a_message_is_not_skipped(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    skipped = recorded.again(1, recorded.messages[2])
    assert "message 2 of a session where message 1 is due" in why(skipped)


def test_terms_do_not_change_within_a_session(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    changed = copy.deepcopy(recorded.messages[3])
    terms = changed.content.config_records[TERMS]
    terms["index"] = (int(str(terms["index"])) + 1) % 5
    assert "changed the terms" in why(recorded.again(3, changed))


def test_without_its_journal_a_session_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = Recorded(tmp_path)
    shutil.rmtree(recorded.journal)
    told = why(recorded.again(3))
    assert REFUSED in told and "lost or old" in caplog.text
    # Flower sends the text of exceptions to the server.
    assert str(tmp_path) in caplog.text and str(tmp_path) not in told


def test_a_weight_that_is_too_large_says_nothing_of_it(tmp_path: Path) -> None:
    def heavy(message: Message, context: Context) -> Message:
        reply = train(message, context)
        reply.content.metric_records["metrics"]["num-examples"] = 4000 + 73
        return reply

    grid = FakeGrid(client(trainer=heavy), 5, tmp_path)
    secured = SecureGrid(grid, **{**RULES, "strategy": averaging(), "poll": 0.0})
    averaging().start(grid=secured, initial_arrays=initial(), num_rounds=1)
    told = secured.rounds[0].dropped
    assert len(told) == 5
    assert not any("weight" in one or "4073" in one for one in told.values())


def test_journals_of_older_sessions_are_deleted(tmp_path: Path) -> None:
    start(FakeGrid(client(), 5, tmp_path), rounds=3)
    for node in range(5):
        (run,) = (tmp_path / f"node-{node}").glob("node-*/run-*")
        journal, lock = sorted(one.name for one in run.iterdir())
        assert len(journal) > 64 and lock == "lock"


def test_the_state_holds_no_update(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    state = recorded.contexts[3].state
    row = update(0, "w", initial()["w"].numpy())[0].tobytes()
    held = [array.data for one in state.array_records.values() for array in one.values()]
    assert held and not any(row in data for data in held)


def test_the_seed_is_forgotten_with_the_last_message(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    before = recorded.contexts[3].state.config_records["undertone.sum"]["seed"]
    assert isinstance(before, bytes) and len(before) == 32
    state = recorded.grid.contexts[FIRST].state
    assert state.config_records["undertone.sum"]["seed"] == b""
    assert not any(one for one in state.array_records.values())


# Pinned identities


def test_clients_with_keys_withstand_a_lying_server(
    pinned: dict[str, Any], tmp_path: Path
) -> None:
    grid = FakeGrid(client(malicious_server=True), 5, tmp_path, config=pinned)
    rules = {"malicious_server": True, "roster": pinned["undertone-roster"]}
    secured, arrays = start(grid, rounds=2, **rules)
    assert secured.rounds[1].failed is None
    assert sorted(secured.rounds[1].contributors) == [100, 101, 102, 103, 104]
    names = [exchange.name for exchange in secured.rounds[0].exchanges]
    assert names == ["keys", "shares", "train and upload", "signatures", "unmask"]


def test_an_absent_client_of_the_roster_is_dropped(pinned: dict[str, Any], tmp_path: Path) -> None:
    grid = FakeGrid(client(malicious_server=True), 4, tmp_path, config=pinned)
    rules = {"malicious_server": True, "roster": pinned["undertone-roster"]}
    secured, arrays = start(grid, **rules)
    np.testing.assert_allclose(arrays["w"], mean_of([0, 1, 2, 3]), rtol=0, atol=1e-6)


def test_a_node_with_another_key_takes_no_part(pinned: dict[str, Any], tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.key"
    stranger.write_text(undertone.generate_key())
    pinned["undertone-key"][2] = str(stranger)
    grid = FakeGrid(client(malicious_server=True), 5, tmp_path, config=pinned)
    rules = {"malicious_server": True, "roster": pinned["undertone-roster"]}
    secured, arrays = start(grid, **rules)
    np.testing.assert_allclose(arrays["w"], mean_of([0, 1, 3, 4]), rtol=0, atol=1e-6)
    assert "reading key and roster failed" in secured.rounds[0].dropped[102]


def test_without_a_key_a_client_that_insists_takes_no_part(
    pinned: dict[str, Any], tmp_path: Path
) -> None:
    grid = FakeGrid(client(malicious_server=True), 5, tmp_path)
    rules = {"malicious_server": True, "roster": pinned["undertone-roster"]}
    assert "needs this node's key" in refusal(grid, **rules)
    assert "malicious_server False" in refusal(grid)


# Label propagation


class Rows:
    """Two far apart classes on five clients. One label in five is known."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.truth = [np.arange(30) % 2 for _ in range(5)]
        self.features = [
            rng.normal(size=(30, 5)) + 9 * (truth[:, None] - 0.5) for truth in self.truth
        ]
        self.found: dict[int, undertone.Labels] = {}

    def load(self, context: Context) -> tuple[NDArray[Any], NDArray[Any]]:
        index = int(context.node_config["partition-id"])
        known = np.where(np.arange(30) < 6, self.truth[index], -1)
        return self.features[index], known

    def save(self, labels: undertone.Labels, context: Context) -> None:
        self.found[int(context.node_config["partition-id"])] = labels

    def app(self, **more: Any) -> ClientApp:
        app = ClientApp(mods=[secure(**RULES)])
        more = {"record": SIMULATED, **more}
        brings = {name: more.pop(name) for name in ("terms", "codes", "classes") if name in more}

        def make(context: Context) -> undertone.LabelClient:
            return undertone.LabelClient(*self.load(context), **brings)

        app.query("undertone")(taking_part(make, self.save, **more))
        return app

    def check(self, clients: list[int]) -> None:
        assert sorted(self.found) == clients
        for index in clients:
            assert self.found[index].labels.tolist() == self.truth[index].tolist()


def propagate(grid: FakeGrid, **options: Any) -> LabelRound:
    return label(grid, **{"classes": 2, "bits": 1024, "poll": 0.0, **options})


@pytest.mark.parametrize("backend", ["psm", "lwe"])
def test_labels_by_replay(backend: str, tmp_path: Path) -> None:
    rows = Rows()
    grid = FakeGrid(rows.app(terms=undertone.LabelTerms(backends=(backend,))), 5, tmp_path)
    found = propagate(grid, backend=backend, bits=2048)
    # docs/python.md
    assert len(found.exchanges) == {"psm": 10, "lwe": 13}[backend]
    rows.check([0, 1, 2, 3, 4])
    assert found.report is not None and found.report.clients == [0, 1, 2, 3, 4]
    assert found.nodes == [100, 101, 102, 103, 104] and not found.dropped
    for reply in grid.replies:
        assert set(reply.content) <= {TERMS, FRAMES}
    # The seed of a session that has ended is forgotten.
    for context in grid.contexts.values():
        assert context.state.config_records["undertone.label"]["seed"] == b""


def test_a_node_with_other_columns_is_refused(tmp_path: Path) -> None:
    rows, names = Rows(), list("abcde")
    frames: list[Any] = [Frame(features, names) for features in rows.features]
    frames[2] = Frame(rows.features[2][:, ::-1], names[::-1])
    frames[3] = rows.features[3]  # has no names
    rows.features = frames
    found = propagate(FakeGrid(rows.app(), 5, tmp_path))
    assert list(found.dropped) == [102]
    assert "not those of node 100, node 101, node 104;" in found.dropped[102]
    rows.check([0, 1, 3, 4])


def test_bytes_are_codes_only_if_they_are_said_to_be(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    patterns, apart = rng.integers(0, 256, (2, 128), np.uint8), {}
    for codes in (False, True):
        rows = Rows()
        flips = np.arange(30, dtype=np.uint8)[:, None] * (np.arange(128) < 3)
        rows.features = [patterns[truth] ^ flips.astype(np.uint8) for truth in rows.truth]
        found = propagate(FakeGrid(rows.app(codes=codes), 5, tmp_path / str(codes)))
        assert found.report is not None
        apart[codes] = found.report.distances
    known = [np.where(np.arange(30) < 6, truth, -1) for truth in rows.truth]
    due = undertone.label(rows.features, known, codes=True, bits=1024).report.distances
    assert np.array_equal(apart[True], due) and not np.array_equal(apart[False], due)


@pytest.mark.parametrize("cells", [{}, {"cells": 2, "probes": 1}])
def test_labels_by_replay_are_as_good_as_in_one_process(
    cells: dict[str, Any], digits: Callable[..., Any], tmp_path: Path
) -> None:
    rows, known, truth = ([of[:100] for of in dealt] for dealt in digits(5, 0.2, 0))
    found: dict[int, undertone.Labels] = {}

    def load(context: Context) -> tuple[NDArray[Any], NDArray[Any]]:
        index = int(context.node_config["partition-id"])
        return rows[index], known[index]

    def save(labels: undertone.Labels, context: Context) -> None:
        found[int(context.node_config["partition-id"])] = labels

    terms = undertone.LabelTerms(max_cells_epsilon=4.0 if cells else 0.0)

    def make(context: Context) -> undertone.LabelClient:
        return undertone.LabelClient(*load(context), terms=terms)

    app = ClientApp(mods=[secure(**RULES)])
    app.query("undertone")(taking_part(make, save, record=SIMULATED))
    propagate(FakeGrid(app, 5, tmp_path), classes=10, bits=1024, **cells)
    here = undertone.label(rows, known, bits=1024, **cells)

    def right(labels: list[NDArray[Any]]) -> float:
        hidden = [y[k < 0] == t[k < 0] for y, k, t in zip(labels, known, truth, strict=True)]
        return float(np.mean(np.concatenate(hidden)))

    there = right([found[index].labels for index in range(5)])
    assert there > 0.85
    assert there == pytest.approx(right(list(here)), abs=0.05)


def test_a_record_in_memory_survives_from_message_to_message(tmp_path: Path) -> None:
    rows = Rows()
    grid = FakeGrid(rows.app(), 5, tmp_path)
    propagate(grid)
    with pytest.raises(undertone.AbortedError, match="0 left"):
        propagate(grid, nodes=[100, 101, 102])
    assert all(why(reply).endswith(TOLD) for reply in grid.replies[-3:])
    rows.found.clear()
    propagate(grid)
    rows.check([0, 1, 2, 3, 4])


def on_disk(folder: Path, **config: Any) -> dict[str, Any]:
    """Node config with a record on disk for each of five nodes."""
    names = [f"ward-{index}" for index in range(5)]
    for name in names:
        undertone.Record.new(name, folder / "records", accept_volatile=True)
    return {
        "undertone-record": names, "undertone-records": str(folder / "records"),
        "undertone-accept": "volatile-record", **config,
    }


def restarted(app: ClientApp, folder: Path, config: dict[str, Any], first: int) -> FakeGrid:
    """The same owners, as nodes with other ids in another run that have forgotten everything."""
    grid = FakeGrid(app, 5, folder, config=config)
    grid.contexts = {
        first + index: Context(first, first + index, old.node_config, RecordDict(), {})
        for index, old in enumerate(grid.contexts.values())
    }
    return grid


def test_labels_are_not_given_again_to_other_nodes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An honest ServerApp labels with five nodes, then with those that are there. The difference is
    the class counts of the missing one. Many sessions show it the rows' cosines."""
    rows, config = Rows(), on_disk(tmp_path)
    grid = FakeGrid(rows.app(record=None), 5, tmp_path, config=config)
    assert propagate(grid).nodes == [100, 101, 102, 103, 104]
    for nodes in ([100, 101, 102, 103], [100, 101, 102, 104], [100, 101, 102, 103, 104]):
        caplog.clear()
        with pytest.raises(undertone.UndertoneError):
            propagate(grid, nodes=nodes)
        assert "its labels were added up with those of other clients" in caplog.text
        assert all(why(reply).endswith(TOLD) for reply in grid.replies[-len(nodes) :])
    for first in (200, 300):
        again = restarted(rows.app(record=None), tmp_path, config, first)
        with pytest.raises(undertone.UndertoneError):
            propagate(again)


def test_nodes_with_keys_label_three_times_with_the_same_others(
    pinned: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows, config = Rows(), on_disk(tmp_path, **pinned)
    app = rows.app(record=None)
    rules: dict[str, Any] = {
        "malicious_server": True, "roster": pinned["undertone-roster"], "bits": 256
    }
    propagate(FakeGrid(app, 5, tmp_path, config=config), **rules)
    grid = restarted(app, tmp_path, config, 200)
    with pytest.raises(undertone.UndertoneError):
        propagate(grid, nodes=[200, 201, 202, 203], **rules)
    assert "this job lacks c0" in caplog.text
    for first in (300, 400):
        propagate(restarted(app, tmp_path, config, first), **rules)
    caplog.clear()
    with pytest.raises(undertone.UndertoneError):
        propagate(restarted(app, tmp_path, config, 500), **rules)
    assert "were in 3 jobs of label propagation" in caplog.text


def test_a_node_has_the_record_of_its_name_on_the_roster(
    pinned: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_RECORDS", str(tmp_path / "records"))
    for index in range(5):
        undertone.Record.new(f"c{index}", accept_volatile=True)
    config = {**pinned, "undertone-accept": "volatile-record", "undertone-journal": ""}
    grid = FakeGrid(Rows().app(record=None), 5, tmp_path, config=config)
    propagate(grid, malicious_server=True, roster=pinned["undertone-roster"])
    for index in range(5):
        record = undertone.Record(f"c{index}", accept_volatile=True)
        assert record.show().rows == 30 and record.folder is not None
        (journal,) = (record.folder / "journal").iterdir()
        assert journal.name == f"run-{7:016x}-label"


def test_an_update_is_known_again_by_a_node_with_another_id(tmp_path: Path) -> None:
    def same(message: Message, context: Context) -> Message:
        for name, array in initial().items():
            message.content.array_records["arrays"][name] = array
        return train(message, context)

    config = on_disk(tmp_path)
    first = FakeGrid(client(trainer=same, record=None), 5, tmp_path, config=config)
    assert len(start(first)[0].rounds[0].contributors) == 5
    again = restarted(client(trainer=same, record=None), tmp_path, config, 200)
    dropped = start(again)[0].rounds[0].dropped
    assert len(dropped) == 5 and all(reason.endswith(TOLD) for reason in dropped.values())


def test_without_a_record_a_node_takes_no_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(undertone.RefusedError, match="no record of answers that it can use"):
        propagate(FakeGrid(Rows().app(record=None), 5, tmp_path))
    assert "undertone record new NAME" in caplog.text
    caplog.clear()
    config = {"undertone-record": "nobody", "undertone-records": str(tmp_path)}
    told = refusal(FakeGrid(client(), 5, tmp_path, config=config))
    assert "no record of answers that it can use" in told and str(tmp_path) not in told
    assert "undertone record new nobody" in caplog.text
    with pytest.raises(ValueError, match="undertone.flower.SIMULATED"):
        secure(**RULES, record=undertone.Record.simulated())
    wrong: Any = 7
    with pytest.raises(TypeError, match="record is 7"):
        Rows().app(record=wrong)


@pytest.mark.parametrize("step", [0, 1, 3, 6])
def test_a_client_that_fails_while_labelling_is_dropped(step: int, tmp_path: Path) -> None:
    def fail(index: int, message: Message) -> None:
        if index == 3 and message.content.config_records[TERMS]["step"] == step:
            raise RuntimeError("gone")

    rows = Rows()
    found = propagate(FakeGrid(rows.app(), 5, tmp_path, before=fail))
    rows.check([0, 1, 2, 4])
    assert list(found.dropped) == [103]


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("step", [0, 3, 6])
def test_a_node_that_goes_offline_while_labelling_is_not_waited_for(
    step: int, reports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(index: int, message: Message) -> None:
        if index == 3 and message.content.config_records[TERMS]["step"] == step:
            grid.offline.add(103)

    monkeypatch.setattr(_wire, "LISTED", 0.0)
    rows = Rows()
    grid = FakeGrid(rows.app(), 5, tmp_path, before=leave, reports=reports)
    found = propagate(grid)
    rows.check([0, 1, 2, 4])
    assert found.dropped == {103: GONE} and steps_of(grid, 103) == list(range(step + 1))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"backend": "clear"}, "this client allows lwe, shade, phe"),
        ({"backend": "psm"}, "this client allows lwe, shade, phe"),
        ({"backend": "phe", "bits": 32768}, "codes of 32768 bits"),
        ({"neighbours": 100}, "100 neighbours"),
        ({"alpha": 0.2}, "alpha 0.2"),
        ({"min_clients": 2}, "asks for 3"),
    ],
)
def test_a_client_labels_on_its_own_terms(
    asked: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(undertone.RefusedError, match=reason):
        propagate(FakeGrid(Rows().app(), 5, tmp_path), **asked)


def test_a_client_states_its_classes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(undertone.RefusedError, match="agreeing to the job failed"):
        propagate(FakeGrid(Rows().app(classes=2), 5, tmp_path), classes=3)
    assert "the job has 3 classes, this client has 2" in caplog.text


def test_a_server_does_not_renumber_classes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """NOISE-3: noise on labels with other numbers would be a fresh draw."""
    rows = Rows()

    def make(context: Context) -> undertone.LabelClient:
        return undertone.LabelClient(*rows.load(context), classes=2, noise=(1.0, bytes(32)))

    app = ClientApp(mods=[secure(**RULES)])
    app.query("undertone")(taking_part(make, rows.save, record=SIMULATED))
    with pytest.raises(undertone.RefusedError, match="agreeing to the job failed"):
        propagate(FakeGrid(app, 5, tmp_path), bits=256, class_names=("1", "0"))
    assert "with noise on labels they must be the same" in caplog.text


def test_why_loading_fails_stays_on_the_node(tmp_path: Path) -> None:
    def load(context: Context) -> tuple[NDArray[Any], NDArray[Any]]:
        raise RuntimeError("patient 4711 has no age")

    rows = Rows()
    rows.load = load  # type: ignore[method-assign]
    with pytest.raises(undertone.RefusedError, match="making the client failed") as refused:
        propagate(FakeGrid(rows.app(), 5, tmp_path))
    assert "4711" not in str(refused.value)


@pytest.mark.parametrize("label_of_row", [5, 70_001, -2])
def test_labels_that_do_not_fit_stay_on_the_node(label_of_row: int, tmp_path: Path) -> None:
    def load(context: Context) -> tuple[NDArray[Any], NDArray[Any]]:
        features, known = Rows().load(context)
        return features, np.where(known >= 0, label_of_row, known)

    rows = Rows()
    rows.load = load  # type: ignore[method-assign]
    with pytest.raises(undertone.RefusedError) as refused:
        propagate(FakeGrid(rows.app(), 5, tmp_path))
    assert "failed; the log of the node has the reason" in str(refused.value)
    assert str(label_of_row) not in str(refused.value)


def test_labels_by_replay_with_keys(pinned: dict[str, Any], tmp_path: Path) -> None:
    rows = Rows()
    grid = FakeGrid(rows.app(), 5, tmp_path, config=pinned)
    found = propagate(grid, malicious_server=True, roster=pinned["undertone-roster"])
    rows.check([0, 1, 2, 3, 4])
    assert not found.dropped


def test_labels_by_grpc(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    command = [sys.executable, "-m", "undertone", "keys", "--out", str(keys)]
    subprocess.run(command, check=True, capture_output=True)
    rows = Rows()
    folders = {"undertone-keys": [str(keys / f"client-{index}") for index in range(5)]}
    grid = FakeGrid(rows.app(), 5, tmp_path, config=folders, parallel=True)
    listen = f"127.0.0.1:{free_port()}"
    found = serve(
        grid,
        undertone.LabelJob(classes=2, bits=1024, standardise=True),
        roster=keys / "roster.toml",
        listen=listen,
        address=listen.replace("127.0.0.1", "localhost"),
        timeout=60.0,
        poll=0.0,
    )
    rows.check([0, 1, 2, 3, 4])
    assert not found.dropped and found.job is not None and found.job["result"] == "done"


@pytest.mark.parametrize("application", list(trials()))
def test_every_application_by_grpc(application: str, tmp_path: Path) -> None:
    trial, found = trials()[application], dict[int, Any]()

    def place(context: Context) -> int:
        return int(context.node_config["partition-id"])

    def receive(result: Any, context: Context) -> None:
        found[place(context)] = result

    app = ClientApp(mods=[secure(**RULES)])
    app.query("undertone_job")(
        taking_part(lambda one: trial.make(place(one)), receive, record=SIMULATED)
    )
    keys = tmp_path / "keys"
    command = [sys.executable, "-m", "undertone", "keys", "--out", str(keys)]
    subprocess.run(command, check=True, capture_output=True)
    folders = {"undertone-keys": [str(keys / f"client-{index}") for index in range(5)]}
    grid = FakeGrid(app, 5, tmp_path, config=folders, parallel=True)
    listen = f"127.0.0.1:{free_port()}"
    served = serve(
        grid, trial.job, roster=keys / "roster.toml", params=trial.params, listen=listen,
        address=listen.replace("127.0.0.1", "localhost"), action="undertone_job", timeout=60.0,
        poll=0.0,
    )
    assert not served.dropped and len(found) == 5
    assert all(trial.is_right(index, one) for index, one in found.items())


def test_a_handler_of_jobs_replies_nothing_in_the_clear(tmp_path: Path) -> None:
    app = ClientApp(mods=[secure(**RULES)])

    @app.query("undertone_statistics")
    def reveal(message: Message, context: Context) -> Message:
        return Message(RecordDict({"rows": MetricRecord({"mean": 4.7})}), reply_to=message)

    grid = FakeGrid(app, 3, tmp_path)
    asked = Message(RecordDict(), 100, "query.undertone_statistics")
    grid.push_messages([asked])
    assert "replies in the clear" in why(grid.replies[-1])


def test_a_node_names_its_record_to_the_handler(tmp_path: Path) -> None:
    rows = Rows()

    def make(context: Context) -> undertone.LabelClient:
        return undertone.LabelClient(*rows.load(context), record=undertone.Record.simulated())

    app = ClientApp(mods=[secure(**RULES)])
    app.query("undertone")(taking_part(make, rows.save, record=SIMULATED))
    with pytest.raises(undertone.RefusedError, match="making the client failed"):
        propagate(FakeGrid(app, 5, tmp_path))


def test_jobs_that_cannot_be_replayed_say_so(tmp_path: Path) -> None:
    trial = trials()["pssl"]
    app = ClientApp(mods=[secure(**RULES)])
    app.query("undertone")(
        taking_part(lambda one: trial.make(int(one.node_config["partition-id"])), record=SIMULATED)
    )
    with pytest.raises(undertone.RefusedError, match="runs a job of label.* takes part in pssl"):
        propagate(FakeGrid(app, 5, tmp_path))


def test_a_client_connects_to_its_own_server_only(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    command = [sys.executable, "-m", "undertone", "keys", "--out", str(keys)]
    subprocess.run(command, check=True, capture_output=True)
    grid = FakeGrid(Rows().app(keys=keys, server="example.org:7431"), 3, tmp_path)
    listen = f"127.0.0.1:{free_port()}"
    with pytest.raises(undertone.UndertoneError, match="connects to example.org:7431 only"):
        serve(
            grid, undertone.LabelJob(), roster=keys / "roster.toml", listen=listen, poll=0.0
        )


# Flower's own engines


def run_example(*options: str) -> dict[str, Any]:
    """What the example's ServerApp has learned."""
    command = [sys.executable, str(ROOT / "examples/flower/run.py"), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert run.returncode == 0, run.stdout + run.stderr
    learned: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return learned


@pytest.mark.slow
def test_the_example_in_a_simulation() -> None:
    learned = run_example("--rounds", "3", "--fails", "2", "--timeout", "600")
    assert learned["label"]["clients"] == 5
    assert [this["contributors"] for this in learned["rounds"]] == [5, 4, 5]
    assert [len(this["seconds"]) for this in learned["rounds"]] == [4, 4, 4]
    assert learned["rounds"][0]["metrics"]["label-accuracy"] > 0.93
    assert learned["accuracy"][-1] > 0.9


@pytest.mark.slow
def test_training_with_propagated_labels_in_a_simulation() -> None:
    learned = run_example("--mode", "propagate", "--rounds", "3", "--timeout", "600")
    assert learned["rounds"] == [5, 5, 5] and len(learned["messages"]) == 6
    assert learned["accuracy"][-1] > max(0.7, learned["accuracy"][0])


@pytest.mark.deployment
def test_a_killed_supernode_is_not_waited_for() -> None:
    """The SuperLink lists it for up to a minute more. The timeout of the message is an hour."""
    options = ["--deploy", "--mode", "train", "--rounds", "2", "--kill", "3"]
    learned = run_example(*options, "--timeout", "600")
    assert [this["contributors"] for this in learned["rounds"]] == [4, 4]
    first, second = (this["dropped"] for this in learned["rounds"])
    assert first == [GONE] and not second
    assert learned["accuracy"][-1] > 0.9


@pytest.mark.deployment
def test_the_example_with_superlink_and_supernodes() -> None:
    options = ["--deploy", "--mode", "train", "--rounds", "2", "--fails", "3"]
    learned = run_example(*options, "--timeout", "600")
    assert [this["contributors"] for this in learned["rounds"]] == [5, 4]
    assert learned["accuracy"][-1] > 0.9
