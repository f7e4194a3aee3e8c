"""A process that fits again and again: what is compiled is let go before Linux's limit of memory maps is near."""

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import itertools, pathlib
    from jax import random
    from numpyro.infer import MCMC
    import regbayes
    from regbayes.inference.engine import compiled

    compiled.MANY_MAPS = {room}
    kernels = [(name, kernel) for name in {models} for kernel in regbayes.zoo[name].kernels]
    methods = itertools.cycle(["vectorized", "parallel", "sequential"])
    maps = []
    for i, (name, kernel), method in zip(range({fits}), itertools.cycle(kernels), methods):
        args, kwargs = regbayes.zoo[name].example()
        lengths = dict(num_warmup=1, num_samples=1, num_chains=2)
        mcmc = MCMC(regbayes.zoo[name].kernels[kernel](), chain_method=method, progress_bar=False, **lengths)
        mcmc.run(random.key(i), *args, **kwargs)
        maps.append(pathlib.Path("/proc/self/maps").read_bytes().count(b"\\n"))
    print(*maps)
"""


def maps_after_each(**values):
    """Of a process of its own, two devices, the number of memory maps after each fit."""
    script = textwrap.dedent(SCRIPT).format(**values)
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory maps are counted on Linux")
def test_old_code_makes_room_for_new():
    maps = maps_after_each(room=0, models=["svm"], fits=6)
    assert max(maps[3:]) < 1.1 * max(maps[:3])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory maps are counted on Linux")
def test_a_hundred_fits_of_all_models_under_all_chain_methods():
    import regbayes

    maps = maps_after_each(room=30_000, models=regbayes.zoo.names(), fits=100)
    assert len(maps) == 100
    assert max(maps) <= 40_000
