"""Steps that several kernels share, one file per idea: labels, split-merge, weights, features, sticks, tokens, slices.

Here: moves over a structure (a mixture, a buffet, a corpus) that kernels describe to them. Not here: the contract
of a move (``engine``), or what only one model needs (``kernels``).
"""
