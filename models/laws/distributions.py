"""Distributions that NumPyro does not have."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import gammaln, log_ndtr, ndtr, ndtri
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from .arguments import is_concrete


class HingeOmega(Distribution):
    r"""The augmentation variable of the hinge, given :math:`b = c|\zeta|`.

    .. math:: p(\omega \mid b) = (2\pi\omega)^{-1/2} \exp\{-(\omega - b)^2 / (2\omega)\}, \quad \omega > 0,

    the generalised inverse Gaussian of index +1/2 (BMC prints -1/2); ``1/omega`` is inverse Gaussian with mean
    ``1/b`` and shape 1. Multiplied by the pseudo-likelihood :math:`\exp(-2c\max(0, \zeta))` it is the scale mixture
    :math:`(2\pi\omega)^{-1/2}\exp\{-(\omega + c\zeta)^2/(2\omega)\}` of Polson and Scott, Gaussian in
    :math:`\zeta`, so drawing it changes no marginal.

    :param b: ``c |zeta|``, non-negative; 0 is legal (``omega`` is then chi-square with one degree of freedom).

    **Example**

    >>> from jax import random
    >>> from regbayes.models import HingeOmega
    >>> HingeOmega(0.5).sample(random.key(0), (3,)).shape
    (3,)

    **References**

    1. *Data augmentation for support vector machines*, Polson and Scott, Bayesian Analysis 6 (2011).
    """

    arg_constraints = {"b": constraints.nonnegative}
    support = constraints.positive
    pytree_data_fields = ("b",)

    def __init__(self, b: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.b = jnp.asarray(b, dtype=jnp.result_type(float, b))
        super().__init__(batch_shape=jnp.shape(b), validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Michael, Schucany and Haas's two roots, written in ``b`` so that no digit is lost near ``b = 0``."""
        shape = (*sample_shape, *self.batch_shape)
        b, tiny = jnp.broadcast_to(self.b, shape), jnp.finfo(self.b.dtype).tiny
        # One call for both uniforms is half the price of a normal and a uniform; sqrt(2) erfinv(u) is |N(0, 1)|.
        u, root = random.uniform(key, (2, *shape), b.dtype)
        chi = 2 * lax.erf_inv(u) ** 2
        large = jnp.maximum(b + chi / 2 + jnp.sqrt(b * chi + chi**2 / 4), tiny)
        return jnp.maximum(jnp.where(root * (large + b) < large, large, b * (b / large)), tiny)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        return -0.5 * jnp.log(2 * jnp.pi * value) - (value - self.b) ** 2 / (2 * value)

    @property
    def mean(self) -> jax.Array:
        return self.b + 1

    @property
    def variance(self) -> jax.Array:
        return self.b + 2


class InformationNormal(Distribution):
    r"""The Gaussian :math:`N(P^{-1}h, P^{-1})` in the form in which conditionals add up.

    Drawn by one Cholesky factorisation of ``P``, scaled to a unit diagonal first: rows pinned by a tiny ``omega``
    make ``P`` ill-conditioned mostly through its diagonal, which single precision would not survive.

    :param linear: ``h``, (..., d).
    :param precision: ``P``, (..., d, d), symmetric positive definite.

    **Example**

    >>> import jax.numpy as jnp
    >>> from regbayes.models import InformationNormal
    >>> InformationNormal(jnp.array([2.0, 0.0]), jnp.diag(jnp.array([4.0, 1.0]))).mean.tolist()
    [0.5, 0.0]
    """

    arg_constraints = {"linear": constraints.real_vector, "precision": constraints.independent(constraints.real, 2)}
    support = constraints.real_vector
    pytree_data_fields = ("linear", "precision", "_scale", "_cholesky")

    def __init__(self, linear: ArrayLike, precision: ArrayLike, *, validate_args: bool | None = None) -> None:
        dtype = jnp.result_type(float, linear, precision)
        self.linear, self.precision = jnp.asarray(linear, dtype), jnp.asarray(precision, dtype)
        diagonal = jnp.diagonal(self.precision, axis1=-2, axis2=-1)
        self._scale = lax.rsqrt(diagonal)
        self._cholesky = jnp.linalg.cholesky(self.precision * self._scale[..., None] * self._scale[..., None, :])
        batch_shape = lax.broadcast_shapes(self.linear.shape[:-1], self.precision.shape[:-2])
        super().__init__(batch_shape, self.linear.shape[-1:], validate_args=validate_args)
        # Only when asked: a sampler must be able to survive a factorisation that fails in single precision.
        if validate_args and is_concrete(self._cholesky) and not np.isfinite(np.asarray(self._cholesky)).all():
            raise ValueError("precision must be positive definite, found a matrix without a Cholesky factor")

    def _solve(self, vector: jax.Array, transpose: bool) -> jax.Array:
        cholesky = jnp.broadcast_to(self._cholesky, vector.shape[:-1] + self._cholesky.shape[-2:])
        return lax.linalg.triangular_solve(
            cholesky, vector[..., None], left_side=True, lower=True, transpose_a=transpose
        )[..., 0]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        noise = random.normal(key, self.shape(sample_shape), self.linear.dtype)
        # With D P D = L L', w = D L'^-1 (L^-1 D h + e) has mean P^-1 h and covariance P^-1.
        half = self._solve(jnp.broadcast_to(self._scale * self.linear, noise.shape), transpose=False)
        return self._scale * self._solve(half + noise, transpose=True)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        residual = (value - self.mean) / self._scale
        cholesky = jnp.swapaxes(self._cholesky, -1, -2)
        white = (cholesky @ residual[..., None])[..., 0]
        diagonal = jnp.diagonal(self._cholesky, axis1=-2, axis2=-1)
        log_det = jnp.sum(jnp.log(diagonal) - jnp.log(self._scale), -1)
        return log_det - 0.5 * jnp.sum(white**2, -1) - 0.5 * self.linear.shape[-1] * jnp.log(2 * jnp.pi)

    @property
    def mean(self) -> jax.Array:
        half = self._solve(self._scale * self.linear, transpose=False)
        return self._scale * self._solve(half, transpose=True)

    @property
    def covariance_matrix(self) -> jax.Array:
        eye = jnp.eye(self.linear.shape[-1], dtype=self.linear.dtype)
        inverse = lax.linalg.triangular_solve(
            self._cholesky, jnp.broadcast_to(eye, self._cholesky.shape), left_side=True, lower=True
        )
        root = inverse * self._scale[..., None, :]
        covariance = jnp.swapaxes(root, -1, -2) @ root
        return jnp.broadcast_to(covariance, self.batch_shape + covariance.shape[-2:])

    @property
    def variance(self) -> jax.Array:
        return jnp.diagonal(self.covariance_matrix, axis1=-2, axis2=-1)


class HingeNormal(Distribution):
    r"""A Gaussian vector tilted by one hinge: a classifier's law given a single datum.

    .. math:: p(\eta) = N(\eta; 0, \nu^2 I)\,\exp\{-2c\,(\ell - a'\eta)_+\} / Z, \qquad s = \nu|a|,

    .. math:: Z = \Phi(-\ell/s) + e^{-2c\ell + 2c^2s^2}\,\Phi(\ell/s - 2cs).

    M2DPM says of ``Z`` that it has no closed form. Its two terms are the weights of the exact draw: ``a'eta`` comes
    from one of two truncated normals, and the part of ``eta`` orthogonal to ``a`` keeps its prior.

    :param a: (..., d), the datum times its sign.
    :param cost: ``c``.
    :param ell: the margin.
    :param scale: ``nu``.

    **Example**: the weight of a new cluster for a datum.

    >>> import jax.numpy as jnp
    >>> from regbayes.models import HingeNormal
    >>> round(float(HingeNormal(jnp.array([1.0, -2.0]), cost=1.0, ell=1.0, scale=1.0).log_normaliser), 4)
    -0.886
    """

    arg_constraints = {
        "a": constraints.real_vector,
        "cost": constraints.positive,
        "ell": constraints.positive,
        "scale": constraints.positive,
    }
    support = constraints.real_vector
    pytree_data_fields = ("a", "cost", "ell", "scale")

    def __init__(
        self,
        a: ArrayLike,
        cost: ArrayLike = 1.0,
        ell: ArrayLike = 1.0,
        scale: ArrayLike = 1.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.a = jnp.asarray(a, dtype=jnp.result_type(float, a))
        batch_shape = lax.broadcast_shapes(self.a.shape[:-1], *map(jnp.shape, (cost, ell, scale)))
        self.cost, self.ell, self.scale = (jnp.asarray(v, self.a.dtype) for v in (cost, ell, scale))
        super().__init__(batch_shape, self.a.shape[-1:], validate_args=validate_args)

    def _log_weights(self) -> tuple[jax.Array, jax.Array]:
        """Logs of the two terms of ``Z``: the datum beyond the margin, and inside it."""
        s = self._spread()
        t = 2 * self.cost * s - self.ell / s
        # exp(-2cl + 2c^2s^2) Phi(-t) is exp(-l^2/2s^2) times Mills' ratio of t, without its overflow.
        inside = jnp.where(
            t > 0,
            -((self.ell / s) ** 2) / 2 + _log_mills(jnp.maximum(t, 0.0)) - jnp.log(2 * jnp.pi) / 2,
            -2 * self.cost * self.ell + 2 * (self.cost * s) ** 2 + log_ndtr(jnp.maximum(-t, 0.0)),
        )
        return log_ndtr(-self.ell / s), inside

    def _spread(self) -> jax.Array:
        """``s``, kept off 0: a datum of zeros has no say."""
        return jnp.maximum(self.scale * jnp.linalg.norm(self.a, axis=-1), jnp.finfo(self.a.dtype).tiny ** 0.25)

    @property
    def log_normaliser(self) -> jax.Array:
        """``log Z``."""
        return jnp.logaddexp(*self._log_weights())

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        key_prior, key_score = random.split(key)
        shape = self.shape(sample_shape)
        prior = self.scale[..., None] * random.normal(key_prior, shape, self.a.dtype)
        which, u = random.uniform(key_score, (2, *shape[:-1]), self.a.dtype)
        s, (outside, inside) = self._spread(), self._log_weights()
        bound, shift = self.ell / s, 2 * self.cost * s
        beyond = jnp.log(which) < outside - jnp.logaddexp(outside, inside)
        # Inside the margin a'eta/s is a normal about 2cs cut off above at l/s, by reflection one cut off below.
        tail = _normal_above(jnp.where(beyond, bound, shift - bound), u)
        score = s * jnp.where(beyond, tail, shift - tail)
        square = jnp.maximum(jnp.sum(self.a**2, -1), jnp.finfo(self.a.dtype).tiny)
        return prior + self.a * ((score - jnp.sum(self.a * prior, -1)) / square)[..., None]

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        value = jnp.asarray(value)
        margin = jnp.maximum(self.ell - jnp.sum(self.a * value, -1), 0.0)
        d = self.a.shape[-1]
        log_prior = -0.5 * jnp.sum((value / self.scale[..., None]) ** 2, -1)
        log_prior = log_prior - d * (jnp.log(self.scale) + 0.5 * jnp.log(2 * jnp.pi))
        return log_prior - 2 * self.cost * margin - self.log_normaliser


def _log_mills(t: jax.Array) -> jax.Array:
    """``log(Phi(-t)/phi(t))`` for ``t >= 0``, without the cancellation of the two for large ``t``."""
    small, large = jnp.minimum(t, 20.0), jnp.maximum(t, 20.0)
    w = large**-2.0
    series = jnp.log1p(-w * (1 - 3 * w * (1 - 5 * w * (1 - 7 * w * (1 - 9 * w * (1 - 11 * w))))))
    exact = log_ndtr(-small) + small**2 / 2 + 0.5 * jnp.log(2 * jnp.pi)
    return jnp.where(t < 20, exact, series - jnp.log(large))


def _normal_above(bound: jax.Array, u: jax.Array) -> jax.Array:
    """A standard normal given that it exceeds ``bound``, from a uniform: exact also far out in the tail."""
    u = jnp.maximum(u, jnp.finfo(u.dtype).tiny)
    low = jnp.minimum(bound, 1.0)
    near = -ndtri(u * ndtr(-low))
    # Far out, solve Phi(-t) = u Phi(-b) for t by Newton's method in logs, from the exponential approximation.
    b = jnp.maximum(bound, 1.0)
    level = jnp.log(u) - b**2 / 2 + _log_mills(b)
    t = jnp.sqrt(b**2 - 2 * jnp.log(u))
    for _ in range(4):
        log_mills = _log_mills(t)
        t = jnp.maximum(t - (t**2 / 2 - log_mills + level) * jnp.exp(log_mills), b)
    return jnp.maximum(jnp.where(bound < 1.0, near, t), bound)


class ChineseRestaurantProcess(Distribution):
    r"""The partition of ``num_data`` points by a Dirichlet process, as labels in a buffer of slots.

    .. math:: p(z) = \frac{\alpha^K\,\Gamma(\alpha)}{\Gamma(\alpha + n)} \prod_{k} \Gamma(n_k)
              \times \frac{(M - K)!}{M!},

    the exchangeable partition probability function times the uniform law of which of the ``M`` slots the ``K``
    clusters sit in. The buffer is for storage: with ``M >= n`` it never matters, and otherwise it matters only to
    partitions of more than ``M`` clusters, which have no labels here. Kernels report when it was full.

    :param concentration: ``alpha``.
    :param num_data: ``n``.
    :param max_clusters: ``M``, the slots.

    **Example**

    >>> from jax import random
    >>> from regbayes.models import ChineseRestaurantProcess
    >>> ChineseRestaurantProcess(1.0, num_data=5, max_clusters=8).sample(random.key(0)).shape
    (5,)

    **References**

    1. *Exchangeable and partially exchangeable random partitions*, Pitman, Probability Theory and Related Fields 102
       (1995).
    """

    arg_constraints = {"concentration": constraints.positive}
    pytree_data_fields = ("concentration",)
    pytree_aux_fields = ("num_data", "max_clusters")

    def __init__(
        self, concentration: ArrayLike, num_data: int, max_clusters: int, *, validate_args: bool | None = None
    ) -> None:
        self.concentration = jnp.asarray(concentration, jnp.result_type(float, concentration))
        self.num_data, self.max_clusters = num_data, max_clusters
        super().__init__(jnp.shape(concentration), (num_data,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.integer_interval(0, self.max_clusters - 1), 1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """One datum after the other; where the buffer is full, no new cluster is opened."""
        shape = (*sample_shape, *self.batch_shape)
        alphas = jnp.broadcast_to(self.concentration, shape).ravel()
        z = jax.vmap(self._sample_one)(random.split(key, len(alphas)), alphas)
        return z.reshape(*shape, self.num_data)

    def _sample_one(self, key: jax.Array, alpha: jax.Array) -> jax.Array:
        key_slots, key_data = random.split(key)
        slots = random.permutation(key_slots, self.max_clusters)

        def seat(carry: tuple, u: jax.Array) -> tuple:
            counts, num = carry
            # In order of appearance: the counts, then alpha for the next table.
            weights = jnp.where(jnp.arange(self.max_clusters) == num, alpha, counts)
            total = jnp.cumsum(weights)
            table = jnp.minimum(jnp.sum(total <= u * total[-1]), jnp.minimum(num, self.max_clusters - 1))
            return (counts.at[table].add(1.0), jnp.maximum(num, table + 1)), table

        start = (jnp.zeros(self.max_clusters, alpha.dtype), jnp.zeros((), int))
        uniforms = random.uniform(key_data, (self.num_data,), alpha.dtype)
        return slots[lax.scan(seat, start, uniforms)[1]]

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        alpha, n, M = self.concentration, self.num_data, self.max_clusters
        counts = jnp.sum(jnp.asarray(value)[..., None] == jnp.arange(M), axis=-2).astype(alpha.dtype)
        num = jnp.sum(counts > 0, -1)
        log_blocks = jnp.sum(jnp.where(counts > 0, gammaln(jnp.maximum(counts, 1.0)), 0.0), -1)
        log_slots = gammaln(M - num + 1.0) - gammaln(M + 1.0)
        return num * jnp.log(alpha) + gammaln(alpha) - gammaln(alpha + n) + log_blocks + log_slots
