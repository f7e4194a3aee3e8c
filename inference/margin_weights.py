"""The augmentation move for any program: read off the program instead of written by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution, TransformedDistribution
from numpyro.distributions.transforms import ReshapeTransform
from numpyro.handlers import block

from ..models import HingeOmega, InformationNormal
from ..models.factors import MARGIN
from .augmentation import columnwise, information
from .moves import Augmented
from .target import Sites, Target


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
        super().__init__(site, self._law, self._law, name=name)

    def hinges(self, z: Sites, target: Target) -> tuple[jax.Array, jax.Array, jax.Array]:
        """``A``, ``tau`` and ``c`` of every hinge, ``zeta = tau - A w``, with ``w`` the flattened site (not read)."""
        w, unravel = ravel_pytree(jnp.zeros_like(z[self.sites[0]]))

        def zeta_and_cost(w: jax.Array) -> tuple[jax.Array, jax.Array]:
            factors = [_hinges(site) for site in target.trace({**z, self.sites[0]: unravel(w)}).values()]
            parts = [factor for factor in factors if factor is not None]
            if not parts:
                raise ValueError(f"no hinge or epsilon_insensitive factor depends on site {self.sites[0]!r}")
            zetas, costs = zip(*parts, strict=True)
            return jnp.concatenate(zetas), jnp.concatenate(costs)

        (tau, cost), (jacobian, _) = zeta_and_cost(w), jax.jacfwd(zeta_and_cost)(w)
        return columnwise(-jacobian), tau, cost

    def _augment(self, z: Sites, target: Target, k: Any) -> Distribution:
        A, tau, cost = self.hinges(z, target)
        return HingeOmega(cost * jnp.abs(tau - A @ z[self.sites[0]].ravel())).to_event(1)

    def _law(self, omega: jax.Array, z: Sites, target: Target, k: Any) -> Distribution:
        (site,) = self.sites
        w, unravel = ravel_pytree(jnp.zeros_like(z[site]))

        def log_rest(w: jax.Array) -> jax.Array:
            program = block(target.model, hide_fn=lambda msg: MARGIN in msg.get("infer", {}))
            return target.log_joint({**z, site: unravel(w)}, program)

        A, tau, cost = self.hinges(z, target)
        h, P = information(A, tau, omega, cost)
        law = InformationNormal(h + jax.grad(log_rest)(w), P - jax.hessian(log_rest)(w))
        shape = jnp.shape(z[site])
        return law if len(shape) == 1 else TransformedDistribution(law, ReshapeTransform(shape, w.shape))

    def validate(self, z: Sites, target: Target) -> None:
        claimed, actual = self.discrepancies(random.key(0), z, target, {}) or (jnp.zeros(1), jnp.zeros(1))
        # Loose enough for single precision; a score that is not affine misses by far more.
        if not np.allclose(claimed, actual, rtol=1e-2, atol=1e-1):
            raise ValueError(
                f"site {self.sites[0]!r} is not conditionally Gaussian given the augmentation: the scores of its "
                "margin factors must be affine in it and its prior Normal or MultivariateNormal; use NUTS for it"
            )


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
