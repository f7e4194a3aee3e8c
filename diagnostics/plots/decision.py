"""Decision regions in the plane."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.lines import Line2D

from .style import MARKERS, axes_or_new, colour


def plot_decision(
    samples: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    predict: Callable[[Any, np.ndarray], np.ndarray] | None = None,
    ell: float | None = 1.0,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] = ("$x_1$", "$x_2$"),
    num_draws: int = 400,
    resolution: int = 120,
    ax: Axes | None = None,
) -> Axes:
    """Decision regions in the plane: the posterior's vote, its mean boundary and margins, and the data.

    The background has the colour of the class that most draws vote for, the paler the closer the vote; white is a tie.

    :param samples: draws of the weights: (S, d) for two classes or (S, L, d), with d = 2, or 3 where the last weight
        is the intercept; a mapping is asked for its ``"eta"``. With ``predict``, whatever that takes.
    :param X: (n, 2) inputs.
    :param y: (n,) labels in ``0..L-1``.
    :param predict: ``predict(samples, points) -> labels`` (S, m) for points (m, 2): for a posterior that is not linear.
        The boundary is then where the vote changes, without margins.
    :param ell: the margin; None where the model has none.
    :param class_names: L names for the legend.
    :param feature_names: names of the two axes.
    :param num_draws: at most so many draws vote, evenly spaced (without ``predict``).
    :param resolution: points of the grid along each axis.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> import numpy as np
    >>> from regbayes.datasets import make_svm
    >>> from regbayes.diagnostics import plot_decision
    >>> X, y, truth = make_svm(50, 2)
    >>> draws = truth + 0.1 * np.random.default_rng(0).normal(size=(100, 2))
    >>> plot_decision(draws, X, y).get_xlabel()
    '$x_1$'
    """
    X, y = _check_plane(X, y)
    box, points = _grid(X, resolution)
    shape = (resolution, resolution)
    if predict is None:
        weights = _check_weights(samples["eta"] if isinstance(samples, Mapping) else samples)
        voters = weights[:: math.ceil(len(weights) / num_draws)]
        share = _share(_scores(voters, points).argmax(-1), weights.shape[1])
        gaps = _gaps(_scores(weights.mean(0, keepdims=True), points)[0])
    else:
        labels = np.atleast_2d(np.asarray(predict(samples, points)))
        share = _share(labels, max(labels.max() + 1, y.max() + 1, 2))
        gaps = _gaps(share)
    num_classes = share.shape[-1]
    if y.max() >= num_classes:
        raise ValueError(f"y must have labels in 0..{num_classes - 1} as the weights have, found {y.max()}")
    names = _check_names(class_names, num_classes)
    ax = axes_or_new(ax, (7, 5.4))
    _draw_vote(ax, share.reshape(*shape, num_classes), box)
    _draw_lines(ax, gaps.reshape(*shape, num_classes), box, ell if predict is None else None, 1.4)
    _draw_points(ax, X, y, names)
    ax.set(xlim=box[:2], ylim=box[2:], xlabel=feature_names[0], ylabel=feature_names[1])
    _draw_vote_scale(ax, num_classes, names)
    _draw_legend(ax, margins=predict is None and ell is not None)
    return ax


def _check_plane(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    X, y = np.asarray(X, float), np.asarray(y)
    if X.ndim != 2 or X.shape[1] != 2 or not len(X):
        raise ValueError(f"X must have shape (n, 2) to be drawn in the plane, found {X.shape}; choose two columns")
    if y.shape != (len(X),) or not np.all(y == np.floor(y)) or y.min() < 0:
        raise ValueError(f"y must hold {len(X)} labels in 0..L-1, found shape {y.shape} and values {np.unique(y)[:10]}")
    return X, y.astype(int)


def _check_weights(weights: Any) -> np.ndarray:
    """(S, L, d) weights; two classes get a zero vector for class 0."""
    weights = np.asarray(weights, float)
    if weights.ndim not in (2, 3) or weights.shape[-1] not in (2, 3) or not len(weights):
        raise ValueError(
            "samples must have shape (S, d) or (S, L, d) with d = 2, or 3 with an intercept, "
            f"found {weights.shape}; for another posterior pass predict"
        )
    return weights if weights.ndim == 3 else np.stack([np.zeros_like(weights), weights], axis=1)


def _check_names(names: Sequence[str] | None, num_classes: int) -> list[str]:
    if names is None:
        return [f"class {k}" for k in range(num_classes)]
    if len(names) != num_classes:
        raise ValueError(f"class_names must hold {num_classes} names, found {list(names)}")
    return list(names)


def _grid(X: np.ndarray, resolution: int) -> tuple[tuple[float, float, float, float], np.ndarray]:
    """The box around the data, and (resolution^2, 2) points in it, rows from bottom to top."""
    low, high = X.min(0), X.max(0)
    pad = np.where(high > low, 0.06 * (high - low), 1.0)
    (left, bottom), (right, top) = low - pad, high + pad
    a, b = np.meshgrid(np.linspace(left, right, resolution), np.linspace(bottom, top, resolution))
    return (left, right, bottom, top), np.stack([a.ravel(), b.ravel()], axis=1)


def _scores(weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(S, m, L) scores of the points (m, 2) under the weights (S, L, d)."""
    scores = np.einsum("slj,mj->sml", weights[..., :2], points)
    return scores + weights[:, None, :, 2] if weights.shape[-1] == 3 else scores


def _share(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """(m, L) share of the votes (S, m) for each class."""
    return np.stack([(labels == k).mean(0) for k in range(num_classes)], axis=-1)


def _gaps(scores: np.ndarray) -> np.ndarray:
    """(m, L): by how much each class beats the best of the others."""
    others = [np.delete(scores, k, axis=-1).max(-1) for k in range(scores.shape[-1])]
    return scores - np.stack(others, axis=-1)


def _blend(share: np.ndarray) -> np.ndarray:
    """(m, 3) colours of vote shares (m, L): the winner's, from white at a tie."""
    num_classes = share.shape[-1]
    strength = 0.55 * (share.max(-1, keepdims=True) - 1 / num_classes) / (1 - 1 / num_classes)
    winner = np.array([to_rgb(colour(k)) for k in range(num_classes)])[share.argmax(-1)]
    return 1 - strength * (1 - winner)


def _draw_vote(ax: Axes, share: np.ndarray, box: tuple[float, ...]) -> None:
    """The background, from the vote shares (rows, columns, L) at points of which the first and last span the box."""
    left, right, bottom, top = box
    a, b = (right - left) / (share.shape[1] - 1) / 2, (top - bottom) / (share.shape[0] - 1) / 2
    extent = (left - a, right + a, bottom - b, top + b)  # a pixel lies around its point
    ax.imshow(_blend(share), origin="lower", extent=extent, aspect="auto", interpolation="bilinear", zorder=0)


def _draw_lines(ax: Axes, gaps: np.ndarray, box: tuple[float, ...], ell: float | None, width: float) -> None:
    """Solid where two classes tie; dashed where the winner leads by the margin ``ell``, if given. NaN is left out."""
    styles = {0.0: "solid"} if ell is None else {0.0: "solid", float(ell): "dashed"}
    for k in range(0 if np.all(np.isnan(gaps)) else gaps.shape[-1]):
        for level, style in styles.items():
            inside = np.nanmin(gaps[..., k]) < level < np.nanmax(gaps[..., k])
            if inside and not (k == 0 and level == 0 and gaps.shape[-1] == 2):  # the tie of two classes, once
                ax.contour(gaps[..., k], [level], colors="0.1", linestyles=style, linewidths=width, extent=box)


def _draw_points(ax: Axes, X: np.ndarray, y: np.ndarray, names: Sequence[str]) -> None:
    for k, name in enumerate(names):
        ax.scatter(
            X[y == k, 0],
            X[y == k, 1],
            marker=MARKERS[k % len(MARKERS)],
            color=colour(k),
            edgecolors="0.1",
            linewidths=0.6,
            s=26,
            label=name,
            zorder=3,
        )


def _draw_vote_scale(ax: Axes, num_classes: int, names: Sequence[str]) -> None:
    """The colour bar: the vote share of class 1 of two, or of the winner among more."""
    steps = np.linspace(0, 1, 65)
    if num_classes == 2:
        colours, low = _blend(np.stack([1 - steps, steps], axis=-1)), 0.0
        label = f"share of draws for {names[1]}"
    else:
        colours, low = 1 - 0.55 * steps[:, None] * np.ones(3), 1 / num_classes
        label = "share of draws for the leading class"
    scale = plt.cm.ScalarMappable(plt.Normalize(low, 1), LinearSegmentedColormap.from_list("vote", colours))
    ax.figure.colorbar(scale, ax=ax, label=label, pad=0.02)


def _draw_legend(ax: Axes, *, margins: bool) -> None:
    """Above the panel: the classes and the lines."""
    handles, labels = ax.get_legend_handles_labels()
    lines: dict[str, Any] = (
        {"mean boundary": "solid", "mean margin": "dashed"} if margins else {"boundary of the vote": "solid"}
    )
    handles += [Line2D([], [], color="0.1", linewidth=1.4, linestyle=style) for style in lines.values()]
    labels += lines
    ncols = 2 if len(labels) <= 4 else 3
    ax.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=ncols, frameon=False)
