r"""Bregman divergences of the exponential families: what a likelihood becomes in its small-variance limit.

Each is affine in statistics ``t(x)`` of the datum, with coefficients that depend on the mean ``mu`` alone:

.. math:: D(x, \mu) = \varphi(x) + a(\mu) - b(\mu) \cdot t(x).

===========  =================================  =====================  ==========  ==========  ===================
likelihood   ``D``                              ``phi``                ``t``       ``a``       ``b``
===========  =================================  =====================  ==========  ==========  ===================
gaussian     ``|x - mu|^2``                     ``|x|^2``              ``x``       ``|mu|^2``  ``2 mu``
poisson      ``sum x log(x/mu) - x + mu``       ``sum x log x - x``    ``x``       ``sum mu``  ``log mu``
bernoulli    ``sum x log(x/mu)``                ``sum x log x``        ``x, 1-x``  ``0``       ``log mu,``
             ``+ (1-x) log((1-x)/(1-mu))``      ``+ (1-x) log(1-x)``                           ``log(1-mu)``
multinomial  ``sum x log(x/(N mu))``,           ``sum x log(x/N)``     ``x``       ``0``       ``log mu``
             ``N = sum x``
===========  =================================  =====================  ==========  ==========  ===================

The best ``mu`` of a cluster is the weighted mean of its data, for the multinomial its counts summed and
normalised [1]. ``0 log 0`` is 0; ``log mu`` is bounded below, so a mean on the boundary is very far from, not
undefined for, a datum that it excludes.

References:

1. *Clustering with Bregman divergences*, A. Banerjee, S. Merugu, I. Dhillon and J. Ghosh, JMLR (2005)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import xlogy

Array = np.ndarray

LIKELIHOODS = ("gaussian", "poisson", "bernoulli", "multinomial")
TINY = 1e-300  # its logarithm is finite in single precision too


def check_likelihood(likelihood: Any) -> None:
    """Refuse an unknown likelihood."""
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood={likelihood!r}: likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}.")


def check_support(likelihood: str, X: Array) -> None:
    """Refuse data (n, d) outside the support."""
    if likelihood == "gaussian":
        return
    least, most = np.min(X), np.max(X)
    if least < 0:
        wanted = "entries from 0 to 1" if likelihood == "bernoulli" else "counts of at least 0"
        raise ValueError(
            f"Negative values in data: X has the entry {least:g} with likelihood={likelihood!r}; "
            f"pass {wanted}, or another likelihood."
        )
    if likelihood == "bernoulli" and most > 1:
        raise ValueError(
            f"X has the entry {most:g} with likelihood='bernoulli'; pass entries from 0 to 1, or another likelihood."
        )


def potential(likelihood: str, X: Array) -> Array:
    """``phi(x)``, (n,)."""
    if likelihood == "gaussian":
        return np.einsum("nd,nd->n", X, X)
    terms = xlogy(X, X)
    if likelihood == "poisson":
        terms -= X
    elif likelihood == "bernoulli":
        terms += xlogy(1 - X, 1 - X)
    total = np.sum(terms, axis=1)
    return total - xlogy(np.sum(X, axis=1), np.sum(X, axis=1)) if likelihood == "multinomial" else total


def statistics(likelihood: str, x: Any, axis: int = -1) -> Any:
    """``t(x)``, along ``axis``; NumPy or JAX."""
    xp = x.__array_namespace__()
    return xp.concatenate([x, 1 - x], axis=axis) if likelihood == "bernoulli" else x


def coefficients(likelihood: str, mu: Array) -> tuple[Array, Array]:
    """``a`` (K,) and ``b`` (K, number of statistics) of the means (K, d)."""
    if likelihood == "gaussian":
        return np.einsum("kd,kd->k", mu, mu), 2 * mu
    b = np.log(np.maximum(statistics(likelihood, mu), TINY))
    return np.sum(mu, axis=1) if likelihood == "poisson" else np.zeros(len(mu)), b


def divergence(likelihood: str, X: Array, mu: Array) -> Array:
    """``D(x, mu)``, (n, K), of data (n, d) from means (K, d).

    >>> import numpy as np
    >>> divergence("gaussian", np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
    array([[4., 5.]])
    >>> divergence("multinomial", np.array([[2.0, 0.0]]), np.array([[0.5, 0.5], [1.0, 0.0]])).round(3)
    array([[1.386, 0.   ]])
    """
    return divergences_from(likelihood, X, np.mean(mu, axis=0))(mu)


def divergences_from(likelihood: str, X: Array, origin: Array) -> Callable[[Array], Array]:
    """``D(x, mu)`` as a function of the means, with what depends on the data alone computed once.

    :param origin: (d,) a point near the data, where the terms of the Gaussian's formula do not cancel.
    """
    shift = origin if likelihood == "gaussian" else np.zeros_like(origin)
    X = X - shift
    phi, t = potential(likelihood, X)[:, None], statistics(likelihood, X)

    def of(mu: Array) -> Array:
        a, b = coefficients(likelihood, mu - shift)
        D = t @ b.T
        np.subtract(a, D, out=D)
        D += phi
        return np.maximum(D, 0, out=D)

    return of


def means(likelihood: str, weight: Array, total: Array) -> Array:
    """The best ``mu`` (K, d) of clusters with total weight (K,), positive, and weighted sums of ``x`` (K, d)."""
    if likelihood == "multinomial":
        counts = np.sum(total, axis=1, keepdims=True)
        return np.where(counts > 0, total / np.where(counts > 0, counts, 1), 1 / total.shape[1])
    mu = total / weight[:, None]
    return np.minimum(mu, 1) if likelihood == "bernoulli" else mu


def mean_gain(likelihood: str, weight: Array, total: Array, new: Array, old: Array) -> float:
    """The fall of ``sum_i w_i D(x_i, mu)`` when the means go from ``old`` to the best, ``new`` (K, d).

    It is the divergence between the means, times the weight: exact where a difference of sums would cancel.
    """
    if likelihood == "gaussian":
        return float(weight @ np.sum((new - old) ** 2, axis=1))
    if likelihood == "multinomial":
        weight = np.sum(total, axis=1)
    a, b = coefficients(likelihood, old)
    gain = potential(likelihood, new) + a - np.sum(b * statistics(likelihood, new), axis=1)
    return float(weight @ np.maximum(gain, 0))
