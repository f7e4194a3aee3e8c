"""Race the loop that draws against NumPyro's ``MCMC``, compiling included, and a second fit against the first.

``against``: the command ``regbayes fit`` of the infinite SVM, beside a script that runs the same kernel under
``MCMC(chain_method="vectorized")`` and writes the same file: processes of their own, without a cache of compiled code,
one after the other in each round, from start to end. ``second``: for every kernel of the zoo, on its example, the time
to the first draw of a second fit in one process as a share of the first's. ``again``: the same of a second ``MCMC``
with a second kernel, JAX's persistent cache on. Prints a table and writes ``bench/loop.json``.

    python benchmarks/loop.py [--only against|second|again] [--num-data 1000] [--dim 10] [--rounds 3] [--out bench]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time

import numpy as np
import races

MOST_AGAINST, MOST_SECOND, MOST_AGAIN = 1.1, 0.1, 0.4
THEIRS = """
    import jax, numpy as np, regbayes
    from jax import random
    from numpyro.infer import MCMC
    from regbayes.diagnostics import to_datatree

    data = np.genfromtxt({file!r}, delimiter=",", skip_header=1)
    X, y = data[:, :-1].astype(np.float32), data[:, -1].astype(np.int32)
    kernel = regbayes.zoo["isvm"].kernels["slice"]()
    lengths = dict(num_warmup=500, num_samples=1000, num_chains=4)
    mcmc = MCMC(kernel, chain_method="vectorized", progress_bar=False, **lengths)
    mcmc.run(random.key(0), X, y, num_classes=2, extra_fields=("log_joint",))
    to_datatree(mcmc).to_netcdf({out!r}, engine="h5netcdf")
"""
SECOND = """
    import time, regbayes

    entry = regbayes.zoo[{model!r}]
    args, kwargs = entry.example()
    for seed in range(2):
        start = time.perf_counter()
        regbayes.fit(entry, *args, kernel={kernel!r}, num_warmup=0, num_samples=1, seed=seed, progress=False, **kwargs)
        print(time.perf_counter() - start)
"""
AGAIN = """
    import time, regbayes
    from jax import random
    from numpyro.infer import MCMC

    entry = regbayes.zoo[{model!r}]
    args, kwargs = entry.example()
    for seed in range(2):
        start = time.perf_counter()
        options = dict(num_warmup=0, num_samples=1, num_chains=4, chain_method="vectorized", progress_bar=False)
        mcmc = MCMC(entry.kernels[{kernel!r}](), **options)
        mcmc.run(random.key(seed), *args, **kwargs)
        mcmc.get_samples()
        print(time.perf_counter() - start)
"""


def python(script: str, cache: str | None = None, **values: object) -> list[str]:
    """What a script prints, in a process of its own."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    if cache:
        env |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    code = textwrap.dedent(script).format(**values)
    return subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    ).stdout.split()


def against(args: argparse.Namespace) -> list[dict]:
    from regbayes.datasets import make_m2dpm_setting1

    X, y, _ = make_m2dpm_setting1(args.num_data, args.dim, seed=0)
    times: dict[str, list[float]] = {"regbayes fit": [], "MCMC vectorized": []}
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place) / "data.csv"
        names = ",".join([*(f"x{j}" for j in range(args.dim)), "y"])
        np.savetxt(file, np.column_stack([X, y]), delimiter=",", header=names, comments="")
        command = [str(pathlib.Path(sys.executable).with_name("regbayes")), "fit", "isvm", "--data", str(file)]
        command += ["--label", "y", "--num-warmup", "500", "--num-samples", "1000", "--num-chains", "4", "--out"]
        for i in range(args.rounds):
            start = time.perf_counter()
            subprocess.run([*command, f"{place}/ours{i}.nc"], check=True, capture_output=True)
            times["regbayes fit"].append(time.perf_counter() - start)
            start = time.perf_counter()
            python(THEIRS, file=str(file), out=f"{place}/theirs{i}.nc")
            times["MCMC vectorized"].append(time.perf_counter() - start)
            print({name: round(values[-1], 1) for name, values in times.items()}, flush=True)
    data = f"infinite SVM, {args.num_data:,} x {args.dim}, 4 x 1,000 draws"
    return [races.race(*times, times, "seconds", data=data, most=MOST_AGAINST)]


def twice(script: str, what: str, most: float) -> list[dict]:
    """Of every kernel, the second time as a share of the first."""
    import regbayes

    found = []
    for model in regbayes.zoo.names():
        for kernel in regbayes.zoo[model].kernels:
            with tempfile.TemporaryDirectory() as cache:
                times = python(script, cache if script is AGAIN else None, model=model, kernel=kernel)
            first, second = map(float, times)
            share, data = second / first, f"{model} {kernel}"
            print(f"{what:<12}{data:<30}{first:>8.2f} s{second:>8.3f} s{share:>8.3f}", flush=True)
            found.append(races.figure(f"{what}, share of the first", share, data=data, most=most))
    return found


def main(args: argparse.Namespace) -> None:
    sections = {
        "against": lambda: against(args),
        "second": lambda: twice(SECOND, "second fit", MOST_SECOND),
        "again": lambda: twice(AGAIN, "second MCMC", MOST_AGAIN),
    }
    for name, section in sections.items():
        if args.only in (None, name):
            races.keep(__file__, section(), args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("against", "second", "again"))
    parser.add_argument("--num-data", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default="bench", help="the folder to write to")
    main(parser.parse_args())
