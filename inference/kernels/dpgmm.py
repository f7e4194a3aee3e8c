"""Kernels of the Dirichlet process mixture of Gaussians (:mod:`regbayes.models.dpgmm`), and what its draws tell."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.typing import ArrayLike

from ...models import dpgmm
from ...models.laws.arguments import check_features
from ...models.laws.normal_wishart import cluster_statistics, log_student, normal_wishart, split_components
from ..engine.compiled import over_rows
from ..engine.kernel import MoveKernel
from ..engine.move import Move
from ..engine.predictions import PREDICT_BLOCK, check_draws, with_defaults
from ..engine.target import Sites
from ..moves.gaussian_clusters import Clusters, CollapsedSlice, CollapsedSweep, mixture_of, num_clusters
from ..moves.gaussian_hyper import clusters, hyper_moves
from ..moves.given import given
from ..moves.labels import Mixture, counts_of
from ..moves.split_merge import SplitMerge

COVERED_BY = "tests/inference/kernels/test_dpgmm.py::test_partitions_by_enumeration"


@given(clusters)
def mixture(z: Sites, program: Clusters) -> Mixture:
    """The program to split-merge moves: one part, integrated out."""
    return mixture_of(program, explicit=False)


def dpgmm_collapsed(model: Callable = dpgmm, *, split_merge: int = 1) -> MoveKernel:
    """One label after the other by Student-t predictives.

    :param model: the program, with structural options bound: ``functools.partial(dpgmm, max_clusters=128)``.
    :param split_merge: proposals of :class:`~regbayes.inference.SplitMerge` per sweep.
    """
    return _kernel(model, CollapsedSweep(clusters, covered_by=COVERED_BY), split_merge, "dpgmm collapsed")


def dpgmm_slice(model: Callable = dpgmm, *, split_merge: int = 1) -> MoveKernel:
    """All labels at once given components and weights that do not outlive the move: the one for many data.

    Components drawn in ten dimensions or more hold on to their data: on the 178 of Wine, chains from different starts
    do not agree after 6,000 sweeps. For so few data take :func:`dpgmm_collapsed`.

    :param model: it and ``split_merge`` as for :func:`dpgmm_collapsed`.
    """
    return _kernel(model, CollapsedSlice(clusters, covered_by=COVERED_BY), split_merge, "dpgmm slice")


def _kernel(model: Callable, labels: Move, split_merge: int, name: str) -> MoveKernel:
    moves = [
        *hyper_moves(),
        labels,
        *([SplitMerge(mixture, ("z",), split_merge, covered_by=COVERED_BY)] if split_merge else []),
    ]
    return MoveKernel(model, moves, name=name, num_active=num_clusters)


def dpgmm_log_density(draws: Sites, X: ArrayLike, X_new: ArrayLike, **settings: Any) -> jax.Array:
    r"""Log of the posterior predictive density at new points, components integrated out.

    .. math:: p(x | X) = \frac{1}{S} \sum_s \frac{1}{n + \alpha} \Big[\sum_k n_k\,t(x | X_k) + \alpha\,t(x)\Big]

    :param draws: the site ``z`` (S, n) and those of hyper-priors, as from ``MCMC.get_samples()``.
    :param X: (n, d) the data of the fit.
    :param X_new: (n', d) new points.
    :param settings: keywords of :func:`regbayes.models.dpgmm`, as it was given them.
    :return: (n',).

    **Example**: see :func:`regbayes.models.dpgmm`.
    """
    sites, X, fixed = _checked(draws, X, settings)
    X_new = check_features(X_new)
    if X_new.shape[1] != X.shape[1]:
        raise ValueError(f"X_new must have {X.shape[1]} columns as X, found {X_new.shape[1]}")
    return _log_density(sites, X, X_new, fixed, max_clusters=fixed.pop("max_clusters"))


@functools.partial(jax.jit, static_argnames="max_clusters")
def _log_density(draws: Sites, X: jax.Array, X_new: jax.Array, fixed: dict, *, max_clusters: int) -> jax.Array:
    """(n',) draw by draw, in blocks of rows, so that memory does not grow with either."""

    def add(total: jax.Array, sites: Sites) -> tuple[jax.Array, None]:
        program = clusters(sites, X, max_clusters=max_clusters, **fixed)
        posterior = program.posterior(sites["z"])
        log_sizes = jnp.log(counts_of(sites["z"], max_clusters).astype(X.dtype))
        alpha = program.concentration

        def one(x: jax.Array) -> jax.Array:
            old = log_sizes + log_student(posterior, x[None])[:, 0]
            new = jnp.log(alpha) + log_student(program.prior, x[None])[0]
            return jnp.logaddexp(jax.nn.logsumexp(old), new) - jnp.log(len(X) + alpha)

        return jnp.logaddexp(total, lax.map(one, X_new - X.mean(0), batch_size=PREDICT_BLOCK)), None

    start = jnp.full(len(X_new), -jnp.inf, X_new.dtype)
    return lax.scan(add, start, draws)[0] - jnp.log(len(draws["z"]))


def dpgmm_components(rng_key: jax.Array, draws: Sites, X: ArrayLike, **settings: Any) -> Sites:
    """The clusters' means and covariances, drawn given each partition; a slot without data has them from the prior.

    :param rng_key: random key.
    :param draws: as for :func:`dpgmm_log_density`; those of ``dpmmgm`` serve as well.
    :param X: (n, d) the data of the fit.
    :param settings: as for :func:`dpgmm_log_density`.
    :return: ``counts`` (S, M), ``mu`` (S, M, d) and ``Lambda`` (S, M, d, d).

    **Example**

    >>> import numpy as np
    >>> from jax import random
    >>> from regbayes.inference import dpgmm_components
    >>> X, draws = np.eye(4), {"z": np.array([[0, 0, 1, 1]])}
    >>> dpgmm_components(random.key(0), draws, X, max_clusters=3)["Lambda"].shape
    (1, 3, 4, 4)
    """
    sites, X, fixed = _checked(draws, X, settings)

    def one(draw: tuple[jax.Array, Sites]) -> Sites:
        key, sites = draw
        program = clusters(sites, X, **fixed)
        C, mu = split_components(program.posterior(sites["z"]).law().sample(key))
        eye = jnp.broadcast_to(jnp.eye(X.shape[1], dtype=C.dtype), C.shape)
        root = lax.linalg.triangular_solve(C, eye, left_side=True, lower=True)
        Lambda = jnp.swapaxes(root, -1, -2) @ root
        return {"counts": counts_of(sites["z"], program.num_slots), "mu": mu + X.mean(0), "Lambda": Lambda}

    return lax.map(one, (random.split(rng_key, len(sites["z"])), sites))


def _checked(draws: Sites, X: ArrayLike, settings: dict[str, Any]) -> tuple[Sites, jax.Array, dict[str, Any]]:
    """The draws as arrays, the data, and the program's settings without those that are sites of the draws."""
    X, settings = check_features(X), with_defaults(dpgmm, settings)
    sites = check_draws(draws, ["z"], settings, slots=settings["max_clusters"])
    if sites["z"].shape[1] != len(X):
        raise ValueError(f"draws must label the {len(X)} rows of X, found z of shape {sites['z'].shape}")
    return sites, X, {name: None if name in sites else value for name, value in settings.items()}


def dpgmm_log_likelihood(draws: Sites, arguments: dict) -> jax.Array:
    """(S, n) ``log p(x_i | x_-i, z_-i)``: its label summed out, the components integrated out given all others."""
    return over_rows(_log_likelihood, draws, arguments)


def _log_likelihood(sites: Sites, arguments: dict) -> jax.Array:
    """(n,) of a draw."""
    X, given = check_features(arguments["X"]), {**arguments, **sites}
    values: list = [given.get(name) for name in ("prior_mean", "prior_count", "degrees_of_freedom", "scatter")]
    prior, alpha = normal_wishart(X, *values), given["concentration"]
    size, mean, scatter = cluster_statistics(X, sites["z"], arguments["max_clusters"])
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
        return jnp.logaddexp(old, jnp.log(alpha) + log_student(prior, x[None])[0]) - jnp.log(len(X) - 1 + alpha)

    return jax.vmap(datum)(X, sites["z"])
