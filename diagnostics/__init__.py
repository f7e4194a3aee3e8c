"""Conformance, ArviZ conversion, label-invariant summaries, scores, partitions, plots."""

from .arviz import to_datatree
from .comparison import compare_kernels
from .conformance import Report, conformance
from .cross_validation import loo
from .invariants import invariants
from .partitions import PointEstimate, coclustering, num_clusters, point_estimate
from .plots import (
    plot_calibration,
    plot_coclustering,
    plot_concentration,
    plot_decision,
    plot_documents,
    plot_features,
    plot_graph,
    plot_kernels,
    plot_mixture_decision,
    plot_num_clusters,
    plot_objective,
    plot_posterior,
    plot_regbayes,
    plot_topics,
    plot_trace,
)
from .predictive import Predictive, calibration, predictive
from .relabelling import relabel
from .summary import summary
