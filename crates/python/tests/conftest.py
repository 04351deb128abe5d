"""Data sets and helpers of the tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import undertone

ROOT = Path(__file__).resolve().parents[3]

Rows = list[NDArray[np.float64]]
Classes = list[NDArray[np.int64]]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the project's data sets."""
    return Path(os.environ.get("UNDERTONE_DATA", ROOT / "data"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of the project's known answers."""
    return Path(os.environ.get("UNDERTONE_VECTORS", ROOT / "vectors"))


@pytest.fixture(scope="session")
def digits(data: Path) -> Callable[[int, float, int], tuple[Rows, Classes, Classes]]:
    """Deals the digits to clients: rows, known labels, all labels."""
    with np.load(data / "digits.npz") as file:
        features, labels = file["features"], file["labels"]

    def deal(clients: int, known: float, seed: int) -> tuple[Rows, Classes, Classes]:
        rng = np.random.default_rng(seed)
        parts = np.array_split(rng.permutation(len(labels)), clients)
        rows = [np.asarray(features[part], np.float64) for part in parts]
        truth = [np.asarray(labels[part], np.int64) for part in parts]
        shown = [np.where(rng.random(len(y)) < known, y, -1) for y in truth]
        return rows, shown, truth

    return deal


Parties = tuple[undertone.SumServer, list[undertone.SumClient]]


def sum_parties(clients: int, size: int, **rules: object) -> Parties:
    """A server and its clients with a fresh session."""
    common: dict[str, object] = {
        "session": undertone.session_id(None),
        "clients": clients,
        "size": size,
        "bound": 8.0,
        "max_weight": 1000.0,
        **rules,
    }
    server = undertone.SumServer(**common)  # type: ignore[arg-type]
    make: Any = undertone.SumClient
    each = range(clients)
    return server, [make(index, record=undertone.Record.simulated(), **common) for index in each]


def record_of(name: str, records: Path) -> undertone.Record:
    """The record of this name on disk, which is made at first."""
    try:
        return undertone.Record.new(name, records, accept_volatile=True)
    except ValueError:
        return undertone.Record(name, records, accept_volatile=True)


def clear_mean(
    arrays: Sequence[NDArray[np.float32]], weights: Sequence[float]
) -> NDArray[np.float64]:
    """The weighted mean in the clear."""
    total = sum(np.asarray(a, np.float64) * w for a, w in zip(arrays, weights, strict=True))
    return np.asarray(total / sum(weights), np.float64)


@pytest.fixture
def pinned(tmp_path: Path) -> dict[str, Any]:
    """Keys of five clients and their roster. Node i has place 4 − i."""
    keys, lines = [], []
    for index in range(5):
        pem = undertone.generate_key()
        file = tmp_path / f"client-{index}.key"
        file.write_text(pem)
        keys.append(str(file))
        public = undertone.public_key(pem).hex()
        lines.append(f'[[client]]\nname = "c{index}"\nkey = "{public}"\n')
    roster = tmp_path / "roster.toml"
    roster.write_text("\n".join(lines))
    return {"undertone-key": keys[::-1], "undertone-roster": str(roster)}
