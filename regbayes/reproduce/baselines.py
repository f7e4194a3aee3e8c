"""What the papers compare with, and posteriors, as scikit-learn estimators."""

import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import inference
from ..commands.common import entry_of
from ..diagnostics import point_estimate
from ..models import TruncatedPoisson

__all__ = ["ClusterThenClassify", "PosteriorClassifier", "PosteriorClustering"]


@dataclass(eq=False, repr=False)
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

    cluster: Any = None
    classifier: Any = None

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
    :param num_chains: chains, one after the other.
    :param random_state: seed of the draws.
    :param options: hyper-parameters of the program, which a search may change like any other parameter; the slots of
        its buffer, ``max_clusters``, are doubled until they suffice.

    Attributes: ``classes_``; ``draws_``, site -> draws of all chains; ``max_clusters_``, that sufficed;
    ``n_features_in_``.

    >>> from regbayes.datasets import make_m2dpm_setting1
    >>> X, y, truth = make_m2dpm_setting1(80, 2)
    >>> model = PosteriorClassifier("isvm", num_warmup=5, num_samples=6, num_chains=2, max_clusters=40)
    >>> model.set_params(concentration=2.0).fit(X, y).predict(X[:5]).shape, model.draws_["z"].shape
    ((5,), (12, 80))
    """

    def __init__(
        self, program="isvm", kernel=None, num_warmup=200, num_samples=200, num_chains=1, random_state=None, **options
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
        self.draws_, self.max_clusters_ = draws_of(
            self.program,
            self.kernel,
            (X, y.astype(np.int32)),
            {**self.options, "num_classes": len(self.classes_)},
            max_clusters=self.options.get("max_clusters"),
            seed=check_random_state(self.random_state).randint(2**31),
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            num_chains=self.num_chains,
        )
        return self

    def predict(self, X):
        """Labels (n,), by the draws' averaged discriminant."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32)
        predict = getattr(inference, f"{self.program}_predict")
        return self.classes_[np.asarray(predict(self.draws_, X, **self.options).y)]


def draws_of(
    program: str, kernel: str | None, data: tuple, settings: dict[str, Any], *, max_clusters: int | None, **run: Any
) -> tuple[dict[str, np.ndarray], int]:
    """A posterior's draws, all chains in one row, and the slots that sufficed: doubled until they do."""
    entry = entry_of(program)
    make = entry.kernels[list(entry.kernels)[-1] if kernel is None else kernel]
    max_clusters = max_clusters or inspect.signature(entry.program).parameters["max_clusters"].default
    while True:
        try:
            draws = inference.draw_chains(
                make(), data, {**settings, "max_clusters": max_clusters}, progress=False, **run
            )
        except inference.BufferFull:
            max_clusters *= 2
        else:
            return {site: np.concatenate(values) for site, values in draws.sites.items()}, max_clusters


@dataclass(eq=False, repr=False)
class PosteriorClustering(ClusterMixin, BaseEstimator):
    """A Gaussian mixture of the zoo as a clustering: draws, then the partition nearest to them.

    The concentration and the components' prior have the priors of *Robust Bayesian max-margin clustering* (section
    6.1), for standardised features. A margin that is not given is tuned during the warm-up
    (:func:`~regbayes.inference.sampled.tune_margin`).

    :param program: the model's name in the zoo, "dpgmm" or "dpmmgm".
    :param n_clusters: how many clusters the margin is tuned for; None for as many as ``dpgmm`` has.
    :param cost: ``c`` of a margin that is given, from where the mixture without one has led; so is ``ell``.
    :param ell: the margin.
    :param max_strength: of a margin that is tuned, the largest ``cost * ell``.
    :param num_tuning: sweeps that tune the margin, or without one if it is given.
    :param num_warmup: sweeps before the draws, with the margin fixed.
    :param num_samples: draws.
    :param prior_scale: of the margin's weights.
    :param max_clusters: slots of the buffer, doubled until they suffice.
    :param random_state: seed of the draws.

    Attributes: ``labels_``; ``draws_``, site -> draws; ``cost_`` and ``ell_``, of a margin; ``max_clusters_``, that
    sufficed; ``n_features_in_``.

    >>> from regbayes.datasets import make_half_rings
    >>> X, y = make_half_rings(60)
    >>> model = PosteriorClustering("dpgmm", num_warmup=10, num_samples=10, max_clusters=16, random_state=0).fit(X)
    >>> model.labels_.shape, model.draws_["z"].shape
    ((60,), (10, 60))
    """

    program: str = "dpgmm"
    n_clusters: int | None = None
    cost: float | None = None
    ell: float | None = None
    max_strength: float = 2.0
    num_tuning: int = 600
    num_warmup: int = 100
    num_samples: int = 100
    prior_scale: float = 0.1
    max_clusters: int = 32
    random_state: Any = None

    def fit(self, X, y=None):
        """Draw from the posterior given ``X`` (n, d)."""
        X = validate_data(self, X, dtype=np.float32)
        seed, self.max_clusters_ = check_random_state(self.random_state).randint(2**31), self.max_clusters
        priors = gaussian_priors(X.shape[1])
        lengths = {"num_warmup": self.num_warmup, "num_samples": self.num_samples}
        if self.program == "dpmmgm":
            self.cost_, self.ell_, lengths["init_params"] = self._margin(X, seed, priors)
            priors |= {"prior_scale": self.prior_scale, "cost": self.cost_, "ell": self.ell_}
        self.draws_ = self._draw(self.program, X, seed, priors, **lengths)
        self.labels_ = point_estimate(self.draws_["z"]).labels
        return self

    def _draw(self, program: str, X: np.ndarray, seed: int, settings: dict[str, Any], **run: Any) -> dict:
        run = {"max_clusters": self.max_clusters_, "seed": seed, "num_chains": 1, **run}
        draws, self.max_clusters_ = draws_of(program, "collapsed", (X,), settings, **run)
        return draws

    def _margin(self, X: np.ndarray, seed: int, priors: dict[str, Any]) -> tuple[float, float | None, Any]:
        """``c``, ``ell`` and where the chain starts."""
        if self.cost is not None:
            draws = self._draw("dpgmm", X, seed, priors, num_warmup=self.num_tuning, num_samples=1)
            return self.cost, self.ell, {"z": draws["z"][-1]}
        while True:
            tuned = inference.tune_margin(
                X,
                num_clusters=self.n_clusters,
                num_sweeps=self.num_tuning,
                max_strength=self.max_strength,
                seed=seed,
                max_clusters=self.max_clusters_,
                prior_scale=self.prior_scale,
                **priors,
            )
            if not tuned.overflow:
                return tuned.cost, tuned.ell, tuned.init_params
            self.max_clusters_ *= 2


def gaussian_priors(d: int) -> dict[str, dist.Distribution]:
    """Of the concentration, ``r``, ``nu`` and ``S`` for standardised features."""
    return {
        "concentration": dist.Gamma(1.0, 1.0),
        "prior_count": dist.Gamma(1.0, 1.0),
        "degrees_of_freedom": TruncatedPoisson(d + 2.0, d, d + 100),
        "scatter": dist.InverseWishart(d + 2.0, scale_matrix=jnp.eye(d)),
    }
