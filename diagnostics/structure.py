"""What the axes of the programs' sites stand for, and which of them are numbered at will.

Clusters, topics and latent features sit in slots whose numbers mean nothing: a chain may exchange them, and two chains
need not agree on them. :func:`to_datatree` writes the names below on the axes, so that every later step reads from the
draws themselves which axes are slots (:data:`SLOTS`) and which sites hold the slots' numbers (attribute ``labels``).
For a program that is not listed here name the axes so in ``to_datatree(dims=...)``.
"""

from collections.abc import Mapping
from typing import Any

import xarray as xr

SLOTS = ("cluster", "topic", "latent_feature", "feature_weight")
"""Axes numbered at will. ``feature_weight`` begins with the latent features and goes on with what is appended."""
CASES = ("datum", "document", "token", "word")
"""Axes as long as the data: no rows of a summary."""

Dims = Mapping[str, tuple[str, ...]]

_GAUSSIANS: Dims = {"z": ("datum",), "X": ("datum", "input")}
_LABELLED: Dims = {**_GAUSSIANS, "y": ("datum",)}
_TOPICS: Dims = {"phi": ("topic", "word"), "z": ("token",), "X": ("document", "word"), "y": ("document",)}
_CLUSTERED: Dims = {
    **_TOPICS,
    "mu0": ("topic",),
    "mu": ("cluster", "topic"),
    "gamma": ("cluster",),
    "landmarks": ("document",),
}
_FEATURES: Dims = {**_LABELLED, "Z": ("datum", "latent_feature"), "W": ("input", "latent_feature")}

# An axis in brackets is there for more than two classes or more than one task.
DIMS: dict[str, Dims] = {
    "svm": {**_LABELLED, "eta": ("weight",)},
    "multiclass_svm": {**_LABELLED, "eta": ("class", "weight")},
    "svr": {**_LABELLED, "eta": ("weight",)},
    "isvm": {**_LABELLED, "mu": ("cluster", "input"), "eta": ("cluster", "[class]", "weight")},
    "dpmnl": {
        **_LABELLED,
        "mu": ("cluster", "input"),
        "sigma2": ("cluster", "input"),
        "beta": ("cluster", "class", "weight"),
    },
    "dpgmm": _GAUSSIANS,
    "dpmmgm": {**_GAUSSIANS, "eta": ("cluster", "weight")},
    "ctm": _CLUSTERED,
    "mmctm": {**_CLUSTERED, "eta": ("cluster", "topic")},
    "medlda": {**_TOPICS, "eta": ("class", "topic")},
    "medlda_regression": {**_TOPICS, "eta": ("topic",)},
    "ibp": _FEATURES,
    "ilsvm": {**_FEATURES, "eta": ("class", "feature_weight")},
    "mt_ilsvm": {
        **_FEATURES,
        "y": ("datum", "[task]"),
        "Z": ("input", "latent_feature"),
        "W": ("datum", "latent_feature"),
        "eta": ("task", "feature_weight"),
    },
}

LABELS: dict[str, dict[str, str]] = {
    **{program: {"z": "cluster"} for program in ("isvm", "dpmnl", "dpgmm", "dpmmgm")},
    **{program: {"y": "cluster", "z": "topic"} for program in ("ctm", "mmctm")},
    **{program: {"z": "topic"} for program in ("medlda", "medlda_regression")},
}
"""Sites that hold numbers of slots, by program."""


def dims_of(program: str, ranks: Mapping[str, int]) -> dict[str, list[str]]:
    """Names of the axes of a program's sites and data.

    :param program: the program's name.
    :param ranks: how many axes each site or datum has.
    """
    found = {}
    for name, dims in DIMS.get(program, {}).items():
        if len(dims) != ranks.get(name):
            dims = tuple(dim for dim in dims if not dim.startswith("["))
        if len(dims) == ranks.get(name):
            found[name] = [dim.strip("[]") for dim in dims]
    return found


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
