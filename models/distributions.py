"""Distributions that NumPyro does not have."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from .data import is_concrete


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
