r"""Compiled passes over the data for the limits that cluster: assign every datum, and sum what the updates need.

With ``zeta`` the argument of a hinge and ``c`` its weight, a datum ``x`` with label ``y`` costs in cluster ``k``

.. math:: Q(k) = s\, D(x, \mu_k) + 2 c\, \mathrm{loss}(\eta_k; x, y).

A compiled pass runs over chunks of columns, ``(number of clusters, chunk)`` at a time so that nothing leaves the
cache, and over all local devices. Data are single precision beyond a size, sums double. Clusters live in slots of a
buffer; nothing but shapes is compiled in, so neither hyper-parameters nor the number of clusters compile anew. Tiny
data are one chunk of the same work in NumPy: calls cost more than the work there.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .divergences import coefficients, potential, statistics

Array = np.ndarray

TINY = 512  # data up to here stay on the host, where nothing is compiled
SMALL = 4096  # data up to here are kept in double precision
FAR = 1e30  # the price of an empty slot


class PassSettings(NamedTuple):
    """The hyper-parameters of a pass, all traced."""

    clustering_weight: float = 1.0  # s
    cost: float = 1.0  # c
    ell: float = 1.0
    prior_scale: float = 1.0  # nu
    floor: float = 1e-3  # the least |zeta| of an EM step


class Data(NamedTuple):
    """Data in chunks, on the devices or the host; ``rows`` are the weight, ``phi(x)``, ``|u|^2`` and the label."""

    X: Any  # (chunks, d, C), less ``origin``
    rows: Any  # (chunks, 4, C)
    columns: Array  # ``X`` and ``rows`` on the host
    table: Array
    origin: Array  # (d,)
    likelihood: str
    num_data: int
    num_classes: int  # 0 without a classifier
    mesh: Mesh | None  # None on the host

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[2]


class Sums(NamedTuple):
    """What one pass returns; ``B`` slots, ``S`` scores of a classifier with ``p = d + 1`` weights."""

    z: Any  # (chunks, C) slots
    weight: Any  # (B,) sum of w
    total: Any  # (B, d) sum of w x
    spread: Any  # (B,) sum of w s D
    before: Any  # (B,) sum of w loss, at the former z
    loss: Any  # (B,) sum of w loss
    slope: Any  # (B, S, p) sum of w (1 + zeta/|zeta|) sgn u, none on the host
    curvature: Any  # (B, S, p (p+1)/2) sum of w u u' / |zeta|, upper triangle, none on the host
    saving: Any  # (chunks,) the largest w Q(z) less the cost of a one-point cluster, without the penalty
    index: Any  # (chunks,) where it is
    dearest: Any  # (chunks,) the largest w Q(z)


def num_scores(num_classes: int) -> int:
    """Weight vectors of a classifier: one for two classes."""
    return num_classes if num_classes > 2 else num_classes // 2


@functools.cache
def triangle(p: int) -> tuple[Array, Array]:
    """Rows and columns of the upper triangle."""
    return np.triu_indices(p)


def layout(
    X: Array, y: Array | None, weight: Array, norm: Array, likelihood: str, num_classes: int, dtype: Any = None
) -> Data:
    """Lay data (n, d) out in chunks.

    :param y: (n,) labels in ``0..L-1``, signs for two classes, None without a classifier.
    :param norm: (n,) squared norms of the classifier's inputs.
    :param dtype: the type of the data on the devices.
    """
    n, d = X.shape
    if dtype is None:
        dtype = np.float64 if n <= SMALL else np.float32
    on_host = n <= TINY and dtype == np.float64
    chunk = n if on_host else min(1 << (n - 1).bit_length(), 1024 if n <= SMALL else 2048)
    devices = jax.local_devices() if n > SMALL else jax.local_devices()[:1]
    num = -(-n // chunk)
    num += -num % len(devices)
    origin = np.mean(X, axis=0) if likelihood == "gaussian" else np.zeros(d)
    columns = np.zeros((num, d, chunk), dtype)
    rows = np.zeros((num, 4, chunk), dtype)
    for i in range(-(-n // chunk)):
        part = slice(i * chunk, (i + 1) * chunk)
        x = X[part] - origin
        m = len(x)
        columns[i, :, :m] = x.T
        rows[i, :3, :m] = weight[part], potential(likelihood, x), norm[part]
        if y is not None:
            rows[i, 3, :m] = y[part]
    if on_host:
        return Data(columns, rows, columns, rows, origin, likelihood, n, num_classes, None)
    mesh = Mesh(np.array(devices), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    with jax.enable_x64(True):
        return Data(
            jax.device_put(columns, sharding),
            jax.device_put(rows, sharding),
            columns,
            rows,
            origin,
            likelihood,
            n,
            num_classes,
            mesh,
        )


def sweep(data: Data, z: Any, mu: Array, active: Array, eta: Array, hyper: PassSettings) -> Sums:
    """One pass: every datum to its cheapest cluster, and the sums over the new clusters.

    :param z: (chunks, C) former slots, where ``before`` is evaluated.
    :param mu: (B, d) means.
    :param active: (B,) which slots are clusters.
    :param eta: (B, S, p) classifiers of ``x - origin`` and a constant 1.
    """
    exact = coefficients(data.likelihood, mu - data.origin)
    dtype = data.X.dtype
    a = np.where(active, hyper.clustering_weight * exact[0], FAR).astype(dtype)
    b = np.where(active[:, None], hyper.clustering_weight * exact[1], 0).astype(dtype)
    eta = np.where(active[:, None, None], eta, 0).astype(dtype)
    if data.mesh is None:
        z, each, sums = _chunk(data.X[0], data.rows[0], z[0], a, b, eta, hyper, data.likelihood, data.num_classes)
        named = dict(zip(Sums._fields[1:8], sums, strict=True))
        return Sums(z=z[None], saving=each[:1], index=each[1:2].astype(int), dearest=each[2:], **named)
    static = {"likelihood": data.likelihood, "num_classes": data.num_classes, "mesh": data.mesh}
    with jax.enable_x64(True):
        z, each, flat = _sweep(data.X, data.rows, z, a, b, eta, np.array(hyper, dtype), **static)
    each, flat = np.asarray(each), np.asarray(flat)
    shapes = sum_shapes(*mu.shape, *eta.shape[1:])
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    sums = [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
    if dtype != np.float64:  # all data of a cluster share the rounding of its coefficients
        weight, total, spread = sums[:3]
        t = np.column_stack([total, weight[:, None] - total]) if data.likelihood == "bernoulli" else total
        s = hyper.clustering_weight
        rest = weight * (s * exact[0] - a) - np.sum((s * exact[1] - b) * t, axis=1)
        sums[2] = spread + np.where(active, rest, 0)
    named = dict(zip(Sums._fields[1:8], sums, strict=True))
    return Sums(z=z, saving=each[:, 0], index=each[:, 1].astype(int), dearest=each[:, 2], **named)


def sum_shapes(B: int, d: int, S: int, p: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of the sums over data in :class:`Sums`, in order."""
    return (B,), (B, d), (B,), (B,), (B,), (B, S, p), (B, S, p * (p + 1) // 2)


@functools.partial(jax.jit, static_argnames=("likelihood", "num_classes", "mesh"))
def _sweep(X, rows, z, a, b, eta, hyper, *, likelihood, num_classes, mesh):
    """Slots (chunks, C), saving, its index and the dearest of every chunk (chunks, 3), and all sums in one array."""
    sharded, whole = PartitionSpec("data"), PartitionSpec()

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(sharded, sharded, sharded, whole, whole, whole, whole),
        out_specs=(sharded, sharded, whole),
        check_vma=False,
    )
    def run(X, rows, z, a, b, eta, hyper):
        def step(total, columns):
            x, table, former = columns
            z, each, parts = _chunk(x, table, former, a, b, eta, PassSettings(*hyper), likelihood, num_classes)
            flat = jnp.concatenate([part.ravel() for part in parts])
            return total + flat.astype(total.dtype), (z, each)

        size = sum(np.prod(shape) for shape in sum_shapes(a.shape[0], X.shape[1], *eta.shape[1:]))
        total, (z, each) = lax.scan(step, jnp.zeros(int(size), jnp.float64), (X, rows, z))
        return z, each, lax.psum(total, "data")

    return run(X, rows, z, a, b, eta, hyper)


def _chunk(x, rows, former, a, b, eta, hyper, likelihood, num_classes):
    """The work on one chunk: per datum or chunk what is kept as it is, and what is summed.

    Sums over the data of each cluster are one product with the indicators of the clusters.
    """
    xp = x.__array_namespace__()
    s, c, ell, nu, floor = hyper
    w, phi, norm, y = rows
    B, S, p = eta.shape
    slots = xp.arange(B, dtype=former.dtype)[:, None]

    def own(values, z):  # (B, C) at every datum's slot, by comparison: gathers are slow here
        return xp.sum(xp.where(slots == z, values, 0), axis=0)

    Q = a[:, None] - b @ statistics(likelihood, x, axis=0)  # s D less s phi, the same in every cluster
    if num_classes:
        u = xp.concatenate([x, xp.ones_like(x[:1])])
        scores = [eta[:, k] @ u for k in range(S)]
        Q += 2 * c * _loss(scores, y, ell)
    least = xp.min(Q, axis=0)
    z = xp.min(xp.where(least == Q, slots, B), axis=0)  # the first of equals
    z = xp.minimum(z, B - 1).astype(former.dtype)
    hot = (slots == z).astype(x.dtype)
    paid = w * xp.maximum(least + s * phi, 0)
    if num_classes:
        kappa = num_classes / (num_classes - 1) if num_classes > 2 else 1.0
        past = _loss([own(score, former) for score in scores], y, ell)
        before = _join((slots == former).astype(x.dtype) @ xp.stack(_split(w * past)).T)
        scores = [own(score, z) for score in scores]
        loss = _loss(scores, y, ell)
        spread = w * xp.maximum(least - 2 * c * loss + s * phi, 0)
        sums = hot @ xp.concatenate([xp.stack([w, *_split(spread), *_split(w * loss)]), w * x]).T
        slope, curvature = (np.empty((B, 0)),) * 2 if xp is np else _moments(u, w, y, hot, scores, ell, floor)
        tau = xp.minimum(2 * c * w, ell / xp.maximum(kappa * nu**2 * norm, 1e-30))
        alone = 2 * c * w * xp.maximum(ell - kappa * nu**2 * tau * norm, 0) + kappa * nu**2 * tau**2 * norm / 2
    else:
        before = xp.zeros(B, x.dtype)
        sums = hot @ xp.concatenate([xp.stack([w, *_split(paid), *_split(xp.zeros_like(w))]), w * x]).T
        slope, curvature = xp.zeros(eta.shape, x.dtype), xp.zeros((B, S, p * (p + 1) // 2), x.dtype)
        alone = 0.0
    saving = paid - alone
    best = xp.max(saving)
    index = xp.min(xp.where(saving == best, xp.arange(len(w)), len(w)))
    weight, spread, losses, total = sums[:, 0], _join(sums[:, 1:3]), _join(sums[:, 3:5]), sums[:, 5:]
    each = xp.stack([best, index, xp.max(paid)]).astype(x.dtype)
    return z, each, (weight, total, spread, before, losses, slope, curvature)


def _moments(u, w, y, hot, scores, ell, floor):
    """The sums of every cluster (B, S, ...) that an EM step of its classifier needs."""
    i, j = triangle(len(u))

    def of(hinge):
        zeta, sign = hinge
        size = jnp.maximum(jnp.abs(zeta), floor)
        v = u * (w / size)
        return hot @ jnp.concatenate([w * sign * (1 + zeta / size) * u, v[i] * u[j]]).T

    zeta, sign = _hinges(jnp.stack(scores), y, ell)
    each = jnp.swapaxes(lax.map(of, (zeta, sign)), 0, 1) if len(scores) > 1 else of((zeta[0], sign[0]))[:, None]
    return each[..., : len(u)], each[..., len(u) :]


def _split(values):
    """Values (C,) as multiples of a power of two, of which thousands add up exactly in single precision, and rests."""
    xp = values.__array_namespace__()
    if values.dtype == xp.float64:
        return values, xp.zeros_like(values)
    unit = xp.exp2(xp.ceil(xp.log2(xp.maximum(xp.max(values), 1e-30))) - 12)
    coarse = xp.round(values / unit) * unit
    return coarse, values - coarse


def _join(sums):
    """Sums (B, 2) of what :func:`_split` gives, as sums (B,) in double precision."""
    xp = sums.__array_namespace__()
    return xp.sum(sums.astype(xp.float64), axis=1)


def _loss(scores, y, ell):
    """Losses at scores (..., C), one array or one per class."""
    xp = y.__array_namespace__()
    if len(scores) == 1:
        return xp.maximum(ell - y * scores[0], 0)
    top, chosen = xp.asarray(-xp.inf), xp.asarray(0.0)
    for k, score in enumerate(scores):
        top = xp.maximum(top, score + xp.where(y == k, 0, ell))
        chosen = xp.where(y == k, score, chosen)
    return top - chosen


def _hinges(scores, y, ell):
    """``zeta`` and ``sgn`` (S, C) of the loss as a hinge in each score, the others fixed, at scores (S, C)."""
    if len(scores) == 1:
        return ell - y * scores, y[None]
    classes = jnp.arange(len(scores), dtype=y.dtype)[:, None]
    margin = jnp.where(classes == y, 0, ell)
    pieces = scores + margin
    top = jnp.max(pieces, axis=0)
    leader = jnp.min(jnp.where(pieces == top, classes, len(scores)), axis=0) == classes
    second = jnp.max(jnp.where(leader, -jnp.inf, pieces), axis=0)
    rival = jnp.where(leader, second, top)  # the largest piece of the other classes
    sign = jnp.where(classes == y, 1, -1).astype(scores.dtype)
    return sign * (rival - margin - scores), sign
