"""Latent feature means: scikit-learn's contract, the objective after every single update, the kernels' limit."""

import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.inference import ibp_collapsed, ibp_slice, ilsvm_slice
from regbayes.inference.limits import LatentFeatureMeans, MaxMarginFeatureMeans
from regbayes.inference.limits import feature_means as module
from regbayes.models import ibp, ilsvm


def make_data(n=40, d=4, K=3, num_classes=3, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.integers(0, 2, (n, K))
    X = Z @ (2 * rng.normal(size=(K, d))) + noise * rng.normal(size=(n, d))
    return X, Z @ np.arange(1, K + 1) % num_classes, Z


def objective(X, Z, A, penalty, weight=1.0):
    assert Z.any(axis=0).all() or not Z.size
    return weight * sum(np.sum((x - z @ A) ** 2) for x, z in zip(X, Z, strict=True)) + penalty * len(A)


def margin_part(model, X, y, Z, eta):
    inputs = [Z, *([X] if model.extra_features else []), *([np.ones((len(X), 1))] if model.fit_intercept else [])]
    scores = np.column_stack(inputs) @ eta.T
    loss = [
        max(s[k] + model.ell * (k != label) for k in range(len(s))) - s[label]
        for s, label in zip(scores, y, strict=True)
    ]
    return np.sum(eta**2) / (2 * model.prior_scale**2) + 2 * model.cost * np.sum(loss)


@parametrize_with_checks([LatentFeatureMeans(n_init=1), MaxMarginFeatureMeans(n_init=2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("penalty", [None, 0.5, 8.0, 1e6])
@pytest.mark.parametrize("seed", range(3))
def test_no_update_raises_the_objective(seed, penalty):
    X, _, _ = make_data(seed=seed)
    model, seen = LatentFeatureMeans(penalty, n_init=1, tol=0), []
    model._private = {"observe": lambda update, d: seen.append((update, d.state.Z, d.state.A))}
    model.fit(X)
    J = model.objective_
    assert J[0] == pytest.approx(np.sum(X**2))
    values = [
        objective(X, Z[:, Z.any(0)], A[Z.any(0)], model.penalty_) + model.penalty_ * np.sum(~Z.any(0))
        for _, Z, A in seen
    ]
    np.testing.assert_allclose(J[1:], values, rtol=1e-9)
    assert np.all(np.diff(J) < 0)
    assert model.num_features_ == 0 if penalty == 1e6 else model.num_features_ > 0
    assert J[-1] == pytest.approx(objective(X, model.features_, model.feature_means_, model.penalty_))


@pytest.mark.parametrize(("cost", "ell", "nu"), [(0.01, 1.0, 1.0), (1.0, 2.0, 0.5), (5.0, 1.0, 3.0)])
@pytest.mark.parametrize("options", [{}, {"extra_features": False}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_no_update_raises_the_objective_with_a_margin(num_classes, options, cost, ell, nu):
    X, y, _ = make_data(num_classes=num_classes, seed=1)
    model = MaxMarginFeatureMeans(3.0, 0.7, cost, ell, nu, n_init=1, tol=0, max_iter=60, **options)
    seen = []
    model._private = {"observe": lambda update, d: seen.append((update, d.state))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    J, values = model.objective_, []
    for _, state in seen:
        value = 0.7 * np.sum((X - state.Z @ state.A) ** 2) + 3.0 * len(state.A)
        values.append(value + margin_part(model, X, y, state.Z, state.eta))
    np.testing.assert_allclose(J[1:], values, rtol=1e-9)
    assert np.all(np.diff(J) < 0)
    assert {"birth", "means", "weights"} <= {update for update, _ in seen}
    end = objective(X, model.features_, model.feature_means_, 3.0, 0.7)
    parts = [model.coef_, model.input_coef_, *([model.intercept_[:, None]] if model.fit_intercept else [])]
    assert J[-1] == pytest.approx(end + margin_part(model, X, y, model.features_, np.column_stack(parts)))


def test_every_kind_of_update_is_taken():
    kinds = set()
    for seed in range(4):
        X, y, _ = make_data(n=30, K=4, noise=0.4, seed=seed)
        model = MaxMarginFeatureMeans(1.0, cost=2.0, prior_scale=3.0, n_init=1)
        model._private = {"observe": lambda update, _: kinds.add(update)}
        model.fit(X, y)
    assert kinds == {"entries", "means", "weights", "birth", "death", "exchange"}


def test_no_single_change_of_five_data_does_better():
    """Neither another value of an entry, with the means fitted, nor one datum's rest as a feature."""
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(5, 2)) * 2
        model = LatentFeatureMeans(penalty=1.0, tol=0).fit(X)
        J, Z, A = model.objective_[-1], model.features_, model.feature_means_
        for i, k in itertools.product(range(5), range(len(A))):
            moved = Z.copy()
            moved[i, k] = 1 - moved[i, k]
            assert np.sum((X - moved @ A) ** 2) + len(A) >= J - 1e-9
        residual = X - Z @ A
        assert np.max(np.sum(residual**2, axis=1)) <= 1.0 + 1e-9
        for k in range(len(A)):
            rest = np.delete(Z, k, 1)
            fit = np.linalg.lstsq(rest, X)[0]
            assert np.sum((X - rest @ fit) ** 2) + len(fit) >= J - 1e-9


def test_clear_features_are_found():
    X, y, _ = make_data(n=80, noise=0.05, seed=3)
    model = LatentFeatureMeans(penalty=10.0, n_init=10, random_state=1).fit(X)
    assert model.num_features_ == 3
    assert np.sqrt(np.mean((model.inverse_transform(model.transform(X)) - X) ** 2)) < 0.1
    classifier = MaxMarginFeatureMeans(penalty=10.0, prior_scale=5.0, extra_features=False, random_state=0).fit(
        X[:60], y[:60]
    )
    assert classifier.score(X[60:], y[60:]) > 0.9
    assert classifier.transform(X).shape == (80, classifier.num_features_)


def test_features_of_new_data_are_the_best(monkeypatch):
    rng = np.random.default_rng(0)
    A, X = rng.normal(size=(4, 3)), rng.normal(size=(20, 3))
    codes = np.array(list(itertools.product([0, 1], repeat=4)))
    squares = np.sum((X[:, None] - codes @ A) ** 2, axis=2)
    found = np.sum((X - module.features_of(X, A) @ A) ** 2, axis=1)
    np.testing.assert_allclose(found, squares.min(1))
    monkeypatch.setattr(module, "EXACT", 0)
    Z = module.features_of(X, A)
    for k in range(4):
        moved = Z.copy()
        moved[:, k] = 1 - moved[:, k]
        assert np.all(np.sum((X - moved @ A) ** 2, axis=1) >= np.sum((X - Z @ A) ** 2, axis=1) - 1e-9)


def test_a_limit_on_features_is_warned_of():
    X, _, _ = make_data()
    with pytest.warns(ConvergenceWarning, match="max_features=1"):
        model = LatentFeatureMeans(penalty=1.0, max_features=1).fit(X)
    assert model.num_features_ == 1
    assert model.overflow_
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        LatentFeatureMeans(penalty=1.0, max_iter=1).fit(X)


@pytest.mark.parametrize(
    ("name", "value"), [("penalty", -1.0), ("cost", 0.0), ("ell", np.nan), ("max_features", 0), ("tol", -1)]
)
def test_invalid_parameters_are_named(name, value):
    X, y, _ = make_data()
    with pytest.raises(ValueError, match=f"{name} must be"):
        MaxMarginFeatureMeans(**{name: value}).fit(X, y)


# ----- The kernels' limit

BETA, PENALTY = 500.0, 4.0
COLD = {"noise_scale": (2 * BETA) ** -0.5, "concentration": np.exp(-BETA * PENALTY / 10), "feature_scale": 10.0}


def cold_state(kernel, args, settings, sites):
    target = kernel.target(args, settings)
    z = kernel.init(random.key(0), 0, None, args, settings).z
    M = z["Z"].shape[1]
    pad = lambda value: np.concatenate([value, np.zeros((len(value), M - value.shape[1]))], 1)  # noqa: E731
    z |= {site: jnp.asarray(pad(value), z[site].dtype) for site, value in sites.items() if site != "eta"}
    if "eta" in sites:
        eta = np.asarray(z["eta"])
        eta = np.concatenate([sites["eta"][:, :-1], eta[:, sites["eta"].shape[1] - 1 : -1], sites["eta"][:, -1:]], 1)
        z["eta"] = jnp.asarray(eta)
    moves = {type(move).__name__ + str(move.sites): move for move in kernel.moves}
    return z, moves, target


@pytest.mark.parametrize("margin", [False, True], ids=["ibp", "ilsvm"])
def test_at_large_beta_a_sweep_takes_the_step_of_the_limit(margin):
    """Entries column by column with the means, then the means given the entries."""
    X, y, Z = make_data(n=20)
    rng = np.random.default_rng(3)
    A = np.linalg.lstsq(Z, X)[0] + 0.5 * rng.normal(size=(3, 4))
    Z = np.where(rng.uniform(size=Z.shape) < 0.7, Z, 1 - Z) * 1.0
    cost, nu, eta = 0.5, 1.0, rng.normal(size=(3, 4))  # three features and an intercept
    part = module.FeatureMargin(y, np.ones((20, 1)), cost, 1.0, nu) if margin else None
    state = module.FeatureState(Z, A, eta if margin else np.zeros((0, 3)), np.zeros((20, 3)))
    descent = module.FeatureDescent(X, state, PENALTY, margin=part)
    for k in range(3):
        descent.accept("entries", descent.entered(descent.state, k))
    assert np.any(descent.state.Z != Z)
    with jax.enable_x64(True):
        settings, args = dict(COLD), (X.copy(),)
        program = functools.partial(ibp, max_features=5)
        if margin:
            settings |= {"cost": BETA * cost, "prior_scale": nu / BETA**0.5}
            args, program = (X.copy(), y), functools.partial(ilsvm, max_features=5, num_classes=3)
        kernel = (ilsvm_slice if margin else ibp_slice)(program)
        sites = {"Z": Z, "W": A.T, **({"eta": eta} if margin else {})}
        z, moves, target = cold_state(kernel, args, settings, sites)
        z = moves["StickSlices('Z',)"].step(random.split(random.key(0), 2), z, None, target, {})[0]
        np.testing.assert_array_equal(z["Z"][:, :3], descent.state.Z)
        assert not np.any(z["Z"][:, 3:])
        z = moves["Conditional('W',)"].step(random.split(random.key(1), 2), z, None, target, {})[0]
    means = descent.fitted_means(descent.state).A
    np.testing.assert_allclose(np.asarray(z["W"])[:, :3].T, means, atol=6 / np.sqrt(2 * BETA))


def test_at_large_beta_collapsed_entries_lower_the_objective_at_the_best_means():
    """With the means integrated out an entry is the one that is cheaper once the means are fitted to it."""
    X, _, truth = make_data(n=14, d=3, K=2, seed=2)
    rng = np.random.default_rng(1)
    start = np.where(rng.uniform(size=truth.shape) < 0.75, truth, 1 - truth) * 1.0
    Z, value = start.copy(), lambda Z: np.sum((X - Z @ np.linalg.lstsq(Z, X)[0]) ** 2)
    for i, k in itertools.product(range(14), range(2)):
        both = [np.where((np.arange(14) == i)[:, None] & (np.arange(2) == k), v, Z) for v in (0.0, 1.0)]
        assert min(Z.sum(0)) > 1  # no datum has a feature to itself
        Z = min(both, key=value)
    assert np.any(start != Z)
    with jax.enable_x64(True):
        settings = {"noise_scale": 40**-0.5, "concentration": np.exp(-20 * 30.0), "feature_scale": 10.0}  # no births
        kernel = ibp_collapsed(functools.partial(ibp, max_features=4))
        z, moves, target = cold_state(kernel, (X.copy(),), settings, {"Z": start, "W": np.zeros((3, 2))})
        found = moves["FeatureSweep('Z', 'W')"].step(random.split(random.key(0), 4), z, None, target, {})[0]["Z"]
    np.testing.assert_array_equal(found[:, :2], Z)
    assert not np.any(found[:, 2:])


def test_at_large_beta_a_birth_is_the_limit_s():
    """A datum opens a feature of its own if what is left of it is more than the price."""
    X = np.array([[3.0, 0.0], [3.0, 0.0], [0.0, 1.5], [0.0, 0.0], [3.0, 2.5]])
    Z, beta = np.array([[1.0], [1.0], [0.0], [0.0], [1.0]]), 100.0
    with jax.enable_x64(True):
        settings = {
            "noise_scale": (2 * beta) ** -0.5,
            "concentration": len(X) * np.exp(-beta * PENALTY),
            "feature_scale": 3.0,
        }
        kernel = ibp_collapsed(functools.partial(ibp, max_features=4))
        z, moves, target = cold_state(kernel, (X.copy(),), settings, {"Z": Z, "W": np.array([[3.0], [0.0]])})
        z = moves["FeatureSweep('Z', 'W')"].step(random.split(random.key(0), 4), z, None, target, {})[0]
        found = np.asarray(z["Z"])
    used = found[:, found.any(0)]
    # 1.5^2 < 4 does not, 2.5^2 > 4 does.
    assert used.shape == (5, 2)
    assert used[:, used.sum(0) == 1].tolist() == [[0], [0], [0], [0], [1]]
    assert used[2].sum() == 0
