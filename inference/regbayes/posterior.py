r"""Regularised Bayesian inference for any NumPyro program [1].

Bayes' rule minimises ``KL(q(M) || p(M, D))`` over distributions ``q``. With constraints on expectations it becomes

.. math:: \inf_q KL(q(M) || p(M, D)) + \sum_j g_j(E_q[\psi_j(M; D)]),

whose solution (Theorem 6) is the program tilted, ``q(M) ∝ p(M, D) exp(<phi, psi(M; D)>)``, where ``phi`` maximises the
dual ``-log Z(phi) - sum_j g_j^*(-phi_j)``. See :mod:`.constraints` for the functions ``g`` and
:mod:`.duality.expectations` for the ascent.

A program without data has constraints on its prior (Remark 7). ``numpyro.param`` sites are unknown parameters
``Theta``, over which the objective is minimised too (Extension 1), by steps of EM between those of the dual.

References:

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, J. Zhu, N. Chen and
   E. P. Xing, JMLR (2014), section 3
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpyro.handlers import substitute
from numpyro.infer import NUTS

from ..duality.expectations import Estimate, Stack, ascend
from ..engine.compiled import make_room
from .constraints import Constraint
from .expectations import as_inference
from .tilted import Tilted, tilt


@dataclasses.dataclass(frozen=True)
class RegBayesResult:
    """A regularised posterior.

    - **draws** - from the tilted program: ``posterior`` has the sites.
    - **phi** - the tilt, by constraint.
    - **expectations**, **errors** - ``E_q[psi]`` and its Monte Carlo standard error (0 if exact), by constraint.
    - **slacks** - by how much each expectation is off what its constraint asks.
    - **objective** - the dual after every step; where ``log Z`` is not known, less its value at the start.
    - **gap**, **gap_error** - the duality gap in nats, a bound on ``KL(q || solution)``, and its standard error.
    - **gaps** - after every step.
    - **params** - the program's ``numpyro.param`` sites.
    - **converged** - whether the gap is small, or within its noise.
    - **program** - the tilted program, with the arguments of the model, for any NumPyro tool.
    """

    draws: xr.DataTree
    phi: xr.Dataset
    expectations: xr.Dataset
    errors: xr.Dataset
    slacks: xr.Dataset
    objective: np.ndarray
    gap: float
    gap_error: float
    gaps: np.ndarray
    params: dict[str, np.ndarray]
    converged: bool
    program: Callable

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"<RegBayesResult {state}, gap {self.gap:.2g} ± {self.gap_error:.1g} nats, {list(self.phi.data_vars)}>"


class RegBayes:
    """The posterior of a program under constraints on its expectations.

    :param model: a NumPyro program.
    :param constraints: one or several of :class:`.Hinge`, :class:`.MaxHinge`, :class:`.EpsilonInsensitive`,
        :class:`.Quadratic`, :class:`.Equality`, :class:`.Inequality`.
    :param inference: how expectations under the tilted program are had: :class:`.Sampling`, :class:`.Variational`,
        :class:`.Enumeration`, :class:`.GaussianInference`; or the class of a kernel or of an autoguide.
    :param tol: stop at this gap, in nats (per nat of the constraints' price where that exceeds 1); by default 1e-9 if
        expectations are exact, 0.01 else.
    :param max_steps: the most steps of the dual.
    :param dims: names of the axes of constraints and sites.
    :param coords: values along named axes.
    :param progress: is called with keywords ``step``, ``gap``, ``error``, ``objective`` after every step.

    **Example**: a weight that must have a margin on two data, at a price.

    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from jax import random
    >>> from regbayes.inference import GaussianInference, Hinge, RegBayes
    >>> def model(x, y):
    ...     numpyro.sample("eta", dist.Normal(0.0, 1.0))
    >>> margin = Hinge(lambda sites, x, y: 1 - y * x * sites["eta"], C=0.3, name="margin")
    >>> result = RegBayes(model, margin, GaussianInference()).run(random.key(0), jnp.ones(2), jnp.array([1.0, 1.0]))
    >>> result.phi["margin"].values.round(3).tolist(), result.expectations["margin"].values.round(3).tolist()
    ([-0.3, -0.3], [0.4, 0.4])
    """

    def __init__(
        self,
        model: Callable,
        constraints: Constraint | Sequence[Constraint],
        inference: Any = NUTS,
        *,
        tol: float | None = None,
        max_steps: int = 100,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        progress: Callable[..., Any] | None = None,
    ) -> None:
        constraints = [constraints] if isinstance(constraints, Constraint) else list(constraints)
        if not callable(model):
            raise ValueError(f"model must be a NumPyro program, found {model!r}")
        if not constraints or not all(isinstance(constraint, Constraint) for constraint in constraints):
            raise ValueError(f"constraints must be Hinge, Equality, ... or a list of them, found {constraints}")
        names = [constraint.name for constraint in constraints]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"constraints must have different names, found {twice} twice; give name=")
        if tol is not None and not tol > 0:
            raise ValueError(f"tol must be positive, found {tol}")
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, found {max_steps}")
        self.model, self.constraints, self.inference = model, constraints, as_inference(inference)
        self.tol = (1e-9 if self.inference.exact else 0.01) if tol is None else tol
        self.max_steps, self.progress = max_steps, progress
        self.dims = {name: list(axes) for name, axes in (dims or {}).items()}
        self.coords = {name: np.asarray(values) for name, values in (coords or {}).items()}

    def run(self, rng_key: jax.Array, *args: Any, **kwargs: Any) -> RegBayesResult:
        """Solve for ``phi`` with the program's arguments, and draw.

        :raises Infeasible: if a hard constraint cannot be met.
        """
        make_room()
        tilted = Tilted(self.model, self.constraints, args, kwargs)
        stack = Stack(self.constraints, tilted.shapes)
        fit = self.inference.fit(tilted, rng_key)
        found = ascend(
            fit.estimate,
            stack,
            tol=self.tol,
            max_steps=self.max_steps,
            update=fit.update if fit.has_params else None,
            report=self.progress or (lambda **step: None),
        )
        if not found.converged:
            warnings.warn(
                f"RegBayes reached max_steps={self.max_steps} at a gap of {found.gaps[-1]:.2g} nats; raise max_steps, "
                "the number of draws, or tol",
                RuntimeWarning,
                stacklevel=2,
            )
        sites, estimate = fit.draws(found.mu)
        return self._result(tilted, stack, fit, found, sites, estimate)

    def _result(self, tilted, stack, fit, found, sites, estimate: Estimate) -> RegBayesResult:
        gap, error = stack.measure(estimate, found.mu)
        phi = stack.split(-found.mu)
        expectations = stack.split(estimate.mean)
        slacks = {c.name: c.slack(expectations[c.name]) for c in self.constraints}
        posterior = {name: np.asarray(value) for name, value in sites.items()}
        if unknown := [name for name in self.dims if name not in posterior and name not in phi]:
            raise ValueError(f"dims names {unknown}, found sites {list(posterior)} and constraints {list(phi)}")
        draws = from_dict(
            {"posterior": posterior},
            dims={name: axes for name, axes in self.dims.items() if name in posterior},
            coords=self.coords,
        )
        model = substitute(self.model, data=fit.params) if fit.params else self.model
        return RegBayesResult(
            draws=draws,
            phi=self._dataset(phi),
            expectations=self._dataset(expectations),
            errors=self._dataset(stack.split(estimate.error)),
            slacks=self._dataset(slacks),
            objective=found.objective,
            gap=gap,
            gap_error=error,
            gaps=found.gaps,
            params=fit.params,
            converged=found.converged,
            program=tilt(model, self.constraints, {name: np.asarray(value) for name, value in phi.items()}),
        )

    def _dataset(self, values: dict[str, np.ndarray]) -> xr.Dataset:
        """Named axes, with coordinates."""
        arrays = {}
        for name, value in values.items():
            axes = self.dims.get(name, [f"{name}_dim_{axis}" for axis in range(np.ndim(value))])[: np.ndim(value)]
            coords = {a: self.coords.get(a, np.arange(n)) for a, n in zip(axes, np.shape(value), strict=True)}
            arrays[name] = xr.DataArray(value, dims=axes, coords=coords)
        return xr.Dataset(arrays)
