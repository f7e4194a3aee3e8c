"""Conformance, ArviZ conversion, summaries, plots, partitions."""

from .arviz import to_datatree
from .conformance import Report, conformance
from .partitions import PointEstimate, coclustering, num_clusters, point_estimate
from .plots import plot_decision, plot_posterior, plot_regbayes, plot_trace
from .summary import summary

__all__ = [
    "PointEstimate",
    "Report",
    "coclustering",
    "conformance",
    "num_clusters",
    "plot_decision",
    "plot_posterior",
    "plot_regbayes",
    "plot_trace",
    "point_estimate",
    "summary",
    "to_datatree",
]
