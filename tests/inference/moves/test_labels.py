"""Assignment moves by themselves: what the whole kernels' tests see but dimly."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from oracle import MAX_Z

from regbayes.inference import isvm_collapsed
from regbayes.inference.moves.labels import Sweep, _weights
from regbayes.models import isvm


def test_weights_of_slots_are_those_of_the_dirichlet_process():
    """Dirichlet over the occupied; of the others' mass three sticks leave ``(alpha/(1 + alpha))^3`` on average."""
    counts, alpha, S = jnp.array([3, 0, 2, 0, 0]), 2.5, 4000
    keys = random.split(random.key(0), (2, S))
    draw = jax.jit(jax.vmap(lambda key, other: _weights(key, other, counts, jnp.array(alpha))))
    weights, rest = (np.asarray(value, float) for value in draw(*keys))
    np.testing.assert_allclose(weights.sum(1) + rest, 1, rtol=1e-5)
    others = 1 - weights[:, [0, 2]].sum(1)
    for values, expected in (
        (weights[:, 0], 3 / (5 + alpha)),
        (weights[:, 2], 2 / (5 + alpha)),
        (rest / others, (alpha / (1 + alpha)) ** 3),
        (weights[:, 1] - weights[:, 3], 0.0),  # no slot is preferred
    ):
        assert abs(values.mean() - expected) < MAX_Z * values.std() / S**0.5


def test_slots_that_a_sweep_empties_have_means_from_the_prior():
    X, y = np.full((12, 2), 9.0), np.arange(12) % 2
    kernel = isvm_collapsed(functools.partial(isvm, max_clusters=16), split_merge=0)
    settings = {"concentration": 0.01, "prior_count": 1.0, "variance": 1.0}
    (sweep,) = (move for move in kernel.moves if isinstance(move, Sweep))
    z = {"z": jnp.arange(12), "mu": jnp.full((16, 2), 9.0), "eta": jnp.zeros((16, 3))}
    z = sweep.step(random.split(random.key(0), sweep.num_keys), z, None, kernel.target((X, y), settings), {})[0]
    empty = np.setdiff1d(np.arange(16), z["z"])
    assert len(empty) > 8
    assert np.abs(z["mu"][empty]).max() < 5
