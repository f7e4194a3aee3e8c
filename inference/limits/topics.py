r"""Topic models in the small-variance limit: every word of a document in one topic, with a margin.

The programs are tempered by ``B``: each word is seen ``B`` times (the tokens of a word in a document go together), the
Dirichlet masses ``alpha``, ``alpha_0``, ``alpha_1`` and ``beta`` are ``B`` times larger, as is the cost ``c``, and the
weights' variance is ``nu^2/B``. As ``B`` grows, ``-log p / B`` tends to the least, over the proportions ``theta`` that
the programs integrate out, of

.. math:: J = \sum_{dw} n_{dw} (-\log\theta_{d z_{dw}} - \log\phi_{z_{dw} w}) + \alpha \sum_d KL(m_d \| \theta_d)
          + \beta V \sum_t KL(u \| \phi_t) + \frac{|\eta|^2}{2\nu^2} + 2c \sum_d \mathrm{loss}_d,

where ``u`` is uniform, ``x_dt`` the share of topic ``t`` in a document's words and ``loss`` the programs' own, of
``eta x_d``. In ``medlda`` the documents' ``m_d`` is uniform. In ``mmctm`` it is ``mu_k`` of the document's cluster
``k = y_d``, clusters pay for ``KL``s of their own,

.. math:: \alpha_1 \sum_k KL(\mu_0 \| \mu_k) + \alpha_0 KL(u \| \mu_0),

and the clusters' sizes, which are not tempered, cost nothing. No update raises ``J``:

1. **weights**: Crammer and Singer's support vector machine, or that of regression;
2. **words**: one after the other to the topic where the document costs least, loss and all;
3. **labels** (``mmctm``): every document to the cluster where itself costs least, with the best ``theta``; or
   **proportions**: ``theta_d`` proportional to ``n_dt + alpha m_dt``;
4. **topics**: ``phi_tw`` proportional to their words and ``beta``;
5. **clusters** (``mmctm``): ``mu_k``, then ``mu_0``, each a convex problem with a root in one number.

References:

1. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Y. Wang and J. Zhu, AAAI (2015)
2. *Robust Bayesian max-margin clustering*, C. Chen, J. Zhu and X. Zhang, NIPS (2014), section 5
3. *MedLDA: maximum margin supervised topic models*, J. Zhu, A. Ahmed and E. P. Xing, JMLR (2012)
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import brentq
from scipy.special import wrightomega, xlogy
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...models.laws.corpora import check_landmarks
from ..duality.problem import compiled
from ..mean_field.medlda import SupervisedTopics, TopicEstimator, check_documents
from ..mean_field.medlda_descent import Classes, MedLDADescent, Responses, TopicSettings
from .descent import ROUNDING
from .estimator import check_settings, warn_of_end
from .max_margin_dp_means import rival_losses

Array = np.ndarray

START = 20  # iterations of the mean-field learner, where a fit starts
SETTLED = 100  # passes over a new document, at most
STRENGTHS = ("alpha", "alpha_0", "alpha_1", "beta", "cost", "ell", "prior_scale")  # of priors and margin


@compiled
def assign(data, indices, offsets, z, log_theta, log_phi, rows, shifts, own, twice):
    """Every word in turn to its cheapest topic, ``z`` (nnz,) in place; whether any moved."""
    J, T = rows.shape
    s, n, moved = np.zeros(J), np.zeros(T), False
    for d in range(len(offsets) - 1):
        begin, end, o = offsets[d], offsets[d + 1], own[d]
        N = np.sum(data[begin:end])
        n[:] = 0.0
        for l in range(begin, end):
            n[z[l]] += data[l]
        for j in range(J):
            s[j] = shifts[d, j]
            if N > 0:
                for t in range(T):
                    s[j] += rows[j, t] * n[t] / N
        for l in range(begin, end):
            old, share, best, least = z[l], data[l] / N, z[l], np.inf
            for j in range(J):
                s[j] -= rows[j, old] * share
            for k in range(T):
                t = (old + k) % T  # the present topic comes first: it is left only for a cheaper one
                price = -data[l] * (log_theta[d, t] + log_phi[t, indices[l]])
                if J > 1:
                    most = -np.inf
                    for j in range(J):
                        most = max(most, s[j] + rows[j, t] * share)
                    price += twice * (most - s[o] - rows[o, t] * share)
                if k == 0 or price < least - 1e-12 * abs(least):
                    best, least = t, price
            for j in range(J):
                s[j] += rows[j, best] * share
            if best != old:
                z[l], moved = best, True
    return moved


def barycentre(g: Array, a: float, b: float, anchor: Array) -> Array:
    """The distribution ``m`` with the least ``a sum_t m_t (log m_t - g_t) + b KL(anchor | m)``.

    With ``p = b anchor / a`` and a multiplier ``k`` it is ``m = p / W(p exp(k - g))``, Lambert's function.
    """
    if a == 0:
        return anchor
    log_p = np.log(b / a * anchor)

    def at(k: float) -> Array:
        return np.exp(log_p) / wrightomega(log_p + k - g)

    low, high = np.min(g) - 1.0, np.max(g) + 1.0
    while np.sum(at(low)) < 1:
        low -= high - low
    while np.sum(at(high)) > 1:
        high += high - low
    m = at(brentq(lambda k: np.sum(at(k)) - 1, low, high, xtol=1e-15, rtol=1e-15))
    return m / np.sum(m)


def kl_divergence(p: Array, q: Array) -> float:
    """``KL(p | q)``, summed over rows."""
    return float(np.sum(xlogy(p, p) - xlogy(p, q)))


class TopicDescent:
    """A descent from given topics, proportions, clusters and weights; words start at their cheapest topics.

    ``observe(update, descent)`` is called after every single update.

    :param X: (D, V) counts, in canonical form.
    :param margin: of the documents' labels, or of clusters' at the start.
    :param known: (D,) landmarks of clusters, -1 where unknown; None without clusters.
    :param phi: (T, V) topics.
    :param theta: (D, T) proportions.
    :param mu: (K, T) clusters' proportions, and ``mu_0`` (T,).
    :param eta: (q, T) weights.
    """

    def __init__(
        self,
        X: scipy.sparse.csr_matrix,
        margin: Any,
        known: Array | None,
        phi: Array,
        theta: Array,
        mu: tuple[Array, Array],
        eta: Array,
        hyper: dict[str, float],
        observe: Callable[[str, Any], None] | None = None,
    ):
        self.X, self.margin, self.known, self.hyper, self.observe = X, margin, known, hyper, observe
        self.phi, self.theta, (self.mu, self.mu0), self.eta = phi, theta, mu, eta
        self.lengths = np.asarray(X.sum(axis=1), float).ravel()
        self.documents = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        self.z = np.zeros(X.nnz, np.int64)
        self.start: Any = None  # of the weights' dual
        self.assign()
        self.objective = self.value(self.eta)
        self.trace = [self.objective]

    # ----- The objective

    @property
    def held(self) -> Array:
        """(D, T) words of each topic."""
        D, T = self.theta.shape
        return np.bincount(self.documents * T + self.z, self.X.data, D * T).reshape(D, T)

    @property
    def shares(self) -> Array:
        """(D, T) ``x``; zeros for a document without words."""
        return self.held / np.maximum(self.lengths, 1e-300)[:, None]

    @property
    def centres(self) -> Array:
        """(D, T) ``m``."""
        return np.broadcast_to(self.mu0, self.theta.shape) if self.known is None else self.mu[self.margin.y]

    def value(self, eta: Array) -> float:
        """``J`` with these weights."""
        hyper, (T, V) = self.hyper, self.phi.shape
        words = -np.sum(self.X.data * np.log(self.phi[self.z, self.X.indices])) - np.sum(xlogy(self.held, self.theta))
        words += hyper["alpha"] * kl_divergence(self.centres, self.theta)
        words += hyper["beta"] * V * kl_divergence(np.full((T, V), 1 / V), self.phi)
        if self.known is not None:
            words += hyper["alpha_1"] * kl_divergence(np.broadcast_to(self.mu0, self.mu.shape), self.mu)
            words += hyper["alpha_0"] * kl_divergence(np.full(T, 1 / T), self.mu0)
        scores = self.shares @ self.margin.rows(eta).T
        losses = np.max(self.margin.shifts + scores, axis=1) - scores[np.arange(len(scores)), self.margin.own]
        return float(words + np.sum(eta**2) / (2 * hyper["prior_scale"] ** 2) + 2 * hyper["cost"] * np.sum(losses))

    def _record(self, update: str) -> None:
        self.objective = self.value(self.eta)
        self.trace.append(self.objective)
        if self.observe is not None:
            self.observe(update, self)

    # ----- The updates

    def run(self, max_iter: int, tol: float) -> tuple[int, bool]:
        """Iterations, and whether the objective settled."""
        for n_iter in range(1, max_iter + 1):
            before = self.objective
            self._fit_weights()
            if self.assign():
                self._record("words")
            if self.known is None:
                self.fit_proportions()
                self._record("proportions")
            else:
                self.fit_labels()
                self._record("labels")
                self._fit_clusters()
                self._record("clusters")
            self._fit_topics()
            self._record("topics")
            if before - self.objective <= max(tol, ROUNDING) * abs(before):
                return n_iter, True
        return max_iter, False

    def assign(self) -> bool:
        """Words to topics; whether any moved."""
        margin, X = self.margin, self.X
        return assign(
            X.data, X.indices, X.indptr, self.z, np.log(self.theta), np.log(self.phi), margin.rows(self.eta),
            margin.shifts, np.asarray(margin.own, np.int64), 2 * self.hyper["cost"],
        )  # fmt: skip

    def fit_proportions(self) -> None:
        """``theta`` of the present words."""
        alpha = self.hyper["alpha"]
        self.theta = (self.held + alpha * self.centres) / (self.lengths + alpha)[:, None]

    def fit_labels(self) -> None:
        """Labels that are not known, each with the proportions that go with it."""
        assert self.known is not None
        alpha, held = self.hyper["alpha"], self.held
        price = 2 * self.hyper["cost"] * rival_losses(self.shares @ self.eta.T, self.hyper["ell"])
        for k, mu in enumerate(self.mu):
            a = held + alpha * mu
            price[:, k] -= np.sum(xlogy(a, a / (self.lengths + alpha)[:, None]), axis=1) - alpha * np.sum(xlogy(mu, mu))
        rows, y = np.arange(len(price)), self.margin.y
        best = np.argmin(price, axis=1)
        best = np.where(price[rows, best] < price[rows, y], best, y)
        self.margin = self.margin._replace(y=np.where(self.known >= 0, self.known, best))
        self.start = None if np.any(self.margin.y != y) else self.start
        self.fit_proportions()

    def _fit_clusters(self) -> None:
        alpha, alpha_0, alpha_1 = (self.hyper[name] for name in ("alpha", "alpha_0", "alpha_1"))
        logs, T = np.log(self.theta), len(self.mu0)
        for k in range(len(self.mu)):
            mine = self.margin.y == k
            g = logs[mine].mean(axis=0) if np.any(mine) else self.mu0
            self.mu[k] = barycentre(g, alpha * np.sum(mine), alpha_1, self.mu0)
        self.mu0 = barycentre(np.log(self.mu).mean(axis=0), alpha_1 * len(self.mu), alpha_0, np.full(T, 1 / T))

    def _fit_topics(self) -> None:
        T, V = self.phi.shape
        held = np.bincount(self.z * V + self.X.indices, self.X.data, T * V).reshape(T, V) + self.hyper["beta"]
        self.phi = held / np.sum(held, axis=1, keepdims=True)

    def _fit_weights(self) -> None:
        nu = self.hyper["prior_scale"]
        eta, start = self.margin.fit(nu * self.shares, 2 * self.hyper["cost"], self.start, 1e-4)
        if self.value(nu * eta) < self.objective:
            self.eta, self.start = nu * eta, start
            self._record("weights")


def start_of(model: Any, X: scipy.sparse.csr_matrix, margin: Any) -> tuple[Array, Array]:
    """Topics (T, V) and proportions (D, T): a short run of the mean-field learner."""
    T, V = model.num_topics, X.shape[1]
    hyper = TopicSettings(model.alpha / T, float(model.beta), 2.0 * model.cost, float(model.prior_scale))
    noise = check_random_state(model.random_state).gamma(100.0, 0.01, size=(T, V))
    soft = MedLDADescent(X, margin, hyper, model.beta + X.sum() / (T * V) * noise).run(START, 0.0, 1e-3)
    topics, theta = soft.topics.held, soft.gamma
    return topics / np.sum(topics, axis=1, keepdims=True), theta / np.sum(theta, axis=1, keepdims=True)


def first_labels(theta: Array, known: Array, num_clusters: int) -> Array:
    """(D,) the cluster whose landmarks' mean, or without any whose document, proportions (D, T) are nearest to."""
    labelled = known >= 0
    if np.any(labelled):
        centres = np.stack([theta[known == k].mean(axis=0) for k in range(num_clusters)])
    else:  # documents each far from those before it
        order, gaps = [0], np.full(len(theta), np.inf)
        while len(order) < min(num_clusters, len(theta)):
            gaps = np.minimum(gaps, np.sum((theta - theta[order[-1]]) ** 2, axis=1))
            order.append(int(np.argmax(gaps)))
        centres = theta[order]
    nearest = np.argmin(np.sum(xlogy(centres, centres), axis=1) - np.log(theta) @ centres.T, axis=1)
    return np.where(labelled, known, nearest)


def keep(model: Any, descent: TopicDescent) -> None:
    """Run a descent, and set the attributes of a fit."""
    model.n_iter_, converged = descent.run(model.max_iter, model.tol)
    model._n_features_out = model.num_topics
    model.components_ = descent.phi
    model.shares_ = descent.shares
    model.objective_ = np.array(descent.trace)
    warn_of_end(model, converged, stacklevel=4)


@dataclass(eq=False, repr=False)
class MedLDAMeans(SupervisedTopics):
    """Topics of whole words that tell classes apart, or predict a response: the small-variance limit of ``medlda``.

    The objective is in ``limits/topics.py``. The start is a short run of :class:`.MedLDA`.

    :param task: "classification", or "regression" for real responses, about standardised.
    :param num_topics: ``T``.
    :param alpha: total mass of the prior of a document's topics.
    :param beta: of the topics' prior.
    :param cost: ``c``, the weight of the margin.
    :param ell: the margin of a classification.
    :param epsilon: half the width of the tube of a regression.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param max_iter: the most iterations.
    :param tol: stop when an iteration lowers the objective by ``tol`` of it or less.
    :param random_state: seed of the start.

    Attributes: ``components_`` (T, V), the topics; ``coef_``, the weights, (L, T) or, for regression, (T,);
    ``classes_``; ``shares_`` (D, T), the training documents' shares of topics given their labels; ``objective_``, the
    objective after every single update, never increasing; ``n_iter_``; ``n_features_in_``.

    >>> from regbayes.datasets import make_corpus
    >>> from regbayes.inference.limits import MedLDAMeans
    >>> X, y, _ = make_corpus(90, 40, 6, 3, seed=1)
    >>> model = MedLDAMeans(num_topics=6, random_state=0).fit(X[:60], y[:60])
    >>> model.transform(X[60:]).shape, model.score(X[60:], y[60:]) > 0.6
    ((30, 6), True)
    """

    _: KW_ONLY
    cost: float = 25.0
    tol: float = 1e-5

    def fit(self, X, y):
        """Fit to counts ``X`` (D, V) and labels or responses ``y`` (D,)."""
        self._check("cost")
        X, margin = self._margin(X, y)
        T = self.num_topics
        phi, theta = start_of(self, X, margin)
        hyper = {name: float(getattr(self, name)) for name in ("alpha", "beta", "cost", "prior_scale")}
        uniform, eta = (np.zeros((0, T)), np.full(T, 1 / T)), np.zeros((margin.num_scores, T))
        private = getattr(self, "_private", {})
        descent = TopicDescent(X, margin, None, phi, theta, uniform, eta, hyper, **private)
        keep(self, descent)
        self.coef_ = descent.eta if self.task == "classification" else descent.eta[0]
        return self

    def transform(self, X):
        """(n, T) shares of topics in documents, whose labels are not known; zeros without words."""
        check_is_fitted(self)
        (X,) = check_documents(self, X, reset=False)
        T, n = self.num_topics, X.shape[0]
        theta, eta = np.full((n, T), 1 / T), np.zeros((1, T))
        no_margin, hyper = (
            Responses(np.zeros(n), 0.0),
            {"alpha": self.alpha, "beta": 0.0, "cost": 0.0, "prior_scale": 1.0},
        )
        found = TopicDescent(X, no_margin, None, self.components_, theta, (eta[:0], theta[0]), eta, hyper)
        for _ in range(SETTLED):
            found.fit_proportions()
            if not found.assign():
                break
        return found.shares


@dataclass(eq=False, repr=False)
class MaxMarginTopicMeans(TopicEstimator):
    """Clusters of documents with a large margin between their topics: the small-variance limit of ``mmctm``.

    The objective is in ``limits/topics.py``. The start is a short run of latent Dirichlet allocation, and for each
    cluster the mean of its landmarks. Without landmarks a large ``cost`` can gather all documents in one cluster.

    :param num_clusters: ``K``; None counts them in the landmarks.
    :param num_topics: ``T``.
    :param alpha: how closely documents follow their cluster's proportions.
    :param alpha_0: total mass of the prior of ``mu_0``.
    :param alpha_1: how closely clusters follow ``mu_0``.
    :param beta: of the topics' prior.
    :param cost: ``c``, the weight of the margin.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param max_iter: the most iterations.
    :param tol: stop when an iteration lowers the objective by ``tol`` of it or less.
    :param random_state: seed of the start.

    Attributes: ``labels_`` (D,); ``components_`` (T, V), the topics; ``proportions_`` (K, T), the clusters' of topics,
    ``mu``; ``coef_`` (K, T), the weights; ``shares_`` (D, T), the training documents' shares of topics; ``objective_``,
    the objective after every single update, never increasing; ``n_iter_``; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.datasets import make_corpus
    >>> from regbayes.inference.limits import MaxMarginTopicMeans
    >>> X, y, _ = make_corpus(90, 40, 6, 3, seed=1)
    >>> landmarks = np.where(np.arange(90) < 15, y, -1)
    >>> model = MaxMarginTopicMeans(3, num_topics=6, random_state=0)
    >>> float(np.mean(model.fit_predict(X, landmarks=landmarks) == y)) > 0.7
    True
    """

    num_clusters: int | None = 8
    num_topics: int = 20
    alpha: float = 10.0
    alpha_0: float = 10.0
    alpha_1: float = 10.0
    beta: float = 0.1
    cost: float = 9.0
    ell: float = 0.1
    prior_scale: float = 0.1**0.5
    max_iter: int = 100
    tol: float = 1e-5
    random_state: Any = None

    def fit(self, X, y=None, landmarks=None):
        """Fit to counts ``X`` (D, V); ``y`` is ignored.

        :param landmarks: (D,) clusters in ``0..K-1`` of documents where they are known, -1 elsewhere.
        """
        check_settings(self, positive=STRENGTHS, counts=["num_topics", "max_iter"], nonnegative=["tol"])
        (X,) = check_documents(self, X)
        given, K = check_landmarks(landmarks, X.shape[0], self.num_clusters)
        known = np.full(X.shape[0], -1) if given is None else np.asarray(given, np.int64)
        T = self.num_topics
        phi, theta = start_of(self, X, Responses(np.zeros(X.shape[0]), 0.0))  # no margin
        margin = Classes(first_labels(theta, known, K), float(self.ell), K)
        mu = np.full((K, T), 1 / T), np.full(T, 1 / T)
        private = getattr(self, "_private", {})
        descent = TopicDescent(X, margin, known, phi, theta, mu, np.zeros((K, T)), self._hyper(), **private)
        keep(self, descent)
        self.labels_ = descent.margin.y
        self.coef_, self.proportions_, self._mu0 = descent.eta, descent.mu, descent.mu0
        return self

    def fit_predict(self, X, y=None, landmarks=None):
        """(D,) clusters of the documents it is fitted to."""
        return self.fit(X, landmarks=landmarks).labels_

    def predict(self, X):
        """(n,) clusters of new documents, which pay their loss as those of the fit do."""
        return self._settled(X).margin.y

    def transform(self, X):
        """(n, T) shares of topics in new documents; zeros without words."""
        return self._settled(X).shares

    def _hyper(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in STRENGTHS}

    def _settled(self, X) -> TopicDescent:
        check_is_fitted(self)
        (X,) = check_documents(self, X, reset=False)
        n, K = X.shape[0], len(self.coef_)
        theta, none = np.tile(self._mu0, (n, 1)), np.zeros_like(self.coef_)
        margin, mu = Classes(np.zeros(n, np.int64), float(self.ell), K), (self.proportions_, self._mu0)
        found = TopicDescent(X, margin, np.full(n, -1), self.components_, theta, mu, none, self._hyper())
        found.eta = self.coef_
        for _ in range(SETTLED):
            before = found.margin.y
            found.fit_labels()
            if not found.assign() and np.array_equal(before, found.margin.y):
                break
        return found
