"""The Indian buffet process: its density, its kernels against enumeration and Geweke's test, and the edges."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from feature_sets import feature_sets, keys, log_prior, log_rows, set_scores
from jax import lax, random
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC
from oracle import MAX_Z, assert_agree
from scipy.special import gammaln, logsumexp

from regbayes.diagnostics import conformance
from regbayes.inference import ibp_collapsed, ibp_slice
from regbayes.models import IndianBuffetProcess, ibp

KERNELS = {"collapsed": ibp_collapsed, "slice": ibp_slice}
SETTINGS = {"concentration": 0.8, "noise_scale": 0.6, "feature_scale": 1.4}


def data(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# ----- The density


def test_labelled_matrices_share_out_the_probability_of_their_set():
    """Each set of features has as many matrices in a buffer as the factor for equal features says."""
    M, sets = 5, feature_sets(2, 3)
    with jax.enable_x64(True):
        law = IndianBuffetProcess(0.9, 2, M)
        padded = np.concatenate([sets, np.zeros((len(sets), 2, M - 3), int)], -1)
        logs = np.asarray(law.log_prob(padded))
    codes = np.sum(padded << np.arange(2)[:, None], axis=1)
    distinct = np.array([len(set(c)) for c in codes])
    assert distinct.max() > 2
    arrangements = [
        gammaln(M + 1) - sum(gammaln(count + 1) for count in np.unique(c, return_counts=True)[1]) for c in codes
    ]
    np.testing.assert_allclose(logs + arrangements, log_prior(sets, 0.9), rtol=1e-12)


def test_the_probabilities_sum_to_one():
    sets = feature_sets(3, 9)
    assert logsumexp(log_prior(sets, 0.4)) == pytest.approx(0.0, abs=1e-6)


def test_draws_of_the_prior_have_its_probabilities():
    Z = np.asarray(IndianBuffetProcess(0.8, 3, 9).sample(random.key(0), (4000, 2))).swapaxes(0, 1)
    sets = feature_sets(3, 7)
    assert np.abs(set_scores(Z, sets, log_prior(sets, 0.8))).max() < MAX_Z
    slots = np.any(Z, axis=2).mean((0, 1))  # no slot is preferred
    assert np.abs(slots - slots.mean()).max() < MAX_Z * np.sqrt(slots.mean() / 8000)


# ----- Every move against the program


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_every_move_conforms_to_the_program(make):
    kernel = make(functools.partial(ibp, max_features=6))
    settings = {**SETTINGS, "concentration": dist.Gamma(2.0, 1.5)}
    report = conformance(kernel, data(4, 2), num_states=6, **settings)
    assert report.max_error <= 1e-8
    assert report.ok


# ----- Exhaustive enumeration

CASES = {
    "three rows": (data(3, 2) / 2, 8, 0.8),
    "four rows": (data(4, 1) / 2, 7, 0.8),
    "five rows": (data(5, 2), 4, 0.1),
}


@functools.cache
def enumerated(case):
    X, most, alpha = CASES[case]
    sets = feature_sets(len(X), most)
    logs = log_prior(sets, alpha) + log_rows(sets, X, 0.6, 1.4)
    numbers = (sets.sum(1) > 0).sum(1)
    assert np.exp(logsumexp(logs[numbers == most]) - logsumexp(logs)) < 2e-4  # what is left out is less
    return sets, logs


@functools.cache
def run(make, case, num_samples=300, num_chains=32):
    X, _, alpha = CASES[case]
    kernel = make(functools.partial(ibp, max_features=20 if make is ibp_slice else 12))  # sticks without rows too
    mcmc = MCMC(
        kernel, num_warmup=50, num_samples=num_samples, num_chains=num_chains, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(random.key(0), X, extra_fields=("overflow",), **{**SETTINGS, "concentration": alpha})
    assert not np.any(mcmc.get_extra_fields()["overflow"])
    return mcmc.get_samples(group_by_chain=True)


@pytest.mark.parametrize(
    ("make", "case"),
    [
        (ibp_collapsed, "three rows"),
        (ibp_collapsed, "four rows"),
        (ibp_slice, "four rows"),
        pytest.param(ibp_collapsed, "five rows", marks=pytest.mark.slow),
        pytest.param(ibp_slice, "five rows", marks=pytest.mark.slow),
    ],
)
def test_features_by_enumeration(make, case):
    """`pytest -rP` shows the largest score."""
    assert np.abs(set_scores(run(make, case)["Z"], *enumerated(case))).max() < MAX_Z


def test_the_loadings_are_those_of_their_features():
    """Given the features the draws of ``W Z'`` are Gaussian with the mean of a ridge regression."""
    X, draws = CASES["four rows"][0], run(ibp_collapsed, "four rows")
    Z, W = (np.asarray(draws[site], float) for site in ("Z", "W"))
    ridge = (SETTINGS["noise_scale"] / SETTINGS["feature_scale"]) ** 2
    P = Z.swapaxes(-1, -2) @ Z + ridge * np.eye(Z.shape[-1])
    mean = np.linalg.solve(P, Z.swapaxes(-1, -2) @ X)
    fitted, drawn = (Z @ mean)[..., 0], (Z @ W.swapaxes(-1, -2))[..., 0]
    spread = SETTINGS["noise_scale"] * np.sqrt(np.einsum("...nk,...kl,...nl->...n", Z, np.linalg.inv(P), Z))
    some = spread > 0
    z = (drawn - fitted)[some] / spread[some]
    assert abs(z.mean()) < MAX_Z / np.sqrt(len(z) / 8)  # rows share features, draws rows
    assert abs((z**2).mean() - 1) < MAX_Z * np.sqrt(2 / (len(z) / 8))


# ----- Geweke's test


def geweke(kernel, X, site, draw_data, statistics, num_samples=1500, num_chains=16, **settings):
    """Statistics of draws that alternate the kernel and new data, and of the prior's own."""

    def chain(key):
        key_init, key_run = random.split(key)
        first = trace(seed(kernel.model, key_init)).get_trace(X, **settings)
        z = {name: s["value"] for name, s in first.items() if s["type"] == "sample" and not s["is_observed"]}

        def step(carry, key):
            z, _ = carry
            key_data, key_kernel = random.split(key)
            data = draw_data(key_data, z)
            state = kernel.init(key_kernel, 0, z, (data,), settings)
            z = kernel.sample(state, (data,), settings).z
            return (z, data), statistics(z)

        return statistics(z), lax.scan(step, (z, X), random.split(key_run, num_samples))[1]

    return jax.jit(jax.vmap(chain))(random.split(random.key(1), num_chains))


@pytest.mark.slow
@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_geweke(make):
    n, d, M = 4, 2, 14
    program = functools.partial(ibp, max_features=M)
    settings = {**SETTINGS, "concentration": dist.Gamma(4.0, 5.0)}
    X = jnp.zeros((n, d))

    def draw_data(key, z):
        return z["Z"] @ z["W"].T + SETTINGS["noise_scale"] * random.normal(key, (n, d))

    def statistics(z):
        Z = z["Z"].astype(float)
        m = Z.sum(0)
        fitted = Z @ z["W"].T
        return jnp.stack([
            jnp.sum(m > 0), jnp.sum(m), jnp.sum(m == 1), jnp.sum(m == n), z["concentration"],
            jnp.sum(fitted[0] * fitted[1]), jnp.sum(fitted**2), jnp.sum(z["W"][:, 0] ** 2),
        ])  # fmt: skip

    _, found = geweke(make(program), X, "x", draw_data, statistics, **settings)

    def prior(key):
        sites = trace(seed(program, key)).get_trace(X, **settings)
        return statistics({name: sites[name]["value"] for name in ("Z", "W", "concentration")})

    expected = jax.jit(jax.vmap(prior))(random.split(random.key(2), 16 * 1500)).reshape(16, 1500, -1)
    assert_agree(np.asarray(found), np.asarray(expected))


# ----- Use


def test_the_features_of_clear_data_are_found():
    """Without flips of several entries 8 such chains stay at 4 to 10 features, none at the 3 there are."""
    rng = np.random.default_rng(0)
    Z = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]])[np.arange(28) % 7]
    X = Z @ (3 * rng.normal(size=(3, 5))) + 0.1 * rng.normal(size=(28, 5))
    kernel = ibp_collapsed(functools.partial(ibp, max_features=12))
    mcmc = MCMC(
        kernel, num_warmup=100, num_samples=1, num_chains=4, chain_method="vectorized", progress_bar=False
    )  # fmt: skip
    mcmc.run(random.key(0), X, noise_scale=0.1, feature_scale=3.0)
    numbers = np.asarray(mcmc.last_state.num_active)
    print(f"features of the chains {numbers}")
    assert np.sum(numbers == 3) >= 2
    drawn, W = (np.asarray(mcmc.get_samples()[site]) for site in ("Z", "W"))
    assert np.sqrt(np.mean((drawn @ W.swapaxes(1, 2) - X) ** 2)) < 0.15
    assert "active" in mcmc.sampler.get_diagnostics_str(jax.tree.map(lambda leaf: leaf[0], mcmc.last_state))


# ----- The edges


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_a_full_buffer_is_told(make):
    kernel, args, settings = make(functools.partial(ibp, max_features=2)), (data(12, 3),), {"concentration": 20.0}
    state = kernel.init(random.key(0), 0, None, args, settings)
    for _ in range(20):
        state = kernel.sample(state, args, settings)
    assert state.overflow


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_odd_data(make):
    """Zeros, data that are all the same, large ones."""
    kernel = make(functools.partial(ibp, max_features=8))

    @jax.jit
    def sweeps(X):
        state = kernel.init(random.key(0), 0, None, (X,), {})
        return lax.fori_loop(0, 10, lambda _, state: kernel.sample(state, (X,), {}), state)

    for X in (np.zeros((4, 2)), np.ones((4, 2)), 1e3 * data(4, 2)):
        state = sweeps(X)
        assert np.isfinite(state.log_joint)
        assert np.isin(state.z["Z"], [0, 1]).all()


def test_settings_that_do_not_fit_are_refused():
    for settings, message in [
        ({"max_features": 0}, "max_features must be a positive integer, found 0"),
        ({"concentration": -1.0}, "concentration must be positive"),
        ({"noise_scale": 0.0}, "noise_scale must be positive and finite, found 0"),
        ({"feature_scale": np.nan}, "feature_scale must be positive and finite, found nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            trace(seed(ibp, 0)).get_trace(data(3, 2), **settings)
    kernel, settings = (
        ibp_collapsed(functools.partial(ibp, max_features=2)),
        {"concentration": dist.LogNormal(0.0, 1.0)},
    )
    with pytest.raises(ValueError, match="Gamma prior of concentration, found LogNormal"):
        kernel.sample(kernel.init(random.key(0), 0, None, (data(3, 2),), settings), (data(3, 2),), settings)


def test_the_program_is_what_its_page_says():
    X = data(3, 2)
    Z = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0]])
    W = data(2, 3, seed=1)
    with jax.enable_x64(True):
        sites = trace(substitute(seed(ibp, 0), {"Z": Z, "W": W})).get_trace(X.copy(), max_features=3, **SETTINGS)
        logs = {name: float(jnp.sum(site["fn"].log_prob(site["value"]))) for name, site in sites.items()}
    active = Z[:, [0, 2]]
    expected = log_prior(active[None], 0.8)[0] - np.log(3 * 2)  # two different features in three slots
    assert logs["Z"] == pytest.approx(expected)
    assert logs["x"] == pytest.approx(np.sum(-(((X - Z @ W.T) / 0.6) ** 2) / 2 - np.log(0.6 * np.sqrt(2 * np.pi))))
    assert keys(Z) == keys(active)
