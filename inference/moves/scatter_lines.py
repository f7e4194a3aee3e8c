r"""The scatter ``S`` of Gaussian clusters under an inverse-Wishart prior, which is not conjugate to it.

Given the components, with :math:`P = \sum_k \Lambda_k^{-1}` over ``K`` clusters and :math:`S \sim IW(R, \nu_0)`,

.. math:: p(S | \cdot) \propto |S|^{e} \exp\{-\tfrac12 \mathrm{tr}(P S) - \tfrac12 \mathrm{tr}(R S^{-1})\},
          \qquad e = \tfrac12 (K\nu - \nu_0 - d - 1),

a matrix generalised inverse Gaussian. On a line :math:`S + \frac{s - 1}{q} a a'`, :math:`q = a'S^{-1}a`, it is the
generalised inverse Gaussian of one number ``s > 0``,

.. math:: p(s) \propto s^{e} \exp\{-\tfrac12 (\psi s + \chi/s)\}, \qquad
          \psi = a'Pa/q, \quad \chi = a'S^{-1}RS^{-1}a/q,

which is drawn exactly. Directions ``a`` do not depend on ``S``, so each draw is a Gibbs step.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.distributions import Distribution

from ...models.laws.normal_wishart import inverse_root, split_components
from ..engine.move import Move, difference
from ..engine.target import Sites, Target


class ScatterGiven(NamedTuple):
    """The conditional of ``S`` given the components: ``e``, ``P`` and ``R``."""

    exponent: jax.Array
    precisions: jax.Array
    scale: jax.Array


class Line(NamedTuple):
    """``p(s) = s^exponent exp(-(psi s + chi/s)/2)`` on a line through the current scatter, where ``s = 1``."""

    exponent: jax.Array
    psi: jax.Array
    chi: jax.Array

    def log_density(self, log_s: jax.Array) -> jax.Array:
        """Of ``log s``, up to a constant: it is concave."""
        return (self.exponent + 1) * log_s - (self.psi * jnp.exp(log_s) + self.chi * jnp.exp(-log_s)) / 2

    def sample(self, key: jax.Array) -> jax.Array:
        """``log s``, by rejection from the hat of two tangents and the mode's level (Devroye, 1984)."""
        power, root = self.exponent + 1, jnp.hypot(self.exponent + 1, jnp.sqrt(self.psi * self.chi))
        # Of the two forms of the positive root of psi s^2 - 2 power s - chi, the one that does not cancel.
        mode = jnp.log(jnp.where(power > 0, (power + root) / self.psi, self.chi / (root - power)))
        top, step = self.log_density(mode), jnp.sqrt(2 / root)
        ends = mode + step * jnp.array([-1.0, 1.0], mode.dtype)
        heights, slopes = self.log_density(ends) - top, jax.vmap(jax.grad(self.log_density))(ends)
        cuts = ends - heights / slopes  # where the tangents reach the mode's level
        areas = jnp.stack([cuts[1] - cuts[0], 1 / slopes[0], -1 / slopes[1]])
        edges = jnp.cumsum(areas)

        def propose(carry: tuple) -> tuple:
            key, *_ = carry
            key, key_uniforms = random.split(key)
            u, v, w = random.uniform(key_uniforms, (3,), mode.dtype)
            part, tail = jnp.searchsorted(edges / edges[2], u, side="right"), jnp.log1p(-v)
            t = jnp.where(
                part == 0,
                cuts[0] + v * areas[0],
                jnp.where(part == 1, cuts[0] + tail * areas[1], cuts[1] - tail * areas[2]),
            )
            hat = jnp.where(part == 0, 0.0, tail)
            return key, t, jnp.log1p(-w) <= self.log_density(t) - top - hat

        return lax.while_loop(lambda carry: ~carry[2], propose, (key, mode, jnp.asarray(False)))[1]


def line_of(given: ScatterGiven, inverse: jax.Array, a: jax.Array) -> tuple[Line, jax.Array, jax.Array]:
    """The density on the line of direction ``a``, with ``q`` and ``S^-1 a``."""
    image = inverse @ a
    q = a @ image
    return Line(given.exponent, a @ given.precisions @ a / q, image @ given.scale @ image / q), q, image


class ScatterLines(Move):
    """Redraw the scatter along ``d`` times ``d`` random lines, given components that do not outlive the move.

    :param site: the scatter.
    :param components: ``(z, *args, **kwargs) -> Distribution`` of the components given every site.
    :param given: ``(components, rest, *args, **kwargs) -> ScatterGiven``.
    :param when: see :class:`Move`.
    """

    num_keys = 2

    def __init__(
        self,
        site: str,
        components: Callable[..., Distribution],
        given: Callable[..., ScatterGiven],
        *,
        name: str | None = None,
        when: Callable[[Sites], bool] | None = None,
    ) -> None:
        super().__init__(site, name=name, when=when)
        self.components, self.given = components, given

    def step(self, keys, z, log_joint, target, tuning):
        components = self._components(z, target).sample(keys[0])
        given = self._given(components, z, target)
        # With P the identity all directions are alike: S = T W T' with TT' = P^-1.
        T = inverse_root(given.precisions)
        white = ScatterGiven(given.exponent, jnp.eye(len(T), dtype=T.dtype), _solve_both(T, given.scale))
        W = _solve_both(T, z[self.sites[0]])

        def around(W: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            """``d`` lines, the inverse computed afresh before them."""
            key_lines, key_draws = random.split(key)
            directions = random.normal(key_lines, W.shape, W.dtype)
            root = inverse_root(W)
            keys = random.split(key_draws, len(W))
            (W, _), _ = lax.scan(along, (W, root @ root.T), (directions, keys))
            return (W + W.T) / 2, None

        def along(carry: tuple[jax.Array, jax.Array], line: tuple[jax.Array, jax.Array]) -> tuple:
            (W, inverse), (a, key) = carry, line
            law, q, image = line_of(white, inverse, a)
            s = jnp.exp(law.sample(key))
            return (W + (s - 1) / q * a[:, None] * a, inverse - (1 - 1 / s) / q * image[:, None] * image), None

        W, _ = lax.scan(around, W, random.split(keys[1], len(W)))
        S = T @ W @ T.T
        finite = jnp.all(jnp.isfinite(jnp.linalg.cholesky(S)))
        return {**z, self.sites[0]: jnp.where(finite, (S + S.T) / 2, z[self.sites[0]])}, None

    def _components(self, z: Sites, target: Target) -> Distribution:
        return target.call(self.components, {**target.given, **z})

    def _given(self, components: jax.Array, z: Sites, target: Target) -> ScatterGiven:
        return target.call(self.given, components, self.rest(z, target))

    def discrepancies(self, key, z, target, tuning):
        """The density on several lines, against the program's with that of the components given the rest."""
        (site,), (key_components, key_lines) = self.sites, random.split(key)
        S, d = z[site], len(z[site])
        components = self._components(z, target).sample(key_components)
        given, inverse = self._given(components, z, target), jnp.linalg.inv(S)

        def log_density(S: jax.Array) -> jax.Array:
            moved = {**z, site: S}
            return target.log_joint(moved) + jnp.sum(self._components(moved, target).log_prob(components))

        def sides(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            key_line, key_draw = random.split(key)
            a = random.normal(key_line, (d,), S.dtype)
            line, q, _ = line_of(given, inverse, a)
            t = line.sample(key_draw)
            # The density of s, not of its log: that of S on the line.
            claimed = line.log_density(t) - t - line.log_density(jnp.zeros_like(t))
            return claimed, difference(log_density, S + (jnp.exp(t) - 1) / q * a[:, None] * a, S)

        return lax.map(sides, random.split(key_lines, 4))


def precisions_of(components: jax.Array, occupied: jax.Array) -> jax.Array:
    """``P``, the sum of the occupied clusters' precisions."""
    C, _ = split_components(components)
    return jnp.sum(jnp.where(occupied[:, None, None], C @ jnp.swapaxes(C, -1, -2), 0.0), 0)


def _solve_both(T: jax.Array, matrix: jax.Array) -> jax.Array:
    """``T^-1 matrix T'^-1`` of a symmetric matrix."""
    half = lax.linalg.triangular_solve(T, matrix, left_side=True, lower=True)
    return lax.linalg.triangular_solve(T, half.T, left_side=True, lower=True)
