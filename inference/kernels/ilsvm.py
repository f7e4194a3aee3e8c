"""Kernels of the infinite latent SVM (:mod:`regbayes.models.ilsvm`), and predictions for new inputs."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from ...models import ilsvm
from ...models.ilsvm import appended_inputs
from ...models.laws.arguments import check_features, check_labels
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, CommonShift, Conditional, Move
from ..engine.predictions import Prediction, check_feature_draws, with_defaults
from ..engine.target import Sites
from ..moves.features import (
    FeatureMargin,
    Features,
    concentration_of_buffet,
    integrated_moves,
    linear_gaussian,
    loadings_given_features,
    num_features,
)
from ..moves.given import given
from ..moves.hyper import value_of
from ..moves.slices import Rescale
from ..moves.sticks import StickSlices
from ..moves.weights import ClassHinges, Hinges, mean_eta, of_rows

COVERED_BY = "tests/inference/kernels/test_ilsvm.py::test_features_by_enumeration"

OWN = 8
"""The most features that a new input has to itself."""


def features(z: Sites, X, y, *, cost, ell, extra_features, intercept, **settings) -> Features:
    """The program to the moves over features: linear and Gaussian, with a margin."""
    program = linear_gaussian(z, X, **settings)
    if y is None:
        return program
    y = check_labels(y, len(program.rows), len(z["eta"]))[0]
    appended = appended_inputs(program.rows, extra_features, intercept)
    return program._replace(margin=label_margin(z["eta"], z["Z"].shape[1], appended, y, cost, ell))


def label_margin(eta: jax.Array, num_slots: int, appended: jax.Array, y: jax.Array, cost, ell) -> FeatureMargin:
    """``-2 c [max_y (ell 1[y != y_n] + s_y) - s_{y_n}]``: a row of ``Z`` has a say in the scores of its datum."""
    weights, base = eta[:, :num_slots].T, appended @ eta[:, num_slots:].T

    def log_factor(i: jax.Array, s: jax.Array) -> jax.Array:
        own = jnp.arange(s.shape[-1]) == y[i]
        return -2 * cost * (jnp.max(s + ell * ~own, axis=-1) - jnp.sum(jnp.where(own, s, 0.0), axis=-1))

    return FeatureMargin(
        lambda Z: Z @ weights + base,
        lambda scores, i: scores[i],
        lambda scores, i, new: scores.at[i].set(new),
        lambda i: weights,
        log_factor,
        lambda scores: jnp.sum(jax.vmap(log_factor)(jnp.arange(len(y)), scores)),
    )


W_given_Z = given(features)(loadings_given_features)


def classes(z: Sites, X, y, *, cost, ell, prior_scale, extra_features, intercept, **_) -> ClassHinges:
    """The program to the conditional of ``eta``: a classifier of features and what is appended to them."""
    X = check_features(X)
    inputs = jnp.concatenate([z["Z"].astype(X.dtype), appended_inputs(X, extra_features, intercept)], axis=1)
    y = check_labels(y, len(X), len(z["eta"]))[0]
    return ClassHinges(inputs, y, cost, ell, jnp.asarray(prior_scale, X.dtype) ** -2.0)


@given(classes)
def hinges(k: jax.Array, z: Sites, program: ClassHinges) -> Hinges:
    """``zeta_i = tau_i - a_i'eta_k`` with ``a_i = +-g_i``, given the other classes' weights."""
    return program.of_class(k, z["eta"])


omega_given_eta, eta_given_omega = of_rows(hinges)


def ilsvm_collapsed(model: Callable = ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Row after row with the loadings and the sticks integrated out, flips of several entries, weights class by class.

    The one to use.

    :param model: the program, with structural options bound: ``functools.partial(ilsvm, max_features=64)``.
    :param overrelaxation: of the weights' draws.
    """
    return _kernel(model, overrelaxation, integrated_moves(features, COVERED_BY), "ilsvm collapsed")


def ilsvm_slice(model: Callable = ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Slice sampling of the sticks given the loadings, all rows of a feature at once; loadings; weights.

    :param model: it and ``overrelaxation`` as for :func:`ilsvm_collapsed`.
    """
    moves = [StickSlices(features, covered_by=COVERED_BY), Conditional("W", W_given_Z)]
    return _kernel(model, overrelaxation, moves, "ilsvm slice")


def _kernel(model: Callable, overrelaxation: float, of_features: list[Move], name: str) -> MoveKernel:
    moves = [
        Augmented("eta", omega_given_eta, eta_given_omega, rows=True, overrelaxation=overrelaxation),
        CommonShift("eta", mean_eta),
        Rescale("eta"),
        concentration_of_buffet(),
        *of_features,
    ]
    return MoveKernel(model, moves, name=name, num_active=num_features)


def ilsvm_predict(
    draws: Sites, X: ArrayLike, *, num_sweeps: int = 5, seed: int = 0, each: bool = False, **settings: Any
) -> Prediction:
    """Classes of new inputs: the largest of the scores averaged over draws, and how the draws' votes are shared out.

    A new datum has feature ``k`` of a draw with the prior odds ``m_k/(n + 1 - m_k)``, and features of its own, which
    favour no class; its features are drawn by sweeps given the draw's loadings, all data at once.

    :param draws: sites ``Z`` (S, n, M), ``W`` (S, d, M), ``eta`` (S, L, ...), and ``concentration`` where it had a
        prior, as from ``MCMC.get_samples()``.
    :param X: (n', d) new inputs.
    :param num_sweeps: over the features of new data for each draw; the next draw goes on from there.
    :param seed: seed of the sweeps.
    :param each: what each draw says, with a leading axis, instead of the average.
    :param settings: the program's, as it was given them; what the draws tell is not read.
    :return: labels (n',), averaged scores (n', L), votes (n', L).

    **Example**: see :func:`regbayes.models.ilsvm`.
    """
    s = SimpleNamespace(**with_defaults(ilsvm, settings))
    sites, X = check_feature_draws(draws, s.concentration), check_features(X)
    appended = appended_inputs(X, s.extra_features, s.intercept)
    (num, n, M), d, L = sites["Z"].shape, sites["W"].shape[1], sites["eta"].shape[1]
    if X.shape[1] != d or M + appended.shape[1] != sites["eta"].shape[2]:
        raise ValueError(
            f"X must have {d} columns, extra_features and intercept must be as in the fit, found shape {X.shape}"
        )
    alphas = jnp.broadcast_to(value_of("concentration", s.concentration, sites), (num,))
    ridge = (s.noise_scale / s.feature_scale) ** 2
    j = jnp.arange(OWN + 1)

    def log_residual(square: jax.Array, alpha: jax.Array) -> jax.Array:
        """Of residuals' squares, the number of own features summed out."""
        log_prior = j * jnp.log(alpha / (n + 1)) - gammaln(j + 1.0)
        spread = j / ridge
        logs = -d / 2 * jnp.log1p(spread) - square[:, None] / (2 * s.noise_scale**2 * (1 + spread))
        return jax.nn.logsumexp(log_prior + logs, axis=1)

    def visit(carry: tuple, draw: tuple) -> tuple:
        Z_new, f_sum, votes = carry
        key, sites, alpha = draw
        counts, W = jnp.sum(sites["Z"], axis=0), sites["W"]
        Z_new = jnp.where(counts > 0, Z_new, 0.0)
        log_odds = jnp.log(counts) - jnp.log(n + 1.0 - counts)
        uniforms = random.uniform(key, (num_sweeps * M, len(X)), X.dtype)

        def entry(step: jax.Array, carry: tuple) -> tuple:
            Z_new, residual = carry
            k = step % M
            residual = residual + Z_new[:, k, None] * W[:, k]
            squares = [jnp.sum((residual - w) ** 2, axis=1) for w in (W[:, k], 0.0)]
            logs = [log_residual(square, alpha) for square in squares]
            new = (uniforms[step] < jax.nn.sigmoid(log_odds[k] + logs[0] - logs[1])).astype(X.dtype)
            return Z_new.at[:, k].set(new), residual - new[:, None] * W[:, k]

        Z_new, _ = lax.fori_loop(0, num_sweeps * M, entry, (Z_new, X - Z_new @ W.T))
        f = jnp.concatenate([Z_new, appended], axis=1) @ sites["eta"].T
        vote = jax.nn.one_hot(jnp.argmax(f, axis=1), L, dtype=f.dtype)
        return (Z_new, f_sum + f, votes + vote), (f, vote) if each else None

    zeros = jnp.zeros((len(X), L), X.dtype)
    start = (jnp.zeros((len(X), M), X.dtype), zeros, zeros)
    steps = (random.split(random.key(seed), num), sites, alphas)
    (_, f, votes), every = jax.jit(lambda steps: lax.scan(visit, start, steps))(steps)
    if each:
        return Prediction(jnp.argmax(every[0], axis=-1), *every)
    return Prediction(jnp.argmax(f, axis=1), f / num, votes / num)
