"""Kernel states in files, so that a stopped chain goes on bit for bit. NumPy's ``.npz``, never pickle."""

import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .kernel import KernelState

KEY, IMPL = "rng_key", "rng_key.impl"


def save_state(state: KernelState, path: str | os.PathLike) -> None:
    """Write the state of one chain, or of several, to ``path``.

    The file is written beside ``path`` and then moved there, so an interruption leaves the old one whole.

    :param state: such as ``mcmc.last_state``.
    :param path: the file's name, ``.npz`` by custom.

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> from regbayes.inference import load_state, save_state
    >>> (X, y), _ = regbayes.zoo["svm"].example()
    >>> mcmc = MCMC(regbayes.zoo["svm"].kernels["slice"](), num_warmup=0, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y)
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "chain.npz"
    >>> save_state(mcmc.last_state, path)
    >>> mcmc.post_warmup_state = load_state(path)
    >>> mcmc.run(mcmc.post_warmup_state.rng_key, X, y)
    """
    arrays = {IMPL: np.array("")}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = "/".join(str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", "")))) for key in keys)
        if name == KEY and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            arrays[IMPL], leaf = np.array(str(jax.random.key_impl(leaf))), jax.random.key_data(leaf)
        arrays[name] = np.asarray(leaf)
    arrays["num_moves"] = np.array(len(state.tuning))
    path = pathlib.Path(path)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    os.replace(partial, path)


def load_state(path: str | os.PathLike) -> KernelState:
    """Read a state that :func:`save_state` wrote.

    Continue with ``mcmc.post_warmup_state = state; mcmc.run(state.rng_key, *args, **kwargs)``, the same kernel and
    arguments as before.

    :param path: the file's name.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    missing = {KEY, IMPL, "num_moves"} - set(arrays)
    if missing:
        raise ValueError(f"path {os.fspath(path)!r} is not a saved state: it lacks {sorted(missing)}")
    fields: dict[str, Any] = {"z": {}, "tuning": tuple({} for _ in range(int(arrays.pop("num_moves"))))}
    impl = str(arrays.pop(IMPL))
    for name, array in arrays.items():
        field, *inner = name.split("/", 2)
        if field == "z":
            fields["z"]["/".join(inner)] = jnp.asarray(array)
        elif field == "tuning":
            fields["tuning"][int(inner[0])][inner[1]] = jnp.asarray(array)
        else:
            fields[field] = jnp.asarray(array)
    if impl:
        fields[KEY] = jax.random.wrap_key_data(fields[KEY], impl=impl)
    return KernelState(**fields)
