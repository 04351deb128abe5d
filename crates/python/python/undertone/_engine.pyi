from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__version__: str
BACKEND: str
BACKENDS: tuple[str, ...]
ACCEPTED: tuple[str, ...]

def keep_journal(folder: str | PathLike[str], session: bytes) -> None: ...

class UndertoneError(Exception): ...

class AbortedError(UndertoneError):
    party: int
    phase: str
    culprit: int | None

class RefusedError(UndertoneError): ...

_Arrays = NDArray[Any] | Sequence[NDArray[Any]]
_Cost = tuple[str, int, int, int, int, float]
_Classes = int | Sequence[str] | None
_Labels = NDArray[Any] | Sequence[str]
_Credentials = tuple[str, Sequence[bytes], Sequence[str]]
_Labelled = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
_Learned = tuple[list[int], list[int], str, NDArray[np.int64], NDArray[np.int64]]
_Spent = tuple[int, int, float, list[_Cost]]

class Party:
    def push(self, sender: int, frame: bytes) -> None: ...
    def gone(self, who: int) -> None: ...
    def abandon(self) -> None: ...
    def poll(self, most: int) -> list[tuple[int, bytes]]: ...
    def exchange(self, bundle: bytes) -> bytes: ...
    def contribute(self, arrays: _Arrays, weight: float) -> int: ...
    def replay(
        self,
        journal: str | PathLike[str],
        past: Sequence[bytes],
        message: bytes,
        values: Callable[[], tuple[_Arrays, float, int | None]],
        sent: bytes | None,
    ) -> bytes: ...
    def simulate(self) -> None: ...
    def costs(self) -> list[_Cost]: ...
    def result(self) -> Any: ...
    @property
    def status(self) -> str: ...
    @property
    def done(self) -> bool: ...
    @property
    def failed(self) -> str | None: ...
    @property
    def sent(self) -> bytes | None: ...
    @property
    def waits_for(self) -> list[int]: ...
    @property
    def phase(self) -> str: ...
    @property
    def id(self) -> int: ...

class Record:
    def __init__(
        self, name: str, records: str | PathLike[str] | None, accept_volatile: bool
    ) -> None: ...
    @staticmethod
    def create(
        name: str, records: str | PathLike[str] | None, accept_volatile: bool
    ) -> Record: ...
    @staticmethod
    def simulated(state: bytes | None) -> Record: ...
    def state(self) -> bytes | None: ...
    def allow(self, what: str, reason: str) -> None: ...
    def shown(
        self,
    ) -> tuple[
        str, int, list[tuple[str, str]], list[tuple[str, str, str, bool]], list[str]
    ]: ...
    @property
    def name(self) -> str | None: ...
    @property
    def folder(self) -> Path | None: ...

class Encrypted:
    @property
    def modulus(self) -> int: ...
    def __len__(self) -> int: ...
    def encode(self) -> bytes: ...
    def add(self, other: Encrypted) -> Encrypted: ...
    def add_plain(self, numbers: Sequence[int]) -> Encrypted: ...
    def multiply(self, numbers: Sequence[int]) -> Encrypted: ...

class Paillier:
    def __init__(self, bits: int) -> None: ...
    @property
    def modulus(self) -> int: ...
    def encrypt(self, numbers: Sequence[int]) -> Encrypted: ...
    def decrypt(self, encrypted: Encrypted) -> list[int]: ...
    def decode(self, data: bytes) -> Encrypted: ...

_Targets = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
_Did = tuple[str, int, int, int, bool, NDArray[np.float32] | None]
_Gave = tuple[str, int, list[int]]

class Batches:
    def __iter__(self) -> Batches: ...
    def __next__(self) -> _Targets: ...

class Training:
    def __init__(
        self,
        rules: dict[str, Any],
        label_epsilon: float | None,
        models: Sequence[Any],
        features: Sequence[NDArray[np.float32]],
        labels: Sequence[NDArray[np.int64]],
        first: NDArray[np.float32],
        seed: bytes | None,
    ) -> None: ...
    def step(
        self, progress: Callable[[str], object] | None
    ) -> tuple[_Gave, list[tuple[int, _Did]]]: ...
    def params(self) -> NDArray[np.float32]: ...
    def costs(self) -> list[tuple[int, list[_Cost]]]: ...
    @property
    def over(self) -> bool: ...
    @property
    def groups(self) -> list[list[int]]: ...

class TrainClient:
    def __init__(
        self,
        rules: dict[str, Any],
        model: Any,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        noise: tuple[float, bytes] | None,
        record: Record | None,
    ) -> None: ...
    @property
    def last(self) -> int | None: ...
    def party(
        self,
        index: int,
        session: bytes,
        credentials: _Credentials | None,
        max_peer_rows: int | None,
        seed: bytes | None,
    ) -> Party: ...

class TrainCheckpoint:
    def __init__(self, path: str | PathLike[str], rules: dict[str, Any]) -> None: ...
    @property
    def found(self) -> bytes | None: ...
    def save(self, content: bytes) -> None: ...
    def remove(self) -> None: ...

class TrainServer:
    def __init__(
        self, rules: dict[str, Any], first: NDArray[np.float32] | None, state: bytes | None
    ) -> None: ...
    def members(self, present: list[int], seed: bytes | None) -> list[int]: ...
    def begin(self, members: list[int], session: bytes, seed: bytes | None) -> Party: ...
    def state(self) -> bytes: ...
    def params(self) -> NDArray[np.float32]: ...
    @property
    def begun(self) -> int: ...
    @property
    def clients(self) -> list[int] | None: ...
    @property
    def groups(self) -> list[list[int]]: ...
    @property
    def over(self) -> bool: ...
    @property
    def taken(self) -> list[tuple[int, list[int]]]: ...

_Finished = tuple[int, list[int], int, int]

class Cotraining:
    def __init__(
        self,
        rules: dict[str, Any],
        learners: Sequence[Any],
        features: Sequence[NDArray[np.float32]],
        labels: Sequence[NDArray[np.int64]],
        shared: NDArray[np.float32],
        allow_unanimous: bool,
        seed: bytes | None,
    ) -> None: ...
    def step(self, progress: Callable[[str], object] | None) -> bool: ...
    def labels(self) -> NDArray[np.int64] | None: ...
    def costs(self) -> list[tuple[int, list[_Cost]]]: ...
    @property
    def settled(self) -> bool: ...
    @property
    def exchanges(self) -> list[_Finished]: ...

class CotrainClient:
    def __init__(
        self,
        rules: dict[str, Any],
        learner: Any,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        shared: NDArray[np.float32],
        terms: dict[str, Any],
        record: Record | None,
    ) -> None: ...
    @property
    def last(self) -> int: ...
    def party(
        self,
        index: int,
        session: bytes,
        credentials: _Credentials | None,
        seed: bytes | None,
    ) -> Party: ...

class CotrainServer:
    def __init__(self, rules: dict[str, Any], state: bytes | None) -> None: ...
    def begin(
        self, members: list[int], session: bytes, seed: bytes | None
    ) -> tuple[list[int], Party]: ...
    def state(self) -> bytes: ...
    def labels(self) -> NDArray[np.int64] | None: ...
    @property
    def begun(self) -> int: ...
    @property
    def over(self) -> bool: ...
    @property
    def settled(self) -> bool: ...
    @property
    def exchanges(self) -> list[_Finished]: ...

def cotrain_epsilon(rules: dict[str, Any]) -> float | None: ...
def public_digest(rows: NDArray[np.float32]) -> bytes: ...
def batches(
    labelled: _Targets, pseudo: _Targets, sizes: tuple[int, int, int], seed: bytes
) -> Batches: ...
def train_digest(rules: dict[str, Any]) -> bytes: ...
def generate_key() -> str: ...
def public_key(pem: str) -> bytes: ...
def read_roster(text: str) -> list[tuple[str, bytes | None]]: ...
def sum_client(
    rules: dict[str, Any],
    index: int,
    credentials: _Credentials | None,
    record: Record | None,
    seed: bytes | None,
) -> Party: ...
def sum_server(rules: dict[str, Any]) -> Party: ...
def groups(clients: int, least: int) -> list[list[int]]: ...
def word_bits(bound: float, max_weight: float | None, clients: int) -> int: ...
def columns_digest(names: list[str]) -> bytes: ...
def strangers(clients: list[tuple[str, bytes]]) -> tuple[list[int], str]: ...
def parse_labels(labels: _Labels, classes: _Classes) -> tuple[NDArray[np.int64], list[str]]: ...
def label(
    rules: dict[str, Any],
    features: Sequence[NDArray[Any]],
    labels: Sequence[_Labels],
    columns: Sequence[Sequence[str]],
    classes: _Classes,
    label_epsilon: float | None,
    scale: bool,
    seed: bytes | None,
    progress: Callable[[str], object] | None,
) -> tuple[list[_Labelled], _Learned, list[tuple[int, list[_Cost]]], list[str]]: ...
def label_client(
    rules: dict[str, Any],
    session: bytes,
    index: int,
    clients: int,
    features: NDArray[Any],
    labels: _Labels,
    classes: _Classes,
    credentials: _Credentials | None,
    noise: tuple[float, bytes] | None,
    max_peer_rows: int | None,
    record: Record | None,
    seed: bytes | None,
) -> Party: ...
def label_server(
    rules: dict[str, Any], session: bytes, clients: int, seed: bytes | None
) -> Party: ...
def pssl(
    rules: dict[str, Any],
    features: Sequence[NDArray[np.uint8]],
    labels: Sequence[NDArray[np.int64]],
    seed: bytes | None,
    progress: Callable[[str], object] | None,
) -> tuple[list[Any], Any, list[tuple[int, list[_Cost]]]]: ...
def pssl_client(
    rules: dict[str, Any],
    terms: dict[str, Any],
    session: bytes,
    index: int,
    clients: int,
    features: NDArray[np.uint8],
    labels: NDArray[np.int64],
    credentials: _Credentials | None,
    record: Record | None,
    seed: bytes | None,
) -> Party: ...
def job_digest(application: str, rules: dict[str, Any]) -> bytes: ...
def pssl_server(
    rules: dict[str, Any], session: bytes, clients: int, seed: bytes | None
) -> Party: ...
def fedgraph(
    rules: dict[str, Any],
    clients: Sequence[dict[str, Any]],
    seed: bytes | None,
    progress: Callable[[str], object] | None,
) -> tuple[list[Any], Any, list[tuple[int, list[_Cost]]]]: ...
def fedgraph_client(
    rules: dict[str, Any],
    session: bytes,
    index: int,
    brought: dict[str, Any],
    saved: bytes | None,
    min_network: int,
    show_embeddings: bool,
    keep: Callable[[bytes], object] | None,
    voted: Callable[[NDArray[np.float64]], object],
    credentials: _Credentials | None,
    record: Record | None,
    rows: NDArray[np.float64] | None,
    seed: bytes | None,
) -> Party: ...
def fedgraph_digest(rules: dict[str, Any]) -> bytes: ...
def fedgraph_server(
    rules: dict[str, Any],
    session: bytes,
    saved: bytes | None,
    keep: Callable[[bytes], object] | None,
    seed: bytes | None,
) -> Party: ...
def distances(
    a: NDArray[Any], b: NDArray[Any], bits: int, backend: str, suite: str, seed: bytes | None
) -> tuple[NDArray[np.uint16], list[tuple[int, list[_Cost]]]]: ...
def ot(
    messages: NDArray[np.uint8], choices: NDArray[np.bool_], malicious: bool, seed: bytes | None
) -> tuple[NDArray[np.uint8], list[tuple[int, list[_Cost]]]]: ...
def join_label(
    link: dict[str, Any],
    terms: dict[str, Any],
    features: NDArray[Any],
    labels: _Labels,
    columns: list[str],
    bits: int | None,
    classes: _Classes,
    noise: tuple[float, bytes] | None,
    progress: Callable[[str], object] | None,
) -> tuple[_Labelled, _Spent]: ...
def join_sum(
    link: dict[str, Any],
    contribute: Callable[..., tuple[dict[str, NDArray[Any]], float]],
    mean: Callable[..., object] | None,
    max_rounds: int,
    min_clients: int,
    max_bound: float,
    max_weight: float,
    groups: int | None,
    semi_honest: bool,
    progress: Callable[[str], object] | None,
) -> tuple[dict[str, NDArray[Any]] | None, _Spent]: ...
def main(arguments: Sequence[str], own: Sequence[str]) -> int: ...
