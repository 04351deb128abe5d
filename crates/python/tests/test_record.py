"""Records of answers, and the attacks that they prevent."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import record_of
from test_train import Softmax

import undertone
from undertone import SERVER, Record

CLIENTS, ROWS = 5, 12

rng = np.random.default_rng(0)
truth = [np.arange(ROWS) % 2 for _ in range(CLIENTS)]
rows = [rng.normal(size=(ROWS, 30)) + 3 * (y[:, None] - 0.5) for y in truth]
known = [np.where(np.arange(ROWS) < 6, y, -1) for y in truth]
keys = [undertone.generate_key() for _ in range(CLIENTS)]


@pytest.fixture
def records(tmp_path: Path) -> Callable[[int], Record]:
    """The record of each client. Each call opens it anew, as another process does."""
    return lambda client: record_of(f"ward-{client}", tmp_path / "records")


def label(members: list[int], records: Callable[[int], Record | None], **more: Any) -> Any:
    """A session of these clients, numbered as the server likes. They know each other's keys."""
    public = [undertone.public_key(keys[one]) for one in members]
    job = undertone.LabelJob(**{"bits": 128, "malicious_server": True, **more})
    server = undertone.LabelServer(job).session(len(members))
    clients = [
        undertone.LabelClient(rows[one], known[one], classes=2, record=records(one)).session(
            job, server.session, index=place, key=keys[one], public_keys=public
        )
        for place, one in enumerate(members)
    ]
    undertone.run(server, clients)
    return server.result()


# The object


def test_a_record_is_made_opened_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_RECORDS", str(tmp_path))
    with pytest.raises(ValueError, match="no record of answers at .*undertone record new ward-7"):
        Record("ward-7")
    made = Record.new("ward-7", accept_volatile=True)
    with pytest.raises(ValueError, match="there is one at"):
        Record.new("ward-7", accept_volatile=True)
    with pytest.raises(ValueError, match="is no name of a record"):
        Record.new("../ward-7")
    made.allow("new-job", " the board agreed ")
    with pytest.raises(ValueError, match="what is \"everything\" is not one of session"):
        made.allow("everything", "no")
    for reason in ("", " ", "two\nlines"):
        with pytest.raises(ValueError, match="one line"):
            made.allow("session", reason)
    record = Record("ward-7", tmp_path, accept_volatile=True)
    shown = record.show()
    assert (shown.rows, shown.answers, len(shown.left)) == (0, [], 6)
    (allowed,) = shown.allowed
    assert (allowed.what, allowed.reason, allowed.used) == ("new-job", "the board agreed", False)
    assert record.name == "ward-7" and record.folder == tmp_path / "ward-7"
    assert repr(record) == "<Record: ward-7>"
    memory = Record.simulated()
    assert memory.name is None and memory.folder is None and repr(memory) == "<Record: in memory>"
    for one in (record, memory):
        for function in (pickle.dumps, copy.deepcopy, copy.copy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                function(one)


def test_a_party_without_a_record_refuses_unless_run_moves_its_frames() -> None:
    rules: dict[str, Any] = {"session": bytes(32), "clients": 3, "size": 1, "bound": 8.0}

    def parties() -> tuple[undertone.SumServer, list[undertone.SumClient]]:
        clients = [undertone.SumClient(i, values=np.ones(1), **rules) for i in range(3)]
        return undertone.SumServer(**rules), clients

    server, clients = parties()
    told: list[bytes] = []
    with pytest.raises(undertone.RefusedError, match="this party has no record of answers: give"):
        while True:
            for client in clients:
                while frames := client.poll():
                    for _, frame in frames:
                        told.append(frame)
                        server.push(client.id, frame)
            for to, frame in server.poll():
                clients[to].push(SERVER, frame)
    # The last frame of client 0 is a notice, which says nothing of the reason.
    assert len(told[-1]) < 200 and b"record" not in b"".join(told)
    server, clients = parties()
    undertone.run(server, clients)
    assert server.result() is not None


def test_a_record_of_other_data_is_refused(records: Callable[[int], Record]) -> None:
    label([0, 1, 2], records)
    with pytest.raises(undertone.RefusedError, match="none of its 12 rows is in record ward-0"):
        label([3, 1, 2], lambda client: records({3: 0}.get(client, client)))
    # A new record for rows that another one knows.
    with pytest.raises(undertone.RefusedError, match="12 of its rows are in record ward-0"):
        label([0, 1, 2], lambda client: records({0: 4}.get(client, client)))


# Attacks


def test_labels_of_other_clients_and_more_sessions(records: Callable[[int], Record]) -> None:
    """The difference of two sums over labels is one client's class counts. Each session shows the
    server the cosines more precisely."""
    assert label([0, 1, 2, 3, 4], records).contributors == [0, 1, 2, 3, 4]
    for members in ([0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2]):
        with pytest.raises(undertone.RefusedError, match="record ward-0: its labels were added up"):
            label(members, records)
    # The server's numbers do not matter.
    for _ in range(2):
        label([4, 3, 2, 1, 0], records)
    for _ in range(27):
        with pytest.raises(undertone.RefusedError, match="were in 3 jobs of label propagation"):
            label([0, 1, 2, 3, 4], records)
    for client in range(CLIENTS):
        records(client).allow("session", "a fourth one")
    label([0, 1, 2, 3, 4], records)
    assert [one.used for one in records(0).show().allowed] == [True]


def test_without_keys_the_first_labels_are_the_last(records: Callable[[int], Record]) -> None:
    job = undertone.LabelJob(bits=128)

    def session() -> None:
        server = undertone.LabelServer(job).session(3)
        clients = [
            undertone.LabelClient(rows[i], known[i], classes=2, record=records(i)).session(
                job, server.session, index=i
            )
            for i in range(3)
        ]
        undertone.run(server, clients)

    # One object for a session with keys, then one without: it must not take their clients for those
    # of the first.
    opened = [records(client) for client in range(CLIENTS)]
    label([0, 1, 2], lambda client: opened[client])
    with pytest.raises(undertone.RefusedError, match="without a roster of keys"):
        session()


PROCESS = """
import os, sys, numpy as np, undertone
record = undertone.Record("ward-1", sys.argv[1], accept_volatile=True)
# The server repeats the session. The client's seed is another one in each process.
rules = dict(session=bytes(32), clients=3, size=2, bound=8.0)

def answer():
    server = undertone.SumServer(**rules)
    clients = [
        undertone.SumClient(
            i, values=np.array([i, 0.5]), record=record if i == 1 else None, **rules
        )
        for i in range(3)
    ]
    try:
        undertone.run(server, clients)
        print("answered", server.result().contributors, flush=True)
    except undertone.RefusedError as error:
        print("refused", error, flush=True)

if sys.argv[2] == "fork":
    child = os.fork()
    if not child:
        answer()
        os._exit(0)
    os.waitpid(child, 0)
answer()
"""


@pytest.mark.parametrize("how", ["again", "fork"])
def test_another_process_refuses_what_the_first_one_answered(how: str, tmp_path: Path) -> None:
    if how == "fork" and not hasattr(os, "fork"):
        pytest.skip("no fork")
    record_of("ward-1", tmp_path)
    run = [sys.executable, "-c", PROCESS, str(tmp_path), how]
    printed = ""
    for _ in range(1 if how == "fork" else 2):
        done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
        printed += done.stdout
    first, second = printed.splitlines()
    assert first == "answered [0, 1, 2]"
    assert "exactly these values were sent" in second and "allow ward-1 values" in second


def test_equal_values_are_known_again_in_other_arrays(tmp_path: Path) -> None:
    def add(values: Any, weight: float = 1.0) -> None:
        rules: dict[str, Any] = {
            "session": undertone.session_id(None), "clients": 3, "size": 3, "bound": 8.0,
            "max_weight": 4.0,
        }
        server = undertone.SumServer(**rules)
        clients = [
            undertone.SumClient(i, record=record_of(f"c{i}", tmp_path), **rules) for i in range(3)
        ]
        for client in clients:
            given = values if client.id == 0 else rng.random(3)
            client.contribute(given, weight)
        undertone.run(server, clients)

    one, two = np.array([1.0, -0.0]), np.array([2.0])
    add([one, two])
    for same in ([one.astype(np.float32), two], [two, one], [one.reshape(2, 1) + 0.0, two]):
        with pytest.raises(undertone.RefusedError, match="record c0: exactly these values"):
            add(same)
    add([one, two], weight=2.0)
    add([one[::-1].copy(), two])


def test_training_goes_on_in_another_process_and_begins_no_other_job(
    records: Callable[[int], Record], tmp_path: Path
) -> None:
    def job(rounds: int) -> undertone.TrainJob:
        return undertone.TrainJob(
            features=30, classes=2, parameters=62, label_rounds=1, rounds=rounds, bits=128, epochs=1
        )

    state = tmp_path / "state"

    def session(job: undertone.TrainJob, is_new: bool) -> str:
        if is_new:
            state.unlink(missing_ok=True)
        first = Softmax(30, 2).params()
        server = undertone.TrainServer(job, params=first, checkpoint=state)
        party = server.session(CLIENTS)
        clients = [
            undertone.TrainClient(
                Softmax(30, 2), rows[one], known[one], record=records(one)
            ).session(job, party.session, index=one, number=party.number)
            for one in party.clients
        ]
        undertone.run(party, clients)
        report = party.result()
        assert report is not None
        return report.kind

    assert [session(job(2), number == 0) for number in range(3)] == ["census", "round", "round"]
    for other in (job(3), job(2)):
        with pytest.raises(undertone.RefusedError, match="were in round 2 of a training job"):
            session(other, True)
    for client in range(CLIENTS):
        records(client).allow("new-job", "the rows are the same, and the board agreed")
    assert session(job(3), True) == "census"


def test_pairs_graphs_and_votes_are_given_once(
    records: Callable[[int], Record], tmp_path: Path
) -> None:
    whole = [np.clip(np.rint(40 * one + 120), 0, 255).astype(np.uint8)[:, :8] for one in rows]
    pssl = undertone.PsslJob(features=8, classes=2, asked=2, d_min=0.1, d_max=1.5)
    votes = rng.random((CLIENTS, 3, 2))
    votes /= votes.sum(axis=2, keepdims=True)
    graph = undertone.FedGraphJob(clients=4, rows=ROWS, queries=3, classes=2, width=30, cluster=6)

    def pairs() -> None:
        server = undertone.PsslServer(pssl).session(3)
        clients = [
            undertone.PsslClient(
                whole[i], known[i], terms=undertone.PsslTerms(d_min=0.1), record=records(i)
            ).session(pssl, server.session, index=i)
            for i in range(3)
        ]
        undertone.run(server, clients)

    def network() -> None:
        server = undertone.FedGraphServer(graph).session(4)
        clients = [
            undertone.FedGraphClient(
                ["age", "dose"], np.clip(rows[i], -8, 8), votes[i], truth[0], rows=whole[i],
                record=records(i),
            ).session(graph, server.session, index=i)
            for i in range(4)
        ]
        undertone.run(server, clients)

    with pytest.raises(ValueError, match="rows is missing"):
        undertone.FedGraphClient(
            ["age", "dose"], np.clip(rows[0], -8, 8), votes[0], truth[0], record=records(0)
        )
    pairs()
    with pytest.raises(undertone.RefusedError, match="rows were compared with those of other"):
        pairs()
    network()
    with pytest.raises(undertone.RefusedError, match="in a graph network with other clients"):
        network()

    public = rng.normal(size=(20, 30))

    class Nearest:
        def fit(self, X: Any, y: Any) -> None:
            self.means = np.array([X[y == kind].mean(axis=0) for kind in (0, 1)])

        def predict(self, X: Any) -> Any:
            return ((X[:, None] - self.means) ** 2).sum(axis=2).argmin(axis=1)

    def exchange(exchanges: int) -> None:
        job = undertone.CotrainJob(
            rows=20, features=30, classes=2, public=undertone.public_digest(public),
            exchanges=exchanges,
        )
        party = undertone.CotrainServer(job).session(3)
        clients = [
            undertone.CotrainClient(
                Nearest(), rows[i], truth[i], public,
                record=record_of(f"voter-{i}", tmp_path / "voters"),
            ).session(job, party.session, index=i)
            for i in range(3)
        ]
        undertone.run(party, clients)

    exchange(2)
    with pytest.raises(undertone.RefusedError, match="voted in another co-training job"):
        exchange(3)


def test_noise_is_drawn_from_one_secret(records: Callable[[int], Record]) -> None:
    def client(secret: bytes) -> None:
        undertone.LabelClient(
            rows[0], known[0], classes=2, noise=(1.0, secret), record=records(0)
        )

    client(bytes(32))
    client(bytes(32))
    with pytest.raises(undertone.RefusedError, match="was drawn from another secret"):
        client(b"1" * 32)


def test_a_record_is_named_once_and_in_time(records: Callable[[int], Record]) -> None:
    job = undertone.LabelJob(bits=128, classes=2)
    named = undertone.LabelClient(rows[0], known[0], record=records(0))
    with pytest.raises(ValueError, match="record is fixed"):
        named.keep(records(1))
    looked = undertone.TrainClient(Softmax(30, 2), rows[0], known[0])
    assert looked.last is None
    looked.keep(records(0))
    late = undertone.LabelClient(rows[0], known[0])
    late.agree(job, signed=False)
    with pytest.raises(ValueError, match="record is fixed"):
        late.keep(records(0))


def test_a_client_keeps_to_the_keys_of_its_first_session(
    records: Callable[[int], Record],
) -> None:
    job = undertone.LabelJob(bits=128, classes=2, malicious_server=True)
    client = undertone.LabelClient(rows[0], known[0], record=records(0))
    public = [undertone.public_key(keys[one]) for one in range(3)]
    client.session(job, bytes(32), index=0, key=keys[0], public_keys=public)
    other = [public[0], *[undertone.public_key(keys[one]) for one in (3, 4)]]
    with pytest.raises(ValueError, match="others than in this client's first session"):
        client.session(job, b"1" * 32, index=0, key=keys[0], public_keys=other)
