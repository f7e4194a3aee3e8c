r"""Latent feature means: small-variance limits of the Indian buffet process and of the infinite latent SVM.

.. math:: J = s \sum_n |x_n - A' z_n|^2 + \lambda K
              \Big[\, + \sum_y \frac{|\eta_y|^2}{2\nu^2} + 2c \sum_n \mathrm{loss}_n \Big],
          \qquad \mathrm{loss}_n = \max_y (\ell 1[y \ne y_n] + \eta_y \cdot g_n) - \eta_{y_n} \cdot g_n,

with binary features ``z_n`` of each datum, ``K`` of them in all and each with a mean ``A_k``. The first two terms are
BP-means [1], ``lambda`` its ``lambda^2``; those in brackets are the margin of the infinite latent SVM [2] with inputs
``g_n = [z_n, x_n if asked for, 1]``.

No update raises ``J``, and an iteration has these:

1. **entries**: a feature is given to, and taken from, all data for which that lowers ``J``, one feature after the
   other;
2. **means** become the least squares fit;
3. **weights**: Crammer and Singer's support vector machine (:mod:`..duality`);

and once these have settled, changes of the features:

4. **death**: a feature whose absence costs less than ``lambda``;
5. **birth**: what is left of some datum becomes a feature, shared by all data that it helps, if that saves more than
   ``lambda``. BP-means asks it of that datum alone;
6. **exchange**: a feature that contains another one gives it up, and its data have both.

References:

1. *MAD-Bayes: MAP-based asymptotic derivations from Bayes*, T. Broderick, B. Kulis and M. I. Jordan, ICML (2013)
2. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, J. Zhu, N. Chen and
   E. P. Xing, JMLR (2014)
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..duality import crammer_singer
from .dp_means import _single_thread
from .estimator import ScoreClassifier, check_settings, encode_labels, two_class, warn_of_end
from .improvement import Improvement

Array = np.ndarray

BIRTHS = 16  # data that may give a feature its first mean, those that are explained worst
SHARE = 0.05  # of the data's squares that a feature has to explain, where no penalty is given
SWEEPS = 1000  # of the weights' solver, at most
ROUNDS = 3  # of entries and means, by which a change of features is judged
EXACT = 10  # features up to which all values of a new datum's are compared
ENTRIES = 100  # changes to the features of a new datum, at most


class FeatureState(NamedTuple):
    """Features, all with data."""

    Z: Array  # (n, K) zeros and ones
    A: Array  # (K, d) means
    eta: Array  # (L, K + e) weights of the features, then of what is appended; no rows without a margin
    alpha: Array  # (n, L) the dual variables the weights' solver starts from

    @property
    def num(self) -> int:
        return len(self.A)

    def without(self, k: Any) -> "FeatureState":
        """Features ``k`` removed."""
        return FeatureState(np.delete(self.Z, k, 1), np.delete(self.A, k, 0), np.delete(self.eta, k, 1), self.alpha)

    def occupied(self) -> "FeatureState":
        """Without the features that no datum has."""
        return self.without(np.flatnonzero(~self.Z.any(axis=0)))


class FeatureMargin(NamedTuple):
    """The data of the margin and its strength."""

    y: Array  # (n,) labels 0..L-1
    appended: Array  # (n, e) inputs behind the features
    cost: float
    ell: float
    prior_scale: float


class FeatureDescent(Improvement[FeatureState]):
    """A descent from given features.

    :param X: (n, d) data.
    :param penalty: ``lambda``.
    :param weight: ``s``.
    :param margin: None for BP-means.
    :param gap: the relative duality gap at which weights are fitted.
    :param rng: for random births; None for the best.
    """

    def __init__(
        self,
        X: Array,
        state: FeatureState,
        penalty: float,
        weight: float = 1.0,
        margin: FeatureMargin | None = None,
        max_features: float = np.inf,
        gap: float = 1e-6,
        rng: np.random.Generator | None = None,
        observe: Callable[[str, "FeatureDescent"], None] | None = None,
    ):
        self.X, self.penalty, self.weight, self.margin, self.gap, self.rng = X, penalty, weight, margin, gap, rng
        super().__init__(state, max_features, observe)

    # ----- The objective

    def scores(self, state: FeatureState) -> Array:
        """(n, L) scores of the classes."""
        assert self.margin is not None
        return np.column_stack([state.Z, self.margin.appended]) @ state.eta.T

    def losses(self, scores: Array) -> Array:
        """(n,) ``2 c`` times the loss at the scores (n, L)."""
        assert self.margin is not None
        y, _, cost, ell, _ = self.margin
        own = np.arange(scores.shape[1]) == y[:, None]
        return 2 * cost * (np.max(scores + ell * ~own, axis=1) - scores[own])

    def value(self, state: FeatureState) -> float:
        """``J``."""
        J = self.weight * np.sum((self.X - state.Z @ state.A) ** 2) + self.penalty * len(state.A)
        if self.margin is not None:
            J += np.sum(state.eta**2) / (2 * self.margin.prior_scale**2) + np.sum(self.losses(self.scores(state)))
        return float(J)

    # ----- Updates that keep the features

    def entered(self, state: FeatureState, k: int) -> FeatureState:
        """Feature ``k`` with those data for which that is cheaper; where both cost the same, it stays."""
        without = self.X - state.Z @ state.A + np.outer(state.Z[:, k], state.A[k])
        price = self.weight * (np.sum((without - state.A[k]) ** 2, axis=1) - np.sum(without**2, axis=1))
        if self.margin is not None:
            off = self.scores(state) - np.outer(state.Z[:, k], state.eta[:, k])
            price += self.losses(off + state.eta[:, k]) - self.losses(off)
        Z = state.Z.copy()
        Z[:, k] = np.where(price < 0, 1.0, np.where(price > 0, 0.0, Z[:, k]))
        return state._replace(Z=Z)

    def fitted_means(self, state: FeatureState) -> FeatureState:
        """The state with the least squares means."""
        return state._replace(A=np.linalg.lstsq(state.Z, self.X)[0])

    def fitted_weights(self, state: FeatureState) -> FeatureState:
        """The state with its weights fitted to its features."""
        if self.margin is None:
            return state
        y, appended, cost, ell, nu = self.margin
        inputs = np.column_stack([state.Z, appended])
        if not inputs.size:
            return state
        found = crammer_singer(
            inputs, y, 2 * cost * nu**2, num_classes=len(state.eta), ell=ell, alpha=state.alpha, tol=self.gap,
            max_iter=SWEEPS,
        )  # fmt: skip
        return state._replace(eta=found.alpha.T @ inputs, alpha=found.alpha)

    def updates(self) -> Iterator[tuple[str, FeatureState]]:
        for k in range(len(self.state.A)):
            yield "entries", self.entered(self.state, k)
        yield "entries", self.state.occupied()
        yield "means", self.fitted_means(self.state)
        yield "weights", self.fitted_weights(self.state)

    # ----- Updates of the number of features

    def relaxed(self, state: FeatureState) -> FeatureState:
        """The state after a few rounds of entries and means, by which it is judged."""
        for _ in range(ROUNDS):
            for k in range(len(state.A)):
                state = self.entered(state, k)
            state = self.fitted_means(state.occupied())
        return state

    def deaths(self) -> Iterable[FeatureState]:
        """States with a feature less, those with the least to say first."""
        state = self.state
        for k in np.argsort(state.Z.sum(axis=0) * np.sum(state.A**2, axis=1)):
            yield self.fitted_weights(self.relaxed(state.without(k)))

    def births(self) -> Iterable[FeatureState]:
        """States with a feature more, in the order of what is left of the data."""
        state = self.state
        residual = self.X - state.Z @ state.A
        squares = np.sum(residual**2, axis=1)
        for i in np.argsort(-squares, kind="stable")[:BIRTHS]:
            if squares[i] == 0:
                return
            mean = residual[i]
            for _ in range(ROUNDS):  # those it helps, and their mean
                members = 2 * residual @ mean > mean @ mean
                mean = residual[members].mean(axis=0) if members.any() else mean
            members = 2 * residual @ mean > mean @ mean
            yield FeatureState(
                np.column_stack([state.Z, members]),
                np.concatenate([state.A, mean[None]]),
                np.insert(state.eta, len(state.A), 0.0, axis=1),
                state.alpha,
            )

    def exchanges(self) -> Iterable[FeatureState]:
        """States where a feature gives up what another one has: data with the first then have both."""
        state = self.state
        for k, j in itertools.permutations(range(len(state.A)), 2):
            Z, A, eta = state.Z.copy(), state.A.copy(), state.eta.copy()
            Z[:, j] = np.maximum(Z[:, j], Z[:, k])
            A[k] -= A[j]
            eta[:, k] -= eta[:, j]
            yield self.relaxed(FeatureState(Z, A, eta, state.alpha))

    def renumber(self) -> bool:
        """The same; of births the best."""
        if any(self.accept("death", state) for state in self.deaths()):
            return True
        births = list(self.births())
        if self.rng is not None and births:
            births = [births[self.rng.integers(len(births))], *births]
        else:
            births = [min(births, key=self.value)] if births else []
        if any(self.accept("birth", state) for state in births):
            return True
        return any(self.accept("exchange", state) for state in self.exchanges())


def features_of(X: Array, A: Array) -> Array:
    """(n, K) features of data given means alone: the best of all, or if there are many, improved entry by entry.

    >>> features_of(np.array([[1.0, 2.1], [0.1, 2.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    if 0 < len(A) <= EXACT:
        codes = np.array(list(itertools.product([0.0, 1.0], repeat=len(A))))
        sums = codes @ A
        best = [np.argmin(np.sum(sums**2, axis=1) - 2 * sums @ x) for x in X]
        return codes[best]
    Z, rows, norms = np.zeros((len(X), len(A))), np.arange(len(X)), np.sum(A**2, axis=1)
    for _ in range(ENTRIES if len(A) else 0):
        # |r - t a|^2 - |r|^2 with t = 1 where the entry is 0, and -1 where it is 1.
        price = norms - 2 * (1 - 2 * Z) * ((X - Z @ A) @ A.T)
        k = np.argmin(price, axis=1)
        better = price[rows, k] < -1e-12 * norms[k]
        if not better.any():
            break
        Z[rows[better], k[better]] = 1 - Z[rows[better], k[better]]
    return Z


@dataclass(eq=False, repr=False)
class FeatureMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both estimators share."""

    penalty: float | None = None
    _: KW_ONLY
    max_features: int | None = None
    n_init: int = 4
    max_iter: int = 300
    tol: float = 1e-4
    random_state: Any = None

    def _check(self) -> None:
        counts = ["max_iter", "n_init", "max_features"]
        optional = ["penalty", "max_features"]
        check_settings(self, positive=["penalty"], counts=counts, nonnegative=["tol"], optional=optional)

    def _descend(
        self, X: Array, weight: float = 1.0, margin: FeatureMargin | None = None, num_classes: int = 0
    ) -> FeatureState:
        """Fit, from no features, and set the attributes that both estimators have."""
        n, d = X.shape
        squares = weight * np.sum(X**2)
        self.penalty_ = self.penalty if self.penalty is not None else max(SHARE * squares, np.finfo(float).tiny)
        e = 0 if margin is None else margin.appended.shape[1]
        start = FeatureState(np.zeros((n, 0)), np.zeros((0, d)), np.zeros((num_classes, e)), np.zeros((n, num_classes)))
        settings = (self.penalty_, weight, margin, self.max_features or np.inf, max(self.tol / 10, 1e-8))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        runs = []
        with _single_thread():
            for rng in [None, *np.random.default_rng(seed).spawn(self.n_init - 1)]:
                descent = FeatureDescent(X, start, *settings, rng, **getattr(self, "_private", {}))
                runs.append((descent, *descent.run(self.max_iter, self.tol)))
        descent, self.n_iter_, converged = min(runs, key=lambda run: run[0].objective)
        self.feature_means_, self.features_ = descent.state.A, descent.state.Z
        self.num_features_ = self._n_features_out = len(descent.state.A)
        self.objective_, self.overflow_ = np.array(descent.trace), descent.overflow
        warn_of_end(self, converged, "max_features" * descent.overflow, stacklevel=4)
        return descent.state

    def transform(self, X):
        """(n, K) features of data, zeros and ones: those that explain them best, labels not seen."""
        check_is_fitted(self)
        return features_of(validate_data(self, X, reset=False, dtype=np.float64), self.feature_means_)

    def inverse_transform(self, Z):
        """(n, d) what features (n, K) add up to."""
        check_is_fitted(self)
        return np.asarray(Z, float) @ self.feature_means_


@dataclass(eq=False, repr=False)
class LatentFeatureMeans(FeatureMeans):
    """BP-means: data as sums of binary features, their number learned.

    The minimum of ``sum_n |x_n - sum_k z_nk A_k|^2 + penalty K``.

    :param penalty: ``lambda``, the price of a feature; if None, a twentieth of the data's squares.
    :param max_features: the most features, None for no limit.
    :param n_init: descents, of which the best is kept: the first takes the best birth each time, others random ones.
    :param max_iter: the most iterations.
    :param tol: settle when an iteration lowers the objective by ``tol`` of it or less.
    :param random_state: picks the random births.

    Attributes: ``feature_means_`` (K, d); ``features_`` (n, K), of the data it was fitted to; ``num_features_``;
    ``penalty_``; ``objective_``, the objective after every single update, never increasing; ``n_iter_``;
    ``overflow_``, whether ``max_features`` kept a feature from being born; ``n_features_in_``.

    >>> import numpy as np
    >>> from regbayes.inference.limits import LatentFeatureMeans
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    >>> model = LatentFeatureMeans(penalty=0.5, random_state=0).fit(X)
    >>> model.num_features_
    2
    >>> (model.inverse_transform(model.transform(X)).round(1) + 0.0).tolist()
    [[1.0, 0.0], [0.0, 2.0], [1.0, 2.0], [0.0, 0.0]]
    """

    def fit(self, X, y=None):
        """Fit to ``X`` (n, d); ``y`` is ignored."""
        self._check()
        self._descend(validate_data(self, X, dtype=np.float64))
        return self


@dataclass(eq=False, repr=False)
class MaxMarginFeatureMeans(ScoreClassifier, FeatureMeans):
    """Binary features that explain data and divide their classes, their number learned.

    The minimum of ``reconstruction_weight sum_n |x_n - sum_k z_nk A_k|^2 + penalty K + sum_y |eta_y|^2/(2
    prior_scale^2) + 2 cost sum_n loss_n`` with Crammer and Singer's loss. A new datum's features are those that
    explain it, so what divides classes and explains little is lost on it; the inputs, which the classifier sees
    too unless told otherwise, make up for that.

    :param penalty: ``lambda``, the price of a feature; if None, a twentieth of what the data cost without features.
    :param reconstruction_weight: ``s``.
    :param cost: ``c``, the weight of the margin's loss.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param extra_features: let the classifier see the inputs beside the features.
    :param fit_intercept: append a constant 1 to its inputs, with the prior of the other weights.
    :param max_features: it and the others as for :class:`LatentFeatureMeans`.

    Attributes: those of :class:`LatentFeatureMeans`; ``classes_``; ``coef_`` (L, K), of the features;
    ``input_coef_`` (L, d), of the inputs if they are seen; ``intercept_`` (L,).

    >>> import numpy as np
    >>> from regbayes.inference.limits import MaxMarginFeatureMeans
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.1], [0.0, 0.1]])
    >>> y = np.array(["a", "b", "a", "b"])
    >>> model = MaxMarginFeatureMeans(0.5, prior_scale=10.0, random_state=0).fit(X, y)
    >>> model.predict([[1.1, 1.9], [0.1, 2.1]]).tolist()
    ['a', 'b']
    """

    reconstruction_weight: float = 1.0
    cost: float = 1.0
    ell: float = 1.0
    prior_scale: float = 1.0
    extra_features: bool = True
    fit_intercept: bool = True

    def fit(self, X, y):
        """Fit to ``X`` (n, d) and labels ``y`` (n,)."""
        self._check()
        check_settings(self, positive=["reconstruction_weight", "cost", "ell", "prior_scale"])
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, y = encode_labels(y)
        margin = FeatureMargin(y, self._appended(X), self.cost, self.ell, self.prior_scale)
        state = self._descend(X, self.reconstruction_weight, margin, len(self.classes_))
        K, d = self.num_features_, X.shape[1] * bool(self.extra_features)
        self.coef_, self.input_coef_ = state.eta[:, :K], state.eta[:, K : K + d]
        self.intercept_ = state.eta[:, -1] if self.fit_intercept else np.zeros(len(state.eta))
        return self

    def decision_function(self, X):
        """Scores: (n,), positive for ``classes_[1]``, or (n, L)."""
        Z = self.transform(X)
        scores = Z @ self.coef_.T + self.intercept_
        if self.extra_features:
            scores += validate_data(self, X, reset=False, dtype=np.float64) @ self.input_coef_.T
        return two_class(scores)

    def _appended(self, X: Array) -> Array:
        """(n, e) what stands behind the features in the classifier's inputs."""
        return np.column_stack(
            [X[:, : X.shape[1] * bool(self.extra_features)], np.ones((len(X), int(self.fit_intercept)))]
        )
