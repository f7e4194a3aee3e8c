"""A NumPyro model zoo of max-margin Bayesian models.

The sub-packages load on first use, so that ``import regbayes`` and ``regbayes --help`` start at once:

- :mod:`regbayes.models`: the NumPyro programs and the max-margin factors;
- :mod:`regbayes.inference`: kernels, moves and small-variance limits;
- :mod:`regbayes.diagnostics`: conformance, ArviZ conversion, plots;
- :mod:`regbayes.datasets`: synthetic settings and loaders;
- :func:`regbayes.fit`: a model's posterior in one call;
- :data:`regbayes.zoo`: the catalogue, a mapping from a model's name to its entry.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "datasets", "diagnostics", "fit", "inference", "models", "zoo"]


def __getattr__(name: str) -> Any:
    if name == "fit":
        from .fitting import fit

        return fit
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
