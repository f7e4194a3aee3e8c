"""What predictions from draws have in common."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from ...models.laws.arguments import check_features
from .compiled import make_room
from .target import Sites

PREDICT_BLOCK = 1024
"""Rows of new inputs that are handled together."""


class Prediction(NamedTuple):
    """What draws say of new inputs; each model's ``predict`` tells what it puts there.

    - **y** - (n,) labels, those of the largest averaged discriminant.
    - **discriminant** - averaged over the draws and their components: (n, L), or (n,) for the two-class hinge, where
      its sign decides.
    - **votes** - (n, L) how the draws' own votes are shared out.
    """

    y: jax.Array
    discriminant: jax.Array
    votes: jax.Array


def with_defaults(program: Callable, settings: dict[str, Any]) -> dict[str, Any]:
    """All keywords of a program, those that were given in place of its defaults."""
    keywords = [p for p in inspect.signature(program).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = {parameter.name: parameter.default for parameter in keywords}
    if unknown := [name for name in settings if name not in known]:
        raise TypeError(f"settings must be among {', '.join(known)}, found {', '.join(unknown)}")
    return {**known, **settings}


def check_draws(draws: Sites, sites: Sequence[str], hypers: dict[str, Any], slots: int | None = None) -> Sites:
    """The draws as arrays, if they have the sites, one leading axis, and a site for each prior of ``hypers``.

    :param hypers: name -> number or prior.
    :param slots: of the buffer; by default as many as the second site has rows.
    """
    arrays = _arrays(draws, sites, hypers, ndim=2)
    n, slots = arrays["z"].shape[1], arrays[sites[1]].shape[1] if slots is None else slots
    labels = jnp.sort(arrays["z"], axis=1)
    occupied = 1 + jnp.sum(labels[:, 1:] != labels[:, :-1], axis=1)
    if slots < n and jnp.any(occupied >= slots):
        raise ValueError(f"draws fill their buffer of {slots} slots, so they are truncated; raise max_clusters")
    return arrays


def check_feature_draws(draws: Sites, concentration: Any = None) -> Sites:
    """The draws as arrays, if they have a feature model's sites, a prior's too, one leading axis and a free slot."""
    arrays = _arrays(draws, ("Z", "W", "eta"), {"concentration": concentration}, ndim=3)
    M = arrays["Z"].shape[2]
    if jnp.any(jnp.sum(jnp.any(arrays["Z"] > 0, axis=1), axis=1) == M):
        raise ValueError(f"draws fill their buffer of {M} slots, so they may be truncated; raise max_features")
    return arrays


def _arrays(draws: Sites, sites: Sequence[str], hypers: dict[str, Any], ndim: int) -> Sites:
    """The sites as arrays, with those of hyper-parameters, if they are there and the first has so many axes."""
    if missing := [site for site in sites if site not in draws]:
        raise ValueError(f"draws must hold the sites {', '.join(sites)}, found no {', '.join(missing)}")
    if jnp.ndim(draws[sites[0]]) != ndim:
        found = f"{sites[0]} of shape {jnp.shape(draws[sites[0]])}"
        raise ValueError(f"draws must have one leading axis, found {found}; flatten chains")
    for name, value in hypers.items():
        if isinstance(value, Distribution) and name not in draws:
            raise ValueError(f"{name} has a prior but draws have no site for it; give a number")
    make_room()
    return {site: jnp.asarray(draws[site]) for site in [*sites, *(name for name in hypers if name in draws)]}


def new_inputs(X: ArrayLike, draws: Sites, weights: str, intercept: bool) -> tuple[jax.Array, jax.Array]:
    """The clustering's and the classifiers' inputs, if their widths are those of the draws."""
    A, X = check_features(X, intercept=intercept), check_features(X)
    wanted = draws["mu"].shape[-1]
    if X.shape[1] != wanted or A.shape[1] != draws[weights].shape[-1]:
        raise ValueError(f"X must have {wanted} columns and intercept must be as in the fit, found shape {X.shape}")
    return X, A
