r"""The multi-class support vector machine of Crammer and Singer [1] by its dual, for rows or for a Gram matrix.

The primal has a weight vector ``w_k`` for each class, scores ``s_ik = w_k . x_i``, a cost ``C_i`` for each datum,

.. math:: P(W) = \frac12 |W|^2 + \sum_i C_i \Big[\max_k a_{ik} - a_{i y_i}\Big], \qquad a_{ik} = b_{ik} + s_{ik},

and ``b_ik = ell(y_i, k) + offset_ik``: the price of taking ``y_i`` for ``k``, and what is known of the score. With
multipliers ``omega_i >= 0`` that sum to ``C_i`` and ``alpha_i = C_i e_{y_i} - omega_i`` the dual is

.. math:: D(\alpha) = -\frac12 |W|^2 - \sum_{ik} \alpha_{ik} b_{ik}, \qquad W = \sum_i \alpha_i x_i'
          \quad (\text{so } s = K \alpha),

and at these weights the duality gap is the complementarity, ``sum_ik omega_ik (max_j a_ij - a_ik)``. Two methods,
both certified by the gap relative to the primal:

1. **Block coordinate ascent** over data, :mod:`.ascent`. With the other data fixed, ``alpha_i`` has a closed form.
   Data that do not change are visited ever more seldom. Compiled; starts from any ``alpha``.
2. **A primal-dual interior-point method**, :mod:`.interior_point`, where the weights are few and ascent crawls.

References:

1. *On the algorithmic implementation of multiclass kernel-based vector machines*, K. Crammer and Y. Singer,
   JMLR (2001)
"""

from typing import Any

import numpy as np

from .ascent import ascend
from .interior_point import interior_point
from .problem import Array, DualProblem, Solution, better


def crammer_singer(
    inputs: Array,
    y: Array,
    cost: Any,
    *,
    num_classes: int | None = None,
    ell: Any = 1.0,
    offset: Array | None = None,
    precomputed: bool = False,
    alpha: Array | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
) -> Solution:
    """Solve the dual until the relative gap is ``tol`` or less.

    :param inputs: (n, p) rows, or their (n, n) Gram matrix, positive semi-definite.
    :param y: (n,) labels, ``0..L-1``.
    :param cost: ``C``, 0 or more, a number or (n,).
    :param num_classes: ``L``; by default as many as ``y`` shows.
    :param ell: the margin: a number, for every wrong label; or (L, L), ``ell[y, k]`` for taking ``y`` for ``k``.
    :param offset: (n, L) parts of the scores that are given.
    :param precomputed: whether ``inputs`` is a Gram matrix.
    :param alpha: (n, L) where to start, from a problem like this one; its ``omega`` are rescaled to sum to ``C_i``.
    :param tol: the relative duality gap to reach.
    :param max_iter: the most sweeps through the data; look at ``converged`` and ``gap``.

    >>> import numpy as np
    >>> from regbayes.inference.duality import crammer_singer
    >>> X, y = np.array([[-2.0], [0.5], [2.0]]), np.array([0, 1, 2])
    >>> rows = crammer_singer(X, y, 1.0)
    >>> rows.gap <= 1e-6, (rows.weights.round(2) + 0.0).tolist()
    (True, [[-0.5], [0.0], [0.5]])
    >>> gram = crammer_singer(X @ X.T, y, 1.0, precomputed=True, alpha=rows.alpha)
    >>> bool(np.allclose(gram.scores, X @ rows.weights.T))
    True
    """
    inputs, y, cost, b, num_classes = _check(inputs, y, cost, num_classes, ell, offset, precomputed, tol, max_iter)
    alpha = np.zeros(b.shape) if alpha is None else np.asarray(alpha, float)
    if alpha.shape != b.shape:
        raise ValueError(
            f"alpha must have shape {b.shape}, one row per datum and one column per class, found {alpha.shape}; "
            "pass the alpha of a problem of the same size, or None"
        )
    kept = np.flatnonzero(cost > 0)
    part = inputs[np.ix_(kept, kept)] if precomputed else inputs[kept]
    problem = DualProblem(np.ascontiguousarray(part), b[kept], y[kept], cost[kept], precomputed)
    found = solve(problem, problem.feasible(alpha[kept]), tol, max_iter)
    full = np.zeros(b.shape)
    full[kept] = found.alpha
    if found.weights is None:
        return found._replace(alpha=full, scores=inputs[:, kept] @ found.alpha)
    return found._replace(alpha=full, scores=inputs @ found.weights.T)


def objectives(alpha: Array, scores: Array, y: Array, cost: Any, *, ell: Any = 1.0, offset: Any = None) -> tuple:
    """``P`` at the weights of ``alpha`` (n, L), which have the scores ``K alpha`` (n, L); and ``D``.

    >>> import numpy as np
    >>> objectives(np.zeros((2, 3)), np.zeros((2, 3)), np.array([0, 2]), 1.5)
    (3.0, 0.0)
    """
    y = np.asarray(y)
    b = _margins(y, alpha.shape[1], ell, offset)
    loss = np.max(b + scores, axis=1) - scores[np.arange(len(y)), y]
    norm = np.sum(alpha * scores)
    return float(norm / 2 + np.sum(cost * loss)), float(0.0 - norm / 2 - np.sum(alpha * b))


def _check(inputs, y, cost, num_classes, ell, offset, precomputed, tol, max_iter):
    """The arguments as arrays, or an error that names the wrong one."""
    inputs, y = np.asarray(inputs, float), np.asarray(y)
    n = len(y)
    if inputs.ndim != 2 or len(inputs) != n or (precomputed and inputs.shape != (n, n)):
        wanted = f"({n}, {n}), a Gram matrix" if precomputed else f"({n}, p), a row for each label"
        raise ValueError(f"inputs must have shape {wanted}, found {inputs.shape}; pass one row per entry of y")
    if not np.issubdtype(y.dtype, np.integer) or y.ndim != 1:
        raise ValueError(f"y must be a vector of integer labels 0..L-1, found dtype {y.dtype}; encode the classes")
    num_classes = int(np.max(y, initial=1)) + 1 if num_classes is None else num_classes
    if np.any(y < 0) or np.any(y >= num_classes):
        raise ValueError(f"y must hold labels 0..{num_classes - 1}, found {np.min(y)}..{np.max(y)}; relabel them")
    cost = np.broadcast_to(np.asarray(cost, float), (n,))
    if not np.all(np.isfinite(cost)) or np.any(cost < 0):
        raise ValueError(f"cost must be 0 or more and finite, found {np.min(cost)}; drop data by cost 0")
    if not np.all(np.isfinite(inputs)):
        raise ValueError("inputs must be finite, found others; impute or drop them")
    if not tol > 0 or max_iter < 1:
        raise ValueError(f"tol must be positive and max_iter at least 1, found {tol} and {max_iter}")
    return inputs, y, cost, _margins(y, num_classes, ell, offset), num_classes


def _margins(y: Array, num_classes: int, ell: Any, offset: Array | None) -> Array:
    """``b`` (n, L), less its entry at the true label."""
    ell = np.asarray(ell, float)
    if ell.ndim == 0:
        ell = ell * (1 - np.eye(num_classes))
    if ell.shape != (num_classes, num_classes) or np.any(ell < 0) or np.any(np.diag(ell) != 0):
        raise ValueError(
            f"ell must be a number of at least 0, or a matrix ({num_classes}, {num_classes}) of such numbers with a "
            f"zero diagonal, found {ell!r}; pass ell[y, k], the cost of k for y"
        )
    b = ell[y]
    if offset is not None:
        if np.shape(offset) != b.shape:
            raise ValueError(f"offset must have shape {b.shape}, found {np.shape(offset)}; pass a score per class")
        b = b + offset - np.take_along_axis(np.asarray(offset, float), y[:, None], axis=1)
    return np.ascontiguousarray(b)


def solve(problem: DualProblem, alpha: Array, tol: float, max_iter: int = 10_000) -> Solution:
    """From a feasible ``alpha`` ascend until the gap is small; where that is slow, finish by interior-point steps."""
    best = problem.certify(alpha, 0, tol)
    alpha, n_iter, patience, longest = alpha.copy(), 0, _patience(problem), 32
    while not best.converged and n_iter < max_iter:
        before = best.gap
        goal = max(before / 4, tol) * best.primal
        sweeps, mean = ascend(problem, alpha, goal, min(longest, max_iter - n_iter), seed=n_iter)
        n_iter += sweeps
        best = better(best, problem.certify(alpha.copy(), n_iter, tol), tol)
        if not best.converged and sweeps >= 8:  # ascent circles around the primal optimum: the mean is nearer
            best = better(best, problem.certify(mean, n_iter, tol), tol)
        longest *= 2
        if not best.converged and n_iter >= patience:
            pace = np.log(before / best.gap) / sweeps
            if np.log(best.gap / tol) > patience * pace:
                best = better(best, interior_point(problem, best, tol), tol)
                alpha, patience = best.alpha.copy(), n_iter + 20 * patience
    return best._replace(n_iter=n_iter)


def _patience(problem: DualProblem) -> float:
    """Sweeps worth half the interior-point method's time; infinite where its matrix is too large.

    Rough counts of operations, on one core: 1e9 a second in a sweep, 2e10 in a matrix product, and a call's overhead.
    """
    n, L = problem.b.shape
    p = problem.inputs.shape[1]
    size = L * p
    if size > 2_500:
        return np.inf
    rate = 0.2 if problem.precomputed else 1.0  # few blocks change in a sweep of a Gram matrix
    sweep = 1e-6 + rate * n * size / 1e9
    steps = 20 * (1e-3 + (n * size**2 / 2 + size**3 / 3) / 2e10)
    return max(20.0, steps / sweep / 2)
