"""Secure means on Flower whose clients contribute in fixed groups, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_fake import FIRST, FakeGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from undertone import RefusedError
from undertone.flower import SIMULATED, SecureGrid, secure
from undertone.flower._wire import TERMS

RULES: dict[str, Any] = {"clip": 2.0, "max_weight": 400.0}


def value(index: int) -> NDArray[np.float32]:
    return np.full(4, 0.01 * (index + 1), np.float32)


def train(message: Message, context: Context) -> Message:
    index = int(context.node_config["partition-id"])
    # Exactly the same values are sent once.
    config: Any = message.content.config_records["config"]
    rounds = float(config["server-round"])
    content = RecordDict(
        {
            "arrays": ArrayRecord({"w": Array(value(index) + np.float32(1e-5 * rounds))}),
            "metrics": MetricRecord({"num-examples": 100 + index}),
        }
    )
    return Message(content, reply_to=message)


def client(**terms: Any) -> ClientApp:
    app = ClientApp(mods=[secure(**{**RULES, "record": SIMULATED, **terms})])
    app.train()(train)
    return app


def start(
    grid: FakeGrid, rounds: int = 1, fraction: float = 1.0, **rules: Any
) -> tuple[SecureGrid, NDArray[Any] | None]:
    strategy = FedAvg(fraction_train=fraction, fraction_evaluate=0.0)
    secured = SecureGrid(grid, **{**RULES, "strategy": strategy, "poll": 0.0, **rules})
    first = ArrayRecord({"w": Array(np.zeros(4, np.float32))})
    result = strategy.start(grid=secured, initial_arrays=first, num_rounds=rounds)
    return secured, result.arrays["w"].numpy() if "w" in result.arrays else None


def mean_of(nodes: list[int], number: int = 1) -> NDArray[Any]:
    indices = [node - FIRST for node in nodes]
    values = np.array([value(index) for index in indices], np.float64) + 1e-5 * number
    mean: NDArray[Any] = np.average(values, axis=0, weights=[100 + index for index in indices])
    return mean


def failing(index: int, step: int) -> Callable[[int, Message], None]:
    """Node `index` fails when it gets the message of that step."""

    def fail(node: int, message: Message) -> None:
        terms = message.content.config_records.get(TERMS)
        if node == index and terms is not None and terms["step"] == step:
            raise RuntimeError("this node fails")

    return fail


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_node_drops_out_with_its_group(step: int, tmp_path: Path) -> None:
    """Three groups of five. After its upload the node's update is in the mean."""
    grid = FakeGrid(client(), 15, tmp_path, before=failing(7, step))
    secured, arrays = start(grid)
    this = secured.rounds[0]
    group = list(range(FIRST + 5, FIRST + 10))
    due = [FIRST + index for index in range(15)]
    if step < 3:
        due = [node for node in due if node not in group]
        assert sorted(this.dropped) == group
        others = {why for node, why in this.dropped.items() if node != FIRST + 7}
        assert others == {"another client of its group dropped out"}
    assert sorted(this.contributors) == due and this.failed is None
    assert this.weight == sum(100 + node - FIRST for node in due)
    assert arrays is not None
    np.testing.assert_allclose(arrays, mean_of(due), atol=1e-6)
    # Those that are left out get no message after the failure.
    told = [message.metadata.dst_node_id for message in grid.sent].count(FIRST + 8)
    assert told == (step + 1 if step < 3 else 4)


def test_whole_groups_take_the_place_of_the_nodes_that_the_strategy_draws(tmp_path: Path) -> None:
    grid = FakeGrid(client(), 16, tmp_path)
    secured, _ = start(grid, rounds=12, fraction=0.45)
    seen, bounds = set(), [FIRST, FIRST + 5, FIRST + 10, FIRST + 16]
    sets = [range(low, high) for low, high in zip(bounds, bounds[1:], strict=False)]
    for number, this in enumerate(secured.rounds, start=1):
        assert this.failed is None and not this.dropped
        drawn = [place for place, one in enumerate(sets) if set(one) <= set(this.contributors)]
        assert sorted(this.contributors) == [node for group in drawn for node in sets[group]]
        assert len(drawn) == 2, number
        seen.add(tuple(drawn))
    assert len(seen) > 1


def test_the_only_group_needs_all_of_its_nodes(tmp_path: Path) -> None:
    grid = FakeGrid(client(), 9, tmp_path, before=failing(3, 2))
    secured, arrays = start(grid)
    assert "too few clients" in str(secured.rounds[0].failed)
    assert arrays is None


def test_a_group_without_a_node_is_not_drawn(tmp_path: Path) -> None:
    """Nodes that come later take part in the next run."""
    grid = FakeGrid(client(), 17, tmp_path, offline={FIRST + 15, FIRST + 16})

    def leave(_: int, message: Message) -> None:
        config = message.content.config_records.get("config")
        if config is not None and config["server-round"] == 2:
            grid.offline = {FIRST}
        if config is not None and config["server-round"] == 4:
            grid.offline = {FIRST, FIRST + 5, FIRST + 10}

    grid.before = leave
    secured, _ = start(grid, rounds=5)
    all_of = [sorted(this.contributors) for this in secured.rounds]
    assert all_of[0] == list(range(FIRST, FIRST + 15))
    assert all_of[2] == list(range(FIRST + 5, FIRST + 15))
    assert secured.rounds[4].failed is not None and "no group" in secured.rounds[4].failed


def test_nodes_that_get_different_messages_are_not_replaced(tmp_path: Path) -> None:
    """A strategy with other settings for each node: only groups that it asks whole contribute."""

    class Own(FedAvg):
        def configure_train(self, *args: Any) -> Any:
            messages = list(super().configure_train(*args))
            for number, message in enumerate(messages):
                record = message.content.config_records["config"]
                own = RecordDict(dict(message.content.items()))
                own["config"] = type(record)({**record, "number": number})
                yield Message(own, message.metadata.dst_node_id, message.metadata.message_type)

    grid = FakeGrid(client(), 10, tmp_path)
    strategy = Own(fraction_train=0.9, fraction_evaluate=0.0)
    secured = SecureGrid(grid, **RULES, strategy=strategy, poll=0.0)
    first = ArrayRecord({"w": Array(np.zeros(4, np.float32))})
    strategy.start(grid=secured, initial_arrays=first, num_rounds=1)
    assert len(secured.rounds[0].contributors) == 5


def test_clients_refuse_free_sampling_and_smaller_groups(tmp_path: Path) -> None:
    def refused(terms: dict[str, Any], **rules: Any) -> str:
        with pytest.raises(RefusedError) as raised:
            start(FakeGrid(client(**terms), 5, tmp_path), **rules)
        return str(raised.value)

    assert "the server draws clients freely" in refused({}, free_sampling=True)
    assert "groups of 5 clients, this client asks for 6" in refused({"groups_at_least": 6})
    accepted: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"allow_free_sampling": True}, {"free_sampling": True}),
        ({"allow_free_sampling": True}, {}),
        ({"groups_at_least": 6}, {"groups": 6}),
    ]
    for terms, rules in accepted:
        secured, _ = start(FakeGrid(client(**terms), 5, tmp_path), **rules)
        assert len(secured.rounds[0].contributors) == 5
    with pytest.raises(ValueError, match="groups: is 4"):
        SecureGrid(FakeGrid(client(), 5, tmp_path), **RULES, groups=4)


def test_groups_stay_the_same_in_a_run(tmp_path: Path) -> None:
    """Sums over two dealings of the same clients would tell sums over parts of groups."""
    grid = FakeGrid(client(), 12, tmp_path)
    secured, _ = start(grid)
    assert len(secured.rounds[0].contributors) == 12
    secured, _ = start(grid, rounds=2)
    # The first round has the values of the run before, which the record refuses to send again.
    assert [len(this.contributors) for this in secured.rounds] == [0, 12]
    with pytest.raises(RefusedError, match="other groups than before"):
        start(grid, groups=6)
    grid.offline = {FIRST}
    with pytest.raises(RefusedError, match="other groups than before"):
        start(grid)


def test_a_round_has_as_many_clients_as_it_needs(tmp_path: Path) -> None:
    grid = FakeGrid(client(min_clients=8), 20, tmp_path)
    secured, _ = start(grid, fraction=0.25, min_clients=8)
    assert len(secured.rounds[0].contributors) == 10
    with pytest.raises(RefusedError, match="8 at least"):
        start(FakeGrid(client(), 7, tmp_path), min_clients=8)
