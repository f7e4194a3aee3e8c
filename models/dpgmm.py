r"""The Dirichlet process mixture of Gaussians (DPGMM).

    z ~ CRP(alpha)                                           the partition, labels in a buffer of slots
    Lambda_k ~ IW(S, nu),   mu_k | Lambda_k ~ N(m, Lambda_k/r)         each cluster's covariance and mean
    x_i | z_i = k ~ N(mu_k, Lambda_k)

The components are integrated out, so ``z`` is what is left to infer: moves that draw ``mu`` and ``Lambda`` and then
single labels hardly ever change the number of clusters. :func:`~regbayes.inference.dpgmm_components` draws them given a
partition, :func:`~regbayes.inference.dpgmm_log_density` is their predictive density.

**References**

1. *The infinite Gaussian mixture model*, Rasmussen, NIPS (2000).
2. *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS (2014), section 4.
"""

import numpyro
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .laws.arguments import check_features, check_slots, hyper
from .laws.distributions import ChineseRestaurantProcess
from .laws.normal_wishart import GaussianClusters, IntegerLaw, NormalWishart, normal_wishart


def dpgmm(
    X: ArrayLike,
    *,
    max_clusters: int = 64,
    concentration: ArrayLike | Distribution = 1.0,
    prior_mean: ArrayLike = 0.0,
    prior_count: ArrayLike | Distribution = 0.1,
    degrees_of_freedom: ArrayLike | Distribution | None = None,
    scatter: ArrayLike | Distribution = 1.0,
) -> None:
    """The program; see the module's page for the generative process. The defaults are for standardised data.

    :param X: (n, d) data.
    :param max_clusters: slots of the buffer: storage, not a truncation. A kernel that fills it says so.
    :param concentration: ``alpha``, or a ``Gamma`` prior for it.
    :param prior_mean: ``m``, a number or (d,).
    :param prior_count: ``r``, how many earlier observations the prior of a mean is worth, or a ``Gamma`` prior for it.
    :param degrees_of_freedom: ``nu``, above ``d - 1``, or a :class:`~regbayes.models.TruncatedPoisson` prior for it; by
        default ``d + 2``, the covariances' prior mean being then ``S``.
    :param scatter: ``S``, a number (times the identity) or (d, d), positive definite, or an ``InverseWishart`` prior,
        the paper's. (Under the conjugate prior, a Wishart, the density would grow without bound as ``S`` becomes
        singular wherever enough rows lie in a hyperplane, as rounded numbers do.)

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X,), _ = regbayes.zoo["dpgmm"].example()
    >>> mcmc = MCMC(regbayes.zoo["dpgmm"].kernels["collapsed"](), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(random.key(0), X)
    >>> regbayes.inference.dpgmm_log_density(mcmc.get_samples(), X, X[:5]).shape
    (5,)
    """
    X = check_features(X)
    check_slots(max_clusters)
    alpha = hyper("concentration", concentration)
    prior = component_prior(X, prior_mean, prior_count, degrees_of_freedom, scatter)
    partition = ChineseRestaurantProcess(alpha, len(X), max_clusters)
    z = numpyro.sample("z", partition, infer={"event_dims": ["datum"], "labels": "cluster"})
    numpyro.sample("x", GaussianClusters(prior, z, max_clusters), obs=X)


def component_prior(X, prior_mean, prior_count, degrees_of_freedom, scatter) -> NormalWishart:
    """The prior of the components; what was given a prior of its own becomes a site."""
    values = {"prior_count": prior_count, "degrees_of_freedom": degrees_of_freedom, "scatter": scatter}
    if isinstance(degrees_of_freedom, IntegerLaw) and degrees_of_freedom.low < X.shape[1]:
        low, d = degrees_of_freedom.low, X.shape[1]
        raise ValueError(f"degrees_of_freedom must be at least d = {d} under its prior, found low={low}")
    for name, value in values.items():
        if isinstance(value, Distribution):
            values[name] = numpyro.sample(name, value)
    return normal_wishart(X, prior_mean, *values.values())
