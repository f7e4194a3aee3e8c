"""The kernel: an ordered list of moves as a NumPyro ``MCMCKernel``."""

import copy
import functools
import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, NamedSharding
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.gibbs import GIBBS_SITES_KWARG, conditioned, latent_sample_sites, prototype_trace
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from ...models.laws.arguments import counting, is_concrete
from .compiled import Arguments, by_level, likeness, make_room, over_rows, shared
from .move import Move
from .target import Sites, Target, prior_draw


class KernelState(NamedTuple):
    """
    - **z** - the sites, constrained. Augmentation variables are not among them: they do not outlive a move.
    - **rng_key** - random key for the next sweep.
    - **log_joint** - the program's log density at ``z``.
    - **num_active** - occupied clusters or active features; 0 for a model that has neither.
    - **overflow** - whether a padded buffer has ever been full; the draws since then are truncated.
    - **tuning** - per move, the constants it computed at the start.
    """

    z: Sites
    rng_key: jax.Array
    log_joint: jax.Array
    num_active: jax.Array
    overflow: jax.Array
    tuning: tuple[dict[str, jax.Array], ...]


PASSING = ("_sample_fn", "_sizes", "_key", "_has_deterministic", "_signature")
"""Attributes of a kernel that a run sets, or that follow from others."""


class Compiled:
    """The code of a kernel, compiled once for equal shapes. Chains side by side are a batch of keys or states."""

    def __init__(self, kernel: "MoveKernel") -> None:
        self.kernel = kernel
        self.too_early: set[tuple[Arguments, int]] = set()
        self.init = jax.jit(self._init, static_argnums=0)
        self.sweep = jax.jit(self._sweep, static_argnums=0)
        self.draws = jax.jit(self._draws, static_argnums=(0, 2))

    def _init(self, arguments: Arguments, leaves: list, rng_key: jax.Array, init_params: Sites | None) -> KernelState:
        target = self.kernel.target(*arguments.with_leaves(leaves))
        one = functools.partial(self.kernel._init_one, target)
        return one(rng_key, init_params) if is_prng_key(rng_key) else jax.vmap(one)(rng_key, init_params)

    def _sweep(self, arguments: Arguments, leaves: list, state: KernelState) -> KernelState:
        args, kwargs = arguments.with_leaves(leaves)
        sweep = functools.partial(self.kernel._sweep, model_args=args, model_kwargs=kwargs)
        return sweep(state) if is_prng_key(state.rng_key) else jax.vmap(sweep)(state)

    def _draws(
        self, arguments: Arguments, leaves: list, capacity: int, state: KernelState, num: jax.Array, thinning: jax.Array
    ) -> tuple[KernelState, Sites, jax.Array]:
        """``num`` draws with ``thinning`` sweeps each: the state, and ``capacity`` draws and log joints, chains first.

        Of these the first ``num`` count, so that one loop serves for any number. Chains are shared out among devices.
        """
        side_by_side = jax.vmap if self.kernel.side_by_side else lambda one: functools.partial(lax.map, one)

        def chains(leaves: list, state: KernelState, num: jax.Array, thinning: jax.Array) -> tuple:
            one = functools.partial(self._chain, arguments.with_leaves(leaves), capacity, num, thinning)
            return side_by_side(one)(state)

        if (mesh := mesh_of(len(state.log_joint))) is not None:
            whole, parts = jax.P(), jax.P("chain")
            shards = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
            chains = shards(chains, in_specs=(whole, parts, whole, whole), out_specs=parts)
        return chains(leaves, state, num, thinning)

    def _chain(self, arguments: tuple, capacity: int, num: Any, thinning: Any, state: KernelState) -> tuple:
        """The draws of one chain."""
        args, kwargs = arguments
        deterministic = self.kernel.deterministic(args, kwargs)
        sweep = functools.partial(self.kernel._sweep, model_args=args, model_kwargs=kwargs)

        def collect(state: KernelState) -> tuple[Sites, jax.Array]:
            return {**state.z, **deterministic(state.z)}, state.log_joint

        def draw(i: jax.Array, carry: tuple) -> tuple:
            state, kept = carry
            state = lax.fori_loop(0, thinning, lambda _, state: sweep(state), state)
            return state, jax.tree.map(lambda all, new: all.at[i].set(new), kept, collect(state))

        kept = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), jax.eval_shape(collect, state))
        state, kept = lax.fori_loop(0, num, draw, (state, kept))
        return state, *kept


class MoveKernel(MCMCKernel):
    """A kernel that runs a list of moves, in order, once per sweep.

    Runs under :class:`numpyro.infer.MCMC` with every ``chain_method``, and as a block of
    :class:`numpyro.infer.Gibbs` next to NUTS for the sites it does not own.

    :param model: the NumPyro program.
    :param moves: the moves; together they own every latent site (those of the other blocks inside ``Gibbs`` excepted).
    :param name: how reports call the kernel.
    :param num_active: of the sites: how many clusters or features are in use; shown in the progress bar.

    **Example**: a program of your own, its weights by the augmentation and its scale by NUTS.

    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from jax import random
    >>> from numpyro.infer import MCMC, NUTS, Gibbs
    >>> from regbayes.inference import MarginWeights, MoveKernel
    >>> from regbayes.models import hinge
    >>> def program(X, y):
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    ...     eta = numpyro.sample("eta", dist.Normal(0.0, scale).expand([X.shape[1]]).to_event(1))
    ...     hinge("margin", X @ eta, 2 * y - 1)
    >>> weights = MoveKernel(program, [MarginWeights("eta")])
    >>> kernel = Gibbs([(weights, ["eta"]), (NUTS(program), ["scale"])])
    >>> mcmc = MCMC(kernel, num_warmup=10, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(0), jnp.eye(4), jnp.array([0, 1, 0, 1]))
    """

    sample_field = "z"

    def __init__(
        self,
        model: Callable,
        moves: Sequence[Move],
        *,
        name: str | None = None,
        num_active: Callable[[Sites], jax.Array] | None = None,
    ) -> None:
        if not callable(model):
            raise ValueError(f"model must be a NumPyro program, found {model!r}")
        self.moves = tuple(moves)
        if not self.moves or not all(isinstance(move, Move) for move in self.moves):
            raise ValueError(f"moves must be a non-empty list of moves, found {list(moves)}")
        self._model, self._num_active = model, num_active
        self._signature = inspect.signature(model)
        self.name = name or program_name(model)
        self._has_deterministic = False
        self._sample_fn: Callable | None = None  # MCMC calls `init` while this is None
        self._sizes: dict[str, int] = {}
        self._key: Hashable = None

    def likeness(self) -> dict[str, Any]:
        """What tells it from other kernels: equal kernels share what is compiled."""
        return {name: value for name, value in vars(self).items() if name not in PASSING}

    @property
    def model(self) -> Callable:
        """The program."""
        return self._model

    @property
    def side_by_side(self) -> bool:
        """Whether the loop sweeps chains side by side, and not one after the other."""
        return not any(move.branches for move in self.moves)

    @property
    def parameters(self) -> list[str]:
        """The names of the program's arguments."""
        return list(self._signature.parameters)

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites its moves own, in the order of first mention; those of optional moves may not be there."""
        return tuple(dict.fromkeys(site for move in self.moves for site in move.sites))

    def owned(self, sites: Sites) -> Sites:
        """Those of a program's latent ``sites`` that moves meant for it own."""
        names = dict.fromkeys(site for move in self.moves if move.applies(sites) for site in move.sites)
        return {site: sites[site] for site in names}

    def target(self, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> Target:
        """The density the moves leave invariant."""
        return Target(self._model, self._signature, model_args, model_kwargs)

    def expand(self, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> tuple[tuple, dict[str, Any]]:
        """The program's arguments as they are compiled for, before they are looked at."""
        return model_args, dict(model_kwargs or {})

    def arguments(self, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> tuple[tuple, dict[str, Any]]:
        """The same with the sizes that were counted when the kernel was initialised, where a call leaves them open."""
        args, kwargs = self.expand(model_args, model_kwargs)
        bound = self._signature.bind(*args, **{k: v for k, v in kwargs.items() if k != GIBBS_SITES_KWARG}).arguments
        return args, {**kwargs, **{k: size for k, size in self._sizes.items() if bound.get(k) is None}}

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs) -> KernelState:
        """The first state; the owned sites start at ``init_params`` (constrained values) where given."""
        self.check(self.target(*self.expand(model_args, model_kwargs)), init_params)
        self._sample_fn = self._sweep
        return self.compiled("init", self.arguments(model_args, model_kwargs), rng_key, init_params)

    def compiled(self, step: str, arguments: tuple[tuple, dict[str, Any]], *values: Any) -> Any:
        """A step of :class:`Compiled`, for the arguments at hand, by the code that all equal kernels share."""
        if self._key is None:
            self._key = likeness(self)
        code = shared(self._key, lambda: Compiled(self._detached()))
        if step == "init":
            make_room()
        return by_level(lambda apart: getattr(code, step)(apart, apart.leaves, *values), arguments, code.too_early)

    def draws(
        self, arguments: tuple[tuple, dict[str, Any]], capacity: int, state: KernelState, num: int, thinning: int
    ) -> tuple[KernelState, Sites, jax.Array]:
        """The state after ``num`` draws with ``thinning`` sweeps each, the draws, and their log joints.

        The chains are first put where they are swept: a state from a start, a file or a sweep is all the same then.
        """
        if (mesh := mesh_of(len(state.log_joint))) is not None:
            state = jax.device_put(state, NamedSharding(mesh, jax.P("chain")))
        return self.compiled("draws", arguments, capacity, state, num, thinning)

    def _detached(self) -> "MoveKernel":
        """A copy that nobody changes any more."""
        kernel = copy.copy(self)
        kernel._sample_fn, kernel._sizes = None, {}
        return kernel

    def _init_one(self, target: Target, rng_key: jax.Array, init_params: Sites | None) -> KernelState:
        rng_key, key_prior, *keys = random.split(rng_key, 2 + len(self.moves))
        z = self.owned(self.draw(target, key_prior))
        given = {site: jnp.asarray(value, z[site].dtype) for site, value in (init_params or {}).items()}
        z.update(given)
        tuning = tuple(move.setup(z, target) if move.applies(z) else {} for move in self.moves)
        for move, key, constants in zip(self.moves, keys, tuning, strict=True):
            if move.applies(z):
                z = {**z, **move.start(key, z, constants), **given}
        return KernelState(z, rng_key, target.log_joint(z), self._count(z), jnp.zeros((), bool), tuning)

    def _count(self, z: Sites) -> jax.Array:
        return jnp.zeros((), int) if self._num_active is None else self._num_active(z)

    def check(self, target: Target, init_params: Sites | None = None) -> list[Move]:
        """The moves meant for the program; a ``ValueError`` if they do not fit it, or the program its arguments."""
        with counting() as sizes:
            latent, kinds = self._prototype(target)
        self._sizes = {name: size for name, size in sizes.items() if name in self._signature.parameters}
        moves = [move for move in self.moves if move.applies(latent)]
        if unknown := list(dict.fromkeys(site for move in moves for site in move.sites if site not in latent)):
            raise ValueError(f"moves own sites {unknown}, but the latent sites of the program are {list(latent)}")
        owned = self.owned(latent)
        if orphans := [site for site in latent if site not in owned]:
            raise ValueError(
                f"no move owns the latent sites {orphans}; add a move, or make this kernel a block of "
                "numpyro.infer.Gibbs beside one that samples them"
            )
        for site, value in (init_params or {}).items():
            if site not in owned:
                raise ValueError(f"init_params has the site {site!r}, found sites {list(owned)}")
            shape, wanted = jnp.shape(value), latent[site].shape
            if shape[len(shape) - len(wanted) :] != wanted:
                raise ValueError(f"init_params[{site!r}] must have shape {wanted}, found {shape}")
        self._has_deterministic = "deterministic" in kinds
        demanding = [move for move in moves if type(move).validate is not Move.validate]
        if demanding and all(is_concrete(leaf) for leaf in jax.tree.leaves((target.args, target.kwargs))):
            with jax.ensure_compile_time_eval():
                prior, keys = functools.partial(prior_draw, self._model), random.split(random.key(0), 1)
                draws = over_rows(prior, keys, *target.args, **target.kwargs)
                draw = self.owned(jax.tree.map(lambda leaf: leaf[0], draws))
                for move in demanding:
                    move.validate(draw, target)
        return moves

    def draw(self, target: Target, key: jax.Array, kinds: set[str] | None = None) -> Sites:
        """The program's latent sites from the prior; the kinds of its sites join ``kinds``."""
        prior = prototype_trace(conditioned(self._model), key, target.args, target.kwargs)
        if kinds is not None:
            kinds.update(site["type"] for site in prior.values())
        return {site: jnp.asarray(prior[site]["value"]) for site in latent_sample_sites(prior)}

    def _prototype(self, target: Target) -> tuple[Sites, set[str]]:
        """What has the shapes of the program's latent sites, and the kinds of its sites."""
        kinds: set[str] = set()
        return jax.eval_shape(functools.partial(self.draw, target, kinds=kinds), random.key(0)), kinds

    def sample(self, state: KernelState, model_args, model_kwargs) -> KernelState:
        """One sweep over the moves."""
        return self.compiled("sweep", self.arguments(model_args, model_kwargs), state)

    def _sweep(self, state: KernelState, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> KernelState:
        target = self.target(model_args, model_kwargs)
        keys = random.split(state.rng_key, 1 + sum(move.num_keys for move in self.moves))
        rng_key, keys = keys[0], keys[1:]
        z, log_joint, overflow = state.z, cast(jax.Array | None, state.log_joint), state.overflow
        for move, constants in zip(self.moves, state.tuning, strict=True):
            if move.applies(z):
                z, log_joint, *full = move.step(keys[: move.num_keys], z, log_joint, target, constants)
                overflow = functools.reduce(jnp.logical_or, full, overflow)
            keys = keys[move.num_keys :]
        if log_joint is None:
            log_joint = target.log_joint(z)
        return state._replace(z=z, rng_key=rng_key, log_joint=log_joint, num_active=self._count(z), overflow=overflow)

    def refresh(self, state: KernelState, model_args, model_kwargs) -> KernelState:
        """The state with its log joint at the current values of the other blocks' sites."""
        return state._replace(log_joint=self.target(model_args, model_kwargs).log_joint(state.z))

    def wrap_model(self, wrapper: Callable) -> "MoveKernel":
        kernel = copy.copy(self)
        kernel._model, kernel._sample_fn, kernel._key = wrapper(self._model), None, None
        return kernel

    def get_constrain_fn(self, model_args, model_kwargs) -> Callable:
        """Identity: the sites are constrained already."""
        return identity

    def postprocess_fn(self, model_args, model_kwargs) -> Callable:
        """Add the program's deterministic sites, where it has any."""
        if not self._has_deterministic:
            return identity
        deterministic = self.deterministic(model_args, model_kwargs)
        return lambda z: {**z, **deterministic(z)}

    def deterministic(self, model_args: tuple, model_kwargs: Mapping[str, Any]) -> Callable[[Sites], Sites]:
        """The program's deterministic sites at its latent ones."""
        program = conditioned(self._model)

        def at(z: Sites) -> Sites:
            sites = trace(substitute(seed(program, random.key(0)), data=z)).get_trace(*model_args, **model_kwargs)
            return {k: site["value"] for k, site in sites.items() if site["type"] == "deterministic"}

        return at

    def get_diagnostics_str(self, state: KernelState) -> str:
        """What the progress bar shows."""
        text = f"log joint {float(state.log_joint):.2f}"
        if state.num_active:
            text += f", {int(state.num_active)} active"
        return text + (", OVERFLOW" if state.overflow else "")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None, "_key": None}


def mesh_of(num_chains: int) -> Mesh | None:
    """The devices that chains are shared out among, if there are several."""
    devices = math.gcd(jax.local_device_count(), num_chains)
    return Mesh(np.array(jax.local_devices()[:devices]), "chain") if devices > 1 else None


def program_name(model: Callable) -> str:
    """A readable name: that of the function behind partial applications and handlers."""
    while not hasattr(model, "__name__"):
        model = getattr(model, "func", None) or getattr(model, "fn", None) or type(model)
    return model.__name__
