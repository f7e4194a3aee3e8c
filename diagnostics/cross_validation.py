r"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, for the models that have a likelihood.

A mixture's datum comes with a label of its own. Importance sampling over that label fails; summed out it does not:
what stands for the likelihood of datum ``i`` in a draw is

.. math:: p(x_i | z_{-i}, \cdot) = \sum_k p(z_i = k | z_{-i})\, p(x_i | z_i = k, \cdot),

with the components of the draw (``dpmnl``), or with all other data where those are integrated out (``dpgmm``).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from arviz_stats import loo as arviz_loo
from jax import lax

from ..inference.engine.target import Sites
from ..inference.kernels.dpmnl import log_normal
from ..inference.moves.gaussian_hyper import component_prior
from ..inference.moves.hyper import value_of
from ..models.laws.arguments import check_features
from ..models.laws.normal_wishart import cluster_statistics, log_student
from .structure import arguments_of, flat_draws

TIES = 1e-6
"""In nats, how far equal log densities are moved apart."""
PSEUDO = (
    "isvm",
    "svm",
    "multiclass_svm",
    "svr",
    "dpmmgm",
    "mmctm",
    "medlda",
    "medlda_regression",
    "ilsvm",
    "mt_ilsvm",
)


def loo(dt: xr.DataTree, *, pointwise: bool = False) -> Any:
    """The expected log predictive density of a new datum's, by leave-one-out, with ArviZ's warnings on its Pareto k.

    Of the programs ``dpgmm`` and ``dpmnl``. A max-margin factor is a pseudo-likelihood: it is not normalised over the
    labels, so that there is no predictive density to estimate; compare such models by :func:`predictive` on held-out
    data. In ``ibp``, ``ctm`` and the other topic models a datum has many latent variables of its own, over which
    importance sampling fails.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param pointwise: also each datum's share and its Pareto k.
    :return: ArviZ's ``ELPDData``; ``elpd``, ``se``, ``p`` and, pointwise, ``elpd_i`` and ``pareto_k``.

    **Example**: all data in one cluster.

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import loo
    >>> X = np.random.default_rng(0).normal(size=(20, 2))
    >>> dt = from_dict({"posterior": {"z": np.zeros((2, 100, 20), int)}, "constant_data": {"X": X}})
    >>> arguments = {"max_clusters": 4, "concentration": 1.0, "prior_mean": 0.0, "prior_count": 0.1, "scatter": 1.0}
    >>> dt.attrs = {"program": "dpgmm", **{f"argument_{name}": value for name, value in arguments.items()}}
    >>> int(loo(dt).n_data_points)
    20
    """
    program = dt.attrs.get("program")
    if program in PSEUDO:
        raise ValueError(
            f"the program {program!r} has a max-margin factor, a pseudo-likelihood that is not normalised over labels: "
            "it has no predictive density to cross-validate; compare by predictive(dt, X, y) on held-out data"
        )
    if program not in LIKELIHOODS:
        raise ValueError(
            f"loo is for {' and '.join(LIKELIHOODS)}, found the program {program!r}: where a datum has many latent "
            "variables of its own, importance sampling over them fails; hold data out instead"
        )
    logs = log_likelihood(dt)
    # Draws of one partition have equal weights, through which no Pareto tail can be laid.
    logs = logs + np.random.default_rng(0).uniform(0, TIES, logs["datum"].shape)
    reff = None if dt["posterior"].sizes["chain"] > 1 else 1.0
    tree = xr.DataTree.from_dict({"posterior": dt["posterior"].to_dataset(), "log_likelihood": logs})
    return arviz_loo(tree, pointwise=pointwise, var_name="datum", reff=reff)


def log_likelihood(dt: xr.DataTree) -> xr.Dataset:
    """(chain, draw, datum) log of ``p(x_i | z_-i, ...)``, labels included where the model has them."""
    posterior = dt["posterior"].to_dataset()
    draws = flat_draws(posterior)
    settings = {name: value for name, value in arguments_of(dt).items() if name not in draws}
    logs = np.asarray(LIKELIHOODS[dt.attrs["program"]](draws, settings))
    logs = logs.reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)
    coords = {dim: posterior[dim] for dim in ("chain", "draw")}
    return xr.Dataset({"datum": (("chain", "draw", "case"), logs)}, coords)


def _dpgmm(draws: Sites, settings: dict[str, Any]) -> jax.Array:
    X = check_features(settings["X"])
    n, M = len(X), settings["max_clusters"]

    def one(sites: Sites) -> jax.Array:
        names = ("prior_mean", "prior_count", "degrees_of_freedom", "scatter")
        prior = component_prior(sites, X, *(settings.get(name) for name in names))
        alpha = value_of("concentration", settings.get("concentration", 1.0), sites)
        size, mean, scatter = cluster_statistics(X, sites["z"], M)
        posterior = prior.given(size, mean, scatter)

        def datum(x: jax.Array, k: jax.Array) -> jax.Array:
            # Its own cluster without it.
            left = size[k] - 1
            shift = x - mean[k]
            rest_mean = jnp.where(left > 0, mean[k] - shift / jnp.maximum(left, 1), prior.mean)
            rest = scatter[k] - size[k] / jnp.maximum(left, 1) * jnp.outer(shift, shift)
            own = prior.given(left, rest_mean, jnp.where(left > 0, rest, 0.0))
            logs = log_student(posterior, x[None])[:, 0].at[k].set(log_student(own, x[None])[0])
            sizes = size.at[k].set(left)
            old = jax.nn.logsumexp(jnp.where(sizes > 0, jnp.log(sizes) + logs, -jnp.inf))
            return jnp.logaddexp(old, jnp.log(alpha) + log_student(prior, x[None])[0]) - jnp.log(n - 1 + alpha)

        return jax.vmap(datum)(X, sites["z"])

    return jax.jit(lambda draws: lax.map(one, draws))(draws)


def _dpmnl(draws: Sites, settings: dict[str, Any]) -> jax.Array:
    X, y = check_features(settings["X"]), jnp.asarray(settings["y"])
    A = check_features(settings["X"], intercept=bool(settings["intercept"]))
    n, M = len(X), settings["max_clusters"]

    def one(sites: Sites) -> jax.Array:
        alpha = value_of("concentration", settings.get("concentration", 1.0), sites)
        own = jax.nn.one_hot(sites["z"], M, dtype=X.dtype)
        sizes = jnp.sum(own, axis=0) - own  # (n, M), each datum left out
        # An empty slot has parameters from the prior and an equal share of what a new cluster has.
        shares = jnp.where(sizes > 0, sizes, alpha / jnp.sum(sizes == 0, axis=1, keepdims=True))
        log_p = jax.nn.log_softmax(jnp.einsum("kld,nd->nkl", sites["beta"], A), axis=-1)
        log_labels = jnp.take_along_axis(log_p, y[:, None, None], axis=2)[..., 0]
        logs = log_normal(sites["mu"], sites["sigma2"], X).T + log_labels
        return jax.nn.logsumexp(jnp.log(shares) + logs, axis=1) - jnp.log(n - 1 + alpha)

    return jax.jit(lambda draws: lax.map(one, draws))(draws)


LIKELIHOODS = {"dpgmm": _dpgmm, "dpmnl": _dpmnl}
