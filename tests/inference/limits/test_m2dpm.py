"""M2DPM: scikit-learn's contract, the objective after every single update, the closed forms, the edges."""

import warnings

import numpy as np
import pytest
from bregman_clusters import LIKELIHOODS, definition, make_data
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.inference.limits import M2DPM, descent, divergences, svm, sweeps


def make_labels(X, z, num_classes, seed=0, noise=0.5):
    """Labels (n,) by a linear classifier in every cluster of ``z``."""
    rng = np.random.default_rng(seed + 100)
    scores = np.zeros((len(X), num_classes))
    for k in np.unique(z):
        x = (X[z == k] - X[z == k].mean(axis=0)) / (X[z == k].std(axis=0) + 1e-9)
        scores[z == k] = x @ rng.normal(size=(X.shape[1], num_classes))
    return np.array(["a", "b", "c", "d"])[np.argmax(scores + noise * rng.normal(size=scores.shape), axis=1)]


def penalty_for(likelihood, X, y, fraction=0.5, **arguments):
    return fraction * M2DPM(likelihood, **arguments).fit(X, y).penalty_


def loss(scores, y, classes, ell):
    """(n,) losses, from the definition."""
    if len(classes) == 2:
        return np.maximum(0, ell - np.where(y == classes[1], 1, -1) * scores)
    other = y[:, None] != classes
    return np.max(ell * other + scores, axis=1) - scores[~other]


def objective(model, X, y, weight, mu, eta, z):
    """``J`` without ``penalty K``; ``eta`` (K, S, p)."""
    U = np.column_stack([X, np.ones(len(X))]) if model.fit_intercept else X
    scores = np.einsum("np,nsp->ns", U, eta[z])
    scores = scores[:, 0] if len(np.unique(y)) == 2 else scores
    D = np.where(weight > 0, definition(model.likelihood, X, mu[z]), 0)
    hinge = weight @ loss(scores, y, np.unique(y), model.ell)
    return np.sum(eta**2) / (2 * model.prior_scale**2) + 2 * model.cost * hinge + model.clustering_weight * weight @ D


@parametrize_with_checks([M2DPM()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize(("cost", "ell", "nu"), [(1.0, 1.0, 1.0), (0.02, 1.0, 0.5), (3.0, 2.5, 0.3), (0.1, 0.4, 2.0)])
def test_one_point_classifier_is_optimal(num_classes, cost, ell, nu, seed):
    rng = np.random.default_rng(seed)
    U, weight = rng.normal(size=(1, 3)), np.array([rng.uniform(0.2, 2)])
    y = np.array([1.0 if num_classes == 2 else 1])
    problem = descent.ClusterProblem("gaussian", num_classes, False, sweeps.PassSettings(1.0, cost, ell, nu, 1e-3), 1.0)
    eta, alone, share = descent.one_point(U, y, weight, problem)
    value = 2 * cost * weight[0] * alone[0] + share[0]
    assert share[0] == pytest.approx(np.sum(eta**2) / (2 * nu**2))
    assert alone[0] == pytest.approx(descent.losses(eta, U, y, problem)[0, 0], abs=1e-12)
    if num_classes == 2:
        mode = svm.hinge_problem(U, y, ell, 2 * cost * weight, nu**-2.0)
    else:
        mode = svm.multiclass_problem(U, y.astype(int), num_classes, ell, 2 * cost * weight, nu**-2.0)
    best = svm.posterior_mode(mode, 200, 1e-10)
    assert value == pytest.approx(best.objective[-1], rel=1e-8)


def test_one_point_closed_form_of_the_notes():
    u, c, ell, nu = np.array([1.0, -2.0]), 0.05, 1.5, 1.2
    problem = descent.ClusterProblem("gaussian", 2, False, sweeps.PassSettings(1.0, c, ell, nu, 1e-3), 1.0)
    eta = descent.one_point(u[None], np.array([-1.0]), np.ones(1), problem)[0][0, 0]
    assert eta == pytest.approx(min(2 * c * nu**2, ell / (u @ u)) * -u)
    direct = minimize(lambda e: e @ e / (2 * nu**2) + 2 * c * max(0, ell + e @ u), np.zeros(2), method="Nelder-Mead")
    assert eta == pytest.approx(direct.x, abs=1e-3)


@pytest.mark.parametrize("order", ["parallel", "compiled", "sequential"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_no_update_raises_the_objective(likelihood, num_classes, weighted, order, monkeypatch):
    if order == "compiled":
        monkeypatch.setattr(sweeps, "TINY", 0)
        order = "parallel"
    X, z = make_data(likelihood, n=100, d=3, K=3)
    y = make_labels(X, z, num_classes)
    weight = np.random.default_rng(1).integers(0, 4, len(X)) / 2 if weighted else np.ones(len(X))
    arguments = {"cost": 0.7, "ell": 1.3, "prior_scale": 0.8, "clustering_weight": 0.6}
    penalty = penalty_for(likelihood, X, y, **arguments)
    model = M2DPM(likelihood, penalty, order=order, warm_start=True, **arguments)
    model.cluster_centers_ = (X if likelihood != "multinomial" else X / X.sum(axis=1, keepdims=True)).mean(axis=0)[None]
    model.classes_ = np.unique(y)
    scores = (1,) if num_classes == 2 else (1, num_classes)
    model.coef_, model.intercept_ = np.zeros((*scores, 3)), np.zeros(scores)
    seen, kinds = [], set()

    def observe(update, state):
        clusters, labels = (state.clusters, state.labels) if order == "parallel" else state
        kinds.add(update)
        seen.append(objective(model, X, y, weight, clusters.mu, clusters.eta, labels) + penalty * clusters.num)

    model._private = {"observe": observe}
    model.fit(X, y, sample_weight=weight)
    J = model.objective_
    assert len(J) == len(seen)
    assert pytest.approx(np.array(seen), rel=1e-9) == J
    assert np.all(np.diff(J) <= 1e-9 * J[:-1])
    assert {"classifiers", "assignment", "creation", "means"} <= kinds
    assert model.num_clusters_ > 1


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_single_precision(likelihood, num_classes):
    X, z = make_data(likelihood, n=1100, d=4)
    y = make_labels(X, z, num_classes)
    penalty = penalty_for(likelihood, X, y, 2.0)
    exact = M2DPM(likelihood, penalty).fit(X, y)
    single = M2DPM(likelihood, penalty)
    single._private = {"dtype": np.float32}
    single.fit(X, y)
    J = single.objective_
    assert np.all(np.diff(J) <= 1e-6 * J[:-1])
    assert J[-1] == pytest.approx(exact.objective_[-1], rel=0.03)
    eta = single._classifiers()
    last = objective(single, X, y, np.ones(len(X)), single.cluster_centers_, eta, single.labels_)
    assert J[-1] == pytest.approx(last + penalty * single.num_clusters_, rel=1e-5)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_classifiers_are_nearly_optimal_given_their_clusters(num_classes):
    X, z = make_data("gaussian", n=600)
    y = make_labels(X, z, num_classes)
    model = M2DPM(tol=1e-5, max_iter=1000).fit(X, y)
    assert model.num_clusters_ == 4
    codes = np.searchsorted(model.classes_, y)
    found = best = 0.0
    for k, eta in enumerate(model._classifiers()):
        rows = model.labels_ == k
        U, c = np.column_stack([X[rows], np.ones(np.sum(rows))]), np.full(np.sum(rows), 2.0)
        if num_classes == 2:
            problem = svm.hinge_problem(U, 2.0 * codes[rows] - 1, 1.0, c, 1.0)
        else:
            problem = svm.multiclass_problem(U, codes[rows], num_classes, 1.0, c, 1.0)
        found += svm.objective(problem, eta)
        best += svm.posterior_mode(problem, 100, 1e-6).objective[-1]
    assert found <= best * 1.005


@pytest.mark.parametrize("num_classes", [2, 3])
def test_prediction_by_the_nearest_cluster(num_classes):
    X, z = make_data("gaussian", n=400, scale=20.0)
    y = make_labels(X, z, num_classes, noise=0.0)
    model = M2DPM(cost=10.0).fit(X, y)
    assert adjusted_rand_score(model.labels_, z) > 0.95
    assert model.score(X, y) > 0.9
    component = model.predict_components(X)
    D = np.sum((X[:, None] - model.cluster_centers_) ** 2, axis=2)
    assert np.array_equal(component, np.argmin(D, axis=1))
    scores = model.decision_function(X)
    assert scores.shape == ((400,) if num_classes == 2 else (400, 3))
    i = 7
    by_hand = model.coef_[component[i]] @ X[i] + model.intercept_[component[i]]
    assert scores[i] == pytest.approx(by_hand)
    shape = (4,) if num_classes == 2 else (4, 3)
    assert model.coef_.shape == (*shape, 4)
    assert model.intercept_.shape == shape


def test_no_intercept():
    X, z = make_data("gaussian")
    model = M2DPM(fit_intercept=False).fit(X, make_labels(X, z, 2))
    assert model.intercept_.tolist() == [0.0] * model.num_clusters_
    assert np.all(np.diff(model.objective_) <= 1e-9 * model.objective_[:-1])


def test_sequential_is_algorithm_1():
    X, z = make_data("gaussian", n=40, d=2, K=2)
    y = make_labels(X, z, 2)
    sign, U = np.where(y == "b", 1.0, -1.0), np.column_stack([X, np.ones(40)])
    penalty, c, steps = 20.0, 1.0, 6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = M2DPM(penalty=penalty, order="sequential", max_iter=steps, tol=0).fit(X, y)
    mu, eta, z = [X.mean(axis=0)], [np.zeros(3)], np.zeros(40, int)
    for _ in range(steps):
        for i in range(40):
            Q = [np.sum((X[i] - m) ** 2) + 2 * c * max(0, 1 - sign[i] * e @ U[i]) for m, e in zip(mu, eta, strict=True)]
            star = min(2 * c, 1 / (U[i] @ U[i])) * sign[i] * U[i]
            new = penalty + 2 * c * max(0, 1 - sign[i] * star @ U[i]) + star @ star / 2
            if min(Q) > new:
                mu.append(X[i])
                eta.append(star)
                z[i] = len(mu) - 1
            elif min(Q) < Q[z[i]]:
                z[i] = np.argmin(Q)
        kept = np.unique(z)
        eta = [eta[k] for k in kept]
        z = np.searchsorted(kept, z)
        mu = [X[z == k].mean(axis=0) for k in range(len(kept))]
        for k in range(len(kept)):
            A = sign[z == k, None] * U[z == k]
            step = svm.em_step(A, np.ones(len(A)), eta[k], c, 1.0, 1e-3)

            def J(e, A=A):
                return e @ e / 2 + 2 * c * np.sum(np.maximum(0, 1 - A @ e))

            eta[k] = next(
                (e for e in (eta[k] + t * (step - eta[k]) for t in 0.5 ** np.arange(6)) if J(e) <= J(eta[k])), eta[k]
            )
    assert model.num_clusters_ > 1
    assert np.array_equal(model.labels_, z)
    assert model.cluster_centers_ == pytest.approx(np.array(mu))
    assert np.column_stack([model.coef_, model.intercept_]) == pytest.approx(np.array(eta), rel=1e-6, abs=1e-9)


def test_the_default_finds_the_clusters_of_setting_two():
    rng = np.random.default_rng(0)
    z = np.arange(2000) % 10
    X = z[:, None] + 1 + rng.uniform(-0.5, 0.5, size=(2000, 10))
    f = np.sum(rng.normal(size=(10, 10))[z] * (X - z[:, None] - 1), axis=1)
    y = rng.uniform(size=2000) < 1 / (1 + np.exp(-f))
    model = M2DPM(random_state=0).fit(X, y)
    assert model.num_clusters_ == 10
    assert adjusted_rand_score(model.predict_components(X), z) > 0.99


@pytest.mark.parametrize("order", ["parallel", "sequential"])
def test_a_limit_on_clusters_is_warned_of(order):
    X = np.arange(40.0)[:, None] * 10
    with pytest.warns(ConvergenceWarning, match=r"reached max_clusters=5 .* raise max_clusters or penalty"):
        model = M2DPM(penalty=5.0, max_clusters=5, order=order).fit(X, np.arange(40) % 2)
    assert model.num_clusters_ == 5
    assert model.overflow_


def test_the_buffer_grows():
    X = np.arange(100.0)[:, None] * 10
    model = M2DPM(penalty=5.0).fit(X, np.arange(100) % 2)
    assert model.num_clusters_ > 32
    assert np.all(np.diff(model.objective_) <= 1e-9 * model.objective_[:-1])


def test_a_cluster_that_empties_is_removed():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    model = M2DPM(penalty=30.0, warm_start=True).fit(X, [0, 1, 0, 1])
    updates = []
    model._private = {"observe": lambda update, state: updates.append(update)}
    model.cluster_centers_ = np.array([[0.5], [1000.0], [10.5]])
    model.coef_, model.intercept_ = np.array([[1.0], [2.0], [1.0]]), np.array([0.0, 1.0, 0.0])
    model.fit(X, [0, 1, 0, 1])
    assert model.num_clusters_ == 2
    at = updates.index("removal")
    assert model.objective_[at - 1] - model.objective_[at] == pytest.approx(30 + 5 / 2)


def test_single_class_is_refused():
    with pytest.raises(ValueError, match="y has one class with positive weight, 1: pass at least two classes"):
        M2DPM().fit([[0.0], [1.0]], [1, 1])
    with pytest.raises(ValueError, match="y has one class with positive weight"):
        M2DPM().fit([[0.0], [1.0]], [0, 1], sample_weight=[0.0, 1.0])
    with pytest.raises(ValueError, match="y has one class"):
        M2DPM().fit([[0.0]], [1])


def test_a_cluster_of_one_class_is_legal():
    X = np.array([[0.0], [0.1], [0.2], [20.0], [20.1], [20.2]])
    model = M2DPM(penalty=20.0).fit(X, [0, 0, 0, 0, 1, 1])
    assert model.num_clusters_ == 2
    assert model.predict([[0.1]]).tolist() == [0]


def test_duplicates_and_constant_columns():
    X = np.column_stack([np.repeat([0.0, 10.0], 20), np.full(40, 3.0), np.zeros(40)])
    y = np.tile([0, 1], 20)
    model = M2DPM(penalty=20.0).fit(X, y)
    assert model.num_clusters_ == 2
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.diff(model.objective_) <= 1e-9 * model.objective_[:-1])
    same = M2DPM().fit(np.ones((10, 2)), np.arange(10) % 2)
    assert same.num_clusters_ == 1
    assert same.penalty_ > 0


def test_warm_start_goes_on():
    X, z = make_data("gaussian")
    y = make_labels(X, z, 3)
    model = M2DPM(penalty=100.0, warm_start=True, max_iter=3)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 before the objective settled"):
        before = model.fit(X, y).objective_[-1]
    model.set_params(max_iter=300).fit(X, y)
    assert model.objective_[0] <= before * (1 + 1e-9)
    assert model.fit(X, y).n_iter_ <= 3
    with pytest.raises(ValueError, match=r"the fit before had .* pass the same classes, or set warm_start=False"):
        model.fit(X, np.arange(len(X)) % 2)


def test_large_data_on_random_parts():
    X, z = make_data("gaussian", n=70_000, d=3, K=6, scale=20.0, seed=2)
    y = make_labels(X, z, 2)
    model = M2DPM(penalty=60.0, random_state=0).fit(X, y)
    assert adjusted_rand_score(model.labels_, z) > 0.95
    assert np.all(np.diff(model.objective_) <= 1e-6 * model.objective_[:-1])
    assert model.score(X, y) > 0.8


def test_a_search_compiles_once_per_fold_shape(monkeypatch):
    X, z = make_data("gaussian", n=723, d=7, K=3)
    y = make_labels(X, z, 2)
    traces = []

    def counted(*arguments, chunk=sweeps._chunk):
        traces.append(arguments[-1])
        return chunk(*arguments)

    monkeypatch.setattr(sweeps, "_chunk", counted)
    grid = {"penalty": [20.0, 80.0, None], "cost": [0.1, 1.0], "prior_scale": [0.5, 2.0]}
    GridSearchCV(M2DPM(), grid, cv=5, error_score="raise").fit(X, y)
    # Folds of 578 and 579 data fill one chunk.
    assert traces == [2]


def test_tiny_data_compile_nothing():
    X, z = make_data("gaussian", n=sweeps.TINY, d=6)
    before = sweeps._sweep._cache_size()
    M2DPM(penalty=50.0).fit(X, make_labels(X, z, 3))
    assert sweeps._sweep._cache_size() == before


@pytest.mark.parametrize("num_classes", [0, 2, 3])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_host_and_devices_agree_on_a_pass(likelihood, num_classes, monkeypatch):
    X, z = make_data(likelihood, n=90, d=3)
    rng = np.random.default_rng(0)
    codes = np.unique(make_labels(X, z, max(num_classes, 2)), return_inverse=True)[1]
    y = (2.0 * codes - 1 if num_classes == 2 else 1.0 * codes) if num_classes else None
    weight, norm = rng.integers(0, 3, 90) / 2, np.sum(X**2, axis=1) + 1
    mu = divergences.means(likelihood, np.ones(4), X[:4] + 0.5 * (X[4:8] - X[:4]))
    eta = rng.normal(size=(4, sweeps.num_scores(num_classes), 4))
    active = np.array([True, False, True, True])
    former = np.asarray(rng.choice([0, 2, 3], 90), np.int32)
    passes, hyper = [], sweeps.PassSettings(0.7, 0.3, 1.2, 0.9)
    for tiny in (sweeps.TINY, 0):
        monkeypatch.setattr(sweeps, "TINY", tiny)
        data = sweeps.layout(X, y, weight, norm, likelihood, num_classes)
        slots = np.zeros(data.shape, np.int32)
        slots[0, :90] = former
        passes.append(sweeps.sweep(data, slots, mu, active, eta, hyper))
    host, devices = passes
    assert np.array_equal(np.ravel(host.z), np.ravel(devices.z)[:90])
    for name in ("weight", "total", "spread", "before", "loss", "saving", "index", "dearest"):
        assert np.ravel(getattr(host, name)) == pytest.approx(np.ravel(getattr(devices, name)), rel=1e-9, abs=1e-9)
    # The largest saving is that of the creations: what a datum pays, less a cluster of its own.
    problem = descent.ClusterProblem(likelihood, num_classes, True, hyper, 1.0)
    losses = descent.losses(eta, np.column_stack([X - data.origin, np.ones(90)]), y, problem)
    paid = 0.7 * divergences.divergence(likelihood, X, mu) + 2 * 0.3 * losses
    _, alone, share = descent.one_point(np.column_stack([X, np.ones(90)]), y, weight, problem)
    saving = weight * np.min(paid[:, active], axis=1) - 2 * 0.3 * weight * alone - share
    assert host.saving == pytest.approx(np.max(saving), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("clustering_weight", "cost", "ell", "prior_scale") for value in (0.0, -1.0, "1", None)]
    + [("penalty", -1.0), ("order", "random"), ("likelihood", "cauchy")],
)
def test_invalid_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}: {name} must be"):
        M2DPM(**{name: value}).fit([[0.0], [1.0]], [0, 1])


def test_data_outside_the_support_are_named():
    with pytest.raises(ValueError, match="X has the entry -1 with likelihood='poisson'"):
        M2DPM("poisson").fit([[0.0], [-1.0]], [0, 1])
