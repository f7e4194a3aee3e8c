"""The density that moves leave invariant: a program with its arguments."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.gibbs import GIBBS_SITES_KWARG, conditioned, latent_sample_sites, prototype_trace
from numpyro.infer.util import log_density

Sites = dict[str, jax.Array]


def outline(
    program: Callable, args: tuple, kwargs: Mapping[str, Any], given: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The program's sites with shapes in place of values: traced, not run, so nothing is compiled."""
    found: dict[str, dict[str, Any]] = {}

    def run(given: Sites) -> None:
        found.update(trace(substitute(seed(program, jax.random.key(0)), data=given)).get_trace(*args, **kwargs))

    jax.eval_shape(run, dict(given or {}))
    return found


def prior_draw(program: Callable, key: jax.Array, /, *args: Any, **kwargs: Any) -> Sites:
    """The program's latent sites from the prior."""
    sites = prototype_trace(conditioned(program), key, args, kwargs)
    return {site: jnp.asarray(sites[site]["value"]) for site in latent_sample_sites(sites)}


class Target:
    """A program together with its arguments: what a move may ask of them.

    :param model: the NumPyro program.
    :param signature: the program's call signature; it fills in the defaults a caller left out.
    :param args: the program's positional arguments.
    :param kwargs: the program's keyword arguments; inside :class:`numpyro.infer.Gibbs` they carry the sites that
        other blocks own.
    """

    def __init__(
        self, model: Callable, signature: inspect.Signature, args: tuple, kwargs: Mapping[str, Any] | None
    ) -> None:
        kwargs = dict(kwargs or {})
        self.model, self.signature, self.args, self.kwargs = model, signature, args, kwargs
        self.given: Sites = dict(kwargs.get(GIBBS_SITES_KWARG, {}))
        self._bound = signature.bind(*args, **{k: v for k, v in kwargs.items() if k != GIBBS_SITES_KWARG})
        self._bound.apply_defaults()

    def log_joint(self, z: Sites, model: Callable | None = None) -> jax.Array:
        """The log density of the program, or of another reading of it, at the sites ``z`` and the given ones."""
        kwargs = {**self.kwargs, GIBBS_SITES_KWARG: self.given}
        return jnp.asarray(log_density(conditioned(model or self.model), self.args, kwargs, z)[0])

    def call(self, fn: Callable, *first: Any) -> Any:
        """``fn(*first, ...)`` with the program's arguments behind, defaults filled in."""
        return fn(*first, *self._bound.args, **self._bound.kwargs)

    def trace(self, z: Sites) -> dict[str, dict[str, Any]]:
        """The program's trace at ``z``."""
        kwargs = {**self.kwargs, GIBBS_SITES_KWARG: self.given}
        program = substitute(seed(conditioned(self.model), jax.random.key(0)), data=z)
        return trace(program).get_trace(*self.args, **kwargs)
