"""Clients that live from one message to the next."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import record_of

import undertone
from undertone import SERVER

RULES: dict[str, Any] = {
    "session": b"s" * 32, "clients": 3, "size": 4, "bound": 8.0, "max_weight": 10.0, "bits": 32
}


#: What each client has sent, by journal and number.
SENT: dict[tuple[Path, int], bytes | None] = {}


def step(
    journal: Path, index: int, past: list[bytes], message: bytes, value: float | None = None
) -> bytes:
    """A new process: the client from its seed, up to its next step."""
    record = record_of(f"client-{index}", journal.parent / f"{journal.name}-records")
    client = undertone.SumClient(index, seed=bytes([index]) * 32, record=record, **RULES)

    def values() -> tuple[np.ndarray, float]:
        if value is None:
            raise RuntimeError("training failed")
        return np.full(4, value, np.float32), 2.0

    reply = client.replay(journal, past, message, values, sent=SENT.get((journal, index)))
    SENT[journal, index] = client.sent
    return reply


def whole(journal: Path) -> list[list[tuple[bytes, bytes]]]:
    """The messages to each client and its replies."""
    server = undertone.SumServer(**RULES)
    log: list[list[tuple[bytes, bytes]]] = [[], [], []]
    due = {index: b"" for index in range(3)}
    while not server.done:
        for index, message in due.items():
            reply = step(journal, index, [m for m, _ in log[index]], message, 0.5 + index)
            log[index].append((message, reply))
            frames, gone = undertone.unpack(reply)
            assert not gone
            for to, frame in frames:
                assert to == SERVER
                server.push(index, frame)
        frames_of: dict[int, list[tuple[int, bytes]]] = {}
        for to, frame in server.poll():
            frames_of.setdefault(to, []).append((SERVER, frame))
        due = {index: undertone.pack(frames) for index, frames in frames_of.items()}
    result = server.result()
    assert result is not None and np.abs(result.values - 1.5).max() < 1e-6
    return log


def test_a_round_is_four_messages(tmp_path: Path) -> None:
    assert [len(one) for one in whole(tmp_path)] == [4, 4, 4]


def test_the_last_step_is_repeated_bit_by_bit_and_none_before_it(tmp_path: Path) -> None:
    log = whole(tmp_path)[1]
    past = [message for message, _ in log]
    assert step(tmp_path, 1, past[:3], past[3], 9.0) == log[3][1]
    with pytest.raises(undertone.RefusedError, match="a seed serves one transcript only"):
        step(tmp_path, 1, past[:2], past[2], 1.5)
    with pytest.raises(undertone.RefusedError, match="another message"):
        step(tmp_path, 1, past[:3], past[2], 1.5)


def test_other_values_are_never_sent_under_the_same_masks(tmp_path: Path) -> None:
    log = whole(tmp_path / "a")[0]
    past = [message for message, _ in log]
    journal = tmp_path / "b"
    for last in range(3):
        step(journal, 0, past[:last], past[last], 0.5)
    # The process died after the note of the upload and before its reply left.
    assert step(journal, 0, past[:2], past[2], 0.5) == log[2][1]
    with pytest.raises(undertone.RefusedError, match="another reply"):
        step(journal, 0, past[:2], past[2], 0.75)


def test_a_lost_journal_is_refused(tmp_path: Path) -> None:
    log = whole(tmp_path / "a")[2]
    past = [message for message, _ in log]
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(undertone.RefusedError, match="it is lost or old"):
        step(tmp_path / "a", 2, past[:3], past[3])


def test_a_client_that_fails_in_training_can_try_again(tmp_path: Path) -> None:
    log = whole(tmp_path / "a")[0]
    past = [message for message, _ in log]
    journal = tmp_path / "b"
    for last in range(2):
        step(journal, 0, past[:last], past[last])
    with pytest.raises(RuntimeError, match="training failed"):
        step(journal, 0, past[:2], past[2])
    assert step(journal, 0, past[:2], past[2], 0.5) == log[2][1]


def upload(journal: Path, values: Callable[[undertone.SumClient], Any]) -> undertone.SumClient:
    """A client in its third step, in which it calls ``values`` with itself."""
    past = [message for message, _ in whole(journal / "a")[0]]
    for last in range(2):
        step(journal / "b", 0, past[:last], past[last])
    record = record_of("client-0", journal / "b-records")
    client = undertone.SumClient(0, seed=bytes(32), record=record, **RULES)
    client.replay(journal / "b", past[:2], past[2], lambda: (values(client), 1.0))
    return client


def test_later_messages_need_the_digest_of_what_was_sent(tmp_path: Path) -> None:
    past = [message for message, _ in whole(tmp_path)[1]]
    del SENT[tmp_path, 1]
    with pytest.raises(ValueError, match="give their digest"):
        step(tmp_path, 1, past[:3], past[3])


def test_values_must_not_use_their_own_party(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="must not use the party that calls it"):
        upload(tmp_path, lambda client: client.phase)


def test_another_thread_may_ask_for_the_result_meanwhile(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    def values(client: undertone.SumClient) -> Any:
        threads.append(threading.Thread(target=client.result))
        threads[0].start()
        time.sleep(0.2)
        return np.zeros(4, np.float32)

    upload(tmp_path, values)
    threads[0].join(10)
    assert not threads[0].is_alive()


def test_a_replayed_party_takes_no_step_without_the_journal(tmp_path: Path) -> None:
    client = upload(tmp_path, lambda client: np.zeros(4, np.float32))
    for call in (client.poll, lambda: client.push(SERVER, b""), lambda: client.exchange(b"")):
        with pytest.raises(ValueError, match="has been replayed"):
            call()


def test_label_propagation_by_replay(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    job = undertone.LabelJob(bits=128)
    rows = [rng.normal(size=(12, 3)) for _ in range(3)]
    known = [np.where(np.arange(12) < 6, np.arange(12) % 2, -1) for _ in range(3)]

    def client(index: int) -> undertone.Session[undertone.Labels]:
        own = undertone.LabelClient(
            rows[index], known[index], classes=2,
            record=record_of(f"client-{index}", tmp_path / "records"),
        )
        return own.session(job, b"l" * 32, index=index, seed=bytes([index]) * 32)

    def serving() -> undertone.Session[undertone.LabelReport]:
        return undertone.LabelServer(job).session(3, session=b"l" * 32, seed=bytes(32))

    server = serving()
    past: list[list[bytes]] = [[], [], []]
    due = {index: b"" for index in range(3)}
    found: dict[int, undertone.Labels] = {}
    while due:
        frames_of: dict[int, list[tuple[int, bytes]]] = {}
        for index, message in due.items():
            party = client(index)
            reply = party.replay(tmp_path / "journal", past[index], message)
            past[index].append(message)
            for to, frame in undertone.unpack(reply)[0]:
                if to == SERVER:
                    server.push(index, frame)
                else:
                    frames_of.setdefault(to, []).append((index, frame))
            if party.done:
                labels = party.result()
                assert labels is not None
                found[index] = labels
        while frames := server.poll():
            for to, frame in frames:
                frames_of.setdefault(to, []).append((SERVER, frame))
        due = {index: undertone.pack(frames) for index, frames in frames_of.items()}
    clients = [client(index) for index in range(3)]
    again = serving()
    undertone.run(again, clients)
    for index, party in enumerate(clients):
        labels = party.result()
        assert labels is not None and (labels.labels == found[index].labels).all()
