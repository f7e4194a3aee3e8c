"""One numbering of the clusters, or topics, for all draws."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from ..inference.engine.compiled import over_rows
from .partitions import point_estimate
from .structure import flat_draws, label_site

METHODS = ("kl", "hungarian")
MAX_ROUNDS = 100
ROUNDING = 1e3
"""A log density may change by so many units in the last place: its terms are summed in another order."""


def relabel(
    dt: xr.DataTree,
    method: str = "kl",
    *,
    reference: ArrayLike | None = None,
    dim: str = "cluster",
    check: Callable[[dict[str, jax.Array]], Any] | None = None,
) -> xr.DataTree:
    r"""Renumber the slots of every draw, so that a number means the same cluster throughout.

    "hungarian" gives each draw the numbering that agrees with a reference partition on most data. "kl" goes on from
    there by Stephens' algorithm: with :math:`q_{ik}` the share of the draws in which datum ``i`` has the number ``k``,
    each draw gets the numbering that maximises :math:`\sum_i \log q_{i z_i}`, and both steps alternate until nothing
    changes. (His classification probabilities are here the draws' own labels, and ``q`` is smoothed by one more draw
    that is spread over all numbers.) The labels and every site with the axis ``dim`` change together; slots without
    data take the numbers left over. What is a function of the partition, :func:`invariants` say, stays as it is.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param method: "kl" or "hungarian".
    :param reference: (n,) labels; by default :func:`point_estimate` of the draws.
    :param dim: the axis to renumber: "cluster", or "topic" for the topics of tokens.
    :param check: the program's log density as a function of the sites, such as
        ``kernel.target(args, kwargs).log_joint``: a ``ValueError`` tells if renumbering has changed it, which it does
        where slots are not exchangeable.
    :return: a new tree, with the attribute ``relabelled_<dim>`` in ``posterior``, on which :func:`summary` lists the
        clusters.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import relabel
    >>> z = np.array([[[0, 0, 1, 1], [1, 1, 0, 0]]])
    >>> mu = np.array([[[-1.0, 1.0], [1.0, -1.0]]])  # what belongs to the clusters has switched along
    >>> dt = relabel(from_dict({"posterior": {"z": z, "mu": mu}}, dims={"mu": ["cluster"]}))
    >>> dt["posterior"]["mu"].values.tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]

    **References**

    1. *Dealing with label switching in mixture models*, M. Stephens, Journal of the Royal Statistical Society B (2000).
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; found {method!r}")
    posterior = dt["posterior"].to_dataset()
    site = label_site(posterior, dim)
    if site is None:
        raise ValueError(f"dt has no site with the numbers of {dim}s, found {list(posterior.data_vars)}; see dim")
    if dim == "cluster" and "constant_data" in dt.children and "landmarks" in dt["constant_data"]:
        raise ValueError("landmarks say which cluster is which, so its clusters are numbered; relabel dim='topic'")
    z = posterior[site].transpose("chain", "draw", ...).to_numpy()
    rows = z.reshape(-1, z.shape[-1])
    num_slots = max(posterior.sizes.get(dim, 0), int(rows.max()) + 1)
    new_numbers = _numbers(rows, num_slots, method, _reference(rows, reference, num_slots))
    labels = np.take_along_axis(new_numbers, rows, axis=1).reshape(z.shape).astype(z.dtype)
    old_numbers = np.argsort(new_numbers, axis=1).reshape(*z.shape[:2], num_slots)

    def renumbered(values: xr.DataArray) -> xr.DataArray:
        if values.name == site:
            return values.transpose("chain", "draw", ...).copy(data=labels)
        if dim not in values.dims:
            return values
        values = values.transpose("chain", "draw", dim, ...)
        index = old_numbers.reshape(*old_numbers.shape, *[1] * (values.ndim - 3))
        return values.copy(data=np.take_along_axis(values.to_numpy(), index, axis=2)).transpose(
            *posterior[values.name].dims
        )

    renamed = posterior.map(renumbered, keep_attrs=True)
    if check is not None:
        _compare(check, posterior, renamed, dim)
    result = dt.copy()
    result["posterior"] = xr.DataTree(renamed.assign_attrs({f"relabelled_{dim}": method}))
    return result


def _reference(rows: np.ndarray, reference: ArrayLike | None, num_slots: int) -> np.ndarray:
    """(n,) labels ``0..R-1``, the largest cluster first."""
    labels = point_estimate(rows).labels if reference is None else np.asarray(reference)
    if labels.shape != rows.shape[1:] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"reference must hold {rows.shape[1]} integer labels, found {labels.dtype} of shape {labels.shape}"
        )
    if reference is not None:  # its own numbers are wanted
        if labels.min() < 0 or labels.max() >= num_slots:
            raise ValueError(f"reference must number clusters 0..{num_slots - 1}, found up to {labels.max()}")
        return labels.astype(np.int64)
    names, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(np.argsort(-counts, kind="stable"))
    return order[inverse] if len(names) <= num_slots else np.minimum(order[inverse], num_slots - 1)


def _numbers(rows: np.ndarray, num_slots: int, method: str, reference: np.ndarray) -> np.ndarray:
    """(S, M) the new number of each slot of each draw."""
    occupied = [np.unique(row, return_inverse=True) for row in rows]
    most = max(int(reference.max()) + 1, *(len(slots) for slots, _ in occupied))
    agreement = np.eye(most)[reference]  # (n, targets): what a datum gains by a number
    chosen = [_assign(inverse, len(slots), agreement) for slots, inverse in occupied]
    if method == "kl":
        for _ in range(MAX_ROUNDS):
            q = np.full((rows.shape[1], most), 1 / most)
            for targets, (_, inverse) in zip(chosen, occupied, strict=True):
                q[np.arange(len(inverse)), targets[inverse]] += 1
            gain = np.log(q / (len(rows) + 1))
            better = [_assign(inverse, len(slots), gain) for slots, inverse in occupied]
            same = all(np.array_equal(a, b) for a, b in zip(better, chosen, strict=True))
            chosen = better
            if same:
                break
    numbers = np.empty((len(rows), num_slots), np.int64)
    for row, targets, (slots, _) in zip(numbers, chosen, occupied, strict=True):
        row[slots] = targets
        free = np.ones(num_slots, bool)
        free[slots] = False
        row[free] = np.setdiff1d(np.arange(num_slots), targets)
    return numbers


def _assign(labels: np.ndarray, num: int, gain: np.ndarray) -> np.ndarray:
    """(K,) the numbers of clusters ``0..K-1`` with the largest total gain over the data."""
    members = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(num, len(labels)))
    return linear_sum_assignment(members @ gain, maximize=True)[1]


def _compare(check: Callable, before: xr.Dataset, after: xr.Dataset, dim: str) -> None:
    """Whether the log density of the draws is what it was."""

    def log_densities(posterior: xr.Dataset) -> np.ndarray:
        return np.asarray(over_rows(check, flat_draws(posterior)))

    old, new = log_densities(before), log_densities(after)
    allowed = ROUNDING * np.finfo(old.dtype).eps * np.maximum(1, np.abs(old))
    if np.any(worse := ~(np.abs(new - old) <= allowed)):
        worst = int(np.argmax(np.abs(new - old)))
        raise ValueError(
            f"renumbering the {dim}s changed the log density of {worse.sum()} of {len(old)} draws, such as from "
            f"{old[worst]:.6g} to {new[worst]:.6g}: they are not exchangeable, or a site of theirs does not name its "
            f"axis {dim!r}; see to_datatree(dims=...)"
        )
