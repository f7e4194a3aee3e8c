"""``regbayes plot``: the pictures that suit what a fit has drawn."""

import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any

from .common import UsageError, folder

MOST_DATA = 2000
"""A map of pairs has no use for more."""


def plot(file: pathlib.Path, out: pathlib.Path | None) -> None:
    """Draw the pictures that suit the draws of a fit into a folder."""
    os.environ.setdefault("MPLBACKEND", "agg")
    dt = _open(file)
    out = folder(file.with_suffix("") if out is None else out)
    import matplotlib.pyplot as plt

    print("Plots")
    for name, (text, draw) in pictures(dt).items():
        drawn = draw()
        figure = getattr(drawn, "figure", drawn)
        figure.savefig(out / f"{name}.png", dpi=150)
        plt.close(figure)
        print(f"  {out / name}.png: {text}", flush=True)


def _open(file: pathlib.Path) -> Any:
    import xarray as xr

    if not file.is_file():
        raise UsageError(f"no file {str(file)!r}; `regbayes fit` writes one")
    try:
        with xr.open_datatree(file, engine="h5netcdf") as found:
            dt = found.load()
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(file)!r} is no netCDF file: {error}") from None
    if "posterior" not in dt.children or "program" not in dt.attrs:
        raise UsageError(f"{str(file)!r} is not by `regbayes fit`: it has groups {', '.join(dt.children) or 'none'}")
    return dt


def pictures(dt: Any) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Name, caption and function of each picture that suits the draws, by their axes and the model's card."""
    from .. import diagnostics
    from ..diagnostics.plots.mixtures import components_of
    from ..diagnostics.structure import card_of, label_site, linear_site
    from ..diagnostics.summary import parameters, scalars

    posterior, card = dt["posterior"].to_dataset(), card_of(dt)
    data = dt["constant_data"].to_dataset() if "constant_data" in dt.children else {}
    classes = "y" in data and data["y"].dtype.kind in "iu" and data["y"].ndim == 1
    in_plane = classes and "X" in data and data["X"].ndim == 2 and data["X"].shape[1] == 2
    found: dict[str, tuple[str, Callable[[], Any]]] = {
        "trace": ("trace and ranks of what no numbering changes", lambda: diagnostics.plot_trace(dt))
    }
    names = parameters(dt)
    if names and len(scalars(dt, names)) <= 40:
        found["posterior"] = ("posterior of the parameters", lambda: diagnostics.plot_posterior(dt))
    if in_plane and (site := linear_site(posterior)):
        eta = posterior[site].to_numpy()
        weights, ell = eta.reshape(-1, *eta.shape[2:]), dt.attrs.get("argument_ell")
        X, y = data["X"].to_numpy(), data["y"].to_numpy()
        found["decision"] = (
            "decision regions and how sure they are",
            lambda: diagnostics.plot_decision(weights, X, y, ell=ell),
        )
    if in_plane and components_of(dt) is not None:
        found["decision"] = ("decision regions, components and margins", lambda: diagnostics.plot_mixture_decision(dt))
    if site := label_site(posterior):
        if posterior[site].shape[-1] <= MOST_DATA:
            found["coclustering"] = ("who is with whom", lambda: diagnostics.plot_coclustering(dt))
        found["num_clusters"] = ("the number of clusters", lambda: diagnostics.plot_num_clusters(dt))
    if "Z" in posterior and "latent_feature" in posterior["Z"].dims:
        found["num_features"] = ("the number of active features", lambda: diagnostics.plot_num_clusters(dt))
        if classes and posterior["Z"].dims[-2] == "datum":
            found["features"] = ("latent features by class", lambda: diagnostics.plot_features(dt))
    if "phi" in posterior and posterior["phi"].dims[2:] == ("topic", "word"):
        found["topics"] = ("the topics' words", lambda: diagnostics.plot_topics(dt))
        if "z" in posterior and posterior["z"].attrs.get("labels") == "topic":
            found["documents"] = ("the documents' topics", lambda: diagnostics.plot_documents(dt))
    own = card.pictures if card else {}
    return found | {name: (text, functools.partial(draw, dt)) for name, (text, draw) in own.items()}
