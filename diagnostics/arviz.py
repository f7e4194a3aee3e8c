"""Posterior draws as ArviZ wants them: an ``xarray.DataTree`` with named dims, coords and attributes."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import numpyro
import scipy.sparse
import xarray as xr
from arviz_base import from_dict
from numpyro.distributions import Distribution
from numpyro.infer import MCMC


def to_datatree(
    mcmc: MCMC,
    *,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    seed: int | None = None,
) -> xr.DataTree:
    """The draws of a finished run, with the kernel's diagnostics.

    Groups: ``posterior`` (the sites), ``sample_stats`` (``lp``, the program's log joint, where it was collected
    with ``extra_fields=("log_joint",)``, and every other collected field) and ``constant_data`` (the program's array
    arguments). Attributes name the program, the kernel, the hyper-parameters and the versions.

    Max-margin factors do not appear as observed data, which they are not; that is why this uses ArviZ's
    ``from_dict`` and not its NumPyro converter.

    :param mcmc: after ``run``.
    :param dims: names of the axes of sites or data, without chain and draw.
    :param coords: values along named axes.
    :param seed: recorded in the attributes when given.

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> from regbayes.diagnostics import to_datatree
    >>> (X, y), _ = regbayes.zoo["svm"].example()
    >>> mcmc = MCMC(regbayes.zoo["svm"].kernels["slice"](), num_warmup=10, num_samples=20, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y, extra_fields=("log_joint",))
    >>> dt = to_datatree(mcmc, dims={"eta": ["feature"]}, coords={"feature": ["width", "height"]})
    >>> dt["posterior"]["eta"].dims, dt["sample_stats"]["lp"].shape
    (('chain', 'draw', 'feature'), (1, 20))
    """
    posterior = {site: np.asarray(value) for site, value in mcmc.get_samples(group_by_chain=True).items()}
    fields = mcmc.get_extra_fields(group_by_chain=True)
    stats = {_STATS.get(name, name): np.asarray(value) for name, value in fields.items() if np.ndim(value) == 2}
    if "potential_energy" in fields:  # an HMC run: the log joint up to the Jacobian of its transforms
        stats["lp"] = -stats.pop("potential_energy")
    data, settings = _arguments(mcmc)
    if np.any(getattr(mcmc.last_state, "overflow", False)):
        size = " or ".join(name for name in settings if name.startswith("max_")) or "the buffer's size"
        raise ValueError(f"a chain's buffer was full, so its draws are truncated; raise {size} and run again")
    groups = {"posterior": posterior, "sample_stats": stats, "constant_data": data}
    attrs = {
        "program": getattr(mcmc.sampler, "name", type(mcmc.sampler).__name__),
        "kernel": type(mcmc.sampler).__name__,
        "num_warmup": mcmc.num_warmup,
        "thinning": mcmc.thinning,
        **{f"argument_{name}": value for name, value in settings.items()},
        **({} if seed is None else {"seed": seed}),
        "inference_library": "regbayes",
        **{f"{module.__name__}_version": module.__version__ for module in (jax, numpyro)},
    }
    known = {name: list(axes) for name, axes in (dims or {}).items()}
    if unknown := [name for name in known if name not in posterior and name not in data]:
        raise ValueError(f"dims names {unknown}, found sites {list(posterior)} and data {list(data)}")
    return from_dict(
        {name: group for name, group in groups.items() if group},
        dims=known,
        coords={name: np.asarray(values) for name, values in (coords or {}).items()},
        attrs={"/": attrs, "posterior": attrs},
    )


_STATS = {"log_joint": "lp"}


def _arguments(mcmc: MCMC) -> tuple[dict[str, np.ndarray], dict[str, float | int | str]]:
    """The program's arguments, apart: arrays, and scalar hyper-parameters, defaults filled in."""
    args, kwargs = mcmc._args, mcmc._kwargs  # NumPyro keeps them for itself
    model = getattr(mcmc.sampler, "model", None)
    if model is None:
        return {}, {}
    bound = inspect.signature(model).bind(*args, **kwargs)
    bound.apply_defaults()
    given = {name: value for name, value in bound.arguments.items() if value is not None}
    values = {part: value for name, whole in given.items() for part, value in _parts(name, whole).items()}
    arrays = {name: np.asarray(value) for name, value in values.items() if np.ndim(value) > 0}
    scalars = {name: value for name, value in values.items() if name not in arrays and np.ndim(value) == 0}
    return arrays, {
        name: str(value) if isinstance(value, str | Distribution) else np.asarray(value).item()
        for name, value in scalars.items()
    }


def _parts(name: str, value: Any) -> dict[str, Any]:
    """The arrays that a sparse matrix or a corpus is made of, under their own names; else the value."""
    if scipy.sparse.issparse(value):
        value = value.tocsr()
        fields = {"data": value.data, "indices": value.indices, "indptr": value.indptr, "shape": value.shape}
    elif dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        return {name: value}
    return {f"{name}_{field}": part for field, part in fields.items()}
