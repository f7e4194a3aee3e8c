"""XLA's flags. It imports nothing heavy."""

import os

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Threads of XLA on the CPU can wait for each other, in nested vmaps of linear algebra for ever."""


def add_flag(flag: str) -> None:
    """Add a flag, unless it has been given with any value; XLA listens only before JAX starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
