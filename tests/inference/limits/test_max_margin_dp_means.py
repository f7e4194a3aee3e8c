"""Max-margin DP-means: scikit-learn's contract, the objective after every single update, single moves, the edges."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bregman_clusters import LIKELIHOODS, definition, make_data
from jax import random
from numpyro.infer.util import log_density
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.inference import dpmmgm_collapsed
from regbayes.inference.limits import DPMeans, MaxMarginDPMeans, divergences
from regbayes.inference.limits import max_margin_dp_means as module
from regbayes.inference.limits.sweeps import PassSettings
from regbayes.models import dpmmgm


def losses(U, eta, z):
    """(n,) from the definition, without the margin's scale."""
    found = []
    for u, k in zip(U, z, strict=True):
        rivals = [eta[j] @ u for j in range(len(eta)) if j != k]
        found.append((max(rivals) - eta[k] @ u) if rivals else -np.inf)
    return np.array(found)


def objective(model, X, z, mu, eta, penalty):
    U = np.column_stack([X, np.ones(len(X))]) if model.fit_intercept else X
    loss = np.maximum(0, model.ell + losses(U, eta, z))
    D = definition(model.likelihood, X, mu[z])
    number = len(np.unique(z))
    assert number == len(mu) == len(eta)
    return (
        np.sum(eta**2) / (2 * model.prior_scale**2)
        + 2 * model.cost * np.sum(loss)
        + model.clustering_weight * np.sum(D)
        + penalty * number
    )


def weights(model):
    return np.column_stack([model.coef_, model.intercept_]) if model.fit_intercept else model.coef_


@parametrize_with_checks([MaxMarginDPMeans()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_losses_are_the_definition():
    rng = np.random.default_rng(0)
    U, eta = rng.normal(size=(7, 3)), rng.normal(size=(4, 3))
    found = module.rival_losses(U @ eta.T, 1.5)
    for k in range(4):
        np.testing.assert_allclose(found[:, k], np.maximum(0, 1.5 + losses(U, eta, np.full(7, k))), atol=1e-12)
    tied = module.rival_losses(np.ones((1, 3)), 2.0)
    assert tied.tolist() == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("cost", "ell", "nu"), [(0.01, 1.0, 1.0), (1.0, 2.0, 0.3), (0.2, 5.0, 1.0)])
@pytest.mark.parametrize("penalty", [None, 0.02, 0.3])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_no_update_raises_the_objective(likelihood, penalty, cost, ell, nu, intercept):
    X, _ = make_data(likelihood, n=40)
    X = X - X.mean(axis=0) if likelihood == "gaussian" else X
    if penalty is not None:
        mean = divergences.means(likelihood, np.ones(1), X.mean(0)[None])
        penalty *= np.sum(divergences.divergence(likelihood, X, mean)) / 3
    model = MaxMarginDPMeans(
        likelihood, penalty, cost=cost, ell=ell, prior_scale=nu, fit_intercept=intercept, tol=0, max_iter=40
    )
    seen = []

    def observe(update, descent):
        state = descent.state
        seen.append((update, objective(model, X, state.z, state.mu, state.eta, descent.penalty)))

    model._private = {"observe": observe}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    J = model.objective_
    assert len(J) == len(seen) + 1
    np.testing.assert_allclose(J[1:], [value for _, value in seen], rtol=1e-9)
    assert np.all(np.diff(J) < 0)
    end = objective(model, X, model.labels_, model.cluster_centers_, weights(model), model.penalty_)
    assert J[-1] == pytest.approx(end, rel=1e-9)
    assert np.array_equal(np.unique(model.labels_), np.arange(model.num_clusters_))
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_every_kind_of_update_is_taken():
    """Clusters die of a margin, and open again once it costs little."""
    X, _ = make_data("gaussian", n=30)
    model = MaxMarginDPMeans(penalty=10.0, ell=1e4, prior_scale=0.01, tol=0, warm_start=True)
    seen = []
    model._private = {"observe": lambda update, _: seen.append(update)}
    model.fit(X)
    assert model.num_clusters_ == 1
    assert "death" in seen
    before = set(seen)
    seen.clear()
    model.set_params(ell=1.0, cost=0.01, prior_scale=1.0).fit(X)
    assert model.num_clusters_ > 1
    assert before | set(seen) == {"weights", "assignment", "means", "death", "birth"}
    assert np.all(np.diff(model.objective_) < 0)


def neighbours(model, X):
    """The objective of every state one datum away, weights of the others and means of their clusters kept."""
    z, mu, eta, n = model.labels_, model.cluster_centers_, weights(model), len(X)
    sizes = np.bincount(z)
    for i in range(n):
        for k in range(len(mu)):
            if k != z[i]:
                moved = np.where(np.arange(n) == i, k, z)
                kept = np.unique(moved)
                yield objective(model, X, np.searchsorted(kept, moved), mu[kept], eta[kept], model.penalty_)
        if sizes[z[i]] > 1:
            moved, means = np.where(np.arange(n) == i, len(mu), z), np.concatenate([mu, X[[i]]])

            def opened(e, moved=moved, means=means):
                return objective(model, X, moved, means, np.concatenate([eta, e[None]]), model.penalty_)

            U = np.append(X[i], 1.0)
            starts = [np.zeros(len(U)), *(eta[z[i]] + t * U for t in (0.1, 0.5))]
            yield min(minimize(opened, start, method="Nelder-Mead").fun for start in starts)


@pytest.mark.parametrize("start", ["dp-means", "one cluster"])
@pytest.mark.parametrize("cost", [1e-3, 0.05, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_no_single_move_of_six_data_does_better(seed, cost, start):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, 2)) * 2 + 3 * rng.integers(2, size=(6, 1))
    model = MaxMarginDPMeans(penalty=2.0, cost=cost, tol=0, warm_start=True)
    if start == "one cluster":
        model.set_params(penalty=1e4).fit(X)
        assert model.num_clusters_ == 1
    model.set_params(penalty=2.0).fit(X)
    J = model.objective_[-1]
    assert min(neighbours(model, X), default=np.inf) >= J - 1e-7 * abs(J)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_margin_is_the_program_s(intercept):
    """Between two sets of weights the objective changes as the program's log density does, labels held."""
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(12, 2)), np.arange(12) % 3
    options = {"cost": 0.3, "ell": 1.5, "prior_scale": 0.7}
    hyper = PassSettings(1.0, options["cost"], options["ell"], options["prior_scale"])
    found = []
    for eta in rng.normal(size=(2, 3, 2 + intercept)):
        state = module.Partition(z, np.zeros((3, 2)), eta, np.zeros((12, 3)))
        J = module.MarginDescent(X, state, "gaussian", hyper, 1.0, intercept).objective
        sites = {"z": z, "eta": np.pad(eta, [(0, 2), (0, 0)])}
        log_joint, _ = log_density(dpmmgm, (X,), {**options, "max_clusters": 5, "intercept": intercept}, sites)
        found.append((J, -float(log_joint)))
    (J, L), (J_other, L_other) = found
    assert J - J_other == pytest.approx(L - L_other, rel=1e-4)  # the program is in single precision


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_those_of_a_support_vector_machine(seed):
    X, _ = make_data("gaussian", n=40, seed=seed)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = MaxMarginDPMeans(penalty=10.0, cost=0.05, tol=0, max_clusters=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    K = model.num_clusters_
    assert K > 1
    rng = np.random.default_rng(0)
    J = model.objective_[-1]
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(20):
            eta = weights(model) + size * rng.normal(size=weights(model).shape)
            assert objective(model, X, model.labels_, model.cluster_centers_, eta, model.penalty_) > J
    np.testing.assert_allclose(weights(model).sum(axis=0), 0, atol=1e-9)


def test_the_new_weights_of_a_birth_are_best():
    rng = np.random.default_rng(1)
    A, tau = rng.normal(size=(12, 3)), rng.normal(size=12)

    def value(e):
        return e @ e / (2 * 0.7**2) + 0.6 * np.sum(np.maximum(tau - A @ e, 0))

    e = module.hinges(A, tau, 0.6, 0.7, 1e-8)
    assert value(e) < value(np.zeros(3))
    for size in (1e-3, 1e-2, 0.1, 1.0):  # convex: no direction leads down
        assert min(value(e + size * step) for step in rng.normal(size=(50, 3))) > value(e)


@pytest.mark.parametrize("penalty", [None, 60.0])
def test_without_a_margin_it_is_dp_means(penalty):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(20, 2)) + 8 * np.array(at) for at in ((0, 0), (1, 0), (0, 1))])
    wanted = DPMeans(penalty=penalty, tol=0).fit(X)
    found = MaxMarginDPMeans(penalty=penalty, cost=1e-9, tol=0).fit(X)
    assert wanted.num_clusters_ == 3
    assert adjusted_rand_score(wanted.labels_, found.labels_) == 1
    assert found.penalty_ == pytest.approx(wanted.penalty_)
    assert found.objective_[-1] == pytest.approx(wanted.objective_[-1], rel=1e-6)


def test_a_larger_cost_or_margin_leaves_fewer_clusters():
    X, _ = make_data("gaussian", n=60)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    by_cost = [MaxMarginDPMeans(penalty=3.0, cost=c, prior_scale=0.05).fit(X).num_clusters_ for c in (1e-4, 0.1, 10.0)]
    by_ell = [
        MaxMarginDPMeans(penalty=3.0, cost=0.1, ell=e, prior_scale=0.05).fit(X).num_clusters_ for e in (0.01, 1.0, 50.0)
    ]
    for numbers in (by_cost, by_ell):
        assert sorted(numbers, reverse=True) == numbers
        assert numbers[0] > numbers[-1] == 1


def test_one_cluster_pays_for_its_spread_alone():
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = MaxMarginDPMeans(penalty=1e3).fit(X)
    assert (model.num_clusters_, model.coef_.tolist(), model.intercept_.tolist()) == (1, [[0.0] * 3], [0.0])
    assert model.objective_[-1] == pytest.approx(np.sum((X - X.mean(axis=0)) ** 2) + 1e3)
    assert model.predict(10 * X).tolist() == [0] * 30


def test_prediction_weighs_divergence_and_loss():
    X, _ = make_data("gaussian", n=40)
    model = MaxMarginDPMeans(penalty=10.0, cost=0.1).fit(X)
    new = X + np.random.default_rng(3).normal(size=X.shape)
    U = np.column_stack([new, np.ones(40)])
    D = np.sum((new[:, None] - model.cluster_centers_) ** 2, axis=2)
    loss = [np.maximum(0, 1 + losses(U, weights(model), np.full(40, k))) for k in range(model.num_clusters_)]
    np.testing.assert_allclose(model.transform(new), D + 0.2 * np.stack(loss, axis=1), rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(model.predict(new), np.argmin(D + 0.2 * np.stack(loss, axis=1), axis=1))


def test_duplicates_and_constant_columns():
    X = np.repeat([[0.0, 1.0, 7.0], [5.0, 1.0, 7.0]], 6, axis=0)
    model = MaxMarginDPMeans(penalty=1.0, cost=0.01).fit(X)
    assert model.labels_.tolist() in ([0] * 6 + [1] * 6, [1] * 6 + [0] * 6)
    same = MaxMarginDPMeans().fit(np.ones((5, 2)))
    assert (same.num_clusters_, np.isfinite(same.objective_).all()) == (1, True)


def test_fewer_data_than_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 50)) + 5 * np.repeat([0, 1], 4)[:, None]
    model = MaxMarginDPMeans(cost=0.1, tol=0).fit(X)
    assert adjusted_rand_score(model.labels_, np.repeat([0, 1], 4)) == 1
    assert np.all(np.diff(model.objective_) < 0)


def test_a_single_datum():
    model = MaxMarginDPMeans().fit([[1.0, 2.0]])
    assert (model.num_clusters_, model.labels_.tolist()) == (1, [0])


def test_a_limit_on_clusters_is_warned_of():
    X = np.repeat(np.arange(5.0)[:, None] * 10, 4, axis=0)
    with pytest.warns(ConvergenceWarning, match="max_clusters=2 while a further cluster would lower"):
        model = MaxMarginDPMeans(penalty=1.0, cost=1e-4, max_clusters=2).fit(X)
    assert (model.num_clusters_, model.overflow_) == (2, True)


def test_a_limit_below_the_clusters_at_hand_holds_back_births_alone():
    X = np.repeat(np.arange(5.0)[:, None] * 10, 4, axis=0)
    model = MaxMarginDPMeans(penalty=1.0, cost=1e-4, warm_start=True).fit(X)
    assert model.num_clusters_ == 5
    assert model.set_params(max_clusters=2).fit(X).num_clusters_ == 5
    assert model.set_params(penalty=1e4).fit(X).num_clusters_ == 1


def test_few_iterations_are_warned_of():
    X, _ = make_data("gaussian", n=40)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 before the objective settled"):
        MaxMarginDPMeans(penalty=10.0, max_iter=1, tol=0).fit(X)


def test_warm_start_goes_on():
    X, _ = make_data("gaussian", n=40)
    model = MaxMarginDPMeans(penalty=10.0, cost=0.1, tol=0, warm_start=True).fit(X)
    end, labels = model.objective_[-1], model.labels_
    model.fit(X)
    assert model.objective_[0] == pytest.approx(end, rel=1e-9)
    assert (model.n_iter_, len(model.objective_)) == (1, 1)
    np.testing.assert_array_equal(model.labels_, labels)


@pytest.mark.parametrize(
    ("name", "value"),
    [("penalty", 0.0), ("cost", -1.0), ("ell", 0.0), ("prior_scale", "a"), ("clustering_weight", np.inf), ("tol", -1)],
)
def test_invalid_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        MaxMarginDPMeans(**{name: value}).fit(np.eye(3))


# ----- The tie to the sampler

SCALES = {"cost": 0.3, "ell": 1.5, "prior_scale": 0.7}
PENALTY = 0.5


def tempered(beta):
    """``exp(-beta J)`` as settings of the program: covariances held at ``I/(2 beta)``, means almost without a prior.

    Each cluster's mean costs ``sqrt(r)`` for either of its coordinates, which the concentration makes up for.
    """
    return {
        "cost": beta * SCALES["cost"],
        "ell": SCALES["ell"],
        "prior_scale": SCALES["prior_scale"] / beta**0.5,
        "concentration": np.exp(-beta * PENALTY) / 1e-6,
        "prior_count": 1e-6,
        "degrees_of_freedom": 1e13,
        "scatter": 1e13 / (2 * beta),
    }


def three_groups(n=24, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) / 3 + np.array([[0.0, 2.0], [2.0, 0.0], [-1.0, -1.0]])[np.arange(n) % 3]
    return X, rng


def descent_at(X, z, eta):
    """The limit at labels and weights, the means being those of the labels."""
    state = module.Partition(z, np.zeros((len(eta), 2)), eta, np.zeros((len(X), len(eta))))
    descent = module.MarginDescent(X, state, "gaussian", PassSettings(1.0, *SCALES.values()), PENALTY, False)
    descent.state = descent.centred(state)
    return descent


def profiled(X, z, eta):
    """``J`` at labels and weights (K, 2), clusters without data left out."""
    kept = np.unique(z)
    descent = descent_at(X, np.searchsorted(kept, z), eta[kept])
    return descent.value(descent.state)


def test_the_objective_is_the_tempered_program_s():
    """``-log p/beta`` differs from ``J`` by what vanishes as fast as ``1/beta``, between any numbers of clusters."""
    X, rng = three_groups()
    states = [(np.arange(24) % 3, rng.normal(size=(3, 2))), (np.arange(24) % 2, rng.normal(size=(2, 2)))]
    states += [(rng.integers(4, size=24), rng.normal(size=(4, 2))), (np.zeros(24, int), rng.normal(size=(1, 2)))]
    errors = []
    with jax.enable_x64(True):
        for beta in (10.0, 100.0, 1000.0):
            logs = []
            for z, eta in states:
                sites = {"z": z, "eta": np.pad(eta, [(0, 6 - len(eta)), (0, 0)])}
                logs.append(-float(log_density(dpmmgm, (X,), {**tempered(beta), "max_clusters": 6}, sites)[0]) / beta)
            J = [profiled(X, z, eta) for z, eta in states]
            errors.append(np.abs(np.diff(logs) - np.diff(J)).max())
    print(f"errors {errors} of {np.ptp(J):.1f}")
    assert errors[0] < 0.1 * np.ptp(J)
    np.testing.assert_array_less(errors[1:], np.array(errors[:-1]) / 8)


@pytest.mark.parametrize("seed", range(3))
def test_at_large_beta_a_sweep_takes_the_best_labels(seed):
    """One label after the other to where ``J``, with the best means, is least: a cluster or an empty slot.

    An empty slot's weights are there already, so they cost no more.
    """

    def price(z):
        empty = np.delete(eta, np.unique(z), axis=0)
        return profiled(X, z, eta) + np.sum(empty**2) / (2 * SCALES["prior_scale"] ** 2)

    X, rng = three_groups(seed=seed)
    z, eta = rng.integers(3, size=24), 0.5 * rng.normal(size=(6, 2))
    expected = z.copy()
    for i in range(24):
        moved = [np.where(np.arange(24) == i, k, expected) for k in range(6)]
        expected = moved[int(np.argmin([price(labels) for labels in moved]))]
    assert not np.array_equal(expected, z)
    with jax.enable_x64(True):
        kernel = dpmmgm_collapsed(functools.partial(dpmmgm, max_clusters=6), split_merge=0)
        (sweep,) = [move for move in kernel.moves if "z" in move.sites]
        sites, target = {"z": jnp.asarray(z), "eta": jnp.asarray(eta)}, kernel.target((X,), tempered(1000.0))
        sites = sweep.step(random.split(random.key(0), 1), sites, None, target, {})[0]
    np.testing.assert_array_equal(sites["z"], expected)


def test_at_large_beta_the_sampler_stays_at_the_limit():
    """Sweeps descend to a minimum of ``J`` and then do what an update of the limit does: nothing."""
    X, rng = three_groups()
    with jax.enable_x64(True):
        kernel = dpmmgm_collapsed(functools.partial(dpmmgm, max_clusters=6), overrelaxation=0.0, split_merge=0)
        settings = tempered(1000.0)
        start = {"z": rng.integers(3, size=24), "eta": np.pad(0.5 * rng.normal(size=(3, 2)), [(0, 3), (0, 0)])}
        state = kernel.init(random.key(0), 0, start, (X,), settings)
        sweep = lambda state, _: (lambda new: (new, new.z))(kernel.sample(state, (X,), settings))  # noqa: E731
        _, draws = jax.jit(lambda state: jax.lax.scan(sweep, state, None, length=1000))(state)
    labels, eta = (np.asarray(draws[site]) for site in ("z", "eta"))
    values = [profiled(X, labels[s], eta[s]) for s in (0, *range(800, 1000))]
    kept = np.unique(labels[-1])
    assert np.all(labels[800:] == labels[-1])
    descent = descent_at(X, np.searchsorted(kept, labels[-1]), eta[-1, kept])
    fitted = descent.fitted(descent.state)
    best, noise = descent.value(fitted), fitted.eta.size / 1000  # at most a unit of beta J for each weight
    print(f"J {values[0]:.3f}, then {np.mean(values[1:]):.3f}; the least {best:.3f}, K={len(kept)}")
    assert values[0] > best + 2 * noise
    assert abs(np.mean(values[1:]) - best) < 2 * noise
    np.testing.assert_array_equal(descent.assigned(fitted).z, fitted.z)
