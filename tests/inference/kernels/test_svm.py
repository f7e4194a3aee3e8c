"""The three support vector machines: their kernels against NUTS, against each other, and against their limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro.infer import MCMC, NUTS
from oracle import assert_agree

import regbayes
from regbayes.datasets import make_multiclass_svm
from regbayes.inference import draw_chains, em_step
from regbayes.inference.moves.augmentation import class_rows

NAMES = ["svm", "multiclass-svm", "svr"]
KERNELS = [(name, kernel) for name in NAMES for kernel in ("augmentation", "slice")]


@functools.cache
def data(name):
    if name == "multiclass-svm":
        return make_multiclass_svm(60, 2, num_classes=4, seed=1)[:2]
    return regbayes.zoo[name].example()[0]


def run(kernel, args, cost=1.0, *, num_samples=5000, num_warmup=200, **settings):
    """By the loop of our own: equal kernels, shapes and numbers of chains are compiled once."""
    lengths = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": 4, "progress": False}
    return draw_chains(kernel, args, {"cost": cost}, **lengths, **settings)


def draw(kernel, args, *, num_samples, num_warmup=200, num_chains=4, chain_method="vectorized", key=0):
    """By NumPyro's."""
    settings = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains}
    mcmc = MCMC(kernel, chain_method=chain_method, progress_bar=False, **settings)
    mcmc.run(random.key(key), *args)
    return np.asarray(mcmc.get_samples(group_by_chain=True)["eta"])


@functools.cache
def nuts(name, num_samples=1000):
    return draw(NUTS(regbayes.zoo[name].program), data(name), num_samples=num_samples, num_warmup=300, key=1)


@pytest.mark.parametrize(("name", "kernel"), KERNELS[:2])
def test_kernels_agree_with_nuts(name, kernel):
    draws = run(regbayes.zoo[name].kernels[kernel](), data(name)).sites["eta"]
    assert_agree(draws, nuts(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_kernels_agree_with_nuts_on_many_draws(name, kernel):
    draws = run(regbayes.zoo[name].kernels[kernel](), data(name), num_samples=50_000, seed=2).sites["eta"]
    assert_agree(draws, nuts(name, 10_000))


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_plain_scheme_agrees_with_nuts(name):
    options = {"overrelaxation": 0.0} | ({} if name == "svr" else {"rescale": False})
    kernel = regbayes.zoo[name].kernels["augmentation"](**options)
    assert_agree(run(kernel, data(name)).sites["eta"], nuts(name))


@pytest.mark.parametrize("kernel", ["augmentation", pytest.param("slice", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "chain_method",
    ["sequential", "parallel", "vectorized", jax.vmap],
    ids=["sequential", "parallel", "vectorized", "vmap"],
)
def test_chain_methods_agree(kernel, chain_method):
    sampler = regbayes.zoo["svm"].kernels[kernel]()
    draws = draw(sampler, data("svm"), num_samples=2000, num_chains=2, chain_method=chain_method, key=5)
    assert np.isfinite(draws).all()
    assert not np.array_equal(draws[0], draws[1])
    assert_agree(draws, nuts("svm"))


@pytest.mark.parametrize("kernel", ["augmentation", "slice"])
def test_a_far_start_is_forgotten(kernel):
    start = {"eta": 1e3 * jnp.ones(2)}
    draws = run(regbayes.zoo["svm"].kernels[kernel](), data("svm"), num_samples=2000, init_params=start).sites["eta"]
    assert_agree(draws, nuts("svm"))


def rows(name, eta, k, X, y):
    """The hinge rows of the weights (of class ``k``), in NumPy: a second derivation of what the kernels use."""
    if name == "svm":
        return (2 * y - 1)[:, None] * X, np.ones(len(X))
    if name == "svr":
        return np.concatenate([X, -X]), np.concatenate([y - 0.1, -y - 0.1])
    sgn, tau = class_rows(X @ eta.T, y, k, 1.0)
    return sgn[:, None] * X, tau


@pytest.mark.parametrize("name", NAMES)
def test_at_large_beta_a_sweep_takes_the_step_of_the_limit(name):
    X, y = data(name)
    with jax.enable_x64(True):
        X, y = np.asarray(X, float), np.asarray(y, float if name == "svr" else int)
        options = {"overrelaxation": 0.0} | ({} if name == "svr" else {"rescale": False})
        kernel = regbayes.zoo[name].kernels["augmentation"](**options)
        start = np.random.default_rng(0).normal(size=(4, 2) if name == "multiclass-svm" else 2)
        expected = np.array(start)
        for k in range(4 if name == "multiclass-svm" else 1):
            A, tau = rows(name, expected, k, X, y)
            block = k if name == "multiclass-svm" else slice(None)
            expected[block] = em_step(A, tau, expected[block], 1.0, 1.0)
        errors = []
        for beta in (1e4, 1e8, 1e12):
            settings = {"cost": beta, "prior_scale": beta**-0.5}
            state = kernel.init(random.key(0), 0, {"eta": jnp.asarray(start)}, (X, y), settings)
            errors.append(np.abs(kernel.sample(state, (X, y), settings).z["eta"] - expected).max())
        # The noise about the step is of order 1/sqrt(beta): a factor of 100 each time.
        assert errors[2] < errors[1] / 10 < errors[0] / 100
        assert errors[2] < 1e-4


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_extreme_costs_and_features_give_finite_draws(name, kernel, double):
    X, y = data(name)
    with jax.enable_x64(double):
        sampler = regbayes.zoo[name].kernels[kernel]()
        X = jnp.asarray(X, float if double else jnp.float32)
        y = y if name != "svr" else jnp.asarray(y, X.dtype)
        for scale in (1.0, 1e4):
            for cost in (1e-6, 1.0, 1e6):
                draws = run(sampler, (scale * X, y), cost, num_warmup=0, num_samples=30)
                eta = draws.sites["eta"]
                assert eta.dtype == (np.float64 if double else np.float32)
                assert np.isfinite(eta).all(), (scale, cost)
                assert np.isfinite(draws.log_joint).all(), (scale, cost)
                if double:
                    assert len(np.unique(eta[0, ..., 0])) > 1, (scale, cost)


def test_new_data_of_equal_shape_need_no_new_kernel():
    mcmc = MCMC(regbayes.zoo["svm"].kernels["slice"](), num_warmup=10, num_samples=500, progress_bar=False)
    mcmc = MCMC(mcmc.sampler, num_warmup=10, num_samples=500, progress_bar=False, jit_model_args=True)
    (X, y), _ = regbayes.zoo["svm"].example()
    mcmc.run(random.key(0), X, y)
    first = mcmc.get_samples()["eta"].mean(0)
    mcmc.run(random.key(0), X, 1 - y)
    assert np.sign(first) == pytest.approx(-np.sign(mcmc.get_samples()["eta"].mean(0)))
