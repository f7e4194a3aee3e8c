"""The kernel: an ordered list of moves as a NumPyro ``MCMCKernel``."""

import copy
import functools
import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.gibbs import conditioned, latent_sample_sites, prototype_trace
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from ...models.laws.arguments import is_concrete
from .move import Move
from .target import Sites, Target

NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What a program raises that cannot do with traced arguments."""


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
        self._init_fn: tuple[Any, Callable] | None = None

    @property
    def model(self) -> Callable:
        """The program."""
        return self._model

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

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs) -> KernelState:
        """The first state; the owned sites start at ``init_params`` (constrained values) where given."""
        target = self.target(model_args, model_kwargs)
        self.check(target, init_params)
        self._sample_fn = self._sweep
        init_one, init_params = self._compiled_init(target), jax.tree.map(_own, init_params)
        return init_one(rng_key, init_params) if is_prng_key(rng_key) else jax.vmap(init_one)(rng_key, init_params)

    def _compiled_init(self, target: Target) -> Callable:
        """:meth:`_init_one` compiled for the target, once for equal shapes, whole numbers and options.

        Real numbers are traced, unless the program wants to see them. Whole numbers are not: they may be labels, by
        which programs count classes.
        """
        by_value = jax.jit(functools.partial(self._init_one, target))
        leaves, tree = jax.tree_util.tree_flatten_with_path((target.args, target.kwargs))
        if not all(is_concrete(leaf) for _, leaf in leaves):  # a traced value must not outlive its trace
            return by_value
        traced = [_own(leaf) for path, leaf in leaves if _is_traced(path, leaf)]
        fixed = [None if _is_traced(path, leaf) else leaf for path, leaf in leaves]
        key = tree, [_is_traced(*leaf) for leaf in leaves], [_fingerprint(leaf) for leaf in fixed]

        def init_one(traced: list, rng_key: jax.Array, init_params: Sites | None) -> KernelState:
            values = iter(traced)
            args, kwargs = jax.tree.unflatten(
                tree, [next(values) if is_traced else leaf for is_traced, leaf in zip(key[1], fixed, strict=True)]
            )
            return self._init_one(self.target(args, kwargs), rng_key, init_params)

        if self._init_fn is None or self._init_fn[0] != key:
            self._init_fn = key, jax.jit(init_one)
        compiled = self._init_fn[1]

        def init(rng_key: jax.Array, init_params: Sites | None) -> KernelState:
            try:
                return compiled(traced, rng_key, init_params)
            except NEEDS_VALUES:
                return by_value(rng_key, init_params)

        return init

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
        latent, kinds = self._prototype(target)
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
                draw = self.owned(jax.jit(functools.partial(self.draw, target))(random.key(0)))
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
        sweep = functools.partial(self._sweep, model_args=model_args, model_kwargs=model_kwargs)
        return sweep(state) if is_prng_key(state.rng_key) else jax.vmap(sweep)(state)

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
        kernel._model, kernel._sample_fn, kernel._init_fn = wrapper(self._model), None, None
        return kernel

    def get_constrain_fn(self, model_args, model_kwargs) -> Callable:
        """Identity: the sites are constrained already."""
        return identity

    def postprocess_fn(self, model_args, model_kwargs) -> Callable:
        """Add the program's deterministic sites, where it has any."""
        if not self._has_deterministic:
            return identity
        program = conditioned(self._model)

        def postprocess(z: Sites) -> Sites:
            sites = trace(substitute(seed(program, random.key(0)), data=z)).get_trace(*model_args, **model_kwargs)
            return {**z, **{k: site["value"] for k, site in sites.items() if site["type"] == "deterministic"}}

        return postprocess

    def get_diagnostics_str(self, state: KernelState) -> str:
        """What the progress bar shows."""
        text = f"log joint {float(state.log_joint):.2f}"
        if state.num_active:
            text += f", {int(state.num_active)} active"
        return text + (", OVERFLOW" if state.overflow else "")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None, "_init_fn": None}


def program_name(model: Callable) -> str:
    """A readable name: that of the function behind partial applications and handlers."""
    while not hasattr(model, "__name__"):
        model = getattr(model, "func", None) or getattr(model, "fn", None) or type(model)
    return model.__name__


def _is_traced(path: tuple, leaf: Any) -> bool:
    """Whether an argument is real, or a part of a container such as a corpus, which is no label."""
    if any(isinstance(step, jax.tree_util.GetAttrKey) for step in path):
        return True
    return isinstance(leaf, float) or (
        isinstance(leaf, np.ndarray | np.generic | jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def _own(leaf: Any) -> Any:
    """A copy of a NumPy array: its owner may change it while JAX, which does not wait, still reads it."""
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def _fingerprint(leaf: Any) -> tuple:
    """Equal for equal arguments; for arrays identity, and for NumPy's, which may change in place, a checksum."""
    if isinstance(leaf, np.ndarray):
        return id(leaf), zlib.crc32(np.ascontiguousarray(leaf).data)
    return (type(leaf), leaf) if isinstance(leaf, int | str) else (id(leaf),)
