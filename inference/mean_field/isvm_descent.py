"""The infinite SVM's coordinate descent: the updates of :mod:`.isvm_equations` and the classifiers' duals, in turn.

The duals are not left to scikit-learn: LIBSVM's intercept has no prior, which is another problem, and LIBLINEAR keeps
its multipliers to itself, without which there are no gap, no support vectors and no start for the next dual.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from ..duality.crammer_singer import solve
from ..duality.problem import DualProblem, Solution
from .isvm_equations import (
    Components,
    MixtureSettings,
    expert_losses,
    margins,
    mixture_objective,
    prior_logits,
    softmax,
    update_components,
    update_sticks,
    vote_losses,
)
from .isvm_joint import joint_assignments

Array = np.ndarray

DISCARD = 1e-10  # data with less responsibility do not train a component


class Inputs(NamedTuple):
    """What the experts see, scaled so that their prior is standard: rows, or a Gram matrix."""

    values: Array  # (n, p) or (n, n)
    precomputed: bool

    def scores(self, coef: Array) -> Array:
        """(n, L) of the classifier ``sum_d coef_d x_d'``."""
        return self.values @ coef if self.precomputed else self.values @ (coef.T @ self.values).T


class MixtureDescent:
    """A descent from given responsibilities ``phi`` (n, T) of data with positive weights.

    ``observe(update, fit)`` is called after every single update; ``trace`` has the objective then.
    """

    def __init__(
        self,
        X: Array,
        inputs: Inputs,
        y: Array,
        weight: Array,
        ell: Array,
        coupling: str,
        hyper: MixtureSettings,
        phi: Array,
        observe: Callable[[str, Any], None] | None = None,
    ):
        self.X, self.inputs, self.y, self.weight, self.ell = X, inputs, y, weight, ell
        self.coupling, self.hyper, self.observe = coupling, hyper, observe
        n, T, L = len(X), phi.shape[1], len(ell)
        self.phi = phi
        self.q = Components(update_sticks(phi, weight, hyper.concentration), *update_components(phi, X, weight, hyper))
        self.coef = np.zeros((T, n, L))  # mu_t = sum_d coef_td x_d'
        self.scores = np.zeros((T, n, L))
        self.losses = expert_losses(self.scores, y, ell)  # (n, T), kept up to date where relaxed
        self.norms = np.zeros(T)  # |mu_t|^2
        self.omega_share = np.zeros((T, n, L))  # alpha / C_i, where the next dual starts
        self.gaps = np.zeros(T)
        self.mixture = mixture_objective(phi, self.q, X, weight, hyper)
        self.trace: list[float] = []
        self.n_iter, self.converged = 0, False
        self._record("start")

    @property
    def objective(self) -> float:
        """``J``."""
        return self.trace[-1]

    def run(self, max_iter: int, tol: float, dual_tol: float) -> "MixtureDescent":
        """Descend until all updates lower ``J`` by ``tol`` or less for a datum of weight 1."""
        precision = max(dual_tol, 1e-3)  # of the duals, while much else is in motion
        self.converged = False
        while self.n_iter < max_iter and not self.converged:
            before = self.objective
            self._classify(precision)
            self.mix()
            self.n_iter += 1
            if before - self.objective <= tol * np.sum(self.weight):
                self.converged = precision <= dual_tol
                precision = max(dual_tol, precision / 1000)
        return self

    def mix(self) -> None:
        """A sweep of all updates but the classifiers'."""
        self._assign()
        self._sticks()
        self._components()
        self._order()

    def _margin(self) -> float:
        if self.coupling == "relaxed":
            losses = np.sum(self.phi * self.losses, axis=1)
        else:
            losses = vote_losses(self.phi, self.scores, self.y, self.ell)
        return float(np.sum(self.norms) / 2 + self.hyper.C1 * (self.weight @ losses))

    def _record(self, update: str) -> None:
        self.trace.append(float(self.mixture) + self._margin())
        if self.observe:
            self.observe(update, self)

    def _refresh(self) -> None:
        self.mixture = mixture_objective(self.phi, self.q, self.X, self.weight, self.hyper)

    def _sticks(self) -> None:
        self.q = self.q._replace(nu=update_sticks(self.phi, self.weight, self.hyper.concentration))
        self._refresh()
        self._record("sticks")

    def _components(self) -> None:
        tau, count = update_components(self.phi, self.X, self.weight, self.hyper)
        self.q = self.q._replace(tau=tau, held=count)
        self._refresh()
        self._record("components")

    def _order(self) -> None:
        """Components in the order of their mass, with the sticks that belong to it, if ``J`` falls."""
        order = np.argsort(-(self.weight @ self.phi), kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return
        phi = self.phi[:, order]
        nu = update_sticks(phi, self.weight, self.hyper.concentration)
        q = Components(nu, self.q.tau[order], self.q.held[order])
        mixture = mixture_objective(phi, q, self.X, self.weight, self.hyper)
        if mixture < self.mixture:
            self.phi, self.q, self.mixture = phi, q, mixture
            self.coef, self.scores, self.norms = self.coef[order], self.scores[order], self.norms[order]
            self.losses, self.omega_share, self.gaps = self.losses[:, order], self.omega_share[order], self.gaps[order]
            self._record("order")

    def _assign(self) -> None:
        hyper = self.hyper
        logits = prior_logits(self.q, self.X, hyper)
        if self.coupling == "relaxed":
            self.phi = softmax(logits - hyper.C1 / (1 + hyper.C2) * self.losses)
        else:
            G = np.ascontiguousarray(margins(self.scores, self.y, self.ell).transpose(1, 0, 2))
            phi = np.empty_like(self.phi)
            joint_assignments(logits, G, 1 + hyper.C2, hyper.C1, 1e-9, phi)

            def price(phi):
                entropy = np.sum(scipy.special.xlogy(phi, phi) - phi * logits, axis=1)
                return (1 + hyper.C2) * entropy + hyper.C1 * np.max(np.einsum("nt,ntl->nl", phi, G), axis=1)

            lower = price(phi) <= price(self.phi)
            self.phi = np.where(lower[:, None], phi, self.phi)
        self._refresh()
        self._record("assignments")

    def _classify(self, tol: float) -> None:
        if self.coupling == "relaxed":
            for t in range(self.phi.shape[1]):
                self._classify_expert(t, tol)
        else:
            self._classify_jointly(tol)

    def _classify_expert(self, t: int, tol: float) -> None:
        """Problem (12) of a component; data with next to no responsibility are discarded."""
        cost = self.hyper.C1 * self.weight * self.phi[:, t]
        kept = np.flatnonzero(self.phi[:, t] >= DISCARD)
        if not len(kept) and not self.norms[t]:
            return
        values, precomputed = self.inputs
        part = Inputs(values[np.ix_(kept, kept)] if precomputed else values[kept], precomputed)
        found = self._solve(part, self.y[kept], cost[kept], self.omega_share[t][kept], tol)
        self.omega_share[t] = 0.0
        self.omega_share[t][kept] = found.alpha / cost[kept][:, None]
        self.gaps[t] = found.gap
        coef = np.zeros_like(self.coef[t])
        coef[kept] = found.alpha
        scores = self.inputs.scores(coef)
        norm = float(np.sum(coef * scores))
        losses = expert_losses(scores[None], self.y, self.ell)[:, 0]
        if norm / 2 + cost @ losses < self.norms[t] / 2 + cost @ self.losses[:, t]:
            self.coef[t], self.scores[t], self.norms[t], self.losses[:, t] = coef, scores, norm, losses
            self._record("classifier")

    def _classify_jointly(self, tol: float) -> None:
        """Problem (10): one machine on ``phi_d ⊗ x_d``, where expert ``t`` has the multipliers ``phi_dt alpha_d``."""
        values, precomputed = self.inputs
        P = self.phi[:, np.max(self.phi, axis=0) >= DISCARD]
        if precomputed or P.shape[1] * values.shape[1] > len(P):
            part = Inputs((P @ P.T) * (values if precomputed else values @ values.T), True)
        else:
            part = Inputs((P[:, :, None] * values[:, None, :]).reshape(len(P), -1), False)
        cost = self.hyper.C1 * self.weight
        found = self._solve(part, self.y, cost, self.omega_share[0], tol)
        self.omega_share[0] = found.alpha / cost[:, None]
        self.gaps[:] = found.gap
        coef = self.phi.T[:, :, None] * found.alpha
        scores = np.stack([self.inputs.scores(c) for c in coef])
        norms = np.einsum("tnl,tnl->t", coef, scores)
        before = self.coef, self.scores, self.norms
        old = self._margin()
        self.coef, self.scores, self.norms = coef, scores, norms
        if self._margin() < old:
            self._record("classifiers")
        else:
            self.coef, self.scores, self.norms = before

    def _solve(self, part: Inputs, y: Array, cost: Array, share: Array, tol: float) -> Solution:
        """The dual from where it ended last; the arguments need no check."""
        problem = DualProblem(part.values, self.ell[y], y, cost, part.precomputed)
        return solve(problem, problem.feasible(share * cost[:, None]), tol)
