"""Race M2DPM, which clusters and classifies at once, against the decoupled pipelines: cluster first, classify after.

The pipelines are scikit-learn's: standardise, then cluster (DP-means or k-means) with a ``LinearSVC`` in each cluster.
Setting II of the paper, where the clusters are known, so every method gets about as many as there are. Interleaved in
one run after a first fit that compiles; the best of several rounds counts. Prints a table and writes
``bench/pipelines.json``.

    python benchmarks/pipelines.py [--num-data 10000] [--dim 10] [--num-clusters 10] [--rounds 5] [--out bench]
"""

import argparse
import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import numpy as np
import races
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from regbayes.datasets import make_m2dpm_setting2
from regbayes.inference import M2DPM, DPMeans
from regbayes.reproduce.baselines import ClusterThenClassify


def pipelines(num_clusters: int) -> dict:
    """The racers. In standardised features a cube's corner is a quarter of the way to the next cube's centre."""
    step = 12 / (num_clusters**2)  # squared distance of neighbouring centres, per feature

    def decoupled(cluster):
        return make_pipeline(StandardScaler(), ClusterThenClassify(cluster, LinearSVC(dual=False)))

    return {
        "M2DPM": lambda dim: make_pipeline(
            StandardScaler(), M2DPM(penalty=dim * step / 2, cost=0.01, prior_scale=20.0, random_state=0)
        ),
        "DP-means+SVM": lambda dim: decoupled(DPMeans(penalty=dim * step / 2)),
        "KMeans+SVM": lambda dim: decoupled(KMeans(num_clusters, n_init=1, random_state=0)),
    }


def main(args: argparse.Namespace) -> None:
    X, y, truth = make_m2dpm_setting2(2 * args.num_data, args.dim, args.num_clusters, seed=0)
    train, test = slice(args.num_data), slice(args.num_data, None)
    models = {name: make(args.dim) for name, make in pipelines(args.num_clusters).items()}
    for model in models.values():
        model.fit(X[train], y[train])
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(args.rounds):
        for name, model in models.items():
            start = time.perf_counter()
            model.fit(X[train], y[train])
            times[name].append(time.perf_counter() - start)

    bayes = np.mean(truth.bayes(X[test], truth.z[test]) == y[test])
    print(f"Setting II, n={args.num_data}, d={args.dim}, {args.num_clusters} clusters, {args.rounds} rounds")
    print(f"{'pipeline':<14}{'fit (s), best':>16}{'median':>10}{'against M2DPM':>16}{'accuracy (%)':>15}")
    table = {}
    for name, values in times.items():
        # Interleaved rounds share the machine's mood, so ratios are taken round by round.
        ratio = float(np.median(np.array(values) / np.array(times["M2DPM"])))
        accuracy = 100 * models[name].score(X[test], y[test])
        table[name] = {"seconds": values, "ratio": ratio, "accuracy": accuracy}
        print(f"{name:<14}{min(values):>16.3f}{np.median(values):>10.3f}{ratio:>16.2f}{accuracy:>15.1f}")
    print(f"{'Bayes':<14}{'-':>16}{'-':>10}{'-':>16}{100 * bayes:>15.1f}")
    data = f"Setting II, {args.num_data:,} x {args.dim}"
    found = [races.race("M2DPM", name, times, "seconds of a fit", data=data) for name in times if name != "M2DPM"]
    accuracies = {name: entry["accuracy"] for name, entry in table.items()}
    races.keep(__file__, found, args, accuracy={**accuracies, "Bayes": 100 * float(bayes)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--num-clusters", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
