"""Kernels of support vector regression (:mod:`regbayes.models.svr`)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...models import HingeOmega, InformationNormal, svr
from ...models.laws.arguments import check_features, check_targets
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented
from ..engine.target import Sites
from ..moves.augmentation import columnwise, weight_information
from ..moves.fits import fit_rows
from ..moves.slices import EllipticalSlice


def rows(X: ArrayLike, y: ArrayLike, epsilon: ArrayLike, intercept: bool) -> tuple[jax.Array, jax.Array]:
    """Two hinges per datum: ``(y - epsilon) - eta'x`` below the tube and ``-(y + epsilon) + eta'x`` above it."""
    X = check_features(X, intercept=intercept)
    y = check_targets(y, len(X)).astype(X.dtype)
    return columnwise(jnp.concatenate([X, -X])), jnp.concatenate([y - epsilon, -y - epsilon])


def omega_given_eta(z: Sites, X, y, *, cost, epsilon, prior_scale, intercept) -> HingeOmega:
    """``1/omega ~ IG(1/(c|zeta|), 1)`` for the two hinges of each datum."""
    A, tau = rows(X, y, epsilon, intercept)
    return HingeOmega(cost * abs(tau - A @ z["eta"])).to_event(1)


def eta_given_omega(omega: jax.Array, rest: Sites, X, y, *, cost, epsilon, prior_scale, intercept) -> InformationNormal:
    """``N(P^-1 h, P^-1)``: ``P = I/nu^2 + c^2 sum a a'/omega``, ``h = c sum (omega + c tau)/omega a``."""
    A, tau = rows(X, y, epsilon, intercept)
    return InformationNormal(*weight_information(A, tau, omega, cost, prior_scale**-2.0))


def eta_fit(z: Sites, X, y, *, cost, epsilon, prior_scale, intercept) -> tuple[jax.Array, jax.Array]:
    """The Gaussian fit of the posterior of ``eta``."""
    A, tau = rows(X, y, epsilon, intercept)
    return fit_rows(A, tau, cost, prior_scale**-2.0)


def svr_augmentation(model: Callable = svr, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Two ``omega`` per datum given the weights, the weights given them.

    :param model: the program, with structural options bound: ``functools.partial(svr, intercept=True)``.
    :param overrelaxation: of the weights' draw; 0 for independent ones.
    """
    move = Augmented("eta", omega_given_eta, eta_given_omega, overrelaxation=overrelaxation)
    return MoveKernel(model, [move], name="svr augmentation")


def svr_slice(model: Callable = svr) -> MoveKernel:
    """Elliptical slice sampling around a Gaussian fit: nearly independent draws, the one to use.

    :param model: the program, with structural options bound: ``functools.partial(svr, intercept=True)``.
    """
    return MoveKernel(model, [EllipticalSlice("eta", eta_fit)], name="svr slice")
