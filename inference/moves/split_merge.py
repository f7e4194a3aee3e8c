r"""Split-merge moves: clusters become one less or one more, where single labels would never get there."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from ..engine.target import Sites
from .labels import Assignment, Law, Mixture, MixtureOf, Part, counts_of, index, law_at, num_slots_of, once

NUM_LAUNCH = 8
"""Steps of EM that find how a cluster would be split."""
MAX_LOG_ODDS = 12.0
"""No datum is surer of its side than this, so that the way back is never closed."""
DOUBT = 10.0, 0.1
"""By how much the first stage's guess may be wrong: in any case, and for each unit of it."""
FEW_ROWS = 1024
"""Unions up to so many data, or a fifth of all, are looked at without the others."""
OTHER_CLASS = 1e4
"""By how much a datum of another class is liker, where hosts are to be of another and there is one."""


class Anchors(NamedTuple):
    """The data that a proposal is about.

    - **guest** - the datum that moves.
    - **hosts** - (2,) data of two clusters that it may be with; the second may be missing.
    - **both** - whether there is a second host.
    - **by_class** - whether data side with the anchor of their class.
    """

    guest: jax.Array
    hosts: jax.Array
    both: jax.Array
    by_class: jax.Array

    def present(self, company: ArrayLike) -> jax.Array:
        """(3,) which clusters there are: those of the hosts, and the guest's own if that is its company."""
        return jnp.stack([jnp.array(True), self.both, jnp.asarray(company) == 2])

    def sides(self, n: int, company: ArrayLike) -> jax.Array:
        """(3, n) the anchors, each in its cluster."""
        data, clusters = jnp.arange(n), jnp.arange(3)[:, None]
        hosts = (data == jnp.append(self.hosts, n)[:, None]) & self.present(company)[:, None]
        return hosts | ((data == self.guest) & (clusters == company))


class SplitMerge(Assignment):
    r"""Propose that a datum, the *guest*, founds a cluster, leaves one or changes it, and that other data go with it.

    With one *host*, of the guest's cluster or of another, this splits the guest's cluster or merges the two.
    With two hosts, data of two clusters, the guest is with one of them or in a third cluster, and goes to one of
    the other two places: a cluster is shared out between two others, or made of some of their data, or some data of
    the one go to the other. Merging, where not all of a cluster's data belong with the same others, would lead through
    states that are much worse.

    Guest and hosts are anchors: the guest of any cluster, the hosts tending to be like it, so that clusters far apart
    are not offered to each other in vain. EM for two or three components, started at the anchors and run on the data of
    their clusters, gives every other datum the chance of each side: a function of the anchors, of where the guest is,
    and of the *union* of the clusters, which the move does not change. Where a component can leave a datum out when it
    says how likely it is, it does: otherwise the few data of a small cluster in many dimensions would hold each
    other there. A proposal draws sides from these chances, with the guest where it is to be; it is accepted by
    Metropolis and Hastings' rule, with every datum's side drawn independently, hence in parallel. Every other proposal
    takes hosts of another class than the guest and lets data side with the anchor of their class: a margin can be worth
    a cluster of its own where the inputs alone would not.

    Sites with a known evidence (the means) are integrated out of the decision and drawn from their posterior after.
    The others (the classifiers) are drawn from laws fitted to each cluster; their part of the ratio is decided in
    a second stage (delayed acceptance), so that the fits are made only for proposals the first stage lets through.
    The first stage has a guess of that part, and rejects only what the guess would have to be far off to save; any
    guess is exact. Sites that clusters pay for together (the weights of a margin between them) are drawn there too.

    :param mixture: what the program is to the move.
    :param sites: the labels first, then the sites of all parts.
    :param num_proposals: how many proposals a step makes.
    :param one_host: how often the guest has one host, and not two. Two help where clusters lie close to each other.

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
        one_host: float = 0.5,
        covered_by: str,
        name: str | None = None,
    ) -> None:
        super().__init__(mixture, sites, covered_by=covered_by, name=name)
        self.num_proposals = num_proposals
        self.one_host = one_host

    def step(self, keys, z, log_joint, target, tuning):
        if len(z[self.sites[0]]) < 2:
            return z, log_joint
        mixture = self._mixture(z, target)
        if missing := [part.sites for part in mixture.parts if part.cluster is None]:
            raise ValueError(f"split-merge needs the `cluster` law of every part, found none for the sites {missing}")
        keys = random.split(keys[0], (self.num_proposals, 5))
        return lax.fori_loop(0, self.num_proposals, lambda p, z: self._propose(keys[p], z, mixture), dict(z)), None

    def _propose(self, keys: jax.Array, z: Sites, mixture: Mixture) -> Sites:
        key_anchors, key_turn, key_sides, key_accept, key_sites = keys
        labels, num_slots = z[self.sites[0]], num_slots_of(z, mixture)
        counts = counts_of(labels, num_slots)
        anchors, log_weights = _draw_anchors(key_anchors, mixture, labels, counts, self.one_host)

        # Where the guest is and would be: with either host, or in a cluster of its own, the third. No slot: num_slots.
        mine, hosts = labels[anchors.guest], jnp.where(anchors.present(0)[:2], labels[anchors.hosts], num_slots)
        u_empty, u_turn = random.uniform(key_turn, (2,))
        is_at, empty = mine == hosts, jnp.where(jnp.all(counts > 0), num_slots, _nth(counts == 0, u_empty))
        now_at = jnp.where(jnp.any(is_at), jnp.argmax(is_at), 2)
        then_at = jnp.where(anchors.both, (now_at + 1 + (u_turn < 0.5)) % 3, 2 - now_at)
        slots = jnp.append(hosts, jnp.where(now_at == 2, mine, empty))
        now = labels == slots[:, None]
        union = jnp.any(now, 0)

        def first(mixture: Mixture, rows: tuple, anchors: Anchors) -> tuple[jax.Array, jax.Array, jax.Array]:
            """Everybody's side, the log ratio as far as the first stage goes, and a guess of the rest."""
            union, now, uniforms = rows
            companies = jnp.stack([now_at, then_at])
            log_chances = lax.map(lambda company: _log_chances(mixture, union, anchors, company), companies)
            sides = jax.vmap(index, (1, 0))(jnp.exp(log_chances[1]), uniforms)
            sides = jnp.select([*anchors.sides(len(union), then_at)], [*jnp.arange(3)], sides)
            then = union & (sides == jnp.arange(3)[:, None])

            def of(groups: jax.Array, log_chances: jax.Array) -> jax.Array:
                log_sides = _log_sides(log_chances, groups, anchors)
                return jnp.stack([_log_partition(mixture, groups) - log_sides, _guess(mixture, groups)])

            ratio, guess = of(then, log_chances[1]) - of(now.T, log_chances[0])
            return sides, ratio, guess

        uniforms = random.uniform(key_sides, labels.shape, jnp.result_type(mixture.concentration))
        sides, log_first, guess = _on_union(first, mixture, (union, now.T, uniforms), anchors)
        then = union & (sides == jnp.arange(3)[:, None])
        num = jnp.sum(counts > 0)
        num_then = num + (then_at == 2) - (now_at == 2)
        log_first += _log_anchors(anchors, log_weights, num_then, then, then_at)
        log_first -= _log_anchors(anchors, log_weights, num, now, now_at)
        shared_guess, doubt = (0.0, 0.0) if mixture.shared is None else mixture.shared.guess(union, num, num_then)
        screen = _screen(log_first, guess + shared_guess, doubt)
        heights = jnp.log(random.uniform(key_accept, (2,), uniforms.dtype))

        def second() -> Sites:
            sites, log_second = _components(key_sites, z, mixture, slots, now, then)
            if mixture.shared is not None:
                key_shared = random.fold_in(key_sites, len(mixture.parts))
                shared, log_shared = mixture.shared.draw(key_shared, z, slots, now, then)
                sites, log_second = {**sites, **shared}, log_second + log_shared
            moved = {self.sites[0]: jnp.where(union, slots[sides], labels), **sites}
            accepted = heights[1] < log_first + log_second - screen
            return {**z, **{site: jnp.where(accepted, value, z[site]) for site, value in moved.items()}}

        is_second = (hosts[0] != hosts[1]) & (anchors.guest != anchors.hosts[1])  # or no datum could be the second host
        possible = (slots[then_at] < num_slots) & (~anchors.both | is_second)
        return once(possible & (heights[0] < screen), second, z)


def _on_union(
    first: Callable, mixture: Mixture, rows: tuple, anchors: Anchors
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``first`` on the rows of the union alone where these are few of many: most clusters are.

    :param rows: per-datum arrays, the first of them the union.
    """
    union, n = rows[0], len(rows[0])
    few = max(FEW_ROWS, n // 5)
    if n < 2 * few:
        return first(mixture, rows, anchors)
    is_small = jnp.sum(union) <= few

    def on_few() -> tuple[jax.Array, jax.Array, jax.Array]:
        where = jnp.nonzero(union, size=few, fill_value=n)[0]
        at = jnp.minimum(where, n - 1)
        data, classes = jax.tree.map(lambda a: a[at], mixture.data), mixture.classes
        few_mixture = mixture._replace(data=data, classes=None if classes is None else (classes[0][at], classes[1]))
        _, now, uniforms = jax.tree.map(lambda a: a[at], rows)
        there = where < n
        guest, *hosts = (jnp.argmax(where == a) for a in (anchors.guest, *anchors.hosts))
        few_anchors = anchors._replace(guest=guest, hosts=jnp.stack(hosts))
        sides, *ratios = first(few_mixture, (there, now & there[:, None], uniforms), few_anchors)
        return jnp.zeros(n, sides.dtype).at[where].set(sides, mode="drop"), *ratios

    zero = jnp.zeros((), rows[-1].dtype)
    found = once(is_small, on_few, (jnp.zeros(n, int), zero, zero))
    return once(~is_small, lambda: first(mixture, rows, anchors), found)


def _log_chances(mixture: Mixture, union: jax.Array, anchors: Anchors, company: jax.Array) -> jax.Array:
    """(3, n) log chances of the sides, by EM on the parts whose evidence is known, with the guest in this company."""
    held, present = anchors.sides(len(union), company), anchors.present(company)
    dtype = jnp.result_type(mixture.concentration)
    bias: jax.Array | float = 0.0
    if mixture.classes is not None:
        y, loss = mixture.classes
        bias = anchors.by_class * 2 * loss * (y == y[jnp.append(anchors.hosts, anchors.guest)][:, None])

    def log_chances(sides: jax.Array) -> jax.Array:
        others = jnp.maximum(jnp.sum(sides, 1, keepdims=True) - sides, jnp.finfo(dtype).tiny)
        logits = jnp.where(present[:, None], jnp.log(others) + _log_predictive(mixture, sides) + bias, -jnp.inf)
        logits = jnp.maximum(logits - jnp.max(logits, 0), -MAX_LOG_ODDS)
        return jax.nn.log_softmax(jnp.where(present[:, None], logits, -jnp.inf), axis=0)

    def em(_, sides: jax.Array) -> jax.Array:
        return jnp.where(jnp.any(held, 0), held, union * jnp.exp(log_chances(sides))).astype(dtype)

    certain = jnp.broadcast_to(jnp.where(present, 0.0, -jnp.inf)[:, None], held.shape).astype(dtype)
    launch = lambda: log_chances(lax.fori_loop(0, NUM_LAUNCH, em, held.astype(dtype)))  # noqa: E731
    return once(jnp.sum(present) > 1, launch, certain)


def _log_predictive(mixture: Mixture, weights: jax.Array) -> jax.Array:
    """(g, n) log densities of the data given weighted clusters (g, n), of the parts whose evidence is known."""
    total = jnp.zeros(weights.shape, weights.dtype)
    for part in mixture.parts:
        if part.predictive is not None:
            total = total + part.predictive(weights, mixture.data)
        elif part.evidence is not None:
            total = total + part.log_density(jax.vmap(functools.partial(_means, part, mixture))(weights), mixture.data)
    return total


def _means(part: Part, mixture: Mixture, weights: jax.Array) -> Sites:
    """The means of the sites' laws given a weighted cluster."""
    return {site: law.mean for site, law in cast(Callable, part.cluster)(weights, mixture.data).items()}


def _log_partition(mixture: Mixture, groups: jax.Array) -> jax.Array:
    """Log density of clusters (3, n), of which some may be empty: partition and evidences.

    The slots cancel: a cluster that is founded takes one of the empty ones with equal chance.
    """
    weights = groups.astype(jnp.result_type(mixture.concentration))
    terms = jnp.log(mixture.concentration) + gammaln(jnp.sum(weights, 1))
    for part in mixture.parts:
        if part.evidence is not None:
            terms = terms + jax.vmap(part.evidence, (0, None))(weights, mixture.data)
    return jnp.sum(jnp.where(jnp.any(groups, 1), terms, 0.0))


def _log_sides(log_chances: jax.Array, groups: jax.Array, anchors: Anchors) -> jax.Array:
    """Log chance that the data other than the anchors take these sides."""
    n = groups.shape[1]
    free = ~jnp.any(anchors.sides(n, 2), 0)
    return jnp.sum(jnp.where(groups & free, log_chances, 0.0))


def _guess(mixture: Mixture, groups: jax.Array) -> jax.Array:
    """Of the log density of clusters (3, n): the parts whose evidence is not known."""
    weights, total = groups.astype(jnp.result_type(mixture.concentration)), jnp.zeros(())
    for part in mixture.parts:
        if part.guess is not None:
            guesses = jax.vmap(part.guess, (0, None))(weights, mixture.data)
            total = total + jnp.sum(jnp.where(jnp.any(groups, 1), guesses, 0.0))
    return total


def _screen(log_first: jax.Array, guess: jax.Array, doubt: ArrayLike) -> jax.Array:
    """The first stage's log ratio: beyond doubt alone, so that a poor guess does not decide."""
    total, doubt = log_first + guess, DOUBT[0] + DOUBT[1] * jnp.abs(guess) + doubt
    return total - jnp.clip(total, -doubt, doubt)


def _components(
    key: jax.Array, z: Sites, mixture: Mixture, slots: jax.Array, now: jax.Array, then: jax.Array
) -> tuple[Sites, jax.Array]:
    """The sites of three slots after the move, and the log ratio of the parts that are not integrated.

    :param slots: (3,) the slots.
    :param now: (3, n) their data; none, if the slot is empty.
    :param then: (3, n) their data after the move.
    """
    total, sites = jnp.zeros(()), cast(Sites, {})
    groups = jnp.concatenate([now, then])
    new, taken = jnp.arange(6) >= 3, jnp.any(groups, 1)
    for p, part in enumerate(mixture.parts):
        keys = random.split(random.fold_in(key, p), (6, 2))
        held = {site: z[site][jnp.tile(slots, 2)] for site in part.sites}

        def consider(row: tuple, part: Part = part) -> tuple[Sites, jax.Array]:
            (key, key_prior), group, new, taken, held = row
            weights = group.astype(jnp.result_type(mixture.concentration))

            def fitted() -> tuple[Sites, jax.Array]:
                laws = cast(Callable, part.cluster)(weights, mixture.data)  # `step` saw to it that there is one
                drawn = _draw(key, laws)
                values = {s: jnp.where(new, drawn[s], held[s]) for s in held}
                return values, jnp.zeros(()) if part.evidence is not None else _log_ratio(
                    part, mixture, group, laws, values
                )

            fresh = _draw(key_prior, part.prior)
            return once(taken, fitted, ({s: jnp.where(new, fresh[s], held[s]) for s in held}, jnp.zeros(())))

        # One after the other: fits side by side would each take as many steps as the slowest.
        values, ratios = lax.map(consider, (keys, groups, new, taken, held))
        total = total + jnp.sum(jnp.where(new, ratios, -ratios))
        sites |= {site: z[site].at[slots].set(values[site][3:]) for site in part.sites}
    return sites, total


def _log_ratio(
    part: Part, mixture: Mixture, group: jax.Array, laws: dict[str, Distribution], value: Sites
) -> jax.Array:
    """Log of likelihood times prior over the proposal's density, at one cluster's sites."""
    log_density = part.log_density({site: v[None] for site, v in value.items()}, mixture.data)[0]
    total = jnp.sum(jnp.where(group, log_density, 0.0))
    for site in part.sites:
        total = total + law_at(part.prior[site], value).log_prob(value[site]) - laws[site].log_prob(value[site])
    return total


def _draw(key: jax.Array, laws: Mapping[str, Law]) -> Sites:
    drawn: Sites = {}
    for s, (site, law) in enumerate(laws.items()):
        drawn[site] = law_at(law, drawn).sample(random.fold_in(key, s))
    return drawn


def _draw_anchors(
    key: jax.Array, mixture: Mixture, labels: jax.Array, counts: jax.Array, one_host: float
) -> tuple[Anchors, jax.Array]:
    """A guest of any cluster, then its hosts, the likelier the more they are like it; and these log weights (n,).

    Clusters are chosen with equal chance whatever their size, so that small ones are not forgotten. The choice of the
    first host knows nothing of the clusters, so that its chance is the same before and after the move; the second is
    of another cluster than the first. How much likeness counts is random: neighbours, data of one cluster, data of
    clusters side by side, any data.
    """
    key_guest, key_hosts = random.split(key)
    u, n = random.uniform(key_guest, (5,)), len(labels)
    guest = _nth(labels == _nth(counts > 0, u[0]), u[1])
    alone = (jnp.arange(n) == guest).astype(jnp.result_type(mixture.concentration))
    likeness = _log_predictive(mixture, alone[None])[0]
    for part in mixture.parts:
        if part.evidence is not None and part.log_marginal is not None:
            likeness = likeness - part.log_marginal(mixture.data)  # some data are likely in any company
    likeness, by_class = u[2] ** 2 * likeness, u[3] < 0.5
    if mixture.classes is not None:
        y = mixture.classes[0]
        likeness = jnp.where(by_class & (y == y[guest]), likeness - OTHER_CLASS, likeness)
    likeness = jnp.where(jnp.arange(n) == guest, -jnp.inf, likeness)
    gumbels = random.gumbel(key_hosts, (2, n), likeness.dtype)
    host = jnp.argmax(likeness + gumbels[0])
    second = jnp.argmax(jnp.where(labels == labels[host], -jnp.inf, likeness) + gumbels[1])
    return Anchors(guest, jnp.stack([host, second]), u[4] >= one_host, by_class), likeness


def _log_anchors(
    anchors: Anchors, log_weights: jax.Array, num: jax.Array, groups: jax.Array, company: jax.Array
) -> jax.Array:
    """Log chance of the anchors among ``num`` clusters, up to what the move does not change.

    :param groups: (3, n) the clusters of the hosts and the guest's own.
    """
    others = jax.nn.logsumexp(jnp.where(groups[0], -jnp.inf, log_weights))
    return -jnp.log(num) - jnp.log(jnp.sum(groups[company])) - jnp.where(anchors.both, others, 0.0)


def _nth(mask: jax.Array, u: jax.Array) -> jax.Array:
    """The index of a true entry, each with equal chance, from one uniform."""
    return jnp.argmax(jnp.cumsum(mask) > jnp.floor(u * jnp.sum(mask)))
