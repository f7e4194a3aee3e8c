"""Pictures of a posterior, in matplotlib and in colours that colour-blind readers can tell apart (Okabe and Ito)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom, gaussian_kde, rankdata

from ..inference import RegBayesResult
from .summary import TAILS, scalars

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
MOST_PANELS = 40
LONG_NAMES = {"lp": "log joint"}


def plot_trace(dt: xr.DataTree, var_names: str | Sequence[str] | None = None, *, num_bins: int = 20) -> Figure:
    """Trace and rank plot of each scalar, side by side.

    Chains that explore the same posterior overlap in the trace, and each has about as many draws in every bin of the
    pooled ranks; the band holds 95 % of the bins of independent draws.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param var_names: variables of ``posterior`` or ``sample_stats``; by default ``lp``, or the posterior without it.
    :param num_bins: bins of the ranks.
    :return: the figure, one row of two panels per scalar.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import plot_trace
    >>> draws = np.random.default_rng(0).normal(size=(4, 100))
    >>> figure = plot_trace(from_dict({"posterior": {"eta": draws}, "sample_stats": {"lp": -(draws**2)}}))
    >>> [axes.get_xlabel() for axes in figure.axes]
    ['draw', 'rank among the draws of all chains']
    """
    if var_names is None and "sample_stats" in dt.children and "lp" in dt["sample_stats"]:
        var_names = ["lp"]
    draws = _panels(dt, var_names)
    figure, axes = plt.subplots(
        len(draws), 2, figsize=(10, 0.6 + 2.4 * len(draws)), squeeze=False, layout="constrained"
    )
    for (trace_ax, rank_ax), (label, values) in zip(axes, draws.items(), strict=True):
        _draw_trace(trace_ax, label, values)
        _draw_ranks(rank_ax, values, num_bins)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False)
    return figure


def plot_posterior(dt: xr.DataTree, var_names: str | Sequence[str] | None = None) -> Figure:
    """Marginal posterior of each scalar: the density of all draws and of each chain, the mean and the 90 % interval.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param var_names: variables of ``posterior`` or ``sample_stats``; by default the posterior's.
    :return: the figure, one panel per scalar.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import plot_posterior
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> figure = plot_posterior(from_dict({"posterior": {"eta": draws}}), "eta")
    >>> [axes.get_xlabel() for axes in figure.axes]
    ['eta[0]', 'eta[1]']
    """
    draws = _panels(dt, [str(name) for name in dt["posterior"].data_vars] if var_names is None else var_names)
    num_columns = min(len(draws), 3)
    num_rows = math.ceil(len(draws) / num_columns)
    figure, axes = plt.subplots(
        num_rows,
        num_columns,
        figsize=(max(3.6 * num_columns, 5.4), 0.6 + 2.6 * num_rows),
        squeeze=False,
        layout="constrained",
    )
    for ax, (label, values) in zip(axes.flat, draws.items(), strict=False):
        _draw_density(ax, label, values)
    for ax in axes.flat[len(draws) :]:
        ax.remove()
    for ax in axes[:, 0]:
        ax.set_ylabel("density")
    handles = {label: handle for ax in figure.axes for handle, label in zip(*ax.get_legend_handles_labels())}  # noqa: B905
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def plot_decision(
    samples: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    predict: Callable[[Any, np.ndarray], np.ndarray] | None = None,
    ell: float = 1.0,
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
    :param ell: the margin.
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
    ax = plt.subplots(figsize=(7, 5.4), layout="constrained")[1] if ax is None else ax
    _draw_vote(ax, share.reshape(*shape, num_classes), box)
    _draw_boundary(ax, gaps.reshape(*shape, num_classes), box, ell if predict is None else None)
    _draw_points(ax, X, y, names)
    ax.set(xlim=box[:2], ylim=box[2:], xlabel=feature_names[0], ylabel=feature_names[1])
    _draw_vote_scale(ax, num_classes, names)
    _draw_legend(ax, margins=predict is None)
    return ax


def plot_regbayes(result: RegBayesResult) -> Figure:
    """What each constraint of a :class:`.RegBayes` posterior does: its tilt ``phi`` and what is left of its slack.

    A constraint that does not bind has ``phi = 0`` and no slack; one that pays has both. Bars are two Monte Carlo
    standard errors of the expectation.

    :param result: of ``RegBayes.run``.
    :return: the figure, one row of two panels per constraint.

    **Example**

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from jax import random
    >>> from regbayes.diagnostics import plot_regbayes
    >>> from regbayes.inference import GaussianInference, Hinge, RegBayes
    >>> def model():
    ...     numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    >>> margin = Hinge(lambda sites: 1 - sites["mu"], C=0.5, name="margin")
    >>> figure = plot_regbayes(RegBayes(model, margin, GaussianInference()).run(random.key(0)))
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['phi', 'slack']
    """
    names = [str(name) for name in result.phi.data_vars]
    figure, axes = plt.subplots(
        len(names), 2, figsize=(10, 0.8 + 2.4 * len(names)), squeeze=False, layout="constrained"
    )
    for (phi_ax, slack_ax), name in zip(axes, names, strict=True):
        errors = result.errors[name]
        if errors.ndim > result.slacks[name].ndim:  # the slack of a row is that of its largest entry
            errors = errors.max(str(errors.dims[-1]))
        _draw_entries(phi_ax, result.phi[name], None, _colour(0))
        _draw_entries(slack_ax, result.slacks[name], 2 * errors.values.ravel(), _colour(5))
        phi_ax.set(ylabel="phi", title=name)
        slack_ax.set(ylabel="slack", title=name)
    noise = f" ± {result.gap_error:.1g}" if result.gap_error else ""
    figure.suptitle(f"duality gap {result.gap:.2g}{noise} nats", fontsize="medium")
    return figure


def _panels(dt: xr.DataTree, var_names: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    draws = scalars(dt, var_names)
    if len(draws) > MOST_PANELS:
        raise ValueError(f"var_names must name at most {MOST_PANELS} scalars, found {len(draws)}; name fewer variables")
    if bad := [label for label, values in draws.items() if not np.all(np.isfinite(values))]:
        raise ValueError(f"{bad} have draws that are not finite; see summary(dt)")
    return draws


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _draw_trace(ax: Axes, label: str, values: np.ndarray) -> None:
    """One line per chain of ``values`` (chain, draw)."""
    for chain, line in enumerate(values):
        ax.plot(line, color=_colour(chain), linewidth=0.6, alpha=0.8, label=f"chain {chain}")
    ax.set(xlabel="draw", ylabel=LONG_NAMES.get(label, label))
    ax.margins(x=0.01)


def _draw_ranks(ax: Axes, values: np.ndarray, num_bins: int) -> None:
    """Histograms of the pooled ranks, a step line per chain, beside what independent draws would give."""
    num_chains, num_draws = values.shape
    num_bins = min(num_bins, num_draws)
    ranks = rankdata(values).reshape(values.shape)
    edges = np.linspace(0.5, values.size + 0.5, num_bins + 1)
    low, high = binom.ppf([0.025, 0.975], num_draws, 1 / num_bins)
    for chain in range(num_chains):
        counts = np.histogram(ranks[chain], edges)[0]
        ax.stairs(counts, edges, color=_colour(chain), linewidth=1.4, baseline=None, label=f"chain {chain}")
    ax.axhspan(low, high, color="0.88", zorder=0, label="95 % of the bins of independent draws")
    ax.set(xlabel="rank among the draws of all chains", ylabel="draws in the bin", xlim=(edges[0], edges[-1]))
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def _draw_density(ax: Axes, label: str, values: np.ndarray) -> None:
    """Densities of ``values`` (chain, draw), mean and interval; a constant is a line."""
    pooled = values.ravel()
    spread = np.ptp(pooled)
    ax.set(xlabel=LONG_NAMES.get(label, label), yticks=[])
    ax.spines[["left", "right", "top"]].set_visible(False)
    if not spread:
        ax.axvline(pooled[0], color="0.2", linewidth=2, label="constant")
        return
    grid = np.linspace(pooled.min() - 0.1 * spread, pooled.max() + 0.1 * spread, 200)
    for chain, draws in enumerate(values if len(values) > 1 else ()):
        if np.ptp(draws):
            ax.plot(grid, gaussian_kde(draws)(grid), color=_colour(chain), linewidth=1, label=f"chain {chain}")
    density = gaussian_kde(pooled)(grid)
    ax.fill_between(grid, density, color="0.85", zorder=0, label="all draws")
    low, high = np.quantile(pooled, TAILS)
    height = -0.06 * density.max()
    ax.plot([low, high], [height, height], color="0.2", linewidth=3, solid_capstyle="butt", label="90 % interval")
    ax.plot(pooled.mean(), height, "o", color="white", markeredgecolor="0.2", markersize=7, label="mean")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5))


def _draw_entries(ax: Axes, values: xr.DataArray, errors: np.ndarray | None, colour: str) -> None:
    """A stem per entry, by its coordinates where they are few, by its number where there are many."""
    height = values.values.ravel()
    place = np.arange(len(height))
    many = len(height) > 30
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.vlines(place, 0, height, color=colour, linewidth=0.6 if many else 1.4)
    ax.errorbar(place, height, errors, fmt="o", color=colour, ecolor="0.3", elinewidth=0.8, markersize=3 if many else 5)
    if values.ndim == 1 and not many:
        ax.set_xticks(place, [str(label) for label in values[values.dims[0]].values])
    elif values.ndim == 0:
        ax.set_xticks([])
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(", ".join(map(str, values.dims)))
    ax.set_xlim(-0.7, len(height) - 0.3)


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
    winner = np.array([to_rgb(_colour(k)) for k in range(num_classes)])[share.argmax(-1)]
    return 1 - strength * (1 - winner)


def _draw_vote(ax: Axes, share: np.ndarray, box: tuple[float, ...]) -> None:
    """The background, from the vote shares (rows, columns, L) at points of which the first and last span the box."""
    left, right, bottom, top = box
    a, b = (right - left) / (share.shape[1] - 1) / 2, (top - bottom) / (share.shape[0] - 1) / 2
    extent = (left - a, right + a, bottom - b, top + b)  # a pixel lies around its point
    ax.imshow(_blend(share), origin="lower", extent=extent, aspect="auto", interpolation="bilinear", zorder=0)


def _draw_boundary(ax: Axes, gaps: np.ndarray, box: tuple[float, ...], ell: float | None) -> None:
    """Solid where two classes tie; dashed where the winner leads by the margin ``ell``, if given."""
    styles = {0.0: "solid"} if ell is None else {0.0: "solid", float(ell): "dashed"}
    for k in range(gaps.shape[-1]):
        for level, style in styles.items():
            inside = gaps[..., k].min() < level < gaps[..., k].max()
            if inside and not (k == 0 and level == 0 and gaps.shape[-1] == 2):  # the tie of two classes, once
                ax.contour(
                    gaps[..., k], [level], colors="0.1", linestyles=style, linewidths=1.4, origin=None, extent=box
                )


def _draw_points(ax: Axes, X: np.ndarray, y: np.ndarray, names: Sequence[str]) -> None:
    for k, name in enumerate(names):
        ax.scatter(
            X[y == k, 0],
            X[y == k, 1],
            marker=MARKERS[k % len(MARKERS)],
            color=_colour(k),
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
        label = f"posterior probability of {names[1]}"
    else:
        colours, low = 1 - 0.55 * steps[:, None] * np.ones(3), 1 / num_classes
        label = "posterior probability of the leading class"
    scale = plt.cm.ScalarMappable(plt.Normalize(low, 1), LinearSegmentedColormap.from_list("vote", colours))
    ax.figure.colorbar(scale, ax=ax, label=label, pad=0.02)


def _draw_legend(ax: Axes, *, margins: bool) -> None:
    """Above the panel: the classes and the lines."""
    handles, labels = ax.get_legend_handles_labels()
    lines = {"mean boundary": "solid", "mean margin": "dashed"} if margins else {"boundary of the vote": "solid"}
    handles += [Line2D([], [], color="0.1", linewidth=1.4, linestyle=style) for style in lines.values()]
    labels += lines
    ncols = 2 if len(labels) <= 4 else 3
    ax.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=ncols, frameon=False)
