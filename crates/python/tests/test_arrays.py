"""What arrays mean, in every order, type and disguise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import undertone
from conftest import sum_parties
from undertone import _arrays

sparse = pytest.importorskip("scipy.sparse")

ROWS = 24


def rows(client: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(client)
    centres = 6 * np.eye(2, 5, dtype=np.float32)
    return np.asarray(rng.normal(size=(ROWS, 5)) + centres[np.arange(ROWS) % 2], np.float32)


KNOWN = np.where(np.arange(ROWS) < 6, np.arange(ROWS) % 2, -1)
FEATURES = [rows(client) for client in range(3)]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def strided(array: NDArray[Any]) -> NDArray[Any]:
    return np.repeat(np.repeat(array, 2, axis=0), 3, axis=-1)[::2, ..., ::3]


ORDERS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "fortran": np.asfortranarray,
    "transposed": lambda array: array.T.copy().T,
    "strided": strided,
    "reversed": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "read-only": read_only,
    "list": lambda array: array.tolist(),
}


class Means:
    """A model whose embeddings are the rows."""

    def __init__(self) -> None:
        self.means = np.zeros((2, 5), np.float32)

    def params(self) -> NDArray[np.float32]:
        return self.means.ravel()

    def set_params(self, params: NDArray[np.float32]) -> None:
        self.means = params.reshape(2, 5)

    def embed(self, rows: NDArray[np.float32]) -> Any:
        return np.asfortranarray(rows)

    def predict(self, rows: NDArray[np.float32]) -> Any:
        near = np.exp(-((rows[:, None] - self.means) ** 2).sum(axis=2) / 9) + 1e-9
        return np.asfortranarray(near / near.sum(axis=1, keepdims=True))

    def update(self, examples: undertone.Examples, schedule: undertone.Schedule) -> None:
        for batch, classes, weights in schedule.batches(examples):
            for row, kind, weight in zip(examples.rows[batch], classes, weights, strict=True):
                self.means[kind] += 0.1 * weight * (row - self.means[kind])


class Nearest:
    def fit(self, X: Any, y: Any) -> None:
        self.means = np.array([X[y == kind].mean(axis=0) for kind in range(2)])

    def predict(self, X: Any) -> Any:
        return ((X[:, None] - self.means) ** 2).sum(axis=2).argmin(axis=1)[::-1][::-1]


def labelled(of: Callable[[Any], Any]) -> Any:
    run = undertone.label([of(one) for one in FEATURES], [KNOWN] * 3, bits=128, seed=1)
    return np.concatenate([run.report.distances, run.report.neighbours])


def apart(of: Callable[[Any], Any]) -> Any:
    return undertone.distances(of(FEATURES[0]), of(FEATURES[1]), bits=128, seed=1).hamming


def apart_codes(of: Callable[[Any], Any]) -> Any:
    codes = [np.packbits(one > 1, axis=1) for one in FEATURES]
    if isinstance(of(codes[0]), list):
        codes = [np.asarray(of(one), np.uint8) for one in codes]
    else:
        codes = [of(one) for one in codes]
    return undertone.distances(codes[0], codes[1], bits=5, codes=True).hamming


def parties(of: Callable[[Any], Any]) -> Any:
    job, terms = undertone.LabelJob(bits=128, backend="clear"), undertone.LabelTerms(
        backends=("clear",)
    )
    server = undertone.LabelServer(job).session(3, session=bytes(32), seed=7)
    clients = [
        undertone.LabelClient(of(one), KNOWN, classes=2, terms=terms).session(
            job, server.session, index=index, seed=index
        )
        for index, one in enumerate(FEATURES)
    ]
    undertone.run(server, clients)
    report = server.result()
    assert report is not None
    return report.distances


def summed(of: Callable[[Any], Any]) -> Any:
    server, clients = sum_parties(3, FEATURES[0].size, bound=20.0)
    for client, one in zip(clients, FEATURES, strict=True):
        given = of(one)
        client.contribute(given if isinstance(given, np.ndarray) else np.array(given))
    undertone.run(server, clients)
    result = server.result()
    assert result is not None
    return result.values.round(5)


def trained(of: Callable[[Any], Any]) -> Any:
    clients = [(of(one), KNOWN) for one in (*FEATURES, *FEATURES)]
    return undertone.train(Means(), clients, label_rounds=1, rounds=1, bits=128, seed=1).params


def cotrained(of: Callable[[Any], Any]) -> Any:
    data = [(of(one), np.arange(ROWS) % 2) for one in FEATURES]
    return undertone.cotrain(data, of(FEATURES[0]), Nearest(), seed=1).labels


def paired(of: Callable[[Any], Any]) -> Any:
    whole = [np.clip(np.rint(10 * one + 80), 0, 255).astype(np.uint8) for one in FEATURES]
    given = [of(one) if of(one).__class__ is not list else one for one in whole]
    run = undertone.pssl(given, [KNOWN] * 3, d_min=0.01, d_max=1.0, seed=1)
    return np.concatenate([client.scores for client in run.clients])


def by_graph(of: Callable[[Any], Any]) -> Any:
    names = [["a", "b"], ["b", "c"], ["c", "a"]]
    guesses = [np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])] * 3
    run = undertone.fedgraph(
        names, [of(one) for one in FEATURES], [of(one) for one in guesses],
        np.arange(ROWS) % 2, cluster=3, steps=3, seed=1,
    )
    assert run.votes is not None and run.loss is not None
    return np.append(run.votes, run.loss)


def transferred(of: Callable[[Any], Any]) -> Any:
    pairs = np.random.default_rng(0).integers(0, 256, (9, 2, 16), np.uint8)
    given = of(pairs.reshape(18, 16))
    given = given.reshape(9, 2, 16) if isinstance(given, np.ndarray) else pairs
    if of is np.asfortranarray:
        given = np.asfortranarray(pairs)
    return undertone.ot(given, np.arange(9) % 2).messages


ENTRIES = [
    labelled, apart, apart_codes, parties, summed, trained, cotrained, paired, by_graph,
    transferred,
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_the_order_in_memory_does_not_matter(entry: Callable[[Any], Any]) -> None:
    due = entry(lambda array: array)
    for name, of in ORDERS.items():
        assert np.array_equal(entry(of), due), name


@pytest.mark.parametrize("columns", [16, 512])
def test_uint8_features_are_features_whatever_their_number(columns: int) -> None:
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (20, columns), np.uint8) for _ in range(3)]
    known = [np.where(np.arange(20) < 6, np.arange(20) % 2, -1)] * 3
    options: dict[str, Any] = {"bits": 8 * columns, "seed": 1}
    bytes_of = undertone.label(pixels, known, **options)
    floats = undertone.label([one.astype(float) for one in pixels], known, **options)
    assert np.array_equal(bytes_of.report.distances, floats.report.distances)
    codes = undertone.label(pixels, known, codes=True, **options)
    assert not np.array_equal(codes.report.distances, floats.report.distances)
    found = undertone.distances(pixels[0], pixels[1], **options)
    wide = undertone.distances(pixels[0].astype(float), pixels[1].astype(float), **options)
    assert np.array_equal(found.hamming, wide.hamming)


def test_codes_are_bytes_and_said_to_be() -> None:
    with pytest.raises(TypeError, match="a: codes are of float32; uint8 is needed, as numpy.packb"):
        undertone.distances(FEATURES[0], FEATURES[1], bits=40, codes=True)
    with pytest.raises(ValueError, match="a: codes have 5 bytes a row, 64 bits need 8"):
        undertone.distances(
            np.zeros((2, 5), np.uint8), np.zeros((2, 8), np.uint8), bits=64, codes=True
        )
    with pytest.raises(TypeError, match="client 1: codes are of bool"):
        bits = np.zeros((4, 8), np.bool_)
        packed = np.packbits(bits, axis=1)
        undertone.label([packed, bits, packed], [KNOWN[:4]] * 3, bits=8, codes=True)


def test_two_widths_are_no_distances() -> None:
    with pytest.raises(ValueError, match=r"a has shape \[24, 5\] and b \[24, 4\]; both need"):
        undertone.distances(FEATURES[0], FEATURES[1][:, :4], bits=64)


def test_booleans_are_numbers() -> None:
    bits = [one > 1 for one in FEATURES]
    for one in bits:
        one[:, 0] = True
    of_bits = undertone.label(bits, [KNOWN] * 3, bits=128, seed=1)
    of_numbers = undertone.label([one.astype(float) for one in bits], [KNOWN] * 3, bits=128, seed=1)
    assert np.array_equal(of_bits.report.distances, of_numbers.report.distances)
    truth = [np.arange(ROWS) % 2 == 1] * 3
    data = [(one, y) for one, y in zip(FEATURES, truth, strict=True)]
    assert undertone.cotrain(data, FEATURES[0], Nearest(), seed=1).labels.tolist() == (
        undertone.cotrain(
            [(x, y.astype(int)) for x, y in data], FEATURES[0], Nearest(), seed=1
        ).labels.tolist()
    )
    assert np.concatenate(undertone.label(FEATURES, truth, bits=128)).tolist() == [0, 1] * 36
    run = undertone.train(
        Means(), data * 2, label_rounds=1, rounds=1, labels_from="labels", seed=1
    )
    assert len(run.rounds) == 2


def masked(array: NDArray[Any]) -> Any:
    mask = np.zeros(array.shape, bool)
    mask[2, 1] = True
    return np.ma.MaskedArray(array, mask)


UNUSABLE: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (masked, ValueError, r"masked at \[2, 1\]; fill what is masked, as in x.filled\(0\)"),
    (lambda x: list(masked(x)), ValueError, r"masked at \[2, 1\]"),
    (sparse.csr_matrix, TypeError, r"a sparse matrix; pass x.toarray\(\)"),
    (sparse.coo_array, TypeError, r"a sparse matrix; pass x.toarray\(\)"),
    (lambda x: x + 1j, TypeError, "of complex.*; real numbers are needed: pass x.real"),
    (lambda x: x.astype("datetime64[s]"), TypeError, r"of datetime64\[s\]; numbers are needed: pa"),
    (lambda x: x.astype("timedelta64[s]"), TypeError, "of timedelta64.*: divide by a unit"),
    (lambda x: x.astype(object), TypeError, r"of object; numbers are needed: pass x.astype\(float"),
    (lambda x: x.astype(str), TypeError, "of <U.*; numbers are needed"),
    (lambda x: x.astype(bytes), TypeError, r"of \|S.*; numbers are needed"),
    (lambda x: x.view([("u", "f4"), ("v", "f4"), ("w", "f4"), ("x", "f4"), ("y", "f4")]), TypeError,
     "records with the fields u, v, w; numbers"),
    (lambda x: x.astype("V4"), TypeError, r"of \|V4; numbers are needed"),
    (lambda x: [[1.0], [1.0, 2.0]], ValueError, "no array of numbers: .*inhomogeneous"),
]

TAKERS: list[Callable[[Any], object]] = [
    lambda bad: undertone.label([FEATURES[0], bad, FEATURES[2]], [KNOWN] * 3),
    lambda bad: undertone.distances(FEATURES[0], bad, bits=64),
    lambda bad: undertone.LabelClient(bad, KNOWN),
    lambda bad: undertone.TrainClient(Means(), bad, KNOWN),
    lambda bad: undertone.PsslClient(bad, KNOWN),
    lambda bad: undertone.CotrainClient(Nearest(), bad, np.arange(ROWS) % 2, FEATURES[0]),
    lambda bad: undertone.train(Means(), [(bad, KNOWN)] * 5),
    lambda bad: undertone.cotrain([(bad, np.arange(ROWS) % 2)] * 3, FEATURES[0], Nearest()),
    lambda bad: undertone.public_digest(bad),
    lambda bad: undertone.pssl([bad] * 3, [KNOWN] * 3),
    lambda bad: undertone.fedgraph(
        [["a"]] * 3, [bad] * 3, [np.ones((1, 2)) / 2] * 3, KNOWN
    ),
]


@pytest.mark.parametrize(("of", "error", "text"), UNUSABLE, ids=[text for _, _, text in UNUSABLE])
def test_arrays_that_are_no_features_are_named(
    of: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    bad = of(FEATURES[0].copy())
    for take in TAKERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(error, match=text):
                take(bad)


def test_a_mask_that_hides_nothing_is_no_mask() -> None:
    due = undertone.distances(FEATURES[0], FEATURES[1], bits=64, seed=1)
    plain = np.ma.MaskedArray(FEATURES[0])
    rows: Any = list(np.ma.MaskedArray(FEATURES[1]))
    found = undertone.distances(plain, rows, bits=64, seed=1)
    assert np.array_equal(due.hamming, found.hamming)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float64])
def test_a_masked_label_is_none(kind: type[Any]) -> None:
    labels = np.ma.MaskedArray((np.arange(ROWS) % 2).astype(kind), np.arange(ROWS) >= 6)
    found = undertone.label(FEATURES, [labels] * 3, bits=128, seed=1)
    due = undertone.label(FEATURES, [KNOWN] * 3, bits=128, seed=1)
    for one, other in zip(found.clients, due.clients, strict=True):
        assert np.array_equal(one.confidences, other.confidences)
    data = [(one, labels) for one in FEATURES]
    with pytest.raises(ValueError, match="row 6 has no label"):
        undertone.cotrain(data, FEATURES[0], Nearest())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_refused_everywhere(value: float) -> None:
    bad = FEATURES[0].copy()
    bad[3, 2] = value
    for take in TAKERS[:6]:
        if take is TAKERS[3]:
            continue
        with pytest.raises((ValueError, undertone.UndertoneError), match="finite|inf|NaN|nan"):
            take(bad)


def test_floats_are_copied_only_if_they_must_be() -> None:
    for kind in (np.float32, np.float64):
        array = np.ones((3, 2), kind)
        assert _arrays.floats(array, "they are") is array
    assert _arrays.floats(np.ones((3, 2), np.uint8), "they are").dtype == np.float32
    assert _arrays.floats(np.ones((3, 2), np.int32), "they are").dtype == np.float64
    assert _arrays.summands(np.float32(3), "it").shape == ()
