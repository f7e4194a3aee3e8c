"""How strong a margin should be for a number of clusters: the heuristic of the max-margin Gaussian mixture."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.typing import ArrayLike

from ...models import dpgmm, dpmmgm
from ...models.dpmmgm import margin_inputs
from ...models.laws.arguments import check_features, check_positive
from ..engine.compiled import make_room
from ..engine.kernel import KernelState, MoveKernel
from ..engine.target import Sites
from ..kernels.dpgmm import dpgmm_collapsed
from ..kernels.dpmmgm import dpmmgm_collapsed

MARGIN = ("cost", "ell", "prior_scale", "margin_features", "intercept")
"""Keywords that ``dpmmgm`` has and ``dpgmm`` has not."""
STRUCTURE = ("max_clusters", "margin_features", "intercept")
"""Keywords that shape what is compiled; all others are traced."""
REACH = 2.0
"""The largest margin, in standard deviations of a difference of two discriminants under the weights' prior."""
TRAVEL = 1000.0
"""How many times larger or smaller half of the sweeps can make ``cost`` and ``ell``, on average."""


class TunedMargin(NamedTuple):
    """
    - **cost**, **ell** - what was found; pass them to the program, which is then a fixed target.
    - **num_clusters** - the number aimed at.
    - **init_params** - the sites at the sweep that was chosen, a start for ``MCMC.run``.
    - **trace** - per sweep: ``cost``, ``ell`` and ``num_clusters``.
    - **overflow** - whether ``max_clusters`` was ever too small; if it was without a margin, that is where it ends.
    """

    cost: float
    ell: float
    num_clusters: int
    init_params: Sites
    trace: dict[str, np.ndarray]
    overflow: bool


class Aim(NamedTuple):
    """How many clusters there should be, and the largest ``ell`` and ``cost * ell`` to get there."""

    num_clusters: Any = 0
    reach: Any = 0.0
    strongest: Any = 0.0


def tune_margin(
    X: ArrayLike,
    *,
    num_clusters: int | None = None,
    num_sweeps: int = 200,
    cost: float = 0.1,
    ell: float = 0.1,
    max_strength: float = 2.0,
    seed: int = 0,
    init_params: Sites | None = None,
    **settings: Any,
) -> TunedMargin:
    r"""Choose ``cost`` and ``ell`` of :func:`regbayes.models.dpmmgm` so that it finds ``num_clusters`` clusters.

    The chain starts where as many sweeps of :func:`~regbayes.models.dpgmm`, without a margin, have led. Then each sweep
    compares the number of clusters with the one wanted. Where there are too many one of the two, at random, grows;
    where there are too few it falls. Both decrease the number of clusters as they grow, so the number settles as the
    steps shrink. While the number is met nothing moves, so a margin that keeps it stays: what is returned is the one
    that kept the number wanted, or the nearest to it, for the most sweeps. A single cluster, which pays nothing under
    any margin, counts as furthest from several. Four things are not as in the paper:

    - Steps are factors ``exp(u h/t)``, with ``u`` uniform and ``h`` by the number of sweeps: added to, as in the paper,
      values double with a step or two, and all clusters are gathered in one before any two have merged.
    - ``t`` counts the turns, from too many to too few or back (Kesten's rule), not all sweeps: otherwise the margin
      stands still before it is strong enough, or long after it was too strong.
    - ``ell`` grows to at most twice the standard deviation that the prior gives to a difference of two discriminants.
      Nearly all data miss a wider margin, whichever cluster they are in, and the number of clusters jumps between one
      and many; from there on ``cost`` alone moves.
    - ``cost * ell`` grows to at most ``max_strength``. A datum halfway between two clusters pays twice that, in units
      of log likelihood: by default it is 50 times less likely there. Under a stronger margin labels hardly move any
      more, clusters that Gaussians fit well stay as they are, and others are gathered in one all at once.

    So where no margin leaves as few clusters as wanted, more are returned; ``trace`` tells. To get the number at any
    price give ``max_strength=np.inf``: then a margin that gathers all data in one cluster is weakened until clusters
    come back. They may be other clusters than those without a margin, and worse ones.

    This is a warm-up: the margin changes while it runs, so its sweeps are no draws of any posterior. Draw with what it
    returns, ``regbayes.fit("dpmmgm", X, cost=tuned.cost, ell=tuned.ell, init_params=tuned.init_params)``.

    >>> import regbayes
    >>> (X,), _ = regbayes.zoo["dpmmgm"].example()
    >>> tuned = regbayes.inference.tune_margin(X, num_clusters=3, num_sweeps=20, max_clusters=16)
    >>> sorted(tuned.init_params)
    ['eta', 'z']

    :param X: (n, d) data.
    :param num_clusters: how many there are; if None, as many as the chain without a margin mostly has in the second
        half of its sweeps (the paper's DPMMGM*).
    :param num_sweeps: how many sweeps without and with a margin.
    :param cost: where ``c`` starts.
    :param ell: where the margin starts.
    :param max_strength: the largest ``cost * ell``, unless they start beyond it.
    :param seed: of the random numbers.
    :param init_params: sites to start from, as for ``MCMC.run``; labels ``z`` among them take the place of the chain
        without a margin.
    :param settings: keywords of the program, such as ``concentration``.

    **References**

    1. *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS (2014), section 6.1.
    2. *Accelerated stochastic approximation*, Kesten, Annals of Mathematical Statistics 29 (1958).
    """
    if num_sweeps < 1:
        raise ValueError(f"num_sweeps must be at least 1, found {num_sweeps}")
    if num_clusters is not None and num_clusters < 1:
        raise ValueError(f"num_clusters must be at least 1 or None, found {num_clusters}")
    if not max_strength > 0:
        raise ValueError(f"max_strength must be positive, found {max_strength}; np.inf sets no limit")
    check_positive(strict=True, cost=cost, ell=ell)
    make_room()
    key_mixture, key_margin = random.split(random.key(seed))
    given, overflow = dict(init_params or {}), False
    if num_clusters is None or "z" not in given:
        without = {name: value for name, value in settings.items() if name not in MARGIN}
        start = {site: value for site, value in given.items() if site != "eta"}
        state, trace, _ = _run(dpgmm_collapsed, dpgmm, key_mixture, X, num_sweeps, start, without)
        overflow, init_params = bool(state.overflow), {**state.z, **given, "z": state.z["z"]}
        if num_clusters is None:
            num_clusters = int(np.argmax(np.bincount(trace["num_clusters"][num_sweeps // 2 :])))
        if overflow:
            empty = {name: np.zeros(0, kind) for name, kind in (("cost", float), ("ell", float), ("num_clusters", int))}
            return TunedMargin(cost, ell, num_clusters, init_params, empty, overflow)
    aim = Aim(num_clusters, max(ell, REACH * _deviation(X, **settings)), max(cost * ell, max_strength))
    margin = {"cost": jnp.asarray(cost, float), "ell": jnp.asarray(ell, float)}
    state, trace, chosen = _run(dpmmgm_collapsed, dpmmgm, key_margin, X, num_sweeps, init_params, settings, margin, aim)
    found = {name: float(trace[name][chosen]) for name in margin}
    return TunedMargin(
        **found, num_clusters=num_clusters, init_params=state.z, trace=trace, overflow=bool(overflow | state.overflow)
    )


def _run(
    make: Callable,
    program: Callable,
    key: jax.Array,
    X: ArrayLike,
    num_sweeps: int,
    init_params: Sites | None,
    settings: dict[str, Any],
    margin: dict[str, jax.Array] | None = None,
    aim: Aim | None = None,
) -> tuple[KernelState, dict[str, np.ndarray], int]:
    """Sweeps, the margin changed after each if there is one; the chosen state, the trace, and which of it that is."""
    structure = {name: value for name, value in settings.items() if name in STRUCTURE}
    rest = {name: value for name, value in settings.items() if name not in STRUCTURE}
    kernel = _kernel(make, program, tuple(sorted(structure.items())))
    margin = margin or {}
    state = kernel.init(key, 0, init_params, (X,), {**rest, **margin})
    state, values, chosen = _sweeps(kernel, state, X, rest, margin, aim or Aim(), num_sweeps)
    return state, {name: np.asarray(value) for name, value in values.items()}, int(chosen)


@functools.lru_cache(maxsize=16)
def _kernel(make: Callable, program: Callable, structure: tuple) -> MoveKernel:
    """One kernel for all calls of the same structure, so that they compile once."""
    return make(functools.partial(program, **dict(structure)))


@functools.partial(jax.jit, static_argnames=("kernel", "num_sweeps"))
def _sweeps(kernel: MoveKernel, state: KernelState, X, settings, margin, aim: Aim, num_sweeps: int) -> tuple:
    """The sweeps as one compiled loop, and the one that is chosen: without a margin the last."""
    furthest = jnp.iinfo(jnp.int32).max
    size = 8 * math.log(TRAVEL) / num_sweeps  # half of the sweeps, one of two values, half a step on average

    def step(carry: tuple, t: jax.Array) -> tuple[tuple, dict[str, jax.Array]]:
        state, margin, last, turns, kept, chosen = carry
        given = {**settings, **margin}
        state = kernel.sample(kernel.refresh(state, (X,), given), (X,), given)
        told = {**margin, "num_clusters": state.num_active}
        alone = (state.num_active == 1) & (aim.num_clusters > 1)
        gap = jnp.where(alone, furthest, jnp.abs(state.num_active - aim.num_clusters))
        way = jnp.sign(state.num_active - aim.num_clusters)
        kept = jnp.where(way == 0, kept + 1, 0)
        better = (gap < chosen[2]) | ((gap == chosen[2]) & (kept >= chosen[3])) if margin else True
        chosen = jax.tree.map(lambda new, old: jnp.where(better, new, old), (state.z, t, gap, kept), chosen)
        if margin:
            turns = turns + (way * last < 0)
            last = jnp.where(way == 0, last, way)
            margin = _step(random.fold_in(state.rng_key, t), margin, size * way / turns, aim)
        return (state, margin, last, turns, kept, chosen), told

    none, one = jnp.zeros((), int), jnp.ones((), int)
    start = state, margin, none, one, none, (state.z, none, furthest, none)
    (state, *_, (z, chosen, *_)), trace = lax.scan(step, start, jnp.arange(num_sweeps))
    return state._replace(z=z), trace, chosen


def _step(key: jax.Array, margin: dict[str, jax.Array], size: jax.Array, aim: Aim) -> dict[str, jax.Array]:
    """One of ``cost`` and ``ell``, at random, times up to ``exp(size)``; ``cost`` if ``ell`` would leave its reach."""
    u, coin = random.uniform(key, (2,))
    factor = jnp.minimum(jnp.exp(size * u), aim.strongest / (margin["cost"] * margin["ell"]))
    moved = {name: value * factor for name, value in margin.items()}
    cost = (coin < 0.5) | (moved["ell"] > aim.reach)
    return {"cost": jnp.where(cost, moved["cost"], margin["cost"]), "ell": jnp.where(cost, margin["ell"], moved["ell"])}


def _deviation(
    X: ArrayLike, *, prior_scale: float = 0.1, margin_features: Any = None, intercept: bool = False, **_: Any
) -> float:
    """Root mean square over data and the weights' prior of ``(eta_j - eta_k) . x``."""
    A = margin_inputs(check_features(X), margin_features, intercept)
    return float(prior_scale * jnp.sqrt(2 * jnp.mean(jnp.sum(A**2, axis=1))))
