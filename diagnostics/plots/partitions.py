"""Partitions: who is with whom, and how many clusters or features there are."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from ..invariants import LONG_NAMES, invariants
from ..partitions import coclustering, point_estimate
from .style import MARKERS, SHADES, axes_or_new, colour


def plot_coclustering(
    draws: ArrayLike | xr.DataTree, *, labels: ArrayLike | None = None, ax: Axes | None = None
) -> Axes:
    """How often two data are in one cluster, as a map ordered by the point estimate; lines part its clusters.

    Clusters come by size, and in each the data that are most often with the others of it first.

    :param draws: labels (..., n), draws first, or a ``DataTree`` of draws of a mixture.
    :param labels: (n,) the partition to order by; by default :func:`point_estimate`.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> from regbayes.diagnostics import plot_coclustering
    >>> ax = plot_coclustering([[0, 1, 0, 1], [0, 1, 0, 0]])
    >>> ax.images[0].get_array().shape
    (4, 4)
    """
    similarity = coclustering(draws)
    labels = point_estimate(draws).labels if labels is None else np.asarray(labels)
    if labels.shape != similarity.shape[:1]:
        raise ValueError(f"labels must have shape ({len(similarity)},), found {labels.shape}")
    _, clusters, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    company = np.array([similarity[i, clusters == k].mean() for i, k in enumerate(clusters)])
    order = np.lexsort((-company, clusters, -sizes[clusters]))
    ax = axes_or_new(ax, (5.6, 4.6))
    image = ax.imshow(similarity[np.ix_(order, order)], cmap=SHADES, vmin=0, vmax=1, interpolation="nearest")
    for border in np.flatnonzero(np.diff(clusters[order])) + 0.5:
        ax.axhline(border, color="white", linewidth=1)
        ax.axvline(border, color="white", linewidth=1)
    ax.set(xlabel="datum, by cluster of the point estimate", ylabel="datum, in the same order")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.figure.colorbar(image, ax=ax, label="share of draws together", pad=0.02)
    return ax


def plot_num_clusters(dt: xr.DataTree, var_name: str | None = None, *, ax: Axes | None = None) -> Axes:
    """The posterior of the number of clusters, or of active features: bars for all draws, a mark for each chain.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param var_name: a whole number among :func:`invariants`; by default ``num_clusters``, ``num_features`` or
        ``num_topics``, the first there is.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import plot_num_clusters
    >>> z = np.array([[[0, 0, 1], [1, 1, 1]], [[0, 1, 1], [0, 1, 2]]])
    >>> ax = plot_num_clusters(from_dict({"posterior": {"z": z}}))
    >>> [float(bar.get_height()) for bar in ax.patches]
    [0.25, 0.5, 0.25]
    """
    found = invariants(dt)
    choices = [name for name in ("num_clusters", "num_features", "num_topics") if name in found]
    name = var_name or (choices[0] if choices else None)
    if name not in choices:
        raise ValueError(f"dt must have a number of clusters, features or topics, found {list(found.data_vars)}")
    values = found[name].to_numpy()
    numbers = np.arange(values.min(), values.max() + 1)
    shares = (values[..., None] == numbers).mean(1)  # (chain, number)
    ax = axes_or_new(ax, (5.6, 3.8))
    ax.bar(numbers, shares.mean(0), width=0.7, color="0.8", edgecolor="0.4", label="all draws")
    width = 0.5 / max(len(shares), 2)
    for chain, share in enumerate(shares if len(shares) > 1 else ()):
        place = numbers + width * (chain - (len(shares) - 1) / 2)
        marker = MARKERS[chain % len(MARKERS)]
        ax.plot(place, share, marker, color=colour(chain), markersize=5, label=f"chain {chain}")
    ax.set(xlabel=LONG_NAMES[name], ylabel="posterior probability")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(numbers) == 1:
        ax.set_xlim(numbers[0] - 1.5, numbers[0] + 1.5)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    return ax
