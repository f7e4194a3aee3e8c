r"""The infinite SVM [1] by truncated mean field: a Dirichlet process mixture of large-margin kernel machines.

The family is ``q(z, eta, gamma, v) = prod_d q(z_d) prod_t q(eta_t) q(gamma_t) q(v_t)`` with ``T`` components, where

    q(z_d) = Mult(phi_d),   q(v_t) = Beta(nu_t1, nu_t2), v_T = 1,   q(gamma_t) conjugate,   q(eta_t) = N(mu_t, s^2 I)

(the covariance of ``eta_t`` stays the prior's). Problem (8) of the paper, with its bound on the first divergence, is

.. math:: J = \sum_t \frac{|\mu_t|^2}{2 s^2} + C_1 R
     + (1 + C_2) \Big[\sum_{dt} \phi_{dt} (\log \phi_{dt} - E \log \pi_t) + \sum_t KL(v_t)\Big]
     + C_2 \Big[\sum_t KL(\gamma_t) - \sum_{dt} \phi_{dt} E \log p(x_d | \gamma_t)\Big].

With ``a_dt(y) = ell(y_d, y) + mu_t . f(y, x_d)`` the margin's risk is one of

- **joint** (problem 10): ``R = sum_d [max_y sum_t phi_dt a_dt(y) - sum_t phi_dt a_dt(y_d)]``, the loss of the weighted
  vote; a single support vector machine on the inputs ``phi_d ⊗ x_d``, whose kernel is ``(phi_d . phi_e) k(x_d, x_e)``;
- **relaxed** (section 3.1): ``R = sum_dt phi_dt [max_y a_dt(y) - a_dt(y_d)]``, which bounds it; a support vector
  machine for each component, with the costs ``C_1 phi_dt``.

Every block has an update that does not raise ``J`` (the paper's letters; its slips mended here are named):

- sticks: ``nu_t1 = 1 + sum_d phi_dt``, ``nu_t2 = alpha + sum_d sum_{i > t} phi_di``;
- components: the prior's ``(k m, k)`` plus ``sum_d phi_dt (x_d, size(x_d))``;
- classifiers: the dual (10), in which ``omega >= 0`` and ``sum_y omega_dy <= C_1``, or (12), whose margin reads
  ``ell(y) - mu_t . f_delta(y)`` (printed with a plus in the bound above it);
- assignments (11): ``phi_dt`` is proportional to the exponential of
  ``E log v_t + sum_{i < t} E log(1 - v_i) + rho E log p(x_d | gamma_t) - (1 - rho) m_dt``
  with ``rho = C_2/(1 + C_2)`` and the sum over ``i < t`` (printed without end). The margin's price ``m_dt`` is ``C_1``
  times the loss of expert ``t`` if relaxed. If joint it is ``-sum_y omega_dy mu_t . f_delta(y)``, where ``omega`` must
  be the multipliers *at the new* ``phi``: those of the classifiers' dual may raise ``J``.

References:

1. *Infinite SVM: a Dirichlet process mixture of large-margin kernel machines*, J. Zhu, N. Chen and E. P. Xing,
   ICML (2011)
2. *Variational inference for Dirichlet process mixtures*, D. Blei and M. Jordan, Bayesian Analysis (2006)
3. *Accelerated variational Dirichlet process mixtures*, K. Kurihara, M. Welling and N. Vlassis, NIPS (2006):
   components are kept in the order of their mass
"""

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

import jax.scipy.special
import numpy as np
import scipy.special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ...models.families import family
from ..duality import Solution, crammer_singer
from ..duality.problem import compiled
from ..limits.svm import check_number

__all__ = ["InfiniteSVM"]

Array = np.ndarray

DISCARD = 1e-10  # data with less responsibility do not train a component
STARTS = (1, 2, 3, 5, 8, 13, 21, 34)  # components of the k-means that fits start from
ROUGH_ITER, ROUGH_TOL = 8, 1e-2  # of the fits from all starts, before the best goes on
SUPPORT = 1e-3  # of C_1: the least multiplier of a support vector


# ----- The objective, for NumPy and, to be differentiated, for JAX


class Components(NamedTuple):
    """``q(v)`` and ``q(gamma)``."""

    nu: Array  # (T-1, 2)
    tau: Array  # (T, d)
    held: Array  # (T,), the prior's k and the data


class Hyper(NamedTuple):
    """The numbers of a fit."""

    C1: float
    C2: float
    concentration: float
    variance: float
    tau: Array  # (d,), k m
    held: float  # k
    likelihood: str


def special_of(x: Any) -> Any:
    """The special functions for an array of NumPy or of JAX."""
    return scipy.special if isinstance(x, np.ndarray | np.generic | float) else jax.scipy.special


def expectations(likelihood: str, tau: Array, count: Array, variance: float) -> tuple[Array, Array, Array]:
    """``E theta`` (..., d), ``E psi`` (...) and the log normaliser (...) of a conjugate law, see ``models.families``.

    The first two are the derivatives of the third by ``tau`` and, with the other sign, by ``count``.
    """
    s = special_of(tau)
    xp = tau.__array_namespace__()
    c = xp.asarray(count)[..., None]
    if likelihood == "gaussian":
        d = tau.shape[-1]
        square = xp.sum((tau / c) ** 2, axis=-1) / (2 * variance)
        return tau / (variance * c), square + d / (2 * count), square * count - d / 2 * xp.log(count)
    if likelihood == "bernoulli":
        psi = s.digamma(c) - s.digamma(c - tau)
        log_normaliser = s.gammaln(tau) + s.gammaln(c - tau) - s.gammaln(c)
        return s.digamma(tau) - s.digamma(c - tau), xp.sum(psi, axis=-1), xp.sum(log_normaliser, axis=-1)
    if likelihood == "poisson":
        log_normaliser = xp.sum(s.gammaln(tau) - tau * xp.log(c), axis=-1)
        return s.digamma(tau) - xp.log(c), xp.sum(tau / c, axis=-1), log_normaliser
    total = xp.sum(tau, axis=-1)
    log_normaliser = xp.sum(s.gammaln(tau), axis=-1) - s.gammaln(total)
    return s.digamma(tau) - s.digamma(total)[..., None], 0 * total, log_normaliser


def row_constants(likelihood: str, X: Array, variance: float) -> tuple[Array, Array]:
    """``size(x)`` and ``h(x)`` of each row, (n,), see ``models.families``."""
    n, d = X.shape
    if likelihood == "gaussian":
        h = -np.einsum("nd,nd->n", X, X) / (2 * variance) - d / 2 * np.log(2 * np.pi * variance)
        return np.ones(n), h
    if likelihood == "bernoulli":
        return np.ones(n), np.zeros(n)
    log_factorials = np.sum(scipy.special.gammaln(X + 1), axis=1)
    if likelihood == "poisson":
        return np.ones(n), -log_factorials
    size = np.sum(X, axis=1)
    return size, scipy.special.gammaln(size + 1) - log_factorials


def log_sticks(nu: Array) -> Array:
    """``E log pi_t = E log v_t + sum_{i < t} E log(1 - v_i)``, (T,), with ``v_T = 1``."""
    s, xp = special_of(nu), nu.__array_namespace__()
    total = s.digamma(xp.sum(nu, axis=1))
    zero = xp.zeros(1)
    log_v = xp.concatenate([s.digamma(nu[:, 0]) - total, zero])
    return log_v + xp.concatenate([zero, xp.cumsum(s.digamma(nu[:, 1]) - total)])


def log_likelihoods(q: Components, X: Array, hyper: Hyper) -> Array:
    """``E log p(x_d | gamma_t)``, (n, T)."""
    theta, psi, _ = expectations(hyper.likelihood, q.tau, q.held, hyper.variance)
    size, h = row_constants(hyper.likelihood, X, hyper.variance)
    return X @ theta.T - size[:, None] * psi + h[:, None]


def mixture_objective(phi: Array, q: Components, X: Array, weight: Array, hyper: Hyper) -> Any:
    """``J`` without the classifiers' part: the terms in ``1 + C_2`` and in ``C_2``."""
    s, xp = special_of(phi), phi.__array_namespace__()
    a, b = q.nu[:, 0], q.nu[:, 1]
    alpha = hyper.concentration
    sticks = s.digamma(a) * (a - 1) + s.digamma(b) * (b - alpha) - s.digamma(a + b) * (a + b - 1 - alpha)
    sticks = sticks + s.gammaln(a + b) - s.gammaln(a) - s.gammaln(b) - np.log(alpha)
    theta, psi, normaliser = expectations(hyper.likelihood, q.tau, q.held, hyper.variance)
    prior = expectations(hyper.likelihood, hyper.tau, np.asarray(hyper.held, float), hyper.variance)[2]
    gammas = xp.sum(theta * (q.tau - hyper.tau), axis=1) - psi * (q.held - hyper.held) - normaliser + prior
    z = weight @ (s.xlogy(phi, phi) - phi * log_sticks(q.nu))
    x = weight @ (phi * log_likelihoods(q, X, hyper))
    return (1 + hyper.C2) * (xp.sum(z) + xp.sum(sticks)) + hyper.C2 * (xp.sum(gammas) - xp.sum(x))


def margins(scores: Array, y: Array, ell: Array) -> Array:
    """``a(y) - a(y_d)`` (..., n, L) from the scores (..., n, L) of labels ``y`` (n,)."""
    return ell[y] + scores - scores[..., np.arange(len(y)), y][..., None]


def expert_losses(scores: Array, y: Array, ell: Array) -> Array:
    """(n, T) losses of every expert on every datum, from scores (T, n, L)."""
    return margins(scores, y, ell).max(axis=-1).T


def risk(coupling: str, phi: Array, scores: Array, y: Array, ell: Array) -> Array:
    """(n,) each datum's share of ``R``, from scores (T, n, L)."""
    if coupling == "relaxed":
        return (phi * expert_losses(scores, y, ell)).sum(axis=1)
    xp = phi.__array_namespace__()
    return xp.einsum("nt,tnl->nl", phi, margins(scores, y, ell)).max(axis=1)


# ----- The updates


def update_sticks(phi: Array, weight: Array, concentration: float) -> Array:
    """``nu`` (T-1, 2)."""
    mass = weight @ phi
    return np.column_stack([1 + mass[:-1], concentration + np.cumsum(mass[::-1])[::-1][1:]])


def update_components(phi: Array, X: Array, weight: Array, hyper: Hyper) -> tuple[Array, Array]:
    """``tau`` (T, d) and ``count`` (T,)."""
    size, _ = row_constants(hyper.likelihood, X, hyper.variance)
    held = weight[:, None] * phi
    return hyper.tau + held.T @ X, hyper.held + held.T @ size


def prior_logits(q: Components, X: Array, hyper: Hyper) -> Array:
    """(11) without its margin: ``E log pi_t + rho E log p(x_d | gamma_t)``, (n, T)."""
    return log_sticks(q.nu) + hyper.C2 / (1 + hyper.C2) * log_likelihoods(q, X, hyper)


def softmax(logits: Array) -> Array:
    """Over the last axis."""
    return scipy.special.softmax(logits, axis=-1)


@compiled
def joint_assignments(logits, G, scale, cost, tol, phi):
    """(11) with the weighted vote's margins ``G`` (n, T, L), into ``phi`` (n, T).

    For each datum the minimum of ``scale sum_t phi_t (log phi_t - logit_t) + cost max_y sum_t phi_t G_ty`` over the
    simplex, by its dual: ``omega`` moves from the label with the least margin to the one with the largest, as far
    as the two meet, until ``sum_y omega_y (max margin - margin_y)`` is ``tol`` or less.
    """
    n, T, L = G.shape
    omega, margin, tilt, trial = np.empty(L), np.empty(L), np.empty(T), np.empty(T)
    for d in range(n):
        omega[:] = cost / L
        tilt[:] = 0.0
        for t in range(T):
            for y in range(L):
                tilt[t] -= omega[y] * G[d, t, y] / scale
        for _ in range(1000):
            top = np.max(logits[d] + tilt)
            trial[:] = np.exp(logits[d] + tilt - top)
            trial /= np.sum(trial)
            margin[:] = 0.0
            for t in range(T):
                for y in range(L):
                    margin[y] += trial[t] * G[d, t, y]
            up = np.argmax(margin)
            gap, down = 0.0, -1
            for y in range(L):
                gap += omega[y] * (margin[up] - margin[y])
                if omega[y] > 0 and (down < 0 or margin[y] < margin[down]):
                    down = y
            if gap <= tol:
                break
            low, high = 0.0, omega[down]
            move = high
            for step in range(60):
                top = -np.inf
                for t in range(T):
                    trial[t] = logits[d, t] + tilt[t] - move * (G[d, t, up] - G[d, t, down]) / scale
                    top = max(top, trial[t])
                total, slope = 0.0, 0.0
                for t in range(T):
                    e = np.exp(trial[t] - top)
                    total += e
                    slope += e * (G[d, t, up] - G[d, t, down])
                if slope > 0:
                    low = move
                    if step == 0:
                        break
                else:
                    high = move
                move = (low + high) / 2
                if high - low <= 1e-16 * cost:
                    break
            omega[up] += move
            omega[down] = 0.0 if move == omega[down] else omega[down] - move
            for t in range(T):
                tilt[t] -= move * (G[d, t, up] - G[d, t, down]) / scale
        top = np.max(logits[d] + tilt)
        trial[:] = np.exp(logits[d] + tilt - top)
        phi[d] = trial / np.sum(trial)


# ----- The classifiers


class Inputs(NamedTuple):
    """What the experts see, scaled so that their prior is standard: rows, or a Gram matrix."""

    values: Array  # (n, p) or (n, n)
    precomputed: bool

    def scores(self, coef: Array) -> Array:
        """(n, L) of the classifier ``sum_d coef_d x_d'``."""
        return self.values @ coef if self.precomputed else self.values @ (coef.T @ self.values).T


class Fit:
    """A descent from given responsibilities.

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
        hyper: Hyper,
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

    def run(self, max_iter: int, tol: float, dual_tol: float) -> "Fit":
        """Descend until a sweep of all updates lowers ``J`` by ``tol`` or less for a datum of weight 1."""
        precision = max(dual_tol, 1e-3)  # of the duals, while much else is in motion
        self.converged = False
        while self.n_iter < max_iter and not self.converged:
            before = self.objective
            self._classify(precision)
            self._assign()
            self._sticks()
            self._components()
            self._order()
            self.n_iter += 1
            if before - self.objective <= tol * np.sum(self.weight):
                self.converged = precision <= dual_tol
                precision = max(dual_tol, precision / 1000)
        return self

    def _margin(self) -> float:
        R = self.weight @ risk(self.coupling, self.phi, self.scores, self.y, self.ell)
        return float(np.sum(self.norms) / 2 + self.hyper.C1 * R)

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
            self.omega_share, self.gaps = self.omega_share[order], self.gaps[order]
            self._record("order")

    def _assign(self) -> None:
        hyper = self.hyper
        logits = prior_logits(self.q, self.X, hyper)
        if self.coupling == "relaxed":
            losses = expert_losses(self.scores, self.y, self.ell)
            self.phi = softmax(logits - hyper.C1 / (1 + hyper.C2) * losses)
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
        kept = np.flatnonzero(self.phi[:, t] * (self.weight > 0) >= DISCARD)
        if not len(kept) and not self.norms[t]:
            return
        found = self._solve(self._part(kept), kept, cost[kept], self.omega_share[t][kept], tol)
        self.omega_share[t] = 0.0
        self.omega_share[t][kept] = found.alpha / np.maximum(cost[kept], 1e-300)[:, None]
        self.gaps[t] = found.gap
        coef = np.zeros_like(self.coef[t])
        coef[kept] = found.alpha
        scores = self.inputs.scores(coef)
        norm = float(np.sum(coef * scores))
        losses = [expert_losses(s[None], self.y, self.ell)[:, 0] for s in (scores, self.scores[t])]
        new, old = norm / 2 + cost @ losses[0], self.norms[t] / 2 + cost @ losses[1]
        if new < old:
            self.coef[t], self.scores[t], self.norms[t] = coef, scores, norm
            self._record("classifier")

    def _classify_jointly(self, tol: float) -> None:
        """Problem (10): one machine on ``phi_d ⊗ x_d``, where expert ``t`` has the multipliers ``phi_dt alpha_d``."""
        phi, values = self.phi, self.inputs.values
        kept = np.flatnonzero(self.weight > 0)
        used = np.flatnonzero(np.max(phi, axis=0) >= DISCARD)
        P = phi[np.ix_(kept, used)]
        if self.inputs.precomputed or len(used) * values.shape[1] > len(kept):
            K = values[np.ix_(kept, kept)] if self.inputs.precomputed else values[kept] @ values[kept].T
            part = Inputs((P @ P.T) * K, True)
        else:
            part = Inputs((P[:, :, None] * values[kept][:, None, :]).reshape(len(kept), -1), False)
        cost = self.hyper.C1 * self.weight
        found = self._solve(part, kept, cost[kept], self.omega_share[0][kept], tol)
        self.omega_share[0] = 0.0
        self.omega_share[0][kept] = found.alpha / cost[kept][:, None]
        self.gaps[:] = found.gap
        alpha = np.zeros_like(self.coef[0])
        alpha[kept] = found.alpha
        coef = phi.T[:, :, None] * alpha
        scores = np.stack([self.inputs.scores(c) for c in coef])
        norms = np.einsum("tnl,tnl->t", coef, scores)
        before = self.coef, self.scores, self.norms
        old = self._margin()
        self.coef, self.scores, self.norms = coef, scores, norms
        if self._margin() < old:
            self._record("classifiers")
        else:
            self.coef, self.scores, self.norms = before

    def _part(self, kept: Array) -> Inputs:
        values = self.inputs.values[kept]
        return Inputs(values[:, kept] if self.inputs.precomputed else values, self.inputs.precomputed)

    def _solve(self, part: Inputs, kept: Array, cost: Array, share: Array, tol: float) -> Solution:
        return crammer_singer(
            part.values,
            self.y[kept],
            cost,
            num_classes=len(self.ell),
            ell=self.ell,
            precomputed=part.precomputed,
            alpha=share * cost[:, None],
            tol=tol,
        )


# ----- The estimator


class InfiniteSVM(ClassifierMixin, BaseEstimator):
    """A Dirichlet process mixture of support vector machines, linear or with kernels, by mean field.

    Every component has a law of the inputs and a classifier with the scores ``s_t(y) = mu_t . f(y, x)``; the label is
    that of the weighted vote ``F(y, x) = sum_t phi_t(x) s_t(y)``. See the module's page for the objective. Two classes
    have a single weight vector with the hinge ``max(0, ell - y f)``, like the program ``isvm``; the paper's pair of
    vectors is the same model with ``prior_scale`` larger by the root of 2.

    **Two readings of a margin.** This estimator asks a margin of the *averaged* classifier, ``E_q[F]``, as does maximum
    entropy discrimination; the program ``isvm`` (its kernels and :class:`.M2DPM`) takes the hinge as a
    pseudo-likelihood, ``exp(-2 c loss)``, which is the *expected* loss of a Gibbs classifier, one that draws its
    component and its weights. The hinge is convex, so by Jensen's inequality, datum by datum,

        max_y (ell(y) + E_q[F(y) - F(y_d)])                       the vote's: coupling="joint"
          <= sum_t phi_dt max_y (ell(y) + mu_t . f(y) - mu_t . f(y_d))      an expert drawn: coupling="relaxed"
          <= E_q[max_y (ell(y) + F(y; z, eta) - F(y_d; z, eta))]            expert and weights drawn: the program's.

    The first has a dual of support vector machines, hence kernels; the last has a density, hence samplers. The
    program's ``cost`` ``c`` is ``C1 / 2``.

    :param truncation: ``T``, the most components.
    :param C1: the weight of the margin.
    :param C2: the weight of the inputs' mixture.
    :param kernel: "linear"; "rbf", ``exp(-gamma |x - x'|^2)``; a function ``kernel(X, Y)`` that returns the (n, m) Gram
        matrix; or "precomputed", for which ``X`` is the Gram matrix, and the inputs' mixture is Gaussian in the
        principal coordinates of the feature space (for ``X X'`` the model is that of the linear kernel).
    :param gamma: the width of "rbf", or "scale": one over the features' number times their variance.
    :param coupling: "relaxed", a machine for each component (section 3.1 of the paper); or "joint", one for the vote.
    :param likelihood: the law of the inputs: "gaussian", "bernoulli" (0 or 1), "poisson" or "multinomial" (counts).
    :param concentration: ``alpha`` of the Dirichlet process.
    :param ell: the margin, for every wrong label; or (L, L), the price ``ell[y, k]`` of taking ``y`` for ``k``, with
        labels in the order of ``classes_``.
    :param prior_scale: the prior standard deviation of each weight.
    :param fit_intercept: append a constant 1 to the classifiers' input, with the prior of the other weights; for
        kernels, add 1.
    :param variance: of the Gaussian likelihood, the same in every direction and component.
    :param prior_mean: ``m``, mean of the components' prior, a number or (d,); by default 0 (gaussian), 1/2
        (bernoulli), 1 (poisson), 1/d (multinomial).
    :param prior_count: ``k``, how many earlier observations the prior is worth; by default 0.01, 2, 1 and d. The
        Gaussian's prior is ``N(m, variance/k)``: the paper's standard normal base is ``variance=1, prior_count=1``.
    :param max_iter: the most sweeps over all updates.
    :param tol: stop when a sweep lowers the objective by ``tol`` or less for each datum.
    :param dual_tol: the relative duality gap of the classifiers at the end.
    :param n_init: k-means starts for each of several numbers of components; the lowest objective counts.
    :param mass_threshold: the least share of the data of a component that counts.
    :param random_state: seed of the starts.

    Attributes: ``classes_``; ``objective_``, the objective after every single update, never increasing;
    ``num_components_``, those with mass above the threshold; ``responsibilities_`` (n, T), of the training data, given
    their labels (except where the weight is 0); ``mass_`` (T,), their sums, as a rule decreasing; ``means_`` (T, d), of
    the components (in the principal coordinates if precomputed); ``support_``, a list with the support vectors' indices
    for each component; ``coef_`` and ``intercept_``, for the linear kernel, (T, d) and (T,), or (T, L, d) and (T, L)
    for more than two classes; ``dual_gap_``, the largest relative gap of the last classifiers; ``n_iter_``;
    ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.inference.mean_field import InfiniteSVM
    >>> X = np.array([[-1.0], [-0.9], [1.0], [0.9], [9.0], [9.1], [11.0], [10.9]])
    >>> y = np.array(["a", "a", "b", "b", "b", "b", "a", "a"])
    >>> model = InfiniteSVM(C1=10.0, prior_scale=10.0, random_state=0).fit(X, y)
    >>> model.num_components_
    2
    >>> model.predict([[-0.5], [9.4]]).tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        truncation=20,
        C1=1.0,
        C2=64.0,
        kernel="linear",
        gamma="scale",
        coupling="relaxed",
        likelihood="gaussian",
        concentration=1.0,
        ell=1.0,
        prior_scale=1.0,
        fit_intercept=True,
        variance=1.0,
        prior_mean=None,
        prior_count=None,
        max_iter=300,
        tol=1e-4,
        dual_tol=1e-6,
        n_init=1,
        mass_threshold=0.01,
        random_state=None,
    ):
        self.truncation = truncation
        self.C1 = C1
        self.C2 = C2
        self.kernel = kernel
        self.gamma = gamma
        self.coupling = coupling
        self.likelihood = likelihood
        self.concentration = concentration
        self.ell = ell
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.variance = variance
        self.prior_mean = prior_mean
        self.prior_count = prior_count
        self.max_iter = max_iter
        self.tol = tol
        self.dual_tol = dual_tol
        self.n_init = n_init
        self.mass_threshold = mass_threshold
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.likelihood != "gaussian"
        return tags

    def fit(self, X, y, sample_weight=None):
        """Fit to ``X`` (n, d), or a Gram matrix (n, n), and labels ``y`` (n,).

        :param sample_weight: (n,), how many data each row counts for.
        """
        self._check()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        if self.kernel == "precomputed" and len(X) != X.shape[1]:
            raise ValueError(f"X has shape {X.shape}: with kernel='precomputed' it must be square, a Gram matrix.")
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if np.min(weight) < 0 or np.max(weight) == 0:
            raise ValueError(
                f"sample_weight ranges from {np.min(weight):g} to {np.max(weight):g}: it must not be negative, "
                "nor zero throughout; give weight 0 to the data to ignore and a positive one to the others."
            )
        encoder = LabelEncoder().fit(y)
        self.classes_, y = encoder.classes_, encoder.transform(y)
        present = np.unique(y[weight > 0])
        if len(present) < 2:
            raise ValueError(
                f"y has one class with positive weight, {self.classes_[present].tolist()[0]!r}: pass at least two "
                "classes."
            )
        ell = self._ell()
        rows = np.flatnonzero(weight > 0)
        first, inverse = rows, np.arange(len(rows))
        if self.kernel != "precomputed":  # data that coincide are one datum of more weight
            _, first, inverse = np.unique(
                np.column_stack([X[rows], y[rows]]), axis=0, return_index=True, return_inverse=True
            )
            first = rows[first]
        everything = X
        X, y, weight = X[first], y[first], np.bincount(inverse, weight[rows])
        self._remember(X, weight, first)
        inputs = Inputs(self._inputs(X), self.kernel != "linear")
        Z = self._coordinates(X)
        hyper = self._hyper(Z)
        observe = getattr(self, "_private", {}).get("observe")
        best: Fit | None = None
        for phi in self._starts(Z, weight):
            fit = Fit(Z, inputs, y, weight, ell, self.coupling, hyper, phi, observe)
            fit.run(min(ROUGH_ITER, self.max_iter), max(ROUGH_TOL, self.tol), max(1e-3, self.dual_tol))
            if best is None or fit.objective < best.objective:
                best = fit
        assert best is not None
        self._keep(best.run(self.max_iter, self.tol, self.dual_tol))
        self.responsibilities_ = self._responsibilities(everything)
        self.responsibilities_[rows] = best.phi[inverse]
        self.support_ = [rows[held[inverse]] for held in self._support(best)]
        if not best.converged:
            warnings.warn(
                f"InfiniteSVM reached max_iter={self.max_iter} before the objective settled; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def responsibilities(self, X):
        """``phi`` (n, T) of new inputs, whose labels are not known: (11) without the margin."""
        check_is_fitted(self)
        return self._responsibilities(validate_data(self, X, reset=False, dtype=np.float64))

    def decision_function(self, X):
        """The weighted vote (5): (n,), positive for ``classes_[1]``, for two classes; (n, L) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        phi, inputs = self._responsibilities(X), self._inputs(X)
        scores = np.einsum("nt,tnl->nl", phi[:, self._used], inputs @ self._weights)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X):
        """Labels (n,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]

    def _check(self) -> None:
        for name in ("C1", "C2", "concentration", "prior_scale", "variance", "dual_tol"):
            check_number(name, getattr(self, name), lambda value: value > 0, "a positive number")
        for name in ("truncation", "max_iter", "n_init"):
            check_number(name, getattr(self, name), lambda value: value >= 1, "an integer of at least 1", Integral)
        for name in ("tol", "mass_threshold"):
            check_number(name, getattr(self, name), lambda value: value >= 0, "a number of at least 0")
        if self.prior_count is not None:
            check_number("prior_count", self.prior_count, lambda value: value > 0, "a positive number or None")
        if self.gamma != "scale":
            check_number("gamma", self.gamma, lambda value: value > 0, "a positive number or 'scale'")
        if self.coupling not in ("relaxed", "joint"):
            raise ValueError(f"coupling={self.coupling!r}: coupling must be 'relaxed' or 'joint'.")
        if not callable(self.kernel) and self.kernel not in ("linear", "rbf", "precomputed"):
            raise ValueError(
                f"kernel={self.kernel!r}: kernel must be 'linear', 'rbf', 'precomputed' or a function of two arrays."
            )
        family(self.likelihood)
        if self.kernel == "precomputed" and self.likelihood != "gaussian":
            raise ValueError(
                f"likelihood={self.likelihood!r}: with kernel='precomputed' it must be 'gaussian'; pass the inputs and "
                "a function as the kernel instead."
            )

    def _ell(self) -> Array:
        L = len(self.classes_)
        ell = np.asarray(self.ell, float)
        if ell.ndim == 0:
            check_number("ell", self.ell, lambda value: value > 0, "a positive number")
            return ell * (1 - np.eye(L))
        if ell.shape != (L, L) or np.any(np.diag(ell)) or not np.all(ell >= 0):
            raise ValueError(
                f"ell={self.ell!r}: ell must be a positive number, or a matrix ({L}, {L}) with a zero diagonal and "
                "nothing negative; pass ell[y, k], the price of taking y for k."
            )
        return ell

    def _remember(self, X: Array, weight: Array, kept: Array) -> None:
        """What is needed to see new inputs as the classifiers and the mixture see them."""
        self._rows, d = kept, X.shape[1]
        if self.kernel == "precomputed":
            K = X[:, kept]
            values, vectors = np.linalg.eigh((K + K.T) / 2)
            positive = values > 1e-10 * max(values[-1], 1e-300)
            if not np.any(positive):
                raise ValueError("X has no positive eigenvalue: with kernel='precomputed' it must be a Gram matrix.")
            self._axes = vectors[:, positive] / np.sqrt(values[positive])
        elif self.kernel != "linear":
            self._X = X
        mean = np.average(X, axis=0, weights=weight).mean()
        spread = np.average((X - mean) ** 2, axis=0, weights=weight).mean()
        self._gamma = self.gamma if self.gamma != "scale" else 1 / (d * spread) if spread > 0 else 1.0

    def _inputs(self, X: Array) -> Array:
        """The classifiers' rows, or the Gram matrix with the training data, scaled to a standard prior."""
        # Two classes share one vector: a pair of them, w and -w, has twice its square.
        scale = self.prior_scale**2 * (0.5 if len(self.classes_) == 2 else 1.0)
        if self.kernel == "linear":
            return np.sqrt(scale) * (np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X)
        if self.kernel == "rbf":
            K = rbf_kernel(X, self._X, gamma=self._gamma)
        else:
            K = X[:, self._rows] if self.kernel == "precomputed" else np.asarray(self.kernel(X, self._X), float)
        size = len(self._rows)
        if K.shape != (len(X), size) or not np.all(np.isfinite(K)):
            raise ValueError(
                f"kernel returned shape {K.shape}, or entries that are not finite: it must return the Gram matrix of "
                f"its arguments, ({len(X)}, {size})."
            )
        return scale * (K + bool(self.fit_intercept))

    def _coordinates(self, X: Array) -> Array:
        """The mixture's data."""
        return X[:, self._rows] @ self._axes if self.kernel == "precomputed" else X

    def _hyper(self, Z: Array) -> Hyper:
        component = family(self.likelihood)
        component.check(self.likelihood, Z)
        default_mean, default_count = component.default_prior(Z.shape[1])
        mean = np.asarray(default_mean if self.prior_mean is None else self.prior_mean, float)
        count = float(default_count if self.prior_count is None else self.prior_count)
        if mean.shape not in ((), (Z.shape[1],)) or not np.all(component.legal_mean(mean)):
            raise ValueError(
                f"prior_mean={self.prior_mean!r}: prior_mean must be a number, or ({Z.shape[1]},) of them, inside the "
                f"support of a mean of {component.wanted}."
            )
        tau = count * np.broadcast_to(mean, Z.shape[1:])
        return Hyper(self.C1, self.C2, self.concentration, self.variance, tau, count, self.likelihood)

    def _starts(self, Z: Array, weight: Array):
        """Responsibilities (n, T) by k-means, for a few numbers of components."""
        rng = check_random_state(self.random_state)
        distinct = len(np.unique(Z, axis=0))
        most = min(self.truncation, distinct)
        for K in sorted({*(K for K in STARTS if most >= K), most}):
            for _ in range(self.n_init if K > 1 else 1):
                labels = np.zeros(len(Z), int)
                if K > 1:
                    with warnings.catch_warnings():  # data that coincide up to rounding
                        warnings.simplefilter("ignore", ConvergenceWarning)
                        means = KMeans(K, n_init=1, random_state=rng.randint(2**31))
                        labels = means.fit(Z, sample_weight=weight).labels_
                yield np.eye(self.truncation)[labels]

    def _keep(self, fit: Fit) -> None:
        """The attributes of a fit."""
        self.objective_ = np.array(fit.trace)
        self.n_iter_ = fit.n_iter
        self.mass_ = fit.weight @ fit.phi
        self.num_components_ = int(np.sum(self.mass_ > self.mass_threshold * np.sum(fit.weight)))
        self.means_ = fit.q.tau / fit.q.held[:, None]
        self.dual_gap_ = float(np.max(fit.gaps))
        self._q, self._hyper_ = fit.q, fit.hyper
        self._used = np.flatnonzero(np.any(fit.coef, axis=(1, 2)))
        self._weights = fit.coef[self._used]
        if self.kernel == "linear":
            self._weights = np.einsum("np,tnl->tpl", fit.inputs.values, self._weights)
            T, p, L = len(fit.coef), fit.inputs.values.shape[1], len(self.classes_)
            scale = self.prior_scale * np.sqrt(0.5 if L == 2 else 1.0)
            eta = np.zeros((T, L, p))
            eta[self._used] = scale * self._weights.transpose(0, 2, 1)
            eta = eta[:, 1] - eta[:, 0] if L == 2 else eta
            self.coef_ = eta[..., :-1] if self.fit_intercept else eta
            self.intercept_ = eta[..., -1] if self.fit_intercept else np.zeros(eta.shape[:-1])

    @staticmethod
    def _support(fit: Fit) -> Array:
        """(T, n) whether a datum has a multiplier to speak of."""
        return np.max(np.abs(fit.coef), axis=2) > SUPPORT * fit.hyper.C1 * fit.weight

    def _responsibilities(self, X: Array) -> Array:
        Z = self._coordinates(X)
        family(self.likelihood).check(self.likelihood, Z)
        return softmax(prior_logits(self._q, Z, self._hyper_))
