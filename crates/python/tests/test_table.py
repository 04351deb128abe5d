"""Labels, classes and columns as users bring them: the checks that the command makes, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frame import Frame
from numpy.typing import NDArray

import undertone

RNG = np.random.default_rng(0)
TRUTH = np.arange(40) % 3
ROWS = [RNG.normal(size=(40, 8)) + 5 * np.eye(3, 8)[TRUTH] for _ in range(3)]
KNOWN = np.where(np.arange(40) < 6, TRUTH, -1)
NAMES = np.array(["cat", "dog", "emu"], object)


def label(labels: list[Any], rows: Any = ROWS, **more: Any) -> Any:
    return undertone.label(rows, labels, bits=256, seed=1, **more)


def texts(missing: Any) -> NDArray[Any]:
    out = NAMES[TRUTH]
    out[6:] = missing
    return out


@pytest.mark.parametrize("missing", [None, np.nan, float("nan"), "", "NA", "None", "<NA>", "-", -1])
def test_texts_are_names_of_classes(missing: Any) -> None:
    run = label([texts(missing)] * 3)
    assert run.class_names == ["cat", "dog", "emu"]
    assert all((found == TRUTH).all() for found in run)


def test_numbers_of_other_types_mean_the_same() -> None:
    plain = label([KNOWN] * 3)
    assert plain.class_names == []
    floats = np.where(KNOWN == -1, np.nan, KNOWN)
    for same in (floats, KNOWN.astype(np.int8), KNOWN.astype(object), floats.astype(object),
                 KNOWN.tolist(), np.ma.masked_equal(KNOWN, -1), KNOWN.astype("U4")):
        assert all((a == b).all() for a, b in zip(label([same] * 3), plain, strict=True))
    flags = np.where(np.arange(40) < 6, TRUTH == 1, None)
    run = label([flags] * 3)
    assert run.class_names == ["False", "True"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.where(KNOWN == 1, "l", KNOWN.astype("U4")), r"client 0: labels\[1\] has the label 'l'"),
        (texts("unknown"), r"client 0: labels\[6\] has the label 'unknown'.*list the classes"),
        (np.where(KNOWN < 0, -1, 1), "every label is 1; two classes are needed"),
        (
            np.array([None if one < 0 else "cat" for one in KNOWN], object),
            "every label is 'cat'; two classes are needed",
        ),
        (np.full(40, -1), "no row of any client is labelled"),
        (np.where(KNOWN == 1, 9999, KNOWN), r"labels\[1\] has the label 9999, which makes 10000"),
        (KNOWN + 0.5, r"labels\[0\] has the label 0.5"),
        (np.where(KNOWN == 1, 70000, KNOWN), r"labels\[1\] has the label 70000"),
        (KNOWN[:20], "20 labels for 40 rows"),
        (np.stack([KNOWN] * 2), r"labels must have shape \[rows\]"),
    ],
)
def test_labels_that_cannot_be(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label([labels] * 3)


def test_classes_can_be_stated() -> None:
    stated = ["dog", "unknown", "None", "cat", "emu"]
    y = texts("unknown")
    y[7] = "None"
    run = label([y] * 3, classes=stated)
    assert run.class_names == stated
    assert run[0][6] == 1 and run[0][7] == 2 and run[0][0] == 3
    # -1 is a class where it is stated.
    signs = np.where(TRUTH == 0, -1, 1)
    assert set(np.concatenate(list(label([signs] * 3, classes=["-1", "1"])))) == {0, 1}
    assert label([np.where(KNOWN == 1, 9999, KNOWN)] * 3, classes=10000).class_names == []
    with pytest.raises(ValueError, match="classes: 2 to 65536 classes are needed"):
        label([KNOWN] * 3, classes=1)
    with pytest.raises(TypeError, match="it is a number, or a list of names"):
        label([KNOWN] * 3, classes="cat,dog")
    with pytest.raises(TypeError):
        label([KNOWN] * 3, classes=2.5)


def test_clients_need_the_same_columns_in_the_same_order() -> None:
    columns = list("abcdefgh")
    frames = [Frame(rows, columns) for rows in ROWS]
    none = np.full(40, -1)
    plain = label([KNOWN, none, KNOWN])
    run = label([KNOWN, none, KNOWN], frames)
    assert all((a == b).all() for a, b in zip(run, plain, strict=True))
    # Data without names fit to any.
    label([KNOWN] * 3, [frames[0], ROWS[1], Frame(ROWS[2], list(range(8)))])
    other = list("cabdefgh")
    frames[1] = Frame(ROWS[1][:, [2, 0, 1, 3, 4, 5, 6, 7]], other)
    with pytest.raises(ValueError, match='client 1: feature 1 is "c", in client 0 it is "a"'):
        label([KNOWN, none, KNOWN], frames)
    with pytest.raises(ValueError, match="client 0: two columns have the name 'a'"):
        label([KNOWN] * 3, [Frame(rows, list("aacdefgh")) for rows in ROWS])
    with pytest.raises(ValueError, match="client 2: rows have 7 features, those of client 0 have"):
        label([KNOWN] * 3, [*ROWS[:2], ROWS[2][:, :7]])


def test_a_client_takes_labels_under_the_classes_of_the_job() -> None:
    job = undertone.LabelJob(bits=256)
    server = undertone.LabelServer(job).session(3)
    stated = ["cat", "dog", "emu"]
    clients = [
        undertone.LabelClient(ROWS[i], texts(None), classes=stated).session(
            job, server.session, index=i
        )
        for i in range(3)
    ]
    undertone.run(server, clients)
    found = clients[0].result()
    assert found is not None and (found.labels == TRUTH).all()
    with pytest.raises(ValueError, match=r"labels\[2\] has the label 'emu', which is not among"):
        undertone.LabelClient(ROWS[0], texts(None), classes=["cat", "dog"])
