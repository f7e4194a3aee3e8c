"""Weights under hinges: their augmentation variables, and their Gaussian given these.

A kernel says which hinges ``zeta = tau - a'w`` its loss is made of, as a function called like a conditional; what
follows from them stands here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import Distribution

from ...models import HingeOmega, InformationNormal
from ..engine.target import Sites
from .augmentation import class_rows, columnwise, weight_information
from .labels import cluster_sums

Pair = tuple[Callable[..., Distribution], Callable[..., InformationNormal]]


class Hinges(NamedTuple):
    """Hinges of one vector of weights, and its prior.

    - **A**, **tau** - (n, d) rows ``a`` and (n,) offsets.
    - **cost** - ``c``.
    - **precision** - of each weight's prior, ``1/nu^2``.
    """

    A: jax.Array
    tau: jax.Array
    cost: Any
    precision: Any

    def omega(self, w: jax.Array) -> Distribution:
        """``1/omega_i ~ IG(1/(c|zeta_i|), 1)``."""
        return HingeOmega(self.cost * jnp.abs(self.tau - self.A @ w)).to_event(1)

    def weights(self, omega: jax.Array) -> InformationNormal:
        """``N(P^-1 h, P^-1)``: ``P = I/nu^2 + c^2 sum a a'/omega``, ``h = c sum (omega + c tau)/omega a``."""
        return InformationNormal(*weight_information(self.A, self.tau, omega, self.cost, self.precision))


class ClassHinges(NamedTuple):
    """The multi-class hinge: inputs (n, d), labels (n,), ``c``, ``ell`` and the weights' prior precision."""

    inputs: jax.Array
    y: jax.Array
    cost: Any
    ell: Any
    precision: Any

    def of_class(self, k: Any, eta: jax.Array) -> Hinges:
        """``a_i = +-x_i`` and ``tau_i`` of class ``k`` given the other classes' weights; ``eta[k]`` is not read."""
        sgn, tau = class_rows(self.inputs @ eta.T, self.y, k, self.ell)
        return Hinges(columnwise(sgn[:, None] * self.inputs), tau, self.cost, self.precision)


class GroupHinges(NamedTuple):
    """Hinges of many vectors of weights, one for each group: ``groups`` (n,) tells whose a row is."""

    A: jax.Array
    tau: jax.Array
    groups: jax.Array
    num_groups: int
    cost: Any
    precision: Any

    def omega(self, eta: jax.Array) -> Distribution:
        """``1/omega_i ~ IG(1/(c|zeta_i|), 1)``, given the weights (num_groups, d)."""
        return HingeOmega(self.cost * jnp.abs(self.tau - jnp.sum(self.A * eta[self.groups], axis=1))).to_event(1)

    def weights(self, omega: jax.Array) -> InformationNormal:
        """That of every group, by sums over its rows; a group without rows has its prior."""
        A, d, weight = self.A, self.A.shape[1], self.cost / omega
        h = cluster_sums(self.groups, A * (self.cost * (1 + weight * self.tau))[:, None], self.num_groups)
        rows, columns = jnp.triu_indices(d)

        def products(A: jax.Array, w: jax.Array) -> jax.Array:
            return A[:, rows] * A[:, columns] * w[:, None]

        upper = cluster_sums(self.groups, (A, self.cost * weight), self.num_groups, products)
        P = jnp.zeros((self.num_groups, d, d), A.dtype).at[:, rows, columns].set(upper).at[:, columns, rows].set(upper)
        return InformationNormal(h, P + jnp.eye(d, dtype=A.dtype) * self.precision)


def of_weights(hinges: Callable[..., Hinges | GroupHinges]) -> Pair:
    """``omega`` given ``eta`` and ``eta`` given ``omega``, for :class:`~regbayes.inference.Augmented`.

    :param hinges: ``(z, *args, **kwargs)``; it does not read the weights.
    """

    def omega_given_eta(z: Sites, *args, **settings) -> Distribution:
        return hinges(z, *args, **settings).omega(z["eta"])

    def eta_given_omega(omega: jax.Array, rest: Sites, *args, **settings) -> InformationNormal:
        return hinges(rest, *args, **settings).weights(omega)

    return omega_given_eta, eta_given_omega


def of_rows(hinges: Callable[..., Hinges | GroupHinges], axis: int = 0) -> Pair:
    """The same of the rows of ``eta`` along an axis: ``hinges(k, z, *args, **kwargs)`` does not read row ``k``."""

    def omega_given_eta(k: jax.Array, z: Sites, *args, **settings) -> Distribution:
        eta = lax.dynamic_index_in_dim(z["eta"], k, axis, keepdims=False)
        return hinges(k, z, *args, **settings).omega(eta)

    def eta_given_omega(k: jax.Array, omega: jax.Array, z: Sites, *args, **settings) -> InformationNormal:
        return hinges(k, z, *args, **settings).weights(omega)

    return omega_given_eta, eta_given_omega


def tube_rows(X: jax.Array, y: jax.Array, epsilon: Any) -> tuple[jax.Array, jax.Array]:
    """Two hinges per datum: ``(y - epsilon) - w'x`` below the tube and ``-(y + epsilon) + w'x`` above it."""
    return jnp.concatenate([X, -X]), jnp.concatenate([y - epsilon, -y - epsilon])


def shift_law(weights: jax.Array, prior_scale: Any) -> Distribution:
    """``N(0, nu^2/L I)`` of the mean over ``L`` classes of weights (..., L, d)."""
    *slots, L, d = weights.shape
    return dist.Normal(0.0, prior_scale / L**0.5).expand([*slots, d]).to_event(len(slots) + 1)


def mean_eta(z: Sites, *args, prior_scale, **_) -> Distribution:
    """``N(0, nu^2/L I)``: a shift common to all classes changes no loss, so the mean of the rows keeps its prior."""
    return shift_law(z["eta"], prior_scale)
