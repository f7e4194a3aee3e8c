"""MedLDA by mean field, as an estimator; its objective is in :mod:`.medlda_descent`."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from ..limits.estimator import check_settings, encode_labels, labels_at, two_class, warn_of_end
from .medlda_descent import Classes, MedLDADescent, Responses, TopicSettings, infer

Array = np.ndarray


def check_documents(estimator, X, y="no_validation", reset=True, **options):
    """``X`` as CSR counts (D, V) without stored zeros, and ``y`` where there is one; some document has a word."""
    found = validate_data(estimator, X, y, reset=reset, accept_sparse="csr", dtype=np.float64, **options)
    X, *y = found if isinstance(found, tuple) else (found,)
    check_non_negative(X, f"X, the counts of words given to {type(estimator).__name__}")
    X = scipy.sparse.csr_matrix(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    if reset and X.nnz == 0:
        raise ValueError(f"X has {X.shape[0]} documents without any word: pass at least one with words.")
    return X, *y


class TopicEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An estimator of topics from counts of words, dense or CSR."""

    components_: Array
    coef_: Array
    classes_: Array

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def top_words(self, vocabulary, n=10):
        """The ``n`` likeliest words of each topic, from ``vocabulary`` (V,)."""
        check_is_fitted(self)
        topics = self.components_
        if len(vocabulary) != topics.shape[1]:
            raise ValueError(
                f"vocabulary has {len(vocabulary)} words, the topics have {topics.shape[1]}: pass a word for each "
                "column of X."
            )
        return [[vocabulary[w] for w in np.argsort(-topic, kind="stable")[:n]] for topic in topics]


@dataclass(eq=False, repr=False)
class SupervisedTopics(TopicEstimator):
    """What estimators share that predict from shares of topics: ``task``, ``transform``, ``coef_``, ``components_``."""

    task: str = "classification"
    num_topics: int = 20
    _: KW_ONLY
    ell: float = 1.0
    epsilon: float = 0.1
    prior_scale: float = 0.1
    alpha: float = 1.0
    beta: float = 0.1
    max_iter: int = 100
    tol: float = 1e-4
    random_state: Any = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # Lengths of documents tell nothing: two columns are one feature.
        if self.task == "regression":
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(poor_score=True)
        return tags

    @available_if(lambda self: self.task != "regression")
    def decision_function(self, X):
        """Scores of a classification: (n,), positive for ``classes_[1]``, for two classes; (n, L) for more."""
        return two_class(self.transform(X) @ self.coef_.T)

    def predict(self, X):
        """Labels or responses (n,)."""
        check_is_fitted(self)
        if self.task == "regression":
            return self.transform(X) @ self.coef_
        return labels_at(self.classes_, self.decision_function(X))

    def score(self, X, y):
        """The share of labels that are right, or the coefficient of determination of responses."""
        return (r2_score if self.task == "regression" else accuracy_score)(y, self.predict(X))

    def _check(self, *positive: str) -> None:
        """Check the shared settings, and others that must be positive."""
        positive = ("ell", "prior_scale", "alpha", "beta", *positive)
        check_settings(self, positive=positive, counts=["num_topics", "max_iter"], nonnegative=["epsilon", "tol"])

    def _margin(self, X, y) -> tuple[scipy.sparse.csr_matrix, Classes | Responses]:
        """The documents, and the loss of their labels or responses."""
        if self.task not in ("classification", "regression"):
            raise ValueError(f"task={self.task!r}: task must be 'classification' or 'regression'.")
        X, y = check_documents(self, X, y, y_numeric=self.task == "regression")
        if self.task == "regression":
            return X, Responses(np.asarray(y, float), float(self.epsilon))
        self.classes_, y = encode_labels(y)
        return X, Classes(y, float(self.ell), len(self.classes_))


@dataclass(eq=False, repr=False)
class MedLDA(SupervisedTopics):
    """Topics that tell classes apart, or predict a response: a maximum-margin supervised topic model, by mean field.

    Latent Dirichlet allocation and a linear machine on documents' shares of topics, found together: the minimum of
    ``KL(q || p(., D)) + C sum_d loss_d``, where the loss is that of the averaged classifier. The objective, and how it
    differs from that of the program ``medlda`` and its kernels, is in ``mean_field/medlda_descent.py``.

    A word feels the margin by ``C`` times a difference of weights over the length of its document: documents of more
    words need a larger ``C``. A small ``prior_scale`` asks documents to differ more in their topics for a margin.

    :param task: "classification", or "regression" for real responses, about standardised.
    :param num_topics: ``T``.
    :param C: the weight of the margin; the program's ``cost`` is half of it.
    :param ell: the margin of a classification.
    :param epsilon: half the width of the tube of a regression.
    :param prior_scale: ``nu``, the prior standard deviation of each weight.
    :param alpha: total mass of the Dirichlet prior of a document's topics.
    :param beta: of the topics' Dirichlet prior; small for topics of few words.
    :param max_iter: the most iterations over all updates.
    :param tol: stop when an iteration lowers the objective by ``tol`` of it or less.
    :param dual_tol: the relative duality gap of the weights at the end.
    :param random_state: seed of the topics to start from.

    Attributes: ``components_`` (T, V), the topics' expected probabilities of words; ``coef_``, the expected weights,
    (L, T) or, for regression, (T,); ``classes_``; ``shares_`` (D, T), the training documents' shares of topics given
    their labels; ``objective_``, the objective after every update, never increasing; ``n_iter_``; ``n_features_in_``.

    ``X`` holds counts of words, or weights of them: 0 or more, dense or CSR. Documents without words score 0.

    >>> from regbayes.datasets import make_corpus
    >>> from regbayes.inference.mean_field import MedLDA
    >>> X, y, _ = make_corpus(90, 40, 6, 3, seed=1)
    >>> model = MedLDA(num_topics=6, C=30.0, random_state=0).fit(X[:60], y[:60])
    >>> model.transform(X[60:]).shape, model.score(X[60:], y[60:]) > 0.8
    ((30, 6), True)
    >>> len(model.top_words([f"word {w}" for w in range(40)], 5)[0])
    5
    """

    C: float = 50.0
    _: KW_ONLY
    dual_tol: float = 1e-4

    def fit(self, X, y):
        """Fit to counts ``X`` (D, V) and labels or responses ``y`` (D,)."""
        self._check("C", "dual_tol")
        X, margin = self._margin(X, y)
        T, (_, V) = self.num_topics, X.shape
        noise = check_random_state(self.random_state).gamma(100.0, 0.01, size=(T, V))
        fit = MedLDADescent(
            X,
            margin,
            TopicSettings(self.alpha / T, float(self.beta), float(self.C), float(self.prior_scale)),
            self.beta + X.sum() / (T * V) * noise,
            **getattr(self, "_private", {}),
        ).run(self.max_iter, self.tol, self.dual_tol)
        self._topics = fit.topics
        self._n_features_out = T
        self.components_ = fit.topics.held / np.sum(fit.topics.held, axis=1, keepdims=True)
        self.coef_ = fit.mu if self.task == "classification" else fit.mu[0]
        self.shares_ = fit.shares
        self.objective_ = np.array(fit.trace)
        self.n_iter_ = fit.n_iter
        warn_of_end(self, fit.converged)
        return self

    def transform(self, X):
        """(n, T) expected shares of topics in documents, whose labels are not known; zeros without words."""
        check_is_fitted(self)
        (X,) = check_documents(self, X, reset=False)
        return infer(X, self._topics, self.alpha / self.num_topics)
