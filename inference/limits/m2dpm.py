r"""M2DPM, max-margin DP-means: the small-variance limit of the infinite SVM [1].

.. math:: J = \sum_k \frac{|\eta_k|^2}{2\nu^2} + 2c \sum_i w_i\, \mathrm{loss}_i(\eta_{z_i})
              + s \sum_i w_i D(x_i, \mu_{z_i}) + \lambda K

Data are divided into clusters, each with a large-margin classifier of its own. The hinge carries ``2c`` throughout,
and the classifier's input has a constant 1 appended, which the clustering's has not.

References:

1. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Y. Wang and J. Zhu, AAAI (2015)
"""

from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from .descent import ClusterProblem
from .divergences import check_support
from .dp_means import Clustering
from .estimator import ScoreClassifier, check_settings, check_weight, encode_labels, split_intercept
from .sweeps import PassSettings

FLOOR = 1e-3  # of |zeta| in an EM step, in margins


@dataclass(eq=False, repr=False)
class M2DPM(ScoreClassifier, Clustering):
    """Clusters with a linear support vector machine each, found together.

    The minimum, with ``y`` in ``-1, 1`` and ``f = eta . x``, of
    ``sum_k |eta_k|^2/(2 prior_scale^2) + 2 cost sum_i w_i max(0, ell - y_i f_i)
    + clustering_weight sum_i w_i D(x_i, mu_{z_i}) + penalty K``; for more than two classes the hinge is
    ``max_j (ell 1[j != y_i] + s_ij) - s_iy`` with a weight vector for each class (Crammer and Singer).

    :param likelihood: the family whose divergence measures distance: "gaussian", the squared Euclidean distance;
        "poisson" for counts; "bernoulli" for entries from 0 to 1; "multinomial" for rows of counts.
    :param penalty: ``lambda``, the price of a cluster. If None, the inputs alone choose the number of clusters
        first (:func:`.dp_means.choose_means`), and ``penalty_`` is the least at which no single datum would open
        another: the largest cost of a datum in the fit.
    :param clustering_weight: ``s``, the weight of the divergence.
    :param cost: ``c``, the weight of the hinge.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param fit_intercept: append a constant 1 to the classifier's input, with the prior of the other weights.
    :param order: "parallel", all data at once, clusters opened with care once the others have settled; or
        "sequential", datum after datum, the paper's Algorithm 1.
    :param max_iter: the most iterations.
    :param tol: stop when an iteration lowers the objective by ``tol`` or less, relative to the classifiers' part of
        it, a tenth of it at least; in sequential order relative to all of it, as in the paper.
    :param max_clusters: the most clusters, None for no limit.
    :param warm_start: start from the clusters of the fit before.
    :param random_state: picks the random parts of large data that are fitted first.

    Data up to 4,096 points are handled in double precision, larger ones in single with sums in double.

    Attributes: ``classes_``; ``cluster_centers_`` (K, d); ``coef_`` (K, d) and ``intercept_`` (K,), for more than two
    classes (K, L, d) and (K, L); ``labels_`` (n,), the cluster of each datum given its label; ``num_clusters_``;
    ``penalty_``; ``objective_``, the objective after every single update, never increasing; ``n_iter_``;
    ``overflow_``, whether ``max_clusters`` kept a cluster from opening; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.inference.limits import M2DPM
    >>> X = np.array([[-1.0], [-0.9], [1.0], [0.9], [9.0], [9.1], [11.0], [10.9]])
    >>> y = np.array(["a", "a", "b", "b", "b", "b", "a", "a"])
    >>> model = M2DPM(penalty=5.0, prior_scale=10.0).fit(X, y)
    >>> model.num_clusters_
    2
    >>> model.predict([[-0.5], [9.4]]).tolist()
    ['a', 'b']
    """

    clustering_weight: float = 1.0
    cost: float = 1.0
    ell: float = 1.0
    prior_scale: float = 1.0
    fit_intercept: bool = True

    def fit(self, X, y, sample_weight=None):
        """Fit to ``X`` (n, d) and labels ``y`` (n,); ``sample_weight`` (n,) multiplies loss and divergence."""
        self._check()
        check_settings(self, positive=["clustering_weight", "cost", "ell", "prior_scale"])
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_support(self.likelihood, X)
        weight = check_weight(sample_weight, X)
        classes, y = encode_labels(y, weight)
        if self.warm_start and hasattr(self, "classes_") and not np.array_equal(self.classes_, classes):
            raise ValueError(
                f"y has the classes {classes.tolist()}, the fit before had {self.classes_.tolist()}: pass the same "
                "classes, or set warm_start=False."
            )
        self.classes_ = classes
        num_classes = len(classes)
        hyper = PassSettings(self.clustering_weight, self.cost, self.ell, self.prior_scale, FLOOR * self.ell)
        penalty = np.inf if self.penalty is None else self.penalty
        problem = ClusterProblem(
            self.likelihood, num_classes, bool(self.fit_intercept), hyper, penalty, self.max_clusters or np.inf
        )
        labels = 2.0 * y - 1 if num_classes == 2 else y.astype(float)
        norm = np.einsum("nd,nd->n", X, X) + bool(self.fit_intercept)
        clusters = self._descend(X, labels, weight, norm, problem).clusters
        eta = clusters.eta[clusters.active]
        self.coef_, self.intercept_ = split_intercept(eta, self.fit_intercept)
        if num_classes == 2:
            self.coef_, self.intercept_ = self.coef_[:, 0], self.intercept_[:, 0]
        return self

    def predict_components(self, X):
        """The nearest cluster of each datum by its divergence alone, (n,)."""
        check_is_fitted(self)
        return np.argmin(self._divergences(validate_data(self, X, reset=False, dtype=np.float64)), axis=1)

    def decision_function(self, X):
        """Scores by the nearest cluster's classifier: (n,), positive for ``classes_[1]``, or (n, L)."""
        z = self.predict_components(X)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.einsum("nd,n...d->n...", X, self.coef_[z]) + self.intercept_[z]

    def _classifiers(self):
        coef, intercept = self.coef_, self.intercept_
        if len(self.classes_) == 2:
            coef, intercept = coef[:, None], intercept[:, None]
        return np.concatenate([coef, intercept[..., None]], axis=-1) if self.fit_intercept else coef
