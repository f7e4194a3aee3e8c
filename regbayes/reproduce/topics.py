"""Table 2 of *Robust Bayesian max-margin clustering* (C. Chen, J. Zhu and X. Zhang, NIPS 2014): documents."""

import time
import warnings
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jax import random
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from .. import datasets, inference
from ..models import tokens_of
from .baselines import sampler
from .experiment import SECONDS, Experiment, Method, Metric, Options
from .m2dpm import paper

LANDMARKS = (5, 10, 15, 20, 25)
DATA = {"20NEWS": "20news", "R8": "r8"}
FAST_NUM_DATA = 600
COSTS = (0.001, 0.01, 0.1, 1.0, 10.0)


class TopicClustering(ClassifierMixin, BaseEstimator):
    """A cluster-based topic model of the zoo as a semi-supervised classifier of documents.

    :param program: the model's name in the zoo, "ctm" or "mmctm".
    :param landmarks: whether the model knows the labels; if not, it clusters from a start at random, and labels only
        name its clusters, one class each.
    :param num_topics: ``T``.
    :param num_start: sweeps without a margin, from where those with one start.
    :param num_warmup: sweeps before the draws.
    :param num_samples: draws.
    :param random_state: seed of the draws.

    Attributes: ``classes_``; ``names_``, the classes of the clusters; ``draws_``, site -> draws; ``labels_``, those
    that most draws give the documents of the fit.

    >>> import numpy as np
    >>> from regbayes.datasets import make_corpus
    >>> X, y, truth = make_corpus(60, 40)
    >>> known = np.where(np.arange(60) < 15, y, -1)
    >>> model = TopicClustering("ctm", num_topics=5, num_warmup=20, num_samples=5, random_state=0).fit(X, known)
    >>> model.labels_.shape, model.predict(X[:7]).shape
    ((60,), (7,))
    """

    def __init__(
        self,
        program="ctm",
        landmarks=True,
        num_topics=50,
        num_start=0,
        num_warmup=50,
        num_samples=10,
        random_state=None,
    ):
        self.program = program
        self.landmarks = landmarks
        self.num_topics = num_topics
        self.num_start = num_start
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.random_state = random_state

    def fit(self, X, y):
        """Draw from the posterior given counts ``X`` (n, d) and labels ``y`` (n,), -1 where unknown."""
        y, rng = np.asarray(y), check_random_state(self.random_state)
        self.classes_ = np.unique(y[y >= 0])
        K, corpus = len(self.classes_), tokens_of(X)
        known = np.where(y < 0, -1, np.searchsorted(self.classes_, y)).astype(np.int32)
        bound = ("num_clusters", K), ("num_topics", self.num_topics)
        keys = random.split(random.key(rng.randint(2**31)), 2)
        data, start = (corpus, known if self.landmarks else None), None
        if not self.landmarks:
            y, z = rng.randint(K, size=(1, len(known))), rng.randint(self.num_topics, size=(1, corpus.num_tokens))
            start = {"y": y.astype(np.int32), "z": z.astype(np.int32)}
        if self.num_start:
            draws, _ = sampler("ctm", "collapsed", self.num_start, 1, bound)(keys[:1], start, data, {})
            start = jax.tree.map(lambda values: values[:, -1], draws)
        draw = sampler(self.program, "collapsed", self.num_warmup, self.num_samples, bound)
        draws = {site: np.asarray(values[0]) for site, values in draw(keys[1:], start, data, {})[0].items()}
        labels = np.argmax([np.sum(draws["y"] == k, axis=0) for k in range(K)], axis=0)
        self.names_ = self.classes_ if self.landmarks else self.classes_[_matched(labels, known)]
        self.labels_ = self.names_[labels]
        self.draws_ = {site: values for site, values in draws.items() if site not in ("y", "z")}
        return self

    def predict(self, X):
        """Labels (n,) of new documents, sampled given each draw of topics, clusters and weights."""
        predict = getattr(inference, f"{self.program}_predict")
        return self.names_[np.asarray(predict(self.draws_, X).y)]


def _matched(clusters: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The class of each cluster, all different, that most of the labelled documents agree with."""
    shared = np.zeros((known.max() + 1,) * 2)
    np.add.at(shared, (clusters[known >= 0], known[known >= 0]), 1)
    return linear_sum_assignment(shared, maximize=True)[1]


class KnownOnly(ClassifierMixin, BaseEstimator):
    """A classifier that learns from the labelled rows alone, its cost by cross-validation among them.

    :param classifier: with a parameter ``C``.
    :param costs: to choose from.

    >>> import numpy as np
    >>> model = KnownOnly(LinearSVC(), costs=(1.0,)).fit(np.eye(8), np.array([0, 1, 0, 1, 0, 1, -1, -1]))
    >>> model.predict(np.eye(8)).shape
    (8,)
    """

    def __init__(self, classifier=None, costs=COSTS):
        self.classifier = classifier
        self.costs = costs

    def fit(self, X, y):
        """Fit to the rows whose label is not -1."""
        X, y = X[y >= 0], y[y >= 0]
        folds = StratifiedKFold(min(5, np.bincount(y).min()), shuffle=True, random_state=0)
        self.search_ = GridSearchCV(self.classifier, {"C": list(self.costs)}, cv=folds).fit(X, y)
        self.classes_ = self.search_.classes_
        return self

    def predict(self, X):
        """Labels (n,)."""
        return self.search_.predict(X)


class SelfTrainedSVM(ClassifierMixin, BaseEstimator):
    """A linear SVM that takes its surest predictions for labels, in rounds; its cost is that of the labelled rows.

    :param costs: to choose from.

    >>> import numpy as np
    >>> model = SelfTrainedSVM(costs=(1.0,)).fit(np.eye(8), np.array([0, 1, 0, 1, 0, 1, -1, -1]))
    >>> model.predict(np.eye(8)).shape
    (8,)
    """

    def __init__(self, costs=COSTS):
        self.costs = costs

    def fit(self, X, y):
        """Fit to labels ``y`` (n,), -1 where unknown."""
        C = KnownOnly(LinearSVC(), self.costs).fit(X, y).search_.best_params_["C"]
        folds = StratifiedKFold(min(5, np.bincount(y[y >= 0]).min()), shuffle=True, random_state=0)
        surest = max(1, int(np.sum(y < 0)) // 10)
        self.model_ = SelfTrainingClassifier(
            CalibratedClassifierCV(LinearSVC(C=C), cv=folds, ensemble=False), criterion="k_best", k_best=surest
        ).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        """Labels (n,)."""
        return self.model_.predict(X)


def documents_cell(setting: str, method: Method | None, seed: int, options: Options) -> dict[str, Any]:
    """Accuracy on a fifth of the documents, after seeing the others and the labels of a few in each class."""
    assert method is not None
    name, num_landmarks = setting.split(", L=")
    data = datasets.load(DATA[name], options.data_home)
    X, y = scipy.sparse.csr_matrix(data.X), np.asarray(data.y)
    if options.fast:
        X, _, y, _ = train_test_split(X, y, train_size=FAST_NUM_DATA, stratify=y, random_state=seed)
    split = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    X_train, X_test, y_train, y_test = split
    rng, known = np.random.default_rng(seed), np.full(len(y_train), -1)
    for k in np.unique(y):
        rows = np.flatnonzero(y_train == k)
        rows = rng.choice(rows, size=min(int(num_landmarks), len(rows)), replace=False)
        known[rows] = k
    model = method.estimator(seed, options.fast)
    start = time.perf_counter()
    with warnings.catch_warnings():  # some of the costs are bad choices, to be found out
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X_train, known)
    found = model.predict(X_test)
    seconds = time.perf_counter() - start
    within = model.labels_ if hasattr(model, "labels_") else model.predict(X_train)
    unknown = known < 0
    return {
        "accuracy": 100 * float(np.mean(found == y_test)),
        "training": 100 * float(np.mean(within[unknown] == y_train[unknown])),
        "seconds": seconds,
    }


FAST = {"num_topics": 20, "num_warmup": 10, "num_samples": 2}
METHODS = {
    "CTM": Method(lambda seed: TopicClustering("ctm", random_state=seed), fast=FAST),
    "CTM, no landmarks": Method(lambda seed: TopicClustering("ctm", landmarks=False, random_state=seed), fast=FAST),
    "SVM": Method(lambda seed: KnownOnly(LinearSVC(loss="hinge", max_iter=10_000, random_state=seed))),
    "self-training SVM": Method(lambda seed: SelfTrainedSVM()),
    "MMCTM": Method(
        lambda seed: TopicClustering("mmctm", num_start=50, num_warmup=30, random_state=seed),
        fast={**FAST, "num_start": 10},
    ),
}

COLUMNS = {"CTM": 0, "CTM, no landmarks": 0, "SVM": 1, "self-training SVM": 2, "MMCTM": 3}
PAPER = {
    "20NEWS": {
        5: (17.22, 4.2, 37.13, 2.9, 39.36, 3.2, 56.70, 1.9),
        10: (24.50, 4.5, 46.99, 2.4, 47.91, 2.8, 54.92, 1.6),
        15: (22.76, 4.2, 52.80, 1.2, 52.49, 1.4, 55.06, 2.7),
        20: (26.07, 7.2, 56.10, 1.5, 54.44, 2.1, 56.62, 2.2),
        25: (27.20, 1.5, 59.15, 1.4, 57.45, 1.7, 55.70, 2.4),
    },
    "R8": {
        5: (41.27, 16.7, 78.12, 1.1, 78.51, 2.3, 79.18, 4.1),
        10: (42.63, 7.4, 80.69, 1.2, 79.15, 1.2, 80.04, 5.3),
        15: (39.67, 9.9, 83.25, 1.7, 81.87, 0.8, 85.48, 2.1),
        20: (58.24, 8.3, 85.66, 1.0, 73.95, 2.0, 82.92, 1.7),
        25: (51.93, 5.9, 84.95, 0.1, 82.39, 1.8, 86.56, 2.5),
    },
}

TABLE2 = Experiment(
    title="documents clustered with a few labels in each class",
    duration=("8 hours", "10 minutes"),
    settings=tuple(f"{name}, L={num}" for name in DATA for num in LANDMARKS),
    methods=METHODS,
    metrics={
        "accuracy": Metric("accuracy (%)", 1, marked=True),
        "training": Metric("on the unlabelled of the fit", 1),
        "seconds": SECONDS,
    },
    cell=documents_cell,
    paper=paper(
        ("accuracy",),
        {
            (f"{name}, L={num}", method): row[2 * m : 2 * m + 2]
            for name, rows in PAPER.items()
            for num, row in rows.items()
            for method, m in COLUMNS.items()
        },
    ),
    num_seeds=(5, 1),
    notes=(
        "L documents of each class are labelled, 80% of all are seen, accuracy is on the other 20%.",
        "The paper's third row is a transductive SVM; ours takes its surest tenth for labels, in rounds.",
        "MMCTM starts where 50 sweeps of CTM end, as in the paper; CTM by naive Bayes from the landmarks.",
        "Without landmarks CTM starts at random, and labelled documents only name its clusters. The paper does not say",
        "what its CTM knew; its numbers, below the half of R8 that is one class, are those of one that knew none.",
        "With landmarks CTM does about as well as MMCTM: topics adapt until nearly all documents keep their margin,",
        "and what is left of the loss moves few labels. The posterior is not at its best at the classes: on R8 a start",
        "at random reaches a higher log joint with other clusters, so accuracy falls slowly while a chain runs on.",
    ),
    compare=(("MMCTM", "CTM"), ("MMCTM", "CTM, no landmarks"), ("MMCTM", "SVM")),
    side_by_side=True,
)
