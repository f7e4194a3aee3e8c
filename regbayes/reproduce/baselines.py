"""What the papers compare with, and posteriors, as scikit-learn classifiers."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax, random
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import inference, zoo

__all__ = ["ClusterThenClassify", "PosteriorClassifier"]


class ClusterThenClassify(ClassifierMixin, BaseEstimator):
    """Cluster the inputs, blind to the labels, then learn a classifier in each cluster: the decoupled pipeline.

    A cluster whose data are of one class predicts that class.

    :param cluster: an estimator with ``fit``, ``labels_`` and ``predict``; ``KMeans()`` if None.
    :param classifier: a classifier; ``LinearSVC(dual=False)`` if None.

    Attributes: ``classes_``; ``cluster_``, fitted; ``classifiers_``, cluster -> fitted classifier, or the label that
    the cluster predicts; ``n_features_in_``.

    >>> from sklearn.cluster import KMeans
    >>> from regbayes.datasets import make_m2dpm_setting2
    >>> X, y, truth = make_m2dpm_setting2(2000, 2, 3)
    >>> model = ClusterThenClassify(KMeans(3, random_state=0)).fit(X, y)
    >>> len(model.classifiers_), bool(model.score(X, y) > 0.5)
    (3, True)
    """

    def __init__(self, cluster=None, classifier=None):
        self.cluster = cluster
        self.classifier = classifier

    def fit(self, X, y):
        """Fit to ``X`` (n, d) and labels ``y`` (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self.cluster_ = clone(KMeans() if self.cluster is None else self.cluster).fit(X)
        classifier = LinearSVC(dual=False) if self.classifier is None else self.classifier
        z = self.cluster_.labels_
        self.classifiers_ = {k: _fit_rows(classifier, X[z == k], y[z == k]) for k in np.unique(z).tolist()}
        return self

    def predict(self, X):
        """Labels (n,), each from the classifier of its cluster."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        z = self.cluster_.predict(X)
        y = np.empty(len(X), self.classes_.dtype)
        for k in np.unique(z).tolist():
            model, rows = self.classifiers_[k], z == k
            y[rows] = model.predict(X[rows]) if isinstance(model, BaseEstimator) else model
        return y


def _fit_rows(classifier: Any, X: np.ndarray, y: np.ndarray) -> Any:
    """The classifier of one cluster, or its only label."""
    if len(np.unique(y)) < 2:
        return y[0]
    with warnings.catch_warnings():  # a small cluster may have few data of each class
        warnings.filterwarnings("ignore", "The number of unique classes")
        return clone(classifier).fit(X, y)


class PosteriorClassifier(ClassifierMixin, BaseEstimator):
    """A program of the zoo as a classifier: draws from its posterior, then predicts from the draws.

    Fits to data of one shape compile once: numbers among the options are traced, words and whole numbers are not.

    :param program: the model's name in the zoo, "isvm" or "dpmnl".
    :param kernel: the kernel's name there; None for the recommended one.
    :param num_warmup: sweeps before the draws.
    :param num_samples: draws of each chain.
    :param num_chains: chains, all at once.
    :param random_state: seed of the draws.
    :param options: hyper-parameters of the program, which a search may change like any other parameter.

    Attributes: ``classes_``; ``draws_``, site -> draws of all chains; ``n_features_in_``.

    >>> from regbayes.datasets import make_m2dpm_setting1
    >>> X, y, truth = make_m2dpm_setting1(100, 2)
    >>> model = PosteriorClassifier("isvm", num_warmup=10, num_samples=10, random_state=0, variance=0.25).fit(X, y)
    >>> model.predict(X[:5]).shape, model.draws_["z"].shape
    ((5,), (10, 100))
    """

    def __init__(
        self,
        program="isvm",
        kernel=None,
        num_warmup=200,
        num_samples=200,
        num_chains=1,
        random_state=None,
        **options,
    ):
        self.program = program
        self.kernel = kernel
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.num_chains = num_chains
        self.random_state = random_state
        self.options = options

    def get_params(self, deep=True):
        """The parameters, hyper-parameters of the program among them."""
        return {**super().get_params(deep), **self.options}

    def set_params(self, **params):
        """Change parameters; names unknown to the class are hyper-parameters of the program."""
        own = {key: value for key, value in params.items() if key in self._get_param_names()}
        self.options = {**self.options, **{key: value for key, value in params.items() if key not in own}}
        return super().set_params(**own)

    def fit(self, X, y):
        """Draw from the posterior given ``X`` (n, d) and labels ``y`` (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, y = np.unique(y, return_inverse=True)
        traced = {key: value for key, value in self.options.items() if isinstance(value, float)}
        bound = {key: value for key, value in self.options.items() if key not in traced}
        bound["num_classes"] = len(self.classes_)
        draw = _sampler(self.program, self.kernel, self.num_warmup, self.num_samples, tuple(sorted(bound.items())))
        seed = check_random_state(self.random_state).randint(2**31)
        draws, overflow = draw(random.split(random.key(seed), self.num_chains), X, y.astype(np.int32), traced)
        if np.any(overflow):
            raise ValueError("max_clusters is too small for these data: the posterior needs more; raise max_clusters")
        self.draws_ = {site: np.concatenate(values) for site, values in draws.items()}
        return self

    def predict(self, X):
        """Labels (n,), by the draws' averaged discriminant."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32)
        predict = getattr(inference, f"{self.program}_predict")
        return self.classes_[np.asarray(predict(self.draws_, X, **self.options).y)]


@functools.lru_cache(maxsize=64)
def _sampler(program: str, kernel: str | None, num_warmup: int, num_samples: int, bound: tuple) -> Callable:
    """``draw(keys, X, y, options)``: every chain's draws and whether a buffer was full.

    One function for all fits of the same structure, with the data as arguments: ``MCMC`` compiles at each run.
    """
    entry = zoo.ENTRIES[program]
    make = entry.kernels[list(entry.kernels)[-1] if kernel is None else kernel]
    moves = make(functools.partial(entry.program, **dict(bound)))

    def draw(key, X, y, options):
        def sweep(state, _):
            state = moves.sample(state, (X, y), options)
            return state, state.z

        state = moves.init(key, num_warmup, None, (X, y), options)
        state = lax.fori_loop(0, num_warmup, lambda _, state: moves.sample(state, (X, y), options), state)
        state, draws = lax.scan(sweep, state, None, length=num_samples)
        return draws, state.overflow

    return jax.jit(jax.vmap(draw, (0, None, None, None)))
