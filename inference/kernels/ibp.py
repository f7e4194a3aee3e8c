"""Kernels of the linear-Gaussian Indian buffet process (:mod:`regbayes.models.ibp`)."""

from collections.abc import Callable

from ...models import ibp
from ..engine.kernel import MoveKernel
from ..engine.move import Conditional
from ..moves.features import (
    concentration_of_buffet,
    integrated_moves,
    linear_gaussian,
    loadings_given_features,
    num_features,
)
from ..moves.given import given
from ..moves.sticks import StickSlices

COVERED_BY = "tests/inference/kernels/test_ibp.py::test_features_by_enumeration"

W_given_Z = given(linear_gaussian)(loadings_given_features)


def ibp_collapsed(model: Callable = ibp) -> MoveKernel:
    """Row after row with the loadings and the sticks integrated out, then flips of several entries: the one to use.

    :param model: the program, with structural options bound: ``functools.partial(ibp, max_features=64)``.
    """
    moves = [concentration_of_buffet(), *integrated_moves(linear_gaussian, COVERED_BY)]
    return MoveKernel(model, moves, name="ibp collapsed", num_active=num_features)


def ibp_slice(model: Callable = ibp) -> MoveKernel:
    """Slice sampling of the sticks given the loadings, all rows of a feature at once; then the loadings.

    A new feature has loadings from the prior, which seldom fit where there are many dimensions.

    :param model: as for :func:`ibp_collapsed`.
    """
    moves = [
        concentration_of_buffet(),
        StickSlices(linear_gaussian, covered_by=COVERED_BY),
        Conditional("W", W_given_Z),
    ]
    return MoveKernel(model, moves, name="ibp slice", num_active=num_features)
