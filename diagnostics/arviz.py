"""Posterior draws as ArviZ wants them: an ``xarray.DataTree`` with named dims, coords and attributes."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import scipy.sparse
import xarray as xr
from arviz_base import from_dict
from numpyro.distributions import Distribution
from numpyro.handlers import seed as seeded
from numpyro.handlers import substitute, trace
from numpyro.infer import MCMC

from .. import __version__
from ..inference.engine.compiled import over_rows
from ..inference.engine.target import outline
from ..models.factors import MARGIN
from .structure import card_of, dims_of, origin


def to_datatree(
    mcmc: MCMC,
    *,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    seed: int | None = None,
) -> xr.DataTree:
    """The draws of a finished run, with the kernel's diagnostics.

    Groups: ``posterior`` (the sites), ``sample_stats`` (``lp``, the program's log joint, where it was collected
    with ``extra_fields=("log_joint",)``; ``training_loss``, the mean loss that the program's max-margin factors give a
    datum; and every other collected field) and ``constant_data`` (the program's array arguments). Attributes name the
    model (as the zoo does), the program, the kernel, the hyper-parameters (those that are None are left out) and the
    versions.

    Max-margin factors do not appear as observed data, which they are not; that is why this uses ArviZ's
    ``from_dict`` and not its NumPyro converter. All of it goes through a file: ``dt.to_netcdf("fit.nc")``, later
    ``xarray.open_datatree("fit.nc")``.

    :param mcmc: after ``run``.
    :param dims: names of the axes of sites or data, without chain and draw, where the program does not declare them
        (``infer={"event_dims": [...]}``), or other ones. ``cluster``, ``topic`` and ``latent_feature`` say that an axis
        is numbered at will.
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
    overflow = bool(np.any(getattr(mcmc.last_state, "overflow", False)))
    return assemble(
        mcmc.sampler,
        mcmc.get_samples(group_by_chain=True),
        mcmc.get_extra_fields(group_by_chain=True),
        (mcmc._args, mcmc._kwargs),  # NumPyro keeps them for itself
        overflow=overflow,
        attrs={"num_warmup": mcmc.num_warmup, "thinning": mcmc.thinning, **({} if seed is None else {"seed": seed})},
        dims=dims,
        coords=coords,
    )


def assemble(
    sampler: Any,
    samples: Mapping[str, Any],
    fields: Mapping[str, Any],
    arguments: tuple[tuple, dict[str, Any]],
    *,
    overflow: bool,
    attrs: Mapping[str, Any],
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
) -> xr.DataTree:
    """The draws ``samples`` and the states' ``fields``, both (chain, draw, ...), of a kernel given its arguments."""
    posterior = {site: np.asarray(value) for site, value in samples.items()}
    stats = {_STATS.get(name, name): np.asarray(value) for name, value in fields.items() if np.ndim(value) == 2}
    if "potential_energy" in fields:  # an HMC run: the log joint up to the Jacobian of its transforms
        stats["lp"] = -stats.pop("potential_energy")
    model = getattr(sampler, "model", None)
    data, settings = _arguments(model, *arguments)
    if overflow:
        size = " or ".join(name for name in settings if name.startswith("max_")) or "the buffer's size"
        raise ValueError(f"a chain's buffer was full, so its draws are truncated; raise {size} and run again")
    first = {site: draws[0, 0] for site, draws in posterior.items()}
    sites = {} if model is None else outline(model, *arguments, first)
    if (loss := _training_loss(model, sites, posterior, arguments)) is not None:
        stats["training_loss"] = loss
    groups = {"posterior": posterior, "sample_stats": stats, "constant_data": data}
    card = card_of(attrs.get("model", model))
    attrs = {
        "model": "unknown" if card is None else card.name,
        "program": "unknown" if model is None else origin(model).__name__,
        "kernel": getattr(sampler, "name", type(sampler).__name__),
        **attrs,
        **{f"argument_{name}": value for name, value in settings.items()},
        "inference_library": "regbayes",
        "inference_library_version": __version__,
        **{f"{module.__name__}_version": module.__version__ for module in (jax, numpyro)},
    }
    if unknown := [name for name in dims or {} if name not in posterior and name not in data]:
        raise ValueError(f"dims names {unknown}, found sites {list(posterior)} and data {list(data)}")
    ranks = {**{k: v.ndim - 2 for k, v in posterior.items()}, **{k: v.ndim for k, v in data.items()}}
    known = {k: axes[: ranks[k]] for k, axes in (card.data if card else {}).items() if len(axes) >= ranks.get(k, 99)}
    known |= {k: axes for k, axes in dims_of(sites).items() if k in posterior}
    named = {name: list(axes) for name, axes in {**known, **(dims or {})}.items()}
    dt = from_dict(
        {name: group for name, group in groups.items() if group},
        dims=named,
        coords={name: np.asarray(values) for name, values in (coords or {}).items()},
        attrs={"/": attrs, "posterior": attrs},
    )
    for name, site in sites.items():
        if name in posterior and (labels := site.get("infer", {}).get("labels")):
            dt["posterior"][name].attrs["labels"] = labels
    return dt


_STATS = {"log_joint": "lp"}


def _arguments(
    model: Callable | None, args: tuple, kwargs: dict[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, float | int | str]]:
    """The program's arguments, apart: arrays, and scalar hyper-parameters, defaults filled in."""
    if model is None:
        return {}, {}
    bound = inspect.signature(model).bind(*args, **kwargs)
    bound.apply_defaults()
    given = {name: value for name, value in bound.arguments.items() if value is not None}
    values = {part: value for name, whole in given.items() for part, value in _parts(name, whole).items()}
    arrays = {name: np.asarray(value) for name, value in values.items() if np.ndim(value) > 0}
    return arrays, {name: _attribute(value) for name, value in values.items() if name not in arrays}


def _attribute(value: Any) -> float | int | str:
    """A hyper-parameter as files can hold it: a number (1 for True), or the text of a prior or a function's name."""
    if isinstance(value, Distribution):
        parameters = ", ".join(f"{name}={np.asarray(getattr(value, name))}" for name in value.arg_constraints)
        return f"{type(value).__name__}({parameters})"
    if isinstance(value, str) or callable(value):
        return getattr(value, "__name__", str(value))
    number = np.asarray(value).item()
    return int(number) if isinstance(number, bool) else number


def _training_loss(
    model: Any, sites: Mapping[str, Any], posterior: Mapping[str, np.ndarray], arguments: tuple[tuple, dict]
) -> Any:
    """(chain, draw) mean loss of a datum under the program's max-margin factors; None where there are none."""
    drawn = {name: site for name, site in sites.items() if site["type"] == "sample"}
    latent = [name for name, site in drawn.items() if not site["is_observed"]]
    margins = [name for name, site in drawn.items() if MARGIN in site["infer"]]
    if not margins or any(site not in posterior for site in latent):
        return None

    draws = {site: posterior[site].reshape(-1, *posterior[site].shape[2:]) for site in latent}
    args, kwargs = arguments
    losses = over_rows(functools.partial(_loss, model, tuple(margins)), draws, *args, **kwargs)
    return np.asarray(losses).reshape(posterior[latent[0]].shape[:2])


def _loss(
    model: Callable, margins: tuple[str, ...], draw: Mapping[str, jax.Array], /, *args: Any, **kwargs: Any
) -> jax.Array:
    """The mean loss of a datum at a draw."""
    found = trace(substitute(seeded(model, jax.random.key(0)), data=draw)).get_trace(*args, **kwargs)
    factors = [(found[name]["fn"].log_prob(found[name]["value"]), found[name]["infer"][MARGIN]) for name in margins]
    return sum((jnp.mean(-log_factor / (2 * margin["cost"])) for log_factor, margin in factors), jnp.zeros(()))


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
