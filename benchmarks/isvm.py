"""Race the infinite SVM's kernels: label moves against the matrix of log densities, draws against NumPyro's kernels.

``sweep``: one redraw of all labels against one evaluation of the (32, n) log densities that it needs, the Gaussian part
and the margin's, written to memory in blocks that fit the cache; the faster of the mixture's own functions and of a
version by hand counts as the evaluation.

``ess``: effective draws per second, against NUTS on the program truncated to 20 components by breaking sticks, labels
summed out. Every chain of either starts at a k-means of its own. With ``--one-draw`` all chains of NUTS start at one
draw of ours instead: NUTS keeps the clusters it starts with, so this compares moves within one mode of NUTS to moves
over all modes of ours, and R-hat cannot tell. Three numbers that do not depend on the order of components are followed:
the log joint (of our kernels, with the empty slots integrated out: their draws are independent and would flatter), the
log likelihood of the mixture with its labels summed out, and the training loss expected under the components'
responsibilities. Four chains each, one host device per chain; "pooled" is over the draws of all rounds.

``discrete``: the same against DiscreteHMCGibbs, on the truncated program with its labels, at 100 data: it evaluates the
whole program for every label of every datum. The log joint is left out, which counts other sites there.

Interleaved in one run after compilation; the best of several rounds and the median of each round's ratio are shown.
Prints tables and writes ``bench/isvm.json``.

    python benchmarks/isvm.py [--only sweep ess discrete] [--rounds 5] [--one-draw] [--out bench]
"""

import argparse
import functools
import os
import time

NUM_CHAINS = 4
os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={NUM_CHAINS}")

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import races
from jax import lax, random
from jax.nn import logsumexp
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, DiscreteHMCGibbs
from numpyro.infer.mcmc import MCMCKernel
from sklearn.cluster import KMeans

from regbayes.datasets import make_m2dpm_setting1
from regbayes.inference import isvm_collapsed, isvm_slice
from regbayes.inference.kernels.isvm import mixture
from regbayes.inference.moves.labels import Assignment, counts_of
from regbayes.inference.moves.split_merge import SplitMerge

KERNELS = {"slice": isvm_slice, "collapsed": isvm_collapsed}
HYPER = {"variance": 0.25, "num_classes": 2, "cost": 1.0, "ell": 1.0, "prior_scale": 1.0, "concentration": 1.0}
PRIOR_COUNT = 0.01
"""The program's own for Gaussian inputs: the means have variance 0.25/0.01."""

SLOTS = 32
BLOCKS = (500, 1000, 2000)
BARS = {"slice": 8.0, "collapsed": 60.0}

TRUNCATION = 20
NUM_WARMUP = 200
"""Of the peers; our kernels have their first draws."""
NUM_SAMPLES = {"NUTS": 50, "DiscreteHMCGibbs": 50, "slice": 500, "collapsed": 500}
MAX_CLUSTERS = 64
FOLLOWED = ("log joint", "log likelihood", "loss", "clusters")


def data(num_data: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inputs and labels of ten Gaussian clusters in ten dimensions, and the clusters."""
    X, y, truth = make_m2dpm_setting1(num_data, 10, concentration=3.0)
    return jnp.asarray(X), jnp.asarray(y), jnp.asarray(truth.z)


def seconds(run, *args) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(*args))
    return time.perf_counter() - start


def in_blocks(log_density, size: int):
    """``(z, X, y) -> (M, n)``, computed ``size`` columns at a time."""

    def run(z, X, y):
        def block(b, out):
            X_b, y_b = (lax.dynamic_slice_in_dim(a, b * size, size) for a in (X, y))
            return lax.dynamic_update_slice_in_dim(out, log_density(z, X_b, y_b), b * size, 1)

        return lax.fori_loop(0, len(X) // size, block, jnp.zeros((SLOTS, len(X)), X.dtype))

    return jax.jit(run)


def by_hand(z, X, y):
    """The log densities up to a term of each datum alone: one matrix product for means and classifiers."""
    theta, d = z["mu"] / HYPER["variance"], X.shape[1]
    scores = jnp.concatenate([theta, z["eta"][:, :d]]) @ X.T
    log_likelihood = scores[:SLOTS] - jnp.sum(theta * z["mu"], 1, keepdims=True) / 2
    slack = HYPER["ell"] - (2 * y - 1) * (scores[SLOTS:] + z["eta"][:, d:])
    return log_likelihood - 2 * HYPER["cost"] * jnp.maximum(slack, 0.0)


def sweep(args: argparse.Namespace) -> dict:
    """Label moves against the matrix of log densities."""
    table = {}
    for n in args.sizes:
        X, y, truth = data(n)
        kwargs = {**HYPER, "max_clusters": SLOTS}
        kernel = isvm_slice()
        state = kernel.init(random.key(0), 0, {"z": truth}, (X, y), kwargs)
        step = jax.jit(lambda state, X, y: kernel.sample(state, (X, y), kwargs))  # noqa: B023
        for _ in range(20):
            state = step(state, X, y)
        z = state.z

        def own(z, X, y):
            parts = kernel.target((X, y), kwargs).call(mixture, z)  # noqa: B023
            return parts.log_density(z, parts.data)

        matrices = {f"matrix, {size}": in_blocks(own, size) for size in BLOCKS}
        matrices |= {f"by hand, {size}": in_blocks(by_hand, size) for size in BLOCKS}
        moves = {}
        for name, make in KERNELS.items():
            move = next(m for m in make().moves if isinstance(m, Assignment) and not isinstance(m, SplitMerge))
            moves[name] = jax.jit(
                lambda z, X, y, key, move=move: move.step(
                    random.split(key, move.num_keys),
                    z,
                    None,
                    kernel.target((X, y), kwargs),  # noqa: B023
                    {},
                )[0]
            )
        times: dict[str, list[float]] = {name: [] for name in (*matrices, *moves)}
        for i in range(-1, args.rounds):
            for name in times:
                run, key = (matrices[name], ()) if name in matrices else (moves[name], (random.key(i + 1),))
                took = min(seconds(run, z, X, y, *key) for _ in range(3))
                if i >= 0:  # the first round compiles
                    times[name].append(took)
        fastest = min(matrices, key=lambda name: min(times[name]))
        print(f"\nsweep, n={n}, d=10, {SLOTS} slots, {state.num_active} occupied; fastest matrix: {fastest}")
        print(f"{'':<16}{'us/datum, best':>16}{'median':>10}{'against matrix, best':>24}{'median':>10}{'bar':>8}")
        rows = {}
        for name, values in times.items():
            ratio = min(values) / min(times[fastest])
            median = float(np.median(np.array(values) / np.array(times[fastest])))
            rows[name] = {"seconds": values, "ratio": ratio, "median": median}
            best, middle = 1e6 * min(values) / n, 1e6 * np.median(values) / n
            bar = f"{BARS[name]:>8.0f}" if name in BARS else ""
            print(f"{name:<16}{best:>16.4f}{middle:>10.4f}{ratio:>24.1f}{median:>10.1f}{bar}")
        table[f"n={n}"] = rows
    return table


def truncated(X, y, labelled: bool = False) -> None:
    """The infinite SVM with ``TRUNCATION`` components whose weights break a stick, its labels summed out or drawn."""
    d = X.shape[1]
    v = numpyro.sample("v", dist.Beta(1.0, HYPER["concentration"]).expand([TRUNCATION - 1]).to_event(1))
    spread = (HYPER["variance"] / PRIOR_COUNT) ** 0.5
    mu = numpyro.sample("mu", dist.Normal(0.0, spread).expand([TRUNCATION, d]).to_event(2))
    eta = numpyro.sample("eta", dist.Normal(0.0, HYPER["prior_scale"]).expand([TRUNCATION, d + 1]).to_event(2))
    log_weights = jnp.append(jnp.log(v), 0.0) + jnp.append(0.0, jnp.cumsum(jnp.log1p(-v)))
    log_likelihood, loss = summed_out(log_weights, mu, eta, X, y)
    if labelled:
        with numpyro.plate("data", len(y)):
            z = numpyro.sample("z", dist.Categorical(logits=log_weights))
        numpyro.factor("x", jnp.sum(log_densities(mu, eta, X, y)[0][z, jnp.arange(len(y))]))
    else:
        numpyro.factor("x", log_likelihood)
    numpyro.deterministic("log likelihood", log_likelihood)
    numpyro.deterministic("loss", loss)
    numpyro.deterministic("clusters", jnp.sum(log_weights > -jnp.log(2.0 * len(y))))


def log_densities(mu, eta, X, y) -> tuple[jax.Array, jax.Array]:
    """(K, n) log densities of data in components, up to a constant, and losses."""
    d, variance = X.shape[1], HYPER["variance"]
    square = jnp.sum(X**2, 1) - 2 * mu @ X.T + jnp.sum(mu**2, 1, keepdims=True)
    loss = jnp.maximum(HYPER["ell"] - (2 * y - 1) * (eta[:, :d] @ X.T + eta[:, d:]), 0.0)
    return -square / (2 * variance) - 2 * HYPER["cost"] * loss, loss


def summed_out(log_weights, mu, eta, X, y) -> tuple[jax.Array, jax.Array]:
    """Log likelihood of the mixture, and the loss expected under the responsibilities."""
    log_density, loss = log_densities(mu, eta, X, y)
    logits = log_weights[:, None] + log_density
    total = jnp.sum(logsumexp(logits, 0)) - X.size / 2 * jnp.log(2 * jnp.pi * HYPER["variance"])
    return total, jnp.sum(jax.nn.softmax(logits, 0) * loss)


def summary(z, log_joint, X, y) -> dict[str, jax.Array]:
    """What is followed of a draw of our kernels."""
    counts = counts_of(z["z"], len(z["mu"]))
    spread = (HYPER["variance"] / PRIOR_COUNT) ** 0.5
    log_prior = dist.Normal(0.0, spread).log_prob(z["mu"]).sum(1)
    log_prior += dist.Normal(0.0, HYPER["prior_scale"]).log_prob(z["eta"]).sum(1)
    log_likelihood, loss = summed_out(jnp.log(counts / len(y)), z["mu"], z["eta"], X, y)
    log_joint = log_joint - jnp.sum(jnp.where(counts == 0, log_prior, 0.0))
    return dict(zip(FOLLOWED, (log_joint, log_likelihood, loss, jnp.sum(counts > 0)), strict=True))


def chains(kernel, X, y, kwargs, num_samples: int):
    """``num_samples`` steps of every chain as one compiled function, from their states to what is followed."""

    def follow(state):
        if hasattr(state, "log_joint"):
            return summary(state.z, state.log_joint, X, y)
        sites = kernel.postprocess_fn((X, y), {})(state.z)
        potential = getattr(state, "hmc_state", state).potential_energy
        return {"log joint": -potential, **{name: sites[name] for name in FOLLOWED[1:]}}

    def run(state):
        def step(state, _):
            state = kernel.sample(state, (X, y), kwargs)
            return state, follow(state)

        return lax.scan(step, state, None, length=num_samples)

    return jax.pmap(run)


def start_of_nuts(z, n: int) -> dict[str, jax.Array]:
    """A draw of our kernels as unconstrained sites of the truncated program: largest clusters first."""
    counts = counts_of(z["z"], len(z["mu"]))
    order = jnp.argsort(-counts)[:TRUNCATION]
    sizes = counts[order]
    after = n - jnp.cumsum(sizes)
    odds = (1 + sizes[:-1]) / (HYPER["concentration"] + after[:-1])
    return {"v": jnp.log(odds), "mu": z["mu"][order], "eta": z["eta"][order]}


def ess(args: argparse.Namespace) -> dict:
    """Effective draws per second against NUTS."""
    return against(args, "NUTS", NUTS(truncated), 1000, FOLLOWED[:-1])


def discrete(args: argparse.Namespace) -> dict:
    """Effective draws per second against DiscreteHMCGibbs."""
    program = functools.partial(truncated, labelled=True)
    return against(args, "DiscreteHMCGibbs", DiscreteHMCGibbs(NUTS(program)), 100, FOLLOWED[1:-1])


def against(args: argparse.Namespace, peer_name: str, theirs: MCMCKernel, num_data: int, names: tuple) -> dict:
    """Effective draws per second of our kernels against a peer's on the truncated program."""
    X, y, _ = data(num_data)
    kwargs = {**HYPER, "max_clusters": MAX_CLUSTERS}
    fits = [KMeans(TRUNCATION // 2, n_init=1, random_state=chain).fit(X) for chain in range(NUM_CHAINS)]
    first = {"z": np.stack([fit.labels_ for fit in fits])}
    runs, states = {}, {}
    for name, make in KERNELS.items():
        kernel = make()
        state = kernel.init(random.split(random.key(0), NUM_CHAINS), 0, first, (X, y), kwargs)
        runs[name] = chains(kernel, X, y, kwargs, NUM_SAMPLES[name]).lower(state).compile()
        states[name], _ = runs[name](state)  # the first draws are the warm-up
    if args.one_draw:
        z = {site: np.repeat(np.asarray(value)[:1], NUM_CHAINS, 0) for site, value in states["slice"].z.items()}
    else:
        blank = np.random.default_rng(0).normal(size=(NUM_CHAINS, TRUNCATION, 2 * X.shape[1] + 1))
        z = {**first, "mu": blank[..., : X.shape[1]] + np.asarray(X).mean(0), "eta": blank[..., X.shape[1] :]}
        for mu, fit in zip(z["mu"], fits, strict=True):
            mu[: len(fit.cluster_centers_)] = fit.cluster_centers_
        z = {site: jnp.asarray(value, int if site == "z" else float) for site, value in z.items()}
    start = jax.vmap(lambda z: start_of_nuts(z, len(y)))(z)
    mcmc = MCMC(theirs, num_warmup=NUM_WARMUP, num_samples=1, num_chains=NUM_CHAINS, progress_bar=False)
    mcmc.warmup(random.key(0), X, y, init_params=start)
    run = chains(theirs, X, y, {}, NUM_SAMPLES[peer_name]).lower(mcmc.post_warmup_state).compile()
    runs, states = {peer_name: run, **runs}, {peer_name: mcmc.post_warmup_state, **states}

    rates: dict = {name: {followed: [] for followed in names} for name in runs}
    per_draw: dict = {name: {followed: [] for followed in names} for name in runs}
    rhat: dict = {name: [] for name in runs}
    clusters, everything, total = {}, {name: [] for name in runs}, dict.fromkeys(runs, 0.0)
    for _ in range(args.rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            states[name], followed = jax.block_until_ready(run(states[name]))
            took = time.perf_counter() - start
            draws = {key: np.asarray(value, float) for key, value in followed.items()}
            clusters[name] = draws["clusters"].mean(1)
            everything[name].append(draws)
            total[name] += took
            rhat[name].append(max(float(split_gelman_rubin(draws[key])) for key in names))
            for key in names:
                effective = float(effective_sample_size(draws[key]))
                rates[name][key].append(effective / took)
                per_draw[name][key].append(effective / draws[key].size)

    print(f"\ness, n={num_data}, d=10, ten clusters, {NUM_CHAINS} chains, {args.rounds} rounds; peer: {peer_name}")
    print(f"every chain of it starts at {'the same draw of the slice kernel' if args.one_draw else 'its own k-means'}")
    head = ("ESS/s, best", "median", "pooled", "per draw", "ratio", "median", "pooled")
    print(f"{'':<11}{'followed':<16}" + "".join(f"{title:>13}" for title in head))
    table: dict = {}

    def pooled(name: str, key: str) -> float:
        draws = np.concatenate([draws[key] for draws in everything[name]], axis=1)
        return float(effective_sample_size(draws)) / total[name]

    for name, followed in rates.items():
        table[name] = {"rhat": rhat[name], "clusters": clusters[name].tolist()}
        for key, values in followed.items():
            peer = rates[peer_name][key]
            ratio, median = max(values) / max(peer), float(np.median(np.array(values) / np.array(peer)))
            table[name][key] = {"rates": values, "per_draw": per_draw[name][key], "ratio": ratio, "median": median}
            rate, peer_rate = pooled(name, key), pooled(peer_name, key)
            table[name][key] |= {"pooled": rate, "pooled_ratio": rate / peer_rate}
            row = (
                max(values),
                np.median(values),
                rate,
                np.median(per_draw[name][key]),
                ratio,
                median,
                rate / peer_rate,
            )
            print(f"{name:<11}{key:<16}" + "".join(f"{number:>13.3g}" for number in row))
        print(f"{'':<11}R-hat, worst of each round {np.round(rhat[name], 2)}; clusters {np.round(clusters[name], 1)}")
    return table


SECTIONS = {"sweep": sweep, "ess": ess, "discrete": discrete}


def main(args: argparse.Namespace) -> None:
    results = {name: SECTIONS[name](args) for name in args.only}
    found = []
    for data, rows in results.get("sweep", {}).items():
        times = {name: row["seconds"] for name, row in rows.items()}
        fastest = min((name for name in times if name not in KERNELS), key=lambda name: min(times[name]))
        for name in KERNELS:
            bar, names = BARS.get(name), {name: f"{name}, all labels once", fastest: f"log densities ({fastest})"}
            values = {label: times[key] for key, label in names.items()}
            found.append(races.race(*values, values, "seconds", data=f"{data}, d=10", most=bar))
    for section, rows in ((name, results[name]) for name in ("ess", "discrete") if name in results):
        (peer,) = set(rows) - set(KERNELS)
        shape, bar = {"ess": ("1,000 x 10", 10.0), "discrete": ("100 x 10", None)}[section]
        for key in FOLLOWED[:-1]:
            rates = {name: row[key]["rates"] for name, row in rows.items() if key in row}
            found += [
                races.race(name, peer, rates, f"ESS/s of the {key}", data=shape, least=bar)
                for name in KERNELS
                if name in rates
            ]
    races.keep(__file__, found, args, **results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one-draw", action="store_true")
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
