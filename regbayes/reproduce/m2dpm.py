"""The tables of *Small-variance asymptotics for Dirichlet process mixtures of SVMs* (Y. Wang and J. Zhu, AAAI 2015)."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid, StratifiedGroupKFold, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from .. import datasets, inference
from .baselines import ClusterThenClassify, PosteriorClassifier
from .experiment import ACCURACY, F1, SECONDS, Experiment, Method, Metric, Options, Rows, choose, evaluate, paper

TIME = "Time: one fit with the chosen hyper-parameters and the predictions, without compilation."

C = [0.01, 0.1, 1.0, 10.0]


def on_standardised(make: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same estimator on standardised features."""
    return lambda seed: make_pipeline(StandardScaler(), make(seed))


def rows(m2dpm: Method, gibbs: Method, dpmnl: Method, penalties: list[float | None]) -> dict[str, Method]:
    """The methods of the paper's tables in their order; those whose hyper-parameters depend on the data are given.

    :param penalties: of DP-means, in standardised features; None lets the inputs choose.
    """
    cluster, svm = "clusterthenclassify__cluster__", "clusterthenclassify__classifier__C"
    return {
        "Linear-SVM": Method(on_standardised(lambda seed: LinearSVC(dual=False)), {"linearsvc__C": C}),
        "RBF-SVM": Method(
            on_standardised(lambda seed: SVC()),
            {"svc__C": [0.3, 1.0, 10.0], "svc__gamma": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]},
        ),
        "MNL": Method(on_standardised(lambda seed: LogisticRegression(max_iter=1000)), {"logisticregression__C": C}),
        "dpMNL": dpmnl,
        "DP-means+SVM": Method(
            on_standardised(
                lambda seed: ClusterThenClassify(inference.DPMeans(random_state=seed), LinearSVC(dual=False))
            ),
            {f"{cluster}penalty": penalties, svm: C},
        ),
        "KMeans+SVM": Method(
            on_standardised(
                lambda seed: ClusterThenClassify(KMeans(n_init=3, random_state=seed), LinearSVC(dual=False))
            ),
            {f"{cluster}n_clusters": [2, 5, 10, 20], svm: C},
        ),
        "Gibbs-iSVM": gibbs,
        "M2DPM": m2dpm,
    }


def m2dpm(penalty: list, cost: list, prior_scale: list, **options: Any) -> Method:
    """M2DPM with hyper-parameters to search."""
    grid = {"m2dpm__penalty": penalty, "m2dpm__cost": cost, "m2dpm__prior_scale": prior_scale}
    return Method(on_standardised(lambda seed: inference.M2DPM(random_state=seed, **options)), grid)


def posterior(program: str, grid: dict[str, list], **options: Any) -> Method:
    """A posterior of the zoo: half a thousand sweeps, the first two fifths of them to forget the start."""
    draws = {"num_warmup": 200, "num_samples": 300, "max_clusters": 64}
    return Method(
        on_standardised(lambda seed: PosteriorClassifier(program, random_state=seed, **{**draws, **options})),
        {f"posteriorclassifier__{key}": values for key, values in grid.items()},
        fast={"posteriorclassifier__num_warmup": 50, "posteriorclassifier__num_samples": 50},
    )


# ----- Table 1: two synthetic settings

MAKERS: dict[str, Callable] = {"Setting I": datasets.make_m2dpm_setting1, "Setting II": datasets.make_m2dpm_setting2}
FAST_NUM_DATA = {"Setting I": 500, "Setting II": 2000}
NUM_SEARCH = 2000  # rows that choose hyper-parameters


def synthetic_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """A draw of the data, a random 80% of it to learn from."""
    size = {"num_data": FAST_NUM_DATA[setting]} if options.fast else {}
    X, y, truth = MAKERS[setting](seed=seed, **size)
    train, test = train_test_split(np.arange(len(X)), test_size=0.2, random_state=seed)
    if method is None:  # nothing to learn for who knows the truth
        return {"accuracy": 100 * float(np.mean(truth.bayes(X[test], truth.z[test]) == y[test]))}
    whole, held_out, few = Rows(X[train], y[train]), Rows(X[test], y[test]), train[:NUM_SEARCH]
    if len(few) < len(train) and method.grid:
        chosen = choose(method, Rows(X[few], y[few]), seed, options)
        method = replace(method, grid={key: [value] for key, value in chosen.items()})
    return evaluate(method, whole, held_out, seed, options)


TABLE1 = Experiment(
    title="test accuracy and time on synthetic data",
    duration=("2 hours", "1 minute"),
    settings=tuple(MAKERS),
    methods={
        **rows(
            m2dpm([None, 2.0, 5.0, 15.0], [0.01, 0.1], [5.0, 25.0]),
            posterior("isvm", {"variance": [0.01, 0.1, 0.3]}, cost=0.1, prior_scale=10.0),
            posterior("dpmnl", {"variance_scale": [0.02, 0.2]}, prior_scale=10.0),
            [None, 2.0, 5.0, 15.0],
        ),
        "Bayes": None,
    },
    metrics={"accuracy": ACCURACY, "seconds": SECONDS},
    cell=synthetic_cell,
    paper=paper(
        ("accuracy", "seconds"),
        ("Linear-SVM", "RBF-SVM", "MNL", "dpMNL", "DP-means+SVM", "Gibbs-iSVM", "M2DPM"),
        {
            "Setting I": (
                "66.4 6.9 0.1 0.0, 69.5 5.5 0.1 0.0, 66.2 7.2 0.2 0.0, 68.8 7.5 29.8 2.8, "
                "70.8 5.6 0.1 0.0, 70.9 4.9 4.2 0.1, 71.1 5.2 0.1 0.0"
            ),
            "Setting II": (
                "54.4 1.7 11.1 0.6, 65.5 1.2 14.3 0.2, 54.6 1.6 1.2 0.1, 54.6 1.8 126.2 11.0, "
                "58.9 1.4 2.4 0.8, 62.9 1.2 40.7 2.4, 64.4 1.2 3.6 1.4"
            ),
        },
    ),
    num_seeds=(5, 2),
    notes=(
        "A seed draws the data anew and learns from a random 80%; hyper-parameters by cross-validation in 2,000 of it.",
        "Bayes knows the clusters and classifiers that the data were drawn with: nobody does better on average.",
        TIME,
    ),
)

# ----- Table 2: how many clusters

SIZES = (100, 300, 1000, 3000, 10_000)


def clusters_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """The clusters found in the first rows of a sample of a Dirichlet process mixture, and those that are there."""
    n0 = int(setting.removeprefix("n0=").replace(",", ""))
    X, y, truth = datasets.make_m2dpm_dp(max(SIZES), seed=seed)
    times = []
    for _ in range(2):  # the first compiles
        start = time.perf_counter()
        fitted = method.estimator(seed, options.fast).fit(X[:n0], y[:n0])
        times.append(time.perf_counter() - start)
    true, found = len(np.unique(truth.z[:n0])), len(np.unique(fitted.labels_))
    close = 100.0 * (abs(true - found) <= 1)
    return {"true": true, "found": found, "close": close, "seconds": times[-1], "first_seconds": times[0]}


TABLE2 = Experiment(
    title="clusters in the first n0 rows of a Dirichlet process mixture, and those that M2DPM finds",
    duration=("2 minutes", "half a minute"),
    settings=tuple(f"n0={n0:,}" for n0 in SIZES),
    methods={"M2DPM": Method(lambda seed: inference.M2DPM(penalty=20.0, cost=0.1, random_state=seed))},
    metrics={
        "true": Metric("true K0", 1),
        "found": Metric("found K", 1),
        "close": Metric("within 1 (%)", 0),
        "seconds": SECONDS,
    },
    cell=clusters_cell,
    paper=paper(
        ("true", "found", "seconds"),
        ("M2DPM",),
        {
            "n0=100": "8 - 8 - 0.03 -",
            "n0=300": "9 - 8 - 0.07 -",
            "n0=1,000": "11 - 11 - 0.54 -",
            "n0=3,000": "13 - 12 - 0.91 -",
            "n0=10,000": "14 - 14 - 5.45 -",
        },
    ),
    notes=(
        "A seed draws 10,000 rows, of which the first n0 are used, with the same hyper-parameters for every n0.",
        "Time: one fit, without compilation.",
    ),
)


# ----- Table 3: protein folds


def protein_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """The official training and test part."""
    data = datasets.load("protein-fold", options.data_home)
    if "train" not in data:
        raise ValueError(f"{data.path} must tell the official training part (`train`); get another copy of the file")
    train, test = (Rows(data.X[rows], data.y[rows]) for rows in (data.train, ~data.train))
    subsets = {}
    if "protein_id" in data:
        domains = names_domain(data.protein_id[~data.train])
        subsets = {"chains": ~domains, "domains": domains}
    return {
        **evaluate(method, train, test, seed, options, subsets),
        "best": best_accuracy(method, train, test, seed, options),
        "rows": [len(train.y), len(test.y)],
    }


def names_domain(protein_id: np.ndarray) -> np.ndarray:
    """Whether an id of the test part names a domain of a chain: four characters of the protein, the chain, a number."""
    return np.char.str_len(protein_id) == 6


def best_accuracy(method: Method, train: Rows, test: Rows, seed: int, options: Options) -> float:
    """Accuracy on the test part in percent, of the hyper-parameters of the grid that do best there."""
    estimator, candidates = method.estimator(seed, options.fast), ParameterGrid(method.candidates(options.fast))
    with warnings.catch_warnings():  # some of the grid is a bad choice
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = (clone(estimator).set_params(**candidate).fit(train.X, train.y) for candidate in candidates)
        return 100 * max(fit.score(test.X, test.y) for fit in fits)


TABLE3 = Experiment(
    title="protein folds, 27 classes: accuracy and F1 on the official test part",
    duration=("6 hours", "20 minutes"),
    settings=("official split",),
    methods={
        **rows(
            m2dpm([None, 40.0, 150.0, 1000.0], [0.1, 1.0, 3.0], [0.1, 0.3], tol=1e-4, max_iter=1000),
            posterior("isvm", {"variance": [0.5, 1.0]}, cost=1.0, prior_scale=0.3),
            posterior("dpmnl", {"prior_scale": [0.3, 1.0]}),
            [None, 30.0, 100.0, 1000.0],
        ),
        "Extra trees": Method(
            lambda seed: ExtraTreesClassifier(500, random_state=seed), {"max_features": ["sqrt", 0.5]}
        ),
    },
    metrics={
        "accuracy": ACCURACY,
        "best": Metric("accuracy at best (%)", 1, own=True),
        "chains": Metric("accuracy, whole chains (%)", 1, own=True),
        "domains": Metric("accuracy, domains (%)", 1, own=True),
        "f1": F1,
        "seconds": SECONDS,
    },
    cell=protein_cell,
    paper=paper(
        ("accuracy", "f1", "seconds"),
        ("MNL", "Linear-SVM", "RBF-SVM", "dpMNL", "DP-means+SVM", "Gibbs-iSVM", "M2DPM"),
        {
            "official split": (
                "50.0 - 41.2 - 2.9 -, 50.5 - 47.3 - 0.5 -, 53.1 - 49.5 - 1.6 -, 56.3 - 49.5 - 98.2 -, "
                "51.2 - 47.9 - 0.2 -, 55.8 - 50.1 - 223.4 -, 54.6 - 49.9 - 8.1 -"
            )
        },
    ),
    num_seeds=(3, 1),
    notes=(
        "Four of the paper's 698 proteins are missing from the public copy: 311 and 383 rows here, 313 and 385 there.",
        "The split is given: seeds differ in the folds of the cross-validation and in the methods' own randomness.",
        "F1 is the mean over classes.",
        "Accuracy at best: with the hyper-parameters of the grid that do best on the test part itself, which was",
        "looked at when the grid of M2DPM was widened (what the folds choose stayed the same). M2DPM does not reach",
        "the paper's accuracy, nor does any method here, at best neither: scikit-learn's classifiers are below",
        "their own numbers too, and extra trees, the best of all, below M2DPM's. Known to be wrong are the public",
        "copies, whose features were computed anew from sequences. An id may name a domain of a chain, counted in",
        "the order in which a classification of folds lists them; the copies' sequences are cut in the order along",
        "the chain. So many domains, of both parts, have the features of another: the test part's 3RUBL1, a TIM",
        "barrel, those of the training part's ferredoxin-like 3RUB1, and 1CDG_1, immunoglobulin-like, those of the",
        "catalytic barrel of its enzyme. On rows of the test part whose id names a whole chain the accuracies are",
        "near the paper's for all of it, on domains far below. How much of that is the mistake, and how much that",
        "domains are harder, nobody can tell without the original features; the paper has no numbers for the two",
        "apart.",
        TIME,
    ),
)

# ----- Table 4: Parkinson's disease

NUM_FOLDS = 5
PROTOCOLS = ("by recording", "by speaker")
PAPER_S = "M2DPM, paper's choice"


def parkinsons_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """Five folds of the recordings, or of the speakers; means over the folds."""
    data = datasets.load("parkinsons", options.data_home)
    groups = None
    if setting == "by speaker":
        if "subject" not in data:
            return {"skipped": f"{data.path} does not tell the speakers (`subject`)"}
        groups = data.subject
    folds: Any = StratifiedKFold if groups is None else StratifiedGroupKFold
    results = []
    for split in folds(NUM_FOLDS, shuffle=True, random_state=seed).split(data.X, data.y, groups):
        train, test = (Rows(data.X[i], data.y[i], None if groups is None else groups[i]) for i in split)
        results.append(evaluate(method, train, test, seed, options))
    means = {key: float(np.mean([result[key] for result in results])) for key in ("accuracy", "f1", "seconds")}
    return {**means, "folds": results}


def papers_choice(seed: int) -> inference.M2DPM:
    """The hyper-parameters the paper chose on the whole set."""
    return inference.M2DPM(penalty=150.0, clustering_weight=0.01, cost=2.5, random_state=seed)


TABLE4 = Experiment(
    title="Parkinson's disease: accuracy and F1 by 5-fold cross-validation",
    duration=("1 hour", "1 minute"),
    settings=PROTOCOLS,
    methods={
        **rows(
            m2dpm([None, 3.0, 10.0, 30.0], [0.01, 0.1, 1.0], [0.3, 5.0]),
            posterior("isvm", {"variance": [0.1, 0.5], "prior_scale": [1.0, 5.0]}, cost=1.0),
            posterior("dpmnl", {"prior_scale": [1.0, 5.0]}),
            [None, 3.0, 10.0, 30.0],
        ),
        PAPER_S: Method(on_standardised(papers_choice)),
    },
    metrics={"accuracy": ACCURACY, "f1": F1, "seconds": SECONDS},
    cell=parkinsons_cell,
    paper=paper(
        ("accuracy", "f1", "seconds"),
        ("MNL", "Linear-SVM", "RBF-SVM", "dpMNL", "DP-means+SVM", "Gibbs-iSVM", "M2DPM", PAPER_S),
        {
            "by recording": (
                "85.6 2.2 79.1 2.8 0.1 0.0, 87.2 2.3 80.6 2.8 0.1 0.0, 87.2 2.7 79.9 3.2 0.1 0.0, "
                "87.7 3.3 82.6 2.5 22.2 1.4, 86.2 2.1 78.9 3.4 0.1 0.0, 88.9 1.5 85.1 1.3 1.8 0.0, "
                "88.7 2.9 82.4 4.8 0.1 0.0, 88.7 2.9 82.4 4.8 0.1 0.0"
            )
        },
    ),
    num_seeds=(3, 1),
    notes=(
        "The paper splits the 195 recordings, so that most of the 32 speakers are on both sides; by speaker, none is.",
        "A seed is a split into five folds; its numbers are means over them, and the spread is over seeds.",
        "Hyper-parameters are chosen inside each training part. The paper chose its lambda = 150, s = 0.01, nu = 1 and",
        "c = 2.5 on the whole set; the last row has them, on standardised features.",
        "F1 is the mean over the classes.",
        TIME,
    ),
)

# ----- Table 5: groups of patients

GROUPS = ("Group I", "Group II", "Group III", "Group IV", "Group V")
AGES, STAGES = (65.9, 67.0, 65.3, 77.0, 65.4), (1.74, 1.71, 1.30, 2.3, 1.50)


def groups_cell(setting: str, method: Method, seed: int, options: Options) -> dict[str, Any]:
    """One of the clusters of all recordings, the largest first."""
    data = datasets.load("parkinsons", options.data_home)
    model = method.estimator(seed, options.fast).fit(data.X, data.y)
    labels = (model[-1] if isinstance(model, Pipeline) else model).labels_
    sizes, rank = np.bincount(labels), GROUPS.index(setting)
    if rank >= len(sizes):
        return {"groups": len(sizes)}
    mine = labels == np.argsort(-sizes, kind="stable")[rank]
    speakers = {"speakers": len(np.unique(data.subject[mine]))} if "subject" in data else {}
    return {
        "groups": len(sizes),
        "recordings": int(mine.sum()),
        **speakers,
        "disease": 100 * float(np.mean(data.y[mine] == data.y.max())),
    }


TABLE5 = Experiment(
    title="Parkinson's disease: the groups of recordings that M2DPM finds",
    duration=("1 minute", "1 minute"),
    settings=GROUPS,
    methods={"standardised": Method(on_standardised(papers_choice)), "as measured": Method(papers_choice)},
    metrics={
        "groups": Metric("groups", 1),
        "recordings": Metric("recordings", 1),
        "speakers": Metric("speakers", 1),
        "disease": Metric("with the disease (%)", 1),
        "age": Metric("age", 1),
        "stage": Metric("stage (0-4)", 2),
    },
    cell=groups_cell,
    paper=paper(
        ("age", "stage"),
        ("as measured",),
        {group: f"{age} - {stage} -" for group, age, stage in zip(GROUPS, AGES, STAGES, strict=True)},
    ),
    num_seeds=(5, 1),
    notes=(
        "M2DPM with the paper's hyper-parameters; the five largest groups by their size, not in the paper's order.",
        "The paper finds five and does not tell its features' scale: standardised, all are one; as measured, groups",
        "are many.",
        "Ages and stages are not in the public file (the paper cites them from a table of Little et al.), so those two",
        "columns cannot be run again: what the file tells of the groups stands instead.",
    ),
)
