"""What the axes of the programs' sites stand for, and which of them are numbered at will.

Clusters, topics and latent features sit in slots whose numbers mean nothing: a chain may exchange them, and two chains
need not agree on them. A program names the axes of a site where it declares the site, and says there which sites hold
slots' numbers: ``numpyro.sample("z", law, infer={"event_dims": ["datum"], "labels": "cluster"})``. :func:`to_datatree`
writes both on the draws, so that every later step reads from the draws themselves which axes are slots (:data:`SLOTS`)
and which sites hold the slots' numbers (attribute ``labels``).
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

SLOTS = ("cluster", "topic", "latent_feature", "feature_weight")
"""Axes numbered at will. ``feature_weight`` begins with the latent features and goes on with what is appended."""
CASES = ("datum", "document", "token", "word")
"""Axes as long as the data: no rows of a summary."""
LINEAR = (("weight",), ("class", "weight"))
"""Axes of a site that weighs the inputs, and the constant behind them where there is an intercept."""


def origin(program: Any) -> Any:
    """The function behind partial applications and handlers."""
    while not hasattr(program, "__name__"):
        program = getattr(program, "func", None) or getattr(program, "fn", None) or type(program)
    return program


def card_of(found: xr.DataTree | Callable | str | None) -> Any:
    """The zoo's card of a tree of draws, of a program, or by its name; None where the zoo has none."""
    zoo = importlib.import_module(f"{__package__.rpartition('.')[0]}.zoo")
    if isinstance(found, xr.DataTree):
        if "model" not in found.attrs:  # trees of earlier versions name the program alone
            program = found.attrs.get("program")
            return next((card for card in zoo.values() if origin(card.program).__name__ == program), None)
        found = found.attrs["model"]
    if isinstance(found, str):
        return zoo.get(found)
    return next((card for card in zoo.values() if origin(card.program) is origin(found)), None)


def dims_of(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Names of the axes of a trace's sites, as the program declares them: its plates', then ``event_dims``."""
    found = {}
    for name, site in sites.items():
        plates = [frame.name for frame in sorted(site.get("cond_indep_stack", ()), key=lambda frame: frame.dim)]
        dims = [*plates, *site.get("infer", {}).get("event_dims", ())]
        if dims and len(dims) == np.ndim(site["value"]):
            found[name] = dims
    return found


def linear_site(posterior: xr.Dataset) -> str | None:
    """The site with the weights of a linear model, from its axes."""
    return next((str(name) for name, site in posterior.data_vars.items() if site.dims[2:] in LINEAR), None)


def label_site(posterior: xr.Dataset, dim: str = "cluster") -> str | None:
    """The site that holds numbers of slots along ``dim``; without any such mark it is ``z`` for clusters."""
    marks = {str(name): site.attrs.get("labels") for name, site in posterior.data_vars.items()}
    for name, mark in marks.items():
        if mark == dim:
            return name
    unmarked = "z" in posterior and posterior["z"].dtype.kind in "iu" and posterior["z"].ndim == 3
    return "z" if dim == "cluster" and unmarked and not any(marks.values()) else None


def flat_draws(posterior: xr.Dataset) -> dict[str, Any]:
    """(S, ...) arrays of the sites, the chains one after the other, as predictions want them."""
    arrays = {str(name): site.transpose("chain", "draw", ...).to_numpy() for name, site in posterior.data_vars.items()}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


def arguments_of(dt: xr.DataTree) -> dict[str, Any]:
    """The program's arguments as far as the tree has them: arrays, numbers and words."""
    data = dt["constant_data"].to_dataset() if "constant_data" in dt.children else xr.Dataset()
    words = {str(name).removeprefix("argument_"): value for name, value in dt.attrs.items() if "argument_" in str(name)}
    return {**words, **{str(name): array.to_numpy() for name, array in data.items()}}


def switches(site: xr.DataArray) -> bool:
    """Whether the entries of a site change their meaning when slots are numbered anew."""
    return bool(site.attrs.get("labels")) or any(dim in SLOTS for dim in site.dims)
