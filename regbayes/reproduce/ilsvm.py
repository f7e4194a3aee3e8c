"""The experiments of *Bayesian inference with posterior regularization and applications to infinite latent
SVMs* (J. Zhu, N. Chen and E. P. Xing, JMLR 2014)."""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score, r2_score
from sklearn.model_selection import KFold, ParameterGrid
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVC

from .. import datasets
from ..inference.mean_field import ILSVM, MTILSVM
from .experiment import ACCURACY, F1, SECONDS, Experiment, Method, Metric, Options, Rows, evaluate, paper
from .figure import dots, lines
from .m2dpm import on_standardised

FAST_NUM_DATA = 400
FINALISTS = 4  # hyper-parameters that all folds decide between


def mt(loss: str, **fixed: Any) -> Callable[[int], MTILSVM]:
    """A multi-task infinite latent SVM of at most 50 features."""
    return lambda seed: MTILSVM(truncation=50, loss=loss, random_state=seed, **fixed)


def choose(method: Method, seed: int, options: Options, folds: list, score: Callable[..., float]) -> dict[str, Any]:
    """The hyper-parameters with the best mean score over the folds, of those that do best in the first."""
    estimator, candidates = method.estimator(seed, options.fast), list(ParameterGrid(method.candidates(options.fast)))
    if len(candidates) == 1:
        return candidates[0]

    def scores(candidates: list, folds: list) -> np.ndarray:
        tasks = [(clone(estimator).set_params(**candidate), fold) for candidate in candidates for fold in folds]
        found = Parallel(options.n_jobs)(delayed(score)(model, *fold) for model, fold in tasks)
        return np.reshape(found, (len(candidates), -1))

    first = scores(candidates, folds[:1])
    best = np.argsort(-first[:, 0], kind="stable")[:FINALISTS]
    finalists = [candidates[i] for i in best]
    return finalists[int(np.argmax(np.mean(np.column_stack([first[best], scores(finalists, folds[1:])]), axis=1)))]


# ----- Table 1: pictures

PICTURES = {"Segment (for TRECVID2003)": ("segment", 1078), "Satimage (for Flickr)": ("satimage", 3411)}


def pictures_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """As many random rows as the paper has, half of them to learn from."""
    name, size = PICTURES[setting]
    data = datasets.load(name, options.data_home)
    rows = np.random.default_rng(seed).permutation(len(data.X))[: FAST_NUM_DATA if options.fast else size]
    X, y = data.X[rows][:, data.X[rows].std(0) > 0].astype(float), data.y[rows]
    half = len(rows) // 2
    return evaluate(method, Rows(X[:half], y[:half]), Rows(X[half:], y[half:]), seed, options)


def latent(**fixed: Any) -> Method:
    """An infinite latent SVM of at most 30 features."""
    make = on_standardised(lambda seed: ILSVM(truncation=30, random_state=seed, **fixed))
    return Method(make, {"ilsvm__C": [1.0, 10.0], "ilsvm__noise_scale": [0.3, 0.6]})


TABLE1 = Experiment(
    title="infinite latent SVMs on features of pictures, in place of data that are not public any more",
    duration=("1 hour", "2 minutes"),
    settings=tuple(PICTURES),
    methods={
        "Linear-SVM": Method(on_standardised(lambda seed: LinearSVC(dual=False)), {"linearsvc__C": [0.01, 0.1, 1.0]}),
        "IBP+SVM": latent(coupled=False),
        "iLSVM": latent(),
    },
    metrics={"accuracy": ACCURACY, "f1": F1, "seconds": SECONDS},
    cell=pictures_cell,
    num_seeds=(5, 1),
    notes=(
        "TRECVID2003 and the Flickr animals are not public any more. The paper's accuracies there are 55.3 and 50.0 %",
        "for IBP+SVM, 56.3 and 53.3 % for iLSVM; they have nothing to stand beside. Segment and Satimage, real-valued",
        "features of pictures too, stand in, with as many rows as the paper's data have, half of them to learn from.",
        "Hyper-parameters by 5-fold cross-validation, as in the paper. F1 is the mean over the classes.",
        "A linear SVM of the inputs is far better than either.",
    ),
    compare=(("iLSVM", "IBP+SVM"),),
)


# ----- Table 2: several labels each


class OneForEach(BaseEstimator):
    """A linear SVM for each label, of the squared hinge."""

    def __init__(self, C=1.0, class_weight=None):
        self.C = C
        self.class_weight = class_weight

    def fit(self, X, Y, X_unlabelled=None):
        """Fit to ``X`` (n, d) and labels ``Y`` (n, M)."""
        machine = LinearSVC(C=self.C, class_weight=self.class_weight, dual=False)
        self.machines_ = [clone(machine).fit(X, y) if np.ptp(y) else y[0] for y in Y.T]
        return self

    def predict(self, X):
        """Labels (n, M)."""
        return np.stack(
            [m.predict(X) if isinstance(m, LinearSVC) else np.full(len(X), m) for m in self.machines_], axis=1
        )


class Everything(BaseEstimator):
    """Every label, whatever the inputs."""

    def fit(self, X, Y, X_unlabelled=None):
        """Count the labels of ``Y`` (n, M)."""
        self.num_labels_ = Y.shape[1]
        return self

    def predict(self, X):
        """Labels (n, M)."""
        return np.ones((len(X), self.num_labels_), int)


def labels_data(setting: str, options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Standardised inputs and labels of the official parts."""
    data = datasets.load(setting.lower(), options.data_home)
    train, test = np.flatnonzero(data.train), np.flatnonzero(~data.train)
    if options.fast:
        rng = np.random.default_rng(0)  # rows may be in the order of their labels
        train, test = rng.permutation(train)[:FAST_NUM_DATA], rng.permutation(test)[:FAST_NUM_DATA]
    scaler = StandardScaler().fit(data.X[train].astype(float))
    X = scaler.transform(data.X.astype(float))
    return X[train], data.y[train], X[test], data.y[test]


def labels_accuracy(model: Any, X: np.ndarray, Y: np.ndarray, new: np.ndarray, truth: np.ndarray) -> float:
    """The share of labels right on other data, whose inputs are known beforehand."""
    with warnings.catch_warnings():  # some of the grid is a bad choice, to be found out
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(np.mean(model.fit(X, Y, X_unlabelled=new).predict(new) == truth))


def labels_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """A random start, and random folds of the training part, on the official parts."""
    X, Y, new, truth = labels_data(setting, options)
    split = KFold(options.num_folds, shuffle=True, random_state=seed).split(X)
    folds = [(X[fit], Y[fit], X[rest], Y[rest]) for fit, rest in split]
    chosen = choose(method, seed, options, folds, labels_accuracy)
    model = method.estimator(seed, options.fast).set_params(**chosen)
    start = time.perf_counter()
    found = model.fit(X, Y, X_unlabelled=new).predict(new)
    seconds = time.perf_counter() - start
    rest = {"features": len(model.active_features_)} if isinstance(model, MTILSVM) else {}
    return {
        "accuracy": float(np.mean(found == truth)),
        "micro": f1_score(truth, found, average="micro", zero_division=0),
        "macro": f1_score(truth, found, average="macro", zero_division=0),
        "seconds": seconds,
        "chosen": chosen,
        **rest,
    }


LABELS_GRID = {
    "C": [0.3, 1.0, 3.0],
    "noise_scale": [0.25, 0.5, 1.0],
    "prior_scale": [0.03, 0.1],
    "intercept_scaling": [1.0, 10.0],
}
SVM_GRID = {"C": [0.0003, 0.001, 0.003, 0.01, 0.03]}
TABLE2 = Experiment(
    title="infinite latent SVMs: several labels each, treated as tasks",
    duration=("1 hour", "2 minutes"),
    settings=("Yeast", "Scene"),
    methods={
        "every label": Method(lambda seed: Everything()),
        "SVMs, balanced": Method(lambda seed: OneForEach(class_weight="balanced"), SVM_GRID),
        "SVMs": Method(lambda seed: OneForEach(), SVM_GRID),
        "MT-IBP+SVM": Method(mt("hinge", coupled=False), LABELS_GRID),
        "MT-iLSVM": Method(mt("hinge"), LABELS_GRID),
    },
    metrics={
        "accuracy": Metric("accuracy", 4),
        "micro": Metric("F1-micro", 4),
        "macro": Metric("F1-macro", 4),
        "features": Metric("features", 1),
        "seconds": SECONDS,
    },
    cell=labels_cell,
    paper=paper(
        ("accuracy", "micro", "macro"),
        ("MT-IBP+SVM", "MT-iLSVM"),
        {
            "Yeast": "0.5475 0.005 0.3910 0.006 0.4345 0.007, 0.5792 0.003 0.4258 0.005 0.4742 0.008",
            "Scene": "0.8590 0.002 0.4880 0.012 0.5147 0.018, 0.8752 0.004 0.5834 0.026 0.6148 0.020",
        },
    ),
    num_seeds=(5, 1),
    notes=(
        "A seed is a random start with random folds. Inputs are standardised by the training part; those of the test",
        "part, or of the fold left out, join the likelihood. Hyper-parameters are chosen for each seed by the accuracy",
        "in folds of the training part, between the four best of the first fold, from the same values for MT-IBP+SVM",
        "and MT-iLSVM.",
        "Accuracy is the share of all labels of all rows that are right, 1 less the Hamming loss: the only definition",
        "that agrees with the paper's F1. Exact rows are 0.16 of Yeast for linear SVMs, and rows' mean Jaccard index,",
        "0.50 for them at F1-micro 0.64, cannot be 0.58 at 0.43 or 0.47. By it the paper's accuracy on Yeast is below",
        "that of no label at all, 0.70: its classifiers name many labels. So do SVMs with balanced classes, and every",
        "label everywhere has the paper's F1. Rare labels, which an unweighted hinge seldom names, weigh most in",
        "F1-macro: what it lacks here is a matter of thresholds. All controls have F1-micro above F1-macro on Yeast,",
        "the paper's five methods the reverse, and its text names macro first: its headings are likely exchanged.",
    ),
    compare=(("MT-iLSVM", "MT-IBP+SVM"),),
)


# ----- Figure 7: schools


class OneSchoolEach(BaseEstimator):
    """An estimator of its own for each task."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y, task):
        """Fit to ``X`` (n, d), numbers ``y`` (n,) and their tasks (n,)."""
        self.estimators_ = {m: clone(self.estimator).fit(X[task == m], y[task == m]) for m in np.unique(task).tolist()}
        return self

    def predict(self, X, task):
        """Numbers (n,)."""
        found = np.empty(len(X))
        for m in np.unique(task).tolist():
            found[task == m] = self.estimators_[m].predict(X[task == m])
        return found


def school_data(options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs without the constant, scores, schools and the splits' training parts."""
    data = datasets.load("school", options.data_home)
    rows = data.task < (20 if options.fast else np.inf)
    X = data.X[:, np.ptp(data.X, axis=0) > 0]
    return X[rows].astype(float), data.y[rows].astype(float), data.task[rows].astype(int), data.train_splits[:, rows]


def explained(model: Any, X: np.ndarray, y: np.ndarray, task: np.ndarray, fit: np.ndarray, rest: np.ndarray) -> float:
    """The percentage of the variance of the other part's scores that is explained; standardised by the first part."""
    scaler, mean, sd = StandardScaler().fit(X[fit]), y[fit].mean(), y[fit].std()
    with warnings.catch_warnings():  # some of the grid is a bad choice, to be found out
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaler.transform(X[fit]), (y[fit] - mean) / sd, task[fit])
    return 100 * r2_score(y[rest], mean + sd * model.predict(scaler.transform(X[rest]), task[rest]))


def school_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """A split, with folds of its training part."""
    X, y, task, splits = school_data(options)
    fit = splits[seed]
    train = np.flatnonzero(fit)
    split = KFold(options.num_folds, shuffle=True, random_state=seed).split(train)
    folds = [(X, y, task, train[inner], train[rest]) for inner, rest in split]
    chosen = choose(method, seed, options, folds, explained)
    model = method.estimator(seed, options.fast).set_params(**chosen)
    start = time.perf_counter()
    score = explained(model, X, y, task, fit, ~fit)
    rest = {"features": len(model.active_features_)} if isinstance(model, MTILSVM) else {}
    return {"explained": score, "seconds": time.perf_counter() - start, "chosen": chosen, **rest}


SCHOOL_GRID = {
    "C": [1.0, 3.0],
    "noise_scale": [0.5, 0.7],
    "prior_scale": [0.03, 0.1],
    "epsilon": [0.1, 0.5],
    "intercept_scaling": [1.0, 10.0],
}
SVR_GRID = {"estimator__C": [0.01, 0.03, 0.1, 0.3], "estimator__epsilon": [0.1, 0.5]}
FIG7 = Experiment(
    title="infinite latent SVMs: explained variance of examination scores in 139 schools",
    duration=("1 hour", "3 minutes"),
    settings=("School",),
    methods={
        "ridge, a school each": Method(
            lambda seed: OneSchoolEach(Ridge()), {"estimator__alpha": [3.0, 10.0, 30.0, 100.0]}
        ),
        "SVR, a school each": Method(lambda seed: OneSchoolEach(SVR(kernel="linear")), SVR_GRID),
        "MT-IBP+SVM": Method(mt("epsilon-insensitive", coupled=False), SCHOOL_GRID),
        "MT-IBP+SVM, inputs": Method(mt("epsilon-insensitive", coupled=False, extra_features=True), SCHOOL_GRID),
        "MT-iLSVM": Method(mt("epsilon-insensitive"), SCHOOL_GRID),
        "MT-iLSVM, inputs": Method(mt("epsilon-insensitive", extra_features=True), SCHOOL_GRID),
    },
    metrics={"explained": Metric("explained (%)", 2), "features": Metric("features", 1), "seconds": SECONDS},
    cell=school_cell,
    num_seeds=(10, 1),
    notes=(
        "A seed is a split of Argyriou, Evgeniou and Pontil's, 75% of each school to learn from. Explained variance is",
        "1 less the squared error of the test part over its variance. Figure 7 gives no numbers to set beside ours.",
        "Inputs and scores are standardised by the training part. Hyper-parameters are chosen for each split by the",
        "explained variance in folds of its training part, between the four best of the first fold, from the same",
        "values for all four multi-task methods.",
    ),
    compare=(("MT-iLSVM", "MT-IBP+SVM"), ("MT-iLSVM, inputs", "MT-IBP+SVM, inputs")),
    figure=partial(dots, metric="explained"),
)


# ----- Figures 8 and 9: sensitivity

YEAST = {"noise_scale": 0.25, "prior_scale": 0.1, "intercept_scaling": 10.0}
SCHOOL = {"C": 3.0, "noise_scale": 0.5, "prior_scale": 0.1, "epsilon": 0.5}
ALPHAS, COSTS, SHARES = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 0.3, 1.0, 3.0, 10.0), (50, 60, 70, 80, 90, 100)
NAMES = {"alpha": "concentration", "C": "C"}


def sensitivity_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """One hyper-parameter at a value, the others as they are mostly chosen for Table 2 and figure 7."""
    data, (name, value) = setting.split(": ")[0], setting.split(": ")[1].split("=")
    start = time.perf_counter()
    if data == "Yeast":
        model = mt("hinge", **YEAST)(seed).set_params(**{NAMES[name]: float(value)})
        score = 100 * labels_accuracy(model, *labels_data("Yeast", options))
    else:
        X, y, task, splits = school_data(options)
        model = mt("epsilon-insensitive", **SCHOOL)(seed).set_params(**{NAMES[name]: float(value)})
        score = explained(model, X, y, task, splits[seed], ~splits[seed])
    return {"score": score, "features": len(model.active_features_), "seconds": time.perf_counter() - start}


FIG8 = Experiment(
    title="infinite latent SVMs: how much the concentration and the cost matter",
    duration=("20 minutes", "1 minute"),
    settings=tuple(
        f"{data}: {name}={value}"
        for data in ("Yeast", "School")
        for name, values in (("alpha", ALPHAS), ("C", COSTS))
        for value in values
    ),
    methods={"MT-iLSVM": Method(mt("hinge"))},
    metrics={"score": Metric("accuracy, explained (%)", 2), "features": Metric("features", 1), "seconds": SECONDS},
    cell=sensitivity_cell,
    num_seeds=(5, 1),
    notes=(
        "Figure 8 gives no numbers to set beside ours. A seed is a random start on Yeast, a split on School. The",
        "hyper-parameters that stand still are those that folds of the training parts mostly choose for Table 2 and",
        "figure 7.",
    ),
    figure=partial(lines, metric="score"),
)


def training_size_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """The first rows of a split's training part, a share of each school's."""
    X, y, task, splits = school_data(options)
    share, fit = float(setting.split("=")[1].rstrip("%")) / 100, np.zeros(len(y), bool)
    for m in np.unique(task):
        rows = np.flatnonzero(splits[seed] & (task == m))
        fit[rows[: max(2, round(share * len(rows)))]] = True
    model = mt("epsilon-insensitive", **SCHOOL)(seed)
    start = time.perf_counter()
    score = explained(model, X, y, task, fit, ~splits[seed])
    return {"explained": score, "seconds": time.perf_counter() - start}


FIG9 = Experiment(
    title="infinite latent SVMs: how much the number of training rows matters",
    duration=("5 minutes", "1 minute"),
    settings=tuple(f"share of the training rows={share}%" for share in SHARES),
    methods={"MT-iLSVM": Method(mt("epsilon-insensitive"))},
    metrics={"explained": Metric("explained (%)", 2), "seconds": SECONDS},
    cell=training_size_cell,
    num_seeds=(10, 1),
    notes=(
        "Figure 9 gives no numbers to set beside ours. A seed is a split; of its training part the first rows of each",
        "school are used. Time: a fit and its predictions.",
    ),
    figure=partial(lines, metric="explained"),
)
