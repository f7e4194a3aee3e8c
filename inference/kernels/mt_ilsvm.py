"""Kernels of the multi-task infinite latent SVM (:mod:`regbayes.models.mt_ilsvm`), and predictions.

The rows of ``Z`` are inputs, so every datum's score depends on every row: rows are visited one after the other.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...models import HingeOmega, InformationNormal, mt_ilsvm
from ...models.ilsvm import appended_inputs
from ...models.laws.arguments import check_features
from ...models.mt_ilsvm import targets
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, Conditional, Move
from ..engine.predictions import Prediction
from ..engine.target import Sites
from ..moves.features import (
    FeatureFlips,
    Features,
    FeatureSweep,
    Margin,
    alpha_given_features,
    loadings_given_features,
    num_features,
)
from ..moves.slices import Rescale
from ..moves.sticks import StickEntries
from . import ibp
from .ilsvm import check_feature_draws
from .isvm import _information, there

COVERED_BY = "tests/inference/kernels/test_ilsvm.py::test_features_of_tasks_by_enumeration"


def features(
    z: Sites, X, y, task, *, num_tasks, loss, cost, ell, epsilon, extra_features, intercept, **settings
) -> Features:
    """The program to the moves over features: ``x_nd`` is explained by row ``d`` of ``Z``, so data are columns."""
    X = check_features(X)
    program = ibp.features(z, X.T, **settings)
    if y is None:
        return program
    rows, task, y, _ = targets(len(X), y, task, num_tasks, loss)
    M, eta = z["Z"].shape[1], z["eta"][task]
    inputs, weights = X[rows], eta[:, :M].T
    base = jnp.sum(appended_inputs(X, extra_features, intercept)[rows] * eta[:, M:], axis=1)

    def log_factor(i: jax.Array, f: jax.Array) -> jax.Array:
        zeta = ell - (2 * y - 1) * f if loss == "hinge" else jnp.abs(y - f) - epsilon
        return -2 * cost * jnp.sum(jnp.maximum(zeta, 0.0), axis=-1)

    margin = Margin(
        lambda Z: jnp.sum((inputs @ Z) * weights.T, axis=1) + base,
        lambda scores, d: scores,
        lambda scores, d, new: new,
        lambda d: weights * inputs[:, d],
        log_factor,
        lambda scores: log_factor(jnp.zeros((), int), scores),
    )
    return program._replace(margin=margin)


def rows(
    z: Sites, X, y, task, *, num_tasks, loss, ell, epsilon, extra_features, intercept, **_
) -> tuple[jax.Array, jax.Array, jax.Array, int]:
    """``a``, ``tau`` and the task of every hinge ``zeta = tau - a'eta_m``, one per label, two per response; ``T``."""
    X = check_features(X)
    data, task, y, num_tasks = targets(len(X), y, task, num_tasks, loss)
    assert y is not None
    g = jnp.concatenate([X @ z["Z"].astype(X.dtype), appended_inputs(X, extra_features, intercept)], axis=1)[data]
    y = y.astype(X.dtype)
    if loss == "hinge":
        return (2 * y - 1)[:, None] * g, jnp.full(len(y), ell, X.dtype), task, num_tasks
    return jnp.concatenate([g, -g]), jnp.concatenate([y - epsilon, -y - epsilon]), jnp.tile(task, 2), num_tasks


def omega_given_eta(z: Sites, X, y, task, *, cost, **settings) -> HingeOmega:
    """``1/omega ~ IG(1/(c|zeta|), 1)`` for every hinge."""
    A, tau, task, _ = rows(z, X, y, task, **settings)
    return HingeOmega(cost * jnp.abs(tau - jnp.sum(A * z["eta"][task], axis=1))).to_event(1)


def eta_given_omega(omega: jax.Array, rest: Sites, X, y, task, *, cost, prior_scale, **settings) -> InformationNormal:
    """``eta_m ~ N(P^-1 h, P^-1)`` for every task: ``P = I/nu^2 + c^2 sum g g'/omega`` over its hinges."""
    A, tau, task, num_tasks = rows(rest, X, y, task, **settings)
    return _information(task, A, tau, omega, cost, prior_scale, num_tasks)


def mt_ilsvm_collapsed(model: Callable = mt_ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Row after row of the projection with the loadings and the sticks integrated out, then flips; all tasks' weights.

    The one to use.

    :param model: the program, with structural options bound: ``functools.partial(mt_ilsvm, max_features=64)``.
    :param overrelaxation: of the weights' draws.
    """
    moves = [
        *_weights(overrelaxation),
        FeatureSweep(features, covered_by=COVERED_BY),
        FeatureFlips(features, covered_by=COVERED_BY),
    ]
    return MoveKernel(model, moves, name="mt-ilsvm collapsed", num_active=num_features)


def mt_ilsvm_slice(model: Callable = mt_ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Slice sampling of the sticks given the loadings, entry by entry; loadings; all tasks' weights.

    :param model: the program, with structural options bound: ``functools.partial(mt_ilsvm, max_features=64)``.
    :param overrelaxation: of the weights' draws.
    """
    moves = [
        *_weights(overrelaxation),
        StickEntries(features, covered_by=COVERED_BY),
        Conditional("W", loadings_given_features(features)),
    ]
    return MoveKernel(model, moves, name="mt-ilsvm slice", num_active=num_features)


def _weights(overrelaxation: float) -> list[Move]:
    """The moves of the weights, and of ``alpha``."""
    return [
        Augmented("eta", omega_given_eta, eta_given_omega, overrelaxation=overrelaxation),
        Rescale("eta"),
        Conditional("concentration", alpha_given_features, when=there),
    ]


def mt_ilsvm_predict(
    draws: Sites,
    X: ArrayLike,
    task: ArrayLike | None = None,
    *,
    loss: str = "hinge",
    extra_features: bool = False,
    intercept: bool = True,
) -> Prediction:
    """Labels or responses of new inputs, from the scores averaged over draws.

    :param draws: sites ``Z`` (S, d, M), ``W`` and ``eta`` (S, T, ...), as from ``MCMC.get_samples()``.
    :param X: (n, d) new inputs.
    :param task: (n,) their tasks; by default every task is predicted.
    :param loss: it and the others as the program was given them.
    :return: ``y`` (n, T) or (n,), labels 0 and 1, or for responses the averaged scores; averaged scores; votes, the
        share of draws with a positive score.

    **Example**: see :func:`regbayes.models.mt_ilsvm`.
    """
    sites, X = check_feature_draws(draws), check_features(X)
    appended = appended_inputs(X, extra_features, intercept)
    _, d, M = sites["Z"].shape
    num_tasks, width = sites["eta"].shape[1:]
    if X.shape[1] != d or M + appended.shape[1] != width:
        raise ValueError(
            f"X must have {d} columns, extra_features and intercept must be as in the fit, found shape {X.shape}"
        )
    _, own, _, _ = targets(len(X), None, task, num_tasks, loss)

    def scores(draw: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        Z, eta = draw
        f = jnp.concatenate([X @ Z.astype(X.dtype), appended], axis=1) @ eta.T
        return f, (f > 0).astype(f.dtype)

    f, votes = jax.tree.map(lambda a: jnp.mean(a, axis=0), jax.lax.map(scores, (sites["Z"], sites["eta"])))
    if task is not None:
        f, votes = (jnp.take_along_axis(value, own[:, None], 1)[:, 0] for value in (f, votes))
    return Prediction((f > 0).astype(int) if loss == "hinge" else f, f, votes)
