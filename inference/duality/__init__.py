"""Solvers of the dual problems that a margin constraint on an expectation leads to."""

from .crammer_singer import Solution, crammer_singer, objectives
