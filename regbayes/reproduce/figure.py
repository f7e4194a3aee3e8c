"""Figures of experiments, from their means or from what their cells kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ..diagnostics.plots.style import COLOURS, MARKERS

if TYPE_CHECKING:
    from .experiment import Experiment


Records = Sequence[Mapping[str, Any]]


def lines(experiment: "Experiment", summary: Records, cells: Records, *, metric: str) -> Figure:
    """A panel for each name before ``=`` of the settings, a line for each method over the numbers behind it."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for entry in summary:
        if entry["metric"] == metric:
            panel, value = entry["setting"].split("=")
            point = (float(value.rstrip("%")), entry["ours"]["mean"], entry["ours"]["sd"] or 0.0)
            panels.setdefault(panel, {}).setdefault(entry["method"], []).append(point)
    figure = Figure(figsize=(3.6 * len(panels), 3.2), layout="constrained")
    for ax, (panel, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for (method, points), colour, marker in zip(rows.items(), COLOURS, MARKERS, strict=False):
            x, mean, sd = zip(*points, strict=True)
            ax.errorbar(x, mean, sd, color=colour, marker=marker, markersize=4, capsize=3, label=method)
        wide = min(x) > 0 and max(x) / min(x) > 20
        ax.set(xlabel=panel, ylabel=experiment.metrics[metric].heading, xscale="log" if wide else "linear")
        if len(rows) > 1:
            ax.legend(frameon=False, fontsize="small")
    return figure


def dots(experiment: "Experiment", summary: Records, cells: Records, *, metric: str) -> Figure:
    """A panel for each setting, a row for each method: its mean and standard deviation."""
    entries = [entry for entry in summary if entry["metric"] == metric]
    settings = list(dict.fromkeys(entry["setting"] for entry in entries))
    rows = max(sum(entry["setting"] == setting for entry in entries) for setting in settings)
    figure = Figure(figsize=(5.5 * len(settings), 0.9 + 0.35 * rows), layout="constrained")
    for ax, setting in zip(figure.subplots(1, len(settings), squeeze=False)[0], settings, strict=True):
        own = [entry for entry in entries if entry["setting"] == setting][::-1]
        means, sds = ([entry["ours"][key] or 0.0 for entry in own] for key in ("mean", "sd"))
        ax.errorbar(means, [entry["method"] for entry in own], xerr=sds, fmt="o", color=COLOURS[0], capsize=3)
        ax.grid(axis="x", color="0.9")
        ax.margins(y=0.08)
        ax.set(xlabel=experiment.metrics[metric].heading, title=setting)
    return figure


def scatters(
    experiment: "Experiment", summary: Records, cells: Records, *, points: Callable[..., np.ndarray], metric: str
) -> Figure:
    """The first seed's cells: a row for each setting, a panel for each method, points coloured by the ``labels`` kept.

    :param points: ``points(setting, result)``, (n, 2).
    """
    shape = len(experiment.settings), len(experiment.methods)
    figure = Figure(figsize=(3.6 * shape[1], 3.4 * shape[0]), layout="constrained")
    axes = figure.subplots(*shape, squeeze=False)
    first = {(cell["setting"], cell["method"]): cell["result"] for cell in cells if cell["seed"] == 0}
    for panels, setting in zip(axes, experiment.settings, strict=True):
        for ax, method in zip(panels, experiment.methods, strict=True):
            result = first[setting, method]
            labels, where = np.asarray(result["labels"]), points(setting, result)
            for k in np.unique(labels).tolist():
                colour, marker = COLOURS[k % len(COLOURS)], MARKERS[(k + k // len(COLOURS)) % len(MARKERS)]
                ax.scatter(*where[labels == k].T, s=9, color=colour, marker=marker, linewidths=0)
            heading, digits = experiment.metrics[metric].heading, experiment.metrics[metric].digits
            ax.set(title=f"{setting}, {method}\n{heading} {result[metric]:.{digits}f}", xticks=[], yticks=[])
    return figure
