"""A problem of Crammer and Singer's as the solvers see it, and a solution's certificate; see :mod:`.crammer_singer`."""

from typing import NamedTuple

import numpy as np
from numba import njit

Array = np.ndarray

compiled = njit(cache=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, nogil=True)


class Solution(NamedTuple):
    """The result of :func:`crammer_singer`."""

    alpha: Array  # (n, L), the dual variables
    scores: Array  # (n, L), K alpha
    weights: Array | None  # (L, p), for rows
    primal: float
    dual: float
    gap: float  # (primal - dual) / primal, 0 if the primal is
    n_iter: int  # sweeps and interior-point steps
    converged: bool


class DualProblem(NamedTuple):
    """Data with positive cost; ``b`` is 0 at the true label."""

    inputs: Array  # (n, p) or (n, n)
    b: Array  # (n, L)
    y: Array  # (n,)
    cost: Array  # (n,)
    precomputed: bool

    @property
    def cap(self) -> Array:
        """(n, L) upper bounds ``C_i 1[k = y_i]`` of ``alpha``."""
        return np.where(np.arange(self.b.shape[1]) == self.y[:, None], self.cost[:, None], 0.0)

    def feasible(self, alpha: Array) -> Array:
        """``alpha`` with its ``omega`` scaled to sum to the costs; without any, all of it on the true label."""
        n = len(self.y)
        omega = np.maximum(-alpha, 0.0)
        omega[np.arange(n), self.y] = 0.0
        held = alpha[np.arange(n), self.y]
        # The old cost is not known: what the other labels hold is kept, as far as the new cost goes.
        omega *= np.minimum(1.0, self.cost / np.maximum(held, 1e-300))[:, None]
        alpha = -omega
        alpha[np.arange(n), self.y] = np.sum(omega, axis=1)
        return np.minimum(alpha, self.cap)

    def certify(self, alpha: Array, n_iter: int, tol: float) -> Solution:
        """The primal, the dual and their gap at the weights of a feasible ``alpha``."""
        weights = None if self.precomputed else alpha.T @ self.inputs
        scores = self.inputs @ alpha if weights is None else self.inputs @ weights.T
        norm, loss, gap = _terms(alpha, scores, self.b, self.y, self.cost)
        primal = max(norm, 0.0) / 2 + loss
        relative = gap / primal if primal > 0 else 0.0
        return Solution(alpha, scores, weights, primal, primal - gap, relative, n_iter, relative <= tol)


@compiled
def _terms(alpha, scores, b, y, cost):
    """``|W|^2``, the loss and the duality gap; as a sum of complementarities it is no difference of large numbers."""
    norm, loss, gap = 0.0, 0.0, 0.0
    n, L = alpha.shape
    for i in range(n):
        most = b[i, 0] + scores[i, 0]
        for k in range(1, L):
            most = max(most, b[i, k] + scores[i, k])
        loss += cost[i] * (most - scores[i, y[i]])
        for k in range(L):
            cap = cost[i] if k == y[i] else 0.0
            norm += alpha[i, k] * scores[i, k]
            gap += (cap - alpha[i, k]) * (most - b[i, k] - scores[i, k])
    return norm, loss, gap


def bounded(found: Solution, dual: float, tol: float) -> Solution:
    """``found`` with the gap to ``dual``, if that is a higher bound than its own."""
    dual = max(found.dual, dual)
    gap = max((found.primal - dual) / found.primal, 0.0) if found.primal > 0 else 0.0
    return found._replace(dual=dual, gap=gap, converged=gap <= tol)


def better(best: Solution, found: Solution, tol: float) -> Solution:
    """The one with the lower primal, certified by the higher dual."""
    if found.primal <= best.primal:
        return bounded(found, best.dual, tol)
    return bounded(best, found.dual, tol)
