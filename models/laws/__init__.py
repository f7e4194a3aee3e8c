"""The laws that the pages are written in: distributions, families of likelihoods, corpora, and checks of arguments.

Here: what any program may use, under a name of its own. Not here: a model, or anything that knows one by name.
How a law is computed on the host's cores belongs to the law (``cores``); how a model is drawn belongs to inference.
"""
