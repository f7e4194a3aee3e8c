r"""The max-margin clustering topic model (MMCTM).

    phi, mu_0, mu_k, gamma, y, z, w as in the cluster-based topic model (:mod:`regbayes.models.ctm`)
    eta_k ~ N(0, v I),   x_i = (n_i1, ..., n_iT) / N_i                       the share of each topic in document i
    phi_i = exp(-2 c [max_k (ell 1[k != y_i] + eta_k'x_i) - eta_{y_i}'x_i])    a margin between all K clusters

A document without words has ``x_i = 0``.

**References**

1. *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS (2014), section 5.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from .ctm import clustered_tokens
from .factors import multiclass_hinge
from .laws.arguments import check_positive
from .laws.corpora import tokens_of


def mmctm(
    X: Any,
    landmarks: ArrayLike | None = None,
    *,
    num_clusters: int | None = None,
    num_topics: int = 50,
    alpha: ArrayLike = 10.0,
    alpha_0: ArrayLike = 10.0,
    alpha_1: ArrayLike = 10.0,
    beta: ArrayLike = 0.01,
    omega: ArrayLike = 0.1,
    cost: ArrayLike = 9.0,
    ell: ArrayLike = 0.1,
    prior_scale: ArrayLike = 0.1**0.5,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (D, V) counts of words in documents, dense or SciPy's CSR, or a :class:`~regbayes.models.Corpus`.
    :param landmarks: (D,) clusters in ``0..K-1`` of documents where they are known, -1 elsewhere. Without any, the
        margin can gather all documents in one cluster.
    :param num_clusters: ``K``; counted in ``landmarks`` when not given.
    :param num_topics: ``T``.
    :param alpha: it and the other letters as for :func:`~regbayes.models.ctm`.
    :param cost: ``c``, the weight of the margin.
    :param ell: the margin.
    :param prior_scale: ``sqrt(v)``, the standard deviation of the weights' prior.

    **Example**: from where a chain of the model without a margin ended.

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X, landmarks), settings = regbayes.zoo["mmctm"].example()
    >>> first = MCMC(regbayes.zoo["ctm"].kernels["collapsed"](), num_warmup=20, num_samples=1, progress_bar=False)
    >>> first.run(random.key(0), X, landmarks, **settings)
    >>> mcmc = MCMC(regbayes.zoo["mmctm"].kernels["collapsed"](), num_warmup=5, num_samples=5, progress_bar=False)
    >>> mcmc.run(random.key(1), X, landmarks, init_params=first.last_state.z, **settings)
    >>> mcmc.get_samples()["eta"].shape
    (5, 3, 4)
    """
    corpus = tokens_of(X)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    masses = {"alpha": alpha, "alpha_0": alpha_0, "alpha_1": alpha_1, "beta": beta, "omega": omega}
    y, z, num_clusters = clustered_tokens(corpus, landmarks, num_clusters, num_topics, **masses)
    weights = dist.Normal(0.0, prior_scale).expand([num_clusters, num_topics]).to_event(2)
    eta = numpyro.sample("eta", weights, infer={"event_dims": ["cluster", "topic"]})
    x = corpus.proportions(z, num_topics, jnp.result_type(float))
    multiclass_hinge("margin", x @ eta.T, y, cost=cost, ell=ell)
