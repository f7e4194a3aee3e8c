r"""Exponential families with their conjugate priors: what a component of a mixture says of the inputs.

In the mean parameter ``mu`` every family here is

    p(x | mu)     = exp(<theta(mu), x> - size(x) psi(mu) + h(x))
    p(mu | m, k)  ~ the density of k earlier observations with mean m,

so that a cluster of rows turns the prior ``(k m, k)`` into ``(k m + sum x, k + sum size(x))``, and the integrated
likelihood of the cluster is ``exp(sum h(x))`` times a ratio of normalising constants.

===========  =====================  ======================  ===========================
name         x                      prior of mu             size(x)
===========  =====================  ======================  ===========================
gaussian     real                   N(m, variance/k)        1
bernoulli    0 or 1                 Beta(k m, k (1 - m))    1
poisson      counts                 Gamma(k m, rate k)      1
multinomial  counts, (d,) per row   Dirichlet(k m)          the row's total
===========  =====================  ======================  ===========================

**References**

1. *Clustering with Bregman divergences*, Banerjee, Merugu, Dhillon and Ghosh, JMLR 6 (2005).
2. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Wang and Zhu, AAAI (2014), equations (1)-(4).
"""

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betaln, gammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .arguments import check_positive, is_concrete


class Family(ABC):
    """One row of the table above. ``variance`` is read by the Gaussian alone."""

    wanted: str
    """What the inputs must be, for error messages."""

    @abstractmethod
    def default_prior(self, dim: int) -> tuple[float, float]:
        """``m`` and ``k`` when the user gives none."""

    @abstractmethod
    def legal(self, X: np.ndarray) -> np.ndarray:
        """Which entries of ``X`` are in the family's support."""

    @abstractmethod
    def legal_mean(self, mean: np.ndarray) -> np.ndarray:
        """Which prior means are inside the parameter's support."""

    @abstractmethod
    def conjugate(self, tau: jax.Array, count: jax.Array, variance: ArrayLike) -> Distribution:
        """The law of ``mu`` (..., d) for sums ``tau`` (..., d) and sizes ``count`` (...)."""

    @abstractmethod
    def log_normaliser(self, tau: jax.Array, count: jax.Array, variance: ArrayLike) -> jax.Array:
        """Of :meth:`conjugate` as a density ``exp(<theta, tau> - count psi)``, (...)."""

    @abstractmethod
    def natural(self, mu: jax.Array, variance: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """``theta`` (..., d) and ``psi`` (...)."""

    @abstractmethod
    def base(self, X: jax.Array, variance: ArrayLike) -> jax.Array:
        """``h(x)`` of each row, (n,)."""

    @abstractmethod
    def likelihood(self, mu: jax.Array, variance: ArrayLike, X: jax.Array) -> Distribution:
        """The law of rows like ``X`` (n, d), given each row's ``mu`` (n, d), as one event."""

    def size(self, X: jax.Array) -> jax.Array:
        """How many observations a row is, (n,)."""
        return jnp.ones_like(X[..., 0])

    def log_density(self, mu: jax.Array, X: jax.Array, variance: ArrayLike) -> jax.Array:
        """(K, n) log densities of the rows of ``X`` under each ``mu`` (K, d)."""
        theta, psi = self.natural(mu, variance)
        return theta @ X.T - psi[:, None] * self.size(X) + self.base(X, variance)

    def log_marginal(self, tau: jax.Array, count: jax.Array, X: jax.Array, variance: ArrayLike) -> jax.Array:
        """(n,) log densities of single rows with ``mu`` integrated out."""
        new = self.log_normaliser(tau + X, count + self.size(X), variance)
        return new - self.log_normaliser(tau, count, variance) + self.base(X, variance)

    def prior(self, dim: int, dtype: Any, mean: ArrayLike | None, count: ArrayLike | None) -> tuple[jax.Array, Any]:
        """``tau = k m`` (d,) and ``k`` from what the user gave."""
        default_mean, default_count = self.default_prior(dim)
        mean = default_mean if mean is None else mean
        if count is not None:
            check_positive(prior_count=count)
        count = jnp.asarray(default_count if count is None else count, dtype)
        if is_concrete(mean) and not self.legal_mean(np.asarray(mean)).all():
            raise ValueError(f"prior_mean must lie inside the support of a mean of {self.wanted}, found {mean}")
        if np.shape(mean) not in ((), (dim,)):
            raise ValueError(f"prior_mean must be a number or have shape ({dim},), found shape {np.shape(mean)}")
        return count * jnp.broadcast_to(jnp.asarray(mean, dtype), (dim,)), count

    def check(self, name: str, X: ArrayLike) -> None:
        """Refuse inputs outside the support."""
        if not is_concrete(X):
            return
        bad = ~self.legal(np.asarray(X))
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            found = np.asarray(X)[where]
            raise ValueError(f"likelihood={name!r} needs X to hold {self.wanted}, found {found} at {where}")


class Gaussian(Family):
    wanted = "real numbers"

    def default_prior(self, dim):
        return 0.0, 0.01

    def legal(self, X):
        return np.isfinite(X)

    def legal_mean(self, mean):
        return np.isfinite(mean)

    def conjugate(self, tau, count, variance):
        count = jnp.asarray(count)[..., None]
        return dist.Normal(tau / count, jnp.sqrt(variance / count)).to_event(1)

    def log_normaliser(self, tau, count, variance):
        d = tau.shape[-1]
        return jnp.sum(tau**2, -1) / (2 * variance * count) - d / 2 * jnp.log(count / (2 * jnp.pi * variance))

    def natural(self, mu, variance):
        return mu / variance, jnp.sum(mu**2, -1) / (2 * variance)

    def base(self, X, variance):
        return -jnp.sum(X**2, -1) / (2 * variance) - X.shape[-1] / 2 * jnp.log(2 * jnp.pi * variance)

    def likelihood(self, mu, variance, X):
        return dist.Normal(mu, jnp.sqrt(variance)).to_event(2)


class Bernoulli(Family):
    wanted = "zeros and ones"

    def default_prior(self, dim):
        return 0.5, 2.0

    def legal(self, X):
        return (X == 0) | (X == 1)

    def legal_mean(self, mean):
        return (mean > 0) & (mean < 1)

    def conjugate(self, tau, count, variance):
        return dist.Beta(tau, jnp.asarray(count)[..., None] - tau).to_event(1)

    def log_normaliser(self, tau, count, variance):
        return jnp.sum(betaln(tau, jnp.asarray(count)[..., None] - tau), -1)

    def natural(self, mu, variance):
        return jnp.log(mu) - jnp.log1p(-mu), -jnp.sum(jnp.log1p(-mu), -1)

    def base(self, X, variance):
        return jnp.zeros_like(X[..., 0])

    def likelihood(self, mu, variance, X):
        return dist.BernoulliProbs(mu).to_event(2)


class Poisson(Family):
    wanted = "counts (whole numbers from 0)"

    def default_prior(self, dim):
        return 1.0, 1.0

    def legal(self, X):
        return (X >= 0) & (X % 1 == 0)

    def legal_mean(self, mean):
        return np.isfinite(mean) & (mean > 0)

    def conjugate(self, tau, count, variance):
        return dist.Gamma(tau, jnp.asarray(count)[..., None]).to_event(1)

    def log_normaliser(self, tau, count, variance):
        return jnp.sum(gammaln(tau) - tau * jnp.log(jnp.asarray(count)[..., None]), -1)

    def natural(self, mu, variance):
        return jnp.log(mu), jnp.sum(mu, -1)

    def base(self, X, variance):
        return -jnp.sum(gammaln(X + 1), -1)

    def likelihood(self, mu, variance, X):
        return dist.Poisson(mu).to_event(2)


class Multinomial(Family):
    wanted = "counts (whole numbers from 0)"

    def default_prior(self, dim):
        return 1.0 / dim, float(dim)

    def legal(self, X):
        return (X >= 0) & (X % 1 == 0)

    def legal_mean(self, mean):
        return np.isfinite(mean) & (mean > 0)

    def size(self, X):
        return jnp.sum(X, -1)

    def conjugate(self, tau, count, variance):
        return dist.Dirichlet(tau)

    def log_normaliser(self, tau, count, variance):
        return jnp.sum(gammaln(tau), -1) - gammaln(jnp.sum(tau, -1))

    def natural(self, mu, variance):
        return jnp.log(mu), jnp.zeros_like(mu[..., 0])

    def base(self, X, variance):
        return gammaln(self.size(X) + 1) - jnp.sum(gammaln(X + 1), -1)

    def likelihood(self, mu, variance, X):
        return dist.MultinomialProbs(mu, self.size(X).astype(int)).to_event(1)


FAMILIES: dict[str, Family] = {
    "gaussian": Gaussian(),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "multinomial": Multinomial(),
}


def family(name: str) -> Family:
    """The family of that name.

    >>> family("cauchy")
    Traceback (most recent call last):
    ...
    ValueError: likelihood must be one of gaussian, bernoulli, poisson, multinomial, found 'cauchy'
    """
    if name not in FAMILIES:
        raise ValueError(f"likelihood must be one of {', '.join(FAMILIES)}, found {name!r}")
    return FAMILIES[name]
