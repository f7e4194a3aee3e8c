"""A primal-dual interior-point method [1] for the dual of :mod:`.crammer_singer`.

For few weights, where ascent crawls along ill-conditioned directions: ``p_i = omega_i / C_i`` in the simplex, slacks
``z``, Newton steps on ``z p = mu`` and ``W = sum_i alpha_i x_i'`` in the ``L p`` weights alone. Its end is made sparse
again.

References:

1. *On the implementation of a primal-dual interior point method*, S. Mehrotra, SIAM Journal on Optimization (1992)
"""

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .problem import Array, DualProblem, Solution, better, bounded

SPARSE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # shares of C_i that an interior solution may give up
NEGLIGIBLE = 0.1  # curvature that a Newton matrix may miss on average, relative to the prior's
CENTRAL = 0.1  # of the central path's multipliers, that an interior start has at least


def _rows(problem: DualProblem) -> Array:
    """Rows (n, r) with the problem's inner products."""
    if not problem.precomputed:
        return problem.inputs
    values, vectors = np.linalg.eigh(problem.inputs)
    kept = values > 1e-13 * max(values[-1], 1e-300)
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))


def interior_point(problem: DualProblem, start: Solution, tol: float, max_iter: int = 60) -> Solution:
    """Predictor-corrector steps from ``start``; a sparse ``alpha`` with a gap of ``tol``, or the best there was.

    With ``theta = p/z``, a direction towards ``z p = target``, ``sum_k dp_ik = 0`` and ``dz = dxi - da`` is
    ``dp = target/z - theta dz``, ``dxi = sum_k (target/z + theta da) / sum_k theta``; what remains is a linear system
    in ``dW`` that brings ``W`` to ``sum_i C_i (e_y - p_i) x_i'``.
    """
    X, c, b = _rows(problem), problem.cost[:, None], problem.b
    truth, total_cost = problem.cap / c, np.sum(problem.cost)
    norms = np.einsum("np,np->n", X, X)
    W = start.alpha.T @ X
    a = b + X @ W.T
    mu = max(start.gap, 1e-3) * start.primal / total_cost
    z = np.max(a, axis=1, keepdims=True) - a + mu
    p = np.maximum(truth - start.alpha / c, CENTRAL * mu / z)
    p /= np.sum(p, axis=1, keepdims=True)
    best = start
    for _ in range(max_iter):
        found = problem.certify(c * (truth - p), 0, tol)
        best = better(best, found, tol)
        if best.converged:
            break
        theta = p / z
        total = np.sum(theta, axis=1, keepdims=True)
        factor = _newton_factor(X, theta, total, problem.cost, norms)
        if factor is None:
            break
        residual = W - (c * (truth - p)).T @ X

        def direction(target, theta=theta, total=total, factor=factor, residual=residual, z=z):
            shift = target / z
            fixed = shift - theta * np.sum(shift, axis=1, keepdims=True) / total  # dp at dW = 0
            rhs = -residual - (c * fixed).T @ X
            dW = cho_solve(factor, rhs.ravel(), check_finite=False).reshape(rhs.shape)
            da = X @ dW.T
            dz = np.sum(shift + theta * da, axis=1, keepdims=True) / total - da
            return dW, shift - theta * dz, dz

        def barrier(p, z):
            return float(np.sum(c * p * z)) / (total_cost * p.shape[1])

        _, dp, dz = direction(-p * z)
        t = min(1.0, longest_step(p, dp), longest_step(z, dz))
        mu = barrier(p, z)
        centring = (barrier(p + t * dp, z + t * dz) / mu) ** 3  # little, where the pure Newton step goes far
        dW, dp, dz = direction(centring * mu - p * z - dp * dz)
        t = min(1.0, 0.995 * longest_step(p, dp), 0.995 * longest_step(z, dz))
        W, p, z = W + t * dW, p + t * dp, z + t * dz
        p /= np.sum(p, axis=1, keepdims=True)
    return _sparse(problem, best, tol)


def longest_step(v: Array, dv: Array) -> float:
    """The largest ``t`` with ``v + t dv >= 0``, where ``v > 0``."""
    return 1 / max(float(np.max(-dv / v)), 1e-300)


def _newton_factor(X: Array, theta: Array, total: Array, cost: Array, norms: Array) -> Any:
    """Cholesky factor of ``I + sum_i C_i (diag(theta_i) - theta_i theta_i'/sum theta_i) ⊗ x_i x_i'``, or None.

    Data whose share of it is lost beside the prior's identity are left out.
    """
    L, p = theta.shape[1], X.shape[1]
    weight = cost[:, None] * theta * (total - theta) / total
    share = np.sum(weight, axis=1) * norms
    order = np.argsort(share)
    kept = order[np.searchsorted(np.cumsum(share[order]), NEGLIGIBLE * L * p) :]
    X, weight = X[kept], weight[kept]
    V = (np.sqrt(cost[kept, None] / total[kept]) * theta[kept])[:, :, None] * X[:, None, :]
    V = V.reshape(len(kept), L * p)
    H = -(V.T @ V)
    for k in range(L):  # the diagonal blocks would cancel
        block = slice(k * p, (k + 1) * p)
        H[block, block] = (X.T * weight[:, k]) @ X
    # A shift common to all classes is no direction of descent: curvature along it is free, and mends conditioning.
    H.reshape(L, p, L, p)[...] += (sum(H[k * p : k * p + p, k * p : k * p + p] for k in range(L)) / L)[None, :, None, :]
    diagonal = np.einsum("ii->i", H)
    diagonal += 1.0
    jitter = 1e-15 * float(np.max(diagonal))
    for _ in range(8):
        try:
            return cho_factor(H, check_finite=False, overwrite_a=False)
        except LinAlgError:  # the prior is lost in the rounding of H
            jitter *= 10
            diagonal += jitter
    return None


def _sparse(problem: DualProblem, found: Solution, tol: float) -> Solution:
    """Without the small multipliers of an interior solution, as far as the gap allows."""
    cap, cost = problem.cap, problem.cost[:, None]
    for share in SPARSE:
        omega = cap - found.alpha
        omega = np.where(omega > share * cost, omega, 0.0)
        omega *= cost / np.sum(omega, axis=1, keepdims=True)
        candidate = bounded(problem.certify(cap - omega, 0, tol), found.dual, tol)
        if candidate.gap <= max(tol, 1.1 * found.gap):
            return candidate
    return found
