"""Kernels of the multi-task infinite latent SVM (:mod:`regbayes.models.mt_ilsvm`), and predictions.

The rows of ``Z`` are inputs, so every datum's score depends on every row: rows are visited one after the other.
"""

from collections.abc import Callable
from types import SimpleNamespace

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...models import mt_ilsvm
from ...models.ilsvm import appended_inputs
from ...models.laws.arguments import check_features
from ...models.mt_ilsvm import targets
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, Conditional, Move
from ..engine.predictions import Prediction, check_feature_draws
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
from ..moves.slices import Rescale
from ..moves.sticks import StickEntries
from ..moves.weights import GroupHinges, of_weights, tube_rows

COVERED_BY = "tests/inference/kernels/test_ilsvm.py::test_features_of_tasks_by_enumeration"


def features(z: Sites, X, y, task, **settings) -> Features:
    """The program to the moves over features: ``x_nd`` is explained by row ``d`` of ``Z``, so data are columns."""
    X, s = check_features(X), SimpleNamespace(**settings)
    program = linear_gaussian(z, X.T, **settings)
    if y is None:
        return program
    rows, task, y, _ = targets(len(X), y, task, s.num_tasks, s.loss)
    M, eta = z["Z"].shape[1], z["eta"][task]
    inputs, weights = X[rows], eta[:, :M].T
    base = jnp.sum(appended_inputs(X, s.extra_features, s.intercept)[rows] * eta[:, M:], axis=1)

    def log_factor(i: jax.Array, f: jax.Array) -> jax.Array:
        zeta = s.ell - (2 * y - 1) * f if s.loss == "hinge" else jnp.abs(y - f) - s.epsilon
        return -2 * s.cost * jnp.sum(jnp.maximum(zeta, 0.0), axis=-1)

    margin = FeatureMargin(
        lambda Z: jnp.sum((inputs @ Z) * weights.T, axis=1) + base,
        lambda scores, d: scores,
        lambda scores, d, new: new,
        lambda d: weights * inputs[:, d],
        log_factor,
        lambda scores: log_factor(jnp.zeros((), int), scores),
    )
    return program._replace(margin=margin)


W_given_Z = given(features)(loadings_given_features)


def hinges(z: Sites, X, y, task, **settings) -> GroupHinges:
    """The program to the conditional of ``eta``: a hinge per label, two per response, in its task's weights."""
    X, s = check_features(X), SimpleNamespace(**settings)
    data, task, y, num_tasks = targets(len(X), y, task, s.num_tasks, s.loss)
    assert y is not None
    appended, y = appended_inputs(X, s.extra_features, s.intercept), y.astype(X.dtype)
    g = jnp.concatenate([X @ z["Z"].astype(X.dtype), appended], axis=1)[data]
    if s.loss == "hinge":
        A, tau = (2 * y - 1)[:, None] * g, jnp.full(len(y), s.ell, X.dtype)
    else:
        (A, tau), task = tube_rows(g, y, s.epsilon), jnp.tile(task, 2)
    return GroupHinges(A, tau, task, num_tasks, s.cost, jnp.asarray(s.prior_scale, A.dtype) ** -2.0)


omega_given_eta, eta_given_omega = of_weights(hinges)


def mt_ilsvm_slice(model: Callable = mt_ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Slice sampling of the sticks given the loadings, entry by entry; loadings; all tasks' weights.

    :param model: it and ``overrelaxation`` as for :func:`mt_ilsvm_collapsed`.
    """
    moves = [StickEntries(features, covered_by=COVERED_BY), Conditional("W", W_given_Z)]
    return _kernel(model, overrelaxation, moves, "mt-ilsvm slice")


def mt_ilsvm_collapsed(model: Callable = mt_ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Row after row of the projection with the loadings and the sticks integrated out, then flips; all tasks' weights.

    The one to use.

    :param model: the program, with structural options bound: ``functools.partial(mt_ilsvm, max_features=64)``.
    :param overrelaxation: of the weights' draws.
    """
    return _kernel(model, overrelaxation, integrated_moves(features, COVERED_BY), "mt-ilsvm collapsed")


def _kernel(model: Callable, overrelaxation: float, of_features: list[Move], name: str) -> MoveKernel:
    moves = [
        Augmented("eta", omega_given_eta, eta_given_omega, overrelaxation=overrelaxation),
        Rescale("eta"),
        concentration_of_buffet(),
        *of_features,
    ]
    return MoveKernel(model, moves, name=name, num_active=num_features)


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
