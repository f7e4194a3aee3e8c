"""The loop that draws: several chains, compiled once, in chunks, kept in memory or in a folder."""

import math
import os
import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from .checkpoint import Folder
from .kernel import KernelState, MoveKernel
from .target import Sites

SAVE_EVERY = 30.0
"""Seconds between two savings."""
CHUNK_SECONDS = 0.5
"""About how long a chunk takes: an interrupt waits for one."""
CHUNK_BYTES = 2**26
"""Draws that a chunk may take, all chains together."""
MOST_DRAWS = 1024
"""In a chunk."""
LINE_EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


class BufferFull(ValueError):
    """A chain needed more clusters or features than its buffer holds."""


class Draws(NamedTuple):
    """What a run has drawn.

    - **sites** - (chain, draw, ...) arrays, deterministic sites among them; of files, where a folder keeps them.
    - **log_joint** - (chain, draw).
    - **state** - of all chains, after the last sweep.
    """

    sites: dict[str, np.ndarray]
    log_joint: np.ndarray
    state: KernelState


def draw_chains(
    kernel: MoveKernel,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    num_warmup: int = 500,
    num_samples: int = 1000,
    num_chains: int = 4,
    thinning: int = 1,
    init_params: Sites | None = None,
    folder: str | os.PathLike | None = None,
    plan: Mapping[str, Any] | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Draws:
    """Draw chains side by side. The code is compiled once for a kernel and shapes, however long and often it runs.

    :param kernel: the kernel.
    :param args: the program's arguments.
    :param kwargs: its keyword arguments.
    :param seed: of all random numbers.
    :param num_warmup: sweeps before the first draw.
    :param num_samples: draws of each chain.
    :param thinning: sweeps from one draw to the next.
    :param init_params: sites to start from, the same for all chains.
    :param folder: where state and draws are kept, every half minute and on an interrupt; memory is for a chunk then.
    :param plan: what else a run must have in common with the one it goes on with: the data's digest, say.
    :param resume: go on with the run in the folder, to the same draws bit for bit.
    :param progress: show it on stderr: a bar in a terminal or a notebook, else a line now and then.

    **Example**

    >>> import regbayes
    >>> from regbayes.inference import draw_chains
    >>> args, kwargs = regbayes.zoo["svm"].example()
    >>> kernel = regbayes.zoo["svm"].kernels["slice"]()
    >>> draw_chains(kernel, args, kwargs, num_warmup=10, num_samples=20, progress=False).sites["eta"].shape
    (4, 20, 2)
    """
    for name, value, least in (
        ("num_warmup", num_warmup, 0),
        ("num_samples", num_samples, 1),
        ("num_chains", num_chains, 1),
        ("thinning", thinning, 1),
    ):
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, found {value!r}")
    lengths = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains, "thinning": thinning}
    plan = {**(plan or {}), **lengths, "seed": seed}
    store = _Memory() if folder is None else Folder(folder, plan, resume)
    args, kwargs = kernel.expand(args, kwargs)
    keys = random.split(random.key(seed), num_chains)
    if init_params is not None:
        init_params = jax.tree.map(lambda a: jnp.broadcast_to(a, (num_chains, *np.shape(a))), init_params)
    state = kernel.init(keys, num_warmup, init_params, args, kwargs)
    args, kwargs = jax.tree.map(_on_device, (args, kwargs))
    arguments = kernel.arguments(args, kwargs)
    run = _Run(kernel, arguments, store, num_samples, num_warmup, thinning, state)
    run.go(_Progress(run.total, num_warmup, progress))
    return Draws(*store.draws(), run.state)


def _on_device(leaf: Any) -> Any:
    """A NumPy array as JAX's, so that it is copied once, not in each chunk."""
    return jnp.array(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub" else leaf


class _Run:
    """The sweeps of a run: how many are done, and the state there."""

    def __init__(self, kernel, arguments, store, num_samples, num_warmup, thinning, state) -> None:
        self.kernel, self.arguments, self.store, self.thinning = kernel, arguments, store, thinning
        self.num_samples, self.num_warmup = num_samples, num_warmup
        self.total = num_warmup + num_samples * thinning
        self.done, self.state = store.begin(state, num_samples)
        size = sum(leaf.nbytes for leaf in state.z.values())
        self.capacity = max(1, min(MOST_DRAWS, CHUNK_BYTES // max(size, 1)))

    def go(self, progress: "_Progress") -> None:
        """To the end; a stop on the way leaves everything in the store."""
        saved, sweeps = monotonic(), 1
        with progress:
            progress.show(self.done, "")
            try:
                while self.done < self.total:
                    began = monotonic()
                    count = self.chunk(sweeps)
                    elapsed = max(monotonic() - began, 1e-6)
                    sweeps = max(1, min(math.ceil(count * CHUNK_SECONDS / elapsed), 8 * sweeps))
                    first = jax.tree.map(lambda leaf: leaf[0], self.state)
                    progress.show(self.done, self.kernel.get_diagnostics_str(first))
                    if monotonic() - saved > SAVE_EVERY:
                        self.store.save(self.done, self.state)
                        saved = monotonic()
            except KeyboardInterrupt:
                self.store.save(self.done, self.state)
                raise
        self.store.save(self.done, self.state)

    def chunk(self, sweeps: int) -> int:
        """About so many sweeps; how many they were."""
        warming = self.done < self.num_warmup
        if warming:
            num, each = 1, min(sweeps, self.num_warmup - self.done)
        else:
            drawn = (self.done - self.num_warmup) // self.thinning
            num = min(max(1, sweeps // self.thinning), self.capacity, self.num_samples - drawn)
            each = self.thinning
        state, sites, log_joint = self.kernel.draws(self.arguments, self.capacity, self.state, num, each)
        if np.any(np.asarray(state.overflow)):
            self.store.remove()
            raise BufferFull(
                f"a chain's buffer was full, so its draws are truncated; raise {self.buffer} and run again"
            )
        if not warming:
            self.store.write(drawn, {site: np.asarray(value)[:, :num] for site, value in sites.items()}, "sites")
            self.store.write(drawn, {"log_joint": np.asarray(log_joint)[:, :num]}, "fields")
        self.done, self.state = self.done + num * each, state
        return num * each

    @property
    def buffer(self) -> str:
        """The argument that says how large the buffer is."""
        names = [name for name in self.kernel.parameters if name.startswith("max_")]
        return " or ".join(names) or "the buffer's size"


class _Memory:
    """Draws in arrays, for a run that no folder keeps."""

    def begin(self, state: KernelState, num_samples: int) -> tuple[int, KernelState]:
        self.num_samples = num_samples
        self.arrays: dict[str, dict[str, np.ndarray]] = {"sites": {}, "fields": {}}
        return 0, state

    def write(self, start: int, values: dict[str, np.ndarray], group: str) -> None:
        for name, value in values.items():
            if name not in self.arrays[group]:
                shape = (value.shape[0], self.num_samples, *value.shape[2:])
                self.arrays[group][name] = np.empty(shape, value.dtype)
            self.arrays[group][name][:, start : start + value.shape[1]] = value

    def save(self, done: int, state: KernelState) -> None:
        pass

    def remove(self) -> None:
        pass

    def draws(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return self.arrays["sites"], self.arrays["fields"]["log_joint"]


class _Progress:
    """How far a run is: a bar on a terminal, plain lines where output is piped, or nothing."""

    def __init__(self, total: int, num_warmup: int, wanted: bool) -> None:
        self.total, self.num_warmup, self.wanted = total, num_warmup, wanted
        self.bar: Any = None
        self.began = self.shown = monotonic()
        self.first: int | None = None

    def __enter__(self) -> "_Progress":
        if self.wanted and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from tqdm.auto import tqdm

            self.bar = tqdm(total=self.total, unit="sweep", mininterval=0.2, dynamic_ncols=True, smoothing=0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, done: int, text: str) -> None:
        """``done`` sweeps, and how the first chain is."""
        if self.first is None:
            self.first = done
        phase = "draws" if done > self.num_warmup or not self.num_warmup else "warm-up"
        if self.bar is not None:
            self.bar.set_description(phase, refresh=False)
            self.bar.set_postfix_str(text, refresh=False)
            self.bar.update(done - self.bar.n)
        elif self.wanted and text and monotonic() - self.shown > LINE_EVERY:
            rate = (done - self.first) / (monotonic() - self.began)
            left = (self.total - done) / max(rate, 1e-9)
            print(
                f"{phase}: {done:,} of {self.total:,} sweeps, {rate:.3g} a second, {left:.0f} s left; {text}",
                file=sys.stderr,
                flush=True,
            )
            self.shown = monotonic()
