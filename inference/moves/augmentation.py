"""The algebra that every augmented hinge shares: rows and their Gaussian information.

A *row* is one hinge term ``exp(-2 c max(0, zeta))`` with ``zeta = tau - a . w`` affine in the weights ``w``:

===================  ============================  ====================================
loss                 rows per datum                ``a``, ``tau``
===================  ============================  ====================================
hinge                1                             ``y x``, ``ell``
epsilon-insensitive  2                             ``x``, ``t - eps`` and ``-x``, ``-t - eps``
multi-class, class k 1, the other classes fixed    :func:`class_rows`
===================  ============================  ====================================

The formulas take NumPy or JAX arrays alike, so a sampler and its small-variance limit run the same lines.
"""

from typing import Any

import jax
from jax import lax


def class_rows(scores: Any, y: Any, k: Any, ell: Any) -> tuple[Any, Any]:
    """The multi-class hinge as one hinge in the score of class ``k``, the other scores fixed.

    With ``m_i = max_{j != k} (ell 1[j != y_i] + s_ij)`` the loss is, up to a constant, ``(m_i - s_ik)_+`` where
    ``y_i = k`` and ``(s_ik + ell - m_i)_+`` elsewhere: ``(tau_i - sgn_i s_ik)_+``, ``tau = sgn (m - ell 1[y != k])``.

    :param scores: (n, L) scores; column ``k`` is not read.
    :param y: (n,) labels in ``0..L-1``.
    :param k: the class.
    :param ell: the margin, positive.
    :return: ``sgn`` and ``tau``, both (n,).
    """
    xp = scores.__array_namespace__()
    classes = xp.arange(scores.shape[-1])
    rivals = xp.where(classes == k, -xp.inf, scores + ell * (classes != y[:, None]))
    m = xp.max(rivals, axis=-1)
    sgn = xp.where(y == k, 1.0, -1.0).astype(scores.dtype)
    return sgn, sgn * (m - ell * (y != k))


def columnwise(A: jax.Array) -> jax.Array:
    """The same matrix, laid out column by column: XLA then forms ``A'DA`` in half the time."""
    return lax.optimization_barrier(A.T).T


def information(A: Any, tau: Any, omega: Any, cost: Any, sgn: Any = 1.0) -> tuple[Any, Any]:
    """What the rows say of ``w`` given ``omega``: log density ``h'w - w'Pw/2`` up to a constant.

    ``P = c^2 sum_i a_i a_i' / omega_i`` and ``h = c sum_i (omega_i + c tau_i)/omega_i a_i``.

    :param A: (n, d) rows.
    :param tau: (n,) offsets.
    :param omega: (n,) augmentation variables, positive.
    :param cost: ``c``, a scalar or (n,).
    :param sgn: (n,) signs, for rows ``sgn_i a_i``: ``P`` does not see them.
    :return: ``h`` (d,) and ``P`` (d, d).
    """
    xp, weight = A.__array_namespace__(), cost / omega
    return A.T @ (sgn * cost * (1 + weight * tau)), xp.inner(A.T * (cost * weight), A.T)


def weight_information(
    A: Any, tau: Any, omega: Any, cost: Any, prior_precision: Any, sgn: Any = 1.0
) -> tuple[Any, Any]:
    """:func:`information` with the prior ``N(0, I/prior_precision)`` added: ``w ~ N(P^-1 h, P^-1)`` given ``omega``."""
    xp = A.__array_namespace__()
    h, P = information(A, tau, omega, cost, sgn)
    return h, P + prior_precision * xp.eye(A.shape[1], dtype=A.dtype)
