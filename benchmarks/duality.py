"""Race the Crammer-Singer dual solver against LIBLINEAR's, scikit-learn's ``LinearSVC(multi_class="crammer_singer")``.

Same data, same objective (intercept as a constant feature, regularised). LIBLINEAR runs at the loosest of several
tolerances that brings its objective within 1e-4 of the best known; ours until its duality gap certifies 1e-4, and 1e-6.
Interleaved in one run after compilation, one thread; the best of several rounds counts. Prints a table and writes
``bench/duality.json``.

    python benchmarks/duality.py [--num-data 5000] [--dim 50] [--num-classes 10] [--rounds 3] [--out bench]
"""

import argparse
import os
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import races
from sklearn.svm import LinearSVC

from regbayes.datasets import make_multiclass_svm
from regbayes.inference.duality import crammer_singer

COSTS = (0.01, 0.1, 1.0)
TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
CLOSE = 1e-4


def objective(W, U, y, C):
    """``|W|^2/2 + C sum_i loss_i`` of weights (L, p) at inputs (n, p)."""
    scores = U @ W.T
    other = np.arange(len(W)) != y[:, None]
    return np.sum(W**2) / 2 + C * np.sum(np.max(scores + other, axis=1) - scores[~other])


def liblinear(X, y, C, tol):
    """Weights (L, p) with the intercept last."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearSVC(multi_class="crammer_singer", C=C, tol=tol, max_iter=20_000, random_state=0).fit(X, y)
    return np.column_stack([model.coef_, model.intercept_])


def timed(run):
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


def main(args: argparse.Namespace) -> None:
    X, y, _ = make_multiclass_svm(args.num_data, args.dim, args.num_classes, noise=args.noise)
    X = X.astype(np.float64) / np.sqrt(args.dim)
    U = np.column_stack([X, np.ones(len(X))])
    crammer_singer(U[:50], y[:50], 1.0, num_classes=args.num_classes)  # compiles
    print(f"n={args.num_data}, d={args.dim}, {args.num_classes} classes, {args.rounds} rounds, seconds")
    print(f"{'C':>6}{'LIBLINEAR':>12}{'ours, 1e-4':>12}{'ratio':>8}{'ours, 1e-6':>12}{'gap':>10}{'difference':>12}")
    table, found = {}, []
    for C in COSTS:
        C *= args.dim  # rows have length 1, where LIBLINEAR's C is usually chosen for length d
        best = crammer_singer(U, y, C, tol=1e-8)
        for tol in TOLERANCES:
            theirs = objective(liblinear(X, y, C, tol), U, y, C)
            if theirs <= best.primal * (1 + CLOSE):
                break
        times: dict[str, list[float]] = {"LIBLINEAR": [], "crammer_singer": [], "exact": []}
        for _ in range(args.rounds):
            times["LIBLINEAR"].append(timed(lambda C=C, tol=tol: liblinear(X, y, C, tol))[0])
            times["crammer_singer"].append(timed(lambda C=C: crammer_singer(U, y, C, tol=CLOSE))[0])
            seconds, exact = timed(lambda C=C: crammer_singer(U, y, C, tol=1e-6))
            times["exact"].append(seconds)
        low = {name: min(values) for name, values in times.items()}
        ratio = low["LIBLINEAR"] / low["crammer_singer"]
        difference = theirs / exact.primal - 1
        table[C] = {"gap": exact.gap, "tol": tol, "difference": difference}
        data = f"{args.num_data:,} x {args.dim}, {args.num_classes} classes, C={C:g}"
        measured = "seconds to 1e-4 of the optimum"
        found.append(races.race("crammer_singer", "LIBLINEAR", times, measured, data=data, most=1.0))
        print(f"{C:>6g}{low['LIBLINEAR']:>12.3f}{low['crammer_singer']:>12.3f}{ratio:>8.1f}{low['exact']:>12.3f}"
              f"{exact.gap:>10.1e}{difference:>12.1e}", flush=True)  # fmt: skip
    races.keep(__file__, found, args, costs=table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=5000)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--num-classes", type=int, default=10)
    parser.add_argument("--noise", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
