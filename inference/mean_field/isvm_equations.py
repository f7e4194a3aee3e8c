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

from typing import Any, NamedTuple

import numpy as np
import scipy.special

from .conjugate import expectations, row_constants, special_of

Array = np.ndarray


class Components(NamedTuple):
    """``q(v)`` and ``q(gamma)``."""

    nu: Array  # (T-1, 2)
    tau: Array  # (T, d)
    held: Array  # (T,), the prior's k and the data


class MixtureSettings(NamedTuple):
    """The numbers of a fit."""

    C1: float
    C2: float
    concentration: float
    variance: float
    tau: Array  # (d,), k m
    held: float  # k
    likelihood: str


# ----- The objective, for NumPy and, to be differentiated, for JAX


def log_sticks(nu: Array) -> Array:
    """``E log pi_t = E log v_t + sum_{i < t} E log(1 - v_i)``, (T,), with ``v_T = 1``."""
    s, xp = special_of(nu), nu.__array_namespace__()
    total = s.digamma(xp.sum(nu, axis=1))
    zero = xp.zeros(1)
    log_v = xp.concatenate([s.digamma(nu[:, 0]) - total, zero])
    return log_v + xp.concatenate([zero, xp.cumsum(s.digamma(nu[:, 1]) - total)])


def log_likelihoods(q: Components, X: Array, hyper: MixtureSettings) -> Array:
    """``E log p(x_d | gamma_t)``, (n, T)."""
    theta, psi, _ = expectations(hyper.likelihood, q.tau, q.held, hyper.variance)
    size, h = row_constants(hyper.likelihood, X, hyper.variance)
    return X @ theta.T - size[:, None] * psi + h[:, None]


def mixture_objective(phi: Array, q: Components, X: Array, weight: Array, hyper: MixtureSettings) -> Any:
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


def vote_losses(phi: Array, scores: Array, y: Array, ell: Array) -> Array:
    """(n,) losses of the weighted vote on every datum, from scores (T, n, L)."""
    xp = phi.__array_namespace__()
    return xp.einsum("nt,tnl->nl", phi, margins(scores, y, ell)).max(axis=1)


# ----- The updates


def update_sticks(phi: Array, weight: Array, concentration: float) -> Array:
    """``nu`` (T-1, 2)."""
    mass = weight @ phi
    return np.column_stack([1 + mass[:-1], concentration + np.cumsum(mass[::-1])[::-1][1:]])


def update_components(phi: Array, X: Array, weight: Array, hyper: MixtureSettings) -> tuple[Array, Array]:
    """``tau`` (T, d) and ``count`` (T,)."""
    size, _ = row_constants(hyper.likelihood, X, hyper.variance)
    held = weight[:, None] * phi
    return hyper.tau + held.T @ X, hyper.held + held.T @ size


def prior_logits(q: Components, X: Array, hyper: MixtureSettings) -> Array:
    """(11) without its margin: ``E log pi_t + rho E log p(x_d | gamma_t)``, (n, T)."""
    return log_sticks(q.nu) + hyper.C2 / (1 + hyper.C2) * log_likelihoods(q, X, hyper)


def softmax(logits: Array) -> Array:
    """Over the last axis."""
    return scipy.special.softmax(logits, axis=-1)
