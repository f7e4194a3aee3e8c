r"""Support vector machines as small-variance limits: the posterior modes of the Bayesian SVMs, by EM.

The mode minimises the program's negative log joint, up to a constant

.. math:: J(W) = \frac{|W|^2}{2 \nu^2} + 2 c \sum_i \mathrm{loss}_i(W x_i),

and each loss is the largest of a few affine pieces of the scores ``s = W x``:

.. math:: \mathrm{loss}_i = \max_k a_{ik} - e_i \cdot s_i, \qquad a_{ik} = b_{ik} + D_k \cdot s_i.

===================  ===========  ============================  ==============  ==============
loss                 row          ``b_i``                       ``D``           ``e_i``
===================  ===========  ============================  ==============  ==============
hinge                ``y_i x_i``  ``0, ell``                    ``0, -1``       ``0``
epsilon-insensitive  ``x_i``      ``0, t_i - eps, -t_i - eps``  ``0, -1, 1``    ``0``
multi-class          ``x_i``      ``ell 1[k != y_i]``           the identity    ``1[k = y_i]``
===================  ===========  ============================  ==============  ==============

Two phases, and the reported ``J`` rises in neither:

1. **EM** [1], the deterministic limit of the Gibbs sampler, one :func:`em_step` per score. It goes far in a
   few steps, then slows down near the kinks; class by class it may even stop at a kink that is no optimum.
2. **A primal-dual interior-point method** [3] on all scores at once. Weights ``p_i`` of the pieces, in the
   simplex, bound ``J(W) - min J`` by the duality gap

   .. math:: \sum_i 2 c\, (\max_k a_{ik} - p_i \cdot a_i) + \frac{\nu^2}{2} |W/\nu^2 + G(p)|^2, \qquad
             G(p) = \sum_i 2 c\, (D' p_i - e_i) x_i',

   and the fit ends when the gap is below ``tol`` times ``J``: a certificate of the optimum.

References:

1. *Data augmentation for support vector machines*, N. G. Polson and S. L. Scott, Bayesian Analysis (2011)
2. *On the algorithmic implementation of multiclass kernel-based vector machines*, K. Crammer and Y. Singer,
   JMLR (2001)
3. *On the implementation of a primal-dual interior point method*, S. Mehrotra,
   SIAM Journal on Optimization (1992)
"""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ..duality.interior_point import longest_step
from ..moves.augmentation import class_rows, weight_information
from .estimator import ScoreClassifier, check_settings, check_weight, encode_labels, split_intercept

Array = np.ndarray

EM_SWEEPS = 3  # more of them do not shorten the second phase


def em_step(A: Array, tau: Array, w: Array, cost: Any, prior_precision: float, floor: float = 0.0) -> Array:
    """One EM update of ``w`` under the hinges ``exp(-2 c max(0, tau - A w))``: the limit of a Gibbs step.

    E-step ``omega = c |zeta|`` with ``zeta = tau - A w``; M-step ``w = P^-1 h`` (:func:`weight_information`).
    It minimises a majoriser of ``prior_precision |w|^2 / 2 + 2 c sum_i max(0, zeta_i)``, which therefore does
    not rise. A row on the margin, ``zeta = 0``, has no such majoriser and needs ``floor``.

    :param A: (n, d) rows.
    :param tau: (n,) offsets.
    :param w: (d,) weights.
    :param cost: ``c``, positive, a scalar or (n,).
    :param prior_precision: ``1/nu^2``.
    :param floor: the least ``|zeta|``; a positive one majorises a smoothed hinge instead.
    :return: (d,) new weights.
    """
    omega = cost * np.maximum(np.abs(tau - A @ w), floor)
    h, P = weight_information(A, tau, omega, cost, prior_precision)
    return np.linalg.solve(P, h)


class PrimalProblem(NamedTuple):
    """``J(W) = precision/2 |W|^2 + sum_i c_i (max_k (b_ik + D_k . s_i) - e_i . s_i)``, ``s_i = W x_i``."""

    X: Array  # (n, d)
    b: Array  # (n, m) offsets of the pieces
    D: Array  # (m, q) their slopes in the scores
    e: Array  # (n, q)
    c: Array  # (n,) twice the cost, positive
    precision: float  # 1/nu^2
    y: Array | None = None  # (n,) labels of the multi-class loss
    ell: float = 1.0


def hinge_problem(X: Array, sign: Array, ell: float, c: Array, precision: float) -> PrimalProblem:
    """``(ell - y f)_+`` with ``sign`` (n,) in ``-1, 1``."""
    n = len(X)
    b = np.tile([0.0, ell], (n, 1))
    return PrimalProblem(sign[:, None] * X, b, np.array([[0.0], [-1.0]]), np.zeros((n, 1)), c, precision)


def multiclass_problem(X: Array, y: Array, num_classes: int, ell: float, c: Array, precision: float) -> PrimalProblem:
    """``max_k (ell 1[k != y] + s_k) - s_y`` with ``y`` (n,) in ``0..L-1``."""
    e = np.eye(num_classes)[y]
    return PrimalProblem(X, ell * (1 - e), np.eye(num_classes), e, c, precision, y, ell)


def epsilon_problem(X: Array, t: Array, epsilon: float, c: Array, precision: float) -> PrimalProblem:
    """``(|t - f| - epsilon)_+`` with targets ``t`` (n,)."""
    n = len(X)
    b = np.stack([np.zeros(n), t - epsilon, -t - epsilon], axis=1)
    return PrimalProblem(X, b, np.array([[0.0], [-1.0], [1.0]]), np.zeros((n, 1)), c, precision)


def pieces(problem: PrimalProblem, W: Array) -> Array:
    """(n, m) affine pieces ``a`` at the weights (q, d)."""
    return problem.b + problem.X @ W.T @ problem.D.T


def objective(problem: PrimalProblem, W: Array) -> float:
    """``J`` at the weights (q, d)."""
    S = problem.X @ W.T
    loss = np.max(problem.b + S @ problem.D.T, axis=1) - np.sum(problem.e * S, axis=1)
    return problem.precision / 2 * np.sum(W**2) + problem.c @ loss


def residual(problem: PrimalProblem, W: Array, p: Array) -> Array:
    """``W/nu^2 + G(p)``, (q, d): the gradient of ``J`` if the pieces have weights ``p`` (n, m)."""
    return problem.precision * W + (problem.c[:, None] * (p @ problem.D - problem.e)).T @ problem.X


def duality_gap(problem: PrimalProblem, W: Array, p: Array) -> tuple[float, float]:
    """Complementarity and stationarity; with ``p`` (n, m) in the simplex the sum bounds ``J(W) - min J``."""
    a = pieces(problem, W)
    complementarity = problem.c @ (np.max(a, axis=1) - np.sum(p * a, axis=1))
    return complementarity, np.sum(residual(problem, W, p) ** 2) / (2 * problem.precision)


def block_rows(problem: PrimalProblem, W: Array, k: int) -> tuple[Array, Array, Array]:
    """Hinge rows ``A``, ``tau`` and their ``cost`` in the weights of score ``k``, the other scores fixed."""
    X, c = problem.X, problem.c / 2
    if problem.y is not None:
        sgn, tau = class_rows(X @ W.T, problem.y, k, problem.ell)
        return sgn[:, None] * X, tau, c
    slopes = problem.D[1:, 0]  # the first piece is 0 and no two others are positive together: a sum of hinges
    return (np.concatenate([-slope * X for slope in slopes]), problem.b[:, 1:].T.ravel(), np.tile(c, len(slopes)))


def em_sweep(problem: PrimalProblem, W: Array, floor: float, trace: list[float]) -> Array:
    """An :func:`em_step` per score, halved until ``J`` does not rise; appends each ``J`` to ``trace``."""
    for k in range(len(W)):
        A, tau, cost = block_rows(problem, W, k)
        step = np.zeros_like(W)
        step[k] = em_step(A, tau, W[k], cost, problem.precision, floor) - W[k]
        W = accept(problem, W, (W + t * step for t in 0.5 ** np.arange(5)), trace)
    if problem.y is not None:  # a shift common to all classes only costs prior
        W = accept(problem, W, [W - np.mean(W, axis=0)], trace)
    return W


def accept(problem: PrimalProblem, W: Array, candidates: Any, trace: list[float]) -> Array:
    """The first candidate with ``J`` no larger than ``trace[-1]``, else ``W``; appends its ``J``."""
    for candidate in candidates:
        J = objective(problem, candidate)
        if trace[-1] >= J:
            trace.append(J)
            return candidate
    trace.append(trace[-1])
    return W


def curvature(theta: Array, D: Array, r: int, s: int) -> Array:
    """(n,) entries ``(r, s)`` of ``C_i = D' (sum(theta_i) diag(theta_i) - theta_i theta_i') D``.

    Summed over pairs of pieces, ``theta_k theta_l (D_kr - D_lr) (D_ks - D_ls)``, where nothing cancels.
    """
    B = np.subtract.outer(D[:, r], D[:, r]) * np.subtract.outer(D[:, s], D[:, s]) / 2
    k, l = np.nonzero(B)
    return (theta[:, k] * theta[:, l]) @ B[k, l]


def newton_factor(problem: PrimalProblem, theta: Array) -> tuple[Array, bool]:
    """Cholesky factor of ``I/nu^2 + sum_i c_i/sum(theta_i) C_i ⊗ x_i x_i'``, see :func:`curvature`."""
    X, D = problem.X, problem.D
    c = problem.c / np.sum(theta, axis=1)
    q, d = D.shape[1], X.shape[1]
    H: Array = np.empty((q, d, q, d))
    for r in range(q):
        for s in range(r + 1):
            H[r, :, s] = (X.T * (c * curvature(theta, D, r, s))) @ X
            H[s, :, r] = H[r, :, s].T
    if problem.y is not None:  # W has no common shift: curvature along it is free, and mends the conditioning
        H += np.einsum("rdre->de", H)[None, :, None] / q
    H = H.reshape(q * d, q * d)
    diagonal = np.einsum("ii->i", H)
    diagonal += problem.precision
    jitter = 1e-16 * np.max(diagonal)
    while np.isfinite(jitter):
        try:
            return cho_factor(H, check_finite=False)
        except LinAlgError:  # the prior is lost in the rounding of H
            jitter *= 10
            diagonal += jitter
    raise ValueError(f"X has entries too large for float64 at cost {np.max(problem.c) / 2:g}: scale the features.")


def interior_step(problem: PrimalProblem, W: Array, p: Array, z: Array, least: float) -> tuple[Array, Array, Array]:
    """A predictor-corrector step towards ``residual = 0`` and ``p z = least``.

    ``z = xi - a`` (n, m), positive, is the slack under the bound ``xi_i`` on the pieces. A direction solves

    - ``z dp + p dz = target``, ``sum_k dp_ik = 0`` and ``dz = dxi - da`` for each datum, whence with
      ``theta = p/z``: ``dp = target/z - theta dz`` and ``dxi = sum_k (target/z + theta da) / sum_k theta``,
    - ``residual(W + dW, p + dp) = 0``, a linear system in ``dW`` with the matrix of :func:`newton_factor`.
    """
    X, D, c = problem.X, problem.D, problem.c
    theta = p / z
    total = np.sum(theta, axis=1, keepdims=True)
    factor = newton_factor(problem, theta)
    r = residual(problem, W, p)

    def direction(target: Array) -> tuple[Array, Array, Array]:
        shift = target / z
        fixed = shift - theta * np.sum(shift, axis=1, keepdims=True) / total  # dp at dW = 0
        rhs = -r - (c[:, None] * (fixed @ D)).T @ X
        dW = cho_solve(factor, rhs.ravel(), check_finite=False).reshape(W.shape)
        da = X @ dW.T @ D.T
        dz = np.sum(shift + theta * da, axis=1, keepdims=True) / total - da
        return dW, shift - theta * dz, dz

    def barrier(p: Array, z: Array) -> float:
        return c @ np.mean(p * z, axis=1) / np.sum(c)

    _, dp, dz = direction(-p * z)
    t = min(1.0, longest_step(p, dp), longest_step(z, dz))
    mu = barrier(p, z)
    centring = (barrier(p + t * dp, z + t * dz) / mu) ** 3  # little, where the pure Newton step goes far
    dW, dp, dz = direction(max(centring * mu, least) - p * z - dp * dz)
    t = min(1.0, 0.995 * longest_step(p, dp), 0.995 * longest_step(z, dz))
    p = p + t * dp
    return W + t * dW, p / np.sum(p, axis=1, keepdims=True), z + t * dz


def interior_start(problem: PrimalProblem, W: Array) -> tuple[Array, Array]:
    """Weights ``p`` and slacks ``z`` (n, m) to go with ``W``; ``p z`` is constant over the pieces of a datum.

    The barrier starts above the mean loss, and higher where ``W`` is far from stationary: ``p`` must not
    reach the boundary of the simplex before ``W`` has moved.
    """
    a = pieces(problem, W)

    def central(mu: float) -> tuple[Array, Array]:
        z = np.max(a, axis=1, keepdims=True) + mu - a
        return 1 / z / np.sum(1 / z, axis=1, keepdims=True), z

    mu = 5 * objective(problem, W) / np.sum(problem.c)
    _, stationarity = duality_gap(problem, W, central(mu)[0])
    return central(max(mu, 1e-4 * stationarity / (np.sum(problem.c) * a.shape[1])))


class Mode(NamedTuple):
    """The result of :func:`posterior_mode`."""

    W: Array  # (q, d)
    objective: Array  # J after every update, from W = 0
    gap: float  # bound on objective[-1] - min J
    n_iter: int


def posterior_mode(problem: PrimalProblem, max_iter: int, tol: float) -> Mode:
    """Minimise ``J``: EM sweeps, then interior-point steps until the duality gap is at most ``tol J``.

    A step takes time ``n (q d)^2 + (q d)^3`` and memory ``(q d)^2 + n m``, with ``n`` for ``d`` if less.
    """
    W = np.zeros((problem.D.shape[1], problem.X.shape[1]))
    trace = [objective(problem, W)]
    if trace[0] == 0:  # every residual within epsilon
        return Mode(W, np.array(trace), 0.0, 0)
    # The weights lie in the span of the rows; in its principal axes rounding spares the weak directions.
    U, scales, axes = np.linalg.svd(problem.X, full_matrices=False)
    problem, W = problem._replace(X=U * scales), W @ axes.T

    n_iter = 0
    floor = trace[0] / np.sum(problem.c)  # the mean loss: ell, or the scale of the targets
    while n_iter < min(EM_SWEEPS, max_iter):
        floor /= 2
        W = em_sweep(problem, W, floor, trace)
        n_iter += 1

    best, dual = W, -np.inf
    p, z = interior_start(problem, W)
    while True:
        dual = max(dual, objective(problem, W) - sum(duality_gap(problem, W, p)))
        gap = max(trace[-1] - dual, 0.0)
        if gap <= tol * trace[-1] or n_iter >= max_iter:
            return Mode(best @ axes, np.array(trace), gap, n_iter)
        least = 0.01 * tol * trace[-1] / (np.sum(problem.c) * p.shape[1])  # a hundredth of the gap allowed
        W, p, z = interior_step(problem, W, p, z, least)
        best = accept(problem, best, [W], trace)
        n_iter += 1


@dataclass(eq=False, repr=False)
class PosteriorMode(BaseEstimator):
    """What :class:`EMSVC` and :class:`EMSVR` share."""

    cost: float = 1.0
    _: KW_ONLY
    prior_scale: float = 1.0
    fit_intercept: bool = True
    max_iter: int = 100
    tol: float = 1e-6

    def _check(self) -> None:
        check_settings(self, positive=["cost", "prior_scale", "tol"], counts=["max_iter"])

    def _rows(self, X: Array, weight: Array) -> tuple[Array, Array, Array]:
        """The data of positive weight: features with a constant 1 for the intercept, ``2 c``, and indices."""
        rows = np.flatnonzero(weight)
        X = np.column_stack([X[rows], np.ones(len(rows))]) if self.fit_intercept else X[rows]
        return X, 2 * self.cost * weight[rows], rows

    def _fit(self, problem: PrimalProblem) -> tuple[Array, Array]:
        """Fit, set the account of it, and return ``coef`` (q, d) and ``intercept`` (q,)."""
        mode = posterior_mode(problem, self.max_iter, self.tol)
        self.objective_, self.dual_gap_, self.n_iter_ = mode[1:]
        if mode.gap > self.tol * mode.objective[-1]:
            warnings.warn(
                f"{type(self).__name__} reached max_iter={self.max_iter} at a relative duality gap of "
                f"{mode.gap / mode.objective[-1]:.1e}, above tol={self.tol:g}; raise max_iter or, if that "
                "does not help, scale the features or lower cost.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return split_intercept(mode.W, self.fit_intercept)


@dataclass(eq=False, repr=False)
class EMSVC(ScoreClassifier, PosteriorMode):
    """Linear support vector classifier, the posterior mode of the Bayesian SVM, by EM.

    Two classes, with ``y`` in ``-1, 1`` and ``f = w . x``: the minimum of
    ``|w|^2 / (2 prior_scale^2) + 2 cost sum_i max(0, ell - y_i f_i)``. More classes, with ``s_k = w_k . x``
    (Crammer and Singer): the minimum of
    ``sum_k |w_k|^2 / (2 prior_scale^2) + 2 cost sum_i [max_k (ell 1[k != y_i] + s_ik) - s_iy]``.
    At ``ell=1`` these are the problems of ``LinearSVC(loss="hinge", C=2 * cost * prior_scale**2)``, with
    ``multi_class="crammer_singer"`` for the second; else divide ``C``, and multiply the weights, by ``ell``.

    :param cost: ``c``, the weight of the hinge.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param fit_intercept: append a constant 1 to the features, with the prior of the other weights.
    :param max_iter: the most iterations, an EM sweep or an interior-point step each.
    :param tol: stop at a duality gap of ``tol`` times the objective.

    Attributes: ``classes_``; ``coef_``, (1, d) for two classes and (L, d) for more; ``intercept_``, (1,) or
    (L,); ``objective_``, the trace of the objective, from weights 0 through every single update, never
    increasing; ``dual_gap_``, a bound on ``objective_[-1]`` less the minimum; ``n_iter_``;
    ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.inference.limits import EMSVC
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> svc = EMSVC(cost=10.0).fit(X, ["no", "no", "yes", "yes"])
    >>> svc.predict([[-0.5], [3.0]]).tolist()
    ['no', 'yes']
    >>> svc.coef_.round(3)
    array([[1.]])
    """

    ell: float = 1.0

    def fit(self, X, y, sample_weight=None):
        """Fit to ``X`` (n, d) and labels ``y`` (n,); ``sample_weight`` (n,) multiplies each datum's cost."""
        self._check()
        check_settings(self, positive=["ell"])
        X, y = validate_data(self, X, y, dtype=np.float64)
        weight = check_weight(sample_weight, X)
        self.classes_, y = encode_labels(y, weight)
        X, c, rows = self._rows(X, weight)
        y, num_classes = y[rows], len(self.classes_)
        precision = self.prior_scale**-2.0
        if num_classes == 2:
            problem = hinge_problem(X, 2.0 * y - 1, self.ell, c, precision)
        else:
            problem = multiclass_problem(X, y, num_classes, self.ell, c, precision)
        self.coef_, self.intercept_ = self._fit(problem)
        return self

    def decision_function(self, X):
        """Scores: (n,), positive for ``classes_[1]``, for two classes; (n, L) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores


@dataclass(eq=False, repr=False)
class EMSVR(RegressorMixin, PosteriorMode):
    """Linear support vector regression, the posterior mode of the Bayesian SVR, by EM.

    With ``f = w . x`` the minimum of
    ``|w|^2 / (2 prior_scale^2) + 2 cost sum_i max(0, |t_i - f_i| - epsilon)``, the problem of
    ``LinearSVR(loss="epsilon_insensitive", C=2 * cost * prior_scale**2)``.

    :param cost: ``c``, the weight of the loss.
    :param epsilon: the half-width of the tube without loss, 0 or more.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param fit_intercept: append a constant 1 to the features, with the prior of the other weights.
    :param max_iter: the most iterations, an EM sweep or an interior-point step each.
    :param tol: stop at a duality gap of ``tol`` times the objective.

    Attributes: ``coef_`` (d,); ``intercept_``; ``objective_``, ``dual_gap_``, ``n_iter_`` and
    ``n_features_in_`` as in :class:`EMSVC`.

    >>> import numpy as np
    >>> from regbayes.inference.limits import EMSVR
    >>> X = np.arange(6.0)[:, None]
    >>> svr = EMSVR(cost=100.0, epsilon=0.0).fit(X, 2 * X[:, 0] + 1)
    >>> svr.predict([[10.0]]).round(2)
    array([21.])
    """

    epsilon: float = 0.1

    def fit(self, X, y, sample_weight=None):
        """Fit to ``X`` (n, d) and targets ``y`` (n,); ``sample_weight`` (n,) multiplies each datum's cost."""
        self._check()
        check_settings(self, nonnegative=["epsilon"])
        X, t = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        X, c, rows = self._rows(X, check_weight(sample_weight, X))
        problem = epsilon_problem(X, t[rows].astype(np.float64), self.epsilon, c, self.prior_scale**-2.0)
        coef, intercept = self._fit(problem)
        self.coef_, self.intercept_ = coef[0], intercept[0]
        return self

    def predict(self, X):
        """Predicted targets (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return X @ self.coef_ + self.intercept_
