"""Inner inferences of :class:`.RegBayes`: the moments of ``psi`` under the tilted program, and draws from it.

Each has ``fit(tilted, rng_key)``, which returns an object with ``estimate(mu)``, ``draws(mu)`` and ``params``. Nothing
is compiled again when ``phi = -mu`` changes.
"""

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree
from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution, constraints
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.mcmc import MCMCKernel
from numpyro.optim import Adam
from scipy.optimize import minimize
from scipy.special import logsumexp

from ..duality.expectations import Estimate
from ..engine.target import Sites
from .tilted import Tilted

Array = np.ndarray

NUM_BATCHES = 20  # of a run's draws, at least


class _Fit:
    """What fits share: unknown parameters of the program, and random keys."""

    def __init__(self, tilted: Tilted, rng_key: jax.Array) -> None:
        self.tilted, self.rng_key = tilted, rng_key
        self.flat = tilted.start()  # the parameters, unconstrained

    @property
    def params(self) -> dict[str, Array]:
        """The program's parameters."""
        return {name: np.asarray(value) for name, value in self.tilted.theta(self.flat).items()}

    @property
    def has_params(self) -> bool:
        """Whether :meth:`update` has anything to improve."""
        return bool(self.tilted.params)

    def key(self) -> jax.Array:
        """A fresh one."""
        self.rng_key, key = random.split(self.rng_key)
        return key


class _Improving(_Fit, ABC):
    """A fit whose parameters improve by steps of EM between those of the dual."""

    @abstractmethod
    def loss(self, flat: jax.Array, phi: jax.Array, posterior: tuple) -> jax.Array:
        """``-E_q[log of the tilted program]`` as a function of the parameters, for a fixed ``q``."""

    @functools.cached_property
    def _loss(self) -> Callable:
        return jax.jit(jax.value_and_grad(self.loss))

    def improve(self, mu: Array, share: float, *posterior: Any) -> float:
        """Go a share of the way to the best parameters for the posterior; by how many nats."""
        phi, dtype = jnp.asarray(-mu, jnp.result_type(float)), self.flat.dtype

        def loss(flat: Array) -> tuple[float, Array]:
            value, slope = self._loss(jnp.asarray(flat, dtype), phi, posterior)
            return float(value), np.asarray(slope, float)

        start = np.asarray(self.flat, float)
        before, _ = loss(start)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 50})
        if not np.all(np.isfinite(found.x)) or not np.isfinite(found.fun):
            raise ValueError(f"the parameters {list(self.params)} have no finite maximum; bound them by a constraint")
        self.flat = jnp.asarray(start + share * (found.x - start), dtype)
        rounding = 10 * float(jnp.finfo(dtype).eps) * abs(before)
        return share * max(before - float(found.fun) - rounding, 0.0)


# ----- Exact


class Enumeration:
    """All states of a program whose latent sites are discrete, with their probabilities.

    :param num_samples: draws of the result.
    :param max_states: refuse more states.

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from jax import random
    >>> from regbayes.inference import Enumeration, Equality, RegBayes
    >>> def die():
    ...     numpyro.sample("face", dist.Categorical(logits=jnp.zeros(6)))
    >>> loaded = RegBayes(die, Equality(lambda sites: sites["face"] + 1, 4.5), Enumeration()).run(random.key(0))
    >>> print(f"{float(loaded.phi['equality']):.4f}")
    0.3710
    """

    exact = True

    def __init__(self, *, num_samples: int = 1000, max_states: int = 1_000_000) -> None:
        self.num_samples, self.max_states = num_samples, max_states

    def fit(self, tilted: Tilted, rng_key: jax.Array) -> "_Enumerated":
        return _Enumerated(tilted, rng_key, self._states(tilted), self.num_samples)

    def _states(self, tilted: Tilted) -> dict[str, Array]:
        supports, shapes = {}, {}
        for name, site in tilted.latent.items():
            fn = site["fn"]
            while isinstance(fn, Independent | ExpandedDistribution | MaskedDistribution):
                fn = fn.base_dist
            if not fn.has_enumerate_support:
                raise ValueError(
                    f"Enumeration needs discrete sites with finite support, found {name!r} from {type(fn).__name__}; "
                    "use Sampling or Variational"
                )
            values = np.asarray(fn.enumerate_support(expand=False))
            supports[name] = values.reshape(len(values), *fn.event_shape)
            shape = np.shape(site["value"])
            shapes[name] = shape[: len(shape) - len(fn.event_shape)]
        total = math.prod(len(supports[name]) ** math.prod(shapes[name]) for name in supports)
        if total > self.max_states:
            raise ValueError(f"the program has {total} states, more than max_states={self.max_states}; use Sampling")
        choices = [range(len(supports[name])) for name in supports for _ in range(math.prod(shapes[name]))]
        table = np.array(list(itertools.product(*choices)), int).reshape(total, -1)
        ends = np.cumsum([math.prod(shapes[name]) for name in supports])[:-1]
        return {
            name: supports[name][part].reshape(total, *shapes[name], *supports[name].shape[1:])
            for name, part in zip(supports, np.split(table, ends, axis=1), strict=True)
        }


class _Enumerated(_Improving):
    def __init__(self, tilted: Tilted, rng_key: jax.Array, states: dict[str, Array], num_samples: int) -> None:
        super().__init__(tilted, rng_key)
        self.states, self.num_samples = {name: jnp.asarray(value) for name, value in states.items()}, num_samples
        self._table = jax.jit(self._tabulate)
        self._refresh()

    def _tabulate(self, flat: jax.Array, states: Sites) -> tuple[jax.Array, jax.Array]:
        theta = self.tilted.theta(flat)

        def one(z: Sites) -> tuple[jax.Array, jax.Array]:
            return self.tilted.log_density(z, theta), self.tilted.features(self.tilted.sites(z, theta), theta)

        return jax.vmap(one)(states)

    def _refresh(self) -> None:
        log_p, psi = self._table(self.flat, self.states)
        self.log_p, self.psi = np.asarray(log_p, float), np.asarray(psi, float)

    def weights(self, mu: Array) -> tuple[Array, float]:
        """Probabilities of the states, and ``log Z``."""
        logits = self.log_p - self.psi @ mu
        log_partition = float(logsumexp(logits))
        return np.exp(logits - log_partition), log_partition

    def estimate(self, mu: Array) -> Estimate:
        check_finite(self.tilted, self.psi[np.isfinite(self.log_p)])
        weights, log_partition = self.weights(mu)
        mean = weights @ self.psi
        centred = self.psi - mean
        possible = self.psi[np.isfinite(self.log_p)]
        return Estimate(
            mean, (centred * weights[:, None]).T @ centred, None, log_partition, lambda u: float(np.min(possible @ u))
        )

    def loss(self, flat, phi, posterior):
        (weights,) = posterior
        log_p, psi = self._tabulate(flat, self.states)
        return -jnp.sum(jnp.where(weights > 0, weights * (log_p + psi @ phi), 0.0))

    def update(self, mu: Array, k: int) -> float:
        gain = self.improve(mu, 1.0, jnp.asarray(self.weights(mu)[0], jnp.result_type(float)))
        self._refresh()
        return gain

    def draws(self, mu: Array) -> tuple[Sites, Estimate]:
        weights, _ = self.weights(mu)
        chosen = np.random.default_rng(np.asarray(random.key_data(self.key()))).choice(
            len(weights), self.num_samples, p=weights
        )
        theta = self.tilted.theta(self.flat)
        sites = jax.vmap(lambda z: self.tilted.sites(z, theta))({n: v[chosen] for n, v in self.states.items()})
        return {name: value[None] for name, value in sites.items()}, self.estimate(mu)


class GaussianInference:
    """A program whose density is Gaussian in its latent sites, with features linear in them: mean and covariance by
    differentiation, hence moments in closed form. Anything else is refused.

    :param num_samples: draws of the result.
    """

    exact = True

    def __init__(self, *, num_samples: int = 1000) -> None:
        self.num_samples = num_samples

    def fit(self, tilted: Tilted, rng_key: jax.Array) -> "_Gaussian":
        for name, site in tilted.latent.items():
            support = site["fn"].support
            while isinstance(support, constraints.independent):
                support = support.base_constraint
            if support not in (constraints.real, constraints.real_vector, constraints.real_matrix):
                raise ValueError(f"GaussianInference needs real sites, found {name!r} with support {support}; {OTHERS}")
        return _Gaussian(tilted, rng_key, self.num_samples)


OTHERS = "use Sampling, Variational or Enumeration"


class _Gaussian(_Improving):
    def __init__(self, tilted: Tilted, rng_key: jax.Array, num_samples: int) -> None:
        super().__init__(tilted, rng_key)
        self.num_samples = num_samples
        start, self.unravel = ravel_pytree(
            {name: jnp.zeros(jnp.shape(site["value"])) for name, site in tilted.latent.items()}
        )
        self.size = len(start)
        self._expand = jax.jit(self._expansion)
        self._refresh()

    def _density(self, x: jax.Array, theta: Sites) -> jax.Array:
        return self.tilted.log_density(self.unravel(x), theta)

    def _features(self, x: jax.Array, theta: Sites) -> jax.Array:
        return self.tilted.features(self.tilted.sites(self.unravel(x), theta), theta)

    def _expansion(self, flat: jax.Array, probes: jax.Array) -> tuple[tuple, tuple]:
        """Log density and features to second and first order at 0; and at a few points, to see if that is all."""
        theta, zero = self.tilted.theta(flat), jnp.zeros(self.size)
        value, slope = jax.value_and_grad(self._density)(zero, theta)
        at_zero = value, slope, jax.hessian(self._density)(zero, theta)
        psi = self._features(zero, theta), jax.jacfwd(self._features)(zero, theta)
        seen = jax.vmap(lambda x: (jax.grad(self._density)(x, theta), self._features(x, theta)))(probes)
        return (*at_zero, *psi), seen

    def _refresh(self) -> None:
        probes = np.random.default_rng(0).normal(size=(3, self.size))
        numbers, seen = self._expand(self.flat, jnp.asarray(probes, jnp.result_type(float)))
        value, slope, hessian, psi, A = (np.asarray(number, float) for number in numbers)
        check_finite(self.tilted, psi[None])
        check_finite(self.tilted, A.T)
        tol = 1e-3 if jnp.result_type(float) == jnp.float32 else 1e-8
        slopes, features = (np.asarray(values, float) for values in seen)
        for found, wanted, size, what in (
            (slopes, slope + probes @ hessian, np.abs(slope).max() + np.abs(probes) @ np.abs(hessian), "the program"),
            (features, psi + probes @ A.T, np.abs(psi) + np.abs(probes) @ np.abs(A.T), "psi"),
        ):
            wrong = np.any(~(np.abs(found - wanted) <= tol * (1 + size)), axis=0)
            if what == "psi" and np.any(wrong):
                raise ValueError(f"psi of the constraint {self._owner(wrong)!r} is not linear in the sites; {OTHERS}")
            if np.any(wrong):
                raise ValueError(f"the program's density is not Gaussian in its latent sites; {OTHERS}")
        try:
            root = np.linalg.cholesky(-hessian)
        except np.linalg.LinAlgError:
            raise ValueError(f"the program's density has no maximum in its latent sites; {OTHERS}") from None
        inverse = np.linalg.inv(root)
        self.cov = inverse.T @ inverse
        self.mean = self.cov @ slope
        log_det = -2 * np.sum(np.log(np.diagonal(root)))
        self.log_evidence = value + slope @ self.mean / 2 + (self.size * np.log(2 * np.pi) + log_det) / 2
        self.A, self.psi_mean, self.psi_cov = A, psi + A @ self.mean, A @ self.cov @ A.T

    def _owner(self, wrong: Array) -> str:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.tilted.shapes])
        return self.tilted.constraints[int(np.searchsorted(ends, np.argmax(wrong), side="right"))].name

    def estimate(self, mu: Array) -> Estimate:
        shift = self.psi_cov @ mu
        mean = self.psi_mean - shift
        log_partition = float(self.log_evidence - mu @ self.psi_mean + mu @ shift / 2)

        def lowest(u: Array) -> float:
            """``-inf``, unless ``<u, psi>`` does not vary."""
            varies = u @ self.psi_cov @ u > 1e-12 * np.sum(u**2 * np.diagonal(self.psi_cov))
            return -np.inf if varies else float(u @ mean)

        return Estimate(mean, self.psi_cov, None, log_partition, lowest)

    def loss(self, flat, phi, posterior):
        mean, cov = posterior
        theta = self.tilted.theta(flat)

        def tilted(x):
            return self._density(x, theta) + self._features(x, theta) @ phi

        return -tilted(mean) - jnp.sum(jax.hessian(tilted)(mean) * cov) / 2

    def posterior_mean(self, mu: Array) -> Array:
        return self.mean - self.cov @ (self.A.T @ mu)

    def update(self, mu: Array, k: int) -> float:
        dtype = jnp.result_type(float)
        gain = self.improve(mu, 1.0, jnp.asarray(self.posterior_mean(mu), dtype), jnp.asarray(self.cov, dtype))
        self._refresh()
        return gain

    def draws(self, mu: Array) -> tuple[Sites, Estimate]:
        noise = np.asarray(random.normal(self.key(), (self.num_samples, self.size)), float)
        x = self.posterior_mean(mu) + noise @ np.linalg.cholesky(self.cov).T
        theta = self.tilted.theta(self.flat)
        sites = jax.vmap(lambda x: self.tilted.sites(self.unravel(x), theta))(jnp.asarray(x, jnp.result_type(float)))
        return {name: value[None] for name, value in sites.items()}, self.estimate(mu)


# ----- By Monte Carlo


class Sampling:
    """Any NumPyro kernel whose target may change while it runs: NUTS, HMC, ``Gibbs``, ``DiscreteHMCGibbs``, ...

    :param kernel: from a program to a kernel, such as ``NUTS`` or ``lambda program: NUTS(program, dense_mass=True)``.
    :param num_warmup: steps before the first estimate.
    :param num_draws: draws of every chain for one step of the dual; a fifth of them are discarded.
    :param num_samples: draws of every chain of the result.
    :param num_chains: run side by side.

    >>> from numpyro.infer import NUTS
    >>> from regbayes.inference import Sampling
    >>> inference = Sampling(lambda program: NUTS(program, dense_mass=True), num_chains=4)
    """

    exact = False

    def __init__(
        self,
        kernel: Callable[[Callable], MCMCKernel],
        *,
        num_warmup: int = 500,
        num_draws: int = 250,
        num_samples: int = 1000,
        num_chains: int = 2,
    ) -> None:
        _check_counts(num_warmup=num_warmup, num_draws=num_draws, num_samples=num_samples, num_chains=num_chains)
        self.kernel, self.num_warmup, self.num_draws = kernel, num_warmup, num_draws
        self.num_samples, self.num_chains = num_samples, num_chains

    def fit(self, tilted: Tilted, rng_key: jax.Array) -> "_Sampled":
        return _Sampled(tilted, rng_key, self)


class _Chains(_Fit, ABC):
    """Chains of states that follow ``phi``; a compiled call advances them by ``num_draws`` steps."""

    state: Any

    def __init__(self, tilted: Tilted, rng_key: jax.Array, settings: Any) -> None:
        super().__init__(tilted, rng_key)
        self.settings = settings
        self.sites: Sites = {}

        def advance(state: Any, phi: jax.Array, flat: jax.Array) -> tuple[Any, tuple]:
            state = self.follow(state, phi, flat)
            return lax.scan(lambda state, _: self.step(state, phi, flat), state, length=settings.num_draws)

        self._advance = jax.jit(advance)

    def follow(self, state: Any, phi: jax.Array, flat: jax.Array) -> Any:
        """The state after a change of ``phi``."""
        return state

    @abstractmethod
    def step(self, state: Any, phi: jax.Array, flat: jax.Array) -> tuple[Any, tuple[Sites, jax.Array]]:
        """The next state; its sites and features, the chains in front."""

    def advance(self, mu: Array) -> tuple[Sites, Array]:
        """Sites and features (chain, draw, ...)."""
        phi = jnp.asarray(-mu, jnp.result_type(float))
        self.state, found = self._advance(self.state, phi, self.flat)
        sites, psi = jax.tree.map(self.by_chain, found)
        psi = np.asarray(psi, float)
        check_finite(self.tilted, psi)
        return sites, psi

    def by_chain(self, values: jax.Array) -> jax.Array:
        """(draw, chain, ...) as (chain, draw, ...)."""
        return jnp.swapaxes(values, 0, 1)

    def warm_up(self, mu: Array, num_steps: int) -> None:
        for _ in range(math.ceil(num_steps / self.settings.num_draws)):
            self.advance(mu)

    def estimate(self, mu: Array) -> Estimate:
        sites, psi = self.advance(mu)
        first = psi.shape[1] // 5
        self.sites = {name: value[:, first:] for name, value in sites.items()}
        return moments(psi[:, first:])

    def draws(self, mu: Array) -> tuple[Sites, Estimate]:
        self.warm_up(mu, 1)
        count, runs = self.settings.num_samples, [self.advance(mu)]
        while sum(psi.shape[1] for _, psi in runs) < count:
            runs.append(self.advance(mu))
        psi = np.concatenate([psi for _, psi in runs], axis=1)[:, :count]
        names = runs[0][0]
        return {n: jnp.concatenate([sites[n] for sites, _ in runs], axis=1)[:, :count] for n in names}, moments(psi)


class _Sampled(_Improving, _Chains):
    def __init__(self, tilted: Tilted, rng_key: jax.Array, settings: Sampling) -> None:
        super().__init__(tilted, rng_key, settings)
        self.kernel = settings.kernel(tilted.program)
        if type(self.kernel).refresh is MCMCKernel.refresh:
            raise ValueError(
                f"{type(self.kernel).__name__} keeps the target it was given first (it has no `refresh`), but phi "
                "changes; use NUTS, HMC, DiscreteHMCGibbs, MixedHMC or Gibbs"
            )
        phi = jnp.zeros(sum(int(np.prod(shape)) for shape in tilted.shapes))
        args = (phi, tilted.theta(self.flat))
        keys = random.split(self.key(), settings.num_chains)
        self.state = jax.vmap(lambda key: self.kernel.init(key, settings.num_warmup, None, args, {}))(keys)
        self.warm_up(np.zeros(len(phi)), settings.num_warmup)

    def follow(self, state, phi, flat):
        args = (phi, self.tilted.theta(flat))
        return jax.vmap(lambda state: self.kernel.refresh(state, args, {}))(state)

    def step(self, state, phi, flat):
        theta = self.tilted.theta(flat)

        def one(state: Any) -> tuple[Any, tuple[Sites, jax.Array]]:
            state = self.kernel.sample(state, (phi, theta), {})
            sites = self.kernel.postprocess_fn((phi, theta), {})(getattr(state, self.kernel.sample_field))
            sites = {name: value for name, value in sites.items() if not name.endswith("_tilt")}
            return state, (sites, self.tilted.features(sites, theta))

        return jax.vmap(one)(state)

    def loss(self, flat, phi, posterior):
        (draws,) = posterior
        theta = self.tilted.theta(flat)

        def one(z: Sites) -> jax.Array:
            return self.tilted.log_density(z, theta) + self.tilted.features(self.tilted.sites(z, theta), theta) @ phi

        return -jnp.mean(jax.vmap(jax.vmap(one))(draws))

    def update(self, mu: Array, k: int) -> float:
        draws = {name: self.sites[name] for name in self.tilted.latent}
        return self.improve(mu, min(1.0, (k / 5) ** -0.7 if k else 1.0), draws)


class Variational:
    """Stochastic variational inference; ``q`` is then the best of the guide's family. Draws are the guide's, over the
    optimiser's steps, so that Monte Carlo errors have the optimiser's in them. The program's parameters are fitted too.

    :param guide: from a program to a guide, such as ``AutoNormal``.
    :param optim: a NumPyro or Optax optimiser.
    :param num_warmup: steps before the first estimate.
    :param num_draws: steps for one step of the dual; a fifth of them are discarded.
    :param num_samples: draws of the result.
    :param num_particles: draws of the guide in every step, for the gradient and for the expectations.

    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from regbayes.inference import Variational
    >>> inference = Variational(AutoNormal, num_warmup=5000)
    """

    exact = False

    def __init__(
        self,
        guide: Callable[[Callable], Any],
        *,
        optim: Any = None,
        num_warmup: int = 2000,
        num_draws: int = 500,
        num_samples: int = 4000,
        num_particles: int = 8,
    ) -> None:
        _check_counts(num_warmup=num_warmup, num_draws=num_draws, num_samples=num_samples, num_particles=num_particles)
        self.guide, self.optim = guide, Adam(0.01) if optim is None else optim
        self.num_warmup, self.num_draws, self.num_samples = num_warmup, num_draws, num_samples
        self.num_particles = num_particles

    def fit(self, tilted: Tilted, rng_key: jax.Array) -> "_Varied":
        return _Varied(tilted, rng_key, self)


class _Varied(_Chains):
    has_params = False

    def __init__(self, tilted: Tilted, rng_key: jax.Array, settings: Variational) -> None:
        super().__init__(tilted, rng_key, settings)
        self.guide = settings.guide(tilted.program)
        self.svi = SVI(tilted.program, self.guide, settings.optim, Trace_ELBO(num_particles=settings.num_particles))
        size = sum(int(np.prod(shape)) for shape in tilted.shapes)
        self.state = self.svi.init(self.key(), jnp.zeros(size)), self.key()
        self.warm_up(np.zeros(size), settings.num_warmup)

    @property
    def params(self) -> dict[str, Array]:
        found = self.svi.get_params(self.state[0])
        return {name: np.asarray(found[name]) for name in self.tilted.params}

    def step(self, state, phi, flat):
        svi_state, key = state
        svi_state, _ = self.svi.update(svi_state, phi)
        key, key_draw = random.split(key)
        params = self.svi.get_params(svi_state)
        theta = {name: params[name] for name in self.tilted.params}

        def draw(key: jax.Array) -> tuple[Sites, jax.Array]:
            found = trace(substitute(seed(self.guide, key), data=params)).get_trace(phi)
            sites = self.tilted.sites({name: found[name]["value"] for name in self.tilted.latent}, theta)
            return sites, self.tilted.features(sites, theta)

        return (svi_state, key), jax.vmap(draw)(random.split(key_draw, self.settings.num_particles))

    def by_chain(self, values):
        """The draws of all steps in one row: those of a step share its error."""
        return values.reshape(1, -1, *values.shape[2:])


def as_inference(inference: Any) -> Any:
    """An inner inference; kernels' and autoguides' classes stand for those with default settings."""
    if isinstance(inference, type) and issubclass(inference, MCMCKernel):
        return Sampling(inference)
    if isinstance(inference, type) and issubclass(inference, AutoGuide):
        return Variational(inference)
    if isinstance(inference, type) and hasattr(inference, "exact"):
        return as_inference(inference())
    if not hasattr(inference, "fit") or not hasattr(inference, "exact"):
        raise ValueError(
            "inference must be Sampling, Variational, Enumeration, GaussianInference, or the class of a kernel or an "
            f"autoguide, found {inference!r}"
        )
    return inference


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        least = 0 if name == "num_warmup" else 2 * NUM_BATCHES if name in ("num_draws", "num_samples") else 1
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, found {value!r}")


def moments(psi: Array) -> Estimate:
    """Of draws (chain, draw, T); batches are some twenty in all, of equal length, each within a chain."""
    chains, draws, T = psi.shape
    per_chain = max(1, math.ceil(NUM_BATCHES / chains))
    length = draws // per_chain
    kept = psi[:, draws - per_chain * length :]
    batches = kept.reshape(chains * per_chain, length, T).mean(axis=1)
    pooled = psi.reshape(-1, T)
    mean = pooled.mean(axis=0)
    centred = pooled - mean
    return Estimate(mean, centred.T @ centred / len(pooled), batches, None, lambda u: float(np.min(pooled @ u)))


def check_finite(tilted: Tilted, psi: Array) -> None:
    """Refuse features (..., T) that are not finite, by the constraint's name."""
    bad = ~np.isfinite(psi)
    if not bad.any():
        return
    start = 0
    for constraint, shape in zip(tilted.constraints, tilted.shapes, strict=True):
        stop = start + int(np.prod(shape))
        if (found := bad[..., start:stop]).any():
            value = psi[..., start:stop][found].flat[0]
            raise ValueError(
                f"psi of the constraint {constraint.name!r} must be finite, found {value} in {found.sum()} of "
                f"{found.size} entries; mend psi, or the program where its draws are not finite"
            )
        start = stop
