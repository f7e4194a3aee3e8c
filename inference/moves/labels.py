r"""Assignment moves of Dirichlet process mixtures: which component a datum belongs to.

A program's labels ``z`` (n,) point into a buffer of slots, whose component sites have one row per slot; a slot
without data has parameters from the prior. What the moves need to know of a model is a :class:`Mixture`: the data,
the concentration and the *parts* of a component, such as a mean that generates inputs and a classifier that pays a
loss. Two moves redraw all labels, by different means and to the same end:

- :class:`Sweep` visits the data one after the other. Parts whose integral against the prior is known are integrated
  out of the empty slots; the others' empty slots serve as auxiliary components (Neal's algorithm 8, with reuse).
- :class:`SliceAssignment` draws the mixture's weights, and given them all labels at once.

**References**

1. *Markov chain sampling methods for Dirichlet process mixture models*, Neal, JCGS 9 (2000).
2. *Slice sampling mixture models*, Kalli, Griffin and Walker, Statistics and Computing 21 (2011).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.distributions import Distribution

from ..engine.move import Move, difference
from ..engine.target import Sites, Target

Data = Any
"""A tuple of arrays with one row per datum."""
Law: TypeAlias = Distribution | Callable[[Sites], Distribution]
"""Of a site, or of a site given the rows of the sites before it."""

SWEEP_BLOCK = 128
"""Data whose log densities are computed together in a sequential sweep; a cluster born or emptied ends the block."""
SURE = 50.0
"""A label whose log odds are beyond this is certain to single precision's uniforms, and to double's."""
SLICE_SLOTS = 8
"""Slots whose log densities are computed together there; those above no slice are left out."""
SLICE_BLOCK = 2048
"""Columns of the matrix of log densities that are handled together: what fits the cache."""


class Part(NamedTuple):
    """What some sites of a component say of the data.

    - **sites** - their names.
    - **log_density** - ``(rows of the sites (K, ...), data of B) -> (K, B)``.
    - **prior** - site -> its law in one slot; for a site that depends on those before it, a function of their rows.
    - **log_marginal** - ``data -> (B,)``: log densities with the sites integrated out; None where unknown.
    - **posterior** - ``data -> site -> law`` given each datum alone, with batch shape (B,), likewise; needed with
      the above.
    - **cluster** - ``(weights (n,), data) -> site -> law``: the sites' posterior given a whole cluster or, where
      there is no ``evidence``, any law close to it. For :class:`~regbayes.inference.SplitMerge`, as is the next.
    - **evidence** - ``(weights (n,), data) -> ()``: log density of a whole cluster with the sites integrated out, up to
      a sum over its data; None where unknown.
    - **predictive** - ``(weights (g, n), data) -> (g, n)``: log density of each datum given all others of a weighted
      cluster, its own weight left out; None for that at the mean of the cluster's law.
    - **guess** - ``(weights (n,), data) -> ()``: a quick guess of the evidence where it is unknown.
    """

    sites: tuple[str, ...]
    log_density: Callable[[Sites, Data], jax.Array]
    prior: dict[str, Law]
    log_marginal: Callable[[Data], jax.Array] | None = None
    posterior: Callable[[Data], dict[str, Law]] | None = None
    cluster: Callable[[jax.Array, Data], dict[str, Distribution]] | None = None
    evidence: Callable[[jax.Array, Data], jax.Array] | None = None
    predictive: Callable[[jax.Array, Data], jax.Array] | None = None
    guess: Callable[[jax.Array, Data], jax.Array] | None = None

    def posterior_of(self, data: Data) -> dict[str, Law]:
        """:attr:`posterior`, of a part that has one."""
        assert self.posterior is not None
        return self.posterior(data)

    @property
    def integrated(self) -> bool:
        """Whether the sites of empty slots are integrated out."""
        return self.log_marginal is not None


class Shared(NamedTuple):
    """Sites of the components that pay for a loss together, so that none of them says how likely its data are alone.

    For :class:`~regbayes.inference.SplitMerge`, which replaces them in the three slots that it changes.

    - **draw** - ``(key, z, slots (3,), now (3, n), then (3, n)) -> (sites, log ratio)``: the sites with those of the
      slots drawn anew for the data they are to have, and the log of target over proposal there, over the same as it is.
    - **guess** - ``(union (n,), num, num_then) -> (guess, doubt)``: a quick guess of that log ratio where clusters of
      these data change and make ``num_then`` of ``num`` clusters, and by how much it may be wrong.
    """

    draw: Callable[..., tuple[Sites, jax.Array]]
    guess: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Mixture(NamedTuple):
    """What the assignment moves need to know of a model.

    - **data** - per-datum arrays, (n, ...) each.
    - **concentration** - of the Chinese restaurant process.
    - **parts** - of a component.
    - **classes** - for :class:`~regbayes.inference.SplitMerge`, where components pay for labels: the labels (n,), and
      about how much log density a datum loses in a cluster of another class.
    - **num_slots** - of the buffer, where no part has a site in the state to tell.
    - **shared** - what components pay for together.
    """

    data: Data
    concentration: jax.Array
    parts: tuple[Part, ...]
    classes: tuple[jax.Array, jax.Array] | None = None
    num_slots: int | None = None
    shared: Shared | None = None

    def log_density(self, z: Sites, data: Data) -> jax.Array:
        """(K, B) log densities of the data in each slot."""
        return sum((part.log_density(_pick(z, part), data) for part in self.parts), start=jnp.zeros(()))

    def log_fresh(self, z: Sites, data: Data) -> jax.Array:
        """(K, B) or (1, B) log densities of the data in each slot if it is empty."""
        return sum(
            (
                part.log_density(_pick(z, part), data) if part.log_marginal is None else part.log_marginal(data)[None]
                for part in self.parts
            ),
            start=jnp.zeros(()),
        )


MixtureOf = Callable[..., Mixture]
"""``(z, *args, **kwargs) -> Mixture``, called like a conditional; it reads the sites that no component owns."""


def counts_of(labels: jax.Array, num_slots: int) -> jax.Array:
    """(M,) how many data each slot holds."""
    return jnp.sum(labels[:, None] == jnp.arange(num_slots), axis=0)


def cluster_sums(
    labels: jax.Array, values: Data, num_slots: int, features: Callable[..., jax.Array] | None = None
) -> jax.Array:
    """(M, f) sums of features over each slot's data, block by block: a one-hot matrix product, no scatter.

    :param labels: (n,) slots.
    :param values: per-datum arrays; with ``features``, what it is called with, a block of rows at a time.
    :param num_slots: ``M``.
    :param features: ``(*values of a block) -> (B, f)``; by default the values themselves.
    """
    features, values = (features, values) if features is not None else (lambda a: a, (values,))
    n = len(labels)
    size = min(SLICE_BLOCK, n)

    def add(b: jax.Array, total: jax.Array) -> jax.Array:
        start = jnp.minimum(b * size, n - size)
        own, *rows = _rows((labels, *values), start, size)
        counted = jnp.arange(size) + start >= b * size  # the last block reaches back
        hot = (own == jnp.arange(num_slots)[:, None]) & counted
        table = features(*rows)
        return total + hot.astype(table.dtype) @ table

    shape = jax.eval_shape(features, *_rows(values, 0, size))
    return lax.fori_loop(0, -(-n // size), add, jnp.zeros((num_slots, shape.shape[1]), shape.dtype))


def once(condition: jax.Array, update: Callable[[], Any], value: Any) -> Any:
    """``update()`` if the condition holds, else ``value``: a loop, so that chains side by side skip it together."""
    return lax.while_loop(lambda carry: carry[0], lambda carry: (jnp.array(False), update()), (condition, value))[1]


def num_occupied(z: Sites) -> jax.Array:
    """How many slots hold data."""
    return jnp.sum(counts_of(z["z"], z["mu"].shape[0]) > 0)


def _pick(z: Sites, part: Part) -> Sites:
    return {site: z[site] for site in part.sites}


def _rows(data: Data, start: Any, size: int) -> Data:
    """``size`` rows of the data from ``start``."""
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, size), data)


def index(weights: jax.Array, u: jax.Array) -> jax.Array:
    """A draw from the categorical law with these weights (M,), from one uniform in [0, 1)."""
    total = jnp.cumsum(weights)
    return jnp.argmax((total > u * total[-1]) & (weights > 0))


class Assignment(Move):
    """What both assignment moves share.

    :param mixture: what the program is to them.
    :param site: the labels.
    """

    branches = True

    def __init__(self, mixture: MixtureOf, sites: tuple[str, ...], *, covered_by: str, name: str | None = None) -> None:
        super().__init__(sites, name=name, covered_by=covered_by)
        self.mixture = mixture

    def _mixture(self, z: Sites, target: Target) -> Mixture:
        return target.call(self.mixture, {**target.given, **z})


class Sweep(Assignment):
    r"""Redraw the labels one after the other, each from its conditional given all others.

    .. math:: q(z_i = k) \propto n_{-i,k}\,p(x_i, y_i | \theta_k), \qquad
              q(z_i = \mathrm{new}) \propto \alpha \int p(x_i, y_i | \theta)\,p_0(\theta)\,d\theta

    (M2DPM's equations 15 and 16). A new cluster takes any empty slot with equal chance; its integrated sites are
    drawn from their posterior given the datum, the others are the slot's own. At the end the integrated sites of
    empty slots are drawn afresh from the prior.

    :param mixture: what the program is to the move.
    :param sites: the labels first, then the integrated sites of the components.
    """

    num_keys = 3

    def step(self, keys, z, log_joint, target, tuning):
        key_labels, key_births, key_empty = keys
        mixture = self._mixture(z, target)
        labels, parts = z[self.sites[0]], [part for part in mixture.parts if part.integrated]
        n, num_slots = len(labels), num_slots_of(z, mixture)
        size = min(SWEEP_BLOCK, n)
        uniforms = random.uniform(key_labels, (n,))

        def block(carry: tuple) -> tuple:
            """Data from ``i`` to the end of a block, or to the first birth or death of a cluster among them."""
            i, counts, labels, sites, full = carry
            start = jnp.minimum(i, n - size)
            data = _rows(mixture.data, start, size)
            old, fresh = mixture.log_density({**z, **sites}, data).T, mixture.log_fresh({**z, **sites}, data).T
            u, own = _rows((uniforms, labels), start, size)
            # No logarithms inside the loop. The scale leaves out a datum's own slot, which may be empty without it.
            rivals = (counts > 0) & (own[:, None] != jnp.arange(num_slots))
            top = jnp.maximum(jnp.max(jnp.where(rivals, old, -jnp.inf), 1), jnp.max(fresh, 1))[:, None]
            old, fresh = jnp.exp(jnp.minimum(old - top, SURE)), jnp.exp(fresh - top)

            def seat(inner: tuple) -> tuple:
                j, counts, own, *_ = inner
                left = own[j]
                counts = counts.at[left].add(-1)
                new = fresh[j] * (mixture.concentration / jnp.sum(counts == 0))
                slot = index(jnp.where(counts > 0, counts * old[j], new), u[j])
                born = counts[slot] == 0
                return j + 1, counts.at[slot].add(1), own.at[j].set(slot), born, born | (counts[left] == 0)

            waiting = (i - start, counts, own, jnp.array(False), jnp.array(False))
            going = lambda inner: (inner[0] < size) & ~(inner[4] & bool(parts))  # noqa: E731
            j, counts, own, born, _ = lax.while_loop(going, seat, waiting)
            datum, slot = _rows(mixture.data, start + j - 1, 1), own[j - 1]
            laws = {site: law for part in parts for site, law in part.posterior_of(datum).items()}
            drawn: Sites = {}
            for s, (site, law) in enumerate(laws.items()):
                drawn[site] = law_at(law, drawn).sample(random.fold_in(random.fold_in(key_births, s), start + j))
                sites = {**sites, site: sites[site].at[slot].set(jnp.where(born, drawn[site][0], sites[site][slot]))}
            labels = lax.dynamic_update_slice_in_dim(labels, own, start, 0)
            return start + j, counts, labels, sites, full | jnp.all(counts > 0)

        sites = {site: z[site] for part in parts for site in part.sites}
        counts = counts_of(labels, num_slots)
        begin = (jnp.zeros((), int), counts, labels, sites, jnp.all(counts > 0))
        _, counts, labels, sites, full = lax.while_loop(lambda carry: carry[0] < n, block, begin)
        z = {**z, self.sites[0]: labels, **sites}
        return _refresh_empty(key_empty, z, counts, parts), None, full & (num_slots < n)

    def _logits(self, counts: jax.Array, old: jax.Array, fresh: jax.Array, concentration: jax.Array) -> jax.Array:
        """(M,) of one label given the counts of all others."""
        empty = jnp.log(concentration) - jnp.log(jnp.sum(counts == 0))
        return jnp.where(counts > 0, old + jnp.log(counts), fresh + empty)

    def discrepancies(self, key, z, target, tuning):
        """One label and the integrated sites of the slots that are empty without it, at several data."""
        mixture = self._mixture(z, target)
        n = len(z[self.sites[0]])
        some = random.randint(key, (min(n, 8),), 0, n)
        return lax.map(
            lambda row: self._identity(row[0], row[1], z, target, mixture), (random.split(key, len(some)), some)
        )

    def _identity(self, key, i, z, target, mixture) -> tuple[jax.Array, jax.Array]:
        labels, num_slots = z[self.sites[0]], num_slots_of(z, mixture)
        parts = [part for part in mixture.parts if part.integrated]
        datum = _rows(mixture.data, i, 1)
        counts = counts_of(labels, num_slots).at[labels[i]].add(-1)
        old, fresh = mixture.log_density(z, datum)[:, 0], mixture.log_fresh(z, datum)[:, 0]
        logits = jax.nn.log_softmax(self._logits(counts, old, fresh, mixture.concentration))
        laws = {site: (part.prior[site], part.posterior_of(datum)[site]) for part in parts for site in part.sites}

        def log_prob(z: Sites) -> jax.Array:
            slot = z[self.sites[0]][i]
            empty, total = counts == 0, logits[slot]
            for site, (prior, posterior) in laws.items():
                taken = jnp.arange(num_slots) == slot
                log_laws = law_at(posterior, z).log_prob(z[site]), law_at(prior, z).log_prob(z[site])
                log_law = jnp.where(taken, *log_laws)
                total = total + jnp.sum(jnp.where(empty, log_law, 0.0))
            return total

        key_slot, key_empty, key_birth = random.split(key, 3)
        slot = random.categorical(key_slot, logits)
        other = _refresh_empty(key_empty, {**z, self.sites[0]: labels.at[i].set(slot)}, counts, parts)
        drawn: Sites = {}
        for s, (site, (_, posterior)) in enumerate(laws.items()):
            drawn[site] = law_at(posterior, drawn).sample(random.fold_in(key_birth, s))
            value = other[site].at[slot].set(jnp.where(counts[slot] == 0, drawn[site][0], other[site][slot]))
            other = {**other, site: value}
        return difference(log_prob, z, other), difference(target.log_joint, z, other)


class SliceAssignment(Assignment):
    r"""Redraw all labels at once, given weights that do not outlive the move.

    Given the partition the mixture's weights are ``Dirichlet(n_1..n_K, alpha)``, the last of them shared out among
    the empty slots by breaking sticks, in random order. A uniform ``u_i`` below the weight of its label leaves each
    datum finitely many slots, :math:`\pi_k > u_i`, among which it chooses by its density alone. Where the sticks run
    out of slots before they fall below every ``u_i`` the buffer was too small, and the move says so: with ``K`` of
    ``M`` slots in use that happens about ``alpha K (alpha/(1 + alpha))^(M - K)`` times a sweep.

    :param mixture: what the program is to the move.
    :param sites: the labels.
    """

    num_keys = 4

    def step(self, keys, z, log_joint, target, tuning):
        key_weights, key_order, key_slice, key_labels = keys
        mixture = self._mixture(z, target)
        labels, num_slots = z[self.sites[0]], num_slots_of(z, mixture)
        n, counts = len(labels), counts_of(labels, num_slots)
        weights, rest = _weights(key_weights, key_order, counts, mixture.concentration)
        # In (0, 1]: a slice of height 0 would need endless sticks, and single precision draws zeros.
        u = (1 - random.uniform(key_slice, (n,), weights.dtype)) * weights[labels]
        uniforms = random.uniform(key_labels, (n,), weights.dtype)
        size, group = min(SLICE_BLOCK, n), min(SLICE_SLOTS, num_slots)
        # The slots above some slice first: of the others no density is needed.
        alive = weights >= jnp.min(u)
        order, num_groups = jnp.argsort(~alive, stable=True), -(-jnp.sum(alive) // group)
        sites = {site: z[site][order] for part in mixture.parts for site in part.sites}
        ordered = weights[order]

        def block(b: jax.Array, labels: jax.Array) -> jax.Array:
            start = jnp.minimum(b * size, n - size)
            data, u_b, uniforms_b = _rows((mixture.data, u, uniforms), start, size)

            def fill(g: jax.Array, logits: jax.Array) -> jax.Array:
                first = jnp.minimum(g * group, num_slots - group)  # the last group reaches back
                rows, weights = _rows((sites, ordered), first, group)
                found = self._logits(mixture.log_density(rows, data), weights, u_b)
                return lax.dynamic_update_slice_in_dim(logits, found.astype(logits.dtype), first, 0)

            logits = jnp.full((num_slots, size), -jnp.inf, weights.dtype)
            logits = lax.fori_loop(0, num_groups, fill, logits)
            drawn = order[_indices(logits, uniforms_b)]
            return lax.dynamic_update_slice_in_dim(labels, drawn.astype(labels.dtype), start, 0)

        labels = lax.fori_loop(0, -(-n // size), block, labels)
        short = (rest > 0) & (rest >= jnp.min(u))
        full = jnp.all(counts_of(labels, num_slots) > 0) & (num_slots < n)
        return {**z, self.sites[0]: labels}, None, short | full

    def _logits(self, log_density: jax.Array, weights: jax.Array, u: jax.Array) -> jax.Array:
        """(M, B) of the labels of B data: the densities of the slots above their slices."""
        return jnp.where(weights[:, None] >= u, log_density, -jnp.inf)

    def discrepancies(self, key, z, target, tuning):
        """One label with the weights and slices held, between slots that stay occupied.

        For others the law of the weights has no density in closed form; the enumeration test reaches them.
        """
        mixture = self._mixture(z, target)
        labels, num_slots = z[self.sites[0]], num_slots_of(z, mixture)
        n, counts = len(labels), counts_of(labels, num_slots)
        key_weights, key_order, key_slice, key_pick = random.split(key, 4)
        weights, rest = _weights(key_weights, key_order, counts, mixture.concentration)

        def sides(step: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, j, v = step
            k, other = labels[i], labels[j]
            u = v * jnp.minimum(weights[k], weights[other])  # a slice that leaves both
            logits = self._logits(mixture.log_density(z, _rows(mixture.data, i, 1)), weights, u)[:, 0]
            moved = labels.at[i].set(other)

            def log_density(labels: jax.Array) -> jax.Array:
                counts = counts_of(labels, num_slots)
                log_joint = target.log_joint({**z, self.sites[0]: labels})
                log_weights = _log_dirichlet(weights, counts, rest, mixture.concentration)
                return log_joint + log_weights - jnp.log(weights[labels[i]])

            legal = counts[k] > 1  # or the slot would empty
            claimed, actual = logits[k] - logits[other], difference(log_density, labels, moved)
            return jnp.where(legal, claimed, 0.0), jnp.where(legal, actual, 0.0)

        pairs = random.randint(key_pick, (2, min(n, 8)), 0, n)
        return lax.map(sides, (*pairs, random.uniform(key_slice, (min(n, 8),))))


def num_slots_of(z: Sites, mixture: Mixture) -> int:
    """``M``, the slots of the buffer."""
    return z[mixture.parts[0].sites[0]].shape[0] if mixture.num_slots is None else mixture.num_slots


def _refresh_empty(key: jax.Array, z: Sites, counts: jax.Array, parts: list[Part]) -> Sites:
    """The sites of the parts drawn from the prior in the empty slots."""
    laws = {site: part.prior[site] for part in parts for site in part.sites}
    drawn: Sites = {}
    for s, (site, law) in enumerate(laws.items()):
        shape = counts.shape if isinstance(law, Distribution) else ()  # the rows given have it already
        drawn[site] = law_at(law, drawn).sample(random.fold_in(key, s), shape)
        empty = jnp.reshape(counts == 0, (-1,) + (1,) * (drawn[site].ndim - 1))
        z = {**z, site: jnp.where(empty, drawn[site], z[site])}
    return z


def law_at(law: Law, before: Sites) -> Distribution:
    """The law given the sites before it."""
    return law if isinstance(law, Distribution) else law(before)


def _weights(
    key: jax.Array, key_order: jax.Array, counts: jax.Array, concentration: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(M,) weights given the counts: Dirichlet over the occupied, broken sticks over the empty; and what is left."""
    dtype = jnp.result_type(concentration)
    gammas = random.gamma(key, jnp.append(jnp.where(counts > 0, counts, 1.0), concentration).astype(dtype))
    gammas = jnp.where(jnp.append(counts > 0, True), gammas, 0.0)
    shares = gammas / jnp.sum(gammas)
    v, order = random.uniform(key_order, (2, len(counts)), dtype)
    # The empty slots in random order; each stick takes 1 - V^(1/alpha) ~ Beta(1, alpha) of what is left.
    rank = jnp.argsort(jnp.where(counts > 0, 2.0, order))
    log_keep = jnp.where(counts[rank] > 0, 0.0, jnp.log(v) / concentration)
    left = jnp.exp(jnp.cumsum(log_keep))
    taken = shares[-1] * (jnp.append(1.0, left[:-1]) * -jnp.expm1(log_keep))
    sticks = jnp.zeros(len(counts), dtype).at[rank].set(taken)
    return jnp.where(counts > 0, shares[:-1], sticks), shares[-1] * left[-1]


def _log_dirichlet(weights: jax.Array, counts: jax.Array, rest: jax.Array, concentration: jax.Array) -> jax.Array:
    """Log density of the occupied slots' weights, and of the mass of all others, given the counts."""
    occupied = counts > 0
    others = rest + jnp.sum(jnp.where(occupied, 0.0, weights))
    n = jnp.where(occupied, counts, 1)
    terms = (n - 1) * jnp.log(weights) - jax.scipy.special.gammaln(n.astype(weights.dtype))
    total = jnp.sum(jnp.where(occupied, terms, 0.0)) + (concentration - 1) * jnp.log(others)
    gammaln = jax.scipy.special.gammaln
    return total + gammaln(jnp.sum(counts) + concentration) - gammaln(concentration)


def _indices(logits: jax.Array, uniforms: jax.Array) -> jax.Array:
    """(B,) draws from the columns of (M, B) logits: one uniform a column, and a running sum over the rows."""
    weights = jnp.exp(logits - jnp.max(logits, axis=0))
    bar = uniforms * jnp.sum(weights, axis=0)

    def row(k: jax.Array, carry: tuple) -> tuple:
        total, index, last = carry
        total = total + weights[k]
        return total, index + (total <= bar), jnp.where(weights[k] > 0, k, last)

    zeros = jnp.zeros(bar.shape, int)
    # A cumulative sum over the rows takes several times as long.
    _, index, last = lax.fori_loop(0, len(weights), row, (jnp.zeros_like(bar), zeros, zeros), unroll=8)
    return jnp.minimum(index, last)
