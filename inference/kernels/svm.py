"""Kernels of the binary support vector machine (:mod:`regbayes.models.svm`)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ...models import svm
from ...models.laws.arguments import check_features, check_labels
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, Move
from ..engine.target import Sites
from ..moves.augmentation import columnwise
from ..moves.fits import fit_rows
from ..moves.given import given
from ..moves.slices import EllipticalSlice, Rescale
from ..moves.weights import Hinges, of_weights


def hinges(z: Sites, X, y, *, cost, ell, prior_scale, intercept) -> Hinges:
    """``zeta_i = tau_i - a_i'eta`` with ``a_i = y_i x_i`` and ``tau_i = ell``."""
    X = check_features(X, intercept=intercept)
    sign = 2 * check_labels(y, len(X), num_classes=2)[0] - 1
    return Hinges(columnwise(sign[:, None] * X), jnp.full(len(X), ell, X.dtype), cost, prior_scale**-2.0)


omega_given_eta, eta_given_omega = of_weights(hinges)


@given(hinges)
def eta_fit(z: Sites, program: Hinges) -> tuple[jax.Array, jax.Array]:
    """The Gaussian fit of the posterior of ``eta``."""
    return fit_rows(*program)


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
