r"""Infinite latent support vector machines [1] by truncated mean field: the objective and its coordinate updates.

Both models factor a matrix ``T`` (R, C) with binary features ``Z`` (R, K) of an Indian buffet process in its
stick-breaking construction [2], ``z_rk ~ Bernoulli(prod_{j <= k} v_j)``, ``v_j ~ Beta(alpha, 1)``, and loadings,

    T_rc ~ N(sum_k z_rk w_ck, sigma_n^2),      w_ck ~ N(0, sigma_0^2).

- **iLSVM** has ``T = X``: a row of features for each datum, loadings for each input. The classifier sees ``z_n``.
- **MT-iLSVM** has ``T = X'``: ``Z`` projects inputs to features, each datum has loadings of its own. Task ``m`` has the
  score ``f_m(x) = eta_m . Z' x``.

The family is ``q = q(eta) prod_k q(v_k) prod_rk q(z_rk) prod_ck q(w_ck)`` with ``q(v_k) = Beta(gamma_k1, gamma_k2)``,
``q(z_rk) = Bernoulli(psi_rk)``, ``q(w_ck) = N(Phi_ck, sigma_k^2)`` and ``q(eta) = N(mu, s^2 I)`` (the covariance of
``eta`` stays the prior's). What the fit minimises is

.. math:: J = KL(v) + KL(w) + E_v KL(z | v) - E \log p(T | z, w) + \frac{|\mu|^2}{2 s^2} + C \sum \mathrm{loss},

where ``loss`` is the hinge, Crammer and Singer's or the epsilon-insensitive loss of the *expected* score. ``E log(1 -
prod_{j <= k} v_j)`` has no closed form: ``J`` has the lower bound of Doshi-Velez et al. [3] in its place, for a law
``a_k`` (``aux``) on the sticks ``1..k``, hence is itself an upper bound,

    E log(1 - prod_{j <= k} v_j) >= sum_{m <= k} a_km (E log(1 - v_m) + sum_{j < m} E log v_j - log a_km) = L_k.

Every block has an update that does not raise ``J``. Printed equations that would are named with what is used:

- (24) ``a``, (26, 32) ``gamma``: as printed, each the minimum in its block.
- (25, 31) ``w``: (31) has 1 for ``1/sigma_0^2``. All of ``Phi`` is updated at once, by one solve. The paper's MT-iLSVM
  has one ``sigma^2`` for all ``k``; here each feature has its own, of which that is a special case.
- (27, 33) ``psi``: ``theta_rk = sum_{j <= k} E log v_j - L_k + [(T Phi)_rk - (C sigma_k^2 + |Phi_k|^2)/2 -
  sum_{j != k} psi_rj Phi_j . Phi_k]/sigma_n^2 + margin``. The square of a loading is ``sigma_k^2 + Phi_ck^2`` (printed
  with ``K sigma^2``). The margin's part is ``sum_m mu_mk sum_n y_mn omega_mn x_nd`` (printed without ``omega``) and
  ``sum_y omega_n^y (mu_{y_n k} - mu_{yk})`` (printed with ``y_n`` twice).
- (28, 34) ``eta``: the support vector machine's dual, whose linear term carries ``ell``.
- (29, 35) ``sigma_0^2`` and (30, 36) ``sigma_n^2``, here one number for all data: ``E[z' A z] = sum_{j != k} psi_j
  psi_k A_jk + sum_k psi_k A_kk`` (printed with ``C sigma_k^2`` twice), ``x' E[Z w] = sum_k Phi_k x' psi_k`` (printed
  without ``Phi_k`` or with a 2).

At fixed multipliers ``omega`` the step (27, 33) lowers the Lagrangian, not ``J``, which it may raise. It is taken
together with the classifiers, see :mod:`.ilsvm_descent`.

References:

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, J. Zhu, N. Chen and
   E. P. Xing, JMLR (2014), section 4 and Appendix D
2. *Stick-breaking construction for the Indian buffet process*, Y. W. Teh, D. Gorur and Z. Ghahramani, AISTATS (2007)
3. *Variational inference for the Indian buffet process*, F. Doshi-Velez, K. Miller, J. Van Gael and Y. W. Teh,
   AISTATS (2009)
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.special
from scipy.linalg import cho_factor, cho_solve

from ..duality.problem import compiled
from .conjugate import special_of

Array = np.ndarray


class Factors(NamedTuple):
    """``q(z)``, ``q(v)``, the bound's laws, ``q(w)``."""

    psi: Array  # (R, K)
    gamma: Array  # (K, 2)
    aux: Array  # (K, K), row k a law on 0..k
    loadings: Array  # (C, K), Phi
    variance: Array  # (K,), sigma_k^2


class Scales(NamedTuple):
    """The numbers of the factor model."""

    concentration: float
    noise: float  # sigma_n^2
    feature: float  # sigma_0^2


class Matrix(NamedTuple):
    """``T``, of which only ``T T'`` matters: columns may be rotated, and those that are 0 then left out."""

    values: Array  # (R, C'), C' <= C
    num_columns: int  # C

    @classmethod
    def of(cls, T: Array) -> "Matrix":
        """``T`` with at most ``R`` columns."""
        R, C = T.shape
        return cls(np.asarray(np.linalg.qr(T.T, mode="r")).T if C > R else T, C)


# ----- The objective, for NumPy and, to be differentiated, for JAX


def log_sticks(gamma: Array) -> tuple[Array, Array]:
    """``E log v_k`` and ``E log(1 - v_k)``, (K,)."""
    s, xp = special_of(gamma), gamma.__array_namespace__()
    total = s.digamma(xp.sum(gamma, axis=1))
    return s.digamma(gamma[:, 0]) - total, s.digamma(gamma[:, 1]) - total


def log_features(gamma: Array, aux: Array) -> tuple[Array, Array]:
    """``sum_{j <= k} E log v_j`` and the bound ``L_k``, (K,)."""
    s, xp = special_of(gamma), gamma.__array_namespace__()
    log_v, log_rest = log_sticks(gamma)
    on = xp.cumsum(log_v)
    return on, aux @ (log_rest + on - log_v) - xp.sum(s.xlogy(aux, aux), axis=1)


def squares(q: Factors, num_columns: int) -> Array:
    """``E |w_k|^2`` (K,)."""
    return num_columns * q.variance + q.loadings.__array_namespace__().sum(q.loadings**2, axis=0)


def residual(q: Factors, T: Matrix) -> Any:
    """``E |T - Z W'|^2``."""
    xp = q.psi.__array_namespace__()
    gram = q.loadings.T @ q.loadings
    cross = xp.sum(q.psi * (T.values @ q.loadings))
    pairs = xp.sum((q.psi.T @ q.psi) * gram) - xp.sum(q.psi**2 @ xp.diagonal(gram))
    return float(np.sum(T.values**2)) - 2 * cross + pairs + xp.sum(q.psi @ squares(q, T.num_columns))


def factor_objective(q: Factors, T: Matrix, scales: Scales) -> Any:
    """``J`` without the classifiers' part."""
    s, xp = special_of(q.psi), q.psi.__array_namespace__()
    psi, (a, b), alpha, C = q.psi, q.gamma.T, scales.concentration, T.num_columns
    log_v, log_rest = log_sticks(q.gamma)
    on, off = log_features(q.gamma, q.aux)
    v = (a - alpha) * log_v + (b - 1) * log_rest + s.gammaln(a + b) - s.gammaln(a) - s.gammaln(b) - np.log(alpha)
    z = s.xlogy(psi, psi) + s.xlogy(1 - psi, 1 - psi) - psi * on - (1 - psi) * off
    w = squares(q, C) / scales.feature - C * (1 + xp.log(q.variance / scales.feature))
    x = residual(q, T) / scales.noise + psi.shape[0] * C * xp.log(2 * np.pi * scales.noise)
    return xp.sum(v) + xp.sum(z) + xp.sum(w) / 2 + x / 2


# ----- The updates


def update_aux(gamma: Array) -> Array:
    """(24): ``a_km`` proportional to ``exp(E log(1 - v_m) + sum_{j < m} E log v_j)``, ``m <= k``."""
    log_v, log_rest = log_sticks(gamma)
    logits = log_rest + np.cumsum(log_v) - log_v
    lower = np.tril(np.ones((len(gamma), len(gamma)), bool))
    return scipy.special.softmax(np.where(lower, logits, -np.inf), axis=1)


def update_sticks(psi: Array, aux: Array, concentration: float) -> Array:
    """(26, 32): ``gamma`` (K, 2)."""
    mass = np.sum(psi, axis=0)
    held = (len(psi) - mass)[:, None] * aux  # what feature k's zeros say of stick m <= k
    later = np.cumsum(held[:, ::-1], axis=1)[:, ::-1] - held
    return np.column_stack([concentration + np.cumsum(mass[::-1])[::-1] + np.sum(later, axis=0), 1 + np.sum(held, 0)])


def update_loadings(psi: Array, T: Matrix, scales: Scales) -> tuple[Array, Array]:
    """(25, 31): ``Phi`` (C', K) and ``sigma_k^2`` (K,)."""
    U = psi.T @ psi
    np.fill_diagonal(U, np.sum(psi, axis=0))
    precision = U / scales.noise + np.eye(len(U)) / scales.feature
    loadings = cho_solve(cho_factor(precision, check_finite=False), psi.T @ T.values, check_finite=False)
    return loadings.T / scales.noise, 1 / np.diagonal(precision).copy()


def update_scales(q: Factors, T: Matrix, scales: Scales) -> Scales:
    """(29, 35) and (30, 36)."""
    R, K = q.psi.shape
    feature = np.sum(squares(q, T.num_columns)) / (K * T.num_columns)
    return scales._replace(noise=float(residual(q, T)) / (R * T.num_columns), feature=float(feature))


def feature_logits(q: Factors, T: Matrix, scales: Scales) -> tuple[Array, Array]:
    """(27, 33): ``theta_rk`` is the first (R, K) less ``sum_{j != k} psi_rj`` times the second (K, K)."""
    on, off = log_features(q.gamma, q.aux)
    linear = on - off + (T.values @ q.loadings - squares(q, T.num_columns) / 2) / scales.noise
    return linear, q.loadings.T @ q.loadings / scales.noise


@compiled
def sweep_features(psi, linear, gram, max_sweeps=1, tol=0.0, step=1.0):
    """``psi_rk`` towards ``sigmoid(theta_rk)`` in turn, in place, until no entry of a row moves more than ``tol``."""
    R, K = psi.shape
    for r in range(R):
        for _ in range(max_sweeps):
            moved = 0.0
            for k in range(K):
                theta = linear[r, k] + psi[r, k] * gram[k, k]
                for j in range(K):
                    theta -= psi[r, j] * gram[k, j]
                new = psi[r, k] + step * (1 / (1 + np.exp(-theta)) - psi[r, k])
                moved = max(moved, abs(new - psi[r, k]))
                psi[r, k] = new
            if moved <= tol:
                break
