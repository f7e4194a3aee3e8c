"""Slices of the sticks of the Indian buffet process: moves over binary features given their loadings.

The features' probabilities are drawn, and by a slice as many of those without data as can matter. Then columns are
drawn one after the other: all rows at once (:class:`StickSlices`), or row after row where a score depends on several
(:class:`StickEntries`). The sticks do not outlive the move.

**References**

1. *Stick-breaking construction for the Indian buffet process*, Teh, Goerur and Ghahramani, AISTATS (2007).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import gammaln

from ..engine.move import difference
from .features import ENTRIES, ROWS, FeatureMove, Features

SHARPNESS = 3.0
"""The slice is at ``Beta(SHARPNESS, 1)`` of the least stick with data: seldom so low that many others lie above it."""


class Sticks(NamedTuple):
    """The features' probabilities, and the slice above which all of them are held.

    - **pi** - (M,) of the slots held; 1/2 elsewhere.
    - **held** - (M,) slots with a feature that has a row, or a probability above the slice.
    - **slice** - its level.
    """

    pi: jax.Array
    held: jax.Array
    slice: jax.Array


def draw_sticks(key: jax.Array, concentration: jax.Array, Z: jax.Array) -> tuple[Sticks, jax.Array]:
    """The sticks given ``Z``, and whether there were too few slots for them.

    A feature that ``m`` of ``n`` rows have: ``pi ~ Beta(m, n - m + 1)``. The slice is the least of these, or 1, times
    ``Beta(SHARPNESS, 1)``. Those without rows are a Poisson process of intensity ``alpha (1 - x)^n/x``; the ones above
    the slice come one after the other, the largest first, thinned from ``alpha/x``, each into a free slot.
    """
    key_pi, key_slice, key_slots, key_sticks = random.split(key, 4)
    n, M = Z.shape
    m = jnp.sum(Z, axis=0)
    tiny = jnp.finfo(Z.dtype).eps
    pi = dist.Beta(jnp.maximum(m, 1), n - m + 1).sample(key_pi).astype(Z.dtype)
    pi = jnp.where(m > 0, jnp.clip(pi, tiny**2, 1 - tiny), 0.5)
    level = least(pi, m > 0) * (1 - random.uniform(key_slice, (), Z.dtype)) ** (1 / SHARPNESS)
    slots, free = jnp.argsort(random.uniform(key_slots, (M,)) + 2 * (m > 0)), jnp.sum(m == 0)

    def below(carry: tuple) -> jax.Array:
        return carry[1] < -jnp.log(level)

    def place(carry: tuple) -> tuple:
        key, t, pi, held, number = carry
        x = jnp.exp(-t)
        key, key_keep, key_gap = random.split(key, 3)
        keep = random.uniform(key_keep, (), Z.dtype) < jnp.exp(n * jnp.log1p(-x))
        slot = slots[jnp.minimum(number, M - 1)]
        room = keep & (number < free)
        pi = pi.at[slot].set(jnp.where(room, x, pi[slot]))
        held = held.at[slot].set(held[slot] | room)
        gap = random.exponential(key_gap, (), Z.dtype) / concentration
        return key, t + gap, pi, held, number + keep

    key_sticks, key_gap = random.split(key_sticks)
    first = random.exponential(key_gap, (), Z.dtype) / concentration
    start = (key_sticks, first, pi, m > 0, jnp.zeros((), int))
    _, _, pi, held, number = lax.while_loop(below, place, start)
    return Sticks(pi, held, level), number > free


def least(pi: jax.Array, active: jax.Array) -> jax.Array:
    """The least probability of a feature that some row has, or 1."""
    return jnp.min(jnp.where(active, pi, 1.0))


def log_sticks(sticks: Sticks, concentration: jax.Array, Z: jax.Array) -> jax.Array:
    """Log density of :func:`draw_sticks` given ``Z``, up to a constant in ``Z`` (the process's total intensity)."""
    n, M = Z.shape
    m, pi = jnp.sum(Z, axis=0), sticks.pi
    active, free = m > 0, sticks.held & (m == 0)
    log_active = jnp.where(active, dist.Beta(jnp.maximum(m, 1), n - m + 1).log_prob(pi), 0.0)
    log_free = jnp.where(free, jnp.log(concentration) - jnp.log(pi) + n * jnp.log1p(-pi), 0.0)
    room, number = M - jnp.sum(active), jnp.sum(free)
    log_slots = gammaln(room - number + 1.0) - gammaln(room + 1.0)
    return jnp.sum(log_active + log_free) - SHARPNESS * jnp.log(least(pi, active)) + log_slots


class Column(NamedTuple):
    """The law of a column given the sticks, loadings and other columns.

    Its entries are independent, but the slice's density is larger by ``exp(log_ratio)`` where there is a one.
    """

    log_odds: jax.Array  # (n,)
    log_ratio: jax.Array

    def log_weight(self, column: jax.Array) -> jax.Array:
        """Log probability up to a constant."""
        return jnp.sum(column * self.log_odds) + self.log_ratio * jnp.any(column > 0)

    def sample(self, u: jax.Array) -> jax.Array:
        """All zeros or not; the first one if not; the others after it: from uniforms (n + 2,)."""
        zeros = jnp.cumsum(jax.nn.log_sigmoid(-self.log_odds))
        log_some = jnp.log(-jnp.expm1(zeros[-1]))
        some = u[0] < jax.nn.sigmoid(self.log_ratio + log_some - zeros[-1])
        first = jnp.sum(-jnp.expm1(zeros) <= -jnp.expm1(zeros[-1]) * u[1])
        rows = jnp.arange(len(zeros))
        first = jnp.minimum(first, len(zeros) - 1)
        return some & ((rows == first) | ((rows > first) & (u[2:] < jax.nn.sigmoid(self.log_odds))))


class Without(NamedTuple):
    """The features, and what of the data a column is to explain.

    - **k** - the column's number.
    - **Z** - (n, M), the column included.
    - **w** - (D,) its loadings.
    - **residual** - (n, D) without it.
    """

    k: jax.Array
    Z: jax.Array
    w: jax.Array
    residual: jax.Array


def column_law(program: Features, sticks: Sticks, column: Without, scores: jax.Array) -> Column:
    """A column given the scores of the rows without it."""
    (k, Z, w, residual), rows = column, jnp.arange(len(column.Z))
    pi, on = sticks.pi[k], scores + jax.vmap(lambda i: program.margin.change(i)[k])(rows)
    log_factors = [jax.vmap(program.margin.log_factor)(rows, value) for value in (on, scores)]
    gain = (residual @ w - w @ w / 2) / program.noise_scale**2
    log_odds = jnp.log(pi) - jnp.log1p(-pi) + gain + log_factors[0] - log_factors[1]
    return Column(log_odds, log_slice_ratio(sticks, k, Z))


class StickSlices(FeatureMove):
    """Slice sampling of the sticks: columns one after the other, all rows at once, given the loadings.

    The sticks are drawn, serve for one pass over the columns that have data or lie above the slice, and are
    forgotten. More sticks above the slice than free slots are reported. For programs whose margin treats rows one by
    one: ``scores`` has a row for each. For others see :class:`StickEntries`.
    """

    num_keys, owned = 2, ("Z",)

    def start(self, key, z, tuning):
        """No features: they are born row by row, which finds shared ones sooner than a draw of the prior."""
        return {"Z": jnp.zeros_like(z["Z"])}

    def step(self, keys, z, log_joint, target, tuning):
        program = self._program(z, target)
        Z, W = z["Z"].astype(program.rows.dtype), z["W"]
        n, M = Z.shape
        sticks, full = draw_sticks(keys[0], program.concentration, Z)
        order = jnp.argsort(~sticks.held, stable=True)
        uniforms = random.uniform(keys[1], (M, n + 2), Z.dtype)

        def visit(j: jax.Array, carry: tuple) -> tuple:
            Z, residual, scores = carry
            k = order[j]
            residual = residual + Z[:, k, None] * W[:, k]
            new, scores = self._column(program, sticks, Without(k, Z, W[:, k], residual), scores, uniforms[k])
            return Z.at[:, k].set(new), residual - new[:, None] * W[:, k], scores

        start = (Z, program.rows - Z @ W.T, self._scores(program, Z))
        Z, *_ = lax.fori_loop(0, jnp.sum(sticks.held), visit, start)
        return {**z, "Z": Z.astype(z["Z"].dtype)}, None, full

    def _column(
        self, program: Features, sticks: Sticks, column: Without, scores: jax.Array, u: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """A column drawn anew, and the scores with it."""
        old = column.Z[:, column.k]
        change = jax.vmap(lambda i: program.margin.change(i)[column.k])(jnp.arange(len(old)))
        scores = scores - _by_row(old, change)
        new = column_law(program, sticks, column, scores).sample(u).astype(old.dtype)
        return new, scores + _by_row(new, change)

    def _scores(self, program: Features, Z: jax.Array) -> jax.Array:
        scores = program.margin.scores(Z)
        return jax.vmap(lambda i: program.margin.of_row(scores, i))(jnp.arange(len(Z)))

    def discrepancies(self, key, z, target, tuning):
        """Two values of columns that are held, given the sticks: the program times the law of the sticks."""
        program = self._program(z, target)
        Z, W = z["Z"].astype(program.rows.dtype), z["W"]
        n = len(Z)
        key_sticks, key_columns = random.split(key)
        sticks, _ = draw_sticks(key_sticks, program.concentration, Z)
        scores, rows = self._scores(program, Z), jnp.arange(n)

        def log_density(Z: jax.Array) -> jax.Array:
            log_joint = target.log_joint({**z, "Z": Z.astype(z["Z"].dtype)})
            return log_joint + log_sticks(sticks, program.concentration, Z)

        def one(step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            k, u = step
            change, w = jax.vmap(lambda i: program.margin.change(i)[k])(rows), W[:, k]
            residual = program.rows - Z @ W.T + Z[:, k, None] * w
            law = column_law(program, sticks, Without(k, Z, w, residual), scores - _by_row(Z[:, k], change))
            other = (u < 0.5).astype(Z.dtype) * (u[0] < 0.7)
            claimed = law.log_weight(Z[:, k]) - law.log_weight(other)
            actual = difference(log_density, Z, Z.at[:, k].set(other))
            return jnp.where(sticks.held[k], claimed, 0.0), jnp.where(sticks.held[k], actual, 0.0)

        held = jnp.argsort(~sticks.held, stable=True)[: ROWS * ENTRIES]
        return lax.map(one, (held, random.uniform(key_columns, (len(held), n), Z.dtype)))


class StickEntries(StickSlices):
    """The same for programs in which a score depends on several rows: a column's entries one after the other."""

    def _scores(self, program: Features, Z: jax.Array) -> jax.Array:
        return program.margin.scores(Z)

    def _column(self, program, sticks, column, scores, u):
        k, Z, *_ = column

        def draw(i: jax.Array, carry: tuple) -> tuple:
            values, scores = carry
            now = column._replace(Z=Z.at[:, k].set(values))
            log_odds, off, on = stick_log_odds(program, sticks, now, i, scores)
            one = u[i] < jax.nn.sigmoid(log_odds)
            return values.at[i].set(one), program.margin.with_row(scores, i, jnp.where(one, on, off))

        return lax.fori_loop(0, len(Z), draw, (Z[:, k], scores))

    def discrepancies(self, key, z, target, tuning):
        """Entries of columns that are held, given the sticks: the program times the law of the sticks."""
        program = self._program(z, target)
        Z, W = z["Z"].astype(program.rows.dtype), z["W"]
        key_sticks, key_rows = random.split(key)
        sticks, _ = draw_sticks(key_sticks, program.concentration, Z)
        scores = program.margin.scores(Z)

        def log_density(Z: jax.Array) -> jax.Array:
            log_joint = target.log_joint({**z, "Z": Z.astype(z["Z"].dtype)})
            return log_joint + log_sticks(sticks, program.concentration, Z)

        def one(step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            k, i = step
            residual = program.rows - Z @ W.T + Z[:, k, None] * W[:, k]
            claimed, _, _ = stick_log_odds(program, sticks, Without(k, Z, W[:, k], residual), i, scores)
            actual = difference(log_density, Z.at[i, k].set(1.0), Z.at[i, k].set(0.0))
            return jnp.where(sticks.held[k], claimed, 0.0), jnp.where(sticks.held[k], actual, 0.0)

        held = jnp.argsort(~sticks.held, stable=True)[: ROWS * ENTRIES]
        return lax.map(one, (held, random.randint(key_rows, held.shape, 0, len(Z))))


def stick_log_odds(
    program: Features, sticks: Sticks, column: Without, i: jax.Array, scores: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log odds of entry ``i`` of a column given the sticks and all else; row ``i``'s scores at 0, at 1.

    Where no other row has the feature, the slice's density is larger by a ratio if this one has it.
    """
    (k, Z, w, residual), margin = column, program.margin
    change = margin.change(i)[k]
    off = margin.of_row(scores, i) - Z[i, k] * change
    on = off + change
    gain = (residual[i] @ w - w @ w / 2) / program.noise_scale**2
    alone = jnp.sum(Z[:, k]) == Z[i, k]
    log_odds = jnp.log(sticks.pi[k]) - jnp.log1p(-sticks.pi[k]) + gain
    log_odds = log_odds + margin.log_factor(i, on) - margin.log_factor(i, off)
    return log_odds + jnp.where(alone, log_slice_ratio(sticks, k, Z), 0.0), off, on


def log_slice_ratio(sticks: Sticks, k: jax.Array, Z: jax.Array) -> jax.Array:
    """By how much the slice's log density is larger if column ``k`` has a one."""
    others = least(sticks.pi, (jnp.sum(Z, axis=0) > 0) & (jnp.arange(Z.shape[1]) != k))
    return SHARPNESS * (jnp.log(others) - jnp.log(jnp.minimum(others, sticks.pi[k])))


def _by_row(values: jax.Array, change: jax.Array) -> jax.Array:
    """Each row of ``change`` times the row's value."""
    return values.reshape(-1, *[1] * (change.ndim - 1)) * change
