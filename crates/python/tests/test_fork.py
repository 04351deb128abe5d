"""The engine in processes that were forked."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")

SCRIPT = """
import os, sys, threading
import numpy as np
import undertone

rng = np.random.default_rng(0)
rows = [rng.normal(size=(40, 8)) for _ in range(3)]
known = [np.where(np.arange(40) < 6, np.arange(40) % 2, -1)] * 3

def label():
    return np.concatenate(undertone.label(rows, known, bits=256, seed=1)).sum()

def mean():
    rules = dict(
        session=undertone.session_id(None), clients=3, size=200_000, bound=8.0, max_weight=10.0
    )
    server = undertone.SumServer(**rules)
    clients = [undertone.SumClient(i, values=np.ones(200_000, "f"), **rules) for i in range(3)]
    undertone.run(server, clients)
    return server.result().weight

def distances():
    return undertone.distances(rows[0], rows[1], bits=256, seed=1).hamming.sum()

def noisy():
    client = undertone.LabelClient(rows[0], known[0], classes=2, noise=(1.0, bytes(32)))
    return client.session(undertone.LabelJob(bits=256), bytes(32), index=0).phase

def pairs():
    messages = np.zeros((1000, 2, 16), np.uint8)
    return undertone.ot(messages, np.zeros(1000, int)).messages.sum()

def encrypted():
    key = undertone.paillier(2048)
    return sum(key.decrypt(key.encrypt(range(50)) * 2))

CALLS = [label, mean, distances, noisy, pairs, encrypted]

def forked(work):
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

def in_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(label()))
    thread.start()
    thread.join()
    assert found == [label()]

due = {call: call() for call in CALLS}

def same():
    for call in CALLS * 2:
        assert call() == due[call], call

print("child:", forked(same))
print("child, in a thread:", forked(in_thread))

def twice():
    label()

    def deeper():
        try:
            label()
        except RuntimeError as error:
            assert "get_context" in str(error), error
        else:
            raise AssertionError("it worked")

    assert forked(deeper) == 0
    # The child itself goes on.
    same()

print("grandchild:", forked(twice))
# A grandchild whose parent has not used the engine.
print("grandchild, first use:", forked(lambda: (lambda code: code and 1 / 0)(forked(same))))
same()
"""


def test_the_engine_works_in_forked_processes() -> None:
    # A hang is what this is about, so there is a limit; it is never near.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines() == [
        "child: 0", "child, in a thread: 0", "grandchild: 0", "grandchild, first use: 0",
    ], done.stderr
    assert done.returncode == 0, done.stderr


def test_a_child_is_first_if_its_parent_never_used_the_engine() -> None:
    script = SCRIPT.replace("due = {call: call() for call in CALLS}", "").replace(
        "assert call() == due[call], call", "call()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert "child: 0" in done.stdout, done.stderr
