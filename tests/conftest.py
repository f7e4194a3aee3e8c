"""Two host devices for chains in parallel, quick compilation, and a compilation cache, all set before JAX starts."""

import os
import pathlib

import pytest

FLAGS = (
    "--xla_force_host_platform_device_count=2",
    # Its threads, of no use to tiny shapes, can wait for each other for ever in nested vmaps of linear algebra.
    "--xla_cpu_multi_thread_eigen=false",
)
# The backend's optimisations, its newer way to emit loops, passes over loops that are repeated until nothing changes,
# and code generated in many parts cost short tests more time than they save them.
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion,while-loop-constant-sinking,simplify-while-loops",
)


def pytest_configure(config):
    long_tests = "slow" in config.option.markexpr.replace("not slow", "")
    flags = FLAGS if long_tests else (*FLAGS, *QUICK_TO_COMPILE)
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()


MANY_MAPS = 8_000
"""Of compiled code that a worker keeps: about a gigabyte."""
CACHE = pathlib.Path(__file__).parents[1] / ".cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(autouse=True)
def _room_for_compiled_code():
    yield
    from regbayes.inference.engine.compiled import make_room

    make_room(MANY_MAPS)


@pytest.fixture
def real_file():
    """Loads a data set from the folder that ``REGBAYES_DATA`` names; skips the test where its file is not there."""
    from regbayes import datasets
    from regbayes.datasets.real import SOURCES

    def load(name):
        file = SOURCES[name].file
        home = os.environ.get("REGBAYES_DATA")
        if not home or not (pathlib.Path(home) / file).is_file():
            pytest.skip(f"REGBAYES_DATA names no folder with {file}")
        return datasets.load(name, home)

    return load
