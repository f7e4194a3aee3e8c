"""What draws chains to answer a question: how strong a margin should be, and estimators that keep a posterior.

Here: users of kernels and of the loop. Not here: kernels themselves, or estimators that do not draw (``limits``,
``mean_field``).
"""
