"""Sweeps compiled for the host's cores, which JAX calls (:mod:`regbayes.models.laws.cores` says how).

Here: Numba code that a move falls back to for speed, never the only form of a conditional. Not here: moves.
"""
