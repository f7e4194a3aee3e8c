r"""DP-means: clustering as the small-variance limit of a Dirichlet process mixture.

.. math:: J = \sum_i w_i D(x_i, \mu_{z_i}) + \lambda K

with a Bregman divergence ``D`` for each exponential family [1, 2]; a datum further than ``lambda`` from every mean
opens a cluster of its own.

References:

1. *Revisiting k-means: new algorithms via Bayesian nonparametrics*, B. Kulis and M. I. Jordan, ICML (2012)
2. *Small-variance asymptotics for exponential family Dirichlet process mixture models*, K. Jiang, B. Kulis and
   M. I. Jordan, NIPS (2012)
3. *A dendrite method for cluster analysis*, T. Caliński and J. Harabasz, Communications in Statistics (1974)
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from .descent import SETTLED, ClusterDescent, ClusterProblem, ClusterSlots, Observer, Outcome, buffer, descend_in_order
from .divergences import check_likelihood, check_support, divergence, divergences_from, means
from .estimator import check_settings, check_weight, warn_of_end
from .sweeps import SMALL, TINY, PassSettings, layout, num_scores

Array = np.ndarray

SCOUT_SIZE = 2048  # data that find the first clusters
RULE_SIZE = 512  # data that choose their number without a penalty
MOST = 32  # clusters that the rule considers
GROWTH = 8  # from a random part to the next
ROUGH = 1e-3  # the tolerance on parts
HASTE = 0.5  # of the penalty opens clusters in haste: the farthest of few data are nearer than those of many


def choose_means(likelihood: str, X: Array, weight: Array, most: float = MOST) -> Array:
    """The number of clusters where none is given, as means (K, d).

    From the mean of all data on, the farthest point of some cluster becomes the next centre, the one that lowers
    the within-cluster divergence ``W`` most, followed by three iterations of k-means. Of all numbers ``K >= 2``, the
    one with the largest ratio ``(W_1 - W_K)/(K - 1) : W_K/(n - K)`` [3] is compared with one cluster: it must lower
    ``W/(n - K)`` by clearly more than the factor ``K^(-2/d)`` that cutting up a single cloud would bring.

    :param X: (n, d) data.
    :param weight: (n,) positive weights.
    :param most: clusters.
    """
    n, d = len(np.unique(X, axis=0)), X.shape[1]
    mu = means(likelihood, np.sum(weight, keepdims=True), weight[None] @ X)
    distance = divergences_from(likelihood, X, np.mean(X, axis=0))
    D = distance(mu)
    W_1 = weight @ D[:, 0]
    slack = 1 - 0.3 * min(1, 2 / d)
    best, chosen = 0.0, mu
    for K in range(2, int(min(most, np.ceil(np.sqrt(n)), n - 1)) + 1):
        z = np.argmin(D, axis=1)
        least = D[np.arange(len(X)), z]
        order = np.lexsort([least, z])
        far = order[np.append(np.diff(z[order]) > 0, True)]  # the last of every cluster
        offered = distance(means(likelihood, np.ones(len(far)), X[far]))
        gain = weight @ np.maximum(least[:, None] - offered, 0)
        if not np.max(gain) > 1e-12 * W_1:
            break
        D = np.column_stack([D, offered[:, np.argmax(gain)]])
        for _ in range(3):
            hot = weight * (np.argmin(D, axis=1) == np.arange(D.shape[1])[:, None])
            hot = hot[np.sum(hot, axis=1) > 0]
            mu = means(likelihood, np.sum(hot, axis=1), hot @ X)
            D = distance(mu)
        W = weight @ np.min(D, axis=1)
        ratio = (W_1 - W) / (K - 1) * (n - K) / max(W, 1e-12 * W_1)
        if len(chosen) < K / 2 - 4:
            break
        if ratio > best and K ** (2 / d) * W / (n - K) < slack * W_1 / (n - 1):
            best, chosen = ratio, mu
    return chosen


def scout(
    likelihood: str,
    X: Array,
    weight: Array,
    mu: Array,
    penalty: float,
    scale: float = 1.0,
    haste: bool = False,
    most: float = np.inf,
    max_iter: int = 300,
) -> tuple[Array, float]:
    """DP-means on few data, in NumPy, as no compiled pass is as quick there: means (K, d) and the objective.

    :param X: (n, d) data.
    :param weight: (n,) positive weights.
    :param mu: (K, d) means to start from.
    :param scale: multiplies the weights in the objective.
    :param haste: clusters open before the others have settled, from the fraction ``HASTE`` of the penalty on.
    :param most: clusters.
    """
    distance, rows, previous = divergences_from(likelihood, X, np.mean(X, axis=0)), np.arange(len(X)), np.inf
    settled, threshold = (np.inf, HASTE * penalty) if haste else (SETTLED, penalty)
    for n_iter in range(1, max_iter + 1):
        D = distance(mu)
        z = np.argmin(D, axis=1)
        paid = weight * D[rows, z]
        objective = scale * np.sum(paid) + penalty * len(mu)
        fall, previous = previous - objective, objective
        dearest = int(np.argmax(paid))
        opens = fall <= settled * objective and paid[dearest] > threshold and len(mu) < most
        if opens:
            z[dearest] = len(mu)
            mu = np.concatenate([mu, means(likelihood, np.ones(1), X[[dearest]])])
        if n_iter == max_iter or (fall <= ROUGH * objective and not opens):
            break
        hot = weight * (z == np.arange(len(mu))[:, None])
        hot = hot[np.sum(hot, axis=1) > 0]
        mu = means(likelihood, np.sum(hot, axis=1), hot @ X)
    return mu, float(objective)


def first_means(X: Array, weight: Array, part: Callable[[int], Array], problem: ClusterProblem, max_iter: int) -> Array:
    """Means (K, d) to start from, found on few data, the random rows ``part(size)``.

    Without a penalty they are those of :func:`choose_means`. Given one, they are DP-means's, from a single cluster
    with care; without classifiers also in haste, with them also from the chosen means. The lowest end counts.
    """
    likelihood, most = problem.likelihood, problem.max_clusters
    chosen = np.empty(0)
    if problem.num_classes or not np.isfinite(problem.penalty):
        rows = part(RULE_SIZE // 2 if np.isfinite(problem.penalty) else RULE_SIZE)
        chosen = choose_means(likelihood, X[rows], weight[rows], min(MOST, most))
    if not np.isfinite(problem.penalty):
        return chosen
    rows = part(SCOUT_SIZE)
    few, w = X[rows], weight[rows]
    penalty, scale = problem.penalty / problem.hyper.clustering_weight, float(np.sum(weight) / np.sum(w))
    mean = means(likelihood, np.sum(w, keepdims=True), w[None] @ few)
    starts = (mean, False), (chosen, False) if problem.num_classes else (mean, True)
    ends = [scout(likelihood, few, w, mu, penalty, scale, haste, most, max_iter) for mu, haste in starts]
    return min(ends, key=lambda end: end[1])[0]


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _single_thread() -> Any:
    """Products of few rows are slower on several threads."""
    return _blas().limit(limits=1, user_api="blas")


def fit_clusters(
    X: Array,
    y: Array | None,
    weight: Array,
    norm: Array,
    problem: ClusterProblem,
    start: ClusterSlots | None,
    max_iter: int,
    tol: float,
    random_state: Any,
    dtype: Any = None,
    observe: Observer | None = None,
) -> Outcome:
    """Descend on growing random parts of large data, then on all of them; the first, of few data, finds the clusters
    (:func:`first_means`).

    :param X: (n, d) data.
    :param y: (n,) labels, signs for two classes, None without classifiers.
    :param weight: (n,) weights.
    :param norm: (n,) squared norms of the classifiers' inputs.
    :param start: clusters to start from instead.
    """
    rng = check_random_state(random_state if len(X) > SCOUT_SIZE else 0)  # few data give the same clusters every time
    likelihood, num_classes = problem.likelihood, problem.num_classes
    positive = np.flatnonzero(weight > 0)
    shape = (num_scores(num_classes), X.shape[1] + problem.fit_intercept)
    slots = 1 if len(X) <= TINY else 16  # nothing is compiled for tiny data

    def part(size: int) -> Array:
        return positive if len(positive) <= size else np.sort(positive[rng.randint(0, len(positive), size)])

    sizes = [len(X)]
    if start is None:
        sizes = [size for size in (SMALL, SMALL * GROWTH) if GROWTH * size <= 2 * len(X)] + sizes
        chosen = first_means(X, weight, part, problem, max_iter)
        start = buffer(chosen, np.zeros((len(chosen), *shape)), slots)
    for size in sizes:
        last = size == len(X)
        rows = slice(None) if last else part(size)
        labels = None if y is None else y[rows]
        data = layout(X[rows], labels, weight[rows], norm[rows], likelihood, num_classes, dtype)
        scale = float(np.sum(weight) / np.sum(weight[rows]))
        run = ClusterDescent(data, start, problem, scale, observe if last else None)
        outcome = run.run(max_iter, tol if last else max(tol, ROUGH))
        found = outcome.clusters
        start = buffer(found.mu[found.active], found.eta[found.active], slots)
    return outcome


@dataclass(eq=False, repr=False)
class Clustering(BaseEstimator, ABC):
    """What the limits that cluster share."""

    likelihood: str = "gaussian"
    penalty: float | None = None
    _: KW_ONLY
    order: str = "parallel"
    max_iter: int = 300
    tol: float = 1e-3
    max_clusters: int | None = None
    warm_start: bool = False
    random_state: Any = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.likelihood != "gaussian"
        return tags

    def _check(self) -> None:
        check_likelihood(self.likelihood)
        if self.order not in ("parallel", "sequential"):
            raise ValueError(f"order={self.order!r}: order must be 'parallel' or 'sequential'.")
        numbers = {"positive": ["penalty"], "counts": ["max_iter", "max_clusters"], "nonnegative": ["tol"]}
        check_settings(self, **numbers, optional=["penalty", "max_clusters"])

    def _descend(self, X: Array, y: Array | None, weight: Array, norm: Array, problem: ClusterProblem) -> Outcome:
        """Fit, and set the attributes that both estimators have."""
        start = None
        if self.warm_start and hasattr(self, "cluster_centers_"):
            start = buffer(self.cluster_centers_, self._classifiers(), 1)
        arguments = (self.max_iter, self.tol)
        private = getattr(self, "_private", {})
        if self.order == "parallel" or self.penalty is None:
            with _single_thread():
                outcome = fit_clusters(X, y, weight, norm, problem, start, *arguments, self.random_state, **private)
        penalty = problem.penalty
        if self.penalty is None:
            # No single datum would leave its cluster to open one.
            penalty = outcome.dearest if outcome.dearest > 0 else 1.0
        if self.order == "sequential":
            if start is None:
                mu = means(self.likelihood, np.sum(weight, keepdims=True), weight[None] @ X)
                p = X.shape[1] + problem.fit_intercept
                start = buffer(mu, np.zeros((1, num_scores(problem.num_classes), p)), 1)
            problem = problem._replace(penalty=penalty)
            labels = np.zeros(len(X)) if y is None else y
            outcome = descend_in_order(X, labels, weight, start, problem, *arguments, private.get("observe"))
        clusters = outcome.clusters
        self.penalty_ = penalty
        self.cluster_centers_: Array = clusters.mu[clusters.active]
        self.num_clusters_ = len(self.cluster_centers_)
        self.labels_ = (np.cumsum(clusters.active) - 1)[outcome.z]
        self.objective_ = np.array([base + penalty * num for base, num in outcome.trace])
        self.n_iter_ = outcome.n_iter
        self.overflow_ = outcome.overflow
        warn_of_end(self, outcome.converged, "max_clusters" * outcome.overflow, stacklevel=4)
        return outcome

    @abstractmethod
    def _classifiers(self) -> Array:
        """(K, S, p), of the fit before."""

    def _divergences(self, X: Array) -> Array:
        check_support(self.likelihood, X)
        return divergence(self.likelihood, X, self.cluster_centers_)


@dataclass(eq=False, repr=False)
class DPMeans(ClusterMixin, TransformerMixin, Clustering):
    """K-means that finds the number of clusters: the minimum of ``sum_i w_i D(x_i, mu_{z_i}) + penalty K``.

    :param likelihood: the family whose divergence measures distance: "gaussian", the squared Euclidean distance;
        "poisson" for counts; "bernoulli" for entries from 0 to 1; "multinomial" for rows of counts.
    :param penalty: ``lambda``, the price of a cluster, a divergence: a point further from every centre opens a
        cluster. If None, the number of clusters is chosen first (:func:`choose_means`), and ``penalty_`` is the
        least at which no single point would open another.
    :param order: "parallel", all points at once, clusters opened with care once the others have settled; or
        "sequential", point after point, as in the paper.
    :param max_iter: the most iterations.
    :param tol: stop when an iteration lowers the objective by ``tol`` of it or less.
    :param max_clusters: the most clusters, None for no limit.
    :param warm_start: start from the centres of the fit before.
    :param random_state: picks the random parts of large data that are clustered first.

    Data up to 4,096 points are handled in double precision, larger ones in single with sums in double.

    Attributes: ``cluster_centers_`` (K, d); ``labels_`` (n,); ``num_clusters_``; ``penalty_``; ``objective_``, the
    objective after every single update, never increasing; ``n_iter_``; ``overflow_``, whether ``max_clusters`` kept
    a cluster from opening; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.inference.limits import DPMeans
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2], [9.0]])
    >>> model = DPMeans(penalty=1.0).fit(X)
    >>> model.num_clusters_
    3
    >>> model.predict([[0.4], [6.0]]).tolist() == model.labels_[[0, 2]].tolist()
    True
    >>> round(float(model.objective_[-1]), 3)
    3.04
    """

    def fit(self, X, y=None, sample_weight=None):
        """Fit to ``X`` (n, d); ``y`` is ignored; ``sample_weight`` (n,) multiplies each point's divergence."""
        self._check()
        X = validate_data(self, X, dtype=np.float64)
        check_support(self.likelihood, X)
        weight = check_weight(sample_weight, X)
        penalty = np.inf if self.penalty is None else self.penalty
        problem = ClusterProblem(self.likelihood, 0, False, PassSettings(), penalty, self.max_clusters or np.inf)
        self._descend(X, None, weight, np.zeros(len(X)), problem)
        return self

    def predict(self, X):
        """The nearest cluster of each point, (n,)."""
        return np.argmin(self.transform(X), axis=1)

    def transform(self, X):
        """The divergence of each point from each centre, (n, K)."""
        check_is_fitted(self)
        return self._divergences(validate_data(self, X, reset=False, dtype=np.float64))

    def _classifiers(self):
        return np.zeros((len(self.cluster_centers_), 0, self.n_features_in_))
