"""Conformance, ArviZ conversion, label-invariant summaries, scores, partitions, plots."""

from .arviz import to_datatree
from .comparison import compare_kernels
from .conformance import Report, conformance
from .cross_validation import loo
from .invariants import invariants
from .partitions import PointEstimate, coclustering, num_clusters, point_estimate
from .plots import *  # noqa: F403
from .predictive import Predictive, calibration, predictive
from .relabelling import relabel
from .summary import summary
