"""The infinite latent SVMs: their kernels against enumeration and Geweke's test, predictions, and the edges."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from draws import sites_and_logs
from feature_sets import feature_sets, log_prior, log_rows, set_scores
from jax import random
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC
from oracle import MAX_Z, assert_agree
from scipy.special import gammaln, logsumexp
from scipy.stats import norm, qmc

from regbayes.diagnostics import conformance
from regbayes.inference import (
    FeatureFlips,
    ilsvm_collapsed,
    ilsvm_predict,
    ilsvm_slice,
    mt_ilsvm_collapsed,
    mt_ilsvm_predict,
    mt_ilsvm_slice,
)
from regbayes.inference.engine.target import outline
from regbayes.models import IndianBuffetProcess, ilsvm, mt_ilsvm

SETTINGS = {"concentration": 0.8, "noise_scale": 0.7, "feature_scale": 1.2, "prior_scale": 1.5, "cost": 0.8}
KERNELS = {"collapsed": ilsvm_collapsed, "slice": ilsvm_slice}
TASK_KERNELS = {"collapsed": mt_ilsvm_collapsed, "slice": mt_ilsvm_slice}


def data(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# ----- Every move against the program


def test_every_move_conforms_to_the_program():
    """With inputs appended and a prior of ``alpha``; the plain programs are in the test of the whole zoo."""
    settings = {**SETTINGS, "concentration": dist.Gamma(2.0, 1.5), "ell": 1.3}
    program = functools.partial(ilsvm, max_features=5, num_classes=3, extra_features=True)
    kernel = ilsvm_collapsed(program)
    report = conformance(kernel, data(4, 2), np.array([0, 1, 2, 1]), num_states=3, **settings)
    assert report.max_error <= 1e-8
    assert report.ok


@pytest.mark.parametrize("make", TASK_KERNELS.values(), ids=TASK_KERNELS)
def test_every_move_of_regression_tasks_conforms_to_the_program(make):
    X, y, task = data(4, 3), data(4, 1)[:, 0], np.array([0, 2, 0, 2])
    program = functools.partial(mt_ilsvm, max_features=5, loss="epsilon-insensitive", num_tasks=3, extra_features=True)
    report = conformance(make(program), X, y, task, num_states=3, epsilon=0.3, **SETTINGS)
    assert report.max_error <= 1e-8
    assert report.ok


# ----- Exhaustive enumeration


def log_expected(grams, log_factor):
    """(sets,) log of the mean of ``exp(log_factor(v))`` over ``v ~ N(0, gram)``, by quasi-Monte Carlo."""
    p = grams.shape[1]
    points = norm.ppf(qmc.Sobol(p, seed=0).random_base2(12))
    distinct, which = np.unique(grams.reshape(len(grams), -1), axis=0, return_inverse=True)
    found = []
    for gram in distinct.reshape(-1, p, p):
        values, vectors = np.linalg.eigh(gram)
        v = points * np.sqrt(np.maximum(values, 0)) @ vectors.T
        found.append(logsumexp(log_factor(v)) - np.log(len(v)))
    return np.array(found)[which.ravel()]


def run(kernel, args, **settings):
    mcmc = MCMC(
        kernel, num_warmup=50, num_samples=300, num_chains=32, chain_method="vectorized", progress_bar=False
    )  # fmt: skip
    mcmc.run(random.key(0), *args, extra_fields=("overflow",), **settings)
    assert not np.any(mcmc.get_extra_fields()["overflow"])
    return mcmc.get_samples(group_by_chain=True)


CASES = {
    "three data": (data(3, 2) / 2, np.array([0, 1, 1]), 7, 0.8),
    "five data": (data(5, 2) / 2, np.array([0, 1, 1, 0, 1]), 4, 0.1),
}


@functools.cache
def enumerated(case):
    """Two classes: only the difference of their scores matters, normal with covariance ``2 nu^2 (ZZ' + 11')``."""
    X, y, most, alpha = CASES[case]
    sets, cost, nu = feature_sets(len(X), most), SETTINGS["cost"], SETTINGS["prior_scale"]

    def log_factor(u):
        return -2 * cost * np.sum(np.maximum(0, 1 - (2 * y - 1) * u), axis=1)

    margin = log_expected(2 * nu**2 * (sets @ sets.swapaxes(1, 2) + 1), log_factor)
    assert np.ptp(margin) > 0.5  # the margin has a say
    return sets, log_prior(sets, alpha) + log_rows(sets, X, 0.7, 1.2) + margin


def assert_enumerated(make, case):
    X, y, _, alpha = CASES[case]
    kernel = make(functools.partial(ilsvm, max_features=18 if make is ilsvm_slice else 12, num_classes=2))
    draws = run(kernel, (X, y), **{**SETTINGS, "concentration": alpha})
    assert np.abs(set_scores(draws["Z"], *enumerated(case))).max() < MAX_Z


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_features_by_enumeration(make):
    assert_enumerated(make, "three data")


@pytest.mark.slow
@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_features_of_five_data_by_enumeration(make):
    assert_enumerated(make, "five data")


def assert_tasks_enumerated(make, loss, X, most, alpha):
    """Scores ``X Z eta_m`` with ``Z eta_m`` normal with covariance ``nu^2 ZZ'``, for each task by itself."""
    task, sets = np.array([0, 1, 0, 0]), feature_sets(X.shape[1], most)
    y = np.array([1, 0, 0, 1]) if loss == "hinge" else np.array([0.5, -2.0, 1.0, 0.0])
    cost, nu, logs = SETTINGS["cost"], SETTINGS["prior_scale"], log_prior(sets, alpha) + log_rows(sets, X.T, 0.7, 1.2)
    for m in range(2):

        def log_factor(v, own=task == m):
            f = v @ X[own].T
            zeta = 1 - (2 * y[own] - 1) * f if loss == "hinge" else np.abs(y[own] - f) - 0.2
            return -2 * cost * np.sum(np.maximum(zeta, 0), axis=1)

        logs = logs + log_expected(nu**2 * sets @ sets.swapaxes(1, 2), log_factor)
    slots = 18 if make is mt_ilsvm_slice else 12
    program = functools.partial(mt_ilsvm, max_features=slots, loss=loss, num_tasks=2, intercept=False)
    draws = run(make(program), (X, y, task), epsilon=0.2, **{**SETTINGS, "concentration": alpha})
    assert np.abs(set_scores(draws["Z"], sets, logs)).max() < MAX_Z


@pytest.mark.parametrize(
    ("kernel", "loss"), [("collapsed", "hinge"), pytest.param("slice", "epsilon-insensitive", marks=pytest.mark.slow)]
)
def test_features_of_tasks_by_enumeration(kernel, loss):
    assert_tasks_enumerated(TASK_KERNELS[kernel], loss, data(4, 2), 9, 0.8)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "loss"), [("collapsed", "epsilon-insensitive"), ("slice", "hinge")])
def test_features_of_five_inputs_by_enumeration(kernel, loss):
    assert_tasks_enumerated(TASK_KERNELS[kernel], loss, data(4, 5) / 2, 4, 0.1)


@pytest.mark.parametrize("tasks", [False, True])
def test_flips_alone_leave_the_posterior_as_it_is(tasks):
    """Given weights, of which each slot has its own: independent draws of all 512 matrices, flipped, have their law."""
    X, y, rng = data(3, 3), np.array([0, 1, 1]), np.random.default_rng(0)
    eta, task = rng.normal(size=(2, 4)), np.array([0, 1, 1])
    every = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)
    if tasks:
        f = np.einsum("nd,sdk,nk->sn", X, every, eta[task, :3]) + eta[task, 3]
    else:
        f = np.einsum("snk,k->sn", every, eta[1, :3] - eta[0, :3]) + eta[1, 3] - eta[0, 3]
    logs = -2 * SETTINGS["cost"] * np.sum(np.maximum(0, 1 - (2 * y - 1) * f), axis=1)
    logs = logs + log_rows(every, X.T if tasks else X, 0.7, 1.2)
    with jax.enable_x64(True):
        logs = logs + np.asarray(IndianBuffetProcess(4.0, 3, 3).log_prob(every))
    p = np.exp(logs - logsumexp(logs))
    S = 12_800
    Z = every[rng.choice(512, S, p=p)]
    if tasks:
        kernel, args = mt_ilsvm_collapsed(functools.partial(mt_ilsvm, max_features=3, num_tasks=2)), (X, y, task)
    else:
        kernel, args = ilsvm_collapsed(functools.partial(ilsvm, max_features=3, num_classes=2)), (X, y)
    (flips,) = (move for move in kernel.moves if isinstance(move, FeatureFlips))
    target = kernel.target(args, {**SETTINGS, "concentration": 4.0})  # few matrices are empty

    def flip(key, Z):
        z = {"Z": Z, "W": jnp.zeros((3, 3)), "eta": jnp.asarray(eta)}
        return flips.step(random.split(key, flips.num_keys), z, None, target, {})[0]["Z"]

    moved = np.asarray(jax.jit(jax.vmap(flip))(random.split(random.key(0), S), Z))
    assert np.mean(np.any(moved != Z, axis=(1, 2))) > 0.2
    codes = moved.reshape(S, 9) @ (1 << np.arange(9)[::-1])
    often = p * S > 50
    found, expected = np.bincount(codes, minlength=512)[often] / S, p[often]
    scores = (found - expected) / np.sqrt(expected * (1 - expected) / S)
    print(f"largest |z| {np.abs(scores).max():.2f} of {len(scores)} matrices")
    assert np.abs(scores).max() < MAX_Z


# ----- Geweke's test


@pytest.mark.slow
@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_geweke_without_a_margin(make):
    from test_ibp import geweke

    n, d, y = 4, 2, np.array([0, 1, 0, 1])
    settings = {**SETTINGS, "cost": 1e-9}
    program = functools.partial(ilsvm, max_features=14, num_classes=2)
    X = jnp.zeros((n, d))

    def draw_data(key, z):
        return z["Z"] @ z["W"].T + SETTINGS["noise_scale"] * random.normal(key, (n, d))

    def statistics(z):
        m = jnp.sum(z["Z"], 0)
        fitted = z["Z"] @ z["W"].T
        return jnp.stack([
            jnp.sum(m > 0), jnp.sum(m), jnp.sum(m == 1), jnp.sum(fitted**2), jnp.sum(fitted[0] * fitted[1]),
            z["eta"][0, 0], z["eta"][1, -1] ** 2, jnp.sum(m * z["eta"][0, :-1]),
        ])  # fmt: skip

    _, found = geweke(make(functools.partial(program, y=y)), X, "x", draw_data, statistics, **settings)

    def prior(key):
        sites = trace(seed(program, key)).get_trace(X, y, **settings)
        return statistics({name: sites[name]["value"] for name in ("Z", "W", "eta")})

    expected = jax.jit(jax.vmap(prior))(random.split(random.key(2), 16 * 1500)).reshape(16, 1500, -1)
    assert_agree(np.asarray(found), np.asarray(expected))


@pytest.mark.slow
@pytest.mark.parametrize("make", TASK_KERNELS.values(), ids=TASK_KERNELS)
def test_geweke_of_tasks_without_a_margin(make):
    from test_ibp import geweke

    n, d, y, task = 3, 4, np.array([0, 1, 0]), np.array([0, 1, 1])
    settings = {**SETTINGS, "cost": 1e-9}
    program = functools.partial(mt_ilsvm, y=y, task=task, max_features=14, num_tasks=2)
    X = jnp.zeros((n, d))

    def draw_data(key, z):
        return z["W"] @ z["Z"].T + SETTINGS["noise_scale"] * random.normal(key, (n, d))

    def statistics(z):
        m, fitted = jnp.sum(z["Z"], 0), z["W"] @ z["Z"].T
        return jnp.stack([
            jnp.sum(m > 0), jnp.sum(m), jnp.sum(m == 1), jnp.sum(fitted**2), jnp.sum(fitted[:, 0] * fitted[:, 1]),
            z["eta"][0, 0], z["eta"][1, -1] ** 2, jnp.sum(m * z["eta"][0, :-1]),
        ])  # fmt: skip

    _, found = geweke(make(program), X, "x", draw_data, statistics, **settings)

    def prior(key):
        sites = trace(seed(program, key)).get_trace(X, **settings)
        return statistics({name: sites[name]["value"] for name in ("Z", "W", "eta")})

    expected = jax.jit(jax.vmap(prior))(random.split(random.key(2), 16 * 1500)).reshape(16, 1500, -1)
    assert_agree(np.asarray(found), np.asarray(expected))


# ----- Predictions


def test_predictions_are_their_definition():
    """Features of a new datum by enumeration, own ones included; one draw many times over."""
    rng = np.random.default_rng(0)
    Z = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
    W, eta, X = rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), np.array([[0.5, -0.3], [1.5, 1.0]])
    alpha, noise, scale, n = 0.9, 0.8, 1.1, 4
    m, expected = Z.sum(0), []
    for x in X:
        weights, scores = [], []
        for code in itertools.product([0, 1], repeat=2):
            z = np.array([*code, 0])
            log_prior_z = np.sum(np.where(z[:2], np.log(m[:2] / (n + 1)), np.log(1 - m[:2] / (n + 1))))
            j = np.arange(9)
            variance = noise**2 + j * scale**2
            logs = j * np.log(alpha / (n + 1)) - gammaln(j + 1) - np.log(variance)
            logs = logs - np.sum((x - W @ z) ** 2) / (2 * variance)
            weights.append(log_prior_z + logsumexp(logs))
            scores.append(eta @ np.append(z, 1.0))
        p = np.exp(weights - logsumexp(weights))
        expected.append((p @ scores, np.sqrt(p @ (np.array(scores) - p @ scores) ** 2)))
    S = 2000
    draws = {name: np.repeat(value[None], S, 0) for name, value in (("Z", Z), ("W", W), ("eta", eta))}
    settings = {"concentration": alpha, "noise_scale": noise, "feature_scale": scale}
    found = ilsvm_predict(draws, X, num_sweeps=3, **settings)
    for f, (mean, spread) in zip(np.asarray(found.discriminant), expected, strict=True):
        assert np.all(np.abs(f - mean) < MAX_Z * spread * np.sqrt(2 / S) + 1e-5)
    np.testing.assert_allclose(found.votes.sum(1), 1, rtol=1e-4)
    np.testing.assert_array_equal(found.y, np.argmax(found.discriminant, 1))


def test_predictions_of_tasks_are_their_definition():
    rng = np.random.default_rng(0)
    Z, eta, X = rng.integers(0, 2, (5, 3, 4)) * [1, 1, 1, 0], rng.normal(size=(5, 2, 5)), rng.normal(size=(6, 3))
    draws = {"Z": Z, "W": np.zeros((5, 6, 4)), "eta": eta}
    f = np.mean([np.column_stack([X @ z, np.ones(6)]) @ e.T for z, e in zip(Z, eta, strict=True)], axis=0)
    found = mt_ilsvm_predict(draws, X)
    np.testing.assert_allclose(found.discriminant, f, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.y, f > 0)
    task = np.array([0, 1, 1, 0, 0, 1])
    own = mt_ilsvm_predict(draws, X, task, loss="epsilon-insensitive")
    np.testing.assert_allclose(own.y, f[np.arange(6), task], rtol=1e-4, atol=1e-5)


def test_draws_are_checked():
    Z = np.array([[[1, 0], [0, 0], [1, 0]]])
    draws, X = {"Z": Z, "W": np.zeros((1, 2, 2)), "eta": np.ones((1, 3, 3))}, np.zeros((4, 2))
    assert ilsvm_predict(draws, X).y.shape == (4,)
    with pytest.raises(ValueError, match="found no W, eta"):
        ilsvm_predict({"Z": Z}, X)
    with pytest.raises(ValueError, match="flatten chains"):
        ilsvm_predict({site: value[None] for site, value in draws.items()}, X)
    with pytest.raises(ValueError, match="must have 2 columns"):
        ilsvm_predict(draws, np.zeros((4, 3)))
    with pytest.raises(ValueError, match="intercept must be as in the fit"):
        ilsvm_predict(draws, X, intercept=False)
    with pytest.raises(ValueError, match="concentration has a prior"):
        ilsvm_predict(draws, X, concentration=dist.Gamma(1.0, 1.0))
    with pytest.raises(ValueError, match="raise max_features"):
        ilsvm_predict({**draws, "Z": np.ones((1, 3, 2), int)}, X)


# ----- Arguments


@pytest.mark.parametrize(
    ("y", "task", "settings", "message"),
    [
        (np.zeros((4, 2), int), np.zeros(4, int), {}, "task must be None"),
        (np.zeros((3, 2), int), None, {}, r"y must have shape \(4, T\)"),
        (np.zeros((4, 2), int), None, {"num_tasks": 3}, r"y must have shape \(4, 3\)"),
        (np.zeros(3, int), None, {}, r"y must have shape \(4,\) or \(4, T\)"),
        (np.array([0, 1, 2, 1]), None, {}, "labels 0 and 1"),
        (np.zeros(4), None, {}, "integer labels 0 and 1"),
        (np.array([0, 1, 1, 1]), np.array([0, 1, 2, 3]), {"num_tasks": 2}, r"task must hold integers 0..2-1"),
        (np.array([0, 1, 1, 1]), np.array([0, -1, 2, 3]), {}, r"task must hold integers 0..T-1"),
        (np.array([0, 1, 1, 1]), np.array([0.0, 1, 2, 3]), {}, "task must hold"),
        (np.array([0, 1, 1, np.nan]), None, {"loss": "epsilon-insensitive"}, "y must be finite"),
        (np.array([0, 1, 1, 1]), None, {"loss": "square"}, "loss must be one of hinge, epsilon-insensitive"),
        (np.array([0, 1, 1, 1]), None, {"num_tasks": 0}, "num_tasks must be a positive integer"),
        (np.array([0, 1, 1, 1]), None, {"epsilon": -1.0}, "epsilon must be non-negative"),
    ],
)
def test_tasks_that_do_not_fit_are_refused(y, task, settings, message):
    with pytest.raises(ValueError, match=message):
        trace(seed(mt_ilsvm, 0)).get_trace(data(4, 2), y, task, **settings)


def test_tasks_of_one_class_or_without_data_are_legal():
    y, task = np.array([1, 1, 0, 1]), np.array([0, 0, 2, 2])
    sites, logs = sites_and_logs(mt_ilsvm, data(4, 2), y, task, num_tasks=4, max_features=3)
    assert sites["eta"].shape == (4, 4)
    assert np.isfinite(np.sum(logs["margin"]))


def test_the_two_ways_to_give_tasks_agree():
    X, Y = data(3, 2), np.array([[0, 1], [1, 1], [0, 0]])
    site = lambda *args, **kwargs: trace(seed(mt_ilsvm, 0)).get_trace(*args, max_features=3, **kwargs)  # noqa: E731
    matrix = site(X, Y)["margin"]["fn"].log_factor.sum()
    once = [site(X, Y[:, m], np.full(3, m), num_tasks=2)["margin"]["fn"].log_factor.sum() for m in range(2)]
    np.testing.assert_allclose(matrix, sum(once), rtol=1e-5)


def test_programs_without_labels_say_what_they_would():
    sites = outline(ilsvm, (data(4, 2),), {"num_classes": 3})
    assert sites["f"]["value"].shape == (4, 3)
    assert sites["y"]["value"].shape == (4,)
    assert outline(mt_ilsvm, (data(4, 2),), {"num_tasks": 2})["f"]["value"].shape == (4, 2)
