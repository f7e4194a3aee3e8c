r"""Max-margin supervised topic models (MedLDA), for classes and for real responses.

    phi_t ~ Dir(beta 1_V),   eta ~ N(0, nu^2 I)                         topics; weights, one vector per class
    theta_d ~ Dir(alpha/T 1_T),   z_dl ~ theta_d,   w_dl ~ phi_{z_dl}    a document's words
    x_d = (n_d1, ..., n_dT) / N_d                                       the share of each topic in document d
    phi(y_d) = exp(-2 c [max_k (ell 1[k != y_d] + eta_k'x_d) - eta_{y_d}'x_d])    classes
    phi(y_d) = exp(-2 c max(0, |y_d - eta'x_d| - epsilon))                        responses

with ``theta`` integrated out. The paper bounds the loss of the averaged classifier, by its dual; here it is the
expected loss of the Gibbs classifier that is bounded. Shares sum to 1, so there is no intercept. A document without
words has ``x_d = 0``.

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR 15 (2014), Appendix B.
2. *MedLDA: maximum margin supervised topic models*, Zhu, Ahmed and Xing, JMLR 13 (2012).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from .factors import epsilon_insensitive, multiclass_hinge
from .laws.arguments import check_labels, check_num_classes, check_positive, check_targets
from .laws.corpora import Corpus, FlooredDirichlet, TokenTopics, TopicWords, check_num_topics, tokens_of


def medlda(
    X: Any,
    y: ArrayLike | None = None,
    *,
    cost: ArrayLike = 9.0,
    ell: ArrayLike = 0.1,
    prior_scale: ArrayLike = 1.0,
    num_classes: int | None = None,
    num_topics: int = 50,
    alpha: ArrayLike = 10.0,
    beta: ArrayLike = 0.01,
) -> None:
    """The program for classes; see the module's page for the generative process.

    :param X: (D, V) counts of words in documents, dense or SciPy's CSR, or a :class:`~regbayes.models.Corpus`.
    :param y: (D,) labels in ``0..L-1``; without them the program is the topic model alone, with sites ``f`` and ``y``
        for the scores and labels that weights of the prior, or given ones, find for its documents. For new documents
        see :func:`~regbayes.inference.medlda_predict`.
    :param cost: ``c``, the weight of the margin.
    :param ell: the margin.
    :param prior_scale: ``nu``, the standard deviation of the weights' prior.
    :param num_classes: ``L``; counted in ``y`` when not given.
    :param num_topics: ``T``.
    :param alpha: total mass of the Dirichlet prior of a document's topics.
    :param beta: of the topics' Dirichlet prior; small for topics of few words.

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X, y), settings = regbayes.zoo["medlda"].example()
    >>> mcmc = MCMC(regbayes.zoo["medlda"].kernels["collapsed"](), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y, **settings)
    >>> regbayes.inference.medlda_predict(mcmc.get_samples(), X[:5]).y.shape
    (5,)
    """
    corpus = tokens_of(X)
    if y is not None:
        y, num_classes = check_labels(y, corpus.num_documents, num_classes)
    elif num_classes is None:
        raise ValueError("num_classes must be given to predict without y, found None")
    check_num_classes(num_classes)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    z = mixed_tokens(corpus, num_topics, alpha, beta)
    weights = dist.Normal(0.0, prior_scale).expand([num_classes, num_topics]).to_event(2)
    eta = numpyro.sample("eta", weights, infer={"event_dims": ["class", "topic"]})
    f = corpus.proportions(z, num_topics, jnp.result_type(float)) @ eta.T
    if y is None:
        numpyro.deterministic("f", f)
        numpyro.deterministic("y", jnp.argmax(f, axis=-1))
        return
    multiclass_hinge("margin", f, y, cost=cost, ell=ell)


def medlda_regression(
    X: Any,
    y: ArrayLike | None = None,
    *,
    num_topics: int = 50,
    alpha: ArrayLike = 10.0,
    beta: ArrayLike = 0.01,
    cost: ArrayLike = 9.0,
    epsilon: ArrayLike = 0.1,
    prior_scale: ArrayLike = 1.0,
) -> None:
    """The program for real responses; see the module's page for the generative process.

    :param X: (D, V) counts of words in documents, dense or SciPy's CSR, or a :class:`~regbayes.models.Corpus`.
    :param y: (D,) responses, about standardised; without them the program predicts: site ``y``. For new documents see
        :func:`~regbayes.inference.medlda_regression_predict`.
    :param num_topics: ``T``.
    :param alpha: total mass of the Dirichlet prior of a document's topics.
    :param beta: of the topics' Dirichlet prior; small for topics of few words.
    :param cost: ``c``, the weight of the loss.
    :param epsilon: half the width of the tube.
    :param prior_scale: ``nu``, the standard deviation of the weights' prior.

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> entry = regbayes.zoo["medlda-regression"]
    >>> (X, y), settings = entry.example()
    >>> mcmc = MCMC(entry.kernels["collapsed"](), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y, **settings)
    >>> regbayes.inference.medlda_regression_predict(mcmc.get_samples(), X[:5]).shape
    (5,)
    """
    corpus = tokens_of(X)
    check_positive(cost=cost, prior_scale=prior_scale)
    check_positive(strict=False, epsilon=epsilon)
    if y is not None:
        y = check_targets(y, corpus.num_documents)
    z = mixed_tokens(corpus, num_topics, alpha, beta)
    eta = numpyro.sample(
        "eta", dist.Normal(0.0, prior_scale).expand([num_topics]).to_event(1), infer={"event_dims": ["topic"]}
    )
    f = corpus.proportions(z, num_topics, jnp.result_type(float)) @ eta
    if y is None:
        numpyro.deterministic("y", f)
        return
    epsilon_insensitive("tube", f, y, cost=cost, epsilon=epsilon)


def mixed_tokens(corpus: Corpus, num_topics: int, alpha: ArrayLike, beta: ArrayLike) -> jax.Array:
    """Topics, tokens' topics and words of latent Dirichlet allocation: the tokens' topics (N,)."""
    check_num_topics(num_topics)
    check_positive(alpha=alpha, beta=beta)
    dtype = jnp.result_type(float)
    prior = jnp.asarray(beta, dtype) * jnp.ones((num_topics, corpus.num_words), dtype)
    phi = numpyro.sample("phi", FlooredDirichlet(prior).to_event(1), infer={"event_dims": ["topic", "word"]})
    share = jnp.asarray(alpha, dtype) / num_topics * jnp.ones(num_topics, dtype)
    z = numpyro.sample("z", TokenTopics(share, corpus), infer={"event_dims": ["token"], "labels": "topic"})
    numpyro.sample("words", TopicWords(phi, z), obs=corpus.words)
    return z
