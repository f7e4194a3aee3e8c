"""Expectations under the conjugate laws of ``models.families``, for NumPy and, to be differentiated, for JAX."""

from typing import Any

import jax.scipy.special
import numpy as np
import scipy.special

Array = np.ndarray


def special_of(x: Any) -> Any:
    """The special functions for an array of NumPy or of JAX."""
    return scipy.special if isinstance(x, np.ndarray | np.generic | float) else jax.scipy.special


def expectations(likelihood: str, tau: Array, count: Array, variance: float) -> tuple[Array, Array, Array]:
    """``E theta`` (..., d), ``E psi`` (...) and the log normaliser (...) of a conjugate law, see ``models.families``.

    The first two are the derivatives of the third by ``tau`` and, with the other sign, by ``count``.
    """
    s = special_of(tau)
    xp = tau.__array_namespace__()
    c = xp.asarray(count)[..., None]
    if likelihood == "gaussian":
        d = tau.shape[-1]
        square = xp.sum((tau / c) ** 2, axis=-1) / (2 * variance)
        return tau / (variance * c), square + d / (2 * count), square * count - d / 2 * xp.log(count)
    if likelihood == "bernoulli":
        psi = s.digamma(c) - s.digamma(c - tau)
        log_normaliser = s.gammaln(tau) + s.gammaln(c - tau) - s.gammaln(c)
        return s.digamma(tau) - s.digamma(c - tau), xp.sum(psi, axis=-1), xp.sum(log_normaliser, axis=-1)
    if likelihood == "poisson":
        log_normaliser = xp.sum(s.gammaln(tau) - tau * xp.log(c), axis=-1)
        return s.digamma(tau) - xp.log(c), xp.sum(tau / c, axis=-1), log_normaliser
    total = xp.sum(tau, axis=-1)
    log_normaliser = xp.sum(s.gammaln(tau), axis=-1) - s.gammaln(total)
    return s.digamma(tau) - s.digamma(total)[..., None], 0 * total, log_normaliser


def row_constants(likelihood: str, X: Array, variance: float) -> tuple[Array, Array]:
    """``size(x)`` and ``h(x)`` of each row, (n,), see ``models.families``."""
    n, d = X.shape
    if likelihood == "gaussian":
        h = -np.einsum("nd,nd->n", X, X) / (2 * variance) - d / 2 * np.log(2 * np.pi * variance)
        return np.ones(n), h
    if likelihood == "bernoulli":
        return np.ones(n), np.zeros(n)
    log_factorials = np.sum(scipy.special.gammaln(X + 1), axis=1)
    if likelihood == "poisson":
        return np.ones(n), -log_factorials
    size = np.sum(X, axis=1)
    return size, scipy.special.gammaln(size + 1) - log_factorials
