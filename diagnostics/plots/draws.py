"""Chains of draws: traces, ranks and marginal posteriors."""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom, gaussian_kde

from ..invariants import LONG_NAMES, invariants
from ..summary import TAILS, parameters, scalars
from .style import colour

MOST_PANELS = 40


def plot_trace(dt: xr.DataTree, var_names: str | Sequence[str] | None = None, *, num_bins: int = 20) -> Figure:
    """Trace and rank plot of each scalar, side by side.

    Chains that explore the same posterior overlap in the trace, and each has about as many draws in every bin of the
    pooled ranks; the band holds 95 % of the bins of independent draws.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param var_names: variables of ``posterior`` or ``sample_stats``; by default what no numbering
        changes (:func:`invariants`), or the posterior where there is nothing such.
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
    if var_names is None:
        var_names = [str(name) for name in invariants(dt).data_vars] or None
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
    :param var_names: variables of ``posterior`` or ``sample_stats``; by default the parameters that
        are not numbered at will.
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
    draws = _panels(dt, parameters(dt) if var_names is None else var_names)
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


def _panels(dt: xr.DataTree, var_names: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    draws = scalars(dt, var_names)
    if len(draws) > MOST_PANELS:
        raise ValueError(f"var_names must name at most {MOST_PANELS} scalars, found {len(draws)}; name fewer variables")
    if bad := [label for label, values in draws.items() if not np.all(np.isfinite(values))]:
        raise ValueError(f"{bad} have draws that are not finite; see summary(dt)")
    return draws


def _draw_trace(ax: Axes, label: str, values: np.ndarray) -> None:
    """One line per chain of ``values`` (chain, draw)."""
    for chain, line in enumerate(values):
        ax.plot(line, color=colour(chain), linewidth=0.6, alpha=0.8, label=f"chain {chain}")
    ax.set(xlabel="draw", ylabel=LONG_NAMES.get(label, label))
    ax.margins(x=0.01)
    if np.all(values == np.round(values)):
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def _draw_ranks(ax: Axes, values: np.ndarray, num_bins: int) -> None:
    """Histograms of the pooled ranks, a step line per chain, beside what independent draws would give."""
    num_chains, num_draws = values.shape
    num_bins = min(num_bins, num_draws)
    # Equal values are ordered at random: a number of clusters would else fill a bin or two.
    order = np.lexsort((np.random.default_rng(0).random(values.size), values.ravel()))
    ranks = 1 + np.argsort(order).reshape(values.shape)
    edges = np.linspace(0.5, values.size + 0.5, num_bins + 1)
    low, high = binom.ppf([0.025, 0.975], num_draws, 1 / num_bins)
    for chain in range(num_chains):
        counts = np.histogram(ranks[chain], edges)[0]
        ax.stairs(counts, edges, color=colour(chain), linewidth=1.4, baseline=None, label=f"chain {chain}")
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
            ax.plot(grid, gaussian_kde(draws)(grid), color=colour(chain), linewidth=1, label=f"chain {chain}")
    density = gaussian_kde(pooled)(grid)
    ax.fill_between(grid, density, color="0.85", zorder=0, label="all draws")
    low, high = np.quantile(pooled, TAILS)
    height = -0.06 * density.max()
    ax.plot([low, high], [height, height], color="0.2", linewidth=3, solid_capstyle="butt", label="90 % interval")
    ax.plot(pooled.mean(), height, "o", color="white", markeredgecolor="0.2", markersize=7, label="mean")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5))
