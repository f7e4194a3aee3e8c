r"""The dual of constraints on expectations, for expectations that are known exactly or by Monte Carlo.

With ``mu = -phi`` the dual of :class:`.RegBayes` is ``D(mu) = -log Z(-mu) - g*(mu)``, where ``Z(phi)`` is the integral
of the program times ``exp(<phi, psi>)``. The first term is smooth and concave, with the gradient ``E_q[psi]`` and the
Hessian ``-Cov_q(psi)``, both under the tilted program. A step maximises the quadratic model

.. math:: <b, mu> - \tfrac12 <mu, H mu> - g^*(mu),   \quad b = E + H mu_k,

by accelerated proximal ascent [1] and goes to its maximum, shortened where the model is not to be trusted. With exact
expectations this is Newton's method with a line search on ``D``. With Monte Carlo ones the model pools the expectations
of the latter half of the steps, so that its noise falls with their number as in stochastic approximation [2].

The primal objective at the tilted program less ``D`` is ``g(E) + g*(mu) - <mu, E>``: ``Z`` cancels. This gap bounds the
divergence ``KL(q || q*)`` from the solution.

References:

1. *A fast iterative shrinkage-thresholding algorithm for linear inverse problems*, A. Beck and M. Teboulle, SIAM
   Journal on Imaging Sciences (2009); restarts: *Adaptive restart for accelerated gradient schemes*, B. O'Donoghue and
   E. Candès, Foundations of Computational Mathematics (2015)
2. *A stochastic approximation method*, H. Robbins and S. Monro, Annals of Mathematical Statistics (1951)
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..regbayes.constraints import Constraint

Array = np.ndarray

ROUNDING = 16 * np.finfo(float).eps
NUM_RESAMPLES = 100  # of the batches, for the error of the gap
STALLED = 10  # steps in which no draw meets a hard constraint while its multiplier grows
MOST_NOISE = 0.3  # standard error of a measured curvature that is still used
LARGEST_CURVATURE = 100.0  # measured, relative to the covariance


class Infeasible(ValueError):
    """No posterior meets a hard constraint."""


class Estimate(NamedTuple):
    """Moments of ``psi`` under the tilted program; exact if ``batches`` is None."""

    mean: Array  # (T,)
    cov: Array  # (T, T)
    batches: Array | None  # (B, T), means of batches of draws that are nearly independent
    log_partition: float | None  # log Z
    lowest: Callable[[Array], float]  # the least <u, psi> over the support, or over the draws

    @property
    def error(self) -> Array:
        """(T,) standard errors of the mean."""
        if self.batches is None:
            return np.zeros_like(self.mean)
        return np.std(self.batches, axis=0, ddof=1) / np.sqrt(len(self.batches))


class Step(NamedTuple):
    """One step: where it was, what it found there."""

    mu: Array
    estimate: Estimate


class Ascent(NamedTuple):
    """The end of an ascent, and its trace."""

    mu: Array
    objective: Array  # (steps,), D up to a constant where log Z is not known
    gaps: Array  # (steps,)
    errors: Array  # (steps,)
    converged: bool


class Stack:
    """Constraints on one long vector of expectations (T,)."""

    def __init__(self, constraints: Sequence[Constraint], shapes: Sequence[tuple[int, ...]]) -> None:
        self.constraints, self.shapes = tuple(constraints), tuple(shapes)
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
        self.slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.size = int(ends[-1])
        self.hard = np.concatenate([np.full(s.stop - s.start, c.hard) for c, s, _ in self._parts()])

    def _parts(self):
        return zip(self.constraints, self.slices, self.shapes, strict=True)

    def split(self, v: Array) -> dict[str, Array]:
        """By the constraints' names and in their shapes."""
        return {c.name: v[..., s].reshape(v.shape[:-1] + shape) for c, s, shape in self._parts()}

    def owner(self, index: int) -> str:
        """The name of the constraint that has the entry."""
        return next(c.name for c, s, _ in self._parts() if s.start <= index < s.stop)

    def _sum(self, method: str, *vectors: Array) -> float:
        return sum(getattr(c, method)(*(v[s].reshape(shape) for v in vectors)) for c, s, shape in self._parts())

    def _map(self, method: str, *vectors: Array) -> Array:
        parts = [getattr(c, method)(*(v[s].reshape(shape) for v in vectors)) for c, s, shape in self._parts()]
        return np.concatenate([np.ravel(part) for part in parts])

    def conjugate(self, mu: Array) -> float:
        """``g*(mu)``."""
        return self._sum("conjugate", mu)

    def gap(self, E: Array, mu: Array) -> float:
        """``g(E) + g*(mu) - <mu, E>``."""
        return self._sum("gap", E, mu)

    def measure(self, found: Estimate, mu: Array) -> tuple[float, float]:
        """The gap and its standard error, by resampling batches: the gap has kinks, where no derivative tells."""
        gap = self.gap(found.mean, mu)
        if found.batches is None:
            return gap, 0.0
        B = len(found.batches)
        weights = np.random.default_rng(0).multinomial(B, np.full(B, 1 / B), size=NUM_RESAMPLES) / B
        others = np.array([self.gap(mean, mu) for mean in weights @ found.batches])
        return gap, float(np.sqrt(np.mean((others - gap) ** 2)))

    def soft_value(self, E: Array) -> float:
        """``g(E)`` of the constraints that are not hard."""
        return sum(c.value(E[s].reshape(shape)) for c, s, shape in self._parts() if not c.hard)

    def prox(self, mu: Array, step: Array) -> Array:
        """The constraints' proximal maps, each entry with its own step."""
        return self._map("prox", mu, step)

    def start(self) -> Array:
        """The multipliers nearest to 0."""
        return self._map("project", np.zeros(self.size))

    def curvatures(self, variance: Array) -> Array:
        """Positive, and equal where a proximal map couples entries."""
        floor = max(1e-12 * float(np.max(variance)), 1e-30)
        return np.maximum(self._map("steps", variance), floor)

    def violation(self, E: Array) -> Array:
        """(T,) by how much the hard constraints are missed."""
        parts = [
            np.ravel(c.slack(E[s].reshape(h))) if c.hard else np.zeros(s.stop - s.start) for c, s, h in self._parts()
        ]
        return np.concatenate(parts)

    def solve(self, b: Array, H: Array, mu: Array, tol: float = 1e-15, max_iter: int = 50_000) -> Array:
        """The maximiser of ``<b, mu> - <mu, H mu>/2 - g*(mu)``, from ``mu``, to a gap of ``tol``.

        :raises Infeasible: if there is none: along some direction ``H`` is flat and the rest grows.
        """
        curvature = self.curvatures(np.diagonal(H))
        root = np.sqrt(curvature)
        largest = np.linalg.eigvalsh(H / root[:, None] / root)[-1]
        step = 1 / (max(largest, 1e-12) * curvature)
        previous, ahead, momentum = mu, mu, 1.0
        for iteration in range(1, max_iter + 1):
            response = H @ ahead
            new = self.prox(ahead + step * (b - response), step)
            residual = (new - ahead) / step
            if np.sum(step * residual**2) <= ROUNDING**2 * np.sum(step * (b**2 + response**2)):
                return new
            if residual @ (new - previous) < 0:  # momentum leads away from the maximum
                momentum, ahead = 1.0, new
            else:
                following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
                ahead = new + (momentum - 1) / following * (new - previous)
                momentum = following
            previous = new
            if iteration % 50 == 0:
                E = b - H @ new
                if self.gap(E, new) <= tol and np.all(self.violation(E) ** 2 <= tol * curvature):
                    return new
            if iteration % 500 == 0:
                self._refuse_flat(self.prox(new + step * E, step) - new, b, H, curvature)
        return new

    def _refuse_flat(self, u: Array, b: Array, H: Array, curvature: Array) -> None:
        """``u``, the drift of an ascent without end, proves that there is no maximum."""
        u = np.where(self.hard, u, 0.0)
        size = float(np.sum(u**2 * curvature))
        if size > 0 and u @ H @ u < 1e-10 * size and b @ u - self.recession(u) > 1e-8 * np.sqrt(size):
            self.refuse(u)

    def recession(self, u: Array) -> float:
        """``g*`` along a direction of hard constraints, where it is linear."""
        return sum(c.conjugate(u[s].reshape(shape)) for c, s, shape in self._parts() if c.hard)

    def refuse(self, u: Array) -> None:
        """Infeasible, by the direction ``u`` of multipliers."""
        names = [c.name for c, s, _ in self._parts() if c.hard and np.any(np.abs(u[s]) > 1e-6 * np.max(np.abs(u)))]
        what = "the hard constraint" if len(names) == 1 else "the hard constraints, together,"
        raise Infeasible(
            f"{what} {', '.join(map(repr, names))} cannot be met: phi grows without bound while no state that the "
            "program allows comes near; loosen the bound, or use a soft constraint"
        )


def ascend(
    estimate: Callable[[Array], Estimate],
    stack: Stack,
    *,
    tol: float,
    max_steps: int,
    update: Callable[[Array, int], float] | None = None,
    report: Callable[..., Any] = lambda **step: None,
) -> Ascent:
    """Maximise the dual.

    :param estimate: moments at ``mu``.
    :param tol: the gap, and the rise of the dual that the model promises, in nats, at which to stop.
    :param update: improves unknown parameters of the program at ``mu``, in step k; by how many nats.
    :param report: is told each step.
    """
    mu = stack.start()
    found = estimate(mu)
    exact = found.batches is None
    steps: list[Step] = []
    trace: list[tuple[float, float, float]] = []  # objective, gap, its error
    level, radius, factor = 0.0, 1.0, 1.0
    near, stalled = 0, 0  # steps in a row that would do, and that led nowhere
    for k in range(max_steps):
        gain = update(mu, k) if update else 0.0
        if exact and gain > 0:
            found = estimate(mu)
        steps.append(Step(mu, found))
        level = _level(steps, level)
        gap, error = stack.measure(found, mu)
        trace.append((-level - stack.conjugate(mu), gap, error))
        report(step=k, objective=trace[-1][0], gap=gap, error=error)
        missed = np.any(_missed(stack, found, tol))
        if not exact:
            factor, radius = _adapt(steps, factor, radius)
        stalled = stalled + 1 if missed and _beyond(stack, found, mu) else 0
        if stalled >= (1 if exact else STALLED):
            stack.refuse(_hard(stack, mu))
        b, H = _model(steps[-1:] if exact else steps[len(steps) // 2 :], factor)
        aim = stack.solve(b, H, mu, 1e-6 * tol)
        d = aim - mu
        rise = float(b @ d - (aim @ H @ aim - mu @ H @ mu) / 2) - stack.conjugate(aim) + stack.conjugate(mu)
        enough = tol * max(1.0, stack.soft_value(found.mean))
        small = rise <= enough and gain <= tol / 10  # EM's steps shrink slowly: the last is far less than what is left
        near = near + 1 if gap <= enough + 2 * error and small and not missed else 0
        converged = near >= (1 if exact else 2)
        if converged or k == max_steps - 1:
            break
        if exact:
            mu, found = _search(estimate, stack, mu, found, d, rise)
        else:
            length = np.sqrt(max(float(d @ H @ d), 1e-300))
            mu = mu + min(1.0, radius / length) * d
            found = estimate(mu)
    worst = _missed(stack, found, max(tol, 1e-6))
    if not converged and np.any(worst):
        index = int(np.argmax(worst))
        raise Infeasible(
            f"the hard constraint {stack.owner(index)!r} is missed by {worst[index]:.3g} after max_steps={max_steps} "
            "steps: it cannot be met, or only by a posterior far from the program's; loosen the bound, raise "
            "max_steps, or use a soft constraint"
        )
    objective, gaps, errors = np.array(trace).T
    return Ascent(mu, objective, gaps, errors, converged)


def _hard(stack: Stack, mu: Array) -> Array:
    return np.where(stack.hard, mu, 0.0)


def _level(steps: Sequence[Step], level: float) -> float:
    """``log Z`` at the last step; where it is not known, its rise since the first by the trapezoidal rule."""
    mu, found = steps[-1]
    if found.log_partition is not None:
        return found.log_partition
    if len(steps) == 1:
        return 0.0
    before, old = steps[-2]
    return level + float((before - mu) @ (old.mean + found.mean)) / 2


def _missed(stack: Stack, found: Estimate, tol: float) -> Array:
    """(T,) hard constraints' slacks beyond what ``tol`` nats could mend and beyond the noise."""
    allowed = np.sqrt(2 * tol * np.maximum(np.diagonal(found.cov), 0.0)) + tol + 4 * found.error
    slack = stack.violation(found.mean)
    return np.where(slack > allowed, slack, 0.0)


def _beyond(stack: Stack, found: Estimate, mu: Array) -> bool:
    """Whether every state, or every draw, lies where the hard constraints push away from."""
    u = _hard(stack, mu)
    bound = stack.recession(u)
    return bool(np.any(u)) and found.lowest(u) > bound + 1e-9 * (1 + abs(bound))


def _adapt(steps: Sequence[Step], factor: float, radius: float) -> tuple[float, float]:
    """How the last step changed ``E``, relative to what ``Cov`` promised: a larger change is a larger curvature."""
    if len(steps) < 2:
        return factor, radius
    (before, old), (mu, found) = steps[-2:]
    d = mu - before
    promised = float(d @ (old.cov + found.cov) @ d) / 2
    batches = (old.batches, found.batches)
    noise = np.sqrt(sum(np.var(x @ d, ddof=1) / len(x) for x in batches if x is not None))
    if promised <= 0 or noise > MOST_NOISE * promised:
        return factor, radius
    measured = float((old.mean - found.mean) @ d) / promised
    factor = float(np.clip(np.sqrt(factor * max(measured, 0.1)), 1.0, LARGEST_CURVATURE))
    return factor, float(radius * 2 if 0.5 < measured / factor < 2 else max(radius / 2, 0.5))


def _model(steps: Sequence[Step], factor: float) -> tuple[Array, Array]:
    """``b`` and ``H``, pooled over steps."""
    H = np.mean([found.cov for _, found in steps], axis=0)
    batches = steps[-1].estimate.batches
    if batches is not None:  # few draws leave the covariance singular
        count = len(batches) * len(steps)
        share = (len(H) - 1) / (len(H) - 1 + 5 * count)
        H = factor * ((1 - share) * H + share * np.diag(np.diagonal(H)))
    b = np.mean([found.mean + H @ mu for mu, found in steps], axis=0)
    return b, H


def _search(
    estimate: Callable[[Array], Estimate], stack: Stack, mu: Array, found: Estimate, d: Array, rise: float
) -> tuple[Array, Estimate]:
    """The first of the steps 1, 1/2, 1/4, ... that raises the dual by a tenth of what the model promises."""
    assert found.log_partition is not None
    dual = -found.log_partition - stack.conjugate(mu)
    t = 1.0
    while t > 1e-12:
        new = mu + t * d
        trial = estimate(new)
        assert trial.log_partition is not None
        rounding = 1e-12 * (1 + abs(dual))
        if (
            np.isfinite(trial.log_partition)
            and -trial.log_partition - stack.conjugate(new) >= dual + 0.1 * t * rise - rounding
        ):
            return new, trial
        t /= 2
    return mu, found
