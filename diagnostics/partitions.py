r"""Partitions drawn by a sampler, in one: who is with whom, and the partition nearest to all of them.

Both distances between partitions ``c`` and ``z`` of ``n`` data are, with the sizes ``n_a`` and ``n_m`` of their
clusters and ``n_am`` of the intersections,

.. math:: d(c, z) = \sigma \Big[\sum_a f(n_a) + \sum_m f(n_m) - 2 \sum_{am} f(n_{am})\Big],

for the variation of information [1] with ``f(x) = x log x`` and ``sigma = 1/n``, in nats; for Binder's loss [2] with
``f(x) = x^2`` and ``sigma = 1/(n(n-1))``, the share of pairs that are together in one and apart in the other. None of
this depends on how clusters are numbered.

**References**

1. *Bayesian cluster analysis: point estimation and credible balls*, S. Wade and Z. Ghahramani, Bayesian Analysis
   (2018)
2. *Bayesian cluster analysis*, D. A. Binder, Biometrika (1978)
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from numba import njit
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from .structure import label_site

STARTS = 3  # candidates that single data are moved in
ROUNDING = 1e-12  # a fall as small, in units of f, is none

Draws = ArrayLike | xr.DataTree


class PointEstimate(NamedTuple):
    """The result of :func:`point_estimate`."""

    labels: np.ndarray  # (n,) clusters, numbered in the order of appearance
    expected_loss: float  # the mean distance of a draw
    credible_radius: float  # the least distance within which the wanted share of the draws lies


def coclustering(draws: Draws) -> np.ndarray:
    """The posterior similarity matrix: how often two data are in one cluster.

    :param draws: labels (..., n), draws first, or a ``DataTree`` of draws of a mixture.
    :return: (n, n), from 0 to 1.

    >>> from regbayes.diagnostics import coclustering
    >>> coclustering([[0, 0, 1], [5, 5, 5]])
    array([[1. , 1. , 0.5],
           [1. , 1. , 0.5],
           [0.5, 0.5, 1. ]])
    """
    return _similarity(*_distinct(_labels(draws)))


def num_clusters(draws: Draws) -> np.ndarray:
    """The number of clusters in every draw.

    :param draws: labels (..., n), or a ``DataTree`` of draws of a mixture.
    :return: the shape of the draws, for a ``DataTree`` (chain, draw).

    >>> from regbayes.diagnostics import num_clusters
    >>> num_clusters([[0, 0, 1], [5, 5, 5]])
    array([2, 1])
    """
    ordered = np.sort(_labels(draws), axis=-1)
    return 1 + np.sum(np.diff(ordered, axis=-1) != 0, axis=-1)


def point_estimate(draws: Draws, loss: str = "vi", *, probability: float = 0.95) -> PointEstimate:
    """The partition with the least expected distance from the draws.

    All distinct draws and the cuts of an average-linkage tree of ``1 - coclustering(draws)`` are compared; in the
    best of them single data go where the expected distance falls most, until none does.

    :param draws: labels (..., n), draws first, or a ``DataTree`` of draws of a mixture.
    :param loss: "vi", the variation of information, or "binder".
    :param probability: the share of the draws within the credible radius.

    >>> import numpy as np
    >>> from regbayes.diagnostics import point_estimate
    >>> draws = np.array([[0, 0, 1, 1], [3, 3, 2, 2], [0, 0, 0, 1]])
    >>> labels, expected_loss, radius = point_estimate(draws, "binder")
    >>> labels, round(expected_loss, 3), round(radius, 3)
    (array([0, 0, 1, 1]), 0.167, 0.5)
    """
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}; found {loss!r}")
    if not 0 < probability <= 1:
        raise ValueError(f"probability must be above 0 and at most 1, found {probability}; pass a share of the draws")
    partitions, share = _distinct(_labels(draws))
    n = partitions.shape[1]
    f, sigma = LOSSES[loss](n)
    cuts = _cuts(_similarity(partitions, share), int(partitions.max()) + 2)
    candidates = np.concatenate([partitions, cuts])
    expected = _distances(candidates, partitions, f) @ share
    ends = []
    for start in np.argsort(expected, kind="stable")[:STARTS]:
        labels = candidates[start].copy()
        _descend(labels, partitions, share, f, ROUNDING * max(float(f[-1]), 1.0))
        ends.append(_by_appearance(labels))
    distances = sigma * _distances(np.stack(ends), partitions, f)
    best = int(np.argmin(distances @ share))
    order = np.argsort(distances[best])
    inside = int(np.searchsorted(np.cumsum(share[order]), probability - 1e-9))
    radius = distances[best][order[min(inside, len(order) - 1)]]
    return PointEstimate(ends[best], float(distances[best] @ share), float(radius))


def _variation(n: int) -> tuple[np.ndarray, float]:
    """``f`` at ``0..n`` and ``sigma``."""
    x = np.arange(n + 1.0)
    return x * np.log(np.maximum(x, 1)), 1 / n


def _binder(n: int) -> tuple[np.ndarray, float]:
    return np.arange(n + 1.0) ** 2, 1 / max(n * (n - 1), 1)


LOSSES = {"vi": _variation, "binder": _binder}


def _labels(draws: Draws) -> np.ndarray:
    """(..., n) integer labels, draws first."""
    if isinstance(draws, xr.DataTree):
        posterior = draws["posterior"].to_dataset() if "posterior" in draws.children else draws.to_dataset()
        site = label_site(posterior)
        if site is None:
            raise ValueError(f"draws must have clusters' labels, found {list(posterior.data_vars)}; pass the labels")
        z = posterior[site].transpose("chain", "draw", ...).to_numpy()
    else:
        z = np.asarray(draws)
    if z.ndim < 2 or z.dtype.kind not in "iu" or not z.size:
        raise ValueError(f"draws must be integer labels of shape (draws, n), found {z.dtype} of shape {z.shape}")
    return z


def _by_appearance(z: np.ndarray) -> np.ndarray:
    """(n,) labels renumbered in the order of appearance."""
    _, first, inverse = np.unique(z, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _distinct(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different partitions (m, n) among labels (..., n), and their shares (m,) of the draws."""
    named = np.stack([_by_appearance(row) for row in z.reshape(-1, z.shape[-1])])
    partitions, counts = np.unique(named, axis=0, return_counts=True)
    return partitions, counts / np.sum(counts)


def _similarity(partitions: np.ndarray, share: np.ndarray) -> np.ndarray:
    similarity = np.zeros((partitions.shape[1],) * 2)
    for z, weight in zip(partitions, share, strict=True):
        similarity += weight * (z[:, None] == z)
    return similarity


def _cuts(similarity: np.ndarray, most: int) -> np.ndarray:
    """(m, n) partitions into up to ``most`` clusters by average linkage."""
    n = len(similarity)
    if n == 1:
        return np.zeros((1, 1), int)
    apart = np.maximum(1 - similarity, 0)
    np.fill_diagonal(apart, 0)
    tree = linkage(squareform(apart, checks=False), "average")
    numbers = range(1, min(most, n) + 1)
    return np.stack([_by_appearance(fcluster(tree, number, "maxclust")) for number in numbers])


@njit(cache=True, nogil=True)
def _distances(candidates, partitions, f):
    """(m, s) distances of the candidates (m, n) from partitions (s, n), without the factor ``sigma``."""
    m, n = candidates.shape
    found = np.empty((m, len(partitions)))
    for i in range(m):
        c = candidates[i]
        rows = np.max(c) + 1
        for s in range(len(partitions)):
            z = partitions[s]
            columns = np.max(z) + 1
            table = np.zeros((rows, columns), np.int64)
            for j in range(n):
                table[c[j], z[j]] += 1
            total = 0.0
            for a in range(rows):
                total += f[np.sum(table[a])]
                for k in range(columns):
                    total -= 2 * f[table[a, k]]
            for k in range(columns):
                total += f[np.sum(table[:, k])]
            found[i, s] = max(total, 0.0)
    return found


@njit(cache=True, nogil=True)
def _descend(c, partitions, share, f, least):
    """Move single data of ``c`` (n,), in place, while the expected distance falls by more than ``least``.

    With datum ``i`` taken out, cluster ``a`` costs it ``g(n_a) - 2 E g(n_am)`` where ``m`` is its cluster in a draw and
    ``g(x) = f(x+1) - f(x)``.
    """
    n, num_draws = len(c), len(partitions)
    widest = 0
    for s in range(num_draws):
        widest = max(widest, np.max(partitions[s]) + 1)
    size = np.zeros(n + 1, np.int64)
    # Tables of the slots in use; a cluster opened takes the first free one.
    tables = np.zeros((np.max(c) + 2, num_draws, widest), np.int32)
    for j in range(n):
        size[c[j]] += 1
        for s in range(num_draws):
            tables[c[j], s, partitions[s, j]] += 1
    moved = True
    while moved:
        moved = False
        for j in range(n):
            here = c[j]
            size[here] -= 1
            for s in range(num_draws):
                tables[here, s, partitions[s, j]] -= 1
            best, cheapest, stay, seen_empty = here, np.inf, 0.0, False
            for a in range(len(tables)):
                if size[a] == 0:
                    if seen_empty and a != here:
                        continue
                    seen_empty = True
                cost = f[size[a] + 1] - f[size[a]]
                for s in range(num_draws):
                    x = tables[a, s, partitions[s, j]]
                    cost -= 2 * share[s] * (f[x + 1] - f[x])
                if a == here:
                    stay = cost
                if cost < cheapest:
                    best, cheapest = a, cost
            if cheapest < stay - least:
                moved = True
            else:
                best = here
            c[j] = best
            size[best] += 1
            for s in range(num_draws):
                tables[best, s, partitions[s, j]] += 1
            if np.all(size[: len(tables)] > 0):  # always one to open
                grown = np.zeros((len(tables) + 1, num_draws, widest), np.int32)
                grown[: len(tables)] = tables
                tables = grown
