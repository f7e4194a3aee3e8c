"""Slice moves for components that do not see each other given the labels: one bracket each, all at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from numpyro.distributions import Distribution

from ..engine.move import Move, difference
from ..engine.target import Sites, Target
from .slices import MAX_SHRINKS


class Rows(NamedTuple):
    """A block of a site, (M, d), whose rows are independent given everything else.

    - **log_density** - ``(M, d) -> (M,)``: the log density of each row given the rest, up to a constant of its own.
    - **mean** - (M, d), centre of a Gaussian fit of each row. It must not depend on the block itself.
    - **scale_tril** - (M, d, d), its lower Cholesky factor. Likewise.
    """

    log_density: Callable[[jax.Array], jax.Array]
    mean: jax.Array
    scale_tril: jax.Array


class RowSlices(Move):
    r"""Generalised elliptical slice sampling of many independent rows side by side.

    For a site (M, L, d) with a row per slot and block: block ``l`` of all slots is redrawn given the other blocks,
    ``l = 0..L-1`` in turn, and slot ``k``'s row by its own step of :class:`~regbayes.inference.EllipticalSlice` about
    its own Student-t reference :math:`t_\kappa(m_k, L_kL_k')`. The fit is made anew at each visit from what the block
    is conditioned on, so it follows the labels and any fit is exact. The loop ends when every row has moved.

    :param site: the site, (M, L, d).
    :param rows: ``(l, z, *args, **kwargs) -> Rows`` of block ``l``; ``z[site][:, l]`` is not to be read.
    :param num_steps: slice steps about each fit.
    :param degrees_of_freedom: of the t, :math:`\kappa`, a whole number.
    :param covered_by: see :class:`~regbayes.inference.Move`.

    **Example**: see the source of :func:`regbayes.inference.dpmnl_collapsed`.

    **References**

    1. *Elliptical slice sampling*, Murray, Adams and MacKay, AISTATS (2010).
    2. *Parallel MCMC with generalized elliptical slice sampling*, Nishihara, Murray and Adams, JMLR 15 (2014).
    """

    def __init__(
        self,
        site: str,
        rows: Callable[..., Rows],
        *,
        num_steps: int = 1,
        degrees_of_freedom: int = 30,
        covered_by: str,
        name: str | None = None,
        when: Callable[[Sites], bool] | None = None,
    ) -> None:
        super().__init__(site, name=name, covered_by=covered_by, when=when)
        for argument, value in (("num_steps", num_steps), ("degrees_of_freedom", degrees_of_freedom)):
            if value < 1 or value != int(value):
                raise ValueError(f"{argument} must be a positive whole number, found {value}")
        self.rows, self.num_steps, self.degrees_of_freedom = rows, int(num_steps), int(degrees_of_freedom)

    def _rows(self, l: jax.Array, z: Sites, target: Target) -> Rows:
        return target.call(self.rows, l, {**target.given, **z})

    def step(self, keys, z, log_joint, target, tuning):
        (site,) = self.sites
        num_blocks = z[site].shape[1]
        keys = random.split(keys[0], (num_blocks, self.num_steps, 2))

        def visit(l: jax.Array, z: Sites) -> Sites:
            rows = self._rows(l, z, target)
            x = lax.fori_loop(0, self.num_steps, lambda i, x: self._slice(keys[l, i], x, rows), z[site][:, l])
            return {**z, site: z[site].at[:, l].set(x)}

        return lax.fori_loop(0, num_blocks, visit, z), None

    def _slice(self, keys: jax.Array, x: jax.Array, rows: Rows) -> jax.Array:
        """One step of every row: an ellipse through the row, and a bracket that shrinks to an angle on it."""
        (num, d), kappa = x.shape, self.degrees_of_freedom
        normals = random.normal(keys[0], (num, kappa + 2 * d), x.dtype)
        uniforms = random.uniform(keys[1], (MAX_SHRINKS + 2, num), x.dtype)
        across, u = x - rows.mean, _whiten(rows, x)
        v = jnp.sqrt(self._scale(normals[:, d:], u))[:, None] * normals[:, :d]
        along = jnp.einsum("kde,ke->kd", rows.scale_tril, v)

        def point(angle: jax.Array) -> jax.Array:
            return rows.mean + jnp.cos(angle)[:, None] * across + jnp.sin(angle)[:, None] * along

        def log_ratio(angle: jax.Array) -> jax.Array:
            white = jnp.cos(angle)[:, None] * u + jnp.sin(angle)[:, None] * v
            return rows.log_density(point(angle)) - self._log_reference(white)

        height = rows.log_density(x) - self._log_reference(u) + jnp.log1p(-uniforms[0])
        angle = 2 * jnp.pi * uniforms[1]

        def rejected(carry: tuple) -> jax.Array:
            i, *_, accepted = carry
            return ~jnp.all(accepted) & (i < MAX_SHRINKS)

        def propose(carry: tuple) -> tuple:
            i, angle, low, high, accepted = carry
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            angle = jnp.where(accepted, angle, low + (high - low) * uniforms[2 + i])
            return i + 1, angle, low, high, accepted | (log_ratio(angle) > height)

        start = (0, angle, angle - 2 * jnp.pi, angle, log_ratio(angle) > height)
        _, angle, _, _, accepted = lax.while_loop(rejected, propose, start)
        # A bracket shrunk to nothing has come back to the current row: stay there.
        return jnp.where(accepted[:, None], point(angle), x)

    def _scale(self, normals: jax.Array, u: jax.Array) -> jax.Array:
        """The t's scale given the whitened rows: inverse gamma, from ``kappa + d`` standard normals each."""
        return (self.degrees_of_freedom + jnp.sum(u**2, -1)) / jnp.sum(normals**2, -1)

    def _log_reference(self, u: jax.Array) -> jax.Array:
        """Log density of the t at the whitened rows, up to a constant."""
        kappa = self.degrees_of_freedom
        return -(kappa + u.shape[-1]) / 2 * jnp.log1p(jnp.sum(u**2, -1) / kappa)

    def _reference(self, rows: Rows) -> Distribution:
        return dist.MultivariateStudentT(self.degrees_of_freedom, rows.mean, rows.scale_tril)

    def discrepancies(self, key, z, target, tuning):
        """For each block: ``log R + log t = log p``, the t's scale mixture, and a fit that is blind to the block."""
        (site,) = self.sites
        blocks = jnp.arange(z[site].shape[1])
        return jax.vmap(lambda l: self._identities(random.fold_in(key, l), l, z, target))(blocks)

    def _identities(self, key: jax.Array, l: jax.Array, z: Sites, target: Target) -> tuple[jax.Array, jax.Array]:
        (site,), kappa = self.sites, self.degrees_of_freedom
        key_point, key_scale = random.split(key)
        rows = self._rows(l, z, target)
        reference = self._reference(rows)
        a, b = reference.sample(key_point, (2,))

        def log_density(x: jax.Array) -> jax.Array:
            """Of all rows: the ratio that the slices compare, and the reference."""
            log_ratio = rows.log_density(x) - self._log_reference(_whiten(rows, x))
            return jnp.sum(log_ratio + reference.log_prob(x))

        moved = [{**z, site: z[site].at[:, l].set(x)} for x in (a, b)]
        u = _whiten(rows, a)
        scale = self._scale(random.normal(key_scale, (len(u), kappa + u.shape[1])), u)
        given_scale = dist.Normal(0.0, jnp.sqrt(scale)[:, None]).expand(u.shape).to_event(1).log_prob(u)
        posterior = dist.InverseGamma((kappa + u.shape[1]) / 2, (kappa + jnp.sum(u**2, -1)) / 2)
        mixture = given_scale + dist.InverseGamma(kappa / 2, kappa / 2).log_prob(scale) - posterior.log_prob(scale)
        eye = jnp.eye(u.shape[1], dtype=u.dtype)
        white_reference = dist.MultivariateStudentT(kappa, jnp.zeros(u.shape[1], u.dtype), eye)
        sums = [jnp.sum(fit.mean) + jnp.sum(fit.scale_tril) for fit in (rows, self._rows(l, moved[0], target))]
        claimed = log_density(a) - log_density(b), jnp.sum(mixture), sums[0]
        actual = difference(target.log_joint, *moved), jnp.sum(white_reference.log_prob(u)), sums[1]
        return jnp.stack(claimed), jnp.stack(actual)


def _whiten(rows: Rows, x: jax.Array) -> jax.Array:
    """``L^-1 (x - m)`` of every row."""
    return lax.linalg.triangular_solve(rows.scale_tril, (x - rows.mean)[..., None], left_side=True, lower=True)[..., 0]
