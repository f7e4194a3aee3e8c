r"""Moves over binary features: rows of a matrix ``Z`` from the Indian buffet process, and their loadings ``W``.

:class:`FeatureSweep` integrates the loadings out, and the features' probabilities: one entry after the other, then
how many features a row has to itself; :class:`FeatureFlips` goes with it, for what no entry can do alone. The moves of
:mod:`~regbayes.inference.moves.sticks` leave the same programs invariant. Births of the first fit what is left of a
row; slices of the sticks cost less a sweep where rows are many.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution

from ...models import IndianBuffetProcess, InformationNormal
from ...models.laws.arguments import check_features
from ...models.laws.buffet import harmonic
from ..engine.move import Conditional, Move, difference
from ..engine.target import Sites, Target
from .hyper import conjugate, there, value_of

ROWS, ENTRIES = 3, 5
"""Rows, and entries of each, at which a move's identity is evaluated."""
WINDOW = 3
"""Numbers of own features that entries are summed over, less one."""
ROUNDS = 4
"""Flips that are proposed for each row, and for each column, in a step."""


class FeatureMargin(NamedTuple):
    """What a max-margin factor says of the features, one row at a time.

    - **scores** - of ``Z``: every score, in one array.
    - **of_row** - ``(scores, i)``: those that row ``i`` has a say in.
    - **with_row** - ``(scores, i, new)``: all scores, those of row ``i`` replaced.
    - **change** - of ``i``: what a one in each column adds to them, columns first.
    - **log_factor** - ``(i, scores of row i)``, which may have leading axes: the log of the factors they enter.
    - **log_total** - of all scores: the log of all factors.
    """

    scores: Callable[[jax.Array], jax.Array]
    of_row: Callable[[jax.Array, jax.Array], jax.Array]
    with_row: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    change: Callable[[jax.Array], jax.Array]
    log_factor: Callable[[jax.Array, jax.Array], jax.Array]
    log_total: Callable[[jax.Array], jax.Array]


def no_feature_margin(num_slots: int, dtype: jnp.dtype) -> FeatureMargin:
    """For programs without a margin."""
    return FeatureMargin(
        lambda Z: jnp.zeros(0, dtype),
        lambda scores, i: scores,
        lambda scores, i, new: scores,
        lambda i: jnp.zeros((num_slots, 0), dtype),
        lambda i, scores: jnp.sum(scores, axis=-1),
        jnp.sum,
    )


class Features(NamedTuple):
    """A program to the moves: rows ``y_i ~ N(W z_i, sigma_n^2 I)``, ``w_dk ~ N(0, sigma_0^2)``, ``Z ~ IBP(alpha)``.

    - **rows** - (n, D) data, a row for each row of ``Z``.
    - **concentration** - ``alpha``.
    - **noise_scale** - ``sigma_n``.
    - **feature_scale** - ``sigma_0``.
    - **margin** - what else depends on the features.
    """

    rows: jax.Array
    concentration: jax.Array
    noise_scale: jax.Array
    feature_scale: jax.Array
    margin: FeatureMargin

    @property
    def ridge(self) -> jax.Array:
        """``sigma_n^2/sigma_0^2``."""
        return (self.noise_scale / self.feature_scale) ** 2


def linear_gaussian(z: Sites, X, *, concentration, noise_scale, feature_scale, **_) -> Features:
    """From the program's call; without a margin."""
    X, alpha = check_features(X), value_of("concentration", concentration, z)
    alpha, noise, scale = (jnp.asarray(value, X.dtype) for value in (alpha, noise_scale, feature_scale))
    return Features(X, alpha, noise, scale, no_feature_margin(z["Z"].shape[1], X.dtype))


def num_features(z: Sites) -> jax.Array:
    """How many features some row has."""
    return jnp.sum(jnp.any(z["Z"] > 0, axis=0))


def loadings(program: Features, Z: jax.Array) -> Distribution:
    """``W | Z``, rows ``N(P^-1 h_d, P^-1)``: ``P = Z'Z/sigma_n^2 + I/sigma_0^2``, ``h_d = Z'y_d/sigma_n^2``."""
    Z = Z.astype(program.rows.dtype)
    precision = Z.T @ Z * program.noise_scale**-2 + jnp.eye(Z.shape[1], dtype=Z.dtype) * program.feature_scale**-2
    return InformationNormal(program.rows.T @ Z * program.noise_scale**-2, precision).to_event(1)


def log_evidence(program: Features, gram: jax.Array, cross: jax.Array) -> jax.Array:
    """Log density of the rows with the loadings integrated out, up to a constant in ``Z``; of ``Z'Z`` and ``Z'Y``."""
    factor = jnp.linalg.cholesky(gram + program.ridge * jnp.eye(len(gram), dtype=gram.dtype))
    half = lax.linalg.triangular_solve(factor, cross, left_side=True, lower=True)
    log_det = jnp.sum(jnp.log(jnp.diagonal(factor)))
    return jnp.sum(half**2) / (2 * program.noise_scale**2) - cross.shape[1] * log_det


def log_features(program: Features, gram: jax.Array, cross: jax.Array) -> jax.Array:
    """That and the prior of ``Z``, which depends on how many rows have each feature."""
    law = IndianBuffetProcess(program.concentration, len(program.rows), len(gram))
    return log_evidence(program, gram, cross) + law.log_prob_of_counts(jnp.diagonal(gram))


class FeatureRow(NamedTuple):
    """Row ``i`` given the others, with the loadings integrated out: ``y_i ~ N(z mean, sigma_n^2 (1 + z'V z) I)``."""

    number: jax.Array
    data: jax.Array  # (D,)
    counts: jax.Array  # (M,) of the other rows' ones
    V: jax.Array  # (M, M)
    mean: jax.Array  # (M, D)
    change: jax.Array  # (M, ...) of the margin's scores


class Point(NamedTuple):
    """A value of the row's features, and what depends on it."""

    z: jax.Array  # (M,)
    Vz: jax.Array  # (M,)
    spread: jax.Array  # z'V z
    residual: jax.Array  # (D,)
    scores: jax.Array

    def add(self, row: FeatureRow, k: jax.Array, amount: jax.Array) -> "Point":
        """Entry ``k`` increased by ``amount``."""
        spread = self.spread + amount * (2 * self.Vz[k] + amount * row.V[k, k])
        return Point(
            self.z.at[k].add(amount),
            self.Vz + amount * row.V[k],
            spread,
            self.residual - amount * row.mean[k],
            self.scores + amount * row.change[k],
        )


def row_given_others(
    program: Features,
    i: jax.Array,
    gram: jax.Array,
    cross: jax.Array,
    z: jax.Array,
    scores: jax.Array,
    uniforms: jax.Array,
) -> tuple[FeatureRow, Point, "Own"]:
    """Row ``i``, its present features ``z`` that other rows have too, and its own.

    :param gram: ``Z'Z`` of all rows.
    :param cross: ``Z'Y`` of all rows.
    :param scores: the margin's.
    :param uniforms: (M + 1,) for the order of its own features.
    """
    data, M = program.rows[i], len(z)
    eye = jnp.eye(M, dtype=z.dtype)
    factor = jnp.linalg.cholesky(gram - z[:, None] * z + program.ridge * eye)
    half = lax.linalg.triangular_solve(
        factor, jnp.concatenate([eye, cross - z[:, None] * data], axis=1), left_side=True, lower=True
    )
    both = lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
    V, mean = both[:, :M], both[:, M:]
    row = FeatureRow(i, data, jnp.diagonal(gram) - z, V, mean, program.margin.change(i))
    shared = jnp.where(row.counts > 0, z, 0.0)
    scores = program.margin.of_row(scores, i) - jnp.tensordot(z - shared, row.change, 1)
    Vz = V @ shared
    return row, Point(shared, Vz, shared @ Vz, data - shared @ mean, scores), own_features(uniforms, row, z)


def log_row(program: Features, row: FeatureRow, spread: jax.Array, residual: jax.Array, scores: jax.Array) -> jax.Array:
    """Log density of the row's data and its margin, up to a constant."""
    square, D = jnp.sum(residual**2, axis=-1), row.data.shape[0]
    log_data = -D / 2 * jnp.log1p(spread) - square / (2 * program.noise_scale**2 * (1 + spread))
    return log_data + program.margin.log_factor(row.number, scores)


class Own(NamedTuple):
    """The features that a row has, or could have, to itself: slots that no other row uses, in random order.

    - **rank** - (M,) of each slot in that order: those in use first, then free ones, then all others.
    - **available** - how many slots no other row uses.
    - **total** - (M + 1, ...) what the first ``j`` of them add to the margin's scores.
    - **top** - of the window of numbers over which entries are summed.
    """

    rank: jax.Array
    available: jax.Array
    total: jax.Array
    top: jax.Array

    @property
    def window(self) -> jax.Array:
        """The numbers from ``top - WINDOW`` to ``top``."""
        return self.top - jnp.arange(WINDOW + 1)


def own_features(u: jax.Array, row: FeatureRow, z: jax.Array) -> Own:
    """A row's own features, given uniforms (M + 1,); the window's top is uniform from the present number upwards."""
    mine = row.counts == 0
    order = jnp.argsort(jnp.where(mine, u[1:] - (z > 0), 2.0))
    total = jnp.cumsum(row.change[order], axis=0)
    total = jnp.concatenate([jnp.zeros_like(total[:1]), total])
    top = jnp.sum(mine & (z > 0)) + jnp.minimum(jnp.floor(u[0] * (WINDOW + 1)), WINDOW).astype(int)
    return Own(jnp.argsort(order), jnp.sum(mine), total, top)


def log_own(program: Features, row: FeatureRow, point: Point, own: Own, j: jax.Array) -> jax.Array:
    r"""Log weights of ``j`` features of the row's own beside those of ``point``, the first ``j`` of their order.

    ``Poisson(j; alpha/n)`` times the density of the data and the margin. The order is drawn with the slots in use in
    front: it has the probability ``1/(j! (J - j)!)`` with ``J`` slots available, and times that the program's own
    ``(alpha/n)^j (J - j)!`` is the Poisson's. A feature of its own adds ``sigma_0^2/sigma_n^2`` to the spread and
    nothing to the mean, and its weights in the margin are those of its slot, from the prior: exact for any number.
    """
    there = (j >= 0) & (j <= own.available)
    j = jnp.clip(j, 0, own.available)
    log_prior = j * jnp.log(program.concentration / len(program.rows)) - gammaln(j + 1.0)
    spread, scores = point.spread + j / program.ridge, point.scores + own.total[j]
    return jnp.where(there, log_prior + log_row(program, row, spread, point.residual, scores), -jnp.inf)


def entry_log_odds(
    program: Features, row: FeatureRow, point: Point, own: Own, k: jax.Array
) -> tuple[jax.Array, Point, Point]:
    """``log p(z_ik = 1 | rest) - log p(z_ik = 0 | rest)`` for a feature that another row has; the point at 0, at 1.

    The prior's odds are ``m_k/(n - m_k)``, ``m_k`` of the other rows having it. The number of the row's own features
    is summed over its window: a row that could share a feature need not first do without one of its own.
    """
    off = point.add(row, k, -point.z[k])
    on = off.add(row, k, jnp.ones_like(point.z[k]))
    n, m = len(program.rows), row.counts[k]
    logs = [jax.nn.logsumexp(log_own(program, row, value, own, own.window)) for value in (off, on)]
    return jnp.log(m) - jnp.log(n - m) + logs[1] - logs[0], off, on


class FeatureMove(Move):
    """A move over features.

    :param program: ``(z, *args, **kwargs) -> Features``.
    :param covered_by: the test that covers the move as a whole.
    """

    owned: tuple[str, ...] = ("Z", "W")

    def __init__(self, program: Callable[..., Features], *, covered_by: str, name: str | None = None) -> None:
        super().__init__(self.owned, covered_by=covered_by, name=name)
        self.program = program

    def _program(self, z: Sites, target: Target) -> Features:
        return target.call(self.program, {**target.given, **z})


class FeatureSweep(FeatureMove):
    """Row after row with the loadings integrated out, then the loadings given the features.

    A row's entries in features that other rows have are drawn one by one, with the number of features that it has to
    itself summed out; then, in one draw, that number. A buffer with no free slot left is reported.
    """

    num_keys = 4

    def start(self, key, z, tuning):
        """No features: they are born row by row, which finds shared ones sooner than a draw of the prior."""
        return {"Z": jnp.zeros_like(z["Z"])}

    def step(self, keys, z, log_joint, target, tuning):
        program = self._program(z, target)
        n, M = z["Z"].shape
        dtype = program.rows.dtype
        entries, orders = random.uniform(keys[0], (n, M), dtype), random.uniform(keys[1], (n, M + 1), dtype)
        gumbels = random.gumbel(keys[2], (n, M + 1), dtype)
        Z = z["Z"].astype(dtype)

        def visit(i: jax.Array, carry: tuple) -> tuple:
            Z, gram, cross, scores, full = carry
            row, point, own = row_given_others(program, i, gram, cross, Z[i], scores, orders[i])
            shared = jnp.argsort(row.counts == 0, stable=True)

            def draw(j: jax.Array, point: Point) -> Point:
                k = shared[j]
                log_odds, off, on = entry_log_odds(program, row, point, own, k)
                one = entries[i, k] < jax.nn.sigmoid(log_odds)
                return jax.tree.map(lambda a, b: jnp.where(one, a, b), on, off)

            point = lax.fori_loop(0, jnp.sum(row.counts > 0), draw, point)
            number = jnp.argmax(log_own(program, row, point, own, jnp.arange(M + 1)) + gumbels[i])
            new = jnp.where(row.counts == 0, own.rank < number, point.z).astype(dtype)
            old = Z[i]
            return (
                Z.at[i].set(new),
                gram + new[:, None] * new - old[:, None] * old,
                cross + (new - old)[:, None] * row.data,
                program.margin.with_row(scores, i, point.scores + own.total[number]),
                full | (number == own.available),
            )

        start = (Z, Z.T @ Z, Z.T @ program.rows, program.margin.scores(Z), jnp.zeros((), bool))
        Z, *_, full = lax.fori_loop(0, n, visit, start)
        W = loadings(program, Z).sample(keys[3])
        W = jnp.where(jnp.all(jnp.isfinite(W)), W, z["W"])
        return {**z, "Z": Z.astype(z["Z"].dtype), "W": W}, None, full

    def discrepancies(self, key, z, target, tuning):
        """The odds of entries and the weights of the numbers of own features, in a few rows; and the loadings.

        The program with the loadings integrated out is its density over that of the loadings given ``Z``.
        """
        program = self._program(z, target)
        Z = z["Z"].astype(program.rows.dtype)
        n, M = Z.shape
        key_row, key_order, key_W = random.split(key, 3)

        def one_row(step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, u = step
            row, point, own = row_given_others(
                program, i, Z.T @ Z, Z.T @ program.rows, Z[i], program.margin.scores(Z), u
            )

            def log_density(z_i: jax.Array, j: jax.Array) -> jax.Array:
                """Of a value of the row's shared features and ``j`` of its own, times that of their order."""
                new = Z.at[i].set(jnp.where(row.counts == 0, own.rank < j, z_i))
                log_joint = target.log_joint({**z, "Z": new.astype(z["Z"].dtype)})
                log_order = -gammaln(j + 1.0) - gammaln(own.available - j + 1.0)
                there = (j >= 0) & (j <= own.available)
                return jnp.where(there, log_joint - loadings(program, new).log_prob(z["W"]) + log_order, -jnp.inf)

            def entry(k: jax.Array) -> tuple[jax.Array, jax.Array]:
                claimed, off, on = entry_log_odds(program, row, point, own, k)
                both = jnp.stack([off.z, on.z])
                logs = lax.map(lambda z: lax.map(lambda j: log_density(z, j), own.window), both)
                actual = jax.nn.logsumexp(logs[1]) - jax.nn.logsumexp(logs[0])
                held = row.counts[k] > 0
                return jnp.where(held, claimed, 0.0), jnp.where(held, actual, 0.0)

            shared = jnp.argsort(row.counts == 0, stable=True)[:ENTRIES]
            entries, j = lax.map(entry, shared), jnp.arange(min(M, ENTRIES) + 1)
            logs = log_own(program, row, point, own, j), lax.map(lambda j: log_density(point.z, j), j)
            numbers = [jnp.where(j <= own.available, log - log[0], 0.0) for log in logs]
            return jnp.concatenate([entries[0], numbers[0]]), jnp.concatenate([entries[1], numbers[1]])

        rows = random.choice(key_row, n, (min(n, ROWS),), replace=False)
        uniforms = random.uniform(key_order, (len(rows), M + 1), Z.dtype)
        claimed, actual = (jnp.ravel(side) for side in lax.map(one_row, (rows, uniforms)))
        law = loadings(program, Z)
        W = law.sample(key_W)
        weights = difference(lambda W: target.log_joint({**z, "W": W}), z["W"], W)
        law_weights = law.log_prob(z["W"]) - law.log_prob(W)
        return jnp.append(claimed, law_weights), jnp.append(actual, weights)


class Flipped(NamedTuple):
    """A matrix of features, and what depends on it."""

    Z: jax.Array  # (n, M)
    gram: jax.Array  # Z'Z
    cross: jax.Array  # Z'Y
    scores: jax.Array  # the margin's
    log_features: jax.Array  # of the data and the prior, the loadings integrated out


class FeatureFlips(FeatureMove):
    """Metropolis moves that flip several entries at once, with the loadings integrated out.

    Which columns: those in which two random rows differ. In which rows: in a third one, or in all that have some
    feature in which the two do not differ. The two rows differ by the same columns afterwards, so the way back is as
    likely as the way there. Entry by entry a row cannot exchange features for others that add up to the same, nor can
    features be exchanged for sums and differences of them: what is between explains the data badly.
    """

    num_keys = 4

    def step(self, keys, z, log_joint, target, tuning):
        program = self._program(z, target)
        n, M = z["Z"].shape
        if n < 3:
            return z, log_joint
        num_rows, num_columns = ROUNDS * n, ROUNDS * M
        rows = _three_of(keys[0], num_rows + num_columns, n)
        columns = random.randint(keys[1], (num_columns,), 0, M)
        log_u = jnp.log(random.uniform(keys[2], (num_rows + num_columns,), program.rows.dtype))

        def in_row(p: jax.Array, now: Flipped) -> Flipped:
            new, gain = flip_row(program, now, rows[p])
            return jax.tree.map(lambda a, b: jnp.where(log_u[p] < gain, a, b), new, now)

        def in_rows(p: jax.Array, now: Flipped) -> Flipped:
            new, gain = flip_rows(program, now, rows[num_rows + p], columns[p])
            return jax.tree.map(lambda a, b: jnp.where(log_u[num_rows + p] < gain, a, b), new, now)

        now = lax.fori_loop(0, num_rows, in_row, flipped(program, z["Z"]))
        Z = lax.fori_loop(0, num_columns, in_rows, now).Z
        W = loadings(program, Z).sample(keys[3])
        W = jnp.where(jnp.all(jnp.isfinite(W)), W, z["W"])
        return {**z, "Z": Z.astype(z["Z"].dtype), "W": W}, None

    def discrepancies(self, key, z, target, tuning):
        """What flips gain, in one row and in several; the program with the loadings integrated out."""
        program = self._program(z, target)
        n, M = z["Z"].shape
        if n < 3:
            return None
        now = flipped(program, z["Z"])

        def log_density(Z: jax.Array) -> jax.Array:
            return target.log_joint({**z, "Z": Z.astype(z["Z"].dtype)}) - loadings(program, Z).log_prob(z["W"])

        def one(step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            pairs = flip_row(program, now, step[0]), flip_rows(program, now, step[0], step[1])
            claimed = jnp.stack([gain for _, gain in pairs])
            *moved, here = lax.map(log_density, jnp.stack([*(new.Z for new, _ in pairs), now.Z]))
            actual = jnp.stack(moved) - here
            legal = claimed > -jnp.inf
            return jnp.where(legal, claimed, 0.0), jnp.where(legal, actual, 0.0)

        key_rows, key_columns = random.split(key)
        steps = _three_of(key_rows, ROWS * ENTRIES, n), random.randint(key_columns, (ROWS * ENTRIES,), 0, M)
        return jax.tree.map(jnp.ravel, lax.map(one, steps))


def flipped(program: Features, Z: jax.Array) -> Flipped:
    """Features with what depends on them."""
    Z = Z.astype(program.rows.dtype)
    gram, cross = Z.T @ Z, Z.T @ program.rows
    return Flipped(Z, gram, cross, program.margin.scores(Z), log_features(program, gram, cross))


def flip_row(program: Features, now: Flipped, rows: jax.Array) -> tuple[Flipped, jax.Array]:
    """The third of the rows flipped where the first two differ; by how much the log density is larger."""
    (j, k, i), margin = rows, program.margin
    old = now.Z[i]
    new = jnp.where(now.Z[j] != now.Z[k], 1 - old, old)
    gram = now.gram + new[:, None] * new - old[:, None] * old
    cross = now.cross + (new - old)[:, None] * program.rows[i]
    before = margin.of_row(now.scores, i)
    after = before + jnp.tensordot(new - old, margin.change(i), 1)
    log_new = log_features(program, gram, cross)
    gain = log_new - now.log_features + margin.log_factor(i, after) - margin.log_factor(i, before)
    return Flipped(now.Z.at[i].set(new), gram, cross, margin.with_row(now.scores, i, after), log_new), gain


def flip_rows(program: Features, now: Flipped, rows: jax.Array, column: jax.Array) -> tuple[Flipped, jax.Array]:
    """The same for all rows with a feature; not legal if it is one of those in which the two differ."""
    differ, log_total = now.Z[rows[0]] != now.Z[rows[1]], program.margin.log_total
    new = flipped(program, jnp.where((now.Z[:, column] > 0)[:, None] & differ, 1 - now.Z, now.Z))
    gain = new.log_features - now.log_features + log_total(new.scores) - log_total(now.scores)
    return new, jnp.where(differ[column], -jnp.inf, gain)


def _three_of(key: jax.Array, number: int, n: int) -> jax.Array:
    """(number, 3) different ones of ``0..n-1`` each."""
    first, second, third = random.randint(key, (3, number), 0, jnp.array([n, n - 1, n - 2])[:, None])
    second = second + (second >= first)
    low, high = jnp.minimum(first, second), jnp.maximum(first, second)
    third = third + (third >= low)
    return jnp.stack([first, second, third + (third >= high)], axis=1)


def integrated_moves(program: Callable[..., Features], covered_by: str) -> list[Move]:
    """Of the features and loadings: both moves that integrate the loadings out."""
    return [FeatureSweep(program, covered_by=covered_by), FeatureFlips(program, covered_by=covered_by)]


def loadings_given_features(rest: Sites, program: Features) -> Distribution:
    """The conditional of ``W``, for :func:`~regbayes.inference.moves.given.given`."""
    return loadings(program, rest["Z"])


def alpha_given_features(rest: Sites, *args, concentration, **kwargs) -> Distribution:
    """``Gamma(a + K, b + H_n)``: the number of features is Poisson with mean ``alpha H_n``."""
    prior = conjugate("concentration", concentration, dist.Gamma)
    return dist.Gamma(prior.concentration + num_features(rest), prior.rate + harmonic(len(rest["Z"])))


def concentration_of_buffet() -> Conditional:
    """The move of ``alpha``, where it has a prior."""
    return Conditional("concentration", alpha_given_features, when=there)
