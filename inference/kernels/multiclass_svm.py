"""Kernels of the multi-class support vector machine (:mod:`regbayes.models.multiclass_svm`).

As a function of one class's weights, the others fixed, the Crammer-Singer loss is a single hinge plus a constant
(:func:`~regbayes.inference.moves.augmentation.class_rows`), so each class has an exact conditional. BMC instead fixes
the arg max of every datum and draws all classes at once, which does not leave the target invariant.
"""

from collections.abc import Callable

import jax
import numpyro.distributions as dist
from jax.typing import ArrayLike

from ...models import HingeOmega, InformationNormal, multiclass_svm
from ...models.laws.arguments import check_features, check_labels
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, CommonShift, Move
from ..engine.target import Sites
from ..moves.augmentation import class_rows, columnwise, weight_information
from ..moves.fits import fit_classes
from ..moves.slices import EllipticalSlice, Rescale


def rows(
    k: jax.Array, eta: jax.Array, X: ArrayLike, y: ArrayLike, ell: ArrayLike, intercept: bool
) -> tuple[jax.Array, jax.Array]:
    """``zeta_i = tau_i - a_i'eta_k`` with ``a_i = +-x_i``, given the other classes' weights; ``eta[k]`` is not read."""
    X = check_features(X, intercept=intercept)
    y, _ = check_labels(y, len(X), num_classes=len(eta))
    sgn, tau = class_rows(X @ eta.T, y, k, ell)
    return columnwise(sgn[:, None] * X), tau


def omega_given_eta(k, z: Sites, X, y, *, num_classes, cost, ell, prior_scale, intercept) -> HingeOmega:
    """``1/omega_i ~ IG(1/(c|zeta_i|), 1)`` for the hinge that the loss is in ``eta_k``."""
    A, tau = rows(k, z["eta"], X, y, ell, intercept)
    return HingeOmega(cost * abs(tau - A @ z["eta"][k])).to_event(1)


def eta_given_omega(
    k, omega: jax.Array, z: Sites, X, y, *, num_classes, cost, ell, prior_scale, intercept
) -> InformationNormal:
    """``eta_k ~ N(P^-1 h, P^-1)``: ``P = I/nu^2 + c^2 sum x x'/omega``, ``h = c sum (omega + c tau)/omega a``."""
    A, tau = rows(k, z["eta"], X, y, ell, intercept)
    return InformationNormal(*weight_information(A, tau, omega, cost, prior_scale**-2.0))


def mean_eta(z: Sites, X, y, *, num_classes, cost, ell, prior_scale, intercept) -> dist.Distribution:
    """``N(0, nu^2/L I)``: a shift common to all classes changes no loss, so the mean of the rows keeps its prior."""
    L, d = z["eta"].shape
    return dist.Normal(0.0, prior_scale / L**0.5).expand([d]).to_event(1)


def eta_fit(z: Sites, X, y, *, num_classes, cost, ell, prior_scale, intercept) -> tuple[jax.Array, jax.Array]:
    """The Gaussian fit of the posterior of all classes' weights."""
    X = check_features(X, intercept=intercept)
    y, num_classes = check_labels(y, len(X), num_classes=len(z["eta"]))
    return fit_classes(X, y, num_classes, cost, ell, prior_scale**-2.0)


def multiclass_svm_augmentation(
    model: Callable = multiclass_svm, *, overrelaxation: float = 0.5, rescale: bool = True
) -> MoveKernel:
    """The exact conditional of one class after the other.

    :param model: the program, with structural options bound: ``functools.partial(multiclass_svm, num_classes=5)``.
    :param overrelaxation: of each class's draw; 0 for independent ones.
    :param rescale: add moves of what is slow class by class: the weights' mean over classes, and their length.
    """
    update = Augmented("eta", omega_given_eta, eta_given_omega, rows=True, overrelaxation=overrelaxation)
    moves: list[Move] = [update]
    if rescale:
        moves += [CommonShift("eta", mean_eta), Rescale("eta")]
    return MoveKernel(model, moves, name="multiclass-svm augmentation")


def multiclass_svm_slice(model: Callable = multiclass_svm) -> MoveKernel:
    """Elliptical slice sampling of all classes around a Gaussian fit: nearly independent draws, the one to use.

    :param model: the program, with structural options bound: ``functools.partial(multiclass_svm, num_classes=5)``.
    """
    move = EllipticalSlice("eta", eta_fit)
    return MoveKernel(model, [move], name="multiclass-svm slice")
