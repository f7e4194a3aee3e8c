"""Conformance, ArviZ conversion, plots."""

from .arviz import to_datatree
from .conformance import Report, conformance

__all__ = ["Report", "conformance", "to_datatree"]
