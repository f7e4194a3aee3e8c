"""Kernels of the cluster-based topic model (:mod:`regbayes.models.ctm`), and predictions from their draws.

The paper integrates out everything and follows the minimal path of its hierarchy of Dirichlets, an approximation; here
clusters' proportions are sites (:mod:`~regbayes.inference.moves.documents`).
"""

from collections.abc import Callable
from typing import Any

from jax.typing import ArrayLike

from ...models import KnownLabels, ctm
from ..engine.target import Sites
from ..moves.documents import (
    ClusterPrediction,
    DocumentProgram,
    Documents,
    documents,
    known_or,
    label_logits,
    plain_tokens,
)
from ..moves.given import given
from ..moves.tokens import TopicKernel, new_documents


@given(documents)
def y_given_z(z: Sites, program: Documents) -> KnownLabels:
    """``gamma_k prod_t Gamma(alpha mu_kt + n_it)/Gamma(alpha mu_kt)``: theta integrated out, all documents at once."""
    return known_or(program.landmarks, label_logits(z, program))


PROGRAM = DocumentProgram(ctm, plain_tokens, y_given_z)


def ctm_collapsed(model: Callable = ctm, *, host: bool | None = None) -> TopicKernel:
    """All documents' tokens and labels at once, given topics and proportions; documents' own are integrated out.

    :param model: the program, with structural options bound: ``functools.partial(ctm, num_topics=20)``.
    :param host: see :class:`~regbayes.inference.TokenSweep`.
    """
    return PROGRAM.kernel(model, [], host, name="ctm collapsed")


def ctm_predict(
    draws: Sites, X: Any, *, alpha: ArrayLike = 10.0, num_sweeps: int = 10, seed: int = 0, host: bool | None = None
) -> ClusterPrediction:
    """Clusters and topics of new documents, sampled given each draw of what all documents share.

    :param draws: sites ``phi`` (S, T, V), ``mu`` (S, K, T) and ``gamma`` (S, K), as from ``MCMC.get_samples()``.
    :param X: (n, V) counts of the same words.
    :param alpha: as the program was given it.
    :param num_sweeps: over the new documents for each draw; the next draw goes on from there.
    :param seed: seed of the sweeps.
    :param host: see :class:`~regbayes.inference.TokenSweep`.

    **Example**

    >>> import regbayes
    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> (X, landmarks), settings = regbayes.zoo["ctm"].example()
    >>> mcmc = MCMC(regbayes.zoo["ctm"].kernels["collapsed"](), num_warmup=10, num_samples=5, progress_bar=False)
    >>> mcmc.run(random.key(0), X, landmarks, **settings)
    >>> regbayes.inference.ctm_predict(mcmc.get_samples(), X[:5]).probabilities.shape
    (5, 3)
    """
    sites, corpus = new_documents(draws, X, ("phi", "mu", "gamma"))
    return PROGRAM.predict(sites, corpus, {"alpha": alpha}, num_sweeps=num_sweeps, seed=seed, host=host)
