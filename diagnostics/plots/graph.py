"""The graph of a program."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpyro


def plot_graph(model: Callable, *args: Any, filename: str | pathlib.Path | None = None, **kwargs: Any) -> Any:
    """The program's sites and how they depend on each other, by NumPyro's ``render_model``; notebooks show it.

    Max-margin factors are the grey squares: pseudo-likelihoods, not observations.

    :param model: the program.
    :param args: its arguments.
    :param filename: also draw into this file, a png, pdf or svg; this needs the program ``dot`` of Graphviz.
    :param kwargs: the program's keyword arguments.
    :return: a ``graphviz.Digraph``.

    **Example**

    >>> import regbayes
    >>> from regbayes.diagnostics import plot_graph
    >>> args, kwargs = regbayes.zoo["svm"].example()
    >>> "eta" in plot_graph(regbayes.zoo["svm"].program, *args, **kwargs).source
    True
    """
    try:
        import graphviz  # noqa: F401
    except ImportError:
        raise ImportError("plot_graph needs the Python package graphviz: pip install 'regbayes[graph]'") from None
    return numpyro.render_model(
        model, model_args=args, model_kwargs=kwargs, filename=filename, render_distributions=True
    )
