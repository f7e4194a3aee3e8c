"""Kernels of the multi-class support vector machine (:mod:`regbayes.models.multiclass_svm`).

As a function of one class's weights, the others fixed, the Crammer-Singer loss is a single hinge plus a constant
(:func:`~regbayes.inference.moves.augmentation.class_rows`), so each class has an exact conditional. BMC instead fixes
the arg max of every datum and draws all classes at once, which does not leave the target invariant.
"""

from collections.abc import Callable

import jax

from ...models import multiclass_svm
from ...models.laws.arguments import check_features, check_labels
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, CommonShift, Move
from ..engine.target import Sites
from ..moves.fits import fit_classes
from ..moves.given import given
from ..moves.slices import EllipticalSlice, Rescale
from ..moves.weights import ClassHinges, Hinges, mean_eta, of_rows


def classes(z: Sites, X, y, *, cost, ell, prior_scale, intercept, **_) -> ClassHinges:
    """The program to its conditionals."""
    X = check_features(X, intercept=intercept)
    return ClassHinges(X, check_labels(y, len(X), num_classes=len(z["eta"]))[0], cost, ell, prior_scale**-2.0)


@given(classes)
def hinges(k: jax.Array, z: Sites, program: ClassHinges) -> Hinges:
    """``zeta_i = tau_i - a_i'eta_k`` with ``a_i = +-x_i``, given the other classes' weights."""
    return program.of_class(k, z["eta"])


omega_given_eta, eta_given_omega = of_rows(hinges)


@given(classes)
def eta_fit(z: Sites, program: ClassHinges) -> tuple[jax.Array, jax.Array]:
    """The Gaussian fit of the posterior of all classes' weights."""
    X, y, cost, ell, precision = program
    return fit_classes(X, y, len(z["eta"]), cost, ell, precision)


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
