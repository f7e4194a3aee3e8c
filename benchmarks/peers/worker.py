"""Fit the peers in an environment of their own: one JSON request per line in, one JSON answer per line out.

The task "load" reads an ``.npz`` file with ``X``, and for pipelines ``y``, ``X_test`` and ``y_test``; the others fit to
it and answer with the seconds that took. Run by the benchmarks as
``.venv-peers/bin/python benchmarks/peers/worker.py``.
"""

import json
import sys
import time
import warnings

import numpy as np
from pdc_dp_means import DPMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC


def dp_means(X, penalty, seed):
    """DP-means alone from one cluster; ``delta`` is a squared distance, like our penalty."""
    return DPMeans(n_clusters=1, n_init=1, delta=penalty, random_state=seed).fit(X)


def pipeline(X, y, penalty, seed):
    """DP-means, then a linear SVM in each cluster that has both classes."""
    clusters = dp_means(X, penalty, seed)
    experts = {}
    for k in np.unique(clusters.labels_):
        rows = clusters.labels_ == k
        one = len(np.unique(y[rows])) < 2
        experts[k] = y[rows][0] if one else LinearSVC(dual=False, random_state=seed).fit(X[rows], y[rows])
    return clusters, experts


def accuracy(clusters, experts, X, y):
    z = clusters.predict(X)
    hits = 0
    for k in np.unique(z):
        expert = experts[k]
        hits += np.sum(y[z == k] == (expert.predict(X[z == k]) if isinstance(expert, LinearSVC) else expert))
    return hits / len(y)


def answer(request, data):
    X = data["X"]
    start = time.perf_counter()
    if request["task"] == "load":
        return {}
    if request["task"] == "dp-means":
        clusters = dp_means(X, request["penalty"], request["seed"])
        return {"seconds": time.perf_counter() - start, "centres": clusters.cluster_centers_.tolist()}
    clusters, experts = pipeline(X, data["y"], request["penalty"], request["seed"])
    seconds = time.perf_counter() - start
    score = accuracy(clusters, experts, data["X_test"], data["y_test"])
    return {"seconds": seconds, "accuracy": float(score), "num_clusters": len(clusters.cluster_centers_)}


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # The released build cannot look for empty clusters with this scikit-learn and prints a traceback at every
    # iteration, which is not its fault to pay for; it goes on as if there were none.
    sys.excepthook = sys.unraisablehook = lambda *_: None
    data = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["task"] == "load":
            with np.load(request["path"]) as file:
                data = {name: file[name] for name in file.files}
        print(json.dumps(answer(request, data)), flush=True)


if __name__ == "__main__":
    main()
