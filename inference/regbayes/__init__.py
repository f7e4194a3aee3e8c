"""Regularised Bayesian inference for any program: constraints on expectations, the tilted program, inner inferences.

Here: the framework of the papers, for programs of one's own. Not here: a model of the zoo, or a solver of its dual
(``duality``).
"""
