"""XLA's flags, and room for what it compiles. It imports nothing heavy."""

import os
import pathlib

MAPS = pathlib.Path("/proc/self/maps")
MANY = 30_000
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Threads of XLA on the CPU can wait for each other, in nested vmaps of linear algebra for ever."""


def add_flag(flag: str) -> None:
    """Add a flag, unless it has been given with any value; XLA listens only before JAX starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


def make_room() -> None:
    """Forget compiled functions if there are many: each keeps memory maps, of which Linux gives a process 65,530, and
    beyond them XLA crashes.

    >>> make_room()
    """
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        import jax

        jax.clear_caches()
