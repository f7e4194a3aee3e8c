"""Kernels of support vector regression (:mod:`regbayes.models.svr`)."""

from collections.abc import Callable

import jax

from ...models import svr
from ...models.laws.arguments import check_features, check_targets
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented
from ..engine.target import Sites
from ..moves.augmentation import columnwise
from ..moves.fits import fit_rows
from ..moves.given import given
from ..moves.slices import EllipticalSlice
from ..moves.weights import Hinges, of_weights, tube_rows


def hinges(z: Sites, X, y, *, cost, epsilon, prior_scale, intercept) -> Hinges:
    """The two hinges of every datum's tube."""
    X = check_features(X, intercept=intercept)
    A, tau = tube_rows(X, check_targets(y, len(X)).astype(X.dtype), epsilon)
    return Hinges(columnwise(A), tau, cost, prior_scale**-2.0)


omega_given_eta, eta_given_omega = of_weights(hinges)


@given(hinges)
def eta_fit(z: Sites, program: Hinges) -> tuple[jax.Array, jax.Array]:
    """The Gaussian fit of the posterior of ``eta``."""
    return fit_rows(*program)


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
