"""Checks as pictures: kernels against each other, votes against labels, objectives and posteriors towards limits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..comparison import compare_kernels
from ..invariants import LONG_NAMES
from ..predictive import Predictive
from ..summary import scalars
from .style import LINES, MARKERS, axes_or_new, colour

BAND = 2.0
INTERVALS = ((0.05, 0.95), (0.25, 0.75))


def plot_kernels(
    dt_a: xr.DataTree, dt_b: xr.DataTree, var_names: str | Sequence[str] | None = None, *, ax: Axes | None = None
) -> Axes:
    """The z-scores of :func:`compare_kernels`, a line per quantity; about 19 in 20 belong in the band.

    :param dt_a: draws of one kernel.
    :param dt_b: draws of the other.
    :param var_names: as for :func:`compare_kernels`.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import plot_kernels
    >>> draws = np.random.default_rng(0).normal(size=(2, 4, 100, 3))
    >>> ax = plot_kernels(*(from_dict({"posterior": {"eta": part}}) for part in draws))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['eta[0]', 'eta[1]', 'eta[2]']
    """
    table = compare_kernels(dt_a, dt_b, var_names)
    place = np.arange(len(table))
    ax = axes_or_new(ax, (6.4, 1.6 + 0.32 * len(table)))
    ax.axvspan(-BAND, BAND, color="0.9", zorder=0, label=f"within {BAND:.0f} standard errors")
    ax.axvline(0, color="0.6", linewidth=0.8)
    limit = 1.1 * np.nanmax(np.abs(np.where(np.isfinite(table[["z_mean", "z_var"]]), table[["z_mean", "z_var"]], 0)))
    limit = max(limit, 1.5 * BAND)
    for index, (column, text) in enumerate((("z_mean", "mean"), ("z_var", "variance"))):
        z = np.clip(table[column].to_numpy(float), -limit, limit)
        ax.plot(z, place + 0.12 * (2 * index - 1), MARKERS[index], color=colour(index), markersize=6, label=text)
    names = [LONG_NAMES.get(str(name), str(name)) for name in table.index]
    ax.set_yticks(place, names)
    ax.set(ylim=(len(table) - 0.5, -0.5), xlim=(-limit, limit))
    a, b = (str(dt.attrs.get("kernel", name)) for dt, name in ((dt_a, "a"), (dt_b, "b")))
    ax.set_xlabel(f"({a} - {b}) / Monte Carlo standard error")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    return ax


def plot_calibration(found: Predictive | pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """How often the leading class is right, against its share of the votes; bars are two standard errors.

    :param found: of :func:`predictive`, or the table of :func:`calibration`.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> from regbayes.diagnostics import calibration, plot_calibration
    >>> ax = plot_calibration(calibration([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1], num_bins=2))
    >>> ax.get_ylabel()
    'share of cases in which it is right'
    """
    table = found.calibration if isinstance(found, Predictive) else found
    ax = axes_or_new(ax, (5.0, 4.4))
    low = float(table["low"].min())
    ax.plot([low, 1], [low, 1], color="0.5", linewidth=1, linestyle="dashed", label="calibrated")
    ax.errorbar(
        table["predicted"].to_numpy(),
        table["observed"].to_numpy(),
        2 * table["error"].to_numpy(),
        fmt="o",
        color=colour(0),
        ecolor="0.4",
        elinewidth=1,
        capsize=2,
        label="bins of held-out data",
    )
    for _, row in table.iterrows():
        ax.annotate(f"{row['num']:.0f}", (row["predicted"], row["observed"]), (6, -10), textcoords="offset points")
    ax.set(
        xlabel="share of the votes for the leading class",
        ylabel="share of cases in which it is right",
        xlim=(low - 0.03, 1.06),
        ylim=(min(0.0, float((table["observed"] - 2 * table["error"]).min())) - 0.02, 1.12),
    )
    ax.legend(loc="lower right", frameon=False, title="numbers: cases in the bin")
    return ax


def plot_objective(estimators: Any, *, ax: Axes | None = None) -> Axes:
    """The objective of limits and learners after every update, above the least that any of them found.

    :param estimators: a fitted estimator with ``objective_``, or its trace, or a mapping of names to such, whose
        objectives should be comparable.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> from regbayes.datasets import make_m2dpm_setting2
    >>> from regbayes.diagnostics import plot_objective
    >>> from regbayes.inference import M2DPM
    >>> X, y, _ = make_m2dpm_setting2(60, 2, 3)
    >>> plot_objective(M2DPM().fit(X, y)).get_xlabel()
    'update'
    """
    named = estimators if isinstance(estimators, Mapping) else {type(estimators).__name__: estimators}
    traces = {name: np.asarray(getattr(found, "objective_", found), float) for name, found in named.items()}
    for name, trace in traces.items():
        if trace.ndim != 1 or not len(trace) or not np.all(np.isfinite(trace)):
            raise ValueError(f"{name} must have a finite trace objective_, found shape {trace.shape}; fit it first")
    ax = axes_or_new(ax)
    for index, (name, trace) in enumerate(traces.items()):
        label = name if isinstance(estimators, Mapping) or hasattr(estimators, "objective_") else "objective"
        line: dict[str, Any] = {"color": colour(index), "linestyle": LINES[index % len(LINES)], "linewidth": 1.6}
        ax.step(np.arange(len(trace)), trace, where="post", label=label, **line)
        ax.plot([len(trace) - 1], trace[-1:], MARKERS[index % len(MARKERS)], color=colour(index), markersize=6)
    ax.set(xlabel="update", ylabel="objective")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False)
    return ax


def plot_concentration(
    runs: Mapping[float, xr.DataTree], limit: Mapping[str, float], *, ax: Axes | None = None
) -> Axes:
    """How the posterior concentrates on the small-variance limit as the inverse temperature ``beta`` grows.

    :param runs: draws of the program under :class:`~regbayes.models.temper`, by ``beta``.
    :param limit: the limit's value of each scalar to show, by its label in :func:`summary`, such as ``eta[0]``.
    :param ax: where to draw; by default a new figure.
    :return: the axes: thin bars hold 90 % of the draws, thick ones half of them; marks are medians, dashed lines the
        limit.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import plot_concentration
    >>> noise = np.random.default_rng(0).normal(size=(2, 100))
    >>> runs = {beta: from_dict({"posterior": {"eta": 1 + noise / beta**0.5}}) for beta in (1.0, 10.0, 100.0)}
    >>> plot_concentration(runs, {"eta": 1.0}).get_xscale()
    'log'
    """
    if not runs or not limit:
        raise ValueError(f"runs and limit must not be empty, found {len(runs)} runs and limits of {list(limit)}")
    betas = sorted(runs)
    draws = {beta: scalars(runs[beta], list(dict.fromkeys(name.partition("[")[0] for name in limit))) for beta in betas}
    if missing := [name for name in limit if name not in draws[betas[0]]]:
        raise ValueError(f"limit names {missing}, found {list(draws[betas[0]])} in the draws")
    ax = axes_or_new(ax)
    step = (betas[-1] / betas[0]) ** (1 / max(len(betas) - 1, 1)) if len(betas) > 1 else 2.0
    for index, (name, value) in enumerate(limit.items()):
        place = np.array(betas) * step ** (0.14 * (index - (len(limit) - 1) / 2))
        pooled = [draws[beta][name].ravel() for beta in betas]
        for tails, width in zip(INTERVALS, (1.2, 4), strict=True):
            low, high = np.quantile(pooled, tails, axis=1)
            ax.vlines(place, low, high, color=colour(index), linewidth=width)
        medians = np.median(pooled, axis=1)
        marker = MARKERS[index % len(MARKERS)]
        label = LONG_NAMES.get(name, name)
        ax.plot(
            place, medians, marker, color=colour(index), markeredgecolor="white", markersize=7, label=f"{label}, median"
        )
        ax.axhline(value, color=colour(index), linestyle="dashed", linewidth=1, label=f"{label}, limit")
    ax.set_xscale("log")
    ax.set(xlabel=r"inverse temperature $\beta$", ylabel="posterior: 50 % and 90 % of the draws")
    ax.legend(frameon=False, ncols=2)
    return ax
