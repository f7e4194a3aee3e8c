"""Kernels of max-margin supervised topic models (:mod:`regbayes.models.medlda`), and predictions from their draws."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.typing import ArrayLike

from ...models import Corpus, medlda, medlda_regression, tokens_of
from ...models.laws import cores as on_cores
from ...models.laws.arguments import check_labels, check_targets
from ..engine.move import Augmented, CommonShift
from ..engine.predictions import Prediction
from ..engine.target import Sites
from ..moves.augmentation import columnwise
from ..moves.tokens import (
    ClassWeights,
    Probabilities,
    Tokens,
    TokenSweep,
    TopicKernel,
    class_margin,
    new_documents,
    no_margin,
    num_topics_used,
    phi_given_z,
    sweep_tokens,
    tube_margin,
)
from ..moves.weights import Hinges, mean_eta, of_weights, tube_rows


def plain_tokens(z: Sites, corpus: Corpus, alpha) -> Tokens:
    """Latent Dirichlet allocation to the sweep over tokens."""
    T, dtype = len(z["phi"]), z["phi"].dtype
    base = jnp.full((1, T), alpha / T, dtype)
    return Tokens(corpus, z["phi"], base, jnp.zeros(corpus.num_documents, jnp.int32), no_margin(corpus, T, dtype))


def tokens(z: Sites, X, y, *, num_classes, alpha, cost, ell, **_) -> Tokens:
    """The program to the sweep over tokens: latent Dirichlet allocation, and the classes' margin."""
    corpus = tokens_of(X)
    plain = plain_tokens(z, corpus, alpha)
    if y is None:
        return plain
    y = check_labels(y, corpus.num_documents, len(z["eta"]))[0]
    return plain._replace(margin=class_margin(z["eta"], y, cost, ell))


def response_tokens(z: Sites, X, y, *, alpha, cost, epsilon, **_) -> Tokens:
    """The program to the sweep over tokens: latent Dirichlet allocation, and the tube."""
    corpus = tokens_of(X)
    plain = plain_tokens(z, corpus, alpha)
    if y is None:
        return plain
    y = check_targets(y, corpus.num_documents).astype(z["eta"].dtype)
    return plain._replace(margin=tube_margin(z["eta"], y, cost, epsilon))


def labels(z: Sites, X, y, **_) -> jax.Array:
    """The documents' classes."""
    return check_labels(y, len(y), len(z["eta"]))[0]


def hinges(z: Sites, X, y, *, num_topics, cost, epsilon, prior_scale, **_) -> Hinges:
    """The two hinges of every document's tube."""
    x = tokens_of(X).proportions(z["z"], num_topics, jnp.result_type(float))
    A, tau = tube_rows(x, check_targets(y, len(x)).astype(x.dtype), epsilon)
    return Hinges(columnwise(A), tau, cost, jnp.asarray(prior_scale, A.dtype) ** -2.0)


omega_given_eta, eta_given_omega = of_weights(hinges)


def accuracy(z: Sites, X, y, **_) -> jax.Array:
    """The share of documents whose class has the largest score."""
    eta = z["eta"]
    found = jnp.argmax(tokens_of(X).proportions(z["z"], eta.shape[1], eta.dtype) @ eta.T, axis=1)
    return jnp.mean(found == jnp.asarray(y))


def mean_error(z: Sites, X, y, **_) -> jax.Array:
    """The mean of ``|y - f|``."""
    eta = z["eta"]
    return jnp.mean(jnp.abs(tokens_of(X).proportions(z["z"], len(eta), eta.dtype) @ eta - jnp.asarray(y)))


def medlda_collapsed(model: Callable = medlda, *, overrelaxation: float = 0.5, host: bool | None = None) -> TopicKernel:
    """All documents' tokens at once with their loss, then topics, then weights class by class.

    :param model: the program, with structural options bound: ``functools.partial(medlda, num_topics=20)``.
    :param overrelaxation: of the weights' draws.
    :param host: see :class:`~regbayes.inference.TokenSweep`.
    """
    moves = [
        Probabilities("phi", phi_given_z),
        ClassWeights(labels, overrelaxation),
        CommonShift("eta", mean_eta),
        TokenSweep(tokens, host),
    ]
    return TopicKernel(model, moves, name="medlda collapsed", num_active=num_topics_used, fit=accuracy)


def medlda_regression_collapsed(
    model: Callable = medlda_regression, *, overrelaxation: float = 0.5, host: bool | None = None
) -> TopicKernel:
    """All documents' tokens at once with their loss, then topics, then weights.

    :param model: the program, with structural options bound: ``functools.partial(medlda_regression, num_topics=20)``.
    :param overrelaxation: of the weights' draws.
    :param host: see :class:`~regbayes.inference.TokenSweep`.
    """
    moves = [
        Probabilities("phi", phi_given_z),
        Augmented("eta", omega_given_eta, eta_given_omega, overrelaxation=overrelaxation),
        TokenSweep(response_tokens, host),
    ]
    return TopicKernel(
        model, moves, name="medlda-regression collapsed", num_active=num_topics_used, fit=mean_error, fit_name="error"
    )


def medlda_transform(
    draws: Sites, X: Any, *, alpha: ArrayLike = 10.0, num_sweeps: int = 10, seed: int = 0, host: bool | None = None
) -> jax.Array:
    """(n, T) shares of topics in new documents, averaged over the draws; of either program.

    :param draws: site ``phi`` (S, T, V), as from ``MCMC.get_samples()``.
    :param X: (n, V) counts of the same words.
    :param alpha: as the program was given it.
    :param num_sweeps: over the new documents for each draw; the next draw goes on from there.
    :param seed: seed of the sweeps.
    :param host: see :class:`~regbayes.inference.TokenSweep`.

    **Example**

    >>> import jax.numpy as jnp
    >>> from regbayes.inference import medlda_transform
    >>> topics = jnp.array([[[0.9, 0.1, 0.0], [0.0, 0.1, 0.9]]])
    >>> medlda_transform({"phi": topics}, [[9, 1, 0], [0, 0, 5]]).round(1).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    sites, corpus = new_documents(draws, X, ("phi",))
    return _average(_Sweeps(alpha, num_sweeps, host), seed, sites, corpus, lambda x, draw: x)


def medlda_predict(
    draws: Sites,
    X: Any,
    *,
    alpha: ArrayLike = 10.0,
    num_sweeps: int = 10,
    seed: int = 0,
    host: bool | None = None,
    each: bool = False,
) -> Prediction:
    """Classes of new documents: the largest of the draws' averaged scores; and how the draws' own votes are shared out.

    :param draws: sites ``phi`` (S, T, V) and ``eta`` (S, L, T).
    :param X: it and the others as for :func:`medlda_transform`.
    :param each: what each draw says, with a leading axis, instead of the average.
    :return: labels (n,), averaged scores (n, L), votes (n, L).

    **Example**: see :func:`regbayes.models.medlda`.
    """
    sites, corpus = new_documents(draws, X, ("phi", "eta"))

    def vote(x: jax.Array, draw: Sites) -> tuple[jax.Array, jax.Array]:
        f = x @ draw["eta"].T
        return f, jax.nn.one_hot(jnp.argmax(f, axis=1), f.shape[1], dtype=f.dtype)

    f, votes = _average(_Sweeps(alpha, num_sweeps, host), seed, sites, corpus, vote, each)
    return Prediction(jnp.argmax(f, axis=-1), f, votes)


def medlda_regression_predict(
    draws: Sites, X: Any, *, alpha: ArrayLike = 10.0, num_sweeps: int = 10, seed: int = 0, host: bool | None = None
) -> jax.Array:
    """(n,) responses of new documents, averaged over the draws.

    :param draws: sites ``phi`` (S, T, V) and ``eta`` (S, T).
    :param X: it and the others as for :func:`medlda_transform`.

    **Example**: see :func:`regbayes.models.medlda_regression`.
    """
    sites, corpus = new_documents(draws, X, ("phi", "eta"))
    return _average(_Sweeps(alpha, num_sweeps, host), seed, sites, corpus, lambda x, draw: x @ draw["eta"])


class _Sweeps(NamedTuple):
    """How new documents' topics are drawn."""

    alpha: ArrayLike
    number: int
    host: bool | None


def _average(sweeps: _Sweeps, seed: int, draws: Sites, corpus: Corpus, value: Callable, each: bool = False) -> Any:
    """The average over draws, or each, of a function of new documents' shares (n, T) and the draw, after sweeps."""
    (S, T, _), dtype = draws["phi"].shape, draws["phi"].dtype
    on_host = on_cores.wanted(sweeps.host)

    def visit(corpus: Corpus, z: jax.Array, step: tuple) -> tuple:
        key, draw = step
        tokens, keys = plain_tokens(draw, corpus, sweeps.alpha), random.split(key, sweeps.number)
        z = lax.fori_loop(0, sweeps.number, lambda i, z: sweep_tokens(keys[i], tokens, z, on_host), z)
        return z, value(corpus.proportions(z, T, dtype), draw)

    def run(key: jax.Array, draws: Sites, corpus: Corpus) -> Any:
        key_z, key = random.split(key)
        z = random.randint(key_z, (corpus.num_tokens,), 0, T, jnp.int32)
        steps = random.split(key, S), draws
        if each:
            return lax.scan(functools.partial(visit, corpus), z, steps)[1]
        first = jax.tree.map(lambda leaf: leaf[0], steps)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(visit, corpus, z, first)[1])

        def add(carry: tuple, step: tuple) -> tuple:
            z, found = visit(corpus, carry[0], step)
            return (z, jax.tree.map(jnp.add, carry[1], found)), None

        return lax.scan(add, (z, zeros), steps)[0][1]

    found = jax.jit(run)(random.key(seed), draws, corpus)
    return found if each else jax.tree.map(lambda total: total / S, found)
