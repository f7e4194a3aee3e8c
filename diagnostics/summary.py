"""Convergence and posterior moments, one row per scalar quantity."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller
from arviz_stats import ess, mcse, rhat

from .invariants import invariants
from .structure import CASES, SLOTS, label_site, switches

TAILS = (0.05, 0.95)
COLUMNS = ["mean", "sd", "q5", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat", "note"]


def summary(dt: xr.DataTree, var_names: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Posterior moments and convergence: label-invariant quantities first (see :func:`invariants`), then parameters.

    Columns: ``mean``, ``sd``, the quantiles ``q5`` and ``q95``, ``mcse_mean``, ``ess_bulk``, ``ess_tail``, ``r_hat``
    (ArviZ's, rank-normalised) and ``note``. An R-hat or an effective sample size that is undefined is NaN, and
    ``note`` says why: the quantity is constant, there is one chain, the draws are too few or not finite.

    Sites whose entries are numbered at will (labels, and what belongs to clusters, topics or latent features) are left
    out, for a mean over draws that number them differently says nothing; so are sites as long as the data. The note of
    the first row and ``table.attrs["left_out"]`` name them. After :func:`relabel` the clusters in use are listed, with
    a note on those that only some draws have. Whatever ``var_names`` asks for is listed as it is.

    :param dt: draws, as :func:`to_datatree` makes them: ``posterior`` and, where there, ``sample_stats``.
    :param var_names: variables of :func:`invariants`, ``posterior`` or ``sample_stats``.
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
    left_out: list[str] = []
    if var_names is None:
        posterior = dt["posterior"].to_dataset()
        left_out = _left_out(posterior)
        for label, share in _usage(posterior).items():
            if label in draws and share < 1:
                _append(notes, list(draws).index(label), f"in use in {100 * share:.0f} % of the draws, else prior")
        if any(switches(posterior[name]) for name in left_out):
            _append(notes, 0, f"left out, as labels may switch: {', '.join(left_out)}; see relabel")
    table = table.assign(note=notes)[COLUMNS]
    table.attrs["left_out"] = left_out
    return table


def scalars(dt: xr.DataTree, var_names: str | Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The scalar quantities of ``dt`` by label, each (chain, draw) in float64.

    :param dt: draws with a group ``posterior`` and, where there, ``sample_stats``.
    :param var_names: variables of :func:`invariants` or of either group; by default the invariants and the parameters
        that are not numbered at will.
    """
    posterior = dt["posterior"].to_dataset()
    stats = dt["sample_stats"].to_dataset() if "sample_stats" in dt.children else xr.Dataset()
    found = invariants(dt)
    if var_names is None:
        posterior = _used_slots(posterior)
        var_names = [*map(str, found.data_vars), *parameters(dt)]
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    groups = (posterior, found, stats)
    if unknown := [name for name in names if not any(name in group for group in groups)]:
        known = dict.fromkeys([*posterior.data_vars, *found.data_vars, *stats.data_vars])
        raise ValueError(f"var_names has {unknown}, found {list(known)} in posterior, invariants and sample_stats")
    label = BaseLabeller().make_label_flat
    draws = {
        label(*where): np.asarray(value, float)
        for name in names
        for *where, value in _entries(next(group for group in groups if name in group), name)
    }
    if not draws:
        raise ValueError(f"var_names {names} holds no scalar quantity; name at least one variable that is not empty")
    return draws


def parameters(dt: xr.DataTree) -> list[str]:
    """Sites that a summary lists: those not numbered at will and not as long as the data."""
    posterior = dt["posterior"].to_dataset()
    hidden = _left_out(posterior)
    return [str(name) for name in posterior.data_vars if name not in hidden]


def _left_out(posterior: xr.Dataset) -> list[str]:
    """Sites that a summary does not list by itself."""
    hidden = {*CASES, *(dim for dim in SLOTS if f"relabelled_{dim}" not in posterior.attrs)}
    labels = label_site(posterior)
    return [
        str(name)
        for name, site in posterior.data_vars.items()
        if name == labels or "labels" in site.attrs or hidden & set(site.dims)
    ]


def _relabelled(posterior: xr.Dataset) -> dict[str, np.ndarray]:
    """The labels (chain, draw, n) of each axis that was renumbered."""
    sites = {dim: label_site(posterior, dim) for dim in SLOTS if f"relabelled_{dim}" in posterior.attrs}
    return {
        dim: posterior[site].transpose("chain", "draw", ...).to_numpy()
        for dim, site in sites.items()
        if site is not None and dim in posterior.dims
    }


def _used_slots(posterior: xr.Dataset) -> xr.Dataset:
    """The posterior with those slots of relabelled axes that any draw uses."""
    return posterior.isel({dim: np.unique(z) for dim, z in _relabelled(posterior).items()})


def _usage(posterior: xr.Dataset) -> dict[str, float]:
    """The share of the draws that use the slot of each row of a relabelled site."""
    label, shares = BaseLabeller().make_label_flat, {}
    for dim, z in _relabelled(posterior).items():
        for name in (str(name) for name, site in posterior.data_vars.items() if dim in site.dims):
            for _, selection, index in xarray_sel_iter(posterior[[name]], skip_dims={"chain", "draw"}):
                shares[label(name, selection, index)] = float(np.mean(np.any(z == index[dim], axis=-1)))
    return shares


def _append(notes: np.ndarray, row: int, text: str) -> None:
    notes[row] = f"{notes[row]}; {text}" if notes[row] else text


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
