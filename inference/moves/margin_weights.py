"""The augmentation move for any program: read off the program instead of written by hand."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution, TransformedDistribution
from numpyro.distributions.transforms import ReshapeTransform
from numpyro.handlers import block

from ...models import HingeOmega, InformationNormal
from ...models.factors import MARGIN
from ..engine.compiled import over_rows
from ..engine.move import Augmented
from ..engine.target import Sites, Target
from .augmentation import columnwise, information


class MarginWeights(Augmented):
    """Weights under the ``hinge`` and ``epsilon_insensitive`` factors of a program, by augmentation.

    Nothing needs to be derived: the rows are the derivatives of the factors' scores, the prior is the curvature of
    the rest of the program. Two things must hold, and are checked when the kernel is initialised: the scores are
    affine in the site, and what else the program says of the site is Gaussian (a ``Normal`` or
    ``MultivariateNormal`` prior, whose parameters may be other sites; children with Gaussian noise).
    ``mask``, ``scale``, subsampling and :class:`~regbayes.models.temper` are respected.

    :param site: the site of the weights, of any shape.

    **Example**: see :class:`~regbayes.inference.MoveKernel`.
    """

    def __init__(self, site: str, *, name: str | None = None) -> None:
        super().__init__(site, MarginWeights._augment, MarginWeights._law, name=name)  # which read the program, below

    def _augment(self, z: Sites, target: Target, k: Any) -> Distribution:
        A, tau, cost = self._rows(z, target, jnp.zeros_like(z[self.sites[0]]))
        return HingeOmega(cost * jnp.abs(tau - A @ z[self.sites[0]].ravel())).to_event(1)

    def _law(self, omega: jax.Array, z: Sites, target: Target, k: Any) -> Distribution:
        origin = jnp.zeros_like(z[self.sites[0]])  # any point would do: both expansions are exact
        (A, tau, cost), (gradient, hessian) = self._rows(z, target, origin), self._rest(z, target, origin)
        h, P = information(A, tau, omega, cost)
        law = InformationNormal(h + gradient, P - hessian)
        return law if origin.ndim == 1 else TransformedDistribution(law, ReshapeTransform(origin.shape, (origin.size,)))

    def _rows(self, z: Sites, target: Target, point: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """``A``, ``tau`` and ``c`` of every hinge: ``zeta = tau - A w``, ``w`` the flattened site, about a point."""
        w, unravel = ravel_pytree(point)

        def zeta_and_cost(w: jax.Array) -> tuple[jax.Array, jax.Array]:
            factors = [_hinges(site) for site in target.trace({**z, self.sites[0]: unravel(w)}).values()]
            parts = [factor for factor in factors if factor is not None]
            if not parts:
                raise ValueError(f"no hinge or epsilon_insensitive factor in the program of site {self.sites[0]!r}")
            zetas, costs = zip(*parts, strict=True)
            return jnp.concatenate(zetas), jnp.concatenate(costs)

        (zeta, cost), (jacobian, _) = zeta_and_cost(w), jax.jacfwd(zeta_and_cost)(w)
        return columnwise(-jacobian), zeta - jacobian @ w, cost

    def _rest(self, z: Sites, target: Target, point: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Gradient and Hessian, in the flattened site, of what the program says beside its margin factors."""
        w, unravel = ravel_pytree(point)
        program = block(target.model, hide_fn=lambda msg: MARGIN in msg.get("infer", {}))

        def log_rest(w: jax.Array) -> jax.Array:
            return target.log_joint({**z, self.sites[0]: unravel(w)}, program)

        return jax.grad(log_rest)(w), jax.hessian(log_rest)(w)

    def validate(self, z: Sites, target: Target) -> None:
        """Affine scores have one Jacobian everywhere, and a Gaussian rest one Hessian."""
        site = self.sites[0]
        points = jnp.stack([jnp.zeros_like(z[site]), 2 * z[site] + 1])
        derivatives = functools.partial(_derivatives, self, target.model, target.signature)
        rows = points, jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), z)
        found = over_rows(derivatives, rows, *target.args, **target.kwargs)
        wanted = [
            "the scores of its margin factors must be affine in it",
            "the cost of its margin factors must not depend on it",
            "its prior must be Normal or MultivariateNormal",
        ]
        for what, (a, b) in zip(wanted, found, strict=True):
            if not np.allclose(a, b, rtol=1e-2, atol=1e-3 * np.abs(a).max()):
                raise ValueError(
                    f"site {site!r} is not conditionally Gaussian given the augmentation: {what}; use NUTS for it"
                )


def _derivatives(
    move: MarginWeights, model: Callable, signature: inspect.Signature, row: tuple, /, *args: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of the scores in the site, the costs, and the Hessian of the rest, at a point."""
    (point, z), target = row, Target(model, signature, args, kwargs)
    A, _, cost = move._rows(z, target, point)
    return A, cost, move._rest(z, target, point)[1]


def _hinges(site: dict[str, Any]) -> tuple[jax.Array, jax.Array] | None:
    """``zeta`` and the effective cost of a factor's hinges, flattened; nothing for other sites."""
    margin = site.get("infer", {}).get(MARGIN) if site["type"] == "sample" else None
    if margin is None:
        return None
    zeta, event_dim = jnp.asarray(margin["zeta"]), margin["event_dim"]
    cost = jnp.asarray(margin["cost"]) * (1.0 if site["scale"] is None else site["scale"]) * _mask(site["fn"])
    # A plate may repeat a factor whose score is shared by its data.
    shape = site["fn"].batch_shape + zeta.shape[zeta.ndim - event_dim :]
    cost = jnp.broadcast_to(jnp.reshape(cost, jnp.shape(cost) + (1,) * event_dim), shape)
    return jnp.broadcast_to(zeta, shape).ravel(), cost.ravel().astype(zeta.dtype)


def _mask(fn: Distribution | None) -> Any:
    """Where a site's log density counts: the product of the masks wrapped around its distribution."""
    mask: Any = True
    while fn is not None:
        mask, fn = mask & jnp.asarray(getattr(fn, "_mask", True)), getattr(fn, "base_dist", None)
    return mask
