"""Race a multi-task infinite latent SVM against scikit-learn's linear SVMs, one for each label, after a truncated SVD.

Yeast's training part, 1,500 x 103 with 14 labels, standardised. Theirs is a ``TruncatedSVD`` of as many components as
we have features and 14 ``LinearSVC`` on the inputs; ours a whole fit until its objective settles. Interleaved in one
run after compilation, one thread; the best of several rounds counts. The bar is a ratio of 5. Prints a table and writes
``bench/ilsvm.json``.

    python benchmarks/ilsvm.py [--data-home DIR] [--truncation 50] [--rounds 5] [--num-data 1500] [--out bench]
"""

import argparse
import os
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import races
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from regbayes.datasets import load
from regbayes.inference.mean_field import MTILSVM

BAR = 5.0


def theirs(X, Y, args):
    TruncatedSVD(args.truncation, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [LinearSVC(C=args.C, random_state=0).fit(X, y) for y in Y.T]


def ours(X, Y, args):
    model = MTILSVM(args.truncation, C=args.C, noise_scale=0.5, prior_scale=0.1, random_state=0)
    return model.fit(X, Y)


def timed(run, *args):
    start = time.perf_counter()
    found = run(*args)
    return time.perf_counter() - start, found


def main(args: argparse.Namespace) -> None:
    data = load("yeast", args.data_home)
    X, Y = data.X[data.train][: args.num_data].astype(np.float64), data.y[data.train][: args.num_data]
    scaler = StandardScaler().fit(X)
    X, new, truth = scaler.transform(X), scaler.transform(data.X[~data.train]), data.y[~data.train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        MTILSVM(3, max_iter=2).fit(X[:50], Y[:50])  # compiles
    times: dict[str, list[float]] = {"LinearSVC + TruncatedSVD": [], "MTILSVM": []}
    for _ in range(args.rounds):
        seconds, machines = timed(theirs, X, Y, args)
        times["LinearSVC + TruncatedSVD"].append(seconds)
        seconds, model = timed(ours, X, Y, args)
        times["MTILSVM"].append(seconds)
    found = {
        "LinearSVC + TruncatedSVD": np.stack([machine.predict(new) for machine in machines], axis=1),
        "MTILSVM": model.predict(new),
    }
    low = {name: min(values) for name, values in times.items()}
    ratio = low["MTILSVM"] / low["LinearSVC + TruncatedSVD"]
    print(f"n={len(X)}, d={X.shape[1]}, {Y.shape[1]} labels, {args.truncation} features, best of {args.rounds}")
    print(f"{'':<28}{'seconds':>10}{'accuracy':>10}")
    for name, seconds in low.items():
        print(f"{name:<28}{seconds:>10.3f}{np.mean(found[name] == truth):>10.4f}")
    print(f"ratio {ratio:.2f} (bar {BAR:g}), {model.n_iter_} sweeps, {len(model.active_features_)} active features")
    data = f"Yeast, {len(X):,} x {X.shape[1]}, {Y.shape[1]} labels"
    races.keep(__file__, [races.race(*reversed(times), times, "seconds of a fit", data=data, most=BAR)], args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=None)
    parser.add_argument("--num-data", type=int, default=1500)
    parser.add_argument("--truncation", type=int, default=50)
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
