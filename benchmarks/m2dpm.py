"""Race M2DPM and DP-means against their peers: accuracy, seconds, memory and compilations, each with its bar.

Four sections:

- ``setting2``: accuracy on draws of the paper's Setting II, 80% of each for training, against the Bayes classifier and
  an RBF ``SVC``, and the time of one fit. Both are tuned by cross-validation on the training part of a further draw.
- ``pipeline``: time against the decoupled pipeline, pdc-dp-means with a ``LinearSVC`` in each cluster, from 1e4 to
  1e6 rows at the same penalty; growth with the rows; extra memory at the most.
- ``dp-means``: time of DP-means alone against pdc-dp-means, and the objective each reaches.
- ``search``: a grid search on the Parkinson's data against the same over ``SVC``, and how often it compiles.

Interleaved in one run after a first fit that compiles. pdc-dp-means needs an older scikit-learn, so a worker fits it
in an environment of its own (``benchmarks/peers``). Prints tables and writes ``bench/m2dpm.json``.

    python benchmarks/m2dpm.py [--only setting2,pipeline,dp-means,search] [--rounds 5] [--data-home DIR] [--out bench]
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import subprocess
import tempfile
import time

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import numpy as np
import races
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from regbayes.datasets import load, make_m2dpm_setting2
from regbayes.inference import M2DPM, DPMeans

FOLDER = pathlib.Path(__file__).parent
SIZES = (10_000, 100_000, 1_000_000)
NUM_TEST = 10_000
TUNING_DRAW = 1_000  # its seed
BARS: list[dict] = []


class Peer:
    """The worker in the peers' environment; data reach it as files in ``folder``."""

    def __init__(self, python: str, folder: str):
        if not pathlib.Path(python).exists():
            raise SystemExit(
                f"{python} is missing: make it from {FOLDER / 'peers' / 'requirements.txt'}, or pass --peer"
            )
        self.path = str(pathlib.Path(folder) / "data.npz")
        command = [python, str(FOLDER / "peers" / "worker.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def give(self, **arrays) -> None:
        """Data for the requests that follow."""
        np.savez(self.path, **arrays)
        self.ask(task="load")

    def ask(self, **request) -> dict:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"path": self.path, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the peers' worker ended; its error stands above")
        return json.loads(line)

    def close(self) -> None:
        self.process.communicate()


def bar(text: str, value: float, most: float) -> None:
    """Print a figure with its bar, and keep it."""
    BARS.append(races.figure(text, value, most=most))
    print(f"  {'met   ' if value <= most else 'MISSED'} {text}: {value:.3g}, at most {most:.3g}")


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratios(ours: list[float], theirs: list[float]) -> np.ndarray:
    """Round by round, as interleaved rounds share the machine's mood."""
    return np.array(ours) / np.array(theirs)


def setting2(args: argparse.Namespace, peer: Peer | None) -> dict:
    def draw(seed):
        X, y, truth = make_m2dpm_setting2(10_000, 10, seed=seed)
        m = 8_000  # rows are in random order
        return X[:m], y[:m], X[m:], y[m:], truth.bayes(X[m:], truth.z[m:])

    X, y, *_ = draw(TUNING_DRAW)
    grids = {
        "M2DPM": (M2DPM(random_state=0), {"cost": [0.01, 0.1, 1.0], "prior_scale": [1.0, 10.0, 100.0]}),
        "SVC": (SVC(cache_size=500), {"C": [0.3, 1.0, 10.0], "gamma": [0.05, 0.1, 0.2, 0.5]}),
    }
    models, chosen = {}, {}
    for name, (model, grid) in grids.items():
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        search = GridSearchCV(model, grid, cv=folds, n_jobs=None if name == "M2DPM" else 2).fit(X, y)
        models[name], chosen[name] = search.best_estimator_, search.best_params_
    hits: dict[str, list[float]] = {name: [] for name in ("Bayes", *models)}
    times: dict[str, list[float]] = {name: [] for name in models}
    clusters = []
    for seed in range(args.draws):
        X, y, X_test, y_test, bayes = draw(seed)
        hits["Bayes"].append(100 * np.mean(bayes == y_test))
        for name, model in models.items():
            times[name].append(seconds(lambda model=model, X=X, y=y: model.fit(X, y)))
            hits[name].append(100 * model.score(X_test, y_test))
        clusters.append(models["M2DPM"].num_clusters_)

    print(f"\nSetting II, {args.draws} draws; chosen on one more: {chosen}")
    print(f"{'model':<10}{'accuracy (%)':>15}{'std':>8}{'fit (s), median':>18}{'best':>10}")
    for name, values in hits.items():
        row = f"{name:<10}{np.mean(values):>15.2f}{np.std(values, ddof=1):>8.2f}"
        print(row + (f"{np.median(times[name]):>18.4f}{min(times[name]):>10.4f}" if name in times else ""))
    print(f"clusters found: {sorted(clusters)}")
    behind = np.array(hits["SVC"]) - np.array(hits["M2DPM"])
    error = np.std(behind, ddof=1) / np.sqrt(len(behind))
    bar("points of accuracy behind the Bayes classifier", np.mean(hits["Bayes"]) - np.mean(hits["M2DPM"]), 2)
    bar("points behind SVC, at most a standard error of the paired differences", np.mean(behind), error)
    bar("time of a fit over SVC's, median of draws", np.median(ratios(times["M2DPM"], times["SVC"])), 1 / 20)
    return {"chosen": chosen, "accuracy": hits, "seconds": times, "num_clusters": clusters}


def race_model(dim: int) -> M2DPM:
    """M2DPM as the pipeline: half the squared distance of neighbouring cubes for a cluster, ``2 c nu^2 = C = 1``."""
    return M2DPM(penalty=dim / 2, cost=0.01, prior_scale=50**0.5, random_state=0)


def status(key: str) -> int:
    """Bytes by Linux's account of this process; the highest since it started is ``VmHWM``, now is ``VmRSS``."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def extra_memory(path: str) -> float:
    """GiB at the peak of a fit, beyond those of the data and of JAX after a small fit; in a process of its own."""
    with np.load(path) as file:
        X, y = file["X"], file["y"]
    race_model(X.shape[1]).fit(X[: SIZES[0]], y[: SIZES[0]])
    before = status("VmRSS")
    race_model(X.shape[1]).fit(X, y)
    return (status("VmHWM") - before) / 2**30


def pipeline(args: argparse.Namespace, peer: Peer) -> dict:
    dim, table = 10, {}
    print(f"\nM2DPM against pdc-dp-means, then LinearSVC; Setting II, d={dim}, penalty {dim / 2}, {args.rounds} rounds")
    head = f"{'n':>9}{'ours (s), best':>16}{'median':>9}{'peer, best':>12}{'median':>9}{'ratio, median':>15}"
    print(head + f"{'accuracy (%)':>14}{'peer':>7}{'Bayes':>7}{'clusters':>10}{'peer':>6}")
    for n in SIZES:
        X, y, truth = make_m2dpm_setting2(n + NUM_TEST, dim, seed=0)
        bayes = np.mean(truth.bayes(X[n:], truth.z[n:]) == y[n:])
        X, y, X_test, y_test = X[:n], y[:n], X[n:], y[n:]
        peer.give(X=X, y=y, X_test=X_test, y_test=y_test)
        model = race_model(dim).fit(X, y)
        peer.ask(task="pipeline", penalty=dim / 2, seed=0)
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(seconds(lambda model=model, X=X, y=y: model.fit(X, y)))
            answer = peer.ask(task="pipeline", penalty=dim / 2, seed=0)
            theirs.append(answer["seconds"])
        ratio, score = float(np.median(ratios(ours, theirs))), model.score(X_test, y_test)
        row = f"{n:>9}{min(ours):>16.3f}{np.median(ours):>9.3f}{min(theirs):>12.3f}{np.median(theirs):>9.3f}"
        row += f"{ratio:>15.2f}"
        row += f"{100 * score:>14.1f}{100 * answer['accuracy']:>7.1f}{100 * bayes:>7.1f}"
        print(row + f"{model.num_clusters_:>10}{answer['num_clusters']:>6}")
        table[n] = {
            "ours": ours,
            "peer": theirs,
            "ratio": ratio,
            "accuracy": score,
            "peer_accuracy": answer["accuracy"],
        }
    slope = np.polyfit(np.log(SIZES), np.log([min(table[n]["ours"]) for n in SIZES]), 1)[0]
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        memory = pool.submit(extra_memory, peer.path).result()
    for n in SIZES:
        bar(f"time over the pipeline's at n={n}", table[n]["ratio"], 1 if n == SIZES[-1] else 1.5)
    bar(f"log-log slope of the time from n={SIZES[0]} to {SIZES[-1]}", slope, 1.1)
    bar(f"GiB beyond the data at n={SIZES[-1]}", memory, 2)
    return {"races": table, "slope": slope, "memory": memory}


def clusters(kind: str, n: int, dim: int) -> tuple[np.ndarray, float]:
    """``X`` (n, d) and a penalty.

    Cubes as in Setting II, at half the squared distance of neighbours. Or Gaussians on places of a square lattice: the
    penalty is twice the squared distance that one datum in a million exceeds, neighbours are at four times the penalty.
    Or Gaussians anywhere, "overlapping": some are nearer than that, so what an algorithm finds is a matter of luck.
    """
    rng = np.random.default_rng(0)
    if kind == "cubes":
        X = rng.integers(1, 11, n)[:, None] + rng.uniform(-0.5, 0.5, size=(n, dim))
        return X.astype(np.float32), dim / 2
    penalty = 2 * float(chi2.isf(1e-6, dim))
    if kind == "overlapping":
        centres = rng.normal(scale=10 if dim == 2 else 3, size=(20, dim))
    else:
        places = rng.choice(100, 20, replace=False)
        centres = np.pad(2 * penalty**0.5 * np.column_stack([places // 10, places % 10]), [(0, 0), (0, dim - 2)])
    X = centres[rng.integers(0, 20, n)] + rng.normal(size=(n, dim))
    return X.astype(np.float32), penalty


def objective(X: np.ndarray, centres: np.ndarray, penalty: float) -> float:
    """``sum_i min_k |x_i - mu_k|^2 + penalty K``, in double precision."""
    origin, total = np.mean(centres, axis=0), 0.0
    mu = centres - origin
    for part in np.array_split(X, -(-len(X) // 10_000)):
        x = part - origin
        D = np.sum(mu**2, axis=1) - 2 * x @ mu.T
        total += float(np.sum(np.min(D, axis=1)) + np.sum(x**2))
    return total + penalty * len(centres)


def dp_means(args: argparse.Namespace, peer: Peer) -> dict:
    table = {}
    print(f"\nDP-means against pdc-dp-means, {args.rounds} rounds")
    head = f"{'data':<10}{'n':>9}{'d':>4}{'ours (s), best':>16}{'median':>9}{'peer, best':>12}{'median':>9}"
    print(head + f"{'ratio, median':>15}{'objective, ours/peer':>22}{'clusters':>10}{'peer':>6}")
    for kind in args.kinds.split(","):
        for n in SIZES[1:]:
            for dim in (2, 10, 50):
                X, penalty = clusters(kind, n, dim)
                peer.give(X=X)
                model = DPMeans(penalty=penalty, random_state=0).fit(X)
                peer.ask(task="dp-means", penalty=penalty, seed=0)
                ours, theirs = [], []
                for _ in range(args.rounds):
                    ours.append(seconds(lambda model=model, X=X: model.fit(X)))
                    answer = peer.ask(task="dp-means", penalty=penalty, seed=0)
                    theirs.append(answer["seconds"])
                ratio = float(np.median(ratios(ours, theirs)))
                centres = np.array(answer["centres"])
                excess = objective(X, model.cluster_centers_, penalty) / objective(X, centres, penalty)
                row = f"{kind:<10}{n:>9}{dim:>4}{min(ours):>16.3f}{np.median(ours):>9.3f}{min(theirs):>12.3f}"
                row += f"{np.median(theirs):>9.3f}{ratio:>15.2f}{excess:>22.4f}"
                print(row + f"{model.num_clusters_:>10}{len(centres):>6}")
                table[f"{kind}, n={n}, d={dim}"] = {"ours": ours, "peer": theirs, "ratio": ratio, "objective": excess}
    for name, entry in table.items():
        bar(f"time over pdc-dp-means's, {name}", entry["ratio"], 1)
        bar(f"objective over its, {name}", entry["objective"], 1.01)
    return table


def search(args: argparse.Namespace, peer: Peer | None) -> dict:
    data = load("parkinsons", data_home=args.data_home)
    X, y = StandardScaler().fit_transform(data.X), data.y
    grids = {
        "M2DPM": (
            M2DPM(random_state=0),
            {
                "penalty": [None, 30.0, 60.0, 120.0, 240.0],
                "cost": [0.01, 0.1, 1.0, 10.0, 100.0],
                "prior_scale": [0.3, 3.0],
            },
        ),
        "SVC": (SVC(), {"C": np.logspace(-2, 3, 10), "gamma": np.logspace(-3, 0, 5)}),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    shapes = {X[train].shape for train, _ in folds.split(X, y)}
    searches = {name: GridSearchCV(model, grid, cv=folds) for name, (model, grid) in grids.items()}
    compilations, first = [], {}

    def count(event: str, duration: float, **_) -> None:
        if event.endswith("backend_compile_duration"):
            compilations.append(duration)

    jax.monitoring.register_event_duration_secs_listener(count)
    for name, each in searches.items():
        first[name] = seconds(lambda each=each: each.fit(X, y))
    compiled = len(compilations)  # by XLA, of anything
    times: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(args.rounds):
        for name, each in searches.items():
            times[name].append(seconds(lambda each=each: clone(each).fit(X, y)))
    print(f"\nGrid search on Parkinson's, {len(searches['SVC'].cv_results_['params'])} settings x 5 folds")
    print(f"{'model':<10}{'first (s)':>12}{'then, best':>12}{'median':>9}{'accuracy (%)':>15}")
    for name, values in times.items():
        row = f"{name:<10}{first[name]:>12.2f}{min(values):>12.2f}{np.median(values):>9.2f}"
        print(row + f"{100 * searches[name].best_score_:>15.1f}")
    bar(f"compilations over the {len(shapes)} distinct shapes of folds", compiled / len(shapes), 1)
    bar("time over SVC's, after compilation", np.median(ratios(times["M2DPM"], times["SVC"])), 10)
    return {"first": first, "seconds": times, "compiled": compiled, "shapes": len(shapes)}


SECTIONS = {"setting2": setting2, "pipeline": pipeline, "dp-means": dp_means, "search": search}


def main(args: argparse.Namespace) -> None:
    chosen = args.only.split(",")
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        raise SystemExit(f"--only names {', '.join(sorted(unknown))}; the sections are {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(args.peer, folder) if {"pipeline", "dp-means"} & set(chosen) else None
        for name in chosen:
            found = SECTIONS[name](args, peer)  # type: ignore[operator]
            races.keep(__file__, BARS, args, **{name: found})
        if peer:
            peer.close()
    print(f"\n{sum(entry['met'] for entry in BARS)} of {len(BARS)} bars met")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=20, help="of Setting II")
    parser.add_argument("--kinds", default="gaussian,cubes,overlapping", help="data of the section dp-means")
    parser.add_argument("--data-home", help="the folder of parkinsons.npz; $REGBAYES_DATA if not given")
    parser.add_argument("--peer", default=".venv-peers/bin/python", help="the peers' Python")
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
