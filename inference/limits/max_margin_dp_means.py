r"""Max-margin DP-means: the small-variance limit of the Dirichlet process max-margin Gaussian mixture.

.. math:: J = \sum_k \frac{|\eta_k|^2}{2\nu^2} + 2c \sum_i \mathrm{loss}_i + s \sum_i D(x_i, \mu_{z_i}) + \lambda K,
          \qquad \mathrm{loss}_i = \max\Big(0,\ \ell + \max_{k \neq z_i} \eta_k \cdot u_i - \eta_{z_i} \cdot u_i\Big),

over clusters that hold data, by the scalings that lead from the infinite SVM to M2DPM [2]; the model is [1]'s. The
margin's input ``u`` is ``x`` with a constant 1 appended. A single cluster has no loss, and a further one is a rival to
every datum.

No update raises ``J``, and an iteration has these:

1. **weights**: with the labels fixed, Crammer and Singer's support vector machine (:mod:`..duality`), certified;
2. **assignment**: every datum to the cluster where itself costs least. The rivals stay the same unless a cluster is
   left without data, and a rival less raises no loss;
3. **means** become those of their data;

and once these have settled, changes to the number of clusters, with the exact change of everybody's loss:

4. **death**: the data of one cluster go to the others, with the weights as they are or fitted anew; or all data go to
   a single one;
5. **birth**: one datum opens a cluster, with the weights that are best while the others keep theirs.

References:

1. *Robust Bayesian max-margin clustering*, C. Chen, J. Zhu and X. Zhang, NIPS (2014), section 4
2. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Y. Wang and J. Zhu, AAAI (2015)
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sklearn.base import ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ..duality import crammer_singer
from . import svm
from .descent import Observer, inputs
from .divergences import check_support, divergence, means
from .dp_means import Clustering, DPMeans, _single_thread
from .estimator import check_settings, split_intercept, warn_of_end
from .improvement import Improvement
from .sweeps import PassSettings

Array = np.ndarray

BIRTHS = 16  # data that may open a cluster in an iteration, the dearest
SWEEPS = 1000  # of the weights' solver, at most


class Partition(NamedTuple):
    """Clusters, all with data."""

    z: Array  # (n,) labels
    mu: Array  # (K, d)
    eta: Array  # (K, p)
    alpha: Array  # (n, K) the dual variables the weights' solver starts from

    @property
    def num(self) -> int:
        return len(self.mu)

    @property
    def sizes(self) -> Array:
        return np.bincount(self.z, minlength=len(self.mu))

    def without(self, k: int) -> "Partition":
        """Cluster ``k`` removed; its data must be elsewhere."""
        return Partition(
            self.z - (self.z > k), np.delete(self.mu, k, 0), np.delete(self.eta, k, 0), np.delete(self.alpha, k, 1)
        )

    def occupied(self) -> "Partition":
        """Without the clusters that hold no data."""
        kept = self.sizes > 0
        return Partition((np.cumsum(kept) - 1)[self.z], self.mu[kept], self.eta[kept], self.alpha[:, kept])


def rival_losses(scores: Array, ell: float) -> Array:
    """(n, K) the loss of each datum in each cluster, at the scores (n, K); 0 where there is no rival.

    >>> rival_losses(np.array([[2.0, 0.0, 0.5]]), 1.0)
    array([[0. , 3. , 2.5]])
    """
    n, K = scores.shape
    if K == 1:
        return np.zeros((n, 1))
    second, first = np.partition(scores, K - 2, axis=1)[:, -2:].T
    top = np.argmax(scores, axis=1)
    rival = np.where(np.arange(K) == top[:, None], second[:, None], first[:, None])
    return np.maximum(ell + rival - scores, 0)


class MarginDescent(Improvement[Partition]):
    """A descent from a partition.

    :param X: (n, d) data.
    :param penalty: ``lambda``.
    :param gap: the relative duality gap at which weights are fitted.
    """

    def __init__(
        self,
        X: Array,
        state: Partition,
        likelihood: str,
        hyper: PassSettings,
        penalty: float,
        fit_intercept: bool,
        max_clusters: float = np.inf,
        gap: float = 1e-6,
        observe: Observer | None = None,
    ):
        self.X, self.U, self.rows = X, inputs(X, fit_intercept), np.arange(len(X))
        self.likelihood, self.hyper, self.penalty, self.gap = likelihood, hyper, penalty, gap
        super().__init__(state, max_clusters, observe)

    # ----- The objective

    def prices(self, state: Partition) -> tuple[Array, Array]:
        """``s D`` and ``2 c loss``, (n, K), of every datum in every cluster."""
        D = divergence(self.likelihood, self.X, state.mu)
        loss = rival_losses(self.U @ state.eta.T, self.hyper.ell)
        return self.hyper.clustering_weight * D, 2 * self.hyper.cost * loss

    def value(self, state: Partition) -> float:
        """``J``."""
        spread, loss = self.prices(state)
        norm = np.sum(state.eta**2) / (2 * self.hyper.prior_scale**2)
        return float(norm + np.sum((spread + loss)[self.rows, state.z]) + self.penalty * len(state.mu))

    # ----- Updates that keep the clusters

    def fitted(self, state: Partition) -> Partition:
        """The state with its weights fitted to its labels."""
        _, c, ell, nu, _ = self.hyper
        if len(state.mu) == 1:
            return state._replace(eta=np.zeros_like(state.eta), alpha=np.zeros_like(state.alpha))
        found = crammer_singer(
            self.U,
            state.z,
            2 * c * nu**2,
            num_classes=len(state.mu),
            ell=ell,
            alpha=state.alpha,
            tol=self.gap,
            max_iter=SWEEPS,
        )
        return state._replace(eta=found.alpha.T @ self.U, alpha=found.alpha)

    def centred(self, state: Partition) -> Partition:
        """The state with the means of its labels."""
        total = np.zeros_like(state.mu)
        np.add.at(total, state.z, self.X)
        return state._replace(mu=means(self.likelihood, state.sizes.astype(float), total))

    def assigned(self, state: Partition) -> Partition:
        """Every datum where itself costs least; where two cost the same, it stays."""
        spread, loss = self.prices(state)
        price = spread + loss
        z = np.argmin(price, axis=1)
        stays = price[self.rows, state.z] <= price[self.rows, z]
        return state._replace(z=np.where(stays, state.z, z)).occupied()

    def updates(self) -> Iterator[tuple[str, Partition]]:
        yield "weights", self.fitted(self.state)
        yield "assignment", self.assigned(self.state)
        yield "means", self.centred(self.state)

    # ----- Updates of the number of clusters

    def dissolved(self) -> Partition | None:
        """The state without the cluster that is missed least; its data go where themselves cost least."""
        state, K = self.state, len(self.state.mu)
        if K == 1:
            return None
        spread = self.prices(state)[0]
        scores = self.U @ state.eta.T
        norms = np.sum(state.eta**2, axis=1) / (2 * self.hyper.prior_scale**2)
        ends = []
        for k in range(K):
            others = np.delete(np.arange(K), k)
            price = spread[:, others] + 2 * self.hyper.cost * rival_losses(scores[:, others], self.hyper.ell)
            z = np.where(state.z == k, np.argmin(price, axis=1), state.z - (state.z > k))
            ends.append((float(np.sum(price[self.rows, z])) - norms[k], k, z))
        _, k, z = min(ends, key=lambda end: end[0])
        return state.without(k)._replace(z=z)

    def gathered(self) -> Partition | None:
        """All data in one cluster."""
        n, p = self.U.shape
        if len(self.state.mu) == 1:
            return None
        mu = np.zeros((1, self.X.shape[1]))
        return self.centred(Partition(np.zeros(n, int), mu, np.zeros((1, p)), np.zeros((n, 1))))

    def births(self) -> Iterable[Partition]:
        """States with a cluster of one datum more, the dearest data first.

        What a datum pays bounds what a birth can save: no other loss falls. The new weights ``e`` minimise
        ``|e|^2/(2 nu^2) + 2 c sum_j (tau_j - A_j e)_+``, a hinge for each datum: it is a rival to the others, and
        they are its own.
        """
        state, c = self.state, self.hyper.cost
        spread, loss = (price[self.rows, state.z] for price in self.prices(state))
        scores = self.U @ state.eta.T
        sizes = state.sizes
        order = np.argsort(-(spread + loss), kind="stable")[:BIRTHS]
        for i in order:
            if spread[i] + loss[i] <= self.penalty:
                return
            if sizes[state.z[i]] == 1:
                continue
            A, tau = -self.U, self.hyper.ell - scores[self.rows, state.z] - loss / (2 * c)
            A[i], tau[i] = self.U[i], self.hyper.ell + np.max(scores[i])
            e = hinges(A, tau, 2 * c, self.hyper.prior_scale, self.gap)
            yield Partition(
                np.where(self.rows == i, len(state.mu), state.z),
                np.concatenate([state.mu, means(self.likelihood, np.ones(1), self.X[[i]])]),
                np.concatenate([state.eta, e[None]]),
                np.column_stack([state.alpha, np.zeros(len(self.rows))]),
            )

    def renumber(self) -> bool:
        dissolved, gathered = self.dissolved(), self.gathered()
        if dissolved is not None and self.accept("death", dissolved):
            return True
        if gathered is not None and self.accept("death", gathered):
            return True
        if any(self.accept("birth", state) for state in self.births()):
            return True
        return dissolved is not None and self.accept("death", self.fitted(self.centred(dissolved)))

    def run(self, max_iter: int, tol: float) -> tuple[int, bool]:
        """The same; at the end every datum is where itself costs least."""
        end = super().run(max_iter, tol)
        while self.accept("assignment", self.assigned(self.state)):
            pass
        return end


def hinges(A: Array, tau: Array, c: float, prior_scale: float, tol: float) -> Array:
    """(p,) the least of ``|e|^2/(2 nu^2) + c sum_j (tau_j - A_j e)_+``."""
    n = len(A)
    b = np.column_stack([np.zeros(n), tau])
    problem = svm.PrimalProblem(A, b, np.array([[0.0], [-1.0]]), np.zeros((n, 1)), np.full(n, c), prior_scale**-2.0)
    return svm.posterior_mode(problem, 100, tol).W[0]


@dataclass(eq=False, repr=False)
class MaxMarginDPMeans(ClusterMixin, TransformerMixin, Clustering):
    """DP-means with a large margin between its clusters.

    The minimum of ``sum_k |eta_k|^2/(2 prior_scale^2) + 2 cost sum_i loss_i + clustering_weight sum_i D(x_i, mu_{z_i})
    + penalty K`` over clusters that hold data, with ``loss_i = max(0, ell + max_{k != z_i} eta_k . x_i -
    eta_{z_i} . x_i)``. The start is the end of :class:`DPMeans`, with weights 0. A larger ``cost`` or ``ell`` makes
    fewer clusters: a single one has no loss.

    :param likelihood: the family whose divergence measures distance: "gaussian", the squared Euclidean distance;
        "poisson" for counts; "bernoulli" for entries from 0 to 1; "multinomial" for rows of counts.
    :param penalty: ``lambda``, the price of a cluster. If None, that of :class:`DPMeans` without one, times
        ``clustering_weight``: the least at which no single datum of its clusters would open another.
    :param clustering_weight: ``s``, the weight of the divergence.
    :param cost: ``c``, the weight of the margin's loss.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param fit_intercept: append a constant 1 to the margin's input, with the prior of the other weights.
    :param max_iter: the most iterations.
    :param tol: settle when an iteration lowers the objective by ``tol`` of it or less.
    :param max_clusters: the most clusters, None for no limit.
    :param warm_start: start from the clusters of the fit before.
    :param random_state: passed to :class:`DPMeans`.

    Attributes: ``cluster_centers_`` (K, d); ``coef_`` (K, d) and ``intercept_`` (K,); ``labels_`` (n,);
    ``num_clusters_``; ``penalty_``; ``objective_``, the objective after every single update, never increasing;
    ``n_iter_``; ``overflow_``, whether ``max_clusters`` kept a cluster from opening; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.inference.limits import MaxMarginDPMeans
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2], [9.0]])
    >>> MaxMarginDPMeans(penalty=1.0, cost=0.01).fit(X).num_clusters_
    3
    >>> MaxMarginDPMeans(penalty=1.0, ell=20.0).fit(X).num_clusters_
    1
    """

    clustering_weight: float = 1.0
    cost: float = 1.0
    ell: float = 1.0
    prior_scale: float = 1.0
    fit_intercept: bool = True
    order: str = field(default="parallel", init=False)  # not a choice

    def fit(self, X, y=None):
        """Fit to ``X`` (n, d); ``y`` is ignored."""
        self._check()
        check_settings(self, positive=["clustering_weight", "cost", "ell", "prior_scale"])
        X = validate_data(self, X, dtype=np.float64)
        check_support(self.likelihood, X)
        start = self._start(X)
        hyper = PassSettings(self.clustering_weight, self.cost, self.ell, self.prior_scale)
        descent = MarginDescent(
            X,
            start,
            self.likelihood,
            hyper,
            self.penalty_,
            bool(self.fit_intercept),
            self.max_clusters or np.inf,
            max(self.tol / 10, 1e-8),
            **getattr(self, "_private", {}),
        )
        with _single_thread():
            self.n_iter_, converged = descent.run(self.max_iter, self.tol)
        state = descent.state
        self.cluster_centers_ = state.mu
        self.coef_, self.intercept_ = split_intercept(state.eta, self.fit_intercept)
        self.labels_ = state.z
        self.num_clusters_ = len(state.mu)
        self.objective_ = np.array(descent.trace)
        self.overflow_ = descent.overflow
        warn_of_end(self, converged, "max_clusters" * descent.overflow)
        return self

    def predict(self, X):
        """The cluster of each datum, (n,): where itself costs least, divergence and loss together."""
        return np.argmin(self.transform(X), axis=1)

    def transform(self, X):
        """What each datum costs in each cluster, (n, K)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = X @ self.coef_.T + self.intercept_
        loss = rival_losses(scores, self.ell)
        return self.clustering_weight * self._divergences(X) + 2 * self.cost * loss

    def _start(self, X: Array) -> Partition:
        """The state to start from; sets ``penalty_``."""
        if self.warm_start and hasattr(self, "cluster_centers_"):
            if self.penalty is not None:
                self.penalty_ = self.penalty
            z, mu, eta = np.argmin(self.transform(X), axis=1), self.cluster_centers_, self._classifiers()
        else:
            penalty = None if self.penalty is None else self.penalty / self.clustering_weight
            first = DPMeans(
                self.likelihood,
                penalty,
                max_iter=self.max_iter,
                tol=self.tol,
                max_clusters=self.max_clusters,
                random_state=self.random_state,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # it is a start only
                first.fit(X)
            self.penalty_ = self.penalty if self.penalty is not None else self.clustering_weight * first.penalty_
            z, mu = first.labels_, first.cluster_centers_
            eta = np.zeros((len(mu), X.shape[1] + bool(self.fit_intercept)))
        return Partition(z, mu, eta, np.zeros((len(X), len(mu)))).occupied()

    def _classifiers(self):
        return np.column_stack([self.coef_, self.intercept_]) if self.fit_intercept else self.coef_
