"""Block coordinate ascent over data [1, 2] for the dual of :mod:`.crammer_singer`.

References:

1. *A sequential dual method for large scale multi-class linear SVMs*, S. S. Keerthi, S. Sundararajan, K.-W. Chang,
   C.-J. Hsieh and C.-J. Lin, KDD (2008)
2. *LIBLINEAR: a library for large linear classification*, R.-E. Fan, K.-W. Chang, C.-J. Hsieh, X.-R. Wang and
   C.-J. Lin, JMLR (2008), Appendix E
"""

import numpy as np

from .problem import Array, DualProblem, compiled

LONGEST_REST = 16  # sweeps


def ascend(problem: DualProblem, alpha: Array, goal: float, max_sweeps: int, seed: int) -> tuple[int, Array]:
    """Sweep until the data visited have a gap of ``goal`` or less between them; ``alpha`` (n, L) changes in place.

    :return: how many sweeps, and the mean of ``alpha`` over them.
    """
    inputs = problem.inputs
    state = np.ascontiguousarray((inputs @ alpha).T) if problem.precomputed else alpha.T @ inputs
    norms = np.diagonal(inputs).copy() if problem.precomputed else np.einsum("np,np->n", inputs, inputs)
    mean = np.zeros(alpha.shape)
    return _sweeps(*problem, norms, alpha, state, mean, goal, max_sweeps, seed), mean


@compiled
def _best_block(B, A, cap, k_true, sorted_, new):
    """The block ``alpha_i`` that is best with the others fixed, into ``new``.

    It minimises ``A/2 |alpha|^2 + B . alpha`` under ``alpha_k <= cap 1[k = y]``, ``sum_k alpha_k = 0``, where
    ``A = |x_i|^2`` and ``B = a_i - A alpha_i(before)``. Hence ``alpha_k = min(cap_k, (beta - B_k)/A)``; the threshold
    ``beta`` follows from the largest of ``B_k + A cap_k``, as many of them as are above it.
    """
    L = len(B)
    for k in range(L):
        v = B[k] + (A * cap if k == k_true else 0.0)
        j = k - 1
        while j >= 0 and sorted_[j] < v:
            sorted_[j + 1] = sorted_[j]
            j -= 1
        sorted_[j + 1] = v
    total, beta = -A * cap, 0.0
    for k in range(L):
        total += sorted_[k]
        if sorted_[k] * (k + 1) <= total:
            break
        beta = total / (k + 1)
    for k in range(L):
        most = cap if k == k_true else 0.0
        new[k] = min(most, (beta - B[k]) / A)


@compiled
def _vertex(B, cap, k_true, new):
    """The best block of a datum with ``x_i = 0``: everything on the label with the largest ``a_ik``."""
    for k in range(len(B)):
        new[k] = cap if k == k_true else 0.0
    new[np.argmax(B)] -= cap


@compiled
def visit(a, norm, cost, k_true, before, sorted_, new):
    """A datum's best block into ``new``; its gap. ``a`` (L,) is spent."""
    most, gap = np.max(a), 0.0
    for k in range(len(a)):
        gap += ((cost if k == k_true else 0.0) - before[k]) * (most - a[k])
    if norm > 0:
        for k in range(len(a)):
            a[k] -= norm * before[k]
        _best_block(a, norm, cost, k_true, sorted_, new)
    else:
        _vertex(a, cost, k_true, new)
    return gap


@compiled
def shuffle(order, seed):
    """A random order in place, by a linear congruential generator; returns its next seed."""
    for i in range(len(order) - 1, 0, -1):
        seed = seed * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = np.int64(((seed >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
        order[i], order[j] = order[j], order[i]
    return seed


@compiled
def _sweeps(inputs, b, y, cost, precomputed, norms, alpha, state, mean, goal, max_sweeps, seed):
    """Sweeps over the data in random orders, see :func:`ascend`; the ``state`` follows ``alpha``.

    It has a row for each class: the weights (L, p) for rows, the scores (L, n) for a Gram matrix; either moves by a
    multiple of a row of ``inputs``. A datum that does not change rests, twice as long each time.
    """
    n, L = alpha.shape
    a, new, sorted_ = np.empty(L), np.empty(L), np.empty(L)
    order, rest, doze = np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.int64)
    random, sweeps, gap = np.uint64(seed), 0, np.inf
    while sweeps < max_sweeps and gap > goal:
        random = shuffle(order, random)
        gap = 0.0
        for i in order:
            if rest[i] > 0:
                rest[i] -= 1
                continue
            for k in range(L):
                a[k] = b[i, k] + (state[k, i] if precomputed else dot(state[k], inputs[i]))
            gap += visit(a, norms[i], cost[i], y[i], alpha[i], sorted_, new)
            changed = False
            for k in range(L):
                delta = new[k] - alpha[i, k]
                if abs(delta) > 1e-14 * cost[i]:
                    changed = True
                    alpha[i, k] = new[k]
                    for j in range(inputs.shape[1]):
                        state[k, j] += delta * inputs[i, j]
            doze[i] = 0 if changed else min(2 * doze[i] + 1, LONGEST_REST)
            rest[i] = doze[i]
        mean += alpha
        sweeps += 1
    mean /= sweeps
    return sweeps


@compiled
def dot(u, v):
    total = 0.0
    for j in range(len(u)):
        total += u[j] * v[j]
    return total
