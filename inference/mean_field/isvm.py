"""The infinite SVM by truncated mean field, as an estimator; its objective is in :mod:`.isvm_equations`."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ...models.laws.families import family
from ..limits.estimator import (
    ScoreClassifier,
    check_number,
    check_settings,
    check_weight,
    encode_labels,
    split_intercept,
    two_class,
    warn_of_end,
)
from .features import FeatureSpace
from .isvm_descent import Inputs, MixtureDescent
from .isvm_equations import MixtureSettings, prior_logits, softmax

Array = np.ndarray

STARTS = (1, 2, 3, 5, 8, 13, 21, 34)  # components of the k-means that fits start from
ROUGH_ITER, ROUGH_TOL = 8, 5e-3  # of the fits from all starts, before the best goes on; the latter times 1 + C_2
SUPPORT = 1e-3  # of C_1: the least multiplier of a support vector


@dataclass(eq=False, repr=False)
class InfiniteSVM(ScoreClassifier, BaseEstimator):
    """A Dirichlet process mixture of support vector machines, linear or with kernels, by mean field.

    Every component has a law of the inputs and a classifier with the scores ``s_t(y) = mu_t . f(y, x)``; the label is
    that of the weighted vote ``F(y, x) = sum_t phi_t(x) s_t(y)``. The objective is in ``mean_field/isvm_equations.py``.
    Two classes have a single weight vector with the hinge ``max(0, ell - y f)``, like the program ``isvm``; the paper's
    pair of vectors is the same model with ``prior_scale`` larger by the root of 2.

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

    truncation: int = 20
    C1: float = 1.0
    C2: float = 64.0
    kernel: Any = "linear"
    gamma: float | str = "scale"
    coupling: str = "relaxed"
    likelihood: str = "gaussian"
    concentration: float = 1.0
    ell: Any = 1.0
    prior_scale: float = 1.0
    fit_intercept: bool = True
    variance: float = 1.0
    prior_mean: Any = None
    prior_count: float | None = None
    max_iter: int = 300
    tol: float = 1e-4
    dual_tol: float = 1e-6
    n_init: int = 1
    mass_threshold: float = 0.01
    random_state: Any = None

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
        if self.kernel == "precomputed" and len(X) != X.shape[1]:
            raise ValueError(f"X has shape {X.shape}: with kernel='precomputed' it must be square, a Gram matrix.")
        weight = check_weight(sample_weight, X)
        self.classes_, y = encode_labels(y, weight)
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
        self._features = FeatureSpace(
            self.kernel, X, weight, first, gamma=self.gamma, intercept=self.fit_intercept, scale=self._weight_variance()
        )
        inputs = Inputs(self._features.inputs(X), self.kernel != "linear")
        Z = self._features.coordinates(X)
        hyper = self._hyper(Z)
        observe = getattr(self, "_private", {}).get("observe")
        rough_tol = ROUGH_TOL * (1 + self.C2)
        best: MixtureDescent | None = None
        for phi in self._starts(Z, weight):
            fit = MixtureDescent(Z, inputs, y, weight, ell, self.coupling, hyper, phi, observe)
            fit.mix()  # while the classifiers are 0: k-means is no mixture
            fit.run(min(ROUGH_ITER, self.max_iter), max(rough_tol, self.tol), max(1e-3, self.dual_tol))
            if best is None or fit.objective < best.objective:
                best = fit
        assert best is not None
        self._keep(best.run(self.max_iter, self.tol, self.dual_tol))
        self.responsibilities_ = self._responsibilities(everything)
        self.responsibilities_[rows] = best.phi[inverse]
        self.support_ = [rows[held[inverse]] for held in self._support(best)]
        warn_of_end(self, best.converged)
        return self

    def responsibilities(self, X):
        """``phi`` (n, T) of new inputs, whose labels are not known: (11) without the margin."""
        check_is_fitted(self)
        return self._responsibilities(validate_data(self, X, reset=False, dtype=np.float64))

    def decision_function(self, X):
        """The weighted vote (5): (n,), positive for ``classes_[1]``, for two classes; (n, L) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        phi, inputs = self._responsibilities(X), self._features.inputs(X)
        scores = np.einsum("nt,tnl->nl", phi[:, self._used], inputs @ self._weights)
        return two_class(scores)

    def _check(self) -> None:
        positive = ["C1", "C2", "concentration", "prior_scale", "variance", "dual_tol", "prior_count"]
        counts, least = ["truncation", "max_iter", "n_init"], ["tol", "mass_threshold"]
        check_settings(self, positive=positive, counts=counts, nonnegative=least, optional=["prior_count"])
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

    def _weight_variance(self) -> float:
        """Two classes share one vector: a pair of them, ``w`` and ``-w``, has twice its square."""
        return self.prior_scale**2 * (0.5 if len(self.classes_) == 2 else 1.0)

    def _hyper(self, Z: Array) -> MixtureSettings:
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
        return MixtureSettings(self.C1, self.C2, self.concentration, self.variance, tau, count, self.likelihood)

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

    def _keep(self, fit: MixtureDescent) -> None:
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
            eta = np.zeros((T, L, p))
            eta[self._used] = np.sqrt(self._weight_variance()) * self._weights.transpose(0, 2, 1)
            eta = eta[:, 1] - eta[:, 0] if L == 2 else eta
            self.coef_, self.intercept_ = split_intercept(eta, self.fit_intercept)

    @staticmethod
    def _support(fit: MixtureDescent) -> Array:
        """(T, n) whether a datum has a multiplier to speak of."""
        return np.max(np.abs(fit.coef), axis=2) > SUPPORT * fit.hyper.C1 * fit.weight

    def _responsibilities(self, X: Array) -> Array:
        Z = self._features.coordinates(X)
        family(self.likelihood).check(self.likelihood, Z)
        return softmax(prior_logits(self._q, Z, self._hyper_))
