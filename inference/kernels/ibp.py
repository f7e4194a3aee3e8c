"""Kernels of the linear-Gaussian Indian buffet process (:mod:`regbayes.models.ibp`)."""

from collections.abc import Callable

import jax.numpy as jnp

from ...models import ibp
from ...models.laws.arguments import check_features
from ..engine.kernel import MoveKernel
from ..engine.move import Conditional
from ..engine.target import Sites
from ..moves.features import (
    FeatureFlips,
    Features,
    FeatureSweep,
    alpha_given_features,
    loadings_given_features,
    no_margin,
    num_features,
)
from ..moves.sticks import StickSlices
from .isvm import there, value_of

COVERED_BY = "tests/inference/kernels/test_ibp.py::test_features_by_enumeration"


def features(z: Sites, X, *, concentration, noise_scale, feature_scale, **_) -> Features:
    """The program to the moves over features."""
    X = check_features(X)
    alpha, noise, scale = (
        jnp.asarray(value, X.dtype)
        for value in (value_of("concentration", concentration, z), noise_scale, feature_scale)
    )
    return Features(X, alpha, noise, scale, no_margin(z["Z"].shape[1], X.dtype))


def ibp_collapsed(model: Callable = ibp) -> MoveKernel:
    """Row after row with the loadings and the sticks integrated out, then flips of several entries: the one to use.

    :param model: the program, with structural options bound: ``functools.partial(ibp, max_features=64)``.
    """
    moves = [
        Conditional("concentration", alpha_given_features, when=there),
        FeatureSweep(features, covered_by=COVERED_BY),
        FeatureFlips(features, covered_by=COVERED_BY),
    ]
    return MoveKernel(model, moves, name="ibp collapsed", num_active=num_features)


def ibp_slice(model: Callable = ibp) -> MoveKernel:
    """Slice sampling of the sticks given the loadings, all rows of a feature at once; then the loadings.

    A new feature has loadings from the prior, which seldom fit where there are many dimensions.

    :param model: the program, with structural options bound: ``functools.partial(ibp, max_features=64)``.
    """
    moves = [
        Conditional("concentration", alpha_given_features, when=there),
        StickSlices(features, covered_by=COVERED_BY),
        Conditional("W", loadings_given_features(features)),
    ]
    return MoveKernel(model, moves, name="ibp slice", num_active=num_features)
