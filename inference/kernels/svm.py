"""Kernels of the binary support vector machine (:mod:`regbayes.models.svm`)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...models import HingeOmega, InformationNormal, svm
from ...models.laws.arguments import check_features, check_labels
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, Move
from ..engine.target import Sites
from ..moves.augmentation import columnwise, weight_information
from ..moves.fits import fit_rows
from ..moves.slices import EllipticalSlice, Rescale


def rows(X: ArrayLike, y: ArrayLike, ell: ArrayLike, intercept: bool) -> tuple[jax.Array, jax.Array]:
    """``zeta_i = tau_i - a_i'eta`` with ``a_i = y_i x_i`` and ``tau_i = ell``."""
    X = check_features(X, intercept=intercept)
    y, _ = check_labels(y, len(X), num_classes=2)
    sign = 2 * y - 1
    return columnwise(sign[:, None] * X), jnp.full(len(X), ell, X.dtype)


def omega_given_eta(z: Sites, X, y, *, cost, ell, prior_scale, intercept) -> HingeOmega:
    """``1/omega_i ~ IG(1/(c|zeta_i|), 1)``, ``zeta_i = ell - y_i eta'x_i``."""
    A, tau = rows(X, y, ell, intercept)
    return HingeOmega(cost * abs(tau - A @ z["eta"])).to_event(1)


def eta_given_omega(omega: jax.Array, rest: Sites, X, y, *, cost, ell, prior_scale, intercept) -> InformationNormal:
    """``N(P^-1 h, P^-1)``: ``P = I/nu^2 + c^2 sum x x'/omega``, ``h = c sum y (omega + c ell)/omega x``."""
    A, tau = rows(X, y, ell, intercept)
    return InformationNormal(*weight_information(A, tau, omega, cost, prior_scale**-2.0))


def eta_fit(z: Sites, X, y, *, cost, ell, prior_scale, intercept) -> tuple[jax.Array, jax.Array]:
    """The Gaussian fit of the posterior of ``eta``."""
    A, tau = rows(X, y, ell, intercept)
    return fit_rows(A, tau, cost, prior_scale**-2.0)


def svm_augmentation(model: Callable = svm, *, overrelaxation: float = 0.5, rescale: bool = True) -> MoveKernel:
    """The papers' scheme, ``omega`` given the weights and the weights given ``omega``, made to mix.

    :param model: the program, with structural options bound: ``functools.partial(svm, intercept=True)``.
    :param overrelaxation: of the weights' draw; 0 is the papers'.
    :param rescale: add a move of the weights' length, by far their slowest direction; False is the papers'.
    """
    moves: list[Move] = [Augmented("eta", omega_given_eta, eta_given_omega, overrelaxation=overrelaxation)]
    moves += [Rescale("eta")] if rescale else []
    return MoveKernel(model, moves, name="svm augmentation")


def svm_slice(model: Callable = svm) -> MoveKernel:
    """Elliptical slice sampling around a Gaussian fit: nearly independent draws, the one to use.

    :param model: the program, with structural options bound: ``functools.partial(svm, intercept=True)``.
    """
    return MoveKernel(model, [EllipticalSlice("eta", eta_fit)], name="svm slice")
