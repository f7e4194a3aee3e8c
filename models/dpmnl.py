r"""The Dirichlet process mixture of multinomial logits (dpMNL).

    z ~ CRP(alpha)                                                        the partition, labels in a buffer of slots
    sigma2_kj ~ InverseGamma(a, b),   mu_kj | sigma2_kj ~ N(m_j, sigma2_kj/k0)       each slot's inputs, per feature
    beta_kl ~ N(0, nu^2 I)                                                each slot's coefficients, one row per class
    x_ij | z_i = k ~ N(mu_kj, sigma2_kj)
    y_i | z_i = k ~ Categorical(softmax(beta_k [x_i, 1]))

Inside a component the classes are divided by straight lines; the mixture bends them. Unlike the margin of the
infinite SVM (:mod:`regbayes.models.isvm`) the logit is a likelihood, so the model is generative. The paper has
hyper-priors on the scales ``b``, ``k0`` and ``nu`` and a log-normal prior of the variances; here they are fixed and
conjugate, and ``alpha`` may have a prior. A slot that holds no datum has parameters from the prior.

**References**

1. *Nonlinear models using Dirichlet process mixtures*, Shahbaba and Neal, JMLR 10 (2009).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .laws.arguments import (
    check_features,
    check_labels,
    check_num_classes,
    check_positive,
    check_slots,
    hyper,
    is_concrete,
)
from .laws.distributions import ChineseRestaurantProcess


def dpmnl(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    num_classes: int | None = None,
    concentration: ArrayLike | Distribution = 1.0,
    prior_scale: ArrayLike = 1.0,
    prior_mean: ArrayLike = 0.0,
    prior_count: ArrayLike = 0.1,
    variance_shape: ArrayLike = 2.0,
    variance_scale: ArrayLike = 1.0,
    intercept: bool = True,
    max_clusters: int = 64,
) -> None:
    """The program; see the module's page for the generative process. The defaults are for standardised inputs.

    :param X: (n, d) inputs.
    :param y: (n,) labels in ``0..L-1``; without them the program is the mixture of the inputs alone, with sites ``f``
        (n, L) and ``y`` for the scores and labels that the data's own components give. For new inputs see
        :func:`~regbayes.inference.dpmnl_predict`.
    :param num_classes: ``L``; counted in ``y`` when not given, and 2 without labels.
    :param concentration: ``alpha``, or a ``Gamma`` prior for it.
    :param prior_scale: ``nu``, the standard deviation of the coefficients' prior.
    :param prior_mean: ``m``, mean of the components' means, a number or (d,).
    :param prior_count: ``k0``, how many earlier observations their prior is worth.
    :param variance_shape: ``a`` of the components' variances; their prior mean is ``b/(a - 1)``.
    :param variance_scale: ``b`` of the same, a number or (d,).
    :param intercept: append a constant 1 to the logits' inputs.
    :param max_clusters: slots of the buffer: storage, not a truncation. A kernel that fills it says so.

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X, y), _ = regbayes.zoo["dpmnl"].example()
    >>> mcmc = MCMC(regbayes.zoo["dpmnl"].kernels["collapsed"](), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y)
    >>> regbayes.inference.dpmnl_predict(mcmc.get_samples(), X[:5]).y.shape
    (5,)
    """
    A, X = check_features(X, intercept=intercept), check_features(X)
    n, d = X.shape
    check_slots(max_clusters)
    check_positive(prior_scale=prior_scale)
    m, k0, a, b = prior_of_inputs(X, prior_mean, prior_count, variance_shape, variance_scale)
    if y is not None:
        y, num_classes = check_labels(y, n, num_classes)
    check_num_classes(num_classes)
    alpha = hyper("concentration", concentration)

    z = numpyro.sample(
        "z", ChineseRestaurantProcess(alpha, n, max_clusters), infer={"event_dims": ["datum"], "labels": "cluster"}
    )
    inputs = {"event_dims": ["cluster", "input"]}
    sigma2 = numpyro.sample("sigma2", dist.InverseGamma(a, b).expand([max_clusters, d]).to_event(2), infer=inputs)
    mu = numpyro.sample("mu", dist.Normal(m, jnp.sqrt(sigma2 / k0)).to_event(2), infer=inputs)
    shape = (max_clusters, num_classes or 2, A.shape[1])
    logits = dist.Normal(0.0, prior_scale).expand(shape).to_event(3)
    beta = numpyro.sample("beta", logits, infer={"event_dims": ["cluster", "class", "weight"]})
    numpyro.sample("x", dist.Normal(mu[z], jnp.sqrt(sigma2[z])).to_event(2), obs=X)
    f = jnp.einsum("nd,nld->nl", A, beta[z])
    if y is None:
        numpyro.deterministic("f", f)
        numpyro.deterministic("y", jnp.argmax(f, axis=-1))
    else:
        numpyro.sample("y", dist.Categorical(logits=f).to_event(1), obs=y)


def prior_of_inputs(
    X: jax.Array, prior_mean: ArrayLike, prior_count: ArrayLike, variance_shape: ArrayLike, variance_scale: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """``m`` (d,), ``k0``, ``a`` and ``b`` (d,) of the normal-inverse-gamma prior, from what the user gave."""
    check_positive(prior_count=prior_count, variance_shape=variance_shape, variance_scale=variance_scale)
    if is_concrete(prior_mean) and not np.isfinite(np.asarray(prior_mean, float)).all():
        raise ValueError(f"prior_mean must be finite, found {prior_mean}")
    d = X.shape[1]
    for name, value in (("prior_mean", prior_mean), ("variance_scale", variance_scale)):
        if np.shape(value) not in ((), (d,)):
            raise ValueError(f"{name} must be a number or have shape ({d},), found shape {np.shape(value)}")
    for name, value in (("prior_count", prior_count), ("variance_shape", variance_shape)):
        if np.shape(value) != ():
            raise ValueError(f"{name} must be a number, found shape {np.shape(value)}")
    m, b = (jnp.broadcast_to(jnp.asarray(value, X.dtype), (d,)) for value in (prior_mean, variance_scale))
    return m, jnp.asarray(prior_count, X.dtype), jnp.asarray(variance_shape, X.dtype), b
