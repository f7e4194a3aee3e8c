"""The data of Bayesian max-margin clustering: shapes by their law, loaders on tiny files and on copies of OpenML's."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.utils import Bunch

from regbayes import datasets
from regbayes.datasets import make_half_circles, make_half_rings, real

FILES = {
    "glass": (214, 9, 6),
    "letter": (20_000, 16, 26),
    "mnist": (10_000, 784, 10),
    "satimage": (6435, 36, 6),
    "segment": (2310, 19, 7),
    "vehicle": (846, 18, 4),
    "vowel": (990, 10, 11),
    "seeds": (210, 7, 3),
    "s1": (5000, 2, 15),
    "s2": (5000, 2, 15),
    "s3": (5000, 2, 15),
    "s4": (5000, 2, 15),
    "jain": (373, 2, 2),
}
FETCHED = ("glass", "letter", "segment", "vehicle", "vowel", "seeds")


# ----- Shapes


@pytest.mark.parametrize(
    ("maker", "height", "counts"), [(make_half_rings, 0.25, [97, 276]), (make_half_circles, 0.0, [150, 150])]
)
def test_points_lie_on_their_half_circles(maker, height, counts):
    X, z = maker(noise=0.0)
    assert (X.dtype, z.dtype, np.bincount(z).tolist()) == (np.float32, np.int32, counts)
    upper, lower = X[z == 0], X[z == 1] - np.array([1, height])
    np.testing.assert_allclose(np.linalg.norm(upper, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(lower, axis=1), 1, atol=1e-6)
    assert upper[:, 1].min() >= 0 >= lower[:, 1].max()
    angle = np.arctan2(upper[:, 1], upper[:, 0])
    assert abs(angle.mean() - np.pi / 2) < 4 * np.pi / np.sqrt(12 * len(angle))
    assert len(np.unique(z[:20])) == 2  # mixed


@pytest.mark.parametrize("maker", [make_half_rings, make_half_circles])
def test_noise_is_that_of_the_radius(maker):
    X, z = maker(20_000, noise=0.05, seed=1)
    error = np.linalg.norm(X[z == 0], axis=1) - 1
    assert abs(error.mean()) < 4 * 0.05 / np.sqrt(len(error))
    assert abs(error.std() / 0.05 - 1) < 4 / np.sqrt(2 * len(error))


@pytest.mark.parametrize("maker", [make_half_rings, make_half_circles])
def test_the_seed_decides(maker):
    np.testing.assert_array_equal(maker(seed=3)[0], maker(seed=3)[0])
    assert not np.array_equal(maker(seed=3)[0], maker(seed=4)[0])


def test_k_means_is_as_right_on_the_half_circles_as_in_the_paper():
    found = []
    for seed in range(5):
        X, z = make_half_circles(seed=seed)
        found.append(normalized_mutual_info_score(z, KMeans(2, n_init=3, random_state=0).fit_predict(X)))
    assert abs(np.mean(found) - 0.43) < 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_data": 1}, "num_data must be at least 2, found 1"),
        ({"noise": -1.0}, r"noise must be 0 or more, found -1\.0"),
        ({"share": 1.0}, r"share must be between 0 and 1, found 1\.0"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make_half_rings(**options)


# ----- Files


def write(folder, name, num_data=30):
    """A tiny file in the data set's format."""
    source, rng = real.SOURCES[name], np.random.default_rng(0)
    arrays = {
        "X": rng.normal(size=(num_data, source.num_features)).astype(np.float32),
        "y": rng.choice(source.labels, size=num_data).astype(np.int8),
        **{key: np.arange(num_data) % 2 == 0 for key in source.columns},
    }
    np.savez(folder / source.file, **arrays)
    return arrays


@pytest.mark.parametrize("name", FILES)
def test_tiny_files_are_read(name, tmp_path):
    wanted = write(tmp_path, name)
    data, source = datasets.load(name, tmp_path), real.SOURCES[name]
    np.testing.assert_array_equal(data.X, wanted["X"])
    np.testing.assert_array_equal(np.array(source.labels)[data.y], wanted["y"])
    assert data.path == str(tmp_path / source.file)
    for key in source.columns:
        np.testing.assert_array_equal(data[key], wanted[key])


@pytest.mark.parametrize(("name", "shape"), [("iris", (150, 4)), ("wine", (178, 13))])
def test_what_comes_with_scikit_learn_needs_no_file(name, shape, tmp_path):
    data = datasets.load(name, tmp_path)
    assert (data.X.shape, data.X.dtype, data.path) == (shape, np.float32, "scikit-learn")
    assert (sorted(set(data.y.tolist())), len(data.class_names), len(data.feature_names)) == ([0, 1, 2], 3, shape[1])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in FILES if name not in (*FETCHED, "mnist")])
def test_what_nobody_gives_out_says_which_file_goes_where(name, tmp_path, monkeypatch):
    monkeypatch.setattr(real, "fetch_openml", None)
    with pytest.raises(FileNotFoundError, match=rf"{name!r} needs the file .*\.npz, which is not in {tmp_path}"):
        datasets.load(name, tmp_path)


# ----- OpenML


CLASSES = {
    "glass": (real.GLASS, (70, 76, 17, 13, 9, 29)),
    "letter": (tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), real.LETTER),
    "segment": (real.SEGMENT, (330,) * 7),
    "vehicle": (("bus", "opel", "saab", "van"), (218, 212, 217, 199)),
    "vowel": (real.VOWEL, (90,) * 11),
    "seeds": (("1", "2", "3"), (70,) * 3),
}


def openml(name, extra=0):
    """What scikit-learn's function gives: ``extra`` columns before the features, labels as strings, mixed."""
    classes, counts = CLASSES[name]
    target = np.random.default_rng(0).permutation(np.repeat(np.array(classes, dtype=object), counts))
    columns = real.SOURCES[name].num_features + extra
    data = np.arange(len(target) * columns, dtype=float).reshape(len(target), columns)
    return Bunch(data=data, target=target, feature_names=[f"f{j}" for j in range(columns)])


@pytest.mark.parametrize("name", FETCHED)
def test_copies_of_openml_are_put_into_the_file_s_form(name, tmp_path, monkeypatch):
    found = openml(name, extra=2 if name == "vowel" else 0)
    monkeypatch.setattr(real, "fetch_openml", lambda **_: found)
    data = datasets.load(name, tmp_path)
    n, d, num_classes = FILES[name]
    assert (data.X.shape, len(data.class_names)) == ((n, d), num_classes)
    np.testing.assert_array_equal(data.X, found.data[:, -d:].astype(np.float32))
    assert [data.class_names[k] for k in data.y] == found.target.tolist()
    monkeypatch.setattr(real, "fetch_openml", None)
    np.testing.assert_array_equal(datasets.load(name, tmp_path).y, data.y)


def test_other_data_under_the_number_are_refused(tmp_path, monkeypatch):
    found = openml("seeds")
    found.target[0] = "2" if found.target[0] != "2" else "1"
    monkeypatch.setattr(real, "fetch_openml", lambda **_: found)
    with pytest.raises(FileNotFoundError, match=r"1499 is not the one expected.*sizes \["):
        datasets.load("seeds", tmp_path)
    assert not list(tmp_path.iterdir())


def test_mnist_keeps_the_test_images(tmp_path, monkeypatch):
    counts = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)
    target = np.repeat(np.arange(10).astype(str).astype(object), counts)
    data = np.broadcast_to(np.arange(70_000)[:, None] % 256, (70_000, 784))
    monkeypatch.setattr(real, "fetch_openml", lambda **_: Bunch(data=data, target=target, feature_names=["p"] * 784))
    found = datasets.load("mnist", tmp_path)
    assert found.X.shape == (10_000, 784)
    np.testing.assert_array_equal(found.X[:, 5], data[-10_000:, 5])
    assert [str(k) for k in found.y] == target[-10_000:].tolist()


@pytest.mark.parametrize("name", FILES)
def test_the_real_files(name, real_file):
    data = real_file(name)
    assert (*data.X.shape, len(np.unique(data.y))) == FILES[name]
    if name in CLASSES:
        assert np.bincount(data.y).tolist() == list(CLASSES[name][1])
