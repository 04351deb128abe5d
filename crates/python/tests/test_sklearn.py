"""The estimator with scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from undertone.sklearn import FederatedLabelPropagation

NO_DIRECTION = {"check_estimators_dtypes": "a row of zeros has no direction, and is refused"}


@pytest.mark.filterwarnings("ignore")
def test_it_keeps_the_conventions() -> None:
    model = FederatedLabelPropagation(bits=64, neighbours=2)
    results = check_estimator(model, expected_failed_checks=NO_DIRECTION, on_skip=None)
    failed = [one["check_name"] for one in results if one["status"] == "failed"]
    assert not failed and len(results) > 30


def test_it_labels_digits_of_clients_that_are_named(digits: Callable[..., Any]) -> None:
    rows, known, truth = digits(4, 0.1, 0)
    names = np.repeat(["a", "b", "c", "d"], [len(one) for one in rows])
    y, shown = np.concatenate(truth) * 10, np.concatenate(known)
    model = FederatedLabelPropagation(random_state=1)
    found = model.fit_predict(np.concatenate(rows), np.where(shown == -1, -1, y), clients=names)
    assert np.mean(found == y) > 0.93
    assert model.classes_.tolist() == list(range(0, 100, 10))
    assert (model.confidences_[shown >= 0] == 1).all() and set(model.costs_) == {-1, 0, 1, 2, 3}
    again = FederatedLabelPropagation(random_state=1)
    assert (again.fit_predict(np.concatenate(rows), np.where(shown == -1, -1, y), names)
            == found).all()


def test_labels_that_cannot_be() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    model = FederatedLabelPropagation()
    with pytest.raises(ValueError, match="1 classes occur"):
        model.fit(rows, np.zeros(20, int))
    with pytest.raises(ValueError, match="1 classes occur"):
        model.fit(rows, np.full(20, "a"))
    with pytest.raises(ValueError, match=r"labels\[3\] has the label 'l', other labels are num"):
        model.fit(rows, np.array(["0", "1", "2", "l"] * 5))
    with pytest.raises(ValueError, match=r"labels\[1\] has the label 'unknown'"):
        model.fit(rows, np.array(["cat", "unknown"] * 10))


def test_texts_are_names_of_classes() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=60)
    rows = rng.normal(size=(60, 4)) + 8 * (truth[:, None] - 0.5)
    names = np.array(["cat", "dog"], object)[truth]
    model = FederatedLabelPropagation(bits=256, random_state=0)
    for missing in (-1, None, np.nan, "NA", ""):
        y = names.copy()
        y[10:] = missing
        assert (model.fit_predict(rows, y, np.arange(60) % 3) == names).all(), missing
        assert model.classes_.tolist() == ["cat", "dog"]
