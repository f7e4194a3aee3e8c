"""DP-means: scikit-learn's contract, divergences from their definitions, an objective that no update raises."""

import warnings

import numpy as np
import pytest
from bregman_clusters import LIKELIHOODS, definition, make_data
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, homogeneity_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.inference.limits import DPMeans, descent, divergences, sweeps


def objective(model, X, weight=None):
    """``sum_i w_i D(x_i, mu_{z_i}) + penalty K`` at the model's clusters."""
    weight = np.ones(len(X)) if weight is None else weight
    D = definition(model.likelihood, X, model.cluster_centers_[model.labels_])
    return weight @ np.where(weight > 0, D, 0) + model.penalty_ * model.num_clusters_


def known_failures(estimator):
    """A datum of weight 2 leaves if twice its divergence exceeds the penalty, two of weight 1 decide alone."""
    return {"check_sample_weight_equivalence_on_dense_data": "local optima differ"} if estimator.penalty else {}


@parametrize_with_checks(
    [DPMeans(), DPMeans(penalty=1.0), DPMeans(penalty=1.0, order="sequential")], expected_failed_checks=known_failures
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_divergences_are_their_definitions(likelihood):
    X, _ = make_data(likelihood, n=12)
    mu = divergences.means(likelihood, np.array([12.0, 6.0]), np.stack([X.sum(axis=0), X[:6].sum(axis=0)]))
    D = divergences.divergence(likelihood, X, mu)
    for i in range(12):
        for k in range(2):
            wanted = definition(likelihood, X[i], mu[k])
            if np.isfinite(wanted):
                assert D[i, k] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
            else:
                assert 600 < D[i, k] < np.inf


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_mean_is_best_and_its_gain_exact(likelihood):
    X, _ = make_data(likelihood, n=30)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.1, 2, size=30)
    total, mass = weight[None] @ X, np.sum(weight, keepdims=True)
    best = divergences.means(likelihood, mass, total)
    least = weight @ divergences.divergence(likelihood, X, best)[:, 0]
    for t in (0.02, 0.1):
        other = (1 - t) * best + t * divergences.means(likelihood, np.ones(1), X[:1])
        value = weight @ divergences.divergence(likelihood, X, other)[:, 0]
        assert value >= least
        gain = divergences.mean_gain(likelihood, mass, total, best, other)
        assert value - least == pytest.approx(gain, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli", "multinomial"])
def test_means_on_the_boundary_are_far_but_finite(likelihood):
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    model = DPMeans(likelihood, penalty=0.1).fit(X)
    assert model.num_clusters_ == 2
    assert np.all(np.isfinite(model.transform(X)))
    assert np.min(model.transform(X), axis=1) == pytest.approx(0, abs=1e-12)
    assert model.objective_[-1] == pytest.approx(0.2)


@pytest.mark.parametrize("order", ["parallel", "compiled", "sequential"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("penalty", [None, "small", "large"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_no_update_raises_the_objective(likelihood, penalty, weighted, order, monkeypatch):
    if order == "compiled":
        monkeypatch.setattr(sweeps, "TINY", 0)
        order = "parallel"
    X, _ = make_data(likelihood)
    weight = np.random.default_rng(1).integers(0, 4, len(X)) / 2 if weighted else None
    if penalty is not None:
        everything = divergences.divergence(likelihood, X, divergences.means(likelihood, np.ones(1), X.mean(0)[None]))
        penalty = {"small": 0.1, "large": 0.7}[penalty] * np.max(everything)
    model = DPMeans(likelihood, penalty, order=order, tol=0).fit(X, sample_weight=weight)
    J = model.objective_
    assert np.all(np.diff(J) <= 1e-9 * np.abs(J[:-1]))
    assert J[-1] == pytest.approx(objective(model, X, weight), rel=1e-9)
    used = np.ones(len(X), bool) if weight is None else weight > 0
    assert np.array_equal(np.unique(model.labels_[used]), np.arange(model.num_clusters_))
    if order == "parallel":
        assert np.array_equal(model.labels_, model.predict(X))
        paid = np.min(model.transform(X), axis=1) * (1 if weight is None else weight)
        assert np.max(paid) <= model.penalty_ * (1 + 1e-9)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_single_precision(likelihood):
    X, _ = make_data(likelihood, n=3000, d=6)
    penalty = 1.2 * DPMeans(likelihood, random_state=0).fit(X).penalty_
    exact = DPMeans(likelihood, penalty, tol=0, random_state=0).fit(X)
    single = DPMeans(likelihood, penalty, tol=0, random_state=0)
    single._private = {"dtype": np.float32}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        single.fit(X)
    J = single.objective_
    assert np.all(np.diff(J) <= 1e-6 * np.abs(J[:-1]))
    assert J[-1] == pytest.approx(objective(single, X), rel=1e-6)
    assert J[-1] == pytest.approx(exact.objective_[-1], rel=0.02)


def test_sequential_is_the_algorithm_of_the_paper():
    X, _ = make_data("gaussian", n=60, K=3)
    penalty = 30.0
    mu, z = [X.mean(axis=0)], np.zeros(60, int)
    for _ in range(50):
        for i in range(60):
            D = np.array([np.sum((X[i] - m) ** 2) for m in mu])
            if np.min(D) > penalty:
                mu.append(X[i])
                z[i] = len(mu) - 1
            elif np.min(D) < D[z[i]]:
                z[i] = np.argmin(D)
        kept = np.unique(z)
        z = np.searchsorted(kept, z)
        mu = [X[z == k].mean(axis=0) for k in range(len(kept))]
    model = DPMeans(penalty=penalty, order="sequential", tol=0).fit(X)
    assert model.cluster_centers_ == pytest.approx(np.array(mu), rel=1e-12)
    assert np.array_equal(model.labels_, z)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d", "K"), [(300, 2, 5), (1000, 2, 15), (500, 10, 8), (500, 50, 3), (200, 3, 2)])
def test_the_rule_finds_separated_clusters(n, d, K, seed):
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*[np.arange(16)] * 2), axis=-1).reshape(-1, 2)
    places = corners[rng.choice(256, K, replace=False)] * 12.0
    centres = np.pad(places, [(0, 0), (0, d - 2)])
    z = np.arange(n) % K
    model = DPMeans(random_state=0).fit(centres[z] + rng.normal(size=(n, d)))
    assert model.num_clusters_ == K
    assert adjusted_rand_score(model.labels_, z) > 0.99


@pytest.mark.parametrize("d", [1, 2, 10, 50])
def test_the_rule_leaves_one_cloud_whole(d):
    rng = np.random.default_rng(0)
    assert DPMeans().fit(rng.normal(size=(400, d))).num_clusters_ == 1
    assert DPMeans().fit(rng.uniform(size=(400, d))).num_clusters_ == 1


def test_duplicates_constant_columns_and_one_point():
    X = np.repeat([[0.0, 3.0], [5.0, 3.0]], 20, axis=0)
    model = DPMeans(penalty=1.0).fit(X)
    assert model.num_clusters_ == 2
    assert model.objective_[-1] == pytest.approx(2.0)
    assert DPMeans().fit(X).objective_[-1] > 0
    same = DPMeans().fit(X[:20])
    assert same.num_clusters_ == 1
    assert same.penalty_ == 1
    one = DPMeans().fit([[1.0, 2.0]])
    assert one.cluster_centers_.tolist() == [[1.0, 2.0]]
    assert one.labels_.tolist() == [0]
    assert DPMeans(penalty=1e-3).fit([[1.0, 2.0]]).objective_[-1] == pytest.approx(1e-3)


def test_the_buffer_grows():
    X = np.arange(100.0)[:, None] * 10
    model = DPMeans(penalty=1.0).fit(X)
    assert model.num_clusters_ == 100
    assert model.objective_[-1] == pytest.approx(100.0)
    assert not model.overflow_


@pytest.mark.parametrize("order", ["parallel", "sequential"])
def test_a_limit_on_clusters_is_warned_of(order):
    X = np.arange(20.0)[:, None] * 10
    with pytest.warns(ConvergenceWarning, match=r"reached max_clusters=5 .* raise max_clusters or penalty"):
        model = DPMeans(penalty=1.0, max_clusters=5, order=order).fit(X)
    assert model.num_clusters_ == 5
    assert model.overflow_


def test_a_cluster_that_empties_is_removed():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    model = DPMeans(penalty=5.0, warm_start=True).fit(X)
    model.cluster_centers_ = np.array([[0.5], [100.0], [10.5]])
    updates = []
    model._private = {"observe": lambda update, state: updates.append(update)}
    model.fit(X)
    assert model.cluster_centers_.ravel().tolist() == [0.5, 10.5]
    assert model.labels_.tolist() == [0, 0, 1, 1]
    assert "removal" in updates
    at = updates.index("removal")
    assert model.objective_[at - 1] - model.objective_[at] == pytest.approx(5.0)


def test_warm_start_goes_on():
    X, _ = make_data("gaussian")
    model = DPMeans(penalty=20.0, warm_start=True, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 before the objective settled"):
        before = model.fit(X).objective_[-1]
    model.set_params(max_iter=300).fit(X)
    assert model.objective_[0] <= before * (1 + 1e-9)
    assert model.fit(X).n_iter_ <= 2


def test_large_data_on_random_parts():
    X, z = make_data("gaussian", n=70_000, d=3, K=6, scale=20.0, seed=2)
    model = DPMeans(penalty=40.0, random_state=0).fit(X)
    truth = np.stack([X[z == k].mean(axis=0) for k in range(6)])
    # A cloud cut up costs less than a further cluster: no worse than the truth, and no cluster across two clouds.
    assert model.objective_[-1] <= np.sum((X - truth[z]) ** 2) + 40 * 6
    assert homogeneity_score(z, model.labels_) > 0.99
    assert np.all(np.diff(model.objective_) <= 1e-6 * model.objective_[:-1])
    D = model.transform(X)
    assert model.objective_[-1] == pytest.approx(np.min(D, axis=1).sum() + 40 * model.num_clusters_, rel=1e-5)
    again = DPMeans(penalty=40.0, random_state=0).fit(X)
    assert np.array_equal(again.labels_, model.labels_)


def test_equal_shapes_compile_once():
    rng = np.random.default_rng(0)
    DPMeans(penalty=12.0).fit(rng.normal(size=(650, 3)))
    before = sweeps._sweep._cache_size()
    for penalty in (10.0, 14.0, 20.0):
        DPMeans(penalty=penalty).fit(rng.normal(size=(640, 3)))
    assert sweeps._sweep._cache_size() == before


@pytest.mark.parametrize(
    ("likelihood", "X", "message"),
    [
        ("poisson", [[1.0], [-1.5]], r"X has the entry -1.5 with likelihood='poisson'; pass counts of at least 0"),
        ("multinomial", [[1.0, -2.0]], r"X has the entry -2 with likelihood='multinomial'; pass counts"),
        ("bernoulli", [[0.5], [-0.5]], r"X has the entry -0.5 with likelihood='bernoulli'; pass entries from 0 to 1"),
        ("bernoulli", [[0.5], [3.0]], r"X has the entry 3 with likelihood='bernoulli'; pass entries from 0 to 1"),
        ("cauchy", [[0.5], [3.0]], "likelihood='cauchy': likelihood must be one of 'gaussian', 'poisson'"),
    ],
)
def test_data_outside_the_support_are_named(likelihood, X, message):
    with pytest.raises(ValueError, match=message):
        DPMeans(likelihood).fit(X)
    if likelihood != "cauchy":
        model = DPMeans(likelihood).fit(np.abs(np.clip(X, -1, 1)))
        with pytest.raises(ValueError, match=message):
            model.predict(X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("penalty", value) for value in (0.0, -1.0, np.inf, "1")),
        *(("max_iter", value) for value in (0, 2.5)),
        *(("tol", value) for value in (-1.0, np.nan)),
        *(("max_clusters", value) for value in (0, 1.5)),
        ("order", "random"),
    ],
)
def test_invalid_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}: {name} must be"):
        DPMeans(**{name: value}).fit([[0.0], [1.0]])


def test_invalid_weights_are_named():
    with pytest.raises(ValueError, match="sample_weight ranges from -1 to 1"):
        DPMeans().fit([[0.0], [1.0]], sample_weight=[-1.0, 1.0])


def test_chunks_agree_with_one_another():
    X, _ = make_blobs(3000, n_features=3, centers=5, random_state=0)
    model = DPMeans(penalty=30.0, random_state=0).fit(X)
    data = sweeps.layout(X, None, np.ones(3000), np.zeros(3000), "gaussian", 0)
    clusters = descent.buffer(model.cluster_centers_, np.zeros((model.num_clusters_, 0, 3)), 16)
    sums = sweeps.sweep(
        data, np.zeros(data.shape, np.int32), clusters.mu, clusters.active, np.zeros((16, 0, 4)), sweeps.PassSettings()
    )
    labels = np.asarray(sums.z).ravel()[:3000]
    assert np.array_equal(labels, model.labels_)
    K = model.num_clusters_
    assert np.asarray(sums.weight)[:K] == pytest.approx(np.bincount(labels, minlength=K))
    for k in range(K):
        assert np.asarray(sums.total)[k] == pytest.approx(np.sum(X[labels == k] - data.origin, axis=0), abs=1e-8)
        D = divergences.divergence("gaussian", X[labels == k], model.cluster_centers_[k : k + 1])
        assert np.asarray(sums.spread)[k] == pytest.approx(np.sum(D), rel=1e-9)
    assert np.max(np.asarray(sums.dearest)) == pytest.approx(np.max(np.min(model.transform(X), axis=1)), rel=1e-9)
