"""Clusters of exponential families, and their divergences written out."""

import numpy as np
from scipy.special import rel_entr

from regbayes.inference.limits import divergences

LIKELIHOODS = divergences.LIKELIHOODS


def make_data(likelihood, n=200, d=4, K=4, scale=6.0, seed=0):
    """``X`` (n, d) from ``K`` clusters of the family, and their labels."""
    rng = np.random.default_rng(seed)
    z = rng.integers(0, K, n)
    if likelihood == "gaussian":
        return rng.normal(scale=scale, size=(K, d))[z] + rng.normal(size=(n, d)), z
    if likelihood == "poisson":
        return rng.poisson(rng.gamma(1.0, 10.0, size=(K, d))[z]).astype(float), z
    if likelihood == "bernoulli":
        return rng.binomial(1, rng.beta(0.3, 0.3, size=(K, d))[z]).astype(float), z
    return np.array([rng.multinomial(30, p) for p in rng.dirichlet(np.full(d, 0.5), size=K)[z]]).astype(float), z


def definition(likelihood, x, mu):
    """``D(x, mu)`` written out, along the last axis."""
    if likelihood == "gaussian":
        return np.sum((x - mu) ** 2, axis=-1)
    if likelihood == "poisson":
        return np.sum(rel_entr(x, mu) - x + mu, axis=-1)
    if likelihood == "bernoulli":
        return np.sum(rel_entr(x, mu) + rel_entr(1 - x, 1 - mu), axis=-1)
    return np.sum(rel_entr(x, np.sum(x, axis=-1, keepdims=True) * mu), axis=-1)
