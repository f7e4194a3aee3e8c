"""The contract of a sampler, and the loop that draws: targets, moves, kernels, chains, and what is kept of them.

Here: what every kernel is made of, whatever its model. Not here: a conditional, or a step that some kernels share
(``moves``), or a model's own list of moves (``kernels``).
"""
