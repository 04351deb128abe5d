"""What the server runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import undertone.flower
from digits import task
from undertone.flower import SecureGrid, label

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    mode, learned = str(config["mode"]), dict[str, Any]()
    # A strategy waits without limit for the nodes that it needs. So all nodes are awaited here,
    # once, and the strategy goes on with three.
    wait_for(grid, 5)
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    # Five nodes would be one group, and a node that fails would cost the round. So any of them
    # contribute. Over many rounds that tells this server their weights: with ten nodes or more
    # leave it out on both sides.
    secured = SecureGrid(
        grid,
        free_sampling=True,
        clip=4.0,
        max_weight=400.0,
        metrics=["loss", "label-accuracy"],
        strategy=strategy,
    )
    _, test = task.load(str(config["data"]))

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        model = {name: array.numpy() for name, array in arrays.items()}
        return MetricRecord({"accuracy": task.accuracy(model, test)})

    if mode in ("label", "both"):
        found = label(grid, classes=task.CLASSES, backend=str(config["backend"]))
        learned["label"] = {
            "clients": len(found.nodes) - len(found.dropped),
            "messages": len(found.exchanges),
            "seconds": round(found.seconds, 2),
        }
    if mode in ("train", "both"):
        result = strategy.start(
            grid=secured,
            initial_arrays=ArrayRecord(
                {name: Array(array) for name, array in task.new_model().items()}
            ),
            num_rounds=int(config["rounds"]),
            evaluate_fn=evaluate,
        )
        tested = result.evaluate_metrics_serverapp
        learned["rounds"] = [
            {
                "contributors": len(this.contributors),
                "dropped": list(this.dropped.values()),
                "examples": this.weight,
                "metrics": this.metrics,
                "seconds": [round(exchange.seconds, 2) for exchange in this.exchanges],
                "bytes": [exchange.sent + exchange.received for exchange in this.exchanges],
                "failed": this.failed,
            }
            for this in secured.rounds
        ]
        learned["accuracy"] = [tested[number]["accuracy"] for number in sorted(tested)]
    if mode == "propagate":
        model, accuracies = task.Model(), list[float]()

        def on_round(number: int, params: NDArray[np.float32]) -> None:
            model.set_params(params)
            accuracies.append(task.accuracy(model.arrays, test))

        job = undertone.TrainJob(
            features=64,
            classes=task.CLASSES,
            parameters=model.params().size,
            label_rounds=1,
            rounds=int(config["rounds"]) - 1,
            backend=str(config["backend"]),
        )
        run = undertone.flower.train(
            grid, job, model.params(), on_round=on_round, action="undertone_train"
        )
        learned["rounds"] = [len(contributors) for _, contributors in run.rounds]
        learned["messages"] = [len(session) for session in run.sessions]
        learned["seconds"] = round(run.seconds, 2)
        learned["accuracy"] = accuracies
    print(json.dumps(learned, indent=2))
    if config["report"]:
        Path(str(config["report"])).write_text(json.dumps(learned), encoding="utf-8")


def wait_for(grid: Grid, nodes: int) -> None:
    """Waits until so many nodes are connected."""
    import time

    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(1.0)
