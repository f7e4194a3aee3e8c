r"""The multi-class support vector machine of Crammer and Singer [1] by its dual, for rows or for a Gram matrix.

The primal has a weight vector ``w_k`` for each class, scores ``s_ik = w_k . x_i``, a cost ``C_i`` for each datum,

.. math:: P(W) = \frac12 |W|^2 + \sum_i C_i \Big[\max_k a_{ik} - a_{i y_i}\Big], \qquad a_{ik} = b_{ik} + s_{ik},

and ``b_ik = ell(y_i, k) + offset_ik``: the price of taking ``y_i`` for ``k``, and what is known of the score. With
multipliers ``omega_i >= 0`` that sum to ``C_i`` and ``alpha_i = C_i e_{y_i} - omega_i`` the dual is

.. math:: D(\alpha) = -\frac12 |W|^2 - \sum_{ik} \alpha_{ik} b_{ik}, \qquad W = \sum_i \alpha_i x_i'
          \quad (\text{so } s = K \alpha),

and at these weights the duality gap is the complementarity, ``sum_ik omega_ik (max_j a_ij - a_ik)``. Two methods,
both certified by the gap relative to the primal:

1. **Block coordinate ascent** over data [2, 3]. With the other data fixed, ``alpha_i`` has a closed form
   (:func:`_best_block`). Data that do not change are visited ever more seldom. Compiled; starts from any ``alpha``.
2. **A primal-dual interior-point method** [4], for rows in few dimensions, where ascent crawls along
   ill-conditioned directions: ``p_i = omega_i / C_i`` in the simplex, slacks ``z``, Newton steps on
   ``z p = mu`` and ``W = sum_i alpha_i x_i'`` in the ``L p`` weights alone. Its end is made sparse again.

References:

1. *On the algorithmic implementation of multiclass kernel-based vector machines*, K. Crammer and Y. Singer,
   JMLR (2001)
2. *A sequential dual method for large scale multi-class linear SVMs*, S. S. Keerthi, S. Sundararajan, K.-W. Chang,
   C.-J. Hsieh and C.-J. Lin, KDD (2008)
3. *LIBLINEAR: a library for large linear classification*, R.-E. Fan, K.-W. Chang, C.-J. Hsieh, X.-R. Wang and
   C.-J. Lin, JMLR (2008), Appendix E
4. *On the implementation of a primal-dual interior point method*, S. Mehrotra, SIAM Journal on Optimization (1992)
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import LinAlgError, cho_factor, cho_solve

__all__ = ["Solution", "crammer_singer", "objectives"]

Array = np.ndarray

LONGEST_REST = 16  # sweeps
SPARSE = (1e-3, 1e-5, 1e-7, 0.0)  # shares of C_i that an interior solution may give up
NEGLIGIBLE = 0.1  # curvature that a Newton matrix may miss on average, relative to the prior's
CENTRAL = 0.1  # of the central path's multipliers, that an interior start has at least

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
    problem = Problem(np.ascontiguousarray(part), b[kept], y[kept], cost[kept], precomputed)
    found = _ascend(problem, _feasible(problem, alpha[kept]), tol, max_iter)
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


class Problem(NamedTuple):
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

    def primal(self, alpha: Array) -> tuple[Array, Array | None]:
        """Scores (n, L) and, for rows, weights (L, p)."""
        if self.precomputed:
            return self.inputs @ alpha, None
        weights = alpha.T @ self.inputs
        return self.inputs @ weights.T, weights

    def certify(self, alpha: Array, n_iter: int, tol: float) -> Solution:
        """The primal, the dual and their gap at the weights of a feasible ``alpha``."""
        scores, weights = self.primal(alpha)
        a = self.b + scores
        most = np.max(a, axis=1, keepdims=True)
        norm = max(float(np.sum(alpha * scores)), 0.0)
        primal = norm / 2 + float(self.cost @ (most[:, 0] - scores[np.arange(len(a)), self.y]))
        gap = float(np.sum((self.cap - alpha) * (most - a)))  # complementarity: no difference of large numbers
        relative = gap / primal if primal > 0 else 0.0
        return Solution(alpha, scores, weights, primal, primal - gap, relative, n_iter, relative <= tol)


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


def _feasible(problem: Problem, alpha: Array) -> Array:
    """``alpha`` with its ``omega`` scaled to sum to the present costs; without any, all of it on the true label."""
    n = len(problem.y)
    omega = np.maximum(-alpha, 0.0)
    omega[np.arange(n), problem.y] = 0.0
    held = alpha[np.arange(n), problem.y]
    # The old cost is not known: what the other labels hold is kept, as far as the new cost goes.
    ratio = np.minimum(1.0, problem.cost / np.maximum(held, 1e-300))
    omega *= ratio[:, None]
    alpha = -omega
    alpha[np.arange(n), problem.y] = np.sum(omega, axis=1)
    return np.minimum(alpha, problem.cap)


# ----- Block coordinate ascent


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
def _sweep_rows(X, b, y, cost, norms, alpha, W, order, rest, doze):
    """One pass over the rows in ``order``; ``W`` follows. Returns the gaps of the data visited, summed.

    A datum that does not change rests for ``doze[i]`` passes, twice as many each time.
    """
    L, p = W.shape
    B, new, sorted_ = np.empty(L), np.empty(L), np.empty(L)
    gap = 0.0
    for i in order:
        if rest[i] > 0:
            rest[i] -= 1
            continue
        most = -np.inf
        for k in range(L):
            a = 0.0
            for j in range(p):
                a += W[k, j] * X[i, j]
            B[k] = a + b[i, k]
            most = max(most, B[k])
        own = 0.0
        for k in range(L):
            own += ((cost[i] if k == y[i] else 0.0) - alpha[i, k]) * (most - B[k])
        gap += own
        if norms[i] > 0:
            for k in range(L):
                B[k] -= norms[i] * alpha[i, k]
            _best_block(B, norms[i], cost[i], y[i], sorted_, new)
        else:
            _vertex(B, cost[i], y[i], new)
        changed = False
        for k in range(L):
            delta = new[k] - alpha[i, k]
            if abs(delta) > 1e-14 * cost[i]:
                changed = True
                alpha[i, k] = new[k]
                for j in range(p):
                    W[k, j] += delta * X[i, j]
        if changed:
            doze[i] = 0
        else:
            doze[i] = min(2 * doze[i] + 1, LONGEST_REST)
            rest[i] = doze[i]
    return gap


@compiled
def _sweep_gram(K, b, y, cost, alpha, S, order, rest, doze):
    """One pass over a Gram matrix in ``order``; the scores ``S`` (L, n) follow. As :func:`_sweep_rows`."""
    L, n = S.shape
    B, new, sorted_ = np.empty(L), np.empty(L), np.empty(L)
    gap = 0.0
    for i in order:
        if rest[i] > 0:
            rest[i] -= 1
            continue
        most = -np.inf
        for k in range(L):
            B[k] = S[k, i] + b[i, k]
            most = max(most, B[k])
        own = 0.0
        for k in range(L):
            own += ((cost[i] if k == y[i] else 0.0) - alpha[i, k]) * (most - B[k])
        gap += own
        if K[i, i] > 0:
            for k in range(L):
                B[k] -= K[i, i] * alpha[i, k]
            _best_block(B, K[i, i], cost[i], y[i], sorted_, new)
        else:
            _vertex(B, cost[i], y[i], new)
        changed = False
        for k in range(L):
            delta = new[k] - alpha[i, k]
            if abs(delta) > 1e-14 * cost[i]:
                changed = True
                alpha[i, k] = new[k]
                for j in range(n):
                    S[k, j] += delta * K[i, j]
        if changed:
            doze[i] = 0
        else:
            doze[i] = min(2 * doze[i] + 1, LONGEST_REST)
            rest[i] = doze[i]
    return gap


def _ascend(problem: Problem, alpha: Array, tol: float, max_iter: int) -> Solution:
    """Sweep until the gap is small; where ascent is slow and the weights are few, finish by interior-point steps."""
    n = len(problem.y)
    rng = np.random.default_rng(0)
    rest, doze = np.zeros(n, np.int64), np.zeros(n, np.int64)
    norms = None if problem.precomputed else np.einsum("np,np->n", problem.inputs, problem.inputs)
    best = problem.certify(alpha, 0, tol)
    alpha, n_iter, patience, longest = alpha.copy(), 0, _patience(problem), 32
    while not best.converged and n_iter < max_iter:
        rest[:], doze[:] = 0, 0
        state = alpha.T @ problem.inputs if norms is not None else np.ascontiguousarray((problem.inputs @ alpha).T)
        before, first, total = best.gap, n_iter, np.zeros(alpha.shape)
        for _ in range(longest):
            order = rng.permutation(n)
            if norms is not None:
                gap = _sweep_rows(
                    problem.inputs, problem.b, problem.y, problem.cost, norms, alpha, state, order, rest, doze
                )
            else:
                gap = _sweep_gram(problem.inputs, problem.b, problem.y, problem.cost, alpha, state, order, rest, doze)
            total += alpha
            n_iter += 1
            if gap <= max(before / 4, tol) * best.primal or n_iter >= max_iter:
                break
        best = _better(best, problem.certify(alpha.copy(), n_iter, tol), tol)
        if not best.converged and n_iter - first >= 8:  # ascent circles around the primal optimum: the mean is nearer
            best = _better(best, problem.certify(total / (n_iter - first), n_iter, tol), tol)
        longest *= 2
        if not best.converged and n_iter >= patience:
            pace = np.log(before / best.gap) / (n_iter - first)
            if np.log(best.gap / tol) > patience * pace:
                best = _better(best, _interior_point(problem, best, tol), tol)
                alpha, patience = best.alpha.copy(), n_iter + 20 * patience
    return best._replace(n_iter=n_iter)


def _better(best: Solution, found: Solution, tol: float) -> Solution:
    """The one with the lower primal, certified by the higher dual."""
    dual = max(best.dual, found.dual)
    low = found if found.primal <= best.primal else best
    gap = max((low.primal - dual) / low.primal, 0.0) if low.primal > 0 else 0.0
    return low._replace(dual=dual, gap=gap, converged=gap <= tol)


# ----- Interior-point steps


def _patience(problem: Problem) -> float:
    """Sweeps worth half the interior-point method's time; infinite where its matrix is too large.

    Rough counts of operations, on one core: 1e9 a second in a sweep, 2e10 in a matrix product, and a call's overhead.
    """
    n, L = problem.b.shape
    p = problem.inputs.shape[1]
    size = L * p
    if size > 2_500:
        return np.inf
    sweep = (
        1e-5 + (0.2 if problem.precomputed else 1.0) * n * size / 1e9
    )  # few blocks change in a sweep of a Gram matrix
    steps = 20 * (1e-3 + (n * size**2 / 2 + size**3 / 3) / 2e10)
    return max(20.0, steps / sweep / 2)


def _rows(problem: Problem) -> Array:
    """Rows (n, r) with the problem's inner products."""
    if not problem.precomputed:
        return problem.inputs
    values, vectors = np.linalg.eigh(problem.inputs)
    kept = values > 1e-13 * max(values[-1], 1e-300)
    return np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))


def _interior_point(problem: Problem, start: Solution, tol: float, max_iter: int = 60) -> Solution:
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
        best = _better(best, found, tol)
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
        t = min(1.0, _longest(p, dp), _longest(z, dz))
        mu = barrier(p, z)
        centring = (barrier(p + t * dp, z + t * dz) / mu) ** 3  # little, where the pure Newton step goes far
        dW, dp, dz = direction(centring * mu - p * z - dp * dz)
        t = min(1.0, 0.995 * _longest(p, dp), 0.995 * _longest(z, dz))
        W, p, z = W + t * dW, p + t * dp, z + t * dz
        p /= np.sum(p, axis=1, keepdims=True)
    return _sparse(problem, best, tol)


def _longest(v: Array, dv: Array) -> float:
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


def _sparse(problem: Problem, found: Solution, tol: float) -> Solution:
    """Without the small multipliers of an interior solution, as far as the gap allows."""
    cap, cost = problem.cap, problem.cost[:, None]
    for share in SPARSE[:-1]:
        omega = cap - found.alpha
        omega = np.where(omega > share * cost, omega, 0.0)
        omega *= cost / np.sum(omega, axis=1, keepdims=True)
        candidate = problem.certify(cap - omega, 0, tol)
        if candidate.gap <= max(tol, 1.1 * found.gap):
            return candidate
    return found
