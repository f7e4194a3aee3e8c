"""The infinite SVM's synthetic settings: shapes, seeds, and the labels' law."""

import numpy as np
import pytest

from regbayes.datasets.isvm import make_isvm_setting1, make_isvm_setting2, make_isvm_setting3

MAKERS = [make_isvm_setting1, make_isvm_setting2, make_isvm_setting3]


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_is_a_data_set(make):
    X, y, truth = make(500, seed=3)
    again, other = make(500, seed=3), make(500, seed=4)
    assert X.dtype == np.float32
    assert y.dtype == np.int32
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not np.array_equal(X, other[0])
    assert X.shape == (500, 4 if make is make_isvm_setting1 else 3)
    assert truth.z.shape == (500,)
    assert make()[0].shape[0] == 10_000


@pytest.mark.parametrize("make", MAKERS)
def test_labels_follow_their_law(make):
    X, y, truth = make(20_000, seed=1)
    p = truth.probability(X)
    assert abs(np.mean(y - p)) < 4 * np.sqrt(np.mean(p * (1 - p)) / len(y))
    order = np.argsort(p)
    for rows in np.array_split(order, 10):
        assert abs(np.mean(y[rows] - p[rows])) < 4.5 * np.sqrt(np.mean(p[rows] * (1 - p[rows])) / len(rows)) + 1e-4
    assert np.mean(truth.bayes(X) == y) == pytest.approx(np.mean(np.maximum(p, 1 - p)), abs=0.015)


def test_the_formula_by_hand():
    X, _, truth = make_isvm_setting1(10, seed=0)
    x, (a, b, c) = X[0].astype(float), truth.abc[0]
    theta = -a * np.sin(x[0] ** 3 + 1.2) - x[0] * np.cos(b * x[1] + 0.7) - c * x[2] + 2
    assert truth.probability(X)[0] == pytest.approx(1 / (1 + np.exp(-theta)))
    X, _, truth = make_isvm_setting3(50, seed=0)
    i = int(np.argmax(truth.z))
    x, (a, b, c) = X[i].astype(float), truth.abc[1]
    theta = -a * np.sin(-((-x[0]) ** 1.04) + 1.2) - x[0] * np.cos(b * x[1] + 0.7) - c * x[2] + 2
    assert truth.probability(X)[i] == pytest.approx(1 / (1 + np.exp(-theta)))


def test_supports():
    X = make_isvm_setting2(1000)[0]
    assert X.min() >= 0
    assert X.max() <= 5
    X, _, truth = make_isvm_setting3(1000)
    assert np.bincount(truth.z).tolist() == [500, 500]
    assert np.all(X[truth.z == 0] >= 0)
    assert np.all(X[truth.z == 1] <= 0)
    abc = np.array([make_isvm_setting3(2, seed=seed)[2].abc for seed in range(200)])
    assert abc.mean(axis=(0, 2)) == pytest.approx([1, -1], abs=0.1)
    assert abc.std(axis=(0, 2)) == pytest.approx([0.5, 0.5], abs=0.05)


def test_components_must_match_their_rows():
    X, _, truth = make_isvm_setting2(20)
    with pytest.raises(ValueError, match="z must hold the components of the 5 rows of X, found 20"):
        truth.bayes(X[:5])
