r"""Coordinate descent on the objectives of DP-means and M2DPM, which no single update raises.

.. math:: J = \sum_k \frac{|\eta_k|^2}{2\nu^2} + 2c \sum_i w_i\, \mathrm{loss}_i(\eta_{z_i})
              + s \sum_i w_i D(x_i, \mu_{z_i}) + \lambda K

DP-means is the case without classifiers. An iteration of :class:`ClusterDescent` is one pass over the data
(:func:`.sweeps.sweep`), in which

1. **classifiers** take the EM step found in the iteration before, shortened and at last refused where the objective
   would rise: their loss is evaluated before the data move. Tiny data are at hand, so there it is several steps;
2. **assignment**: every datum goes to its cheapest cluster; a cluster left without data is removed;
3. **creation**, once the present clusters have settled: a datum opens a cluster of its own if that saves more
   than it costs, at most one from each cluster at a time, and none that would rather join another's;
4. **means** become those of their data.

:func:`descend_in_order` is the papers' algorithm, which opens clusters while it goes through the data.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from scipy.linalg.lapack import dposv

from ..moves.augmentation import class_rows
from .divergences import divergence, mean_gain, means
from .sweeps import Data, PassSettings, Sums, sweep, triangle

Array = np.ndarray

SETTLED = 0.01  # relative to the objective
ROUNDING = 1e-12  # a fall as small, relative to the objective, is none
LONGEST = 1.9  # EM steps: up to twice the step to the least of the quadratic bound, the bound does not rise
STEPS = 10  # of EM in an iteration on the host, at most
BLOCK = 16_384  # data at a time, in order


class ClusterProblem(NamedTuple):
    """The objective; with an infinite ``penalty`` no cluster opens, and ``J`` is kept without its last term."""

    likelihood: str
    num_classes: int  # 0 without classifiers
    fit_intercept: bool
    hyper: PassSettings
    penalty: float  # lambda
    max_clusters: float = np.inf


class ClusterSlots(NamedTuple):
    """Clusters in the slots of a buffer; ``S`` is 1 for two classes, 0 without classifiers."""

    mu: Array  # (B, d)
    eta: Array  # (B, S, p)
    active: Array  # (B,)

    @property
    def num(self) -> int:
        return int(np.sum(self.active))


class Outcome(NamedTuple):
    """The end of a descent."""

    clusters: ClusterSlots
    z: Array  # (n,) slots
    trace: list[tuple[float, int]]  # J without lambda K, and K, after every update
    n_iter: int
    converged: bool
    overflow: bool  # max_clusters kept a cluster from opening
    dearest: float  # the largest cost of a datum


Observer = Callable[[str, Any], None]


def buffer(mu: Array, eta: Array, size: int) -> ClusterSlots:
    """Clusters (K, d), (K, S, p) in a buffer of a power of two slots, ``size`` at least."""
    size = max(size, 1 << (len(mu) - 1).bit_length())
    pad = (0, size - len(mu))
    return ClusterSlots(
        np.pad(mu, [pad, (0, 0)], mode="edge"), np.pad(eta, [pad, (0, 0), (0, 0)]), np.arange(size) < len(mu)
    )


def inputs(X: Array, fit_intercept: bool) -> Array:
    """The classifiers' inputs ``u`` (n, p)."""
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def embedding(origin: Array, fit_intercept: bool) -> Array:
    """``E`` (d+1, p) such that ``E eta`` scores ``x - origin, 1`` as ``eta`` scores ``u``."""
    d = len(origin)
    E = np.vstack([np.eye(d), origin])
    return np.column_stack([E, np.eye(d + 1)[:, -1]]) if fit_intercept else E


def losses(eta: Array, U: Array, y: Array, problem: ClusterProblem) -> Array:
    """Losses (n, K) of classifiers (K, S, p) at inputs (n, p) with labels (n,), which are signs for two classes."""
    if not problem.num_classes:
        return np.zeros((len(U), len(eta)))
    return score_losses((U @ eta.reshape(-1, eta.shape[2]).T).reshape(len(U), *eta.shape[:2]), y, problem)


def score_losses(scores: Array, y: Array, problem: ClusterProblem) -> Array:
    """Losses (n, K) at scores (n, K, S)."""
    ell = problem.hyper.ell
    if problem.num_classes == 2:
        return np.maximum(ell - y[:, None] * scores[..., 0], 0)
    other = np.arange(problem.num_classes) != y[:, None, None]
    return np.max(scores + ell * other, axis=2) - np.sum(np.where(other, 0, scores), axis=2)


def prices(clusters: ClusterSlots, X: Array, U: Array, y: Array, problem: ClusterProblem) -> tuple[Array, Array]:
    """``s D`` and ``2 c loss``, (n, K), of every datum in every cluster."""
    s, c = problem.hyper[:2]
    return s * divergence(problem.likelihood, X, clusters.mu), 2 * c * losses(clusters.eta, U, y, problem)


def one_point(U: Array, y: Array, weight: Array, problem: ClusterProblem) -> tuple[Array, Array, Array]:
    """Classifiers (n, S, p) of single data, their losses and their shares ``|eta|^2 / (2 nu^2)`` of the objective.

    With ``kappa = 1`` for two classes, ``L/(L-1)`` for more, ``tau = min(2 c w, ell/(kappa nu^2 |u|^2))``: two
    classes ``eta = nu^2 tau y u``; more, where the rivals tie, ``eta_y = nu^2 tau u``, ``eta_j = -nu^2 tau u/(L-1)``.
    """
    _, c, ell, nu, _ = problem.hyper
    L = problem.num_classes
    if not L:
        return np.zeros((len(U), 0, U.shape[1])), np.zeros(len(U)), np.zeros(len(U))
    kappa = L / (L - 1) if L > 2 else 1.0
    reach = kappa * nu**2 * np.sum(U**2, axis=1)
    tau = np.minimum(2 * c * weight, ell / np.maximum(reach, 1e-300))
    direction = y[:, None] if L == 2 else np.where(np.arange(L) == y[:, None], 1.0, -1 / (L - 1))
    eta = (nu**2 * tau)[:, None, None] * direction[:, :, None] * U[:, None]
    return eta, np.maximum(ell - reach * tau, 0), reach * tau**2 / 2


class ClusterDescent:
    """A descent on one set of data from given clusters; ``scale`` multiplies the weights of a random part.

    Clusters may open after an iteration that lowers the objective by the fraction ``SETTLED`` or less.
    ``observe(update, descent)`` is called after every single update.
    """

    def __init__(
        self,
        data: Data,
        clusters: ClusterSlots,
        problem: ClusterProblem,
        scale: float = 1.0,
        observe: Observer | None = None,
    ):
        self.data, self.clusters, self.problem, self.observe = data, clusters, problem, observe
        self.scale = scale
        self.E = embedding(data.origin, problem.fit_intercept)
        self.z: Any = self._put(np.zeros(data.shape, np.int32))
        self.spread = 0.0  # s sum_i w_i D
        self.margin = np.zeros(len(clusters.mu))  # 2 c sum_i w_i loss + |eta|^2 / (2 nu^2) of every cluster
        self.length = np.full(len(clusters.mu), self._first_length())  # of the classifiers' steps
        self.weight = np.zeros(len(clusters.mu))  # of the data of every cluster
        self.refused = np.full(len(clusters.mu), np.nan)  # the weight at which a cluster last refused a step
        self.trace: list[tuple[float, int]] = []
        self.overflow = False

    def _first_length(self) -> float:
        return LONGEST if self.problem.num_classes == 2 else 1.0

    @property
    def objective(self) -> float:
        """``J``, without its last term if the penalty is infinite."""
        base, num = self.trace[-1]
        return base + self.problem.penalty * num if np.isfinite(self.problem.penalty) else base

    @property
    def labels(self) -> Array:
        """(n,) slots."""
        return np.asarray(self.z).reshape(-1)[: self.data.num_data]

    def run(self, max_iter: int, tol: float) -> Outcome:
        """Descend until an iteration lowers ``J`` by ``tol`` or less.

        The fall is relative to the classifiers' part of ``J``, a tenth of ``J`` at least: they settle last.
        """
        eta, previous = self.clusters.eta, np.inf
        compiled = self.problem.num_classes > 0 and self.data.mesh is not None
        for n_iter in range(1, max_iter + 1):
            long = self.clusters.active & (self.length > 1) & compiled
            sums = self._classify(eta) if self.trace else self._sweep(eta)
            self._assign(sums)
            fall, part = previous - self.objective, self.objective
            if self.problem.num_classes:
                part = max(np.sum(self.margin), part / 10)
            previous = self.objective
            converged = bool(fall <= max(tol, ROUNDING) * part)
            opened: list[int] = []
            if fall <= max(tol, SETTLED) * part and np.isfinite(self.problem.penalty):
                sums, opened = self._open(sums)
                converged = converged and not opened
            if converged and np.any(long):  # long steps may swing to and fro
                self.length, converged = np.minimum(self.length, 1), False
            if converged or n_iter == max_iter:
                break
            self._move_means(sums)
            eta = self._step(sums, opened) if self.problem.num_classes else self.clusters.eta
        return Outcome(
            self.clusters, self.labels, self.trace, n_iter, converged, self.overflow, float(np.max(sums.dearest))
        )

    def _put(self, z: Array) -> Any:
        mesh = self.data.mesh
        return z if mesh is None else jax.device_put(z, NamedSharding(mesh, PartitionSpec("data")))

    def _sweep(self, eta: Array) -> Sums:
        return sweep(self.data, self.z, self.clusters.mu, self.clusters.active, eta @ self.E.T, self.problem.hyper)

    def _margins(self, loss: Array, eta: Array) -> Array:
        _, c, _, nu, _ = self.problem.hyper
        return 2 * c * self.scale * loss + np.sum(eta**2, axis=(1, 2)) / (2 * nu**2)

    def _record(self, update: str) -> None:
        self.trace.append((float(self.spread + np.sum(self.margin)), self.clusters.num))
        if self.observe:
            self.observe(update, self)

    def _classify(self, eta: Array) -> Sums:
        """Take the classifiers ``eta`` (B, S, p), nearer to the present ones where the objective would rise."""
        if not self.problem.num_classes:
            return self._sweep(eta)
        tolerance = 1e-13 if self.data.X.dtype == np.float64 else 1e-7
        for shrink in (0.25, 0.0, 0.0):
            sums = self._sweep(eta)
            margin = self._margins(sums.before, eta)
            worse = margin > self.margin * (1 + tolerance)
            if not np.any(worse):
                break
            self.length[worse] = np.maximum(self.length[worse] / 2, 1 / eta.shape[1])
            self.refused[worse] = self.weight[worse] if shrink == 0 else np.nan
            eta = np.where(worse[:, None, None], self.clusters.eta + shrink * (eta - self.clusters.eta), eta)
        self.length[~worse] = np.minimum(1.2 * self.length[~worse], LONGEST)
        self.clusters, self.margin = self.clusters._replace(eta=eta), margin
        self._record("classifiers")
        return sums

    def _assign(self, sums: Sums) -> None:
        """Every datum to its cheapest cluster; clusters without data are removed."""
        self.z = sums.z
        self.spread = self.scale * float(np.sum(sums.spread))
        self.margin = self._margins(sums.loss, self.clusters.eta)
        self._record("assignment")
        occupied = self.clusters.active & (sums.weight > 0)
        if np.any(occupied != self.clusters.active):
            self.margin = np.where(occupied, self.margin, 0)
            self.clusters = self.clusters._replace(
                active=occupied, eta=np.where(occupied[:, None, None], self.clusters.eta, 0)
            )
            self._record("removal")

    def _open(self, sums: Sums) -> tuple[Sums, list[int]]:
        """Open clusters for data that save by it, candidates being the one of each chunk that saves most."""
        problem, likelihood = self.problem, self.problem.likelihood
        c = problem.hyper.cost
        best = np.argsort(-sums.saving, kind="stable")
        best = best[sums.saving[best] > problem.penalty]
        if not len(best):
            return sums, []
        at = (best, sums.index[best])
        X = self.data.columns[at[0], :, at[1]].astype(np.float64)
        weight, _, _, y = self.data.table[at[0], :, at[1]].astype(np.float64).T
        U = inputs(X + self.data.origin, problem.fit_intercept)
        eta, loss, share = one_point(U, y, weight, problem)
        cost = problem.penalty + 2 * c * weight * loss + share
        z = np.array(self.z)
        sums = sums._replace(weight=np.array(sums.weight), total=np.array(sums.total))
        former = z[at]
        single = sums.weight[former] <= weight * (1 + 1e-9)
        D, H = prices(self.clusters, X + self.data.origin, U, y, problem)
        D, H = D[np.arange(len(best)), former], H[np.arange(len(best)), former]
        cheapest = np.where(single, -np.inf, weight * (D + H))  # of what there is for each datum
        opened: list[int] = []
        left: set[int] = set()
        for i, old in enumerate(former.tolist()):
            if old in left or cheapest[i] <= cost[i] * (1 + 1e-9):
                continue
            if self.clusters.num >= problem.max_clusters:
                self.overflow = True
                break
            if self.clusters.num == len(self.clusters.mu):
                sums = self._grow(sums)
            slot = int(np.argmin(self.clusters.active))
            z[at[0][i], at[1][i]] = slot
            for k, w in ((old, -weight[i]), (slot, weight[i])):
                sums.weight[k] += w
                sums.total[k] += w * X[i]
            self.spread -= self.scale * weight[i] * D[i]
            self.margin[old] -= self.scale * weight[i] * H[i]
            self.margin[slot] = 2 * c * self.scale * weight[i] * loss[i] + share[i]
            mu = means(likelihood, np.ones(1), X[i : i + 1] + self.data.origin)
            fresh = ClusterSlots(mu, eta[i : i + 1], np.ones(1, bool))
            cheapest = np.minimum(cheapest, weight * np.add(*prices(fresh, X + self.data.origin, U, y, problem))[:, 0])
            every = ClusterSlots(*map(np.array, self.clusters))
            every.mu[slot], every.eta[slot], every.active[slot] = mu[0], eta[i], True
            self.clusters = every
            opened.append(slot)
            left.add(old)
            self.z = z
            self._record("creation")
        self.z = self._put(z)
        return sums, opened

    def _grow(self, sums: Sums) -> Sums:
        """Double the buffer."""
        B = len(self.clusters.mu)

        def double(x: Array) -> Array:
            return np.pad(x, [(0, B)] + [(0, 0)] * (x.ndim - 1))

        self.clusters = ClusterSlots(*map(double, self.clusters))
        self.refused = np.pad(self.refused, (0, B), constant_values=np.nan)
        self.length = np.pad(self.length, (0, B), constant_values=self._first_length())
        self.margin = double(self.margin)
        names = ("weight", "total", "slope", "curvature")
        return sums._replace(**{name: double(getattr(sums, name)) for name in names})

    def _move_means(self, sums: Sums) -> None:
        on = self.clusters.active
        weight, origin = sums.weight[on], self.data.origin
        mu = means(self.problem.likelihood, weight, sums.total[on])
        if self.problem.likelihood == "gaussian":
            mu = mu + origin
        gain = mean_gain(self.problem.likelihood, weight, sums.total[on], mu, self.clusters.mu[on])
        self.spread -= self.problem.hyper.clustering_weight * self.scale * gain
        every = self.clusters.mu.copy()
        every[on] = mu
        self.clusters = self.clusters._replace(mu=every)
        self._record("means")

    def _step(self, sums: Sums, opened: list[int]) -> Array:
        """EM steps ``P^-1 (h - P eta)`` of the classifiers, (B, S, p).

        A new cluster's is optimal as it is, and one at a kink that refused a step waits until its data change.
        All classes of a cluster step at once, which may be too far; the mean of their single steps never is, as
        the objective is convex.
        """
        c, precision = self.problem.hyper.cost * self.scale, self.problem.hyper.prior_scale**-2.0
        on = self.clusters.active & (self.refused != sums.weight)
        on[opened] = False
        self.weight = sums.weight
        if self.data.mesh is None:
            return self._steps(on)
        p = sums.slope.shape[-1]
        i, j = triangle(p)
        P = np.empty((*sums.slope[on].shape, p))
        P[..., i, j] = P[..., j, i] = c * sums.curvature[on]
        P = self.E.T @ P @ self.E + precision * np.eye(self.E.shape[1])
        h = c * sums.slope[on] @ self.E - precision * self.clusters.eta[on]
        eta = self.clusters.eta.copy()
        eta[on] += self.length[on, None, None] * np.linalg.solve(P, h[..., None])[..., 0]
        return self._centred(eta)

    def _steps(self, on: Array) -> Array:
        """EM steps of the classifiers ``on`` while they help, (B, S, p)."""
        eta = self.clusters.eta.copy()
        weight, y = self.data.rows[0, 0], self.data.rows[0, 3]
        for k in np.flatnonzero(on):
            rows = np.flatnonzero((self.z[0] == k) & (weight > 0))
            U = inputs(self.data.X[0].T[rows] + self.data.origin, self.problem.fit_intercept)
            for _ in range(STEPS):
                lengths = np.maximum(self.length[k] * 0.5 ** np.arange(6), 1 / eta.shape[1])
                eta[k], fall, length = em(eta[k], range(eta.shape[1]), U, y[rows], weight[rows], self.problem, lengths)
                self.length[k] = min(1.2 * length, LONGEST)
                if fall <= SETTLED * self.margin[k]:
                    break
        return self._centred(eta)

    def _centred(self, eta: Array) -> Array:
        """A shift common to all classes only costs prior."""
        return eta - np.mean(eta, axis=1, keepdims=True) if self.problem.num_classes > 2 else eta


def descend_in_order(
    X: Array,
    y: Array,
    weight: Array,
    clusters: ClusterSlots,
    problem: ClusterProblem,
    max_iter: int,
    tol: float,
    observe: Observer | None = None,
) -> Outcome:
    """Algorithm 1 of the paper: datum after datum is assigned, or opens a cluster that the next one may join.

    Then the means, then one EM step of every classifier. ``trace`` holds every datum that moves. What a datum
    would pay in the clusters there are is found for many data at once; only a new cluster breaks the order.

    :param X: (n, d) data.
    :param y: (n,) labels, signs for two classes.
    :param weight: (n,) weights.
    :param clusters: the start; the first cluster holds all data.
    """
    s, c, _, nu, _ = problem.hyper
    U = inputs(X, problem.fit_intercept)
    z = np.zeros(len(X), int)
    trace: list[tuple[float, int]] = []
    clusters = ClusterSlots(*(x[clusters.active] for x in clusters))
    overflow, previous = False, np.inf
    singles, alone, share = one_point(U, y, weight, problem)
    own = problem.penalty + 2 * c * weight * alone + share

    def shares() -> Array:
        return np.sum(clusters.eta**2, axis=(1, 2)) / (2 * nu**2)

    def record(update: str, base: float) -> None:
        trace.append((base, clusters.num))
        if observe:
            observe(update, (clusters, z))

    D, H = prices(clusters, X, U, y, problem)
    base = float(weight @ (D + H)[:, 0] + np.sum(shares()))
    record("start", base)
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        for first in range(0, len(X), BLOCK):
            rows = slice(first, min(first + BLOCK, len(X)))
            D, H = prices(clusters, X[rows], U[rows], y[rows], problem)
            Q = weight[rows, None] * (D + H)
            at, done = 0, len(Q)
            while at < done:
                best = np.argmin(Q, axis=1)
                least = Q[np.arange(done), best]
                opens = np.flatnonzero(least[at:] > own[rows][at:] * (1 + 1e-12))
                full = len(clusters.mu) >= problem.max_clusters
                overflow |= bool(full and len(opens))
                stop = done if full or not len(opens) else at + int(opens[0])
                for i in range(at, stop):
                    k = z[first + i]
                    if best[i] != k and least[i] < Q[i, k]:
                        base += float(least[i] - Q[i, k])
                        z[first + i] = best[i]
                        record("assignment", base)
                if stop < done:
                    i = first + stop
                    base += float(own[i] - problem.penalty - Q[stop, z[i]])
                    z[i] = len(clusters.mu)
                    mu = means(problem.likelihood, np.ones(1), X[i : i + 1])
                    fresh = ClusterSlots(mu, singles[i : i + 1], np.ones(1, bool))
                    clusters = ClusterSlots(*(np.concatenate(pair) for pair in zip(clusters, fresh, strict=True)))
                    record("creation", base)
                    D, H = prices(fresh, X[rows], U[rows], y[rows], problem)
                    Q = np.column_stack([Q, weight[rows, None] * (D + H)])
                at = stop + 1
        occupied = np.bincount(z, weight, minlength=len(clusters.mu)) > 0
        if not np.all(occupied):
            base -= float(np.sum(shares()[~occupied]))
            z = np.maximum(np.cumsum(occupied) - 1, 0)[z]
            clusters = ClusterSlots(*(x[occupied] for x in clusters))
            record("removal", base)

        hot = weight * (z == np.arange(len(clusters.mu))[:, None])
        mu = means(problem.likelihood, hot.sum(axis=1), hot @ X)
        base -= s * mean_gain(problem.likelihood, hot.sum(axis=1), hot @ X, mu, clusters.mu)
        clusters = clusters._replace(mu=mu)
        record("means", base)
        for k in range(len(mu)):
            members = np.flatnonzero((z == k) & (weight > 0))
            part = U[members], y[members], weight[members], problem
            for j in range(clusters.eta.shape[1]):
                eta, fall, _ = em(clusters.eta[k], [j], *part, 0.5 ** np.arange(6))
                base -= fall
                clusters = clusters._replace(eta=np.concatenate([clusters.eta[:k], eta[None], clusters.eta[k + 1 :]]))
                record("classifiers", base)
        objective = base + problem.penalty * len(mu)
        converged = bool(previous - objective <= max(tol, ROUNDING) * objective)
        if converged:
            break
        previous = objective
    Q = np.add(*prices(clusters, X, U, y, problem))
    z = np.where(weight > 0, z, np.argmin(Q, axis=1))  # data without weight have not moved
    dearest = float(np.max(weight * Q[np.arange(len(X)), z]))
    return Outcome(clusters, z, trace, n_iter, converged, overflow, dearest)


def em(
    eta: Array, scores: Iterable[int], U: Array, y: Array, weight: Array, problem: ClusterProblem, lengths: Array
) -> tuple[Array, float, float]:
    """An EM step (:func:`.svm.em_step`) of some scores of a classifier (S, p), the fall of ``J``, and its length.

    :param lengths: the first at which ``J`` does not rise counts.
    """
    _, c, ell, nu, floor = problem.hyper
    cost, step = c * weight, np.zeros_like(eta)
    values = U @ eta.T
    for j in scores:
        sgn, tau = (y, ell) if problem.num_classes == 2 else class_rows(values, y, j, ell)
        inverse = cost / np.maximum(np.abs(tau - sgn * values[:, j]), floor)
        P = (U.T * inverse) @ U
        P.flat[:: len(P) + 1] += nu**-2.0
        step[j] = dposv(P, U.T @ (sgn * (cost + inverse * tau)))[1] - eta[j]
    ahead = U @ step.T

    def J(t: float) -> float:
        loss = score_losses((values + t * ahead)[:, None], y, problem)[:, 0]
        return 2 * float(cost @ loss) + float(np.sum((eta + t * step) ** 2)) / (2 * nu**2)

    now = J(0.0)
    for t in lengths:
        fall = now - J(t)
        if fall >= 0:
            return eta + t * step, fall, t
    return eta, 0.0, t
