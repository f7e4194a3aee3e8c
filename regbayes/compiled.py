"""Room for compiled code."""

import pathlib

MAPS = pathlib.Path("/proc/self/maps")
MANY = 30_000


def make_room() -> None:
    """Forget compiled functions if there are many: each keeps memory maps, of which Linux gives a process 65,530, and
    beyond them XLA crashes.

    >>> make_room()
    """
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        import jax

        jax.clear_caches()
