"""Compiled code on the host's cores, called from JAX: Numba's, where it is installed.

Arrays are passed as they lie in memory, in any precision; threads share the work and let go of the interpreter's lock.
"""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.experimental.buffer_callback import buffer_callback

try:
    from numba import njit
except ImportError:  # pragma: no cover
    njit = None  # type: ignore[assignment]

GOLDEN, MIX_1, MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

CHUNKS = 16
"""Parts, per core, that documents are cut into."""


def available() -> bool:
    """Whether compiled code can be called: Numba is there, and JAX computes on the same processor."""
    return njit is not None and jax.default_backend() == "cpu"


def wanted(host: bool | None) -> bool:
    """What was asked for; whether it is :func:`available` if nothing was."""
    return available() if host is None else host


def compiled(**options: Any) -> Callable:
    """A decorator for functions that Numba compiles; without it they are left alone, and not to be called."""
    return (lambda f: f) if njit is None else njit(nogil=True, **options)


def call(fn: Callable[..., None], result: Any, *args: jax.Array) -> Any:
    """``fn(out, *args)`` with NumPy's views of the arguments; it fills ``out``, one array or several."""

    def callback(_: Any, out: Any, *args: Any) -> None:
        fn(jax.tree.map(np.asarray, out), *map(np.asarray, args))

    return buffer_callback(callback, result, vmap_method="sequential")(*args)


def in_parts(fn: Callable[..., None], edges: np.ndarray) -> None:
    """``fn(a, b)`` for every two neighbours in ``edges``, shared out among threads."""
    parts = [_pool().submit(fn, a, b) for a, b in itertools.pairwise(edges)]
    for part in parts:
        part.result()


def edges_of(offsets: np.ndarray) -> np.ndarray:
    """Documents where parts of about equally many tokens begin, and D; ``offsets`` (D + 1,) say where documents do."""
    tokens = np.linspace(0, offsets[-1], CHUNKS * num_cores() + 1)
    return np.unique(np.append(np.searchsorted(offsets[:-1], tokens[:-1]), len(offsets) - 1))


@cache
def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_cores())


def seed_of(key: jax.Array) -> jax.Array:
    """(2,) 64 bits for a generator on the host."""
    return random.bits(key, (2,), jnp.uint32)


def join(seed: np.ndarray) -> np.uint64:
    """The 64 bits as one number."""
    low, high = (int(part) for part in seed)
    return np.uint64(low | high << 32)


@compiled(inline="always")
def bits(state):
    """64 random bits from a state that grows by :data:`GOLDEN`: SplitMix64 of Steele, Lea and Flood (2014)."""
    x = (state ^ (state >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


@compiled(inline="always")
def uniform(state):
    """In the open interval (0, 1)."""
    return (np.float64(bits(state) >> np.uint64(11)) + 0.5) * 2.0**-53
