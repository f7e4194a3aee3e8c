"""A program times ``exp(<phi, psi>)``: the posterior of :class:`.RegBayes`, itself a NumPyro program."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to
from numpyro.distributions.constraints import real
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer.gibbs import latent_sample_sites, prototype_trace
from numpyro.infer.util import log_density

from ..engine.target import Sites
from .constraints import Constraint


def tilt(model: Callable, constraints: Sequence[Constraint], phi: Mapping[str, Any]) -> Callable:
    """The program ``model`` with a factor ``<name>_tilt``, ``<phi, psi>``, for each constraint.

    :param phi: by the constraints' names, arrays of the shapes of their ``psi``.
    :return: a program with the arguments of ``model``, for any NumPyro tool.

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from numpyro.infer.util import log_density
    >>> from regbayes.inference import Hinge
    >>> def model():
    ...     numpyro.sample("mu", dist.Normal(0.0, 1.0))
    >>> tilted = tilt(model, [Hinge(lambda sites: 1 - sites["mu"])], {"hinge": -3.0})
    >>> before, after = (log_density(program, (), {}, {"mu": 0.5})[0] for program in (model, tilted))
    >>> print(f"{after - before:.1f}")
    -1.5
    """

    @functools.wraps(model)
    def tilted(*args: Any, **kwargs: Any) -> Any:
        with trace() as sites:
            value = model(*args, **kwargs)
        known, arguments = visible(sites, conditioned=True), bound_arguments(model, args, kwargs)
        for constraint in constraints:
            psi = evaluate(constraint, known, arguments)
            numpyro.factor(f"{constraint.name}_tilt", jnp.sum(jnp.asarray(phi[constraint.name]) * psi))
        return value

    return tilted


def visible(sites: Mapping[str, dict[str, Any]], *, conditioned: bool) -> Sites:
    """What ``psi`` may look at: the values of latent and deterministic sites and of parameters.

    :param conditioned: also of observed sites: kernels condition a program on the sites of their other blocks.
    """
    kinds = ("deterministic", "param")
    return {
        name: site["value"]
        for name, site in sites.items()
        if site["type"] in kinds or (site["type"] == "sample" and (conditioned or not site["is_observed"]))
    }


def bound_arguments(model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The program's arguments by name, defaults filled in."""
    bound = inspect.signature(model).bind(*args, **kwargs)
    bound.apply_defaults()
    kinds = {name: parameter.kind for name, parameter in bound.signature.parameters.items()}
    arguments = dict(bound.arguments)
    for name, kind in kinds.items():
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name))
    return arguments


class _Known(dict):
    """Sites that name what they do not have."""

    def __init__(self, sites: Sites, constraint: str) -> None:
        super().__init__(sites)
        self.constraint = constraint

    def __missing__(self, site: str) -> Any:
        raise ValueError(
            f"psi of the constraint {self.constraint!r} asks for the site {site!r}, found the sites {list(self)}"
        )


def evaluate(constraint: Constraint, sites: Sites, arguments: Mapping[str, Any]) -> jax.Array:
    """``psi`` as an array of floats."""
    _, *parameters = inspect.signature(constraint.psi).parameters.values()
    given = {parameter.name: arguments[parameter.name] for parameter in parameters if parameter.name in arguments}
    empty, named = inspect.Parameter.empty, (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [p.name for p in parameters if p.name not in given and p.default is empty and p.kind in named]
    if missing:
        raise ValueError(
            f"psi of the constraint {constraint.name!r} asks for the arguments {missing}, found those of the program, "
            f"{list(arguments)}; name them alike"
        )
    value = jnp.asarray(constraint.psi(_Known(sites, constraint.name), **given))
    if jnp.issubdtype(value.dtype, jnp.floating):
        return value
    if value.dtype != bool and not jnp.issubdtype(value.dtype, jnp.integer):
        raise ValueError(f"psi of the constraint {constraint.name!r} must be real numbers, found dtype {value.dtype}")
    return value.astype(jnp.result_type(float))


class Tilted:
    """A program with its arguments and constraints; ``phi`` is one long vector (T,), and traced.

    :param theta: below, the program's ``numpyro.param`` sites, constrained, by name.
    """

    def __init__(self, model: Callable, constraints: Sequence[Constraint], args: tuple, kwargs: dict[str, Any]) -> None:
        self.model, self.constraints, self.args, self.kwargs = model, tuple(constraints), args, kwargs
        self.arguments = bound_arguments(model, args, kwargs)
        prototype = prototype_trace(model, random.key(0), args, kwargs)
        self.latent = {name: prototype[name] for name in latent_sample_sites(prototype)}
        if not self.latent:
            raise ValueError("model must have a latent sample site, found none; nothing is left to infer")
        known = visible(prototype, conditioned=False)
        self.shapes = [np.shape(evaluate(c, known, self.arguments)) for c in self.constraints]
        for constraint, shape in zip(self.constraints, self.shapes, strict=True):
            constraint.check(shape)
            if f"{constraint.name}_tilt" in prototype:
                raise ValueError(f"the program has a site {constraint.name}_tilt already; give the constraint a name")
        params = {name: site for name, site in prototype.items() if site["type"] == "param"}
        self.params = {name: jnp.asarray(site["value"], jnp.result_type(float)) for name, site in params.items()}
        self.transforms = {name: biject_to(site["kwargs"].get("constraint", real)) for name, site in params.items()}

    def phi(self, flat: jax.Array) -> dict[str, jax.Array]:
        """By constraint."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        parts = jnp.split(flat, ends)
        return {c.name: p.reshape(s) for c, p, s in zip(self.constraints, parts, self.shapes, strict=True)}

    def program(self, phi: jax.Array, theta: Sites | None = None) -> Any:
        """The tilted program, as a program without data."""
        tilted = tilt(self.model, self.constraints, self.phi(phi))
        if theta:  # hidden, for kernels hold on to the values of parameters that they see first
            tilted = block(substitute(tilted, data=theta), hide=list(theta))
        return tilted(*self.args, **self.kwargs)

    def log_density(self, z: Sites, theta: Sites) -> jax.Array:
        """Of the program, not tilted."""
        return jnp.asarray(log_density(self.model, self.args, self.kwargs, {**z, **theta})[0])

    def sites(self, z: Sites, theta: Sites) -> Sites:
        """The latent sites ``z`` and the deterministic ones."""
        run = trace(substitute(seed(self.model, random.key(0)), data={**z, **theta}))
        found = run.get_trace(*self.args, **self.kwargs)
        return {**z, **{name: site["value"] for name, site in found.items() if site["type"] == "deterministic"}}

    def features(self, sites: Sites, theta: Sites) -> jax.Array:
        """``psi`` of all constraints, (T,)."""
        known = {**sites, **theta}
        return jnp.concatenate([jnp.ravel(evaluate(c, known, self.arguments)) for c in self.constraints])

    def start(self) -> jax.Array:
        """The parameters' first values, unconstrained, as one vector."""
        return ravel_pytree({name: self.transforms[name].inv(value) for name, value in self.params.items()})[0]

    def theta(self, flat: jax.Array) -> Sites:
        """The parameters from one unconstrained vector."""
        unravel = ravel_pytree({name: self.transforms[name].inv(value) for name, value in self.params.items()})[1]
        return {name: self.transforms[name](value) for name, value in unravel(flat).items()}
