"""Draws of partitions in one: against the definitions, and against every partition where they can be listed."""

import numpy as np
import pytest
from arviz_base import from_dict
from partitions import canonical, growth_strings
from scipy.special import entr
from sklearn.metrics import adjusted_rand_score, mutual_info_score, rand_score

from regbayes.diagnostics import coclustering, num_clusters, partitions, point_estimate


def entropy(*labels):
    """Of the partition by all of the labels together."""
    return np.sum(entr(np.unique(np.stack(labels), axis=1, return_counts=True)[1] / len(labels[0])))


def variation(c, z):
    return 2 * entropy(c, z) - entropy(c) - entropy(z)


def disagreement(c, z):
    pairs = (c[:, None] == c) != (z[:, None] == z)
    return np.sum(pairs) / (len(c) * (len(c) - 1))


DEFINITIONS = {"vi": variation, "binder": disagreement}


def test_definitions_are_those_of_scikit_learn():
    c, z = make_draws(2, 9, 0)
    assert variation(c, z) == pytest.approx(
        mutual_info_score(c, c) + mutual_info_score(z, z) - 2 * mutual_info_score(c, z)
    )
    assert disagreement(c, z) == pytest.approx(1 - rand_score(c, z))


def make_draws(num_draws, n, seed, clusters=3):
    """Noisy copies of one partition, with numbers of clusters that mean nothing."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(clusters, size=n)
    z = np.where(rng.random((num_draws, n)) < 0.3, rng.integers(clusters + 1, size=(num_draws, n)), truth)
    return np.stack([rng.permutation(20)[row] for row in z])


@pytest.mark.parametrize("loss", DEFINITIONS)
def test_distances_are_the_definitions(loss):
    z = make_draws(6, 9, 0)
    named = np.stack([partitions._by_appearance(row) for row in z])
    f, sigma = partitions.LOSSES[loss](9)
    found = sigma * partitions._distances(named, named, f)
    wanted = [[DEFINITIONS[loss](a, b) for b in z] for a in z]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("loss", DEFINITIONS)
@pytest.mark.parametrize("seed", range(10))
def test_the_optimum_of_five_data(loss, seed):
    z = make_draws(12, 5, seed)
    every = np.array(growth_strings(5))
    assert len(every) == 52
    expected = np.array([np.mean([DEFINITIONS[loss](c, row) for row in z]) for c in every])
    found = point_estimate(z, loss)
    assert found.expected_loss == pytest.approx(expected.min(), abs=1e-12)
    at = np.flatnonzero((every == found.labels).all(axis=1))
    assert expected[at] == pytest.approx(expected.min(), abs=1e-12)


@pytest.mark.parametrize("loss", DEFINITIONS)
def test_single_data_could_not_do_better(loss):
    z = make_draws(20, 15, 3)
    found = point_estimate(z, loss)

    def expected(c):
        return np.mean([DEFINITIONS[loss](c, row) for row in z])

    assert found.expected_loss == pytest.approx(expected(found.labels), abs=1e-12)
    assert found.expected_loss <= min(map(expected, z)) + 1e-12
    for i in range(15):
        for k in range(found.labels.max() + 2):
            c = found.labels.copy()
            c[i] = k
            assert expected(c) >= found.expected_loss - 1e-12


@pytest.mark.parametrize("loss", DEFINITIONS)
def test_sweeps_reach_a_partition_that_no_draw_has(loss):
    truth = np.repeat([0, 1, 2], 5)
    draws = np.stack([np.where(np.arange(15) == i, 3, truth) for i in range(15)])  # each with one datum apart
    found = point_estimate(draws, loss)
    np.testing.assert_array_equal(found.labels, truth)
    start = draws[0].copy()
    f, _ = partitions.LOSSES[loss](15)
    partitions._descend(start, draws, np.full(15, 1 / 15), f, 1e-12)
    assert adjusted_rand_score(start, truth) == 1


@pytest.mark.parametrize("loss", DEFINITIONS)
def test_numbers_of_clusters_mean_nothing(loss):
    z = make_draws(10, 8, 1)
    other = canonical(z)
    np.testing.assert_array_equal(coclustering(z), coclustering(other))
    np.testing.assert_array_equal(num_clusters(z), num_clusters(other))
    first, again = point_estimate(z, loss), point_estimate(other, loss)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert first[1:] == again[1:]
    np.testing.assert_array_equal(canonical(first.labels), first.labels)


def test_similarity_is_a_share_of_the_draws():
    z = make_draws(10, 8, 2)
    np.testing.assert_allclose(coclustering(z), np.mean(z[:, :, None] == z[:, None, :], axis=0), atol=1e-12)
    assert num_clusters(z).tolist() == [len(set(row.tolist())) for row in z]


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95, 1.0])
def test_the_radius_holds_its_share_of_the_draws(probability):
    z = make_draws(20, 10, 5)
    found = point_estimate(z, probability=probability)
    distances = np.sort([variation(found.labels, row) for row in z])
    assert found.credible_radius == pytest.approx(distances[int(np.ceil(probability * 20)) - 1], abs=1e-12)


def test_trees_of_draws():
    z = make_draws(12, 6, 4)
    dt = from_dict({"posterior": {"z": z.reshape(3, 4, 6)}})
    np.testing.assert_array_equal(coclustering(dt), coclustering(z))
    assert num_clusters(dt).shape == (3, 4)
    np.testing.assert_array_equal(point_estimate(dt).labels, point_estimate(z.reshape(3, 4, 6)).labels)
    with pytest.raises(ValueError, match=r"draws must have clusters' labels, found \['eta'\]"):
        coclustering(from_dict({"posterior": {"eta": np.ones((1, 4))}}))


@pytest.mark.parametrize("loss", DEFINITIONS)
def test_draws_that_agree_leave_no_doubt(loss):
    z = np.array([[2, 2, 7, 2]] * 3)
    found = point_estimate(z, loss)
    assert (found.labels.tolist(), found.expected_loss, found.credible_radius) == ([0, 0, 1, 0], 0.0, 0.0)
    assert point_estimate([[4], [2]], loss) == (np.array([0]), 0.0, 0.0)


@pytest.mark.parametrize(
    ("draws", "options", "message"),
    [
        ([0, 1], {}, r"draws must be integer labels of shape \(draws, n\), found int64 of shape \(2,\)"),
        ([[0.5, 1.0]], {}, "found float64"),
        (np.zeros((0, 3), int), {}, r"shape \(0, 3\)"),
        ([[0, 1]], {"loss": "rand"}, "loss must be one of vi, binder; found 'rand'"),
        ([[0, 1]], {"probability": 0.0}, r"probability must be above 0 and at most 1, found 0\.0"),
    ],
)
def test_bad_arguments_are_named(draws, options, message):
    with pytest.raises(ValueError, match=message):
        point_estimate(draws, **options)
