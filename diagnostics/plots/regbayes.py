"""The constraints of a regularised posterior."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...inference import RegBayesResult
from .style import colour


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
        _draw_entries(phi_ax, result.phi[name], None, colour(0))
        _draw_entries(slack_ax, result.slacks[name], 2 * errors.values.ravel(), colour(5))
        phi_ax.set(ylabel="phi", title=name)
        slack_ax.set(ylabel="slack", title=name)
    noise = f" ± {result.gap_error:.1g}" if result.gap_error else ""
    figure.suptitle(f"duality gap {result.gap:.2g}{noise} nats", fontsize="medium")
    return figure


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
