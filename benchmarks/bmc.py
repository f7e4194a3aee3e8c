"""Race the kernels of Bayesian max-margin clustering.

``margin``: one sweep of ``dpmmgm`` against one of ``dpgmm``, both sequential and exact, at 1,000 x 16 with 10 clusters.

``slice``: one sweep of ``dpgmm`` with all labels at once against one label by label, at 10,000 x 10.

``density``: held-out log density on Gaussian data with 20 clusters, against scikit-learn's BayesianGaussianMixture of
40 components given the same wall time; compilation is not counted, the start is (k-means with 40 clusters).

``limit``: a fit of ``MaxMarginDPMeans``, which finds how many clusters there are, against scikit-learn's KMeans and
SpectralClustering, which are told; and who finds the true clusters how well (normalised mutual information).

Interleaved in one run after compilation; the best of several rounds and the median of each round's ratio are shown.
Prints tables and writes ``bench/bmc.json``.

    python benchmarks/bmc.py [--only margin slice density limit] [--rounds 5] [--out bench]
"""

import argparse
import functools
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import races
from jax import random
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture

from regbayes.inference import MaxMarginDPMeans, dpgmm_collapsed, dpgmm_log_density, dpgmm_slice, dpmmgm_collapsed
from regbayes.models import dpgmm, dpmmgm

SLOTS = 64


def gaussians(n, d, num_clusters, seed=0, spread=2.0):
    """Standardised Gaussian clusters, each with its own covariance, and their labels."""
    rng = np.random.default_rng(seed)
    z = np.arange(n) % num_clusters
    roots = rng.normal(size=(num_clusters, d, d)) / d**0.5 + np.eye(d)
    X = spread * rng.normal(size=(num_clusters, d))[z] + np.einsum("nde,ne->nd", roots[z] / 2, rng.normal(size=(n, d)))
    return ((X - X.mean(0)) / X.std(0)).astype(np.float32), z


def sweeper(make, program, X, z, **options):
    """A compiled sweep that carries its state on."""
    kernel = make(functools.partial(program, max_clusters=SLOTS), **options)
    state = kernel.init(random.key(0), 0, {"z": jnp.asarray(z)}, (X,), {})
    sweep = jax.jit(lambda state: kernel.sample(state, (X,), {}))
    box = [sweep(state)]

    def run():
        """One sweep on from the last."""
        box[0] = jax.block_until_ready(sweep(box[0]))
        return box[0]

    for _ in range(5):
        run()
    run.kernel, run.sweep = kernel, sweep
    return run


def race(runs, rounds, repeats=5):
    """Seconds of each, (rounds, number of runs): the best of a few in every round, interleaved."""

    def best(run):
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        return min(times)

    return np.array([[best(run) for run in runs.values()] for _ in range(rounds)])


def report(data, runs, times, most):
    """The first of the runs against the second."""
    print(f"one sweep, {data}")
    for (name, run), column in zip(runs.items(), times.T, strict=True):
        print(f"  {name:24} {1e3 * column.min():9.2f} ms, {int(run().num_active)} clusters")
    values = dict(zip(runs, times.T.tolist(), strict=True))
    found = races.race(*runs, values, "seconds a sweep", data=data, most=most)
    spread = "{median:.3g} ({least:.3g} to {largest:.3g})".format(**found["ratio"])
    print(f"  ratio {spread}; bar: {found['bar']}, {'kept' if found['met'] else 'MISSED'}")
    return [found]


def margin(rounds):
    X, z = gaussians(1000, 16, 10)
    runs = {
        "dpmmgm collapsed": sweeper(dpmmgm_collapsed, dpmmgm, X, z),
        "dpgmm collapsed": sweeper(dpgmm_collapsed, dpgmm, X, z),
    }
    return report("1,000 x 16, 10 clusters", runs, race(runs, rounds), 4.0)


def slices(rounds):
    X, z = gaussians(10_000, 10, 20)
    runs = {"dpgmm slice": sweeper(dpgmm_slice, dpgmm, X, z), "dpgmm collapsed": sweeper(dpgmm_collapsed, dpgmm, X, z)}
    return report("10,000 x 10, 20 clusters", runs, race(runs, rounds, 2), 1 / 5)


def density(rounds):
    """Per round another data set: the peer's time is measured, and ours is given as much."""
    rows = []
    for seed in range(rounds):
        X, z = gaussians(7000, 5, 20, seed)
        train, test = X[:5000], X[5000:]
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            peer = BayesianGaussianMixture(n_components=40, max_iter=500, random_state=0).fit(train)
        budget = time.perf_counter() - begin
        theirs = float(peer.score_samples(test).mean())
        run = sweeper(dpgmm_slice, dpgmm, train, z[:5000], split_merge=4)  # compiled here
        begin = time.perf_counter()
        start = KMeans(40, n_init=1, random_state=0).fit(train).labels_
        state = run.kernel.init(random.key(1), 0, {"z": jnp.asarray(start)}, (train,), {})
        draws = []
        while time.perf_counter() - begin < budget:
            state = run.sweep(state)
            draws.append(np.asarray(state.z["z"]))
        kept = np.stack(draws[len(draws) // 2 :][:: max(1, len(draws) // 100)])
        ours = float(dpgmm_log_density({"z": kept}, train, test, max_clusters=SLOTS).mean())
        rows.append({"seconds": budget, "sweeps": len(draws), "ours": ours, "theirs": theirs})
        print(f"  {budget:6.2f} s, {len(draws)} sweeps, {int(state.num_active)} clusters: ", end="")
        print(f"ours {ours:.4f}, BayesianGaussianMixture {theirs:.4f}")
    ahead = min(row["ours"] - row["theirs"] for row in rows)
    print(f"held-out log density: {'kept' if ahead > 0 else 'MISSED'}")
    name = "held-out log density ahead of BayesianGaussianMixture's in equal time, the least of the rounds"
    return [races.figure(name, ahead, data="5,000 x 5, 20 clusters", least=0.0)]


def limit(rounds):
    """Per round another data set."""
    models = {
        "MaxMarginDPMeans": lambda seed: MaxMarginDPMeans(random_state=seed),
        "KMeans": lambda seed: KMeans(10, n_init=10, random_state=seed),
        "SpectralClustering": lambda seed: SpectralClustering(10, affinity="nearest_neighbors", random_state=seed),
    }
    times, scores = ({name: [] for name in models} for _ in range(2))
    for seed in range(-1, rounds):
        X, z = gaussians(1000, 16, 10, max(seed, 0), spread=1.0)
        for name, make in models.items():
            begin = time.perf_counter()
            found = make(max(seed, 0)).fit_predict(X)
            if seed >= 0:  # the first round compiles
                times[name].append(time.perf_counter() - begin)
                scores[name].append(normalized_mutual_info_score(z, found))
    ours, *peers = models
    for name in models:
        print(f"  {name:20} {np.median(times[name]):8.3f} s, NMI {np.mean(scores[name]):.3f}")
    return [
        races.race(ours, peer, values, quantity, data="1,000 x 16, 10 clusters nearer to each other")
        for peer in peers
        for quantity, values in (("seconds a fit", times), ("NMI", scores))
    ]


RACES = {"margin": margin, "slice": slices, "density": density, "limit": limit}


def main(args):
    races.keep(__file__, [entry for name in args.only for entry in RACES[name](args.rounds)], args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(RACES), default=list(RACES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
