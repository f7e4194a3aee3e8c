"""``regbayes.fit``: from a model's name and data to its draws."""

import difflib
import hashlib
import inspect
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import scipy.sparse
import xarray as xr

from . import zoo
from .diagnostics.arviz import assemble
from .inference import draw_chains


def fit(
    model: Any,
    *data: Any,
    seed: int = 0,
    num_warmup: int = 500,
    num_samples: int = 1000,
    num_chains: int = 4,
    thinning: int = 1,
    kernel: str | None = None,
    init_params: Mapping[str, Any] | None = None,
    out: str | os.PathLike | None = None,
    resume: bool = False,
    progress: bool = True,
    attrs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> xr.DataTree:
    """Draw a model's posterior: what the command ``regbayes fit`` does, from Python.

    All chains run side by side in one compiled loop, which a later fit of equal shape uses again.

    :param model: the name of a model of the zoo, or a card.
    :param data: the program's data arguments, ``X, y`` mostly.
    :param seed: of all random numbers.
    :param num_warmup: sweeps before the first draw.
    :param num_samples: draws of each chain.
    :param num_chains: chains.
    :param thinning: sweeps from one draw to the next.
    :param kernel: one of the model's kernels by name; by default the recommended one, the last.
    :param init_params: sites to start from, the same for all chains.
    :param out: a file, ``.nc``, for the result. State and draws are kept beside it, in the folder ``<out>.partial``,
        every half minute and on an interrupt; memory is for some of the draws only.
    :param resume: go on with an interrupted run of the same arguments, to the same draws bit for bit.
    :param progress: show it: a bar in a terminal or a notebook, else a line on stderr now and then.
    :param attrs: what the result should remember besides, numbers and words.
    :param settings: the program's hyper-parameters.
    :return: the draws, as :func:`regbayes.diagnostics.to_datatree` makes them.

    **Example**

    >>> import regbayes
    >>> X, y, _ = regbayes.datasets.make_svm(100, 2)
    >>> dt = regbayes.fit("svm", X, y, num_warmup=20, num_samples=50, cost=0.5, progress=False)
    >>> dict(dt["posterior"]["eta"].sizes)
    {'chain': 4, 'draw': 50, 'weight': 2}
    """
    entry = zoo[model] if isinstance(model, str) else model  # type: ignore[index]
    sampler = entry.kernels[_scheme(entry, kernel)]()
    _check_settings(entry, settings)
    path = None if out is None else _check_out(out)
    folder = None if path is None else path.with_name(path.name + ".partial")
    plan = {
        "model": entry.name,
        "kernel": sampler.name,
        "settings": {name: repr(value) for name, value in sorted(settings.items())},
        "data": digest_of((data, init_params)),
    }
    draws = draw_chains(
        sampler,
        data,
        settings,
        seed=seed,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        thinning=thinning,
        init_params=None if init_params is None else dict(init_params),
        folder=folder,
        plan=plan,
        resume=resume,
        progress=progress,
    )
    notes = {"model": entry.name, "num_warmup": num_warmup, "thinning": thinning, "seed": seed, **(attrs or {})}
    fields = {"log_joint": draws.log_joint}
    dt = assemble(sampler, draws.sites, fields, (data, settings), overflow=False, attrs=notes)
    if path is not None and folder is not None:
        unfinished = path.with_name(path.name + ".writing")
        dt.to_netcdf(unfinished, engine="h5netcdf")
        os.replace(unfinished, path)
        shutil.rmtree(folder)
    return dt


def _scheme(entry: Any, kernel: str | None) -> str:
    """The kernel's name: the recommended one's, if none is given."""
    if kernel is not None and kernel not in entry.kernels:
        raise ValueError(f"kernel must be one of {', '.join(entry.kernels)}, found {kernel!r}")
    return kernel or list(entry.kernels)[-1]


def _check_settings(entry: Any, settings: Mapping[str, Any]) -> None:
    parameters = inspect.signature(entry.program).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"settings have no {name!r}; the program has {', '.join(known)}{hint}")


def _check_out(out: str | os.PathLike) -> pathlib.Path:
    path = pathlib.Path(out)
    if path.suffix != ".nc":
        raise ValueError(f"out must name a file that ends in .nc, found {str(path)!r}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"out: no folder {str(path.parent)!r}; make it first")
    return path


def digest_of(values: Any) -> str:
    """Of data, which a run that is gone on with must have in common with its beginning."""
    found = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(values):
        if scipy.sparse.issparse(leaf):
            leaf = leaf.tocsr()
            parts = [leaf.data, leaf.indices, leaf.indptr, np.array(leaf.shape)]
        else:
            parts = [np.asarray(leaf)]
        for part in parts:
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes() if part.dtype != object else repr(part).encode())
    return found.hexdigest()
