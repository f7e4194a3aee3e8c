"""The descent of infinite latent SVMs: the updates of :mod:`.ilsvm_equations` and the classifiers' duals, in turn.

**Features and classifiers move together.** With the classifiers solved for, ``J(psi) = min_mu J(psi, mu)`` has by
Danskin's theorem the derivative of the Lagrangian at the multipliers ``omega`` of the dual, in which the margin is
linear in ``psi``. Equations (27, 33) minimise that Lagrangian, so they point downhill; but a whole step may go too far,
as ``omega`` changes on the way. Hence the step is halved until ``J``, with the classifiers solved for again, has
fallen. Moving ``psi`` and ``mu`` in turn instead would stop wherever data lie exactly on the margin.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse

from ..duality.crammer_singer import solve
from ..duality.problem import Problem
from .ilsvm_duals import Cells, Machines, evaluate, solve_tasks
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

__all__ = ["ClassMargin", "Descent", "TaskMargin", "start_factors"]

Array = np.ndarray

SMALLEST_STEP = 1e-4
FINEST = 1e-12  # relative gap of a dual
SPARED = 2e8  # multiplications that a dual may take, except the first 200 sweeps


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


class Margin(Protocol):
    """The classifiers' part of ``J``."""

    def start(self, psi: Array) -> Classifiers:
        """Weights 0."""

    def solve(self, psi: Array, near: Classifiers, tol: float) -> Classifiers:
        """The classifiers of given features, from those of others."""

    def pull(self, found: Classifiers, K: int) -> Array:
        """(R, K) by which the margin raises ``theta``."""

    def reorder(self, found: Classifiers, order: Array) -> Classifiers:
        """The same for features in another order."""


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

    def _problem(self, psi: Array) -> Problem:
        U = self.scale * np.column_stack([psi[: len(self.y)], self.inputs])
        return Problem(U, self.b, self.y, self.cost, False)

    def start(self, psi: Array) -> Classifiers:
        problem = self._problem(psi)
        found = problem.certify(np.zeros(self.b.shape), 0, 1.0)
        return Classifiers(found.weights, found.alpha, found.primal, found.dual, np.inf)

    def solve(self, psi: Array, near: Classifiers, tol: float) -> Classifiers:
        problem = self._problem(psi)
        found = solve(problem, problem.feasible(near.dual), tol)
        return Classifiers(found.weights, found.alpha, found.primal, found.dual, tol)

    def pull(self, found: Classifiers, K: int) -> Array:
        return self.scale * found.dual @ found.weights[:, :K]

    def reorder(self, found: Classifiers, order: Array) -> Classifiers:
        return found._replace(weights=_reordered(found.weights, order))


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
        return self._keep(evaluate(self.cells, self._rows(psi), np.zeros(len(self.cells.row))), np.inf)

    def solve(self, psi: Array, near: Classifiers, tol: float) -> Classifiers:
        U = self._rows(psi)
        max_sweeps = min(max(int(SPARED / max(len(self.cells.row) * U.shape[1], 1)), 200), 20_000)
        return self._keep(solve_tasks(self.cells, U, near.dual, tol, max_sweeps), tol)

    @staticmethod
    def _keep(found: Machines, tol: float) -> Classifiers:
        return Classifiers(found.weights, found.beta, found.primal, found.dual, tol)

    def pull(self, found: Classifiers, K: int) -> Array:
        cells = self.cells
        beta = scipy.sparse.csr_array((found.dual, cells.row, cells.start), shape=(len(cells.start) - 1, len(self.X)))
        return self.scale * (beta @ self.X).T @ found.weights[:, :K]

    def reorder(self, found: Classifiers, order: Array) -> Classifiers:
        return found._replace(weights=_reordered(found.weights, order))


def _reordered(weights: Array, order: Array) -> Array:
    return np.column_stack([weights[:, order], weights[:, len(order) :]])


def start_factors(psi: Array, T: Matrix, scales: Scales, loadings: Array | None = None) -> Factors:
    """Factors to start from: the prior's sticks, and the best loadings unless they are given (C', K)."""
    K = psi.shape[1]
    gamma = np.tile([scales.concentration, 1.0], (K, 1))
    best, variance = update_loadings(psi, T, scales)
    return Factors(psi, gamma, update_aux(gamma), best if loadings is None else loadings, variance)


class Descent:
    """A descent from given factors; without a ``margin`` of the factor model alone.

    ``observe(update, fit)`` is called after every single update; ``trace`` has the objective then.
    """

    def __init__(
        self,
        T: Matrix,
        q: Factors,
        scales: Scales,
        margin: Margin,
        *,
        estimate_scales: bool = False,
        observe: Callable[[str, Any], None] | None = None,
    ):
        self.T, self.q, self.scales, self.margin = T, q, scales, margin
        self.estimate_scales, self.observe = estimate_scales, observe
        self.classifiers = margin.start(q.psi)
        self.step, self.factors = 1.0, 0.0
        self.trace: list[float] = []
        self.n_iter, self.converged = 0, False
        self._record("start")

    @property
    def objective(self) -> float:
        """``J``."""
        return self.trace[-1]

    def run(self, max_iter: int, tol: float, dual_tol: float, *, coupled: bool = True) -> "Descent":
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
        found = self.margin.solve(self.q.psi, self.classifiers, tol)
        if found.primal < self.classifiers.primal:
            self.classifiers = found
            self._record("classifiers")

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
        """(27, 33) at the multipliers, with the classifiers; halved until ``J`` falls."""
        linear, gram = feature_logits(self.q, self.T, self.scales)
        if not coupled:
            psi = self.q.psi.copy()
            sweep_features(psi, linear, gram)
            self.q = self.q._replace(psi=psi)
            self.classifiers = self.margin.start(psi)
            self._record("features")
            return
        pull = self.margin.pull(self.classifiers, gram.shape[0])
        linear[: len(pull)] += pull
        near, finest = self.classifiers, max(FINEST, 1e-3 * precision)
        while self.step >= SMALLEST_STEP:
            psi = self.q.psi.copy()
            sweep_features(psi, linear, gram, step=self.step)  # as a whole downhill if short: not so a part of a sweep
            q = self.q._replace(psi=psi)
            factors = float(factor_objective(q, self.T, self.scales))
            found, tol = self.margin.solve(psi, near, precision), precision
            while factors + found.bound < self.objective < factors + found.primal and tol > finest:
                tol /= 10  # the gap hides whether J falls
                found = self.margin.solve(psi, found, tol)
            if factors + found.primal <= self.objective:
                self.q, self.classifiers = q, found
                self._record("features")
                self.step = min(1.0, 2 * self.step)
                return
            near = found
            self.step /= 2
        self.step = SMALLEST_STEP

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
            self.q, self.classifiers = q, self.margin.reorder(self.classifiers, order)
            self._record("order")
