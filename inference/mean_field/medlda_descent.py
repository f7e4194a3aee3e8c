r"""MedLDA [1, 2] by mean field: latent Dirichlet allocation with a margin on the expected shares of topics.

The family is ``q = prod_d q(theta_d) prod_w q(z_dw) prod_t q(phi_t) q(eta)`` for the program's letters, where

    q(theta_d) = Dir(gamma_d),   q(z_dw) one law for all tokens of a word in a document,
    q(phi_t) = Dir(lambda_t),    q(eta) = N(mu, nu^2 I)

(the covariance of ``eta`` stays the prior's). The paper's topics are parameters; here they have the program's Dirichlet
prior, which the paper allows for, so that a topic gives some probability to words it has not seen. With
``x_d = sum_w n_dw q(z_dw) / N_d`` and the program ``p``, its margin aside,

.. math:: J = KL(q \| p(\cdot, D)) + C \sum_d \mathrm{loss}(\mu x_d),

with the losses ``max_k (ell 1[k != y_d] + mu_k . x_d) - mu_{y_d} . x_d`` of classes and
``max(0, |y_d - mu . x_d| - epsilon)`` of responses. The margin is asked of the *averaged* classifier; the program takes
the expected loss of a Gibbs classifier, with ``2 c`` for ``C``. No update raises ``J``:

- **words**: ``q(z)``, :mod:`.medlda_words`, with ``theta`` in between;
- **proportions**: ``gamma_dt = alpha/T + N_d x_dt``;
- **topics**: ``lambda_tw = beta + sum_d n_dw q(z_dw = t)``;
- **weights**: the dual of Crammer and Singer's machine (:mod:`..duality`), or that of support vector regression
  (:mod:`..limits.svm`), at the inputs ``x_d``. Both are certified by their gap; LIBLINEAR keeps its multipliers to
  itself, and starts anew every time.

References:

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, J. Zhu, N. Chen and
   E. P. Xing, JMLR (2014), Appendix B
2. *MedLDA: maximum margin supervised topic models*, J. Zhu, A. Ahmed and E. P. Xing, JMLR (2012)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import digamma, gammaln

from ..duality import crammer_singer
from ..limits.descent import ROUNDING
from ..limits.svm import epsilon_problem, posterior_mode
from .medlda_words import LEAST, fit_words

Array = np.ndarray

GAP, LEAST_GAP = 1e-6, 1e-12  # of the words' duals, for each word of a document: at first, and at last


class TopicSettings(NamedTuple):
    """The numbers of a fit."""

    alpha: float  # of one topic
    beta: float
    C: float
    prior_scale: float


class Classes(NamedTuple):
    """The loss ``max_k (ell 1[k != y] + mu_k . x) - mu_y . x``."""

    y: Array  # (D,) in 0..L-1
    ell: float
    num_classes: int

    @property
    def num_scores(self) -> int:
        return self.num_classes

    def rows(self, mu: Array) -> Array:
        """(J, T) what the pieces of the loss multiply ``x`` with, at the weights (q, T)."""
        return mu

    @property
    def shifts(self) -> Array:
        """(D, J) what is added."""
        return self.ell * (np.arange(self.num_classes) != self.y[:, None])

    @property
    def own(self) -> Array:
        """(D,) the piece that is subtracted."""
        return self.y

    def fit(self, x: Array, cost: float, start: Any, tol: float) -> tuple[Array, Any]:
        """The least of ``|mu|^2/2 + cost sum loss`` at inputs (D, T), and where to start next."""
        found = crammer_singer(x, self.y, cost, num_classes=self.num_classes, ell=self.ell, alpha=start, tol=tol)
        assert found.weights is not None
        return found.weights, found.alpha


class Responses(NamedTuple):
    """The loss ``max(0, |y - mu . x| - epsilon)``, see :class:`Classes`."""

    y: Array
    epsilon: float
    num_scores: int = 1

    def rows(self, mu: Array) -> Array:
        return np.concatenate([np.zeros_like(mu), mu, -mu])

    @property
    def shifts(self) -> Array:
        return np.stack([np.zeros_like(self.y), -self.y - self.epsilon, self.y - self.epsilon], axis=1)

    @property
    def own(self) -> Array:
        return np.zeros(len(self.y), np.int64)

    def fit(self, x: Array, cost: float, start: Any, tol: float) -> tuple[Array, Any]:
        problem = epsilon_problem(x, self.y, self.epsilon, np.full(len(x), cost), 1.0)
        return posterior_mode(problem, 100, tol).W, None


def dirichlet_divergence(a: Array, b: float) -> float:
    """``KL(Dir(a) | Dir(b))``, summed over rows ``a`` (n, m)."""
    n, m = a.shape
    total = np.sum(a, axis=1)
    prior = n * (gammaln(m * b) - m * gammaln(b))
    slopes = np.sum((a - b) * digamma(a)) - np.sum((total - m * b) * digamma(total))
    return float(np.sum(gammaln(total)) - np.sum(gammaln(a)) - prior + slopes)


def log_expectations(a: Array) -> Array:
    """``E log`` of probabilities with the laws ``Dir(a)``, (n, m)."""
    return digamma(a) - digamma(np.sum(a, axis=1, keepdims=True))


class Words(NamedTuple):
    """``q(z)``: ``n_dw q(z_dw = t)`` is ``ratio_dw B_dt columns_wt``."""

    log_B: Array  # (D, T)
    ratio: Array  # (nnz,)
    logs: Array  # (D,) sum_w n_dw log(n_dw / ratio_dw)
    log_columns: Array  # (V, T)
    held: Array  # (D, T) N_d x_d
    topics: Array  # (V, T) words of each topic

    @classmethod
    def of(cls, X: scipy.sparse.csr_matrix, log_columns: Array, log_B: Array, ratio: Array, logs: Array) -> "Words":
        """From what :func:`.medlda_words.fit_words` finds."""
        B, columns = np.exp(log_B), np.exp(log_columns)
        R = scipy.sparse.csr_matrix((ratio, X.indices, X.indptr), shape=X.shape)
        return cls(log_B, ratio, logs, log_columns, B * (R @ columns), columns * (R.T @ B))


class Topics(NamedTuple):
    """``q(phi)``."""

    held: Array  # (T, V) lambda
    logs: Array  # (V, T) E log phi
    divergence: float  # from the prior

    @classmethod
    def of(cls, held: Array, beta: float) -> "Topics":
        return cls(held, np.ascontiguousarray(log_expectations(held).T), dirichlet_divergence(held, beta))

    @property
    def log_columns(self) -> Array:
        """(V, T) the logs less the largest of each word."""
        return np.maximum(self.logs - np.max(self.logs, axis=1, keepdims=True), LEAST)


def no_margin(num_documents: int, num_topics: int) -> tuple[Array, Array, Array, float]:
    """Nothing to pay."""
    return (np.zeros((1, num_topics)), np.zeros((num_documents, 1)), np.zeros(num_documents, np.int64), 0.0)


def infer(X: scipy.sparse.csr_matrix, topics: Topics, alpha: float, rounds: int = 200, settled: float = 1e-4) -> Array:
    """(D, T) shares of topics in new documents, without a margin; zeros where there are no words."""
    D, T = X.shape[0], len(topics.held)
    log_columns = topics.log_columns
    counts, none = (X.data, X.indices, X.indptr), no_margin(D, T)
    found = fit_words(
        counts, np.exp(log_columns), np.zeros((D, T)), none, np.zeros((D, 1)), alpha, rounds, 1.0, settled
    )
    held = Words.of(X, log_columns, *found).held
    return held / np.maximum(np.sum(held, axis=1, keepdims=True), 1e-300)


class MedLDADescent:
    """A descent from given topics; ``observe(update, fit)`` is called after every single update.

    :param X: (D, V) counts, in canonical form.
    :param margin: what is learned.
    :param topics: (T, V) ``lambda`` to start from.
    :param rounds: updates of words and proportions in one go.
    """

    def __init__(
        self,
        X: scipy.sparse.csr_matrix,
        margin: Classes | Responses,
        hyper: TopicSettings,
        topics: Array,
        rounds: int = 3,
        observe: Callable[[str, Any], None] | None = None,
    ):
        self.X, self.margin, self.hyper, self.rounds, self.observe = X, margin, hyper, rounds, observe
        D, T = X.shape[0], len(topics)
        self.lengths = np.asarray(X.sum(axis=1), float).ravel()
        self.topics = Topics.of(topics, hyper.beta)
        self.gamma = np.full((D, T), hyper.alpha) + self.lengths[:, None] / T
        self.mu = np.zeros((margin.num_scores, T))
        self.shifts, self.own = margin.shifts, np.ascontiguousarray(margin.own, dtype=np.int64)
        self.omega = np.where(np.arange(self.shifts.shape[1]) == self.own[:, None], hyper.C, 0.0)
        self.start: Any = None  # of the weights' dual
        self.gap = GAP
        self.words = self._words(self.omega)
        self.trace: list[float] = []
        self.n_iter, self.converged = 0, False
        self._record("start", self.value(self.words, self.gamma, self.mu))

    # ----- The objective

    @property
    def shares(self) -> Array:
        """(D, T) ``x``; zeros for a document without words."""
        return self.words.held / np.maximum(self.lengths, 1e-300)[:, None]

    def value(self, words: Words, gamma: Array, mu: Array) -> float:
        """``J`` with the present topics."""
        alpha, _, C, prior_scale = self.hyper
        z = np.sum(words.held * (words.log_B - log_expectations(gamma))) - np.sum(words.logs)
        z += np.vdot(words.topics, words.log_columns - self.topics.logs)
        scores = words.held @ self.margin.rows(mu).T / np.maximum(self.lengths, 1e-300)[:, None]
        losses = np.max(self.shifts + scores, axis=1) - scores[np.arange(len(scores)), self.own]
        weights = np.sum(mu**2) / (2 * prior_scale**2) + C * np.sum(losses)
        return float(z + dirichlet_divergence(gamma, alpha) + self.topics.divergence + weights)

    @property
    def objective(self) -> float:
        """``J`` of the present state."""
        return self.trace[-1]

    def _record(self, update: str, value: float) -> None:
        self.trace.append(value)
        if self.observe:
            self.observe(update, self)

    # ----- The updates

    def run(self, max_iter: int, tol: float, dual_tol: float) -> "MedLDADescent":
        """Descend until an iteration lowers ``J`` by ``tol`` of it or less."""
        precision = max(dual_tol, 1e-2)  # of the weights' dual, while much else is in motion
        self.converged = False
        while self.n_iter < max_iter and not self.converged:
            before = self.objective
            self._fit_weights(precision)
            self._fit_words()
            self._fit_topics()
            self.n_iter += 1
            if before - self.objective <= max(tol, ROUNDING) * abs(before):
                self.converged = precision <= dual_tol
                precision = max(dual_tol, precision / 100)
        return self

    def _words(self, omega: Array) -> Words:
        """The words given the rest; ``omega`` (D, J) changes in place."""
        X, log_columns, alpha = self.X, self.topics.log_columns, self.hyper.alpha
        margin = (self.margin.rows(self.mu), self.shifts, self.own, self.hyper.C)
        if not np.any(self.mu):
            margin = no_margin(*self.gamma.shape)
        counts = X.data, X.indices, X.indptr
        found = fit_words(counts, np.exp(log_columns), digamma(self.gamma), margin, omega, alpha, self.rounds, self.gap)
        return Words.of(X, log_columns, *found)

    def _fit_words(self) -> None:
        """Words and proportions; refused, and more precise the next time, where ``J`` would rise."""
        omega = self.omega.copy()
        words = self._words(omega)
        gamma = self.gamma if self.rounds == 1 else self.hyper.alpha + words.held
        value = self.value(words, gamma, self.mu)
        if value < self.objective:
            self.words, self.gamma, self.omega = words, gamma, omega
            self._record("words", value)
        else:
            self.gap = max(self.gap / 100, LEAST_GAP)
        if self.rounds == 1:
            self.gamma = self.hyper.alpha + self.words.held
            self._record("proportions", self.value(self.words, self.gamma, self.mu))

    def _fit_topics(self) -> None:
        self.topics = Topics.of(self.hyper.beta + self.words.topics.T, self.hyper.beta)
        self._record("topics", self.value(self.words, self.gamma, self.mu))

    def _fit_weights(self, tol: float) -> None:
        """Refused where the dual ended too early for ``J`` to fall."""
        nu = self.hyper.prior_scale
        mu, start = self.margin.fit(nu * self.shares, self.hyper.C, self.start, tol)
        value = self.value(self.words, self.gamma, nu * mu)
        if value < self.objective:
            self.mu, self.start = nu * mu, start
            self._record("weights", value)
