"""Convergence and posterior moments, one row per scalar quantity."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller
from arviz_stats import ess, mcse, rhat

TAILS = (0.05, 0.95)
COLUMNS = ["mean", "sd", "q5", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat", "note"]


def summary(dt: xr.DataTree, var_names: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Posterior moments and convergence of every scalar quantity, the log joint ``lp`` first.

    Columns: ``mean``, ``sd``, the quantiles ``q5`` and ``q95``, ``mcse_mean``, ``ess_bulk``, ``ess_tail``, ``r_hat``
    (ArviZ's, rank-normalised) and ``note``. An R-hat or an effective sample size that is undefined is NaN, and
    ``note`` says why: the quantity is constant, there is one chain, the draws are too few or not finite.

    :param dt: draws, as :func:`to_datatree` makes them: ``posterior`` and, where there, ``sample_stats``.
    :param var_names: variables of ``posterior`` or ``sample_stats``; by default ``lp`` and the whole posterior.
    :return: one row per scalar, with labels such as ``eta[0]``.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import summary
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> table = summary(from_dict({"posterior": {"eta": draws, "scale": np.ones((4, 100))}}))
    >>> table["note"].to_dict()
    {'eta[0]': '', 'eta[1]': '', 'scale': 'constant'}
    """
    draws = scalars(dt, var_names)
    values = np.stack(list(draws.values()))
    notes = np.array([_defect(value) for value in values], dtype=object)
    sound = notes == ""
    # Draws that are not finite have moments that are not either, which is what the note says.
    with np.errstate(all="ignore"):
        table = pd.DataFrame(
            {
                "mean": values.mean((1, 2)),
                "sd": values.std((1, 2), ddof=1) if values[0].size > 1 else np.nan,
                **{f"q{100 * tail:.0f}": np.quantile(values, tail, axis=(1, 2)) for tail in TAILS},
                **{name: _where(sound, diagnostic, values) for name, diagnostic in DIAGNOSTICS.items()},
            },
            index=list(draws),
        )
    undefined = sound & table.isna().any(axis=1).to_numpy()
    notes[undefined] = "one chain" if values.shape[1] == 1 else "undefined"
    return table.assign(note=notes)[COLUMNS]


def scalars(dt: xr.DataTree, var_names: str | Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The scalar quantities of ``dt`` by label, each (chain, draw) in float64.

    :param dt: draws with a group ``posterior`` and, where there, ``sample_stats``.
    :param var_names: variables of either group; by default ``lp`` and the whole posterior.
    """
    posterior = dt["posterior"].to_dataset()
    stats = dt["sample_stats"].to_dataset() if "sample_stats" in dt.children else xr.Dataset()
    if var_names is None:
        var_names = [*(["lp"] if "lp" in stats else []), *map(str, posterior.data_vars)]
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    if unknown := [name for name in names if name not in posterior and name not in stats]:
        known = [*posterior.data_vars, *stats.data_vars]
        raise ValueError(f"var_names has {unknown}, found {known} in posterior and sample_stats")
    label = BaseLabeller().make_label_flat
    found = {
        label(*where): np.asarray(value, float)
        for name in names
        for *where, value in _entries(posterior if name in posterior else stats, name)
    }
    if not found:
        raise ValueError(f"var_names {names} holds no scalar quantity; name at least one variable that is not empty")
    return found


def _entries(group: xr.Dataset, name: str):
    """``name, selection, index, (chain, draw) array`` of each scalar of a variable."""
    array = group[name].transpose("chain", "draw", ...)
    for _, selection, index in xarray_sel_iter(group[[name]], skip_dims={"chain", "draw"}):
        yield name, selection, index, array.isel(index).to_numpy()


def _defect(value: np.ndarray) -> str:
    """Why convergence of the (chain, draw) array is undefined, or ''."""
    if not np.all(np.isfinite(value)):
        return "not finite"
    if np.all(value == value.flat[0]):
        return "constant"
    if value.shape[1] < 4:
        return "fewer than 4 draws"
    if np.all(value == value[:, :1]):
        return "constant in each chain"
    return ""


def _where(sound: np.ndarray, diagnostic, values: np.ndarray) -> np.ndarray:
    """The diagnostic of the sound rows of ``values`` (scalar, chain, draw), NaN elsewhere."""
    result = np.full(len(values), np.nan)
    if sound.any():
        result[sound] = diagnostic(values[sound], chain_axis=1, draw_axis=2)
    return result


def _mcse_mean(values: np.ndarray, **axes: int) -> np.ndarray:
    return mcse(values, method="mean", **axes)


def _ess_bulk(values: np.ndarray, **axes: int) -> np.ndarray:
    return ess(values, method="bulk", **axes)


def _ess_tail(values: np.ndarray, **axes: int) -> np.ndarray:
    return ess(values, method="tail", prob=TAILS, **axes)


DIAGNOSTICS = {"mcse_mean": _mcse_mean, "ess_bulk": _ess_bulk, "ess_tail": _ess_tail, "r_hat": rhat}
