"""Kernels of the max-margin clustering topic model (:mod:`regbayes.models.mmctm`), and predictions from their draws.

Tokens and labels see the loss itself; weights are drawn by the augmentation, cluster by cluster, each exactly. The
paper fixes every document's strongest rival while it draws all weights, which leaves another density invariant.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...models import Corpus, KnownLabels, mmctm, tokens_of
from ..engine.move import CommonShift
from ..engine.target import Sites
from ..moves.documents import ClusterPrediction, DocumentProgram, documents, known_or, label_logits, plain_tokens
from ..moves.tokens import ClassWeights, Tokens, TopicKernel, class_margin, new_documents
from ..moves.weights import mean_eta


def tokens(z: Sites, X, landmarks, *, cost, ell, **settings) -> Tokens:
    """The program to the sweep over tokens, with a margin between clusters."""
    return plain_tokens(z, X, landmarks, **settings)._replace(margin=class_margin(z["eta"], z["y"], cost, ell))


def y_given_z(z: Sites, X, landmarks, **settings) -> KnownLabels:
    """``gamma_k prod_t Gamma(alpha mu_kt + n_it)/Gamma(alpha mu_kt)`` times every label's loss, over all clusters."""
    program = documents(z, X, landmarks, **settings)
    return known_or(landmarks, label_logits(z, program) - penalty(z, program.corpus, landmarks, **settings))


def label_losses(z: Sites, corpus: Corpus, ell) -> jax.Array:
    """(D, K) the loss with each label: ``max(s_y, ell + the largest of the others) - s_y``."""
    eta = z["eta"]
    s = corpus.proportions(z["z"], eta.shape[1], eta.dtype) @ eta.T
    if len(eta) == 1:
        return jnp.zeros_like(s)
    best = jnp.argmax(s, axis=1, keepdims=True)
    top = jnp.max(s, axis=1, keepdims=True)
    clusters = jnp.arange(len(eta))
    second = jnp.max(jnp.where(clusters == best, -jnp.inf, s), axis=1, keepdims=True)
    return jnp.maximum(ell + jnp.where(clusters == best, second, top) - s, 0.0)


def penalty(z: Sites, X, landmarks, *, cost, ell, **_) -> jax.Array:
    """(D, K) what labels pay, in logs."""
    return 2 * cost * label_losses(z, tokens_of(X), ell)


def labels(z: Sites, X, landmarks, **_) -> jax.Array:
    """The documents' clusters."""
    return z["y"]


def accuracy(z: Sites, X, landmarks, **_) -> jax.Array:
    """The share of landmarks, or without any of all documents, whose cluster has the largest score."""
    eta = z["eta"]
    found = jnp.argmax(tokens_of(X).proportions(z["z"], eta.shape[1], eta.dtype) @ eta.T, axis=1)
    known = jnp.ones(len(found), bool) if landmarks is None else jnp.asarray(landmarks) >= 0
    return jnp.sum((found == z["y"]) & known) / jnp.maximum(jnp.sum(known), 1)


PROGRAM = DocumentProgram(mmctm, tokens, y_given_z, penalty)


def mmctm_collapsed(model: Callable = mmctm, *, overrelaxation: float = 0.5, host: bool | None = None) -> TopicKernel:
    """All documents' tokens and labels at once, with their loss; weights cluster by cluster.

    It can go on from a chain of ``ctm``, the paper's way to start: ``init_params=mcmc.last_state.z``.

    :param model: the program, with structural options bound: ``functools.partial(mmctm, num_topics=20)``.
    :param overrelaxation: of the weights' draws.
    :param host: see :class:`~regbayes.inference.TokenSweep`.
    """
    weights = [ClassWeights(labels, overrelaxation), CommonShift("eta", mean_eta)]
    return PROGRAM.kernel(model, weights, host, name="mmctm collapsed", fit=accuracy)


def mmctm_predict(
    draws: Sites,
    X: Any,
    *,
    alpha: ArrayLike = 10.0,
    cost: ArrayLike = 9.0,
    ell: ArrayLike = 0.1,
    num_sweeps: int = 10,
    seed: int = 0,
    host: bool | None = None,
) -> ClusterPrediction:
    """Clusters and topics of new documents, which pay their loss as those of the fit do.

    :param draws: sites ``phi`` (S, T, V), ``mu`` (S, K, T), ``gamma`` (S, K) and ``eta`` (S, K, T).
    :param X: it and the others as for :func:`~regbayes.inference.ctm_predict`.
    :param cost: it and ``ell`` as the program was given them.

    **Example**

    >>> import regbayes
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> (X, landmarks), settings = regbayes.zoo["mmctm"].example()
    >>> mcmc = MCMC(regbayes.zoo["mmctm"].kernels["collapsed"](), num_warmup=10, num_samples=5, progress_bar=False)
    >>> mcmc.run(random.key(0), X, landmarks, **settings)
    >>> regbayes.inference.mmctm_predict(mcmc.get_samples(), X[:5]).y.shape
    (5,)
    """
    sites, corpus = new_documents(draws, X, ("phi", "mu", "gamma", "eta"))
    settings = {"alpha": alpha, "cost": cost, "ell": ell}
    return PROGRAM.predict(sites, corpus, settings, num_sweeps=num_sweeps, seed=seed, host=host)
