"""Label propagation."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertone
from undertone import SERVER


def accuracy(run: Any, known: Any, truth: Any) -> float:
    hidden = np.concatenate(known) == -1
    right = np.concatenate(list(run)) == np.concatenate(truth)
    return float(np.mean(right[hidden]))


def test_digits_are_labelled_as_the_readme_says(digits: Callable[..., Any]) -> None:
    each = []
    for seed in range(2):
        rows, known, truth = digits(5, 0.1, seed)
        run = undertone.label(rows, known, seed=seed)
        each.append(accuracy(run, known, truth))
        assert all((found[shown >= 0] == shown[shown >= 0]).all()
                   for found, shown in zip(run, known, strict=True))
    assert 0.954 <= np.mean(each) <= 0.976, each


@pytest.mark.parametrize("backend", ["clear", "sketch", "psm", "lwe", "shade"])
def test_every_backend_gives_the_same_labels(backend: str, digits: Callable[..., Any]) -> None:
    rows, known, _ = digits(3, 0.2, 1)
    rows, known = [r[:60] for r in rows], [k[:60] for k in known]
    run = undertone.label(rows, known, backend=backend, bits=1024, seed=5, classes=10)
    plain = undertone.label(rows, known, backend="clear", bits=1024, seed=5, classes=10)
    assert all((a == b).all() for a, b in zip(run, plain, strict=True))
    assert len(run.costs) == 4 and run.report.contributors == [0, 1, 2]
    assert run.report.neighbours.shape == run.report.distances.shape == (180, 10)
    assert all(c.scores.shape == ((k == -1).sum(), 10)
               for c, k in zip(run.clients, known, strict=True))


REFERENCES = [
    ("wine_5clients_iid_k10_paper", 10, "paper"),
    ("wine_10clients_dirichlet_k3_balanced", 3, "balanced"),
]


@pytest.mark.parametrize(("name", "neighbours", "variant"), REFERENCES)
def test_runs_that_others_computed(
    name: str, neighbours: int, variant: str, vectors: Path
) -> None:
    with (vectors / "xclp" / f"{name}.csv").open() as file:
        lines = list(csv.DictReader(file))
    clients = sorted({int(line["client"]) for line in lines})
    of = {c: [line for line in lines if int(line["client"]) == c] for c in clients}
    codes = [
        np.array([list(bytes.fromhex(line["bits_hex"])) for line in of[c]], np.uint8)
        for c in clients
    ]
    known = [
        np.array([int(line["label"]) if line["labelled"] == "1" else -1 for line in of[c]])
        for c in clients
    ]
    run = undertone.label(
        codes, known, codes=True, bits=256, neighbours=neighbours, variant=variant, classes=3
    )
    for c, found, shown in zip(clients, run, known, strict=True):
        due = [int(line["pred"]) for line in of[c]]
        assert (found[shown == -1] == np.array(due)[shown == -1]).all()
    near = [[int(line[f"nb{i}"]) for i in range(neighbours)] for line in lines]
    assert run.report.neighbours.tolist() == near


def parties(rows: Any, known: Any, **rules: Any) -> tuple[Any, list[Any]]:
    job = undertone.LabelJob(bits=512, **rules)
    server = undertone.LabelServer(job).session(len(rows))
    clients = [
        undertone.LabelClient(rows[i], known[i], classes=10).session(job, server.session, index=i)
        for i in range(len(rows))
    ]
    return server, clients


def test_cells_compare_rows_that_share_one(digits: Callable[..., Any]) -> None:
    rows, known, truth = digits(3, 0.2, 2)
    run = undertone.label(rows, known, bits=512, cells=8, probes=2)
    assert accuracy(run, known, truth) > 0.85
    with pytest.raises(undertone.AbortedError, match="a cell must have 200 rows on average"):
        undertone.label(rows, known, bits=512, cells=60)
    with pytest.raises(ValueError, match="probes"):
        undertone.LabelJob(cells=8)
    with pytest.raises(ValueError, match="standardise"):
        undertone.LabelJob(cells=100, standardise=True)
    with pytest.raises((ValueError, undertone.RefusedError), match="cells with epsilon"):
        parties(rows, known, cells=8, probes=2)


def test_parties_without_io(digits: Callable[..., Any]) -> None:
    rows, known, truth = digits(3, 0.2, 2)
    server, clients = parties(rows, known)
    undertone.run(server, clients)
    found = [client.result() for client in clients]
    assert accuracy([one.labels for one in found], known, truth) > 0.9
    report = server.result()
    assert report.contributors == [0, 1, 2] and report.method in ("cholesky", "conjugategradients")
    assert clients[0].result() is None


def test_a_dropped_client_is_missed_by_nobody(digits: Callable[..., Any]) -> None:
    rows, known, _ = digits(4, 0.2, 3)
    server, clients = parties(rows, known)
    for client in clients[:3]:
        client.gone(3)
    server.gone(3)
    undertone.run(server, clients[:3])
    assert server.result().clients == [0, 1, 2]


def test_noise_leaves_a_client_its_own_labels(digits: Callable[..., Any]) -> None:
    rows, known, _ = digits(3, 0.3, 4)
    run = undertone.label(rows, known, label_epsilon=0.5, bits=512, seed=1)
    plain = undertone.label(rows, known, bits=512, seed=1)
    for found, shown in zip(run, known, strict=True):
        assert (found[shown >= 0] == shown[shown >= 0]).all()
    assert any((a != b).any() for a, b in zip(run, plain, strict=True))


def test_standardise(data: Path) -> None:
    table = np.genfromtxt(data / "health.csv", delimiter=",", skip_header=1, dtype=str)
    names, truth = np.unique(table[:, -1], return_inverse=True)
    features = table[:, :-1].astype(float)
    rng = np.random.default_rng(0)
    known = np.where(rng.random(len(truth)) < 0.1, truth, -1)
    parts = np.array_split(rng.permutation(len(truth)), 5)

    def run(standardise: bool) -> float:
        found = undertone.label(
            [features[p] for p in parts], [known[p] for p in parts],
            classes=len(names), standardise=standardise, bits=1024,
        )
        return accuracy(found, [known[p] for p in parts], [truth[p] for p in parts])

    assert run(True) > run(False) + 0.2


def test_arguments_that_cannot_be(digits: Callable[..., Any]) -> None:
    rows, known, _ = digits(3, 0.2, 5)
    with pytest.raises(ValueError, match="2 clients, at least 3 are needed"):
        undertone.label(rows[:2], known[:2])
    with pytest.raises(ValueError, match="features of 3 clients, labels of 2"):
        undertone.label(rows, known[:2])
    with pytest.raises(ValueError, match="unknown"):
        undertone.label(rows, known, backend="none")
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"neighbours": 1.5}, TypeError, "neighbours is 1.5; a whole number is needed"),
        ({"bits": -1}, ValueError, "bits"),
        ({"bits": 0}, ValueError, "bits is 0; it must be"),
        ({"alpha": "high"}, TypeError, "alpha is 'high'; a number is needed"),
        ({"malicious_server": 1}, TypeError, "malicious_server is 1; True or False"),
        ({"suite": None}, TypeError, "suite is None; a text is needed"),
        ({"label_epsilon": "low"}, TypeError, "label_epsilon is 'low'; a number"),
    ]
    for options, error, text in wrong:
        with pytest.raises(error, match=text):
            undertone.label(rows, known, **options)
        if "label_epsilon" not in options:
            with pytest.raises(error, match=text):
                undertone.LabelJob(**options)
    with pytest.raises(ValueError, match=r"labels\[0\] has the label -2"):
        undertone.label(rows, [np.full_like(k, -2) for k in known], classes=3)
    with pytest.raises(ValueError, match="shape"):
        undertone.label([r[0] for r in rows], known)
    with pytest.raises(ValueError, match="row"):
        undertone.label([np.full_like(r, np.nan) for r in rows], known)
    with pytest.raises(ValueError, match="client 0: 599 labels for 5 rows"):
        undertone.label([rows[0][:5], *rows[1:]], known)


def test_progress_is_told_and_its_exceptions_end_the_run(digits: Callable[..., Any]) -> None:
    rows, known, _ = digits(3, 0.2, 6)
    told: list[str] = []
    undertone.label(rows, known, backend="shade", bits=1024, progress=told.append)
    assert told and any("client" in text for text in told)

    def fail(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError):
        undertone.label(rows, known, backend="shade", bits=1024, progress=fail)


INTERRUPTED = """
import numpy as np, undertone
rng = np.random.default_rng(0)
rows = [rng.normal(size=(700, 20)) for _ in range(3)]
known = [np.arange(700) % 2 for _ in range(3)]
print("ready", flush=True)
try:
    undertone.label(rows, known, backend="phe", bits=4096)
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_control_c_ends_a_long_run() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"


def test_who_sends_too_many_rows_is_left() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(40, 4)) for _ in range(3)]
    known = [np.arange(40) % 3 for _ in range(3)]
    job, terms = undertone.LabelJob(bits=512), undertone.LabelTerms(max_peer_rows=10)
    server = undertone.LabelServer(job).session(3)
    clients = [
        undertone.LabelClient(
            rows[i], known[i], classes=10, terms=terms if i == 0 else None
        ).session(job, server.session, index=i)
        for i in range(3)
    ]
    with pytest.raises(undertone.AbortedError) as caught:
        undertone.run(server, clients)
    assert caught.value.party in (0, SERVER)
