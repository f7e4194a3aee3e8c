"""Gaussian fits of max-margin posteriors, for the moves that need to know where the mass is.

Each minimises the Kullback-Leibler divergence of a Gaussian ``N(m, V)`` to the posterior of the weights by Newton
steps on the loss averaged over ``N(m, V)``. Averaging smooths the kinks, so unlike EM at the mode there is no
``omega`` that tends to 0, and ``V`` is the spread of the posterior rather than the curvature at a kink.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtr
from jax.typing import ArrayLike

MAX_STEPS = 100
TOLERANCE = 1e-3
"""A Newton step this small against the fit's own standard deviations is the last."""
REACH = 2.0
"""A step changes no score by more than this many of its standard deviations: there the averaged loss is smooth."""
NARROWING = 0.5
"""The averaging narrows by at most this factor a step, so that the mean arrives before the kinks sharpen."""


def fit_rows(
    A: jax.Array, tau: jax.Array, cost: ArrayLike, prior_precision: ArrayLike, tolerance: float = TOLERANCE
) -> tuple[jax.Array, jax.Array]:
    r"""Fit :math:`p(w) \propto N(w; 0, I/\lambda)\prod_i \exp\{-2c\,(\tau_i - a_i'w)_+\}`.

    With ``zeta_i ~ N(mu_i, s_i^2)`` under the fit, the averaged hinge has slope ``Phi(mu/s)`` and curvature
    ``phi(mu/s)/s`` in ``zeta``, in closed form.

    :param A: (n, d) rows ``a``.
    :param tau: (n,) offsets.
    :param cost: ``c``, a scalar or (n,).
    :param prior_precision: ``lambda``.
    :param tolerance: stop when a step is this small against the fit's own standard deviations.
    :return: the mean (d,) and the lower Cholesky factor (d, d) of the covariance.
    """

    def spread(root: jax.Array) -> jax.Array:
        return jnp.linalg.norm(A @ root, axis=1)

    def derivatives(m: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        ratio = (tau - A @ m) / s
        slope = 2 * cost * ndtr(ratio)
        curvature = 2 * cost * jnp.exp(-(ratio**2) / 2) / (jnp.sqrt(2 * jnp.pi) * s)
        return -A.T @ slope, (A.T * curvature) @ A

    return newton(lambda w: A @ w, spread, jnp.abs(tau), derivatives, A.shape[1], prior_precision, tolerance)


def fit_classes(
    X: jax.Array,
    y: jax.Array,
    num_classes: int,
    cost: ArrayLike,
    ell: ArrayLike,
    prior_precision: ArrayLike,
    tolerance: float = TOLERANCE,
) -> tuple[jax.Array, jax.Array]:
    """Fit the weights of the multi-class hinge, all classes together.

    The maximum over classes is smoothed to a soft maximum whose temperature matches the spread of the scores under
    the fit (a Gumbel variable of the same variance); an approximation, which costs speed and not exactness.

    :param X: (n, d) inputs.
    :param y: (n,) labels.
    :param num_classes: ``L``.
    :param cost: ``c``.
    :param ell: the margin.
    :param prior_precision: ``1/nu^2``.
    :param tolerance: stop when a step is this small against the fit's own standard deviations.
    :return: the mean (L d,) and the lower Cholesky factor (L d, L d) of the covariance, classes outermost.
    """
    d, L = X.shape[1], num_classes
    own = jax.nn.one_hot(y, L, dtype=X.dtype)

    def derivatives(m: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        temperature = jnp.sqrt(6.0) / jnp.pi * s[:, None]
        p = jax.nn.softmax((X @ m.reshape(L, d).T + ell * (1 - own)) / temperature, axis=1)
        gradient = 2 * cost * (p - own).T @ X

        def hessian_rows(k: jax.Array) -> jax.Array:
            curvature = 2 * cost / temperature * p[:, k, None] * ((jnp.arange(L) == k) - p)
            return jnp.einsum("nd,nj,ne->dje", X, curvature, X, optimize="optimal")

        hessian = lax.map(hessian_rows, jnp.arange(L))  # class by class: all at once would take n L^2 d numbers
        return jnp.ravel(gradient), jnp.reshape(hessian, (L * d, L * d))

    return newton(*scores_of(X, L, ell), derivatives, L * d, prior_precision, tolerance)


def scores_of(X: jax.Array, L: int, ell: ArrayLike) -> tuple[Callable, Callable, jax.Array]:
    """``change``, ``spread`` and ``distance`` for :func:`newton` of the scores of ``L`` classes."""
    d = X.shape[1]

    def change(w: jax.Array) -> jax.Array:
        return jnp.max(jnp.abs(X @ w.reshape(L, d).T), axis=1)

    def spread(root: jax.Array) -> jax.Array:
        # What counts is the spread of score differences: leave out what all classes share.
        roots = root.reshape(L, d, L * d)
        roots = roots - roots.mean(0)
        covariance = jnp.einsum("ldr,ler->de", roots, roots) / L
        return jnp.sqrt(jnp.sum((X @ covariance) * X, axis=1))

    return change, spread, jnp.where(jnp.any(X != 0, axis=1), ell, 0.0).astype(X.dtype)  # a row of zeros has no kink


def newton(
    change: Callable,
    spread: Callable,
    distance: jax.Array,
    derivatives: Callable,
    size: int,
    prior_precision: ArrayLike,
    tolerance: float = TOLERANCE,
) -> tuple[jax.Array, jax.Array]:
    """Damped Newton steps on the averaged loss, from the prior, until they are small against the fit's own spread.

    :param change: by how much a change of the weights changes the scores, (n,).
    :param spread: standard deviation of the scores under a root of the weights' covariance, (n,).
    :param distance: of the scores from their kinks at weights 0, (n,): a narrow prior must not hide the kinks.
    :param derivatives: gradient and Hessian of the averaged loss, given the mean and the scores' spread.
    :param size: of the weights.
    :param prior_precision: of each weight.
    :param tolerance: of the last step, against the fit's own standard deviations.
    """
    dtype = distance.dtype

    def step(carry: tuple) -> tuple:
        i, m, root, P, s, _ = carry
        gradient, hessian = derivatives(m, s)
        # Damped, and more so when half-way steps have not settled: a loose prior lets them cycle.
        rate = jnp.where(i < 20, 0.5, 0.2)
        P_new = P + rate * (hessian + prior_precision * jnp.eye(size, dtype=dtype) - P)
        root_new = inverse_root(P_new)
        white = -root_new.T @ (gradient + prior_precision * m)
        shift = root_new @ white
        shift = shift * jnp.minimum(1.0, REACH / jnp.max(jnp.abs(change(shift)) / s))
        own = spread(root_new) + tiny
        done = (jnp.linalg.norm(white) < tolerance) & jnp.all(jnp.abs(own - s) < tolerance * s)
        new = (m + shift, root_new, P_new, jnp.maximum(own, NARROWING * s))
        # Single precision may give out before the fit is sharp: keep the last one that is finite.
        finite = jnp.isfinite(new[0]).all() & jnp.isfinite(root_new).all()
        return (i + 1, *(jnp.where(finite, a, b) for a, b in zip(new, (m, root, P, s), strict=True)), done | ~finite)

    P = prior_precision * jnp.eye(size, dtype=dtype)
    root = jnp.eye(size, dtype=dtype) / jnp.sqrt(prior_precision)
    tiny = jnp.finfo(dtype).tiny ** 0.5  # an input of zeros has no spread
    start = (0, jnp.zeros(size, dtype), root, P, jnp.maximum(spread(root), distance) + tiny, jnp.array(False))
    _, m, root, *_ = lax.while_loop(lambda carry: ~carry[-1] & (carry[0] < MAX_STEPS), step, start)
    # A convex loss leaves no weight wider than its prior; rounding might.
    wide = jnp.linalg.norm(root, axis=1, keepdims=True) * jnp.sqrt(prior_precision)
    return m, root / jnp.maximum(wide, 1.0)


def inverse_root(P: jax.Array) -> jax.Array:
    """The lower triangular ``R`` with ``R R' = P^-1``, from ``P`` scaled to a unit diagonal."""
    scale = lax.rsqrt(jnp.diagonal(P))
    # P = U U' with U upper triangular is the Cholesky factorisation in reversed order, and R = U'^-1.
    reverse = jnp.linalg.cholesky((P * scale[:, None] * scale)[::-1, ::-1])[::-1, ::-1]
    eye = jnp.eye(len(P), dtype=P.dtype)
    return scale[:, None] * lax.linalg.triangular_solve(reverse, eye, left_side=True, lower=False).T
