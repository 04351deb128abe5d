"""Compares secure means with Flower's SecAgg+, in simulations on the same arrays.

    python crates/python/benches/secagg.py [--clients 5] [--values 1000000] [--rounds 4]

Both use the simulation engine with Ray. The first round is left out of the times: it starts the
workers. Bytes are those of the records of all messages, per round, the model included. SecAgg+
uploads 8 bytes for each value, and its mean is float64, so from the second round on it sends the
model with 8 bytes for each value, too.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.proto.node_pb2 import NodeInfo
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from flwr.supercore.run import Run
from numpy.typing import NDArray

from undertone.flower import SecureGrid, secure

CLIP, MAX_WEIGHT = 8.0, 1000.0


def update(index: int, number: int, values: int) -> NDArray[np.float32]:
    """What a client uploads in a round: values from -1 to 1, about the size of a model's."""
    return np.random.default_rng([index, number]).uniform(-1, 1, values).astype(np.float32)


def weight(index: int) -> int:
    return 500 + 100 * index % 500


def size(content: RecordDict) -> int:
    """Bytes of all records."""
    total = 0
    for arrays in content.array_records.values():
        total += sum(len(array.data) for array in arrays.values())
    for config in content.config_records.values():
        for value in config.values():
            each = value if isinstance(value, list) else [value]
            total += sum(len(one) if isinstance(one, bytes) else 8 for one in each)
    return total


@dataclass
class Counting(Grid):
    """A grid that counts messages and bytes."""

    grid: Grid
    messages: int = 0
    moved: int = 0
    nodes: set[int] = field(default_factory=set)

    def _sent(self, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        self.messages += len(messages)
        self.moved += sum(size(message.content) for message in messages)
        return messages

    def _came(self, replies: Iterable[Message]) -> list[Message]:
        replies = list(replies)
        self.moved += sum(size(reply.content) for reply in replies if reply.has_content())
        return replies

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(self._sent(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._came(self.grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self._came(self.grid.send_and_receive(self._sent(messages), timeout=timeout))

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self.grid.get_nodes()

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def set_run(self, run: Run) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Run:
        return self.grid.run


@dataclass
class Measured:
    """One way to compute the mean."""

    name: str
    times: list[float] = field(default_factory=list)
    means: list[NDArray[Any]] = field(default_factory=list)
    messages: int = 0
    moved: int = 0


def legacy(clients: int, values: int, rounds: int) -> Measured:
    """Flower's SecAgg+."""
    measured = Measured("SecAgg+")

    class Client(NumPyClient):
        def __init__(self, index: int) -> None:
            self.index = index

        def fit(self, parameters: Any, config: Any) -> Any:
            number = int(config["round"])
            return [update(self.index, number, values)], weight(self.index), {}

    def client(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        begun = [time.perf_counter()]

        def evaluate(number: int, parameters: Any, config: Any) -> None:
            if number > 0:
                measured.times.append(time.perf_counter() - begun[0])
                measured.means.append(parameters[0])
            begun[0] = time.perf_counter()

        kind = LegacyFedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_available_clients=clients,
            initial_parameters=ndarrays_to_parameters([np.zeros(values, np.float32)]),
            evaluate_fn=evaluate,
            on_fit_config_fn=lambda number: {"round": number},
        )
        counting = Counting(grid)
        old = LegacyContext(context, config=ServerConfig(num_rounds=rounds), strategy=kind)
        workflow = SecAggPlusWorkflow(1.0, 0.6, max_weight=MAX_WEIGHT, clipping_range=CLIP)
        DefaultWorkflow(fit_workflow=workflow)(counting, old)
        measured.messages, measured.moved = counting.messages, counting.moved

    app = ClientApp(client_fn=client, mods=[secaggplus_mod])
    run_simulation(server, app, clients)
    return measured


def ours(clients: int, values: int, rounds: int, bits: int) -> Measured:
    """A secure mean, or with 0 bits the mean in the clear."""
    measured = Measured(f"undertone, {bits} bits" if bits else "in the clear")
    journal = tempfile.mkdtemp()
    rules: dict[str, Any] = {"clip": CLIP, "max_weight": MAX_WEIGHT, "bits": bits}
    app = ClientApp(mods=[secure(**rules, journal=journal)] if bits else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        index = int(context.node_config["partition-id"])
        number = int(str(message.content.config_records["config"]["server-round"]))
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": Array(update(index, number, values))}),
                "metrics": MetricRecord({"num-examples": weight(index)}),
            }
        )
        return Message(content, reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        begun = [time.perf_counter()]

        def evaluate(number: int, arrays: ArrayRecord) -> None:
            if number > 0:
                measured.times.append(time.perf_counter() - begun[0])
                measured.means.append(arrays["w"].numpy())
            begun[0] = time.perf_counter()

        counting = Counting(grid)
        kind = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        # Flower's own grid asks every 0.1 seconds in simulations.
        used = SecureGrid(counting, **rules, strategy=kind, poll=0.1) if bits else counting
        kind.start(
            grid=used,
            initial_arrays=ArrayRecord({"w": Array(np.zeros(values, np.float32))}),
            num_rounds=rounds,
            evaluate_fn=evaluate,
        )
        measured.messages, measured.moved = counting.messages, counting.moved

    run_simulation(server, app, clients)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    given = (options.clients, options.values, options.rounds)
    last = [update(index, options.rounds, options.values) for index in range(options.clients)]
    weights = [weight(index) for index in range(options.clients)]
    exact = np.average(np.array(last, np.float64), axis=0, weights=weights)
    ways: list[Callable[[], Measured]] = [
        lambda: ours(*given, 0),
        lambda: legacy(*given),
        lambda: ours(*given, 32),
        lambda: ours(*given, 64),
    ]
    lines = []
    for way in ways:
        measured = way()
        error = np.abs(measured.means[-1] - exact).max()
        lines.append(
            f"{measured.name:20} {statistics.median(measured.times[1:]):8.2f} "
            f"{measured.moved / options.rounds / 1e6:8.1f} {error:9.1e} "
            f"{measured.messages / options.rounds / options.clients:9.0f}"
        )
    print(f"{options.clients} clients, {options.values} float32, {options.rounds} rounds")
    print(f"{'':20} {'s/round':>8} {'MB/round':>8} {'error':>9} {'messages':>9}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
