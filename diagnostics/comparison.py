"""Do two kernels draw from the same posterior? Means and variances, compared on their Monte Carlo errors."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats import mcse

from .summary import scalars

COLUMNS = ["mean_a", "mean_b", "z_mean", "var_a", "var_b", "z_var", "note"]


def compare_kernels(dt_a: xr.DataTree, dt_b: xr.DataTree, var_names: str | Sequence[str] | None = None) -> pd.DataFrame:
    r"""Means and variances of two runs on the same program and data, with the z-scores of their differences.

    :math:`z = (a - b)/\sqrt{\mathrm{mcse}_a^2 + \mathrm{mcse}_b^2}` is about standard normal where both are right and
    have mixed; the variance is compared as the mean of squares about the common mean. Among many rows some exceed 2.

    :param dt_a: draws of one kernel, as :func:`to_datatree` makes them.
    :param dt_b: draws of the other.
    :param var_names: variables of :func:`invariants`, ``posterior`` or ``sample_stats``; by default what
        :func:`summary` lists and both have, which no numbering of clusters changes. (The ``lp`` of an HMC run has the
        Jacobian of its transforms in it: do not compare it to another kernel's.)
    :return: a row per scalar: ``mean_a``, ``mean_b``, ``z_mean``, ``var_a``, ``var_b``, ``z_var`` and ``note``. A
        constant has no Monte Carlo error; equal constants have ``z = 0``, others infinity, and ``note`` says so.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import compare_kernels
    >>> draws = np.random.default_rng(0).normal(size=(2, 4, 500))
    >>> a, b = (from_dict({"posterior": {"eta": part}}) for part in draws)
    >>> bool(abs(compare_kernels(a, b).loc["eta", "z_mean"]) < 4)
    True
    """
    a, b = scalars(dt_a, var_names), scalars(dt_b, var_names)
    names = [name for name in a if name in b]
    if not names:
        raise ValueError(f"the runs have no scalar in common, found {list(a)[:5]} and {list(b)[:5]}; see var_names")
    return pd.DataFrame([_row(a[name], b[name]) for name in names], index=names, columns=COLUMNS)


def _row(a: np.ndarray, b: np.ndarray) -> tuple:
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        return (*(np.nan,) * 6, "not finite")
    centre = np.concatenate([a.ravel(), b.ravel()]).mean()
    squares = (a - centre) ** 2, (b - centre) ** 2
    constant = [name for name, draws in (("a", a), ("b", b)) if not np.ptp(draws)]
    note = f"constant in {' and '.join(constant)}" if constant else ""
    return a.mean(), b.mean(), _score(a, b), squares[0].mean(), squares[1].mean(), _score(*squares), note


def _score(a: np.ndarray, b: np.ndarray) -> float:
    """The difference of the means over its Monte Carlo error."""
    difference = a.mean() - b.mean()
    errors = [float(mcse(draws, method="mean")) if np.ptp(draws) else 0.0 for draws in (a, b)]
    error = float(np.hypot(errors[0], errors[1]))
    # A constant is known exactly: rounding of its mean is no difference.
    if not error:
        return 0.0 if np.isclose(a.mean(), b.mean(), rtol=1e-6) else float(np.copysign(np.inf, difference))
    return float(difference / error)
