"""What a plan says is what a run takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from six import CLIENTS, ROWS, trials

import undertone

SIZES: dict[str, dict[str, Any]] = {
    "label": {"rows": 180, "features": 64},
    "sum": {"values": 3},
    "train": {"rows": CLIENTS * ROWS},
    "cotrain": {},
    "pssl": {"rows": CLIENTS * ROWS},
    "fedgraph": {"features": 2},
}


@pytest.mark.parametrize("backend", ["psm", "lwe"])
def test_bytes_are_those_of_a_run(backend: str, digits: Callable[..., Any]) -> None:
    rows, known, _ = digits(3, 0.2, 1)
    rows = [r[:60] for r in rows]
    known = [np.where(np.arange(60) < 12, np.arange(60) % 10, -1) for _ in known]
    run = undertone.label(rows, known, backend=backend, bits=1024, seed=5, classes=10)
    job = undertone.LabelJob(backend=backend, bits=1024, classes=10)
    plan = undertone.plan(
        job, clients=3, labelled=0.2, backends=[backend], times=False, **SIZES["label"]
    )
    (way,) = plan.ways
    costs = run.costs[undertone.SERVER]
    assert way.server.bytes_sent == sum(cost.bytes_sent for cost in costs)
    assert way.server.bytes_received == sum(cost.bytes_received for cost in costs)
    assert way.server.seconds is None and way.withstands_collusion == (backend == "lwe")


@pytest.mark.parametrize("name", sorted(SIZES))
def test_every_job_has_a_plan(name: str) -> None:
    job = trials()[name].job
    links = ["10Mbit/s,20ms", "1Gbit/s,1ms"]
    plan = undertone.plan(job, clients=CLIENTS, links=links, times=False, **SIZES[name])
    assert plan.application == name
    for way in plan.ways:
        slow, fast = way.over.values()
        assert slow > fast > 0 and way.rounds > 0
        assert way.client.bytes_sent > 0 and way.server.bytes_received > 0


def test_computing_times_are_measured(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = undertone.plan(trials()["sum"].job, clients=CLIENTS, values=1000)
    assert plan.ways[0].client.seconds is not None and plan.ways[0].client.seconds > 0
    assert (tmp_path / "undertone/calibration.json").exists()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(undertone.UndertoneError, match="--rows"):
        undertone.plan(undertone.LabelJob(classes=3), clients=5, times=False)
    with pytest.raises(undertone.UndertoneError, match="100Mbit/s,40ms"):
        undertone.plan(
            undertone.SumJob(clients=5), clients=5, values=3, links=["fast"], times=False
        )
