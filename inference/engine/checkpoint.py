"""Kernel states and draws in files, so that a stopped chain goes on bit for bit. NumPy's formats, never pickle."""

import json
import os
import pathlib
import shutil
from collections.abc import Mapping
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


class Folder:
    """A run's draws so far, as arrays in files, and the state to go on from; ``progress.json`` says what counts.

    First the files, then the line that makes them count: a stop at any moment loses what came after the last saving.

    :param path: the folder.
    :param plan: what makes the run what it is; one with another plan is not gone on with.
    :param resume: whether to go on with what is there.
    """

    def __init__(self, path: str | os.PathLike, plan: Mapping[str, Any], resume: bool) -> None:
        self.path, self.plan = pathlib.Path(path), dict(plan)
        self.files: dict[str, dict[str, np.memmap]] = {"sites": {}, "fields": {}}
        self.found, self.num_saves, self.num_samples = self._progress(), 0, 0
        if self.found and not resume:
            raise ValueError(f"an interrupted run is in {os.fspath(path)!r}; go on with it (resume), or remove it")
        if self.found and self.found["plan"] != self.plan:
            other = [key for key in self.plan if self.found["plan"].get(key) != self.plan[key]]
            raise ValueError(
                f"resume: the run in {os.fspath(path)!r} had another {', '.join(other)}; give the same, or remove it"
            )

    def _progress(self) -> dict[str, Any]:
        path = self.path / "progress.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def begin(self, state: KernelState, num_samples: int) -> tuple[int, KernelState]:
        """How many sweeps are done, and the state there; ``state``, if none are."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.num_samples = num_samples
        if not self.found:
            return 0, state
        self.num_saves = self.found["num_saves"]
        for group, names in self.found["files"].items():
            for name, file in names.items():
                self.files[group][name] = np.lib.format.open_memmap(self.path / file, mode="r+")
        return self.found["done"], load_state(self.path / f"state-{self.num_saves}.npz")

    def write(self, start: int, values: dict[str, np.ndarray], group: str) -> None:
        """Draws (chain, draw, ...) from the ``start``-th on."""
        files = self.files[group]
        for name, value in values.items():
            if name not in files:
                shape = (value.shape[0], self.num_samples, *value.shape[2:])
                path = self.path / f"{group}-{len(files)}.npy"
                files[name] = np.lib.format.open_memmap(path, mode="w+", dtype=value.dtype, shape=shape)
            files[name][:, start : start + value.shape[1]] = value

    def save(self, done: int, state: KernelState) -> None:
        """Make what has been written count."""
        for files in self.files.values():
            for file in files.values():
                file.flush()
        old, self.num_saves = self.path / f"state-{self.num_saves}.npz", self.num_saves + 1
        save_state(state, self.path / f"state-{self.num_saves}.npz")
        names = {
            group: {name: f"{group}-{k}.npy" for k, name in enumerate(files)} for group, files in self.files.items()
        }
        line = {"plan": self.plan, "done": done, "num_saves": self.num_saves, "files": names}
        unfinished = self.path / "progress.writing"
        unfinished.write_text(json.dumps(line))
        os.replace(unfinished, self.path / "progress.json")
        old.unlink(missing_ok=True)

    def draws(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All sites, and the log joint, as they lie in the files."""
        return {**self.files["sites"]}, self.files["fields"]["log_joint"]

    def remove(self) -> None:
        """Once the result is written."""
        shutil.rmtree(self.path, ignore_errors=True)
