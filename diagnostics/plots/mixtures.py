"""A mixture of classifiers in the plane: decision regions, components and their margins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse

from ..predictive import settings_of
from ..relabelling import relabel
from ..structure import arguments_of, card_of, flat_draws, label_site
from .decision import _check_names, _check_plane, _draw_lines, _draw_points, _draw_vote, _draw_vote_scale, _gaps, _grid
from .style import axes_or_new

RADIUS = 2.0
"""Of the ellipses, in standard deviations."""
COMMON = 0.5
"""A component is shown that this share of the draws has."""


def plot_mixture_decision(
    dt: xr.DataTree,
    X: Any = None,
    y: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] = ("$x_1$", "$x_2$"),
    num_draws: int = 200,
    resolution: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Decision regions of a mixture of classifiers in the plane, its components, and their margins.

    The background is the vote of the draws, white at a tie, and the thick line the boundary of the averaged
    discriminant. Draws are renumbered (:func:`relabel`), and each cluster that half of them have is shown by its mean:
    an ellipse of two standard deviations, in it the component's own boundary (thin) and, where the model has a margin,
    its margins (dashed).

    :param dt: draws of a mixture of classifiers with Gaussian inputs (its card has ``components``), as
        :func:`to_datatree` makes them.
    :param X: (n, 2) inputs to show; by default those of the fit.
    :param y: (n,) their labels.
    :param class_names: L names for the legend.
    :param feature_names: names of the two axes.
    :param num_draws: at most so many draws vote, evenly spaced.
    :param resolution: points of the grid along each axis.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> import regbayes
    >>> from regbayes.diagnostics import plot_mixture_decision
    >>> (X, y), settings = regbayes.zoo["isvm"].example()
    >>> dt = regbayes.fit("isvm", X, y, **settings, num_warmup=10, num_samples=20, num_chains=2, progress=False)
    >>> plot_mixture_decision(dt, resolution=20).get_xlabel()
    '$x_1$'
    """
    if components_of(dt) is None:
        raise ValueError(
            f"dt must be of a mixture of classifiers with Gaussian inputs, found {dt.attrs.get('program')!r}; use "
            "plot_decision"
        )
    data = dt["constant_data"]
    X, y = _check_plane(data["X"].to_numpy() if X is None else X, data["y"].to_numpy() if y is None else y)
    box, points = _grid(X, resolution)
    draws = flat_draws(dt["posterior"].to_dataset())
    step = -(-len(next(iter(draws.values()))) // num_draws)
    card = card_of(dt)
    settings = settings_of(dt, card, draws)
    found = card.predict({name: array[::step] for name, array in draws.items()}, points, **settings)
    votes, f = np.asarray(found.votes), np.asarray(found.discriminant)
    scores = f if f.ndim == 2 else np.stack([-f / 2, f / 2], axis=1)
    num_classes = votes.shape[1]
    names = _check_names(class_names, num_classes)
    shape = (resolution, resolution)
    ax = axes_or_new(ax, (7, 5.4))
    _draw_vote(ax, votes.reshape(*shape, num_classes), box)
    _draw_lines(ax, _gaps(scores).reshape(*shape, num_classes), box, None, 2.0)
    _draw_points(ax, X, y, names)
    margin = dt.attrs.get("argument_ell")
    _draw_components(ax, relabel(dt), points, shape, box, margin)
    ax.set(xlim=box[:2], ylim=box[2:], xlabel=feature_names[0], ylabel=feature_names[1])
    _draw_vote_scale(ax, num_classes, names)
    handles, labels = ax.get_legend_handles_labels()
    lines: dict[str, Any] = {"mean boundary": ("solid", 2.0), "a component's own": ("solid", 1.0)}
    lines |= {"its margins": ("dashed", 1.0)} if margin is not None else {}
    handles += [Line2D([], [], color="0.1", linewidth=width, linestyle=style) for style, width in lines.values()]
    handles.append(Line2D([], [], marker="o", linestyle="none", markersize=11, color="none", markeredgecolor="0.3"))
    labels += [*lines, "component, 2 sd"]
    ax.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    return ax


def components_of(dt: xr.DataTree) -> Any:
    """The components that the card of a mixture of classifiers finds in its draws; None where there are none."""
    card = card_of(dt)
    if card is None or card.components is None or card.predict is None:
        return None
    return card.components(flat_draws(dt["posterior"].to_dataset()), arguments_of(dt))


def _draw_components(
    ax: Axes, dt: xr.DataTree, points: np.ndarray, shape: tuple[int, int], box: tuple[float, ...], ell: float | None
) -> None:
    """An ellipse and the classifier's lines for each cluster that most draws have, from the draws that have it."""
    posterior = dt["posterior"].to_dataset()
    z, components = flat_draws(posterior)[label_site(posterior) or "z"], components_of(dt)
    for k in np.unique(z):
        has = np.any(z == k, axis=1)
        if has.mean() < COMMON:
            continue
        mu, variance, eta = (part[has, k].mean(0) for part in components)
        spread = np.sqrt(variance)
        width, height = 2 * RADIUS * spread
        ax.add_patch(Ellipse(mu, width, height, facecolor="none", edgecolor="0.3", linewidth=1.2, zorder=2))
        inputs = np.concatenate([points, np.ones((len(points), 1))], axis=1)[:, : eta.shape[-1]]
        f = inputs @ eta.T
        scores = f if f.ndim == 2 else np.stack([-f / 2, f / 2], axis=1)
        inside = np.sum(((points - mu) / (RADIUS * spread)) ** 2, axis=1) <= 1
        gaps = np.where(inside[:, None], _gaps(scores), np.nan).reshape(*shape, -1)
        _draw_lines(ax, gaps, box, ell, 1.0)
