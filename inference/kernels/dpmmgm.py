r"""Kernels of the Dirichlet process max-margin Gaussian mixture (:mod:`regbayes.models.dpmmgm`).

Given the labels, the loss as a function of one cluster's weights is a single hinge per datum
(:func:`~regbayes.inference.moves.augmentation.class_rows`), so each ``eta_k`` is Gaussian given its ``omega``: exact,
cluster by cluster. The paper instead holds every datum's strongest rival ``s_i`` fixed while it draws all weights. As
``s_i`` is a function of the weights, that step leaves another density invariant; ``variant="paper"`` has it for
comparison.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln

from ...models import HingeOmega, InformationNormal, dpmmgm
from ...models.dpmmgm import margin_inputs
from ...models.laws.arguments import check_features
from ...models.laws.normal_wishart import log_student
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, Move
from ..engine.target import Sites
from ..moves import gaussian_hyper
from ..moves.augmentation import class_rows, weight_information
from ..moves.fits import newton, scores_of
from ..moves.gaussian_clusters import (
    ClusterMargin,
    Clusters,
    CollapsedSweep,
    Component,
    component_of,
    mixture_of,
    num_clusters,
    size_table,
)
from ..moves.given import given
from ..moves.labels import Mixture, Shared, counts_of, index, once
from ..moves.split_merge import SplitMerge
from ..moves.weights import Hinges, of_rows

COVERED_BY = "tests/inference/kernels/test_dpmmgm.py::test_partitions_by_enumeration"
PAPER_COVERED_BY = (
    "tests/inference/kernels/test_dpmmgm.py::test_weights_against_nuts, which shows that it is not invariant"
)

SCORES = "scores"
"""Name under which a move keeps ``eta_k . x_i`` among the sites while it runs."""
DEGREES_OF_FREEDOM = 30
"""Of the t's that split-merge moves propose weights from."""


def margin_clusters(z: Sites, X, *, cost, ell, prior_scale, margin_features, intercept, **settings) -> Clusters:
    """The program to its conditionals and moves: Gaussian clusters, with a margin."""
    A = margin_inputs(check_features(X), margin_features, intercept)
    margin = ClusterMargin(A, *(jnp.asarray(value, A.dtype) for value in (cost, ell, prior_scale)))
    return gaussian_hyper.clusters(z, X, **settings)._replace(margin=margin)


@given(margin_clusters)
def hinges(k: jax.Array, z: Sites, program: Clusters) -> Hinges:
    """Equation (11), exact: ``+-x_i`` (n, p) and ``tau_i`` (n,) of the hinge that the loss is in ``eta_k``.

    Zeros where the slot is empty or the only one that holds data: the loss does not depend on it then.
    """
    A, cost, ell, scale = program.pays
    occupied = counts_of(z["z"], program.num_slots) > 0
    scores = z[SCORES] if SCORES in z else A @ z["eta"].T
    sgn, tau = class_rows(jnp.where(occupied, scores, -jnp.inf), z["z"], k, ell)
    active = occupied[k] & (jnp.sum(occupied) > 1)
    return Hinges(jnp.where(active, sgn, 0.0)[:, None] * A, jnp.where(active, tau, 0.0), cost, scale**-2.0)


WEIGHTS = of_rows(hinges)


class ClusterWeights(Augmented):
    """The weights of one cluster after the other by the augmentation; those of empty slots from the prior at once.

    :param overrelaxation: see :class:`~regbayes.inference.Augmented`.
    """

    num_keys = 2

    def __init__(self, overrelaxation: float = 0.5) -> None:
        super().__init__("eta", *WEIGHTS, rows=True, overrelaxation=overrelaxation)

    def step(self, keys, z, log_joint, target, tuning):
        program = target.call(margin_clusters, {**target.given, **z})
        z, order, num = start_weights(keys[0], z, program)
        keys = random.split(keys[1], (len(order), 2))

        def visit(i: jax.Array, z: Sites) -> Sites:
            k = order[i]
            z = self._move(keys[i], z, target, k)
            return {**z, SCORES: z[SCORES].at[:, k].set(program.pays.inputs @ z["eta"][k])}

        z = lax.fori_loop(0, num, visit, z)
        return {site: value for site, value in z.items() if site != SCORES}, None

    def discrepancies(self, key, z, target, tuning):
        """As for every conditional, slot by slot."""
        slots = jnp.arange(z["eta"].shape[0])
        return jax.vmap(lambda k: self._identity(random.fold_in(key, k), z, target, k))(slots)


def start_weights(key: jax.Array, z: Sites, program: Clusters) -> tuple[Sites, jax.Array, jax.Array]:
    """The sites with scores and fresh weights in empty slots; the slots, occupied ones first; how many those are."""
    occupied = counts_of(z["z"], program.num_slots) > 0
    fresh = program.pays.prior_scale * random.normal(key, z["eta"].shape, z["eta"].dtype)
    eta = jnp.where(occupied[:, None], z["eta"], fresh)
    z = {**z, "eta": eta, SCORES: program.pays.inputs @ eta.T}
    return z, jnp.argsort(~occupied, stable=True), jnp.sum(occupied)


class PaperWeights(Move):
    """The paper's step: ``s_i`` and ``omega_i`` drawn once, then every ``eta_k`` given them (equation 11).

    It does **not** leave the program invariant: ``s_i`` is the argument of a maximum over the weights that are drawn.
    """

    num_keys = 3

    def __init__(self) -> None:
        super().__init__("eta", covered_by=PAPER_COVERED_BY)

    def step(self, keys, z, log_joint, target, tuning):
        program = target.call(margin_clusters, {**target.given, **z})
        z, order, num = start_weights(keys[0], z, program)
        (A, c, ell, scale), labels = program.pays, z["z"]
        own = labels[:, None] == jnp.arange(program.num_slots)
        occupied = counts_of(labels, program.num_slots) > 0
        rival = jnp.argmax(jnp.where(occupied & ~own, z[SCORES], -jnp.inf), axis=1)
        pick = lambda scores, k: jnp.take_along_axis(scores, k[:, None], 1)[:, 0]  # noqa: E731
        zeta = ell + pick(z[SCORES], rival) - pick(z[SCORES], labels)
        omega = HingeOmega(c * jnp.abs(zeta)).sample(keys[1])
        normals = random.split(keys[2], len(order))

        def visit(i: jax.Array, z: Sites) -> Sites:
            k = order[i]
            sgn = jnp.where(labels == k, 1.0, jnp.where(rival == k, -1.0, 0.0)) * (num > 1)
            other = jnp.where(labels == k, pick(z[SCORES], rival), pick(z[SCORES], labels))
            rows = sgn[:, None] * A
            law = InformationNormal(*weight_information(rows, ell + sgn * other, omega, c, scale**-2.0))
            eta = z["eta"].at[k].set(law.sample(normals[i]))
            return {**z, "eta": eta, SCORES: z[SCORES].at[:, k].set(A @ eta[k])}

        z = lax.fori_loop(0, num, visit, z)
        return {site: value for site, value in z.items() if site != SCORES}, None


@given(margin_clusters)
def mixture(z: Sites, program: Clusters) -> Mixture:
    """The program to split-merge moves: the Gaussians integrated out, and the weights that pay for the margin.

    The weights of the clusters that a proposal makes are drawn from a t about a fit of them given all other clusters'
    weights. The first stage's guess is that a second cluster costs every datum the margin, and others little.
    """
    (A, c, ell, scale), n = program.pays, len(program.data)

    def draw(key: jax.Array, z: Sites, slots: jax.Array, now: jax.Array, then: jax.Array) -> tuple[Sites, jax.Array]:
        key_new, key_fresh = random.split(key)

        def side(given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            groups, held = given
            labels = jnp.select([*groups], [*slots], z["z"])
            return _weights(key_new, {**z, "z": labels}, program, slots, jnp.any(groups, 1), held)

        # One after the other, which compiles once.
        drawn, logs = lax.map(side, (jnp.stack([then, now]), jnp.array([False, True])))
        fresh = scale * random.normal(key_fresh, drawn[0].shape, drawn.dtype)
        eta = z["eta"].at[slots].set(jnp.where(jnp.any(then, 1)[:, None], drawn[0], fresh))
        return {"eta": eta}, logs[0] - logs[1]

    # A margin moves by what the scores can be: some standard deviations of their prior.
    reach = jnp.minimum(ell, 3 * scale * jnp.sqrt(jnp.sum(A**2, axis=1)))

    def guess(union: jax.Array, num: jax.Array, num_then: jax.Array) -> tuple[jax.Array, jax.Array]:
        now, then = num > 1, num_then > 1
        return 2 * c * ell * n * (1.0 * now - then), c * jnp.sum(jnp.where(union | (now != then), reach, 0.0))

    return mixture_of(program, explicit=False)._replace(shared=Shared(draw, guess))


class Gather(Move):
    """Propose to gather all data in one cluster or, from there, to scatter them by the Gaussians alone.

    One cluster pays nothing and two make every datum pay: where clusters merge one at a time, the way between one and
    many leads through states that are worse than both. The data are scattered in random order, each by its
    predictive given those before it; the chance of that is known, also of the partition that is now (Metropolis and
    Hastings). Weights stay: with one cluster they are from the prior.
    """

    num_keys = 4

    def __init__(self) -> None:
        super().__init__("z", covered_by=COVERED_BY)

    def step(self, keys, z, log_joint, target, tuning):
        key_slot, key_order, key_scatter, key_accept = keys
        program, labels = target.call(margin_clusters, {**target.given, **z}), z["z"]
        n, num_slots = len(labels), program.num_slots
        one, single = jnp.full_like(labels, random.randint(key_slot, (), 0, num_slots)), jnp.all(labels == labels[0])
        order, height = random.permutation(key_order, n), jnp.log(random.uniform(key_accept, (), program.data.dtype))
        log_one, log_now = (target.log_joint({**z, "z": value}) for value in (one, labels))
        log_slots = jnp.log(num_slots * 1.0)

        def consider() -> jax.Array:
            scattered, log_chance = scatter(key_scatter, program, order, labels, ~single)
            log_ratio = target.log_joint({**z, "z": scattered}) - log_one - log_slots - log_chance
            accepted = height < jnp.where(single, log_ratio, -log_ratio)
            return jnp.where(accepted, jnp.where(single, scattered, one), labels)

        # A chance is below 1: what that could not save needs no look.
        worth = single | (height < log_one - log_now + log_slots)
        return {**z, "z": once(worth, consider, labels)}, None


def scatter(
    key: jax.Array, program: Clusters, order: jax.Array, labels: jax.Array, forced: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Labels drawn one after the other given those before, or ``labels`` if ``forced``, and the log chance of them."""
    n, prior = len(order), program.prior
    table, fresh = size_table(program), log_student(prior, program.data)
    start = jax.tree.map(lambda a: jnp.broadcast_to(a, (program.num_slots, *a.shape)), component_of(prior))
    uniforms = random.uniform(key, (n,), program.data.dtype)

    def seat(carry: tuple, step: tuple) -> tuple:
        counts, (mean, inverse, log_det), drawn, total = carry
        i, u = step
        difference = program.data[i] - mean
        image = jnp.sum(inverse * difference[:, :, None], axis=1)
        r = prior.strength + counts
        square = jnp.sum(image * difference, axis=1) * (r / (r + 1))
        old = table[counts] - log_det / 2 - (prior.degrees + counts + 1) / 2 * jnp.log1p(square)
        new = fresh[i] + jnp.log(program.concentration / jnp.sum(counts == 0))
        logits = jax.nn.log_softmax(jnp.where(counts > 0, old, new))
        slot = jnp.where(forced, labels[i], index(jnp.exp(logits), u))
        weight = r[slot] / (r[slot] + 1)
        rank_one = image[slot][:, None] * image[slot]
        components = Component(
            mean.at[slot].add(difference[slot] / (r[slot] + 1)),
            inverse.at[slot].add(-weight / (1 + square[slot]) * rank_one),
            log_det.at[slot].add(jnp.log1p(square[slot])),
        )
        return (counts.at[slot].add(1), components, drawn.at[i].set(slot), total + logits[slot]), None

    begin = (jnp.zeros(program.num_slots, int), start, labels, jnp.zeros((), program.data.dtype))
    _, _, drawn, total = lax.scan(seat, begin, (order, uniforms))[0]
    return drawn, total


def _weights(
    key: jax.Array, z: Sites, program: Clusters, slots: jax.Array, free: jax.Array, held: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights (g, p) of the ``free`` among g slots, and the log of margin times prior over the proposal's density.

    :param held: take the current weights for the draw, as the way back does.
    """
    (A, c, ell, scale), labels, p = program.pays, z["z"], z["eta"].shape[1]
    occupied = counts_of(labels, program.num_slots) > 0
    scores = A @ z["eta"].T
    own = labels[:, None] == jnp.arange(program.num_slots)
    moving = jnp.any((jnp.arange(program.num_slots) == slots[:, None]) & free[:, None], 0)
    fixed = jnp.max(jnp.where(occupied & ~moving, scores + jnp.where(own, 0.0, ell), -jnp.inf), axis=1)
    own_fixed = jnp.sum(jnp.where(own & ~moving, scores, 0.0), axis=1)
    mine = (labels[:, None] == slots) & free
    alone = jnp.sum(occupied) == 1
    mean, root = fit_margin(A, mine, free, fixed, jnp.where(alone, 0.0, c), ell, scale**-2.0)
    law = dist.MultivariateStudentT(DEGREES_OF_FREEDOM, mean, root)
    value = jnp.where(held, jnp.ravel(z["eta"][slots]), law.sample(key))
    # The weights of a slot that is not free are not drawn: independent in the fit, they stay out of the density.
    value = jnp.where(jnp.repeat(free, p), value, mean)
    eta = value.reshape(-1, p)
    s = A @ eta.T
    best = jnp.max(jnp.where(free, s + jnp.where(mine, 0.0, ell), -jnp.inf), axis=1)
    loss = jnp.maximum(fixed, best) - own_fixed - jnp.sum(jnp.where(mine, s, 0.0), axis=1)
    log_prior = dist.Normal(0.0, scale).log_prob(value)
    log_prior = jnp.sum(jnp.where(jnp.repeat(free, p), log_prior, 0.0))
    return eta, -2 * c * jnp.sum(loss) + log_prior - _log_t(law, value, jnp.repeat(free, p))


def _log_t(law: dist.MultivariateStudentT, value: jax.Array, free: jax.Array) -> jax.Array:
    """Log density of the ``free`` entries; the others are independent of them up to the scale, and at their mean."""
    df, num, root = law.df, jnp.sum(free), law.scale_tril
    square = jnp.sum(solve_triangular(root, value - law.loc, lower=True) ** 2)
    log_det = jnp.sum(jnp.where(free, jnp.log(jnp.diagonal(root)), 0.0))
    log_constant = gammaln((df + num) / 2) - gammaln(df / 2) - num / 2 * jnp.log(df * jnp.pi)
    return log_constant - log_det - (df + num) / 2 * jnp.log1p(square / df)


def fit_margin(
    A: jax.Array, mine: jax.Array, free: jax.Array, fixed: jax.Array, cost: jax.Array, ell: jax.Array, precision
) -> tuple[jax.Array, jax.Array]:
    """A Gaussian fit of the weights of some clusters given those of all others, as :func:`fit_classes` of all.

    :param A: (n, p) inputs.
    :param mine: (n, g) whether a datum is in each of them.
    :param free: (g,) whether each is to be fitted; the others keep their prior.
    :param fixed: (n,) the largest score, margin added, of the other clusters.
    :param cost: ``c``.
    :param ell: the margin.
    :param precision: of the weights' prior.
    :return: the mean (g p,) and the lower Cholesky factor (g p, g p) of the covariance.
    """
    p, g = A.shape[1], len(free)
    own = mine.astype(A.dtype)
    offsets = jnp.where(free, ell * (1 - own), -jnp.inf)

    def derivatives(m: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        temperature = jnp.sqrt(6.0) / jnp.pi * s[:, None]
        values = jnp.concatenate([A @ m.reshape(g, p).T + offsets, fixed[:, None]], axis=1)
        q = jax.nn.softmax(values / temperature, axis=1)[:, :g]
        gradient = 2 * cost * (q - own).T @ A
        curvature = 2 * cost / temperature[..., None] * q[:, :, None] * (jnp.eye(g) - q[:, None, :])
        hessian = jnp.einsum("nd,njk,ne->jdke", A, curvature, A, optimize="optimal")
        return jnp.ravel(gradient), hessian.reshape(g * p, g * p)

    return newton(*scores_of(A, g, ell), derivatives, g * p, precision)


def dpmmgm_collapsed(
    model: Callable = dpmmgm, *, overrelaxation: float = 0.5, split_merge: int = 1, variant: str = "exact"
) -> MoveKernel:
    """One label after the other by Student-t predictives and everybody's loss; weights cluster by cluster.

    :param model: the program, with structural options bound: ``functools.partial(dpmmgm, margin_features=10)``.
    :param overrelaxation: of the weights' draws.
    :param split_merge: proposals of :class:`~regbayes.inference.SplitMerge` per sweep, followed by one to gather or
        scatter all data.
    :param variant: "paper" takes the printed step for the weights, which does not leave the program invariant: for
        comparison only.
    """
    if variant not in ("exact", "paper"):
        raise ValueError(f'variant must be "exact" or "paper", found {variant!r}')
    moves = [
        *gaussian_hyper.hyper_moves(),
        ClusterWeights(overrelaxation) if variant == "exact" else PaperWeights(),
        CollapsedSweep(margin_clusters, covered_by=COVERED_BY),
        *([SplitMerge(mixture, ("z", "eta"), split_merge, covered_by=COVERED_BY), Gather()] if split_merge else []),
    ]
    name = "dpmmgm collapsed" + (", the paper's step" if variant == "paper" else "")
    return MoveKernel(model, moves, name=name, num_active=num_clusters)
