"""Exponential families: the identities that make them conjugate, against NumPyro's own densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from scipy import stats

from regbayes.models.laws.families import FAMILIES, family

X = {
    "gaussian": np.array([[0.3, -1.0, 2.0], [1.5, 0.2, -0.7]]),
    "bernoulli": np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]),
    "poisson": np.array([[0.0, 3.0, 1.0], [2.0, 0.0, 7.0]]),
    "multinomial": np.array([[0.0, 3.0, 1.0], [2.0, 0.0, 7.0]]),
}
VARIANCE = 0.6


@pytest.mark.parametrize("name", FAMILIES)
def test_bayes_rule_holds_at_every_mean(name):
    """``p(x | mu) p(mu) = p(mu | x) p(x)``: likelihood, prior, posterior and marginal are of one piece."""
    with jax.enable_x64(True):
        law, x = family(name), jnp.asarray(X[name])
        tau, count = law.prior(3, x.dtype, None, None)
        prior = law.conjugate(tau, count, VARIANCE)
        mu = prior.sample(random.key(0), (5,))
        claimed = law.log_density(mu, x, VARIANCE) + prior.log_prob(mu)[:, None]
        posterior = law.conjugate(tau + x, count + law.size(x), VARIANCE)
        actual = posterior.log_prob(mu[:, None]) + law.log_marginal(tau, count, x, VARIANCE)
        np.testing.assert_allclose(claimed, actual, rtol=1e-9, atol=1e-9)
        each = [
            law.likelihood(mu[k][None], VARIANCE, x[i : i + 1]).log_prob(x[i : i + 1]) for k in range(5) for i in (0, 1)
        ]
        np.testing.assert_allclose(law.log_density(mu, x, VARIANCE).ravel(), each, rtol=1e-9)


def test_marginals_are_the_textbooks():
    with jax.enable_x64(True):
        found = {}
        for name, law in FAMILIES.items():
            x = jnp.asarray(X[name])
            tau, count = law.prior(3, x.dtype, None, 2.0)
            found[name] = np.asarray(law.log_marginal(tau, count, x, VARIANCE))
    expected = {
        "gaussian": stats.norm(0, np.sqrt(VARIANCE * 1.5)).logpdf(X["gaussian"]).sum(1),
        "bernoulli": np.full(2, 3 * np.log(0.5)),
        "poisson": stats.nbinom(2, 2 / 3).logpmf(X["poisson"]).sum(1),
        "multinomial": [
            stats.dirichlet_multinomial(np.full(3, 2 / 3), int(n.sum())).logpmf(n) for n in X["multinomial"]
        ],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("name", "mean", "message"),
    [
        ("gaussian", np.nan, "prior_mean must lie inside"),
        ("bernoulli", 1.0, "prior_mean must lie inside"),
        ("poisson", 0.0, "prior_mean must lie inside"),
        ("multinomial", -1.0, "prior_mean must lie inside"),
        ("gaussian", np.zeros(2), r"a number or have shape \(3,\)"),
    ],
)
def test_a_prior_outside_the_parameter_space_is_refused(name, mean, message):
    with pytest.raises(ValueError, match=message):
        family(name).prior(3, jnp.float32, mean, None)
    with pytest.raises(ValueError, match="prior_count must be positive"):
        family(name).prior(3, jnp.float32, None, 0.0)
