"""The synthetic settings follow their laws; the real data are found, checked, and refused with advice."""

import gzip
import os
import pathlib
import pickle
import sys
import urllib.error

import numpy as np
import pytest
import scipy.sparse
from scipy.special import digamma, expit
from sklearn.utils import Bunch

from regbayes import datasets
from regbayes.datasets import corpora, make_m2dpm_dp, make_m2dpm_setting1, make_m2dpm_setting2, real, synthetic

MAKERS = {
    "setting1": (make_m2dpm_setting1, 1000),
    "setting2": (make_m2dpm_setting2, 10_000),
    "dp": (make_m2dpm_dp, 10_000),
}
Z_SCORE = 4.0  # of a mean over its standard error; seeds are fixed


def z_score(values, mean):
    """The largest score of the mean over rows, of any column."""
    values = np.asarray(values, float)
    return np.max(np.abs(values.mean(0) - mean) / (values.std(0, ddof=1) / np.sqrt(len(values))))


# ----- Synthetic settings


@pytest.mark.parametrize("name", MAKERS)
def test_shapes_and_types(name):
    maker, num_data = MAKERS[name]
    X, y, truth = maker()
    num_clusters = truth.z.max() + 1
    assert (X.shape, X.dtype) == ((num_data, 10), np.float32)
    assert (y.shape, y.dtype, set(y.tolist())) == ((num_data,), np.int32, {0, 1})
    assert (truth.z.shape, truth.z.dtype) == ((num_data,), np.int32)
    assert truth.mu.shape == truth.eta.shape == (num_clusters, 10)
    assert len(np.unique(truth.z)) == num_clusters
    assert maker(50, 3)[0].shape == (50, 3)


@pytest.mark.parametrize("name", MAKERS)
def test_the_seed_decides(name):
    maker, _ = MAKERS[name]
    first, again, other = maker(200, seed=5), maker(200, seed=5), maker(200, seed=6)
    for a, b in zip((*first[:2], *first[2]), (*again[:2], *again[2]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("name", MAKERS)
def test_labels_follow_the_sigmoid(name):
    """The rate of the label 1 is the probability, also where that is high or low."""
    maker, _ = MAKERS[name]
    X, y, truth = maker(20_000, seed=1)
    p = truth.probability(X)
    np.testing.assert_allclose(p, expit(np.einsum("nd,nd->n", truth.eta[truth.z], X - truth.mu[truth.z])), rtol=1e-6)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
        rows = (low <= p) & (p < high)
        assert rows.sum() > 500
        assert z_score((y - p)[rows, None], 0.0) < Z_SCORE


@pytest.mark.parametrize("name", MAKERS)
def test_the_bayes_classifier_is_right_as_often_as_it_says(name):
    maker, _ = MAKERS[name]
    X, y, truth = maker(20_000, seed=2)
    p = truth.probability(X)
    found = truth.bayes(X)
    np.testing.assert_array_equal(found, p > 0.5)
    assert z_score(((found == y) - np.maximum(p, 1 - p))[:, None], 0.0) < Z_SCORE
    rows = np.array([3, 1, 7])
    np.testing.assert_array_equal(truth.bayes(X[rows], truth.z[rows]), found[rows])
    with pytest.raises(ValueError, match=r"the clusters of the 3 rows of X, found 20000; pass z\[rows\]"):
        truth.bayes(X[rows])


def test_setting1_is_gaussian_around_the_diagonal():
    X, _, truth = make_m2dpm_setting1(20_000, 3, noise=0.5, seed=0)
    np.testing.assert_array_equal(truth.mu, np.arange(1, 11)[:, None] * np.ones(3))
    residual = X - truth.mu[truth.z]
    assert z_score(residual, 0.0) < Z_SCORE
    assert z_score(residual**2, 0.25) < Z_SCORE
    assert z_score(residual**4, 3 * 0.25**2) < Z_SCORE
    largest = np.bincount(truth.z).argmax()
    assert z_score(X[truth.z == largest], largest + 1.0) < Z_SCORE


def test_setting2_is_uniform_in_equal_cubes():
    X, _, truth = make_m2dpm_setting2(20_000, 3, 10, seed=0)
    assert np.bincount(truth.z).tolist() == [2000] * 10
    residual = X - truth.mu[truth.z]
    assert np.abs(residual).max() <= 0.5 + 1e-6
    assert z_score(residual, 0.0) < Z_SCORE
    assert z_score(residual**2, 1 / 12) < Z_SCORE
    np.testing.assert_array_equal(np.rint(X[:, 0]).astype(int), truth.z + 1)  # the cubes are disjoint
    assert len(np.unique(truth.z[:100])) > 5  # and mixed


def test_classifiers_and_means_are_standard_normal():
    draws = [make_m2dpm_dp(200, 4, spread=3.0, seed=seed)[2] for seed in range(100)]
    for values, scale in (([t.eta for t in draws], 1.0), ([t.mu for t in draws], 3.0)):
        rows = np.concatenate(values)
        assert z_score(rows, 0.0) < Z_SCORE
        assert z_score(rows**2, scale**2) < Z_SCORE


@pytest.mark.parametrize(
    "maker", [make_m2dpm_dp, lambda n, **options: make_m2dpm_setting1(n, max_clusters=10**6, **options)]
)
def test_the_number_of_clusters_is_the_restaurant_s(maker):
    alpha, sizes = 1.6, (10, 100, 400)
    numbers = []
    for seed in range(300):
        z = maker(400, concentration=alpha, seed=seed)[2].z
        assert (np.maximum.accumulate(z)[1:] - np.maximum.accumulate(z)[:-1] <= 1).all()  # numbered as they open
        assert z[0] == 0
        numbers.append([len(np.unique(z[:n])) for n in sizes])
    assert z_score(numbers, [alpha * (digamma(alpha + n) - digamma(alpha)) for n in sizes]) < Z_SCORE


def test_the_second_guest_sits_with_the_first_as_often_as_said():
    together = [synthetic._restaurant(np.random.default_rng(seed), 2, 3.0)[1] == 0 for seed in range(2000)]
    assert z_score(np.array(together)[:, None], 1 / 4) < Z_SCORE


def test_clusters_are_capped():
    numbers = [len(make_m2dpm_setting1(1000, 1, concentration=20.0, max_clusters=4, seed=s)[2].mu) for s in range(5)]
    assert numbers == [4] * 5
    assert len(make_m2dpm_setting1(50, 1, max_clusters=1)[2].mu) == 1


# ----- Real data


def arrays(name, num_data=30, seed=0):
    """Small data in the format of a data set's file."""
    rng, source = np.random.default_rng(seed), real.SOURCES[name]
    found = {
        "X": rng.normal(size=(num_data, source.num_features)).astype(np.float32),
        "y": rng.choice(source.labels, size=num_data).astype(np.int8),
    }
    if name == "parkinsons":
        found["subject"] = (np.arange(num_data) // 3).astype(np.int16)
    else:
        found["train"] = np.arange(num_data) % 2 == 0
        found["class_names"] = np.array([f"fold {label}" for label in source.labels])
    return found


def write(folder, name="parkinsons", **changes):
    folder.mkdir(exist_ok=True)
    found = {key: value for key, value in (arrays(name) | changes).items() if value is not None}
    np.savez(folder / real.SOURCES[name].file, **found)
    return found


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Empty folders for the argument, the environment variable and the cache; no network."""

    def fetch():
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("REGBAYES_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(real, "fetch_openml", lambda **options: fetch())
    monkeypatch.setattr(corpora, "fetch_20newsgroups", lambda **options: fetch())
    cache = tmp_path / "user" / "regbayes"
    cache.parent.mkdir()
    return tmp_path / "argument", tmp_path / "variable", cache


def test_names():
    assert datasets.names()[:2] == ["parkinsons", "protein-fold"]


def test_what_is_loaded(homes):
    wanted = write(homes[0])
    data = datasets.load("parkinsons", homes[0])
    assert isinstance(data, Bunch)
    np.testing.assert_array_equal(data.X, wanted["X"])
    np.testing.assert_array_equal(data.y, wanted["y"])
    np.testing.assert_array_equal(data.subject, wanted["subject"])
    assert (data.X.dtype, data.y.dtype) == (np.float32, np.int32)
    assert (len(data.feature_names), data.class_names) == (22, ["healthy", "Parkinson's disease"])
    assert "Little" in data.DESCR
    assert data.path == str(homes[0] / "parkinsons.npz")
    assert "train" not in data


def test_labels_start_at_zero_whatever_the_file_says(homes):
    wanted = write(homes[0], "protein-fold")
    data = datasets.load("protein-fold", data_home=str(homes[0]))
    np.testing.assert_array_equal(data.y, wanted["y"] - 1)
    assert data.class_names[0] == "fold 1"
    assert len(data.class_names) == 27
    np.testing.assert_array_equal(data.train, wanted["train"])


def test_folders_are_looked_at_in_order(homes):
    for i, home in enumerate(homes):
        write(home, X=np.full((30, 22), float(i)))
    found = [datasets.load("parkinsons", home).X[0, 0] for home in (homes[0], None)]
    (homes[1] / "parkinsons.npz").unlink()
    found.append(datasets.load("parkinsons").X[0, 0])
    assert found == [0.0, 1.0, 2.0]


def test_a_folder_given_is_the_only_one(homes):
    write(homes[1])
    with pytest.raises(FileNotFoundError, match=str(homes[0])):
        datasets.load("parkinsons", homes[0])


@pytest.mark.parametrize("name", [name for name in datasets.names() if real.SOURCES[name].file])
def test_missing_data_say_where_to_put_which_file(name, homes):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name)
    words = [real.SOURCES[name].file, str(homes[1]), str(homes[2]), "REGBAYES_DATA", "data_home"]
    assert [word for word in words if word not in str(error.value)] == []
    assert ("no network" in str(error.value)) == (real.SOURCES[name].fetch is not None)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of parkinsons, protein-fold, .*; found 'tulips'"):
        datasets.load("tulips")


def test_cache_follows_the_platform(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, wanted in (("linux", "~/.cache"), ("darwin", "~/Library/Caches")):
        monkeypatch.setattr(sys, "platform", name)
        assert real._cache() == pathlib.Path(wanted).expanduser() / "regbayes"


BAD = {
    "no labels": ({"y": None}, ["y must be in the file", "only X, subject"]),
    "too few features": ({"X": np.ones((30, 5))}, ["X must be of shape (30, 22)", "(30, 5)"]),
    "fewer rows": ({"X": np.ones((29, 22))}, ["X must be of shape (30, 22)", "(29, 22)"]),
    "no rows": ({"X": np.ones((0, 22)), "y": np.ones(0, int), "subject": None}, ["X must be of shape", "(0, 22)"]),
    "NaN": ({"X": np.full((30, 22), np.nan)}, ["X must be finite"]),
    "words": ({"X": np.full((30, 22), "a")}, ["X must be numbers", "<U1"]),
    "stray labels": ({"y": np.arange(30)}, ["y must be labels from 0 to 1", "[2, 3, 4, 5, 6]"]),
    "float labels": ({"y": np.ones(30)}, ["y must be a vector of integers", "float64"]),
    "few speakers": ({"subject": np.arange(3)}, ["subject must be of shape (30,)", "(3,)"]),
    "few names": ({"feature_names": np.array(["a"])}, ["feature_names must be 22 names", "1"]),
    "many classes": ({"class_names": np.array(["a", "b", "c"])}, ["class_names must be 2 names", "3"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_contents_are_named(case, homes):
    changes, words = BAD[case]
    write(homes[0], **changes)
    with pytest.raises(ValueError, match=r"parkinsons\.npz") as error:
        datasets.load("parkinsons", homes[0])
    assert [word for word in words if word not in str(error.value)] == []


def test_a_training_part_must_be_boolean(homes):
    write(homes[0], "protein-fold", train=np.arange(30))
    with pytest.raises(ValueError, match="train must be boolean, found int64"):
        datasets.load("protein-fold", homes[0])


class Trap:
    """Unpickled, it would leave a mark."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_no_pickle_is_ever_opened(homes, tmp_path):
    mark = str(tmp_path / "mark")
    write(homes[0], y=np.array([Trap(mark)] * 30, dtype=object))
    with pytest.raises(ValueError, match=r"must be a \.npz file of plain arrays"):
        datasets.load("parkinsons", homes[0])
    (homes[0] / "parkinsons.npz").write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(ValueError, match=r"must be a \.npz file of plain arrays"):
        datasets.load("parkinsons", homes[0])
    assert not os.path.exists(mark)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY\x01"], ids=["empty", "cut", "torn"])
def test_broken_files_are_refused(content, homes):
    homes[0].mkdir()
    (homes[0] / "parkinsons.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a \.npz file of plain arrays"):
        datasets.load("parkinsons", homes[0])


def test_a_single_array_is_no_data_set(homes):
    homes[0].mkdir()
    with open(homes[0] / "parkinsons.npz", "wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ValueError, match=r"must be a \.npz file of plain arrays"):
        datasets.load("parkinsons", homes[0])


def openml(**options):
    """What scikit-learn's function gives for the data set: strings for labels."""
    assert options["data_id"] == 1488
    labels = np.array(["1"] * 48 + ["2"] * 147, dtype=object)
    return Bunch(data=np.arange(195 * 22, dtype=float).reshape(195, 22), target=labels)


def test_data_are_fetched_once_and_kept(homes, monkeypatch):
    monkeypatch.setattr(real, "fetch_openml", openml)
    first = datasets.load("parkinsons")
    assert first.X.shape == (195, 22)
    assert np.bincount(first.y).tolist() == [48, 147]
    assert "subject" not in first  # OpenML does not tell
    assert [path.name for path in homes[2].iterdir()] == ["parkinsons.npz"]
    monkeypatch.setattr(real, "fetch_openml", None)
    again = datasets.load("parkinsons")
    np.testing.assert_array_equal(again.X, first.X)
    assert again.feature_names == first.feature_names == list(real.PARKINSONS)


def test_other_data_under_the_same_number_are_refused(homes, monkeypatch):
    monkeypatch.setattr(real, "fetch_openml", lambda **_: Bunch(data=np.ones((3, 2)), target=np.array(["1", "2", "2"])))
    with pytest.raises(FileNotFoundError, match=r"1488 is not the one expected, found shape \(3, 2\)"):
        datasets.load("parkinsons")
    assert not homes[2].exists()


def test_data_are_given_also_if_they_cannot_be_kept(homes, monkeypatch):
    monkeypatch.setattr(real, "fetch_openml", openml)
    homes[2].write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="could not keep the data"):
        assert datasets.load("parkinsons").X.shape == (195, 22)


@pytest.mark.parametrize(
    ("name", "shape", "counts"), [("parkinsons", (195, 22), [48, 147]), ("protein-fold", (694, 21), None)]
)
def test_the_real_files(name, shape, counts, real_file):
    data = real_file(name)
    assert data.X.shape == shape
    if counts:
        assert np.bincount(data.y).tolist() == counts
        assert len(np.unique(data.subject)) == 32
    else:
        assert (data.train.sum(), len(np.unique(data.y))) == (311, 27)


# ----- Documents


def documents():
    X = scipy.sparse.csr_matrix(np.array([[0, 2, 1], [1, 0, 0], [0, 0, 0]], np.uint16))
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    return {**parts, "y": np.array([0, 19, 3], np.int8), "train": np.array([True, False, True])}


def test_documents_are_counts(homes):
    homes[0].mkdir()
    np.savez(homes[0] / "news20_bow.npz", **documents())
    data = datasets.load("20news", homes[0])
    assert scipy.sparse.issparse(data.X)
    assert data.X.dtype == np.int32
    assert data.X.toarray().tolist() == [[0, 2, 1], [1, 0, 0], [0, 0, 0]]
    assert (data.y.tolist(), data.train.tolist()) == ([0, 19, 3], [True, False, True])
    assert data.feature_names == ["x0", "x1", "x2"]
    with gzip.open(homes[0] / "news20_vocab.txt.gz", "wt") as stream:
        stream.write("aardvark\nbee\ncat\n")
    assert datasets.load("20news", homes[0]).feature_names == ["aardvark", "bee", "cat"]


def test_documents_without_their_arrays_are_refused(homes):
    homes[0].mkdir()
    np.savez(homes[0] / "r8_bow.npz", **{key: value for key, value in documents().items() if key != "indptr"})
    with pytest.raises(ValueError, match="indptr must be in the file"):
        datasets.load("r8", homes[0])
    np.savez(homes[0] / "r8_bow.npz", **{**documents(), "y": np.array([0, 1, 2])})
    with pytest.raises(ValueError, match=r"X must be of shape \(3, 23585\), found \(3, 3\)"):
        datasets.load("r8", homes[0])


def test_newsgroups_are_fetched(homes, monkeypatch):
    texts = {"train": ["From: me\n\ncats and dogs, cats", "dogs and X x cats 42"], "test": ["dogs rain and rain", "42"]}

    def fetch(subset, **options):
        return Bunch(data=texts[subset], target=np.array([0, 1]), target_names=[f"group {k}" for k in range(20)])

    monkeypatch.setattr(corpora, "fetch_20newsgroups", fetch)
    data = datasets.load("20news", homes[0])
    assert data.feature_names == ["and", "cats", "dogs", "rain"]
    assert data.X.toarray().tolist() == [[1, 2, 1, 0], [1, 1, 1, 0], [1, 0, 1, 2]]
    assert (data.y.tolist(), data.train.tolist()) == ([0, 1, 0], [True, True, False])
    monkeypatch.setattr(corpora, "fetch_20newsgroups", None)
    assert datasets.load("20news", homes[0]).X.shape == (3, 4)  # kept


def test_labelled_corpora():
    X, y, truth = datasets.make_corpus(300, 40, 3, 2, length=30, seed=1)
    assert (X.sum(1) == 30).all()
    np.testing.assert_allclose(truth.shares.sum(1), 1)
    np.testing.assert_allclose(X.sum(0) / X.sum(), truth.shares.mean(0) @ truth.topics, atol=0.02)
    for k in range(2):
        np.testing.assert_allclose(truth.shares[y == k].mean(0), truth.proportions[k], atol=0.08)
    _, response, truth = datasets.make_corpus(300, 40, 3, 2, task="regression", noise=0.0)
    assert np.linalg.lstsq(truth.shares, response)[1] < 1e-6
    with pytest.raises(ValueError, match="task must be"):
        datasets.make_corpus(task="ranking")
