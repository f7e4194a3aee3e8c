"""Data with latent features follow their laws; the real data of several labels and tasks are found and checked."""

import numpy as np
import pytest

from regbayes import datasets
from regbayes.datasets import make_latent_features, make_latent_tasks, real

Z_SCORE = 4.0  # of a mean over its standard error; seeds are fixed


def z_score(values, mean):
    values = np.ravel(values)
    return abs(values.mean() - mean) / (values.std(ddof=1) / np.sqrt(len(values)))


def test_inputs_are_sums_of_features():
    X, y, truth = make_latent_features(3000, 8, 4, num_classes=3, probability=0.3, noise=0.5, seed=1)
    assert (X.dtype, y.dtype, set(y.tolist())) == (np.float32, np.int32, {0, 1, 2})
    residual = X - truth.Z @ truth.W.T
    assert z_score(residual, 0.0) < Z_SCORE
    assert z_score(residual**2, 0.25) < Z_SCORE
    assert z_score(truth.Z, 0.3) < Z_SCORE
    np.testing.assert_array_equal(y, np.argmax((truth.Z - 0.3) @ truth.eta.T, axis=1))


@pytest.mark.parametrize("loss", ["hinge", "epsilon-insensitive"])
def test_tasks_share_a_projection(loss):
    X, Y, truth = make_latent_tasks(3000, 8, 3, num_tasks=5, noise=0.5, loss=loss, seed=1)
    assert (X.shape, Y.shape, truth.Z.shape, truth.eta.shape) == ((3000, 8), (3000, 5), (8, 3), (5, 3))
    residual = X - truth.W @ truth.Z.T
    assert z_score(residual**2, 0.25) < Z_SCORE
    f = X @ truth.Z @ truth.eta.T
    f /= f.std(0)
    if loss == "hinge":
        assert set(np.unique(Y)) == {0, 1}
        assert np.mean((f > 0) == Y) > 0.8
    else:
        assert z_score(Y - f, 0.0) < Z_SCORE
        assert z_score((Y - f) ** 2, 0.25) < Z_SCORE


@pytest.mark.parametrize("maker", [make_latent_features, make_latent_tasks])
def test_the_seed_decides(maker):
    first, again, other = maker(50, seed=5), maker(50, seed=5), maker(50, seed=6)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("maker", [make_latent_features, make_latent_tasks])
@pytest.mark.parametrize("wrong", [{"num_features": 0}, {"probability": 1.0}, {"noise": -1.0}])
def test_wrong_arguments_are_named(maker, wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        maker(10, **wrong)


def test_a_wrong_loss_is_named():
    with pytest.raises(ValueError, match="loss must be 'hinge' or 'epsilon-insensitive', found 'logistic'"):
        make_latent_tasks(10, loss="logistic")


def write(folder, name, **changes):
    source, rng, n = real.SOURCES[name], np.random.default_rng(0), 20
    found = {"X": rng.normal(size=(n, source.num_features)).astype(np.float32)}
    if source.target == "labels":
        found |= {
            "Y": rng.integers(0, 2, (n, len(source.labels))).astype(np.int8),
            "train": np.arange(n) < 12,
            "label_names": np.array([f"label {k}" for k in source.labels]),
        }
    else:
        found |= {
            "y": rng.normal(size=n).astype(np.float32),
            "task": (np.arange(n) % 3).astype(np.int16),
            "train_splits": rng.uniform(size=(10, n)) < 0.7,
        }
    found |= changes
    np.savez(folder / source.file, **found)
    return found


@pytest.mark.parametrize("name", ["yeast", "scene"])
def test_data_of_several_labels(tmp_path, name):
    wanted = write(tmp_path, name)
    data = datasets.load(name, tmp_path)
    np.testing.assert_array_equal(data.y, wanted["Y"])
    np.testing.assert_array_equal(data.train, wanted["train"])
    assert (data.X.dtype, data.y.dtype, data.class_names[1]) == (np.float32, np.int32, "label 1")


def test_data_of_tasks_with_splits(tmp_path):
    wanted = write(tmp_path, "school")
    data = datasets.load("school", tmp_path)
    np.testing.assert_array_equal(data.y, wanted["y"])
    np.testing.assert_array_equal(data.task, wanted["task"])
    np.testing.assert_array_equal(data.train_splits, wanted["train_splits"])
    assert (data.y.dtype, data.class_names) == (np.float32, [])


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("yeast", {"Y": np.ones((20, 3), int)}, r"Y must be of shape \(20, 14\), found \(20, 3\)"),
        ("scene", {"Y": np.full((20, 6), 2)}, "Y must be 0 or 1"),
        ("school", {"y": np.full(20, np.nan)}, "y must be finite"),
        ("school", {"train_splits": np.ones((10, 19), bool)}, r"train_splits must be of shape \(10, 20\)"),
        ("school", {"train_splits": np.ones((10, 20))}, "train_splits must be boolean"),
    ],
)
def test_bad_contents_are_named(tmp_path, name, wrong, words):
    write(tmp_path, name, **wrong)
    with pytest.raises(ValueError, match=words):
        datasets.load(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "train"),
    [("yeast", (2417, 103, 14), 1500), ("scene", (2407, 294, 6), 1211), ("school", (15362, 28), 0)],
)
def test_the_files_at_hand(name, shape, train, real_file):
    data = real_file(name)
    assert (*data.X.shape, *data.y.shape[1:]) == shape
    if name == "school":
        assert (len(np.unique(data.task)), data.train_splits.shape) == (139, (10, 15362))
        assert set(data.train_splits.sum(1).tolist()) == {11472}
    else:
        assert data.train.sum() == train
