"""What each owner of data runs."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from digits import task
from undertone import LabelClient, Labels, LabelTerms, TrainClient, TrainTerms
from undertone.flower import SIMULATED, client, secure

# The client's own terms. They are in its code: the server chooses the run config. The record of
# answers is in memory for simulations; the node config of a deployment names one on disk.
terms = secure(
    clip=4.0,
    max_weight=400.0,
    metrics=["loss", "label-accuracy"],
    allow_free_sampling=True,  # see server_app.py
    record=SIMULATED,
)
app = ClientApp(mods=[terms])


def own_rows(context: Context) -> tuple[task.Rows, int]:
    index = int(context.node_config["partition-id"])
    rows, _ = task.load(str(context.run_config["data"]))
    return rows.part(index, int(context.node_config["num-partitions"])), index


@app.train()
def train(message: Message, context: Context) -> Message:
    rows, index = own_rows(context)
    if index == context.run_config["fails"] and message.content["config"]["server-round"] == 2:
        raise RuntimeError("this client fails when it trains")
    classes = rows.classes
    if "labels" in context.state:
        classes = context.state.array_records["labels"]["found"].numpy()
    reached = classes >= 0
    received = message.content.array_records["arrays"]
    model = {name: array.numpy() for name, array in received.items()}
    used = task.Rows(rows.features[reached], classes[reached])
    model = task.train(model, used)
    picked = task.scores(model, used.features)[np.arange(len(used.classes)), used.classes]
    metrics: dict[str, int | float | list[int] | list[float]] = {
        "num-examples": len(used.classes),
        "loss": float(-np.log(picked + 1e-9).mean()),
        "label-accuracy": float(np.mean(classes == rows.classes)),
        "own-rows": len(rows.classes),  # not in secure(metrics=...): it stays here
    }
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(array) for name, array in model.items()}),
            "metrics": MetricRecord(metrics),
        }
    )
    return Message(content, reply_to=message)


def load(context: Context) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The rows to label. It returns the same for every message."""
    rows, index = own_rows(context)
    return rows.features, task.known(rows, index)


def save(labels: Labels, context: Context) -> None:
    """Keeps the labels on this node, for training."""
    context.state["labels"] = ArrayRecord({"found": Array(labels.labels)})


# The server of this example colludes with nobody, so these clients accept psm, too.
BACKENDS = ("lwe", "psm")


def labels(context: Context) -> LabelClient:
    return LabelClient(*load(context), terms=LabelTerms(backends=BACKENDS))


def trains(context: Context) -> TrainClient:
    return TrainClient(task.Model(), *load(context), terms=TrainTerms(backends=BACKENDS))


app.query("undertone")(client(labels, save, record=SIMULATED))
# Mode propagate: a job of training with propagated labels.
app.query("undertone_train")(client(trains, record=SIMULATED))
