"""Infinite latent SVMs by truncated mean field, as estimators; their objective is in :mod:`.ilsvm_equations`."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_array, check_consistent_length, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from ..limits.estimator import (
    ScoreClassifier,
    check_settings,
    encode_labels,
    labels_at,
    split_intercept,
    two_class,
    warn_of_end,
)
from .ilsvm_descent import ClassMargin, FactorDescent, TaskMargin, start_factors
from .ilsvm_duals import Cells
from .ilsvm_equations import Matrix, Scales, feature_logits, sweep_features

Array = np.ndarray

START_SPREAD = 0.001**0.5  # of psi around a half: the paper's
ROW_SWEEPS, ROW_TOL = 200, 1e-6  # of the features of new rows


@dataclass(eq=False, repr=False)
class LatentFactors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both models share."""

    truncation: int = 20
    _: KW_ONLY
    C: float = 1.0
    concentration: float = 1.0
    noise_scale: float | None = None
    feature_scale: float = 1.0
    prior_scale: float = 1.0
    ell: float = 1.0
    extra_features: bool = False
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    coupled: bool = True
    estimate_scales: bool = False
    init: str = "svd"
    max_iter: int = 200
    tol: float = 1e-3
    dual_tol: float = 1e-3
    random_state: Any = None

    def _check(self) -> None:
        scales = ["noise_scale", "feature_scale", "prior_scale", "intercept_scaling"]
        positive = ["C", "concentration", "ell", "dual_tol", *scales]
        counts = ["truncation", "max_iter"]
        check_settings(self, positive=positive, counts=counts, nonnegative=["tol"], optional=["noise_scale"])
        if self.init not in ("random", "svd"):
            raise ValueError(f"init={self.init!r}: init must be 'random' or 'svd'.")

    def _inputs(self, X: Any) -> Array:
        return validate_data(self, X, reset=False, dtype=np.float64)

    def _beside(self, X: Array) -> Array:
        """(n, e) what the classifiers see beside the features."""
        constant = np.full((len(X), 1), float(self.intercept_scaling))
        parts = [X] * bool(self.extra_features) + [constant] * bool(self.fit_intercept)
        return np.column_stack(parts) if parts else np.zeros((len(X), 0))

    def _descend(self, X: Array, T: Matrix, margin: ClassMargin | TaskMargin) -> FactorDescent:
        """A descent from the start for ``X`` (n, d), and the attributes that both models have."""
        noise = self.noise_scale
        if noise is None:
            noise = float(np.std(X)) / 2 or 1.0
        scales = Scales(float(self.concentration), float(noise) ** 2, float(self.feature_scale) ** 2)
        rng = check_random_state(self.random_state)
        R, K = len(T.values), self.truncation
        psi = np.clip(0.5 + START_SPREAD * rng.standard_normal((R, K)), 0.01, 0.99)
        q = start_factors(psi, T, scales, _singular(T, K) if self.init == "svd" else None)
        observe = getattr(self, "_private", {}).get("observe")
        fit = FactorDescent(T, q, scales, margin, estimate_scales=self.estimate_scales, observe=observe)
        fit.run(self.max_iter, self.tol * len(X), self.dual_tol, coupled=self.coupled)
        self.objective_ = np.array(fit.trace)
        self.n_iter_ = fit.n_iter
        self.active_features_ = np.flatnonzero(np.max(fit.q.psi, axis=0) > 0.5)
        self.noise_scale_, self.feature_scale_ = fit.scales.noise**0.5, fit.scales.feature**0.5
        self.dual_gap_ = fit.classifiers.gap
        self._n_features_out = K
        warn_of_end(self, fit.converged, stacklevel=4)
        return fit


def _singular(T: Matrix, K: int) -> Array:
    """(C', K) loadings whose features, less a half, are the left singular vectors."""
    _, values, axes = np.linalg.svd(T.values, full_matrices=False)
    loadings = np.zeros((T.values.shape[1], K))
    rank = min(K, len(values))
    loadings[:, :rank] = (axes.T * values)[:, :rank] * 2 / len(T.values) ** 0.5
    return loadings


@dataclass(eq=False, repr=False)
class ILSVM(ScoreClassifier, LatentFactors):
    """A classifier on latent binary features, their number learned: the infinite latent SVM, by mean field.

    An Indian buffet process gives each datum features ``z`` that explain its input, ``x ~ N(W z, noise_scale^2 I)``,
    and a support vector machine sees them. Features are learned so that they explain *and* separate. The objective is
    in ``mean_field/ilsvm_equations.py``. Two classes have a single weight vector with the hinge ``max(0, ell - y f)``,
    more have Crammer and Singer's loss.

    The margin is asked of the averaged classifier, ``E_q[f]``; the program ``ilsvm`` takes the hinge as a
    pseudo-likelihood, which is the expected loss of a classifier drawn from ``q``. That bounds this by Jensen's
    inequality, with the program's ``cost`` half of ``C`` (see :class:`.InfiniteSVM`).

    **Transduction.** The paper learns with the test inputs at hand: pass them as ``X_unlabelled``; they join the
    likelihood, not the margin, and their labels are in ``transduction_``. :meth:`predict` takes any inputs.

    :param truncation: ``K``, the most features.
    :param C: the weight of the margin.
    :param concentration: ``alpha`` of the process: the mean number of a datum's features beforehand.
    :param noise_scale: ``sigma_n``, standard deviation of the inputs about ``W z``; None for half of the inputs' own.
    :param feature_scale: ``sigma_0``, prior standard deviation of the loadings ``W``.
    :param prior_scale: prior standard deviation of the classifiers' weights.
    :param ell: the margin.
    :param extra_features: let the classifiers see the inputs beside the features.
    :param fit_intercept: append a constant to the classifiers' input, with the prior of the other weights.
    :param intercept_scaling: the constant; a large one leaves the intercept free.
    :param coupled: False for the decoupled baseline, IBP+SVM: features of the inputs alone, then one classifier.
    :param estimate_scales: update ``noise_scale`` and ``feature_scale`` too.
    :param init: "svd", loadings from the inputs' singular vectors; or "random", features around a half.
    :param max_iter: the most sweeps over all updates.
    :param tol: stop when a sweep lowers the objective by ``tol`` or less for each datum.
    :param dual_tol: the relative duality gap of the classifiers.
    :param random_state: seed of the start.

    Attributes: ``classes_``; ``objective_``, the objective after every single update, never increasing;
    ``active_features_``, indices of the features that some datum has rather than not; ``features_`` (n, K), of the
    training data, given their labels; ``loadings_`` (d, K); ``coef_`` (1, p) or (L, p) and ``intercept_``, of the
    features and, if asked for, the inputs; ``noise_scale_`` and ``feature_scale_``; ``transduction_``, labels of
    ``X_unlabelled``; ``dual_gap_``; ``n_iter_``; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.datasets import make_latent_features
    >>> from regbayes.inference.mean_field import ILSVM
    >>> X, y, truth = make_latent_features(200, 12, 4, num_classes=2, noise=0.2)
    >>> model = ILSVM(truncation=8, C=5.0, noise_scale=0.3, random_state=0).fit(X[:150], y[:150])
    >>> model.transform(X[150:]).shape, bool(model.score(X[150:], y[150:]) > 0.9)
    ((50, 8), True)
    """

    def fit(self, X, y, X_unlabelled=None):
        """Fit to ``X`` (n, d) and labels ``y`` (n,).

        :param X_unlabelled: (m, d) inputs without labels, that help to find the features.
        """
        self._check()
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, y = encode_labels(y)
        L = len(self.classes_)
        every = X if X_unlabelled is None else np.concatenate([X, self._inputs(X_unlabelled)])
        # Two classes share one vector: a pair of them, w and -w, has twice its square.
        self._scale = self.prior_scale * (0.5**0.5 if L == 2 else 1.0)
        margin = ClassMargin(y, self.ell * (1 - np.eye(L)), float(self.C), self._beside(X), self._scale)
        fit = self._descend(every, Matrix(every, X.shape[1]), margin)
        self.features_ = fit.q.psi[: len(X)]
        self.loadings_ = fit.q.loadings
        self._weights = self._scale * fit.classifiers.weights
        eta = self._weights[[1]] - self._weights[[0]] if L == 2 else self._weights
        self.coef_, intercept = split_intercept(eta, self.fit_intercept)
        self.intercept_ = self.intercept_scaling * intercept
        self._q, self._scales = fit.q, fit.scales
        if X_unlabelled is not None:
            scores = self._scores(every[len(X) :], fit.q.psi[len(X) :])
            self.transduction_ = labels_at(self.classes_, scores)
        return self

    def transform(self, X):
        """(n, K) expected features of new inputs, whose labels are not known: (33) without the margin."""
        check_is_fitted(self)
        X = self._inputs(X)
        q = self._q._replace(psi=np.full((len(X), self.truncation), 0.5))
        linear, gram = feature_logits(q, Matrix(X, X.shape[1]), self._scales)
        sweep_features(q.psi, linear, gram, ROW_SWEEPS, ROW_TOL)
        return q.psi

    def decision_function(self, X):
        """The averaged classifier: (n,), positive for ``classes_[1]``, for two classes; (n, L) for more."""
        psi = self.transform(X)
        return self._scores(self._inputs(X), psi)

    def _scores(self, X: Array, psi: Array) -> Array:
        return two_class(np.column_stack([psi, self._beside(X)]) @ self._weights.T)


@dataclass(eq=False, repr=False)
class MTILSVM(LatentFactors):
    """Many tasks on shared latent features, their number learned: the multi-task infinite latent SVM, by mean field.

    A binary matrix ``Z`` (d, K) of an Indian buffet process projects inputs to features ``Z' x``; it explains the
    inputs, ``x ~ N(Z w, noise_scale^2 I)``, each with its own ``w``, and all tasks share it. Task ``m`` has the score
    ``f_m(x) = eta_m . Z' x`` under the hinge ``(ell - y f_m)_+`` or the loss ``(|y - f_m| - epsilon)_+``. The
    objective is in ``mean_field/ilsvm_equations.py``; on the margin of the program ``mt-ilsvm`` see :class:`.ILSVM`.

    **Tasks** are the columns of a matrix ``y`` (n, M), such as several labels of each row; or ``y`` (n,) comes with the
    integers ``task`` (n,). A NaN in ``y`` is a target that is not known: its row helps to explain the inputs. A row
    counts once in the likelihood, however many targets it has.

    - A task whose labels are all equal has no margin: its score is the constant ``ell`` with that label's sign.
    - A task without any known target has the score 0: the first of ``classes_``, or the mean of all targets.
    - A constant input of zeros has no part in any score; without others, all tasks are constant.

    **Transduction.** Inputs of test data may join the likelihood, not the margin, as ``X_unlabelled`` (or with targets
    NaN). Scores depend on ``x`` and ``q`` alone, so :meth:`predict` serves for them as for any others.

    :param truncation: ``K``, the most features.
    :param loss: "hinge", for two classes; or "epsilon-insensitive", for numbers, which are centred first.
    :param concentration: ``alpha`` of the process: the mean number of an input's features beforehand.
    :param noise_scale: ``sigma_n``, standard deviation of the inputs about ``Z w``; None for half of the inputs' own.
    :param feature_scale: ``sigma_0``, prior standard deviation of the loadings ``w``.
    :param ell: the margin of the hinge.
    :param epsilon: the error that costs nothing.
    :param coupled: False for the decoupled baseline, MT-IBP+SVM: a projection by the inputs alone, then the tasks.
    :param init: "random", projections around a half; or "svd", loadings from the inputs' singular vectors.
    :param C: it and the others as for :class:`ILSVM`, with the tasks' machines for classifiers.

    Attributes: ``classes_``, the two labels, for the hinge; ``tasks_``, the values of ``task``, or the columns'
    numbers; ``projection_`` (d, K), ``E[Z]``; ``active_features_``, indices of the features that some input has rather
    than not; ``task_weights_`` (M, K), ``E[eta]``; ``coef_`` (M, d) and ``intercept_`` (M,), of the scores as functions
    of ``x``; ``noise_scale_`` and ``feature_scale_``; ``objective_``, the objective after every single update, never
    increasing; ``dual_gap_``; ``n_iter_``; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.datasets import make_latent_tasks
    >>> from regbayes.inference.mean_field import MTILSVM
    >>> X, Y, truth = make_latent_tasks(200, 10, num_tasks=6, noise=0.1)
    >>> model = MTILSVM(truncation=8, prior_scale=0.3, random_state=0).fit(X[:150], Y[:150])
    >>> model.predict(X[150:]).shape, bool(np.mean(model.predict(X[150:]) == Y[150:]) > 0.8)
    ((50, 6), True)
    >>> task = np.arange(150) % 6
    >>> model = model.fit(X[:150], Y[np.arange(150), task], task=task)
    >>> model.predict(X[150:], task=np.zeros(50, int)).shape
    (50,)
    """

    loss: str = "hinge"
    _: KW_ONLY
    epsilon: float = 0.1
    init: str = "random"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        if self.loss == "hinge":
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags

    def fit(self, X, y, task=None, X_unlabelled=None):
        """Fit to ``X`` (n, d) and targets ``y``, (n, M), or (n,) of the tasks ``task`` (n,), or of a single task.

        :param task: (n,) integers, with ``y`` (n,).
        :param X_unlabelled: (m, d) inputs without targets, that help to find the features.
        """
        self._check()
        check_settings(self, nonnegative=["epsilon"])
        if self.loss not in ("hinge", "epsilon-insensitive"):
            raise ValueError(f"loss={self.loss!r}: loss must be 'hinge' or 'epsilon-insensitive'.")
        X = validate_data(self, X, dtype=np.float64)
        row, start, values = self._known(X, y, task)
        C, M = float(self.C), len(self.tasks_)
        constant = np.zeros(M)
        if self.loss == "hinge":
            sign = np.where(values == self.classes_[0], -1.0, 1.0)
            sizes = np.diff(start)
            for m in np.flatnonzero(sizes).tolist():  # a single label leaves nothing to separate
                part = sign[start[m] : start[m + 1]]
                if np.all(part == part[0]):
                    constant[m], sizes[m] = self.ell * part[0], 0
            kept = np.repeat(sizes > 0, np.diff(start))
            row, sign, start = row[kept], sign[kept], np.concatenate([[0], np.cumsum(sizes)])
            cells = Cells(row, start, self.ell * sign, np.minimum(C * sign, 0.0), np.maximum(C * sign, 0.0), 0.0)
        else:
            constant[:] = np.mean(values)
            bound = np.full(len(row), C)
            cells = Cells(row, start, values - np.mean(values), -bound, bound, float(self.epsilon))
        every = X if X_unlabelled is None else np.concatenate([X, self._inputs(X_unlabelled)])
        margin = TaskMargin(X, cells, self._beside(X), float(self.prior_scale))
        fit = self._descend(every, Matrix.of(every.T), margin)
        d, K = fit.q.psi.shape
        eta = self.prior_scale * fit.classifiers.weights
        self.projection_, self.task_weights_ = fit.q.psi, eta[:, :K]
        self.coef_ = eta[:, :K] @ fit.q.psi.T + (eta[:, K : K + d] if self.extra_features else 0.0)
        self.intercept_ = constant + (self.intercept_scaling * eta[:, -1] if self.fit_intercept else 0.0)
        return self

    def transform(self, X):
        """(n, K) expected features ``E[Z]' x``."""
        check_is_fitted(self)
        return self._inputs(X) @ self.projection_

    def predict(self, X, task=None):
        """Labels or numbers: (n, M) if ``fit`` had a matrix; (n,) of the tasks ``task`` (n,), or of a single task."""
        scores = self._scores(X, task)
        return self.classes_[np.minimum(scores > 0, len(self.classes_) - 1)] if self.loss == "hinge" else scores

    def score(self, X, y, task=None):
        """The share of known labels that are right; for numbers, ``R^2`` over the known targets."""
        found = self.predict(X, task)
        y = np.asarray(y)
        known = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(y.shape, bool)
        return float(np.mean(y[known] == found[known])) if self.loss == "hinge" else r2_score(y[known], found[known])

    @available_if(lambda self: self.loss == "hinge")
    def decision_function(self, X, task=None):
        """Scores, in the shape of :meth:`predict`; positive for ``classes_[1]``."""
        return self._scores(X, task)

    def _scores(self, X: Any, task: Any) -> Array:
        check_is_fitted(self)
        X = self._inputs(X)
        if task is not None:
            m = self._task_index(task, len(X))
            return np.einsum("nd,nd->n", X, self.coef_[m]) + self.intercept_[m]
        if self._given == "tasks":
            raise ValueError("task is None, but fit had tasks: pass the task of each row of X as task.")
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if self._given == "vector" else scores

    def _task_index(self, task: Any, n: int) -> Array:
        """(n,) places in ``tasks_``."""
        task = np.asarray(task)
        if task.shape != (n,) or task.dtype.kind not in "iu":
            raise ValueError(
                f"task has shape {task.shape} and dtype {task.dtype}: it must hold {n} integers, one per row of X."
            )
        if not np.all(seen := np.isin(task, self.tasks_)):
            raise ValueError(f"task holds {task[~seen][0]}, which fit did not see; pass values of tasks_.")
        return np.searchsorted(self.tasks_, task)

    def _known(self, X: Array, y: Any, task: Any) -> tuple[Array, Array, Array]:
        """Rows (N,) of the known targets, in the order of their tasks; where each task starts (M + 1,); the targets."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite="allow-nan", input_name="y")
        check_consistent_length(X, y)
        if y.ndim > 1 and task is not None:
            raise ValueError(
                f"y has shape {y.shape}: with task it must be a vector; pass the columns as tasks, or no task."
            )
        self._given = "matrix" if y.ndim > 1 else "vector" if task is None else "tasks"
        known = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(y.shape, bool)
        if not np.any(known):
            raise ValueError("y has no known target: all of it is NaN; pass at least one.")
        if y.ndim > 1:
            self.tasks_ = np.arange(y.shape[1])
            m, row = np.nonzero(known.T)
            values = y.T[known.T]
        else:
            given = np.zeros(len(X), int) if task is None else np.asarray(task)
            self.tasks_ = np.unique(given)
            index = self._task_index(given, len(X))
            row = np.argsort(index, kind="stable")
            row = row[known[row]]
            m, values = index[row], y[row]
        start = np.searchsorted(m, np.arange(len(self.tasks_) + 1))
        if self.loss == "epsilon-insensitive":
            return row, start, values.astype(float)
        check_classification_targets(values)
        labels = np.unique(values)
        if len(labels) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(values)}: y has "
                f"{len(labels)} labels; pass one column of 0 and 1 for each, or use ILSVM."
            )
        binary = labels.dtype.kind in "biuf" and set(labels.tolist()) <= {0, 1}
        self.classes_ = np.array([0, 1], labels.dtype) if binary else labels
        return row, start, values
