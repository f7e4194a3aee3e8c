"""Hyper-parameters of Gaussian clusters with means and covariances integrated out: their prior and their moves."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import multigammaln
from numpyro.distributions import Distribution

from ...models import TruncatedPoisson
from ...models.laws.arguments import check_features
from ...models.laws.normal_wishart import (
    IntegerLaw,
    NormalWishart,
    cluster_statistics,
    log_determinant,
    normal_wishart,
    split_components,
)
from ..engine.move import Augmented, Conditional, Move
from ..engine.target import Sites
from .gaussian_clusters import Clusters
from .given import given
from .hyper import concentration_move, conjugate, there, value_of
from .labels import counts_of
from .scatter_lines import ScatterGiven, ScatterLines, precisions_of

STANDS_IN = {"prior_count": 1.0, "degrees_of_freedom": None, "scatter": 1.0}
"""Values of hyper-parameters while they are being drawn: nothing reads them then."""


def component_prior(z: Sites, X: jax.Array, prior_mean, prior_count, degrees_of_freedom, scatter) -> NormalWishart:
    """The prior of the components at the current hyper-parameters."""
    values = {"prior_count": prior_count, "degrees_of_freedom": degrees_of_freedom, "scatter": scatter}
    standing = {name: STANDS_IN[name] if isinstance(value, Distribution) else value for name, value in values.items()}
    now: list[Any] = [z.get(name, value) for name, value in standing.items()]
    return normal_wishart(X, prior_mean, *now)


def clusters(z: Sites, X, **settings) -> Clusters:
    """From the program's call: data and prior about the middle of the data."""
    X, s = check_features(X), SimpleNamespace(**settings)
    origin = X.mean(0)
    prior = component_prior(z, X, s.prior_mean, s.prior_count, s.degrees_of_freedom, s.scatter)
    prior, alpha = prior._replace(mean=prior.mean - origin), value_of("concentration", s.concentration, z)
    laws = {name: value for name, value in settings.items() if isinstance(value, Distribution)}
    return Clusters(X - origin, prior, alpha, s.max_clusters, laws)


@given(clusters)
def components_given_z(z: Sites, program: Clusters) -> Distribution:
    """The occupied clusters' normal-inverse-Wishart posteriors; the empty slots count for nothing."""
    return program.posterior(z["z"]).law().mask(counts_of(z["z"], program.num_slots) > 0)


@given(clusters)
def count_given_components(components: jax.Array, rest: Sites, program: Clusters) -> Distribution:
    """``Gamma(a + K d/2, b + sum_k (mu_k - m)' Lambda_k^-1 (mu_k - m)/2)`` of ``r``."""
    law = conjugate("prior_count", program.laws["prior_count"], dist.Gamma)
    occupied = counts_of(rest["z"], program.num_slots) > 0
    C, mu = split_components(components)
    white = jnp.einsum("kde,kd->ke", C, mu - program.prior.mean)
    squares = jnp.sum(jnp.where(occupied[:, None], white**2, 0.0))
    return dist.Gamma(law.concentration + jnp.sum(occupied) * mu.shape[1] / 2, law.rate + squares / 2)


@given(clusters)
def scatter_given_components(components: jax.Array, rest: Sites, program: Clusters) -> ScatterGiven:
    """``|S|^((K nu - nu_0 - d - 1)/2) exp(-tr(P S)/2 - tr(R S^-1)/2)`` under ``S ~ IW(R, nu_0)``."""
    law = conjugate("scatter", program.laws["scatter"], dist.InverseWishart)
    occupied = counts_of(rest["z"], program.num_slots) > 0
    exponent = (jnp.sum(occupied) * program.prior.degrees - law.concentration - components.shape[-2] - 1) / 2
    return ScatterGiven(exponent, precisions_of(components, occupied), law.scale_matrix)


@given(clusters)
def degrees_given_z(rest: Sites, program: Clusters) -> Distribution:
    """``nu`` with the components integrated out, over all of its values."""
    law = conjugate("degrees_of_freedom", program.laws["degrees_of_freedom"], TruncatedPoisson)
    size, *statistics = cluster_statistics(program.data, rest["z"], program.num_slots)
    posterior, d = program.prior.given(size, *statistics), program.data.shape[1]
    log_dets = log_determinant(posterior.scatter) - log_determinant(program.prior.scatter)

    def log_evidence(nu: jax.Array) -> jax.Array:
        terms = multigammaln((nu + size) / 2, d) - multigammaln(nu / 2, d) - nu / 2 * log_dets
        return jnp.sum(jnp.where(size > 0, terms, 0.0))

    values = jnp.arange(law.low, law.high + 1).astype(size.dtype)
    return IntegerLaw(law.logits + lax.map(log_evidence, values), law.low)


def hyper_moves() -> list[Move]:
    """Of the hyper-parameters that have priors."""
    return [
        concentration_move(),
        Augmented("prior_count", components_given_z, count_given_components, when=there),
        ScatterLines("scatter", components_given_z, scatter_given_components, when=there),
        Conditional("degrees_of_freedom", degrees_given_z, when=there),
    ]
