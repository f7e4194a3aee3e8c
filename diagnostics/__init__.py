"""Conformance, ArviZ conversion, summaries, plots."""

from .arviz import to_datatree
from .conformance import Report, conformance
from .plots import plot_decision, plot_posterior, plot_trace
from .summary import summary

__all__ = ["Report", "conformance", "plot_decision", "plot_posterior", "plot_trace", "summary", "to_datatree"]
