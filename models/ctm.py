r"""The cluster-based topic model (CTM).

    phi_t ~ Dir(beta 1_V),   mu_0 ~ Dir(alpha_0/T 1_T),   mu_k ~ Dir(alpha_1 mu_0)     topics; clusters' proportions
    gamma ~ Dir(omega 1_K),   y_i ~ gamma                                              a document's cluster
    theta_i ~ Dir(alpha mu_{y_i}),   z_il ~ theta_i,   w_il ~ phi_{z_il}               its words

with ``theta`` integrated out. The text prints ``mu_0 ~ Dir(alpha_0 1_T)``, its samplers use ``alpha_0/T``, as here.
*Landmarks* are documents whose cluster is known: site ``landmarks``, observed.

**References**

1. *Cluster-based topic modeling*, Wallach, in *Structured topic models for language*, PhD thesis, Cambridge (2008).
2. *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS (2014), section 5.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from .laws.arguments import check_positive
from .laws.corpora import (
    Corpus,
    FlooredDirichlet,
    KnownLabels,
    TokenTopics,
    TopicWords,
    check_landmarks,
    check_num_topics,
    tokens_of,
)


def ctm(
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
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (D, V) counts of words in documents, dense or SciPy's CSR, or a :class:`~regbayes.models.Corpus`.
    :param landmarks: (D,) clusters in ``0..K-1`` of documents where they are known, -1 elsewhere. Where one cluster has
        landmarks, all must.
    :param num_clusters: ``K``; counted in ``landmarks`` when not given.
    :param num_topics: ``T``.
    :param alpha: how closely documents follow their cluster's proportions.
    :param alpha_0: total mass of the prior of ``mu_0``.
    :param alpha_1: how closely clusters follow ``mu_0``.
    :param beta: of the topics' Dirichlet prior; small for topics of few words.
    :param omega: of the clusters' Dirichlet prior.

    **Example**

    >>> import regbayes
    >>> (X, landmarks), settings = regbayes.zoo["ctm"].example()
    >>> dt = regbayes.fit("ctm", X, landmarks, **settings, num_warmup=10, num_samples=20, num_chains=2, progress=False)
    >>> dt["posterior"]["y"].shape == (2, 20, len(X))
    True
    """
    masses = {"alpha": alpha, "alpha_0": alpha_0, "alpha_1": alpha_1, "beta": beta, "omega": omega}
    clustered_tokens(tokens_of(X), landmarks, num_clusters, num_topics, **masses)


def clustered_tokens(
    corpus: Corpus,
    landmarks: ArrayLike | None,
    num_clusters: int | None,
    num_topics: int,
    *,
    alpha: ArrayLike,
    alpha_0: ArrayLike,
    alpha_1: ArrayLike,
    beta: ArrayLike,
    omega: ArrayLike,
) -> tuple[jax.Array, jax.Array, int]:
    """Topics, clusters, labels, tokens' topics and words: the labels (D,), the tokens' topics (N,), and ``K``."""
    check_num_topics(num_topics)
    check_positive(alpha=alpha, alpha_0=alpha_0, alpha_1=alpha_1, beta=beta, omega=omega)
    known, num_clusters = check_landmarks(landmarks, corpus.num_documents, num_clusters)
    dtype = jnp.result_type(float)
    alpha, alpha_0, alpha_1, beta, omega = (jnp.asarray(a, dtype) for a in (alpha, alpha_0, alpha_1, beta, omega))
    topics = FlooredDirichlet(beta * jnp.ones((num_topics, corpus.num_words), dtype)).to_event(1)
    phi = numpyro.sample("phi", topics, infer={"event_dims": ["topic", "word"]})
    shares = FlooredDirichlet(alpha_0 / num_topics * jnp.ones(num_topics, dtype))
    mu0 = numpyro.sample("mu0", shares, infer={"event_dims": ["topic"]})
    around = FlooredDirichlet(alpha_1 * mu0).expand([num_clusters]).to_event(1)
    mu = numpyro.sample("mu", around, infer={"event_dims": ["cluster", "topic"]})
    sizes = FlooredDirichlet(omega * jnp.ones(num_clusters, dtype))
    gamma = numpyro.sample("gamma", sizes, infer={"event_dims": ["cluster"]})
    if known is None:
        known = jnp.full(corpus.num_documents, -1)
    else:
        law = dist.Categorical(gamma).expand([corpus.num_documents]).mask(known >= 0).to_event(1)
        numpyro.sample("landmarks", law, obs=jnp.maximum(known, 0))
    y = numpyro.sample("y", KnownLabels(jnp.log(gamma), known), infer={"event_dims": ["document"], "labels": "cluster"})
    z = numpyro.sample("z", TokenTopics(alpha * mu[y], corpus), infer={"event_dims": ["token"], "labels": "topic"})
    numpyro.sample("words", TopicWords(phi, z), obs=corpus.words)
    return y, z, num_clusters
