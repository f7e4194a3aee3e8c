r"""The Dirichlet process max-margin Gaussian mixture (DPMMGM).

    z ~ CRP(alpha)                                           the partition, labels in a buffer of slots
    Lambda_k ~ IW(S, nu),   mu_k | Lambda_k ~ N(m, Lambda_k/r),   eta_k ~ N(0, v I)
    x_i | z_i = k ~ N(mu_k, Lambda_k)
    phi_i = exp(-2 c max(0, max over occupied k != z_i of (ell + eta_k'x_i) - eta_{z_i}'x_i))

The mixture of Gaussians (:mod:`regbayes.models.dpgmm`, components integrated out) with a margin between its clusters.
The maximum is over the clusters that hold data: over all draws of the prior it would diverge. With one cluster there
is no loss. A slot without data has ``eta`` from the prior. As in the paper ``eta`` acts on ``x`` itself, without an
intercept, or on a projection of it.

**References**

1. *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS (2014), section 4.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .dpgmm import component_prior
from .factors import multiclass_hinge
from .laws.arguments import check_features, check_positive, check_slots, hyper
from .laws.distributions import ChineseRestaurantProcess
from .laws.normal_wishart import GaussianClusters


def dpmmgm(
    X: ArrayLike,
    *,
    max_clusters: int = 64,
    concentration: ArrayLike | Distribution = 1.0,
    cost: ArrayLike = 0.1,
    ell: ArrayLike = 5.0,
    prior_scale: ArrayLike = 0.1,
    margin_features: int | Callable[[jax.Array], jax.Array] | None = None,
    intercept: bool = False,
    prior_mean: ArrayLike = 0.0,
    prior_count: ArrayLike | Distribution = 0.1,
    degrees_of_freedom: ArrayLike | Distribution | None = None,
    scatter: ArrayLike | Distribution = 1.0,
) -> None:
    """The program; see the module's page for the generative process. The defaults are for standardised data.

    :param X: (n, d) data.
    :param max_clusters: slots of the buffer: storage, not a truncation. A kernel that fills it says so.
    :param concentration: ``alpha``, or a ``Gamma`` prior for it.
    :param cost: ``c``, the weight of the margin; it, ``ell`` and ``prior_scale`` are by default those of the paper's
        half-rings.
    :param ell: the margin.
    :param prior_scale: ``sqrt(v)``, the standard deviation of the weights' prior.
    :param margin_features: what the margin sees of the data: all of them; a number of principal components, centred; or
        a function of ``X`` (n, d) that returns (n, p).
    :param intercept: append a constant 1 to what the margin sees; the paper does not.
    :param prior_mean: it and the others as for :func:`~regbayes.models.dpgmm`.

    **Example**

    >>> import regbayes
    >>> (X,), _ = regbayes.zoo["dpmmgm"].example()
    >>> dt = regbayes.fit("dpmmgm", X, num_warmup=10, num_samples=20, num_chains=2, progress=False)
    >>> dt["posterior"]["z"].shape
    (2, 20, 60)
    """
    X = check_features(X)
    check_slots(max_clusters)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    A = margin_inputs(X, margin_features, intercept)
    alpha = hyper("concentration", concentration)
    prior = component_prior(X, prior_mean, prior_count, degrees_of_freedom, scatter)
    partition = ChineseRestaurantProcess(alpha, len(X), max_clusters)
    z = numpyro.sample("z", partition, infer={"event_dims": ["datum"], "labels": "cluster"})
    weights = dist.Normal(0.0, prior_scale).expand((max_clusters, A.shape[1])).to_event(2)
    eta = numpyro.sample("eta", weights, infer={"event_dims": ["cluster", "weight"]})
    numpyro.sample("x", GaussianClusters(prior, z, max_clusters), obs=X)
    occupied = jnp.any(z[:, None] == jnp.arange(max_clusters), axis=0)
    multiclass_hinge("margin", A @ eta.T, z, cost=cost, ell=ell, competitors=occupied)


def margin_inputs(
    X: jax.Array, margin_features: int | Callable[[jax.Array], jax.Array] | None, intercept: bool
) -> jax.Array:
    """(n, p) what the margin sees of the data (n, d)."""
    if margin_features is None:
        return check_features(X, intercept=intercept)
    if callable(margin_features):
        A = margin_features(X)
        if np.ndim(A) != 2 or len(A) != len(X):
            raise ValueError(f"margin_features must return shape ({len(X)}, p), found shape {np.shape(A)}")
        return check_features(A, intercept=intercept)
    most = min(X.shape)
    if not isinstance(margin_features, int | np.integer) or not 1 <= margin_features <= most:
        raise ValueError(
            f"margin_features must be a function of X or a number of principal components in 1..{most}, found "
            f"{margin_features!r}"
        )
    centred = X - X.mean(0)
    _, _, axes = jnp.linalg.svd(centred, full_matrices=False)
    return check_features(centred @ axes[:margin_features].T, intercept=intercept)
