"""The descent of infinite latent SVMs: the updates of :mod:`.ilsvm_equations` and the classifiers' duals, in turn.

**Features and classifiers move together.** Moving ``psi`` and ``mu`` in turn would stop wherever data lie exactly on
the margin, where neither can move alone. At fixed multipliers ``omega`` the margin is linear in ``psi``; equations (27,
33) minimise the Lagrangian then, and a whole step may raise ``J``, as ``omega`` changes on the way.

- **Tasks.** With the classifiers solved for, ``J(psi) = min_mu J(psi, mu)`` has by Danskin's theorem the derivative of
  that Lagrangian, so (27) points downhill: the step is halved until ``J``, with the classifiers solved for again, has
  fallen. Where more data of a task come to rest on the margin than it has weights, ``omega`` is not unique and
  ``J(psi)`` has a kink, from which no such step leads down.
- **Classes**, whose data each have features of their own, are on the margin soon, and tasks then too: features and
  classifiers move towards the minimum of ``J`` with scores linear in ``psi`` and ``mu`` (a proximal-linear step [1]),
  which is a dual again (:func:`.respond`, :func:`.respond_tasks`), with multipliers that suit both.

References:

1. *Proximal methods for composite minimization*, A. S. Lewis and S. J. Wright, Mathematical Programming (2016)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from ..duality.crammer_singer import solve
from ..duality.problem import DualProblem, Solution
from .ilsvm_duals import Cells, Machines, evaluate, respond, respond_tasks, solve_tasks
from .ilsvm_equations import (
    Factors,
    Matrix,
    Scales,
    factor_objective,
    feature_logits,
    sweep_features,
    update_aux,
    update_loadings,
    update_scales,
    update_sticks,
)

Array = np.ndarray

SMALLEST_STEP, LONG_STEP = 1e-4, 0.2
FINEST = 1e-12  # relative gap of a dual
TINY, EPS = 1e-300, np.finfo(float).eps / 2
SPARED = 5e7  # multiplications that a dual of tasks or of moves may take, except the first 200 sweeps; tasks whose
# moves take more in a single sweep stay at a kink


class Classifiers(NamedTuple):
    """Weights for inputs under a standard prior, multipliers, the margin's part of ``J`` and a bound on its minimum."""

    weights: Array  # (L, p) or (M, p)
    dual: Array  # (n, L) or (N,)
    primal: float
    bound: float
    tol: float  # the gap that was asked for

    @property
    def gap(self) -> float:
        """Relative to the primal."""
        return max(self.primal - self.bound, 0.0) / self.primal if self.primal > 0 else 0.0


class Response(NamedTuple):
    """Classifiers that move together with the features, and by how much they raise ``theta``."""

    weights: Array
    dual: Array
    pull: Array  # (R, K)


class ClassMargin:
    """One multi-class machine on the features of the labelled rows.

    :param y: (n,) labels ``0..L-1`` of the first ``n`` rows.
    :param ell: (L, L) margins.
    :param C: the cost.
    :param inputs: (n, e) inputs beside the features.
    :param scale: the prior standard deviation of the weights, by which inputs are multiplied.
    """

    def __init__(self, y: Array, ell: Array, C: float, inputs: Array, scale: float):
        self.y, self.b, self.inputs, self.scale = y, np.ascontiguousarray(ell[y]), inputs, scale
        self.cost = np.full(len(y), C)

    def _problem(self, psi: Array) -> DualProblem:
        U = self.scale * np.column_stack([psi[: len(self.y)], self.inputs])
        return DualProblem(U, self.b, self.y, self.cost, False)

    def start(self, psi: Array) -> Classifiers:
        """Weights 0."""
        problem = self._problem(psi)
        return self._keep(problem.certify(np.zeros(self.b.shape), 0, 1.0), np.inf)

    def solve(self, psi: Array, near: Classifiers, tol: float) -> Classifiers:
        """The classifiers of given features, from those of others."""
        problem = self._problem(psi)
        return self._keep(solve(problem, problem.feasible(near.dual), tol), tol)

    @staticmethod
    def _keep(found: Solution, tol: float) -> Classifiers:
        assert found.weights is not None
        return Classifiers(found.weights, found.alpha, found.primal, found.dual, tol)

    def primal(self, psi: Array, weights: Array) -> float:
        """The margin's part of ``J`` at any weights."""
        scores = self._problem(psi).inputs @ weights.T
        loss = np.max(self.b + scores, axis=1) - scores[np.arange(len(self.y)), self.y]
        return float(np.sum(weights**2) / 2 + self.cost @ loss)

    def respond(self, psi: Array, shift: Array, found: Classifiers, tol: float) -> Response:
        """The minimum of the problem linearised at ``psi`` and ``found``; ``shift`` of the logits without a margin."""
        n, K = len(self.y), psi.shape[1]
        problem, M, D = self._problem(psi), self.scale * found.weights[:, :K], psi[:n] * (1 - psi[:n])
        max_sweeps = _sweeps(len(M) * (problem.inputs.size + 2 * D.size))
        alpha = respond(problem, M, D, shift[:n], problem.feasible(found.dual), tol * found.primal, max_sweeps)
        pull = np.zeros_like(psi)
        pull[:n] = alpha @ M
        return Response(alpha.T @ problem.inputs, alpha, pull)


class TaskMargin:
    """A machine for each task on projected inputs.

    :param X: (n, d) inputs, to be projected.
    :param cells: the tasks' targets.
    :param inputs: (n, e) inputs beside the features.
    :param scale: the prior standard deviation of the weights, by which inputs are multiplied.
    """

    def __init__(self, X: Array, cells: Cells, inputs: Array, scale: float):
        self.X, self.cells, self.inputs, self.scale = X, cells, inputs, scale

    def _rows(self, psi: Array) -> Array:
        return self.scale * np.column_stack([self.X @ psi, self.inputs])

    def start(self, psi: Array) -> Classifiers:
        """Weights 0."""
        return self._keep(evaluate(self.cells, self._rows(psi), np.zeros(len(self.cells.row))), np.inf)

    def solve(self, psi: Array, near: Classifiers, tol: float) -> Classifiers:
        """The classifiers of given features, from those of others."""
        U = self._rows(psi)
        max_sweeps = _sweeps(len(self.cells.row) * U.shape[1])
        return self._keep(solve_tasks(self.cells, U, near.dual, tol, max_sweeps), tol)

    @staticmethod
    def _keep(found: Machines, tol: float) -> Classifiers:
        return Classifiers(found.weights, found.beta, found.primal, found.dual, tol)

    def misses(self, psi: Array, weights: Array) -> Array:
        """(N,) by which the scores miss their targets."""
        scores = np.einsum("np,np->n", self._rows(psi)[self.cells.row], weights[self.cells.task])
        return self.cells.target - scores

    def primal(self, psi: Array, weights: Array) -> float:
        """The margin's part of ``J`` at any weights."""
        cells, miss = self.cells, self.misses(psi, weights)
        loss = np.maximum(cells.high * (miss - cells.epsilon), cells.low * (miss + cells.epsilon))
        return float(np.sum(weights**2) / 2 + np.sum(np.maximum(loss, 0.0)))

    def respond(self, psi: Array, shift: Array, found: Classifiers, tol: float) -> Response:
        """The minimum of the problem linearised at ``psi`` and ``found``; ``shift`` of the logits without a margin."""
        K, cells, U = psi.shape[1], self.cells, self._rows(psi)
        M, D = self.scale * found.weights[:, :K], psi * (1 - psi)
        max_sweeps = _sweeps(self.num_operations(K))
        beta = respond_tasks(cells, U, self.X, M, D, shift, found.dual, tol * found.primal, max_sweeps)
        return Response(evaluate(cells, U, beta).weights, beta, self.pull(found._replace(dual=beta), K))

    def num_operations(self, K: int) -> int:
        """Multiplications of a sweep in :meth:`respond`."""
        return len(self.cells.row) * self.X.shape[1] * K

    def pull(self, found: Classifiers, K: int) -> Array:
        """(d, K) by which the margin raises ``theta``."""
        return self.scale * self.cells.totals(found.dual, self.X).T @ found.weights[:, :K]


def _sweeps(operations: int) -> int:
    """How many sweeps of so many multiplications a dual may take."""
    return min(max(int(SPARED / max(operations, 1)), 200), 20_000)


def _logit(psi: Array) -> Array:
    return scipy.special.logit(np.clip(psi, TINY, 1 - EPS))


def _reordered(weights: Array, order: Array) -> Array:
    return np.column_stack([weights[:, order], weights[:, len(order) :]])


def start_factors(psi: Array, T: Matrix, scales: Scales, loadings: Array | None = None) -> Factors:
    """Factors to start from: the prior's sticks, and the best loadings unless they are given (C', K)."""
    K = psi.shape[1]
    gamma = np.tile([scales.concentration, 1.0], (K, 1))
    best, variance = update_loadings(psi, T, scales)
    return Factors(psi, gamma, update_aux(gamma), best if loadings is None else loadings, variance)


class FactorDescent:
    """A descent from given factors; without a ``margin`` of the factor model alone.

    ``observe(update, fit)`` is called after every single update; ``trace`` has the objective then.
    """

    def __init__(
        self,
        T: Matrix,
        q: Factors,
        scales: Scales,
        margin: ClassMargin | TaskMargin,
        *,
        estimate_scales: bool = False,
        observe: Callable[[str, Any], None] | None = None,
    ):
        self.T, self.q, self.scales, self.margin = T, q, scales, margin
        self.estimate_scales, self.observe = estimate_scales, observe
        self.classifiers = margin.start(q.psi)
        self.kinked = isinstance(margin, ClassMargin)  # whether features have to move together with the classifiers
        self.multipliers = self.classifiers.dual  # by which the features last moved
        self.step, self.factors = 1.0, 0.0
        self.trace: list[float] = []
        self.n_iter, self.converged = 0, False
        self._record("start")

    @property
    def objective(self) -> float:
        """``J``."""
        return self.trace[-1]

    def run(self, max_iter: int, tol: float, dual_tol: float, *, coupled: bool = True) -> "FactorDescent":
        """Descend until all updates lower ``J`` by ``tol`` or less.

        :param coupled: whether the features hear of the margin; if not, the classifiers wait for their end.
        """
        precision = max(dual_tol, 1e-3)  # of the duals, while much else is in motion
        self.converged = False
        while self.n_iter < max_iter and not self.converged:
            before = self.objective
            if coupled:
                self.classify(precision)
            self._features(coupled, precision)
            self._sticks()
            self._loadings()
            self._order()
            if self.estimate_scales:
                self._scales()
            self.n_iter += 1
            if before - self.objective <= tol:
                self.converged = precision <= dual_tol or not coupled
                precision = max(dual_tol, precision / 100)
        self.classify(dual_tol)
        return self

    def classify(self, tol: float) -> None:
        """The classifiers of the features as they are, unless they are known as well as asked."""
        if self.classifiers.tol <= tol:
            return
        before = self.classifiers
        found = self.margin.solve(self.q.psi, before, tol)
        if found.primal < before.primal:
            self.classifiers = found
            self._record("classifiers")
        else:
            self.classifiers = before._replace(bound=max(before.bound, found.bound), tol=tol)

    def _record(self, update: str) -> None:
        if update != "classifiers":
            self.factors = float(factor_objective(self.q, self.T, self.scales))
        self.trace.append(self.factors + self.classifiers.primal)
        if self.observe:
            self.observe(update, self)

    def _sticks(self) -> None:
        self.q = self.q._replace(aux=update_aux(self.q.gamma))
        self._record("bound")
        self.q = self.q._replace(gamma=update_sticks(self.q.psi, self.q.aux, self.scales.concentration))
        self._record("sticks")

    def _loadings(self) -> None:
        loadings, variance = update_loadings(self.q.psi, self.T, self.scales)
        self.q = self.q._replace(loadings=loadings, variance=variance)
        self._record("loadings")

    def _scales(self) -> None:
        self.scales = update_scales(self.q, self.T, self.scales)
        self._record("scales")

    def _features(self, coupled: bool, precision: float) -> None:
        """(27, 33), halved until ``J`` falls."""
        linear, gram = feature_logits(self.q, self.T, self.scales)
        if not coupled:
            psi = self.q.psi.copy()
            sweep_features(psi, linear, gram)
            self.q = self.q._replace(psi=psi)
            self.classifiers = self.margin.start(psi)
            self._record("features")
            return
        if isinstance(self.margin, TaskMargin) and not self.kinked:
            K = len(gram)
            if self._in_turn(linear + self.margin.pull(self.classifiers, K), gram, precision):
                self.multipliers = self.classifiers.dual
                return
            self.kinked = self.margin.num_operations(K) <= SPARED
        if self.kinked:
            self._together(linear, gram, precision)

    def _together(self, linear: Array, gram: Array, precision: float) -> None:
        """Features and classifiers towards the minimum of the linearised problem."""
        psi, found, logits = self.q.psi, self.classifiers, _logit(self.q.psi)
        shift = linear - psi @ gram + psi * np.diagonal(gram) - logits  # of the logits, without a margin
        weights, self.multipliers, pull = self.margin.respond(psi, shift, found, precision)
        while self.step >= SMALLEST_STEP:
            if self.step >= LONG_STEP:
                moved = psi.copy()
                sweep_features(moved, linear + pull, gram, step=self.step)  # in turn it goes further
            else:
                moved = scipy.special.expit(logits + self.step * (shift + pull))  # all at once it surely goes down
            new = found.weights + self.step * (weights - found.weights)
            primal = self.margin.primal(moved, new)
            if self._accept(moved, Classifiers(new, self.multipliers, primal, -np.inf, np.inf)):
                return
        self.step = SMALLEST_STEP

    def _accept(self, psi: Array, found: Classifiers) -> bool:
        """Take features with classifiers if ``J`` does not rise; else shorten the step."""
        q = self.q._replace(psi=psi)
        if float(factor_objective(q, self.T, self.scales)) + found.primal > self.objective:
            self.step /= 2
            return False
        self.q, self.classifiers = q, found
        self._record("features")
        self.step = min(1.0, 2 * self.step)
        return True

    def _in_turn(self, linear: Array, gram: Array, precision: float) -> bool:
        """Features, then the classifiers that suit them; whether some step led down."""
        near, finest = self.classifiers, max(FINEST, 1e-3 * precision)
        while self.step >= SMALLEST_STEP:
            psi = self.q.psi.copy()
            sweep_features(psi, linear, gram, step=self.step)  # as a whole downhill if short: not so a part of a sweep
            room = self.objective - float(factor_objective(self.q._replace(psi=psi), self.T, self.scales))
            found, tol = self.margin.solve(psi, near, precision), precision
            while found.bound < room < found.primal and tol > finest:  # the gap hides whether J falls
                tol /= 10
                found = self.margin.solve(psi, found, tol)
            if self._accept(psi, found):
                return True
            near = found
        self.step = SMALLEST_STEP
        return False

    def _order(self) -> None:
        """Features in the order of their mass, with the sticks that belong to it, if ``J`` falls."""
        order = np.argsort(-np.sum(self.q.psi, axis=0), kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return
        psi = self.q.psi[:, order]
        gamma = update_sticks(psi, self.q.aux, self.scales.concentration)
        aux = update_aux(gamma)
        q = Factors(psi, gamma, aux, self.q.loadings[:, order], self.q.variance[order])
        if factor_objective(q, self.T, self.scales) < self.factors:
            self.q = q
            self.classifiers = self.classifiers._replace(weights=_reordered(self.classifiers.weights, order))
            self._record("order")
