r"""Split-merge moves: two clusters become one, or one becomes two, where single labels would never get there."""

from collections.abc import Callable, Mapping
from typing import cast

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .mixtures import Assignment, Law, Mixture, MixtureOf, Part, counts_of, given, num_slots_of, once
from .target import Sites

NUM_LAUNCH = 8
"""Steps of EM that find how a cluster would be split."""
MAX_LOG_ODDS = 12.0
"""No datum is surer of its side than this, so that the way back is never closed."""
DOUBT = 10.0, 0.1
"""By how much the first stage's guess may be wrong: in any case, and for each unit of it."""
MERGE = 0.875
"""How often two clusters are offered a merge rather than new sides."""
FEW_ROWS = 1024
"""Unions up to so many data, or an eighth of all, are looked at without the others."""
OTHER_CLASS = 1e4
"""By how much a datum of another class is liker, where the anchors are to be of two classes and there are two."""


class SplitMerge(Assignment):
    r"""Propose to split the cluster of two random data, to merge their two clusters, or to share these out anew.

    The two data are anchors: one of any cluster, and one that tends to be like it, so that clusters far apart are not
    offered to each other in vain. EM for two components, started at them and run on the data of their cluster or
    clusters, gives every other datum the odds of either side: a function of the anchors and the *union* alone, the
    same whether the union is now one cluster or two. Every other proposal takes anchors of two classes and lets data
    side with the anchor of their class: a margin can be worth a cluster of its own where the inputs alone would not.
    A split draws sides from the odds; two clusters merge, the way back, or now and then draw sides anew. All is
    accepted by Metropolis and Hastings' rule, with every datum's side drawn independently, hence in parallel.

    Sites with a known evidence (the means) are integrated out of the decision and drawn from their posterior after.
    The others (the classifiers) are drawn from laws fitted to each cluster; their part of the ratio is decided in
    a second stage (delayed acceptance), so that the fits are made only for proposals the first stage lets through.
    The first stage has a guess of that part, and rejects only what the guess would have to be far off to save; any
    guess is exact. Sites that clusters pay for together (the weights of a margin between them) are drawn there too.

    :param mixture: what the program is to the move.
    :param sites: the labels first, then the sites of all parts.
    :param num_proposals: how many proposals a step makes.

    **References**

    1. *A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture model*, Jain and Neal,
       JCGS 13 (2004).
    2. *Markov chain Monte Carlo using an approximation*, Christen and Fox, JCGS 14 (2005).
    """

    def __init__(
        self,
        mixture: MixtureOf,
        sites: tuple[str, ...],
        num_proposals: int = 1,
        *,
        covered_by: str,
        name: str | None = None,
    ) -> None:
        super().__init__(mixture, sites, covered_by=covered_by, name=name)
        self.num_proposals = num_proposals

    def step(self, keys, z, log_joint, target, tuning):
        if len(z[self.sites[0]]) < 2:
            return z, log_joint
        mixture = self._mixture(z, target)
        if missing := [part.sites for part in mixture.parts if part.cluster is None]:
            raise ValueError(f"split-merge needs the `cluster` law of every part, found none for the sites {missing}")
        keys = random.split(keys[0], (self.num_proposals, 6))
        return lax.fori_loop(0, self.num_proposals, lambda p, z: self._propose(keys[p], z, mixture), dict(z)), None

    def _propose(self, keys: jax.Array, z: Sites, mixture: Mixture) -> Sites:
        key_anchors, key_kind, key_sides, key_empty, key_accept, key_sites = keys
        labels = z[self.sites[0]]
        counts = counts_of(labels, num_slots_of(z, mixture))
        by_class, fuse = random.uniform(key_kind, (2,)) < jnp.array([0.5, MERGE])
        i, j = _draw_anchors(key_anchors, mixture, labels, counts, by_class)
        split = labels[i] == labels[j]
        merge = ~split & fuse
        empty = jnp.argmax(jnp.where(counts == 0, random.uniform(key_empty, counts.shape), -1.0))
        slots = jnp.stack([labels[i], jnp.where(split, empty, labels[j])])
        now = labels == slots[:, None]
        union = jnp.any(now, 0)

        merged = jnp.sum(counts > 0) - ~split  # clusters when the union is one
        shared_guess, doubt = (0.0, 0.0) if mixture.shared is None else mixture.shared.guess(jnp.sum(union), merged)

        def first(mixture: Mixture, rows: tuple, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            """Who sides with ``i``, the log ratio as far as the first stage goes, and a guess of the rest."""
            union, now, uniforms = rows
            log_odds = _launch_odds(mixture, union, i, j, by_class)
            ours = (uniforms < jax.nn.sigmoid(log_odds)).at[i].set(True).at[j].set(False) | merge
            then = jnp.stack([union & ours, union & ~ours])

            def of_two(a: jax.Array, b: jax.Array) -> jax.Array:
                """Of two clusters to their union."""
                ratio = _log_partition(mixture, a, b) + _log_anchors(merged, jnp.sum(a), jnp.sum(union))
                ratio = ratio + jnp.log(MERGE) - _log_sides(log_odds, a, b, i, j)
                return jnp.stack([ratio, _guess(mixture, a, b) + shared_guess])

            log_first, guess = jnp.where(merge, 0.0, of_two(*then)) - jnp.where(split, 0.0, of_two(*now.T))
            return ours, log_first, guess

        uniforms = random.uniform(key_sides, labels.shape, jnp.result_type(mixture.concentration))
        ours, log_first, guess = _on_union(first, mixture, (union, now.T, uniforms), i, j)
        then = union & jnp.stack([ours, ~ours])
        screen = _screen(log_first, guess, doubt)
        heights = jnp.log(random.uniform(key_accept, (2,), uniforms.dtype))

        def second() -> Sites:
            sites, log_second = _components(key_sites, z, mixture, slots, now, then)
            if mixture.shared is not None:
                key_shared = random.fold_in(key_sites, len(mixture.parts))
                shared, log_shared = mixture.shared.draw(key_shared, z, slots, now, then)
                sites, log_second = {**sites, **shared}, log_second + log_shared
            label = jnp.where(ours, slots[0], slots[1])
            moved = {self.sites[0]: jnp.where(union, label, labels), **sites}
            accepted = heights[1] < log_first + log_second - screen
            return {**z, **{site: jnp.where(accepted, value, z[site]) for site, value in moved.items()}}

        possible = jnp.where(split, jnp.any(counts == 0), jnp.any(then != now))
        return once(possible & (heights[0] < screen), second, z)


def _on_union(
    first: Callable, mixture: Mixture, rows: tuple, i: jax.Array, j: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``first`` on the rows of the union alone where these are few of many: most clusters are.

    :param rows: per-datum arrays, the first of them the union.
    """
    union, n = rows[0], len(rows[0])
    few = max(FEW_ROWS, n // 8)
    if n < 2 * few:
        return first(mixture, rows, i, j)
    is_small = jnp.sum(union) <= few

    def on_few() -> tuple[jax.Array, jax.Array, jax.Array]:
        where = jnp.nonzero(union, size=few, fill_value=n)[0]
        at = jnp.minimum(where, n - 1)
        data, classes = jax.tree.map(lambda a: a[at], mixture.data), mixture.classes
        few_mixture = mixture._replace(data=data, classes=None if classes is None else (classes[0][at], classes[1]))
        _, *others = jax.tree.map(lambda a: a[at], rows)
        there = where < n
        held = (there, others[0] & there[:, None], *others[1:])
        ours, *ratios = first(few_mixture, held, jnp.argmax(where == i), jnp.argmax(where == j))
        return jnp.zeros(n, bool).at[where].set(ours, mode="drop"), *ratios

    zero = jnp.zeros((), rows[-1].dtype)
    found = once(is_small, on_few, (jnp.zeros(n, bool), zero, zero))
    return once(~is_small, lambda: first(mixture, rows, i, j), found)


def _launch_odds(mixture: Mixture, union: jax.Array, i: jax.Array, j: jax.Array, by_class: jax.Array) -> jax.Array:
    """(n,) log odds of the side of ``i`` against that of ``j``, by EM on the parts whose evidence is known."""
    anchors = jnp.arange(len(union)) == jnp.stack([i, j])[:, None]
    bias: jax.Array | float = 0.0
    if mixture.classes is not None:
        y, loss = mixture.classes
        bias = by_class * 2 * loss * ((y == y[i]) * 1.0 - (y == y[j]))

    def log_density(weights: jax.Array) -> jax.Array:
        return jnp.log(jnp.sum(weights)) + _log_fitted(mixture, weights)

    def odds(sides: jax.Array) -> jax.Array:
        ours, theirs = jax.vmap(log_density)(sides)
        return jnp.clip(ours - theirs + bias, -MAX_LOG_ODDS, MAX_LOG_ODDS)

    def em(_, sides: jax.Array) -> jax.Array:
        share = jax.nn.sigmoid(jnp.outer(jnp.array([1.0, -1.0]), odds(sides)))
        return jnp.where(jnp.any(anchors, 0), anchors, union * share).astype(sides.dtype)

    start = anchors.astype(jnp.result_type(mixture.concentration))
    return odds(lax.fori_loop(0, NUM_LAUNCH, em, start))


def _log_fitted(mixture: Mixture, weights: jax.Array) -> jax.Array:
    """(n,) log densities under a weighted cluster's posterior means, of the parts whose evidence is known."""
    total = jnp.zeros(len(weights), weights.dtype)
    for part in mixture.parts:
        if part.evidence is not None and part.cluster is not None:
            means = {site: law.mean[None] for site, law in part.cluster(weights, mixture.data).items()}
            total = total + part.log_density(means, mixture.data)[0]
    return total


def _log_partition(mixture: Mixture, a: jax.Array, b: jax.Array) -> jax.Array:
    """Log ratio of the split into ``a`` and ``b`` to their union: partition and evidences.

    The slots cancel: a split takes one of the empty ones with equal chance.
    """
    groups = jnp.stack([a, b, a | b]).astype(jnp.result_type(mixture.concentration))
    terms = gammaln(jnp.sum(groups, 1))
    for part in mixture.parts:
        if part.evidence is not None:
            terms = terms + jax.vmap(part.evidence, (0, None))(groups, mixture.data)
    return jnp.log(mixture.concentration) + terms[0] + terms[1] - terms[2]


def _log_sides(log_odds: jax.Array, a: jax.Array, b: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
    """Log chance that the data other than the anchors take these sides."""
    free = (a | b).at[i].set(False).at[j].set(False)
    return jnp.sum(jnp.where(free, jax.nn.log_sigmoid(jnp.where(a, log_odds, -log_odds)), 0.0))


def _guess(mixture: Mixture, a: jax.Array, b: jax.Array) -> jax.Array:
    """Of the log ratio of two clusters to their union: the parts whose evidence is not known."""
    groups = jnp.stack([a, b, a | b]).astype(jnp.result_type(mixture.concentration))
    guesses = [
        jax.vmap(part.guess, (0, None))(groups, mixture.data) for part in mixture.parts if part.guess is not None
    ]
    return sum((values[0] + values[1] - values[2] for values in guesses), start=jnp.zeros(()))


def _screen(log_first: jax.Array, guess: jax.Array, doubt: ArrayLike) -> jax.Array:
    """The first stage's log ratio: beyond doubt alone, so that a poor guess does not decide."""
    total, doubt = log_first + guess, DOUBT[0] + DOUBT[1] * jnp.abs(guess) + doubt
    return total - jnp.clip(total, -doubt, doubt)


def _components(
    key: jax.Array, z: Sites, mixture: Mixture, slots: jax.Array, now: jax.Array, then: jax.Array
) -> tuple[Sites, jax.Array]:
    """The sites of two slots after the move, and the log ratio of the parts that are not integrated.

    :param slots: (2,) the slots.
    :param now: (2, n) their data; none, if the slot is empty.
    :param then: (2, n) their data after the move.
    """
    total, sites = jnp.zeros(()), cast(Sites, {})
    groups = jnp.concatenate([now, then]).astype(jnp.result_type(mixture.concentration))
    new, taken = jnp.arange(4) >= 2, jnp.any(groups > 0, 1)
    for p, part in enumerate(mixture.parts):
        keys = random.split(random.fold_in(key, p), (4, 2))
        held = {site: z[site][jnp.tile(slots, 2)] for site in part.sites}

        def consider(row: tuple, part: Part = part) -> tuple[Sites, jax.Array]:
            (key, key_prior), group, new, taken, held = row
            laws = cast(Callable, part.cluster)(group, mixture.data)  # `step` saw to it that there is one
            drawn, fresh = _draw(key, laws), _draw(key_prior, part.prior)
            values = {s: jnp.where(new, jnp.where(taken, drawn[s], fresh[s]), held[s]) for s in held}
            ratio = jnp.zeros(()) if part.evidence is not None else _log_ratio(part, mixture, group, laws, values)
            return values, jnp.where(taken, ratio, 0.0)

        # One after the other: fits side by side would each take as many steps as the slowest.
        values, ratios = lax.map(consider, (keys, groups, new, taken, held))
        total = total + ratios[2] + ratios[3] - ratios[0] - ratios[1]
        sites |= {site: z[site].at[slots].set(values[site][2:]) for site in part.sites}
    return sites, total


def _log_ratio(
    part: Part, mixture: Mixture, group: jax.Array, laws: dict[str, Distribution], value: Sites
) -> jax.Array:
    """Log of likelihood times prior over the proposal's density, at one cluster's sites."""
    log_density = part.log_density({site: v[None] for site, v in value.items()}, mixture.data)[0]
    total = jnp.sum(jnp.where(group > 0, log_density, 0.0))
    for site in part.sites:
        total = total + given(part.prior[site], value).log_prob(value[site]) - laws[site].log_prob(value[site])
    return total


def _draw(key: jax.Array, laws: Mapping[str, Law]) -> Sites:
    drawn: Sites = {}
    for s, (site, law) in enumerate(laws.items()):
        drawn[site] = given(law, drawn).sample(random.fold_in(key, s))
    return drawn


def _draw_anchors(
    key: jax.Array, mixture: Mixture, labels: jax.Array, counts: jax.Array, by_class: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Two data: one of any cluster, then another, the likelier the more it is like the first.

    Clusters are chosen with equal chance whatever their size, so that small ones are not forgotten. The choice of the
    second datum knows nothing of the clusters, so that its chance is the same before and after the move. How much
    likeness counts is random: neighbours, data of one cluster, data of clusters side by side, any data.
    """
    key_first, key_second = random.split(key)
    u, n = random.uniform(key_first, (3,)), len(labels)
    i = _nth(labels == _nth(counts > 0, u[0]), u[1])
    likeness = _log_fitted(mixture, (jnp.arange(n) == i).astype(jnp.result_type(mixture.concentration)))
    for part in mixture.parts:
        if part.evidence is not None and part.log_marginal is not None:
            likeness = likeness - part.log_marginal(mixture.data)  # some data are likely in any company
    likeness = u[2] ** 2 * likeness
    if mixture.classes is not None:
        y = mixture.classes[0]
        likeness = jnp.where(by_class & (y == y[i]), likeness - OTHER_CLASS, likeness)
    likeness = jnp.where(jnp.arange(n) == i, -jnp.inf, likeness)
    return i, jnp.argmax(likeness + random.gumbel(key_second, (n,), likeness.dtype))


def _log_anchors(num: jax.Array, size_a: jax.Array, size: jax.Array) -> jax.Array:
    """Log chance of the anchors in the split state over that in the merged one, which has ``num`` clusters."""
    return jnp.log(num) + jnp.log(size) - jnp.log(num + 1) - jnp.log(size_a)


def _nth(mask: jax.Array, u: jax.Array) -> jax.Array:
    """The index of a true entry, each with equal chance, from one uniform."""
    return jnp.argmax(jnp.cumsum(mask) > jnp.floor(u * jnp.sum(mask)))
