r"""Moves for Gaussian clusters whose means and covariances are integrated out, with or without a margin between them.

:class:`CollapsedSweep` redraws the labels one after the other. With a margin the loss is

    L_j = max(0, R_j - s_{j z_j}),     R_j = max over occupied k != z_j of (ell + s_jk),     s_jk = eta_k . x_j,

so that a cluster that is born is one more rival to *every* datum, and one that dies one less, which the paper's
sampler leaves out. A rival ``k`` costs datum ``j`` another ``(ell + s_jk - C_j)_+`` where
``C_j = max(R_j, s_{j z_j})``, its *ceiling*; the sum of these over the data is the *pressure* of the empty slot ``k``.
Both are kept up to date: a label that moves between occupied clusters changes one ceiling, in O(M); only births and
deaths cost O(n M).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution

from ...models.laws.normal_wishart import NormalWishart, cluster_statistics, inverse_root, log_normal, log_student
from ..engine.move import Move, difference
from ..engine.target import Sites, Target
from .labels import Mixture, Part, SliceAssignment, counts_of, index, once

COMPONENTS = "components"
"""Name of the components' site where a move draws them, to forget them afterwards."""


class ClusterMargin(NamedTuple):
    """The multi-cluster hinge: inputs (n, p), ``c``, ``ell`` and the scale of the weights' prior."""

    inputs: jax.Array
    cost: jax.Array
    ell: jax.Array
    prior_scale: jax.Array


class Clusters(NamedTuple):
    """What the moves need to know of a program.

    - **data** - (n, d), about their middle, so that single precision keeps the most digits.
    - **prior** - of the components, about the same.
    - **concentration** - of the Chinese restaurant process.
    - **num_slots** - of the buffer.
    - **laws** - priors of hyper-parameters, by name.
    - **margin** - where clusters pay for it; the weights are then the site ``eta``.
    """

    data: jax.Array
    prior: NormalWishart
    concentration: jax.Array
    num_slots: int
    laws: dict[str, Distribution]
    margin: ClusterMargin | None = None

    @property
    def pays(self) -> ClusterMargin:
        """The margin of a program that has one."""
        assert self.margin is not None
        return self.margin

    def scores(self, z: Sites) -> jax.Array:
        """(n, M), ``eta_k . x_i``; (n, 0) without a margin."""
        return jnp.zeros((len(self.data), 0)) if self.margin is None else self.margin.inputs @ z["eta"].T

    def posterior(self, labels: jax.Array) -> NormalWishart:
        """Of every slot's component."""
        return self.prior.given(*cluster_statistics(self.data, labels, self.num_slots))


ClustersOf = Callable[..., Clusters]
"""``(z, *args, **kwargs) -> Clusters``, called like a conditional."""


def num_clusters(z: Sites) -> jax.Array:
    """How many slots hold data; no site tells how many there are."""
    labels = jnp.sort(z["z"])
    return 1 + jnp.sum(labels[1:] != labels[:-1])


class Seats(NamedTuple):
    """Where the data sit in the middle of a sweep, and what follows from it.

    - **labels** - (n,).
    - **counts** - (M,).
    - **mean**, **inverse**, **log_det** - (M, d), (M, d, d), (M,): ``m_k``, ``S_k^-1`` and ``log |S_k|``.
    - **ceiling**, **pressure** - (n,), (M,): see the module's page; of size 0 without a margin.
    """

    labels: jax.Array
    counts: jax.Array
    mean: jax.Array
    inverse: jax.Array
    log_det: jax.Array
    ceiling: jax.Array
    pressure: jax.Array


class Component(NamedTuple):
    """A component: ``m``, ``S^-1`` and ``log |S|``, such as that of a datum's slot without the datum."""

    mean: jax.Array
    inverse: jax.Array
    log_det: jax.Array


def seats(clusters: Clusters, labels: jax.Array, scores: jax.Array) -> Seats:
    """From the labels alone."""
    counts = counts_of(labels, clusters.num_slots)
    rivals = _rivals(clusters, labels, counts, scores, jnp.ones(len(labels), bool))
    return Seats(labels, counts, *component_of(clusters.posterior(labels)), *rivals)


def _rivals(clusters: Clusters, labels, counts, scores, counted) -> tuple[jax.Array, jax.Array]:
    """Every datum's ceiling (n,) and every slot's pressure (M,) on the data that are ``counted`` (n,)."""
    if clusters.margin is None:
        return jnp.zeros(0), jnp.zeros(0)
    own = labels[:, None] == jnp.arange(clusters.num_slots)
    ell = jnp.where(own, 0.0, clusters.margin.ell)
    ceiling = jnp.max(jnp.where(own | (counts > 0), scores + ell, -jnp.inf), axis=1)
    excess = jnp.maximum(clusters.margin.ell + scores - ceiling[:, None], 0.0)
    return ceiling, counted.astype(scores.dtype) @ excess


def size_table(clusters: Clusters) -> jax.Array:
    """(n + 1,) the part of a predictive's log density that depends on the cluster's size alone, with ``log n_k``."""
    (n, d), prior = clusters.data.shape, clusters.prior
    sizes = jnp.arange(n + 1, dtype=clusters.data.dtype)
    r, nu = prior.strength + sizes, prior.degrees + sizes
    log_constant = gammaln((nu + 1) / 2) - gammaln((nu - d + 1) / 2) - d / 2 * jnp.log(jnp.pi * (r + 1) / r)
    return log_constant + jnp.log(sizes)


def conditional(
    i: jax.Array, clusters: Clusters, seats: Seats, scores: jax.Array, table: jax.Array, fresh: jax.Array
) -> tuple[jax.Array, tuple]:
    r"""(M,) logits of label ``i`` given all others, and what :func:`reseat` can use of the way there.

    .. math:: q(z_i = k) \propto n_{-i,k}\,t(x_i | X_{-i,k})\,e^{-2c L_i}, \qquad
              q(z_i = \mathrm{empty}\ k) \propto \frac{\alpha}{M - K_{-i}}\,t(x_i)\,e^{-2c (L_i + \mathrm{pressure}_k)}

    :param fresh: (n,) log densities of the data in a cluster of their own.
    """
    prior, own = clusters.prior, seats.labels[i]
    x = clusters.data[i]
    difference = x - seats.mean
    image = jnp.sum(seats.inverse * difference[:, :, None], axis=1)  # the last axis would be four times slower
    square = jnp.sum(image * difference, axis=-1)
    counts = seats.counts.at[own].add(-1)

    removed = _without(i, clusters, seats, difference[own], image[own], square[own])
    shift = x - removed.mean
    square_own = shift @ (removed.inverse @ shift)
    mine = jnp.arange(clusters.num_slots) == own
    r = prior.strength + counts
    quadratic = jnp.where(mine, square_own, square) * (r / (r + 1))
    log_det = jnp.where(mine, removed.log_det, seats.log_det)
    old = table[counts] - log_det / 2 - (prior.degrees + counts + 1) / 2 * jnp.log1p(quadratic)
    num_empty = jnp.sum(counts == 0)
    logits = jnp.where(counts > 0, old, fresh[i] + jnp.log(clusters.concentration / num_empty))
    ceiling = jnp.zeros(0)
    if clusters.margin is not None:
        cost, ell = clusters.margin.cost, clusters.margin.ell
        rival = _best_other(jnp.where(counts > 0, ell + scores[i], -jnp.inf))
        ceiling = jnp.maximum(rival, scores[i])
        loss = ceiling - scores[i]
        others = seats.pressure - jnp.maximum(ell + scores[i] - seats.ceiling[i], 0.0)

        def without() -> jax.Array:
            """Alone in its cluster, the datum takes a rival away from all others."""
            rest = jnp.arange(len(fresh)) != i
            return _rivals(clusters, seats.labels, counts, scores, rest)[1]

        others = once(counts[own] == 0, without, others)
        logits = logits - 2 * cost * (loss + jnp.where(counts == 0, others, 0.0))
    return logits, (difference, image, square, removed, ceiling)


def _without(i, clusters: Clusters, seats: Seats, difference, image, square) -> Component:
    """The component of datum ``i``'s slot without it: a rank-one downdate, or from the rows where that would cancel."""
    own = seats.labels[i]
    r = clusters.prior.strength + seats.counts[own]
    weight = r / (r - 1)
    keep, floor = 1 - weight * square, jnp.finfo(square.dtype).eps ** 0.5
    safe = jnp.maximum(keep, floor)
    downdated = Component(
        seats.mean[own] - difference / (r - 1),
        seats.inverse[own] + weight / safe * image[:, None] * image,
        seats.log_det[own] + jnp.log(safe),
    )

    def from_rows() -> Component:
        weights = ((seats.labels == own) & (jnp.arange(len(seats.labels)) != i)).astype(clusters.data.dtype)
        return component_of(clusters.prior.given(*weighted_statistics(weights, clusters.data)))

    return once((keep < floor) & (seats.counts[own] > 1), from_rows, downdated)


def component_of(posterior: NormalWishart) -> Component:
    """``m``, ``S^-1`` and ``log |S|``."""
    root = inverse_root(posterior.scatter)
    log_det = -2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), -1)
    return Component(posterior.mean, root @ jnp.swapaxes(root, -1, -2), log_det)


def reseat(
    i: jax.Array, slot: jax.Array, clusters: Clusters, seats: Seats, scores: jax.Array, start: Component, known: tuple
) -> Seats:
    """Datum ``i`` moved to ``slot``, by rank-one updates of the two components; nothing changes if it stays.

    :param start: the prior's component, which an emptied slot goes back to.
    :param known: what :func:`conditional` computed.
    """
    difference, image, square, removed, ceiling = known
    own, r = seats.labels[i], clusters.prior.strength + seats.counts[slot]
    moved = slot != own
    died, born = seats.counts[own] == 1, seats.counts[slot] == 0
    weight = r / (r + 1)
    added = Component(
        seats.mean[slot] + difference[slot] / (r + 1),
        seats.inverse[slot] - weight / (1 + weight * square[slot]) * image[slot][:, None] * image[slot],
        seats.log_det[slot] + jnp.log1p(weight * square[slot]),
    )

    def replace(values: jax.Array, left: jax.Array, prior: jax.Array, joined: jax.Array) -> jax.Array:
        values = values.at[own].set(jnp.where(moved, jnp.where(died, prior, left), values[own]))
        return values.at[slot].set(jnp.where(moved, joined, values[slot]))

    mean, inverse, log_det = map(replace, (seats.mean, seats.inverse, seats.log_det), removed, start, added)
    labels = seats.labels.at[i].set(slot)
    counts = seats.counts.at[own].add(-1).at[slot].add(1)
    rivals = seats.ceiling, seats.pressure
    if clusters.margin is not None:
        ell, new = clusters.margin.ell, jnp.where(moved, ceiling[slot], seats.ceiling[i])
        old = seats.ceiling[i]
        change = jnp.maximum(ell + scores[i] - new, 0.0) - jnp.maximum(ell + scores[i] - old, 0.0)
        rivals = seats.ceiling.at[i].set(new), seats.pressure + change
        everybody = jnp.ones(len(labels), bool)
        event = moved & (born | died)
        rivals = once(event, lambda: _rivals(clusters, labels, counts, scores, everybody), rivals)
    return Seats(labels, counts, mean, inverse, log_det, *rivals)


def _best_other(values: jax.Array) -> jax.Array:
    """(M,) for each entry the largest of the others."""
    best = jnp.argmax(values)
    second = jnp.max(values.at[best].set(-jnp.inf))
    return jnp.full_like(values, values[best]).at[best].set(second)


class CollapsedSweep(Move):
    """Redraw the labels one after the other, each from :func:`conditional`: components integrated out.

    Empty slots hold weights ``eta`` from the prior: they serve as auxiliary components (Neal's algorithm 8), and an
    emptied cluster's weights stay where they are (reuse). Precisions and determinants follow by rank-one updates,
    and are computed afresh at each sweep.

    :param clusters: what the program is to the move.
    :param site: the labels.
    """

    branches = True

    def __init__(self, clusters: ClustersOf, site: str = "z", *, covered_by: str, name: str | None = None) -> None:
        super().__init__(site, covered_by=covered_by, name=name)
        self.clusters = clusters

    def _start(self, z: Sites, target: Target) -> tuple:
        clusters = target.call(self.clusters, {**target.given, **z})
        scores = clusters.scores(z)
        fresh = log_student(clusters.prior, clusters.data)
        return clusters, scores, size_table(clusters), fresh, seats(clusters, z[self.sites[0]], scores)

    def step(self, keys, z, log_joint, target, tuning):
        clusters, scores, table, fresh, seated = self._start(z, target)
        n, start = len(clusters.data), component_of(clusters.prior)
        uniforms = random.uniform(keys[0], (n,))

        def visit(i: jax.Array, carry: tuple[Seats, jax.Array]) -> tuple[Seats, jax.Array]:
            seated, full = carry
            logits, known = conditional(i, clusters, seated, scores, table, fresh)
            slot = index(jnp.exp(logits - jnp.max(logits)), uniforms[i])
            seated = reseat(i, slot, clusters, seated, scores, start, known)
            return seated, full | jnp.all(seated.counts > 0)

        seated, full = lax.fori_loop(0, n, visit, (seated, jnp.all(seated.counts > 0)))
        return {**z, self.sites[0]: seated.labels}, None, full & (clusters.num_slots < n)

    def discrepancies(self, key, z, target, tuning):
        """One label, at several data, each after another was moved: so the updates are checked too."""
        clusters, scores, table, fresh, seated = self._start(z, target)
        n, start, (site,) = len(clusters.data), component_of(clusters.prior), self.sites

        def sides(seated: Seats, key: jax.Array) -> tuple[Seats, tuple[jax.Array, jax.Array]]:
            key_datum, key_slot = random.split(key)
            i = random.randint(key_datum, (), 0, n)
            logits, known = conditional(i, clusters, seated, scores, table, fresh)
            slot = random.categorical(key_slot, logits / 4)  # tempered: births and deaths are to be among them
            moved = reseat(i, slot, clusters, seated, scores, start, known)
            actual = difference(lambda labels: target.log_joint({**z, site: labels}), seated.labels, moved.labels)
            return moved, (logits[seated.labels[i]] - logits[slot], actual)

        return lax.scan(sides, seated, random.split(key, min(n, 8)))[1]


def weighted_statistics(weights: jax.Array, X: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Size, mean (d,) and scatter (d, d) of weighted data."""
    size = jnp.sum(weights)
    mean = weights @ X / jnp.maximum(size, jnp.finfo(X.dtype).tiny)
    centred = X - mean
    return size, mean, (centred.T * weights) @ centred


def log_student_of_others(prior: NormalWishart, weights: jax.Array, X: jax.Array) -> jax.Array:
    """(g, n) log densities of data (n, d) given weighted clusters (g, n), each without its own weight.

    By rank-one downdates. The clusters are side by side in each product: one large one in place of many small ones.
    """
    (n, d), g = X.shape, len(weights)
    origin = jnp.sum(weights, 0) @ X / jnp.sum(weights)  # clusters that are looked at together lie together
    X, prior = X - origin, prior._replace(mean=prior.mean - origin)
    size = jnp.sum(weights, 1)
    mean = weights @ X / jnp.maximum(size, jnp.finfo(X.dtype).tiny)[:, None]
    squares = ((weights[:, None] * X.T).reshape(g * d, n) @ X).reshape(g, d, d)
    law = prior.given(size, mean, squares - (size[:, None] * mean)[:, :, None] * mean[:, None])
    root = inverse_root(law.scatter)
    white = (jnp.swapaxes(root, 1, 2).reshape(g * d, d) @ X.T).reshape(g, d, n)
    square = jnp.sum((white - jnp.einsum("gd,gde->ge", law.mean, root)[..., None]) ** 2, 1)
    strength, degrees = law.strength[:, None], law.degrees[:, None]
    r, nu = strength - weights, degrees - weights
    ratio = strength / r
    keep = jnp.maximum(1 - weights * ratio * square, jnp.finfo(X.dtype).eps ** 0.5)
    log_det = jnp.log(keep) - 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), 1)[:, None]
    whole = degrees - jnp.arange(2)
    log_gammas = gammaln((whole + 1) / 2) - gammaln((whole - d + 1) / 2)  # exact for weights of 0 and 1
    log_constant = log_gammas[:, :1] + weights * jnp.diff(log_gammas) - d / 2 * jnp.log(jnp.pi * (r + 1) / r)
    return log_constant - log_det / 2 - (nu + 1) / 2 * jnp.log1p(ratio**2 * square / keep * (r / (r + 1)))


def part_of(clusters: Clusters, *, explicit: bool) -> Part:
    """The components to the moves of :mod:`~regbayes.inference.moves.labels`.

    :param explicit: whether they are a site of the move's state, or integrated out there too.
    """

    def cluster(weights: jax.Array, data: tuple) -> dict:
        return {COMPONENTS: clusters.prior.given(*weighted_statistics(weights, data[0])).law()}

    def evidence(weights: jax.Array, data: tuple) -> jax.Array:
        posterior = clusters.prior.given(*weighted_statistics(weights, data[0]))
        return posterior.log_normaliser() - clusters.prior.log_normaliser()

    def predictive(weights: jax.Array, data: tuple) -> jax.Array:
        return log_student_of_others(clusters.prior, weights, data[0])

    return Part(
        (COMPONENTS,) if explicit else (),
        lambda sites, data: log_normal(sites[COMPONENTS], data[0]),
        {COMPONENTS: clusters.prior.law()} if explicit else {},
        lambda data: log_student(clusters.prior, data[0]),
        None,
        cluster,
        evidence,
        predictive,
    )


def mixture_of(clusters: Clusters, *, explicit: bool) -> Mixture:
    """The program to the moves of :mod:`~regbayes.inference.moves.labels`."""
    part = part_of(clusters, explicit=explicit)
    return Mixture((clusters.data,), clusters.concentration, (part,), num_slots=clusters.num_slots)


class CollapsedSlice(SliceAssignment):
    """:class:`SliceAssignment` for integrated components: drawn given the partition, and forgotten afterwards.

    :param clusters: what the program is to the move.
    """

    num_keys = 5

    def __init__(self, clusters: Any, site: str = "z", *, covered_by: str, name: str | None = None) -> None:
        super().__init__(clusters, (site,), covered_by=covered_by, name=name)

    def _mixture(self, z: Sites, target: Target) -> Mixture:
        return mixture_of(target.call(self.mixture, {**target.given, **z}), explicit=True)

    def _law(self, z: Sites, target: Target):
        return target.call(self.mixture, {**target.given, **z}).posterior(z[self.sites[0]]).law()

    def step(self, keys, z, log_joint, target, tuning):
        components = self._law(z, target).sample(keys[-1])
        z, *rest = super().step(keys[:-1], {**z, COMPONENTS: components}, log_joint, target, tuning)
        return {site: value for site, value in z.items() if site != COMPONENTS}, *rest

    def discrepancies(self, key, z, target, tuning):
        """With the components held, whose density given the partition is known."""
        key, key_components = random.split(key)
        components = self._law(z, target).sample(key_components)
        explicit = _ExplicitTarget(target, self._law)
        return super().discrepancies(key, {**z, COMPONENTS: components}, explicit, tuning)


class _ExplicitTarget:
    """A target whose density is that of the sites and of the components given them."""

    def __init__(self, target: Target, law: Callable) -> None:
        self.target, self.law, self.given, self.call = target, law, target.given, target.call

    def log_joint(self, z: Sites) -> jax.Array:
        rest = {site: value for site, value in z.items() if site != COMPONENTS}
        return self.target.log_joint(rest) + jnp.sum(self.law(rest, self.target).log_prob(z[COMPONENTS]))
