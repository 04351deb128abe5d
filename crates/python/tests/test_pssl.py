"""A graph between pairs of clients."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import undertone

Rows = tuple[list[NDArray[np.uint8]], list[NDArray[np.int64]], list[NDArray[np.int64]]]


def rows(clients: int = 4) -> Rows:
    rng = np.random.default_rng(3)
    truth = [np.arange(40 + client, dtype=np.int64) % 3 for client in range(clients)]
    centres = rng.integers(0, 100, (3, 10))
    data = [(centres[y] + rng.integers(0, 60, (len(y), 10))).astype(np.uint8) for y in truth]
    known = [np.where(np.arange(len(y)) < 6, y, -1) for y in truth]
    return data, known, truth


OPTIONS: dict[str, Any] = {"d_min": 0.3, "d_max": 1.1}


def test_labels_spread_over_the_graph_and_a_seed_fixes_them() -> None:
    data, known, truth = rows()
    run = undertone.pssl(data, known, seed=1, **OPTIONS)
    assert np.mean(np.concatenate(run) == np.concatenate(truth)) > 0.8
    again = undertone.pssl(data, known, seed=1, **OPTIONS)
    for one, other in zip(run.clients, again.clients):
        assert np.array_equal(one.scores, other.scores)
    assert run.report.clients == {0: 40, 1: 41, 2: 42, 3: 43}
    assert run.report.contributors == run.clients[0].contributors == [0, 1, 2, 3]
    assert "edges" in {cost.phase for cost in run.costs[0]}
    # Both ends have the same edges.
    mine = next(edges for edges in run.clients[0].edges if edges.client == 2)
    theirs = next(edges for edges in run.clients[2].edges if edges.client == 0)
    assert len(mine.rows) > 5
    assert np.array_equal(mine.weights, theirs.weights)
    apart = data[0][mine.rows].astype(float) - data[2][theirs.rows]
    lengths = np.sqrt((apart**2).sum(axis=1)) / max(one.max() for one in data)
    assert lengths.min() >= 0.3 - 1e-9 and lengths.max() <= 1.1 + 1e-9


def test_parties_without_io_give_the_same() -> None:
    data, known, _ = rows(3)
    job = undertone.PsslJob(
        features=10, classes=3, asked=8, scale=int(max(one.max() for one in data)), **OPTIONS
    )
    server = undertone.PsslServer(job).session(3)
    terms = undertone.PsslTerms(d_min=0.3)
    clients = [
        undertone.PsslClient(*own, terms=terms).session(job, server.session, index=index)
        for index, own in enumerate(zip(data, known))
    ]
    undertone.run(server, clients)
    report = server.result()
    assert report is not None and report.contributors == [0, 1, 2]
    for client, one in zip(clients, data):
        result = client.result()
        assert result is not None and result.scores.shape == (len(one), 3)
    assert server.result() is None


def test_what_cannot_be_is_refused() -> None:
    data, known, _ = rows(3)
    with pytest.raises(TypeError, match="uint8"):
        undertone.pssl([one.astype(float) for one in data], known)
    with pytest.raises(ValueError, match="at least 3"):
        undertone.pssl(data[:2], known[:2])
    with pytest.raises(ValueError, match="d_max"):
        undertone.pssl(data, known, d_min=2.0, d_max=1.0)
    with pytest.raises(ValueError, match="reveal"):
        undertone.PsslJob(features=3, classes=2, asked=2, reveal="all")
    small = undertone.PsslJob(features=10, classes=3, asked=8, scale=16)
    with pytest.raises(ValueError, match="9 features, the job has 10"):
        undertone.PsslClient(data[0][:, 1:], known[0]).session(small, bytes(32), index=0)
    with pytest.raises(ValueError, match="negative|-1|not a number|from 0"):
        undertone.PsslClient(-1.0 - data[0], known[0]).session(small, bytes(32), index=0)
    assert small.digest != undertone.PsslJob(features=10, classes=3, asked=9, scale=16).digest


def test_a_job_that_does_not_meet_the_terms_is_refused() -> None:
    data, known, _ = rows(3)
    scale = int(max(one.max() for one in data))

    def client(terms: undertone.PsslTerms | None = None, **parameters: Any) -> None:
        job = undertone.PsslJob(features=10, classes=3, asked=8, scale=scale, **parameters)
        undertone.PsslClient(data[0], known[0], terms=terms).session(job, bytes(32), index=0)

    client()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"d_min": 0.3, "d_max": 1.1}, "d_min"),
        ({"reveal": "distance"}, "reveal"),
        ({"allow_single": True}, "allow_single"),
        ({"rounds": 999, "d_min": 0.1, "d_max": 0.9}, "d_min"),
    ]
    for parameters, term in refused:
        with pytest.raises(undertone.RefusedError, match=rf"\(term {term}\)"):
            client(**parameters)
    client(undertone.PsslTerms(reveal="distance"), reveal="distance")
    client(undertone.PsslTerms(d_min=0.3), d_min=0.3, d_max=1.1)
    with pytest.raises(undertone.RefusedError, match="min_clients"):
        client(undertone.PsslTerms(min_clients=5))
    with pytest.raises(undertone.RefusedError, match="malicious_server"):
        client(undertone.PsslTerms(malicious_server=True))
    with pytest.raises(ValueError, match="malicious_server"):
        client(undertone.PsslTerms(malicious_server="always"))


def test_an_exception_of_progress_ends_the_run() -> None:
    data, known, _ = rows(3)

    def stop(_: str) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        undertone.pssl(data * 4, known * 4, progress=stop, **OPTIONS)
