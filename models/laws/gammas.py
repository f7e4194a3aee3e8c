"""Many gamma variates at once.

``jax.random.loggamma`` takes a second for a million, of which a sampler of topics needs several in each sweep, and
seconds to compile.
"""

import math

import jax
import numpy as np
from jax import random

from . import cores as host
from .cores import GOLDEN, bits, uniform

PART = 2**15
"""Variates that have a generator of their own."""
SMALL = 0.3
"""Shapes below it are drawn in logs."""
LEAST = -1e4
"""Of the logs: beyond the range of either precision, and finite."""


def log_gammas(key: jax.Array, shape: jax.Array) -> jax.Array:
    """Logs of gamma variates with the given shape parameters, one for each."""
    if not host.available():
        return random.loggamma(key, shape)
    return host.call(_on_host, jax.ShapeDtypeStruct(shape.shape, shape.dtype), shape, host.seed_of(key))


def _on_host(out: np.ndarray, shape: np.ndarray, seed: np.ndarray) -> None:
    number, flat, shapes = host.join(seed), out.reshape(-1), shape.reshape(-1)
    edges = np.append(np.arange(0, out.size, PART), out.size)
    host.in_parts(lambda a, b: _fill(shapes[a:b], flat[a:b], number, np.uint64(a)), edges)


@host.compiled(cache=True)
def _fill(shape, out, seed, stream):
    """Exact: Liu, Martin and Syring's method (2017) for small shapes, in logs; Marsaglia and Tsang's (2000) for others.

    A shape below 1 that is not small by Gamma(a) = Gamma(a + 1) U^(1/a).
    """
    state = bits(seed + bits(stream + GOLDEN))
    spare, has_spare = 0.0, False
    for i in range(len(shape)):
        a, shift = np.float64(shape[i]), 0.0
        if a < SMALL:
            # v = -a log x has a density proportional to exp(-v - exp(-v/a)), nearly an exponential on v > 0.
            rate, weight = 1.0 / a - 1.0, a / (math.e * (1.0 - a))
            while True:
                state += GOLDEN
                u = uniform(state) * (1.0 + weight)
                if u < 1.0:
                    v = -math.log(u)
                    log_ratio = -math.exp(-v / a) if v < 40.0 * a else 0.0
                else:
                    state += GOLDEN
                    v = math.log(uniform(state)) / rate
                    log_ratio = -v - math.exp(-v / a) - math.log(weight * rate) - rate * v
                if log_ratio == 0.0:
                    break
                state += GOLDEN
                if math.log(uniform(state)) < log_ratio:
                    break
            out[i] = max(-v / a, LEAST)
            continue
        if a < 1.0:
            state += GOLDEN
            shift = math.log(uniform(state)) / a
            a += 1.0
        d = a - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            if has_spare:
                x, has_spare = spare, False
            else:
                r = 0.0
                while not 0.0 < r < 1.0:
                    state += GOLDEN
                    p = 2.0 * uniform(state) - 1.0
                    state += GOLDEN
                    q = 2.0 * uniform(state) - 1.0
                    r = p * p + q * q
                scale = math.sqrt(-2.0 * math.log(r) / r)
                x, spare, has_spare = p * scale, q * scale, True
            v = 1.0 + c * x
            if v <= 0.0:
                continue
            v = v * v * v
            state += GOLDEN
            u = uniform(state)
            if u < 1.0 - 0.0331 * x * x * x * x:
                break
            if math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                break
        out[i] = math.log(d * v) + shift
