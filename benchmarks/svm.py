"""Race the support vector machine's kernels against NUTS on the same program: smallest ESS per second.

Four chains each, shared out among host devices, from their states after the warm-up to arrays in hand, interleaved in
one run after compilation; the best of several rounds counts. Prints a table and writes ``bench/svm.json``.

    python benchmarks/svm.py [--num-data 1000] [--dim 10] [--cost 1.0] [--rounds 5] [--out bench]
"""

import argparse
import os
import time

NUM_CHAINS = 4
os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={NUM_CHAINS}")

import jax
import numpy as np
import races
from jax import lax, random
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import regbayes
from regbayes.datasets import make_svm
from regbayes.inference import draw_chains

NUM_SAMPLES = {"NUTS": 2_000, "augmentation": 10_000, "slice": 10_000}


def nuts(program, data, kwargs):
    """``seed -> draws``: steps of every chain as one compiled function."""
    kernel = NUTS(program)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=1, num_chains=NUM_CHAINS, progress_bar=False)
    mcmc.warmup(random.key(0), *data, **kwargs)

    def step(state, _):
        state = kernel.sample(state, data, kwargs)
        return state, state.z["eta"]

    run = jax.pmap(lambda state: lax.scan(step, state, None, length=NUM_SAMPLES["NUTS"])[1])

    def draw(seed):
        return run(mcmc.post_warmup_state._replace(rng_key=random.split(random.key(seed), NUM_CHAINS)))

    return draw


def ours(kernel, name, data, kwargs):
    """The same, by the loop; its warm-up counts as time."""

    def draw(seed):
        lengths = {"num_warmup": 100, "num_samples": NUM_SAMPLES[name], "num_chains": NUM_CHAINS}
        return draw_chains(kernel, data, kwargs, seed=seed, **lengths, progress=False).sites["eta"]

    return draw


def main(args: argparse.Namespace) -> None:
    X, y, _ = make_svm(num_data=args.num_data, dim=args.dim, seed=0)
    data, kwargs = (X, y), {"cost": args.cost}
    entry = regbayes.zoo["svm"]
    runs = {"NUTS": nuts(entry.program, data, kwargs)}
    runs |= {name: ours(make(), name, data, kwargs) for name, make in entry.kernels.items()}
    for run in runs.values():
        jax.block_until_ready(run(0))

    rates: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(args.rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            draws = np.asarray(run(i))
            seconds = time.perf_counter() - start
            rates[name].append(float(effective_sample_size(draws).min()) / seconds)

    print(f"svm, n={args.num_data}, d={args.dim}, cost={args.cost}, {NUM_CHAINS} chains, {args.rounds} rounds")
    print(f"{'kernel':<14}{'min-ESS/s, best':>18}{'median':>10}{'against NUTS, best':>22}{'median':>10}")
    table = {}
    for name, values in rates.items():
        # Interleaved rounds share the machine's mood, so ratios are taken round by round.
        ratios = np.array(values) / np.array(rates["NUTS"])
        table[name] = {"rates": values, "ratio": max(values) / max(rates["NUTS"]), "median": float(np.median(ratios))}
        row = (max(values), np.median(values), table[name]["ratio"], table[name]["median"])
        print(f"{name:<14}{row[0]:>18.0f}{row[1]:>10.0f}{row[2]:>22.1f}{row[3]:>10.1f}")
    data = f"{args.num_data:,} x {args.dim}, cost {args.cost:g}"
    found = [races.race(name, "NUTS", rates, "min-ESS/s", data=data) for name in rates if name != "NUTS"]
    races.keep(__file__, found, args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--cost", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
