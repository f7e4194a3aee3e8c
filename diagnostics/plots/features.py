"""Latent features: which classes have them."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .style import MARKERS, colour

MOST_FEATURES = 60


def plot_features(
    features: Any, y: Any = None, *, class_names: Sequence[str] | None = None, axes: Sequence[Any] | None = None
) -> Figure:
    """How active each latent feature is: above on average, with the standard deviation over classes; below by class.

    A feature with a large deviation tells classes apart. Features are in the order of their average.

    :param features: draws of ``ilsvm``, as :func:`to_datatree` makes them: of these, one matrix ``Z``, that of the
        largest log joint, for features are numbered at will in each; or activations (n, M), also probabilities.
    :param y: (n,) labels in ``0..L-1``; by default those of the fit.
    :param class_names: their names.
    :param axes: two axes, above and below, to draw into; by default those of a new figure.
    :return: the figure.

    **Example**

    >>> from regbayes.diagnostics import plot_features
    >>> figure = plot_features([[1, 0, 0], [1, 1, 0], [1, 0, 1]], [0, 0, 1])
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['mean over classes', 'mean in each class']
    """
    Z, found = _activations(features)
    y = found if y is None else np.asarray(y)
    if y is None or y.shape != (len(Z),) or y.dtype.kind not in "iu":
        raise ValueError(f"y must hold {len(Z)} labels in 0..L-1, found {None if y is None else y.shape}")
    classes = np.unique(y)
    names = [f"class {k}" for k in classes] if class_names is None else list(class_names)
    if len(names) != len(classes):
        raise ValueError(f"class_names must hold {len(classes)} names, found {names}")
    active = np.flatnonzero(Z.mean(0) > 0)
    if not len(active):
        raise ValueError("features must have an active column, found none")
    means = np.stack([Z[y == k][:, active].mean(0) for k in classes])  # (L, K)
    order = np.argsort(-means.mean(0), kind="stable")[:MOST_FEATURES]
    means = means[:, order]
    place = np.arange(len(order))
    if axes is None:
        width = float(np.clip(0.22 * len(order) + 2.5, 5.6, 12))
        axes = plt.subplots(2, 1, figsize=(width, 5.2), sharex=True, layout="constrained")[1]
    top, bottom = axes
    top.bar(place, means.mean(0), width=0.7, color="0.8", edgecolor="0.4", label="mean over classes")
    top.errorbar(place, means.mean(0), means.std(0), fmt="none", ecolor="0.1", capsize=3, label="their deviation")
    top.set(ylabel="mean over classes")
    top.set_ylim(bottom=0)
    spread = 0.6 / max(len(classes), 2)
    for k, (name, row) in enumerate(zip(names, means, strict=True)):
        x = place + spread * (k - (len(classes) - 1) / 2)
        bottom.vlines(x, 0, row, color=colour(k), linewidth=1.2)
        bottom.plot(x, row, MARKERS[k % len(MARKERS)], color=colour(k), markersize=5, label=name)
    bottom.set(ylabel="mean in each class", xlabel="latent feature, by its mean", ylim=(0, 1.05 * max(means.max(), 1)))
    for ax, columns in ((top, 2), (bottom, 4)):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(columns, 4), frameon=False)
    return top.figure


def _activations(features: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """(n, M) activations, and the labels where they are known."""
    if not isinstance(features, xr.DataTree):
        Z = np.asarray(features, float)
        if Z.ndim != 2 or not Z.size:
            raise ValueError(f"features must have shape (n, M), found {Z.shape}")
        return Z, None
    posterior = features["posterior"].to_dataset()
    if "Z" not in posterior or posterior["Z"].dims[-2:] != ("datum", "latent_feature"):
        raise ValueError(f"features must hold draws of a site Z of the data, found {list(posterior.data_vars)}")
    where = {"chain": -1, "draw": -1}
    if "sample_stats" in features.children and "lp" in features["sample_stats"]:
        lp = features["sample_stats"]["lp"].transpose("chain", "draw").to_numpy()
        where = dict(zip(("chain", "draw"), map(int, np.unravel_index(np.argmax(lp), lp.shape)), strict=True))
    data = features["constant_data"]
    return posterior["Z"].isel(where).to_numpy().astype(float), data["y"].to_numpy() if "y" in data else None
