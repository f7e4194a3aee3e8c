"""What the pictures share: colours that colour-blind readers can tell apart (Okabe and Ito), markers, axes."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
LINES = ("solid", "dashed", "dashdot", "dotted")
SHADES = "cividis"
"""For heat maps: the same to all eyes, and light where dark in print."""


def colour(index: int) -> str:
    """One of the colours, over and over."""
    return COLOURS[index % len(COLOURS)]


def axes_or_new(ax: Axes | None, size: tuple[float, float] = (6.4, 4.4)) -> Axes:
    """The axes given, or those of a new figure."""
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
