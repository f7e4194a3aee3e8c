r"""Many support vector machines on the same rows, with labels or numbers as targets, by their duals.

A *cell* is a row with a target for a task. With weights ``w_m`` for task ``m`` and scores ``f_i = w_m . u_i``

.. math::
    P &= \sum_m \tfrac12 |w_m|^2 + \sum_i \max_{low_i \le \beta \le high_i} [\beta (t_i - f_i) - \epsilon |\beta|], \\
    D &= -\sum_m \tfrac12 |w_m|^2 + \sum_i (\beta_i t_i - \epsilon |\beta_i|), \quad w_m = \sum_i \beta_i u_i.

The hinge ``C (ell - y f)_+`` has ``t = y ell``, ``epsilon = 0`` and ``beta`` between 0 and ``C y``; the
epsilon-insensitive loss has the target and ``beta`` between ``-C`` and ``C``. Dual coordinate ascent [1], compiled,
from any ``beta``; memory is linear in the number of cells. LIBLINEAR keeps its multipliers to itself.

References:

1. *A dual coordinate descent method for large-scale linear SVM*, C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi
   and S. Sundararajan, ICML (2008)
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from ..duality.ascent import LONGEST_REST, dot, shuffle, visit
from ..duality.problem import DualProblem, compiled

Array = np.ndarray


class Cells(NamedTuple):
    """The targets, in the order of their tasks."""

    row: Array  # (N,)
    start: Array  # (M + 1,), where each task's cells begin
    target: Array  # (N,), t
    low: Array  # (N,)
    high: Array  # (N,)
    epsilon: float

    @property
    def task(self) -> Array:
        """(N,)"""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def totals(self, beta: Array, X: Array) -> Array:
        """(M, d) each task's ``sum_i beta_i x_i``."""
        shape = (len(self.start) - 1, len(X))
        return scipy.sparse.csr_array((beta, self.row, self.start), shape=shape) @ X


class Machines(NamedTuple):
    """Weights of all tasks with their multipliers, the objective there and a bound on its minimum."""

    weights: Array  # (M, p)
    beta: Array  # (N,)
    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """Relative to the primal."""
        return (self.primal - self.dual) / self.primal if self.primal > 0 else 0.0


def evaluate(cells: Cells, U: Array, beta: Array) -> Machines:
    """The machines of feasible multipliers on the rows ``U`` (n, p)."""
    weights = np.zeros((len(cells.start) - 1, U.shape[1]))
    primal, gap = _evaluate(U, *cells, beta, weights)
    return Machines(weights, beta, primal, primal - gap)


def solve_tasks(cells: Cells, U: Array, beta: Array, tol: float, max_sweeps: int = 20_000) -> Machines:
    """From ``beta`` (N,) ascend until the gap is ``tol`` times the primal, as far as the sweeps go."""
    beta = np.clip(beta, cells.low, cells.high)
    best = evaluate(cells, U, beta)
    norms, swept = np.einsum("np,np->n", U, U), 0
    weights = best.weights.copy()
    while best.gap > tol and swept < max_sweeps:
        goal = max(tol, best.gap / 4) * best.primal / len(weights)
        beta = beta.copy()
        swept += _ascend(U, *cells, norms, beta, weights, goal, min(256, max_sweeps - swept), swept)
        found = evaluate(cells, U, beta)
        weights = found.weights.copy()
        best = (found if found.primal <= best.primal else best)._replace(dual=max(best.dual, found.dual))
    return best


def respond(problem: DualProblem, M: Array, D: Array, g: Array, alpha: Array, goal: float, max_sweeps: int) -> Array:
    """A multi-class dual of rows that move: the minimum over weights ``W'`` and moves ``delta_i`` (K,) of

        |W'|^2/2 + sum_i [C_i loss_i(W' u_i + M delta_i) + sum_k (delta_ik^2/(2 D_ik) - g_ik delta_ik)],

    where ``delta_i = D_i (g_i + M' alpha_i)``, so that the scores are ``W' u_i + M D_i (g_i + M' alpha_i)``.

    :param M: (L, K) weights of what moves.
    :param D: (n, K) how easily it moves.
    :param g: (n, K) where to.
    :param alpha: (n, L) where to start.
    :param goal: the gap to reach.
    :return: ``alpha`` (n, L).
    """
    alpha = alpha.copy()
    weights = alpha.T @ problem.inputs
    norms = np.einsum("np,np->n", problem.inputs, problem.inputs) + D @ np.sum(M**2, axis=0)  # bounds the curvature
    inputs, b, y, cost, _ = problem
    _respond(inputs, b, y, cost, norms, M, D, g, alpha, weights, goal, max_sweeps)
    return alpha


@compiled
def _respond(inputs, b, y, cost, norms, M, D, g, alpha, weights, goal, max_sweeps):
    """Sweeps over the rows in random orders, see :func:`respond`; ``alpha`` and ``weights`` (L, p) in place."""
    (n, L), K = alpha.shape, M.shape[1]
    a, new, sorted_ = np.empty(L), np.empty(L), np.empty(L)
    order, random, gap, sweeps = np.arange(n), np.uint64(1), np.inf, 0
    while sweeps < max_sweeps and gap > goal:
        random = shuffle(order, random)
        gap = 0.0
        for i in order:
            for c in range(L):
                a[c] = b[i, c] + dot(weights[c], inputs[i])
            for k in range(K):
                move = g[i, k]
                for c in range(L):
                    move += M[c, k] * alpha[i, c]
                for c in range(L):
                    a[c] += M[c, k] * D[i, k] * move
            gap += visit(a, norms[i], cost[i], y[i], alpha[i], sorted_, new)
            for c in range(L):
                delta = new[c] - alpha[i, c]
                if delta != 0:
                    alpha[i, c] = new[c]
                    for j in range(inputs.shape[1]):
                        weights[c, j] += delta * inputs[i, j]
        sweeps += 1


def respond_tasks(
    cells: Cells, U: Array, X: Array, M: Array, D: Array, g: Array, beta: Array, goal: float, max_sweeps: int
) -> Array:
    """The same for tasks on rows ``u_i`` that move together: the minimum over weights ``w_m`` and ``delta`` (d, K) of

        sum_m |w_m|^2/2 + sum_i loss_i(w_m . u_i + x_i . delta M_m) + sum_dk (delta_dk^2/(2 D_dk) - g_dk delta_dk),

    where ``delta = D (g + sum_i beta_i x_i M_m')``.

    :param X: (n, d) inputs.
    :param M: (num_tasks, K) weights of what moves.
    :param D: (d, K) how easily it moves.
    :param g: (d, K) where to.
    :param beta: (N,) where to start.
    :param goal: the gap to reach.
    :return: ``beta`` (N,).
    """
    beta = np.clip(beta, cells.low, cells.high)
    weights, task = evaluate(cells, U, beta).weights, cells.task
    delta = D * (g + cells.totals(beta, X).T @ M)
    norms = np.einsum("np,np->n", U, U)[cells.row] + np.sum((X**2 @ D)[cells.row] * M[task] ** 2, axis=1)
    _respond_tasks(U, X, *cells, task, norms, M, D, delta, beta, weights, goal, max_sweeps)
    return beta


@compiled
def _respond_tasks(
    U, X, row, start, target, low, high, epsilon, task, norms, M, D, delta, beta, weights, goal, max_sweeps
):
    """Sweeps over the cells in random orders, see :func:`respond_tasks`; ``delta``, ``beta``, ``weights`` in place."""
    order, random, gap, sweeps = np.arange(len(beta)), np.uint64(1), np.inf, 0
    d, K = delta.shape
    while sweeps < max_sweeps and gap > goal:
        random = shuffle(order, random)
        gap = 0.0
        for i in order:
            u, x, m = U[row[i]], X[row[i]], task[i]
            miss = target[i] - dot(weights[m], u)
            for r in range(d):
                if x[r] != 0:
                    miss -= x[r] * dot(delta[r], M[m])
            new, part = _visit_cell(miss, norms[i], low[i], high[i], epsilon, beta[i])
            gap += part
            change = new - beta[i]
            if change != 0:
                beta[i] = new
                for j in range(len(u)):
                    weights[m, j] += change * u[j]
                for r in range(d):
                    for k in range(K):
                        delta[r, k] += change * D[r, k] * x[r] * M[m, k]
        sweeps += 1


@compiled
def _evaluate(U, row, start, target, low, high, epsilon, beta, weights):
    """Weights (M, p) of ``beta``; the primal and its gap, a sum of complementarities."""
    primal, gap = 0.0, 0.0
    for m in range(len(start) - 1):
        w = weights[m]
        for i in range(start[m], start[m + 1]):
            if beta[i] != 0:
                for j in range(len(w)):
                    w[j] += beta[i] * U[row[i], j]
        primal += dot(w, w) / 2
        for i in range(start[m], start[m + 1]):
            miss = target[i] - dot(w, U[row[i]])
            loss = max(0.0, high[i] * (miss - epsilon), low[i] * (miss + epsilon))
            primal += loss
            gap += loss - beta[i] * miss + epsilon * abs(beta[i])
    return primal, gap


@compiled
def _visit_cell(miss, norm, low, high, epsilon, old):
    """A cell's best multiplier where its score misses the target by ``miss``; its gap."""
    loss = max(0.0, high * (miss - epsilon), low * (miss + epsilon))
    if norm > 0:
        pull = old * norm + miss
        new = max(pull - epsilon, 0.0) / norm + min(pull + epsilon, 0.0) / norm
    else:
        new = high if miss > epsilon else low if miss < -epsilon else 0.0
    return min(max(new, low), high), loss - old * miss + epsilon * abs(old)


@compiled
def _ascend(U, row, start, target, low, high, epsilon, norms, beta, weights, goal, max_sweeps, seed):
    """Sweeps over each task's cells in random orders until their gap is ``goal`` or less; returns the most sweeps.

    A cell that does not change rests, twice as long each time.
    """
    most = 0
    for m in range(len(start) - 1):
        w, first, size = weights[m], start[m], start[m + 1] - start[m]
        order, rest, doze = np.arange(size), np.zeros(size, np.int64), np.zeros(size, np.int64)
        random, sweeps, gap = np.uint64(seed + 1), 0, np.inf
        while sweeps < max_sweeps and gap > goal:
            gap = 0.0
            random = shuffle(order, random)
            for c in order:
                if rest[c] > 0:
                    rest[c] -= 1
                    continue
                i = first + c
                u, old = U[row[i]], beta[i]
                new, part = _visit_cell(target[i] - dot(w, u), norms[row[i]], low[i], high[i], epsilon, old)
                gap += part
                changed = abs(new - old) > 1e-14 * (high[i] - low[i])
                if changed:
                    beta[i] = new
                    for j in range(len(w)):
                        w[j] += (new - old) * u[j]
                doze[c] = 0 if changed else min(2 * doze[c] + 1, LONGEST_REST)
                rest[c] = doze[c]
            sweeps += 1
        most = max(most, sweeps)
    return most
