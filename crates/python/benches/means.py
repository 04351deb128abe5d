"""Means of the same arrays: in the clear, with Flower's SecAgg+ and with Undertone.

Each function builds the ServerApp and the ClientApp of one way. The simulation runs them in its own
process. In a deployment the processes of Flower import this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.proto.node_pb2 import NodeInfo
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.run import Run
from numpy.typing import NDArray

from undertone.flower import SIMULATED, SecureGrid, secure

CLIP, MAX_WEIGHT = 8.0, 1000.0


@dataclass(frozen=True)
class Task:
    """What all ways have in common."""

    clients: int
    values: int
    rounds: int
    poll: float
    """Seconds between questions to the SuperLink; 0: as Flower and Undertone do by themselves."""
    journal: str | None = None
    """The folder of the clients' journals; None: the user's state folder."""

    def exact(self) -> NDArray[np.float64]:
        """The mean of the last round."""
        last = [update(index, self.rounds, self.values) for index in range(self.clients)]
        weights = [weight(index) for index in range(self.clients)]
        return np.average(np.array(last, np.float64), axis=0, weights=weights)


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
    """A grid that counts messages and bytes, and asks for replies at its own interval."""

    grid: Grid
    poll: float
    messages: int = 0
    moved: int = 0

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
        if not self.poll:
            sent = self._sent(messages)
            return self._came(self.grid.send_and_receive(sent, timeout=timeout))
        end = None if timeout is None else time.monotonic() + timeout
        waiting, replies = set(self.push_messages(messages)), list[Message]()
        while waiting and (end is None or time.monotonic() < end):
            came = list(self.pull_messages(list(waiting)))
            waiting -= {reply.metadata.reply_to_message_id for reply in came}
            replies += came
            if waiting:
                time.sleep(self.poll)
        return replies

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
    """What one way to compute the mean took, in all rounds."""

    times: list[float]
    mean: NDArray[Any]
    """The mean of the last round."""
    messages: int
    moved: int

    def save(self, path: Path) -> None:
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(
                file, times=self.times, mean=self.mean, messages=self.messages, moved=self.moved
            )
        part.rename(path)

    @staticmethod
    def load(path: Path) -> Measured:
        with np.load(path) as file:
            times = [float(seconds) for seconds in file["times"]]
            return Measured(times, file["mean"], int(file["messages"]), int(file["moved"]))


@dataclass
class Clock:
    """Takes the time and the mean of each round: the strategy calls it after each."""

    begun: float = 0.0
    times: list[float] = field(default_factory=list)
    mean: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def lap(self, number: int, mean: NDArray[Any]) -> None:
        if number > 0:
            self.times.append(time.perf_counter() - self.begun)
            self.mean = mean
        self.begun = time.perf_counter()

    def measured(self, grid: Counting) -> Measured:
        return Measured(self.times, self.mean, grid.messages, grid.moved)


@dataclass
class Way:
    """The two apps of one way to compute the mean."""

    server: ServerApp
    client: ClientApp


Done = Callable[[Measured], None]
"""The ServerApp calls it at the end."""


def saved(path: str) -> Done:
    """Saves what was measured, for another process."""
    return lambda measured: measured.save(Path(path))


def legacy(task: Task, done: Done) -> Way:
    """Flower's SecAgg+: the legacy workflow in the ServerApp, the mod in the ClientApp."""

    class Client(NumPyClient):
        def __init__(self, index: int) -> None:
            self.index = index

        def fit(self, parameters: Any, config: Any) -> Any:
            number = int(config["round"])
            return [update(self.index, number, task.values)], weight(self.index), {}

    def client(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        clock, counting = Clock(), Counting(grid, task.poll)

        def evaluate(number: int, parameters: Any, config: Any) -> None:
            clock.lap(number, parameters[0])

        kind = LegacyFedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=task.clients,
            min_available_clients=task.clients,
            initial_parameters=ndarrays_to_parameters([np.zeros(task.values, np.float32)]),
            evaluate_fn=evaluate,
            on_fit_config_fn=lambda number: {"round": number},
        )
        config = ServerConfig(num_rounds=task.rounds)
        old = LegacyContext(context, config=config, strategy=kind)
        workflow = SecAggPlusWorkflow(1.0, 0.6, max_weight=MAX_WEIGHT, clipping_range=CLIP)
        DefaultWorkflow(fit_workflow=workflow)(counting, old)
        done(clock.measured(counting))

    return Way(server, ClientApp(client_fn=client, mods=[secaggplus_mod]))


def ours(task: Task, done: Done, bits: int) -> Way:
    """A secure mean, or with 0 bits the mean in the clear."""
    rules: dict[str, Any] = {"clip": CLIP, "max_weight": MAX_WEIGHT, "bits": bits}
    app = ClientApp(mods=[secure(**rules, record=SIMULATED, journal=task.journal)] if bits else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        index = int(context.node_config["partition-id"])
        number = int(str(message.content.config_records["config"]["server-round"]))
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": Array(update(index, number, task.values))}),
                "metrics": MetricRecord({"num-examples": weight(index)}),
            }
        )
        return Message(content, reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        clock, counting = Clock(), Counting(grid, task.poll)

        def evaluate(number: int, arrays: ArrayRecord) -> None:
            clock.lap(number, arrays["w"].numpy())

        kind = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=task.clients,
            min_available_nodes=task.clients,
        )
        used: Grid = counting
        if bits:
            used = SecureGrid(counting, **rules, strategy=kind, poll=task.poll or 0.25)
        kind.start(
            grid=used,
            initial_arrays=ArrayRecord({"w": Array(np.zeros(task.values, np.float32))}),
            num_rounds=task.rounds,
            evaluate_fn=evaluate,
        )
        done(clock.measured(counting))

    return Way(server, app)


def build(name: str, task: Task, done: Done) -> Way:
    """The way of this name."""
    bits = {"in the clear": 0, "undertone, 32 bits": 32, "undertone, 64 bits": 64}
    return ours(task, done, bits[name]) if name in bits else legacy(task, done)


NAMES = ("in the clear", "SecAgg+", "undertone, 32 bits", "undertone, 64 bits")
