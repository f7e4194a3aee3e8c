"""Slice moves: points on a curve through the current state, accepted above a random height of the density."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution

from ..engine.move import Move, difference

COVERED_BY = "tests/inference/kernels/test_svm.py::test_kernels_agree_with_nuts"
"""An identity reaches the density that a slice move compares; that the step leaves it invariant is tested there."""

MAX_SHRINKS = 100
"""Each shrink takes away a good part of the bracket; a hundred are beyond any float."""


def shrink(
    evaluate: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    height: jax.Array,
    t: jax.Array,
    low: jax.Array,
    high: jax.Array,
    uniforms: jax.Array,
    log_joint: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Neal's shrinking bracket around the current point ``t = 0``.

    :param evaluate: ``t -> (log density compared with the height, the program's log joint)``.
    :param height: log height of the slice.
    :param t: the first proposal.
    :param low: lower end of the bracket, at most 0.
    :param high: upper end, at least 0.
    :param uniforms: (MAX_SHRINKS,) in one draw, which costs less than one draw a shrink.
    :param log_joint: at the current point.
    :return: the accepted ``t`` and the log joint there; 0 if nothing was accepted.
    """

    def rejected(carry: tuple) -> jax.Array:
        i, *_, level, _ = carry
        return ~(level > height) & (i < MAX_SHRINKS)

    def propose(carry: tuple) -> tuple:
        i, t, low, high, *_ = carry
        low, high = jnp.where(t < 0, t, low), jnp.where(t < 0, high, t)
        t = low + (high - low) * uniforms[i]
        return i + 1, t, low, high, *evaluate(t)

    i, t, _, _, _, log_joint_new = lax.while_loop(rejected, propose, (0, t, low, high, *evaluate(t)))
    # A bracket shrunk to nothing has come back to the current point: stay there.
    moved = i < MAX_SHRINKS
    return jnp.where(moved, t, 0.0), jnp.where(moved, log_joint_new, log_joint)


class EllipticalSlice(Move):
    r"""Generalised elliptical slice sampling of one site whose posterior is near-Gaussian.

    The target is split into a Student-t reference around a Gaussian fit and the ratio that is left,
    :math:`p(x) = t_\kappa(x; m, LL')\,R(x)`. Given the scale :math:`s` of the t, an ellipse through the current
    point is drawn from :math:`N(m, sLL')` and a point on it is accepted when :math:`\log R` lies above a uniform
    slice. Rejections shrink the bracket; every step moves. The heavier tails of the t bring back a chain that
    started far out. The fit enters once, when the kernel is initialised: any fit is exact, a good one is fast.

    :param site: the site owned.
    :param fit: ``(z, *args, **kwargs) -> (mean, scale_tril)``, the Gaussian fit of the flattened site: (D,) and (D, D).
    :param degrees_of_freedom: of the t, :math:`\kappa`, a whole number.

    **References**

    1. *Elliptical slice sampling*, Murray, Adams and MacKay, AISTATS (2010).
    2. *Parallel MCMC with generalized elliptical slice sampling*, Nishihara, Murray and Adams, JMLR 15 (2014).
    """

    num_keys = 2

    def __init__(
        self,
        site: str,
        fit: Callable[..., tuple[jax.Array, jax.Array]],
        *,
        degrees_of_freedom: int = 30,
        covered_by: str = COVERED_BY,
        name: str | None = None,
    ) -> None:
        super().__init__(site, name=name, covered_by=covered_by)
        if degrees_of_freedom < 1 or degrees_of_freedom != int(degrees_of_freedom):
            raise ValueError(f"degrees_of_freedom must be a positive whole number, found {degrees_of_freedom}")
        self.fit, self.degrees_of_freedom = fit, int(degrees_of_freedom)

    def setup(self, z, target):
        mean, scale_tril = target.call(self.fit, {**target.given, **z})
        return {"mean": mean, "scale_tril": scale_tril}

    def start(self, key, z, tuning):
        flat, unravel = ravel_pytree(z[self.sites[0]])
        return {self.sites[0]: unravel(self._reference(tuning).sample(key).astype(flat.dtype))}

    def _reference(self, tuning: dict[str, jax.Array]) -> Distribution:
        return dist.MultivariateStudentT(self.degrees_of_freedom, tuning["mean"], tuning["scale_tril"])

    def _scale(self, normals: jax.Array, u: jax.Array) -> jax.Array:
        """The t's scale given the whitened point: inverse gamma, from ``kappa + D`` standard normals."""
        return (self.degrees_of_freedom + u @ u) / (normals @ normals)

    def _log_reference(self, u: jax.Array) -> jax.Array:
        """Log density of the t at the whitened point, up to a constant."""
        kappa = self.degrees_of_freedom
        return -(kappa + u.size) / 2 * jnp.log1p(u @ u / kappa)

    def step(self, keys, z, log_joint, target, tuning):
        (site,) = self.sites
        mean, scale_tril = tuning["mean"], tuning["scale_tril"]
        x, unravel = ravel_pytree(z[site])
        normals = random.normal(keys[0], (self.degrees_of_freedom + 2 * x.size,), x.dtype)
        uniforms = random.uniform(keys[1], (MAX_SHRINKS + 2,), x.dtype)
        u = lax.linalg.triangular_solve(scale_tril, (x - mean)[:, None], left_side=True, lower=True)[:, 0]
        v = jnp.sqrt(self._scale(normals[x.size :], u)) * normals[: x.size]
        across, along = x - mean, scale_tril @ v

        def point(angle: jax.Array) -> jax.Array:
            return mean + jnp.cos(angle) * across + jnp.sin(angle) * along

        def evaluate(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
            log_joint = target.log_joint({**z, site: unravel(point(angle))})
            return log_joint - self._log_reference(jnp.cos(angle) * u + jnp.sin(angle) * v), log_joint

        if log_joint is None:
            log_joint = target.log_joint(z)
        height = log_joint - self._log_reference(u) + jnp.log1p(-uniforms[0])
        angle = 2 * jnp.pi * uniforms[1]
        low, high = angle - 2 * jnp.pi, angle
        angle, log_joint = shrink(evaluate, height, angle, low, high, uniforms[2:], log_joint)
        return {**z, site: unravel(jnp.where(angle == 0, x, point(angle)))}, log_joint

    def discrepancies(self, key, z, target, tuning):
        """The t's scale mixture, and ``log R + log t = log p`` for the ratio the slice compares."""
        (site,) = self.sites
        key_point, key_scale = random.split(key)
        reference, (_, unravel) = self._reference(tuning), ravel_pytree(z[site])
        points = reference.sample(key_point, (2,))
        white = [jnp.linalg.solve(tuning["scale_tril"], x - tuning["mean"]) for x in points]
        actual = difference(lambda x: target.log_joint({**z, site: unravel(x)}), *points)
        ratio = actual - self._log_reference(white[0]) + self._log_reference(white[1])
        split = ratio + reference.log_prob(points[0]) - reference.log_prob(points[1])
        kappa, u = self.degrees_of_freedom, white[0]
        scale = self._scale(random.normal(key_scale, (kappa + u.size,)), u)
        given_scale = dist.Normal(0.0, jnp.sqrt(scale)).expand(u.shape).to_event(1).log_prob(u)
        posterior = dist.InverseGamma((kappa + u.size) / 2, (kappa + u @ u) / 2)
        mixture = given_scale + dist.InverseGamma(kappa / 2, kappa / 2).log_prob(scale) - posterior.log_prob(scale)
        white_reference = dist.MultivariateStudentT(kappa, jnp.zeros_like(u), jnp.eye(u.size, dtype=u.dtype))
        return jnp.stack([split, mixture]), jnp.stack([actual, white_reference.log_prob(u)])


class Rescale(Move):
    r"""Redraw the length of a site along its own direction, :math:`x \to e^t x`.

    Augmentation moves the direction of a classifier's weights well and their length slowly: every ``omega`` is tied
    to it. This move is the cure, a slice step on the scale group with density :math:`p(e^t x)\,e^{Dt}`, the Jacobian
    included; it leaves the program invariant by itself.

    :param site: the site owned; its support must be closed under scaling.
    :param width: of the first bracket, in log length.

    **References**

    1. *Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation*, Liu and Sabatti,
       Biometrika 87 (2000).
    2. *A theoretical comparison of the data augmentation, marginal augmentation and PX-DA algorithms*, Hobert and
       Marchev, Annals of Statistics 36 (2008).
    """

    def __init__(self, site: str, *, width: float = 0.5, covered_by: str = COVERED_BY, name: str | None = None) -> None:
        super().__init__(site, name=name, covered_by=covered_by)
        self.width = width

    def _log_density(self, log_joint: jax.Array, t: jax.Array, size: int) -> jax.Array:
        """Of ``t``, up to a constant."""
        return log_joint + size * t

    def step(self, keys, z, log_joint, target, tuning):
        (site,) = self.sites
        x = z[site]
        uniforms = random.uniform(keys[0], (MAX_SHRINKS + 3,), x.dtype)

        def evaluate(t: jax.Array) -> tuple[jax.Array, jax.Array]:
            log_joint = target.log_joint({**z, site: jnp.exp(t) * x})
            return self._log_density(log_joint, t, x.size), log_joint

        if log_joint is None:
            log_joint = target.log_joint(z)
        height = log_joint + jnp.log1p(-uniforms[0])
        low = -self.width * uniforms[1]
        high = low + self.width
        first = low + self.width * uniforms[2]
        t, log_joint = shrink(evaluate, height, first, low, high, uniforms[3:], log_joint)
        return {**z, site: jnp.exp(t) * x}, log_joint

    def discrepancies(self, key, z, target, tuning):
        """The density of ``t`` against the program's, with the Jacobian of the map by automatic differentiation."""
        (site,) = self.sites
        x, unravel = ravel_pytree(z[site])
        t = self.width * (random.uniform(key) - 0.5)
        both = jnp.stack([jnp.zeros_like(t), t])
        log_joint, moved = lax.map(lambda t: target.log_joint({**z, site: unravel(jnp.exp(t) * x)}), both)
        _, log_det = jnp.linalg.slogdet(jax.jacfwd(lambda x: jnp.exp(t) * x)(x))
        claimed = self._log_density(moved, t, x.size) - self._log_density(log_joint, jnp.zeros_like(t), x.size)
        return claimed[None], (moved - log_joint + log_det)[None]
