"""Kernels of the Dirichlet process mixture of Gaussians (:mod:`regbayes.models.dpgmm`), and what its draws tell."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import multigammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from ...models import TruncatedPoisson, dpgmm
from ...models.laws.arguments import check_features
from ...models.laws.normal_wishart import (
    IntegerLaw,
    NormalWishart,
    cluster_statistics,
    log_determinant,
    log_student,
    normal_wishart,
    split_components,
)
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, Conditional, Move
from ..engine.predictions import PREDICT_BLOCK, check_draws
from ..engine.target import Sites
from ..moves.gaussian_clusters import Clusters, CollapsedSlice, CollapsedSweep, mixture_of, num_clusters
from ..moves.labels import Mixture, counts_of
from ..moves.scatter_lines import ScatterGiven, ScatterLines, precisions_of
from ..moves.split_merge import SplitMerge
from . import isvm
from .isvm import conjugate, there, value_of

COVERED_BY = "tests/inference/kernels/test_dpgmm.py::test_partitions_by_enumeration"


def component_prior(z: Sites, X: jax.Array, prior_mean, prior_count, degrees_of_freedom, scatter) -> NormalWishart:
    """The prior of the components at the current hyper-parameters."""
    values = {"prior_count": prior_count, "degrees_of_freedom": degrees_of_freedom, "scatter": scatter}
    return normal_wishart(X, prior_mean, *(z.get(name, value) for name, value in values.items()))


def clusters(
    z: Sites, X, *, max_clusters, concentration, prior_mean, prior_count, degrees_of_freedom, scatter, **_
) -> Clusters:
    """The program to the moves: data and prior about the middle of the data."""
    X = check_features(X)
    prior, origin = component_prior(z, X, prior_mean, prior_count, degrees_of_freedom, scatter), X.mean(0)
    alpha = value_of("concentration", concentration, z)
    return Clusters(X - origin, prior._replace(mean=prior.mean - origin), alpha, max_clusters)


def mixture(z: Sites, X, **settings) -> Mixture:
    """The program to split-merge moves: one part, integrated out."""
    return mixture_of(clusters(z, X, **settings), explicit=False)


def components_given_z(z: Sites, X, **settings) -> Distribution:
    """The occupied clusters' normal-inverse-Wishart posteriors; the empty slots count for nothing."""
    program = clusters(z, X, **settings)
    return program.posterior(z["z"]).law().mask(counts_of(z["z"], program.num_slots) > 0)


def count_given_components(components: jax.Array, rest: Sites, X, *, prior_count, **settings) -> Distribution:
    """``Gamma(a + K d/2, b + sum_k (mu_k - m)' Lambda_k^-1 (mu_k - m)/2)`` of ``r``."""
    law = conjugate("prior_count", prior_count, dist.Gamma)
    program = clusters({**rest, "prior_count": jnp.ones(())}, X, prior_count=prior_count, **settings)
    occupied = counts_of(rest["z"], program.num_slots) > 0
    C, mu = split_components(components)
    white = jnp.einsum("kde,kd->ke", C, mu - program.prior.mean)
    squares = jnp.sum(jnp.where(occupied[:, None], white**2, 0.0))
    return dist.Gamma(law.concentration + jnp.sum(occupied) * mu.shape[1] / 2, law.rate + squares / 2)


def scatter_given_components(components: jax.Array, rest: Sites, X, *, scatter, **settings) -> ScatterGiven:
    """``|S|^((K nu - nu_0 - d - 1)/2) exp(-tr(P S)/2 - tr(R S^-1)/2)`` under ``S ~ IW(R, nu_0)``."""
    law = conjugate("scatter", scatter, dist.InverseWishart)
    d = components.shape[-2]
    program = clusters({**rest, "scatter": jnp.eye(d)}, X, scatter=scatter, **settings)
    occupied = counts_of(rest["z"], program.num_slots) > 0
    exponent = (jnp.sum(occupied) * program.prior.degrees - law.concentration - d - 1) / 2
    return ScatterGiven(exponent, precisions_of(components, occupied), law.scale_matrix)


def degrees_given_z(rest: Sites, X, *, degrees_of_freedom, **settings) -> Distribution:
    """``nu`` with the components integrated out, over all of its values."""
    law = conjugate("degrees_of_freedom", degrees_of_freedom, TruncatedPoisson)
    program = clusters({**rest, "degrees_of_freedom": law.low}, X, degrees_of_freedom=degrees_of_freedom, **settings)
    size, *statistics = cluster_statistics(program.data, rest["z"], program.num_slots)
    posterior, d = program.prior.given(size, *statistics), program.data.shape[1]
    log_dets = log_determinant(posterior.scatter) - log_determinant(program.prior.scatter)

    def log_evidence(nu: jax.Array) -> jax.Array:
        terms = multigammaln((nu + size) / 2, d) - multigammaln(nu / 2, d) - nu / 2 * log_dets
        return jnp.sum(jnp.where(size > 0, terms, 0.0))

    values = jnp.arange(law.low, law.high + 1).astype(size.dtype)
    return IntegerLaw(law.logits + lax.map(log_evidence, values), law.low)


def alpha_auxiliary(z: Sites, X, **settings) -> Distribution:
    """Escobar and West's variable, ``Beta(alpha + 1, n)``."""
    return isvm.alpha_auxiliary(z, X, None, **settings)


def alpha_given_auxiliary(x: jax.Array, rest: Sites, X, **settings) -> Distribution:
    """The mixture of two gammas of :func:`regbayes.inference.kernels.isvm.alpha_given_auxiliary`."""
    return isvm.alpha_given_auxiliary(x, rest, X, None, **settings)


def hyper_moves() -> list[Move]:
    """Of the hyper-parameters that have priors."""
    return [
        Augmented("concentration", alpha_auxiliary, alpha_given_auxiliary, when=there),
        Augmented("prior_count", components_given_z, count_given_components, when=there),
        ScatterLines("scatter", components_given_z, scatter_given_components, when=there),
        Conditional("degrees_of_freedom", degrees_given_z, when=there),
    ]


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

    :param model: the program, with structural options bound: ``functools.partial(dpgmm, max_clusters=128)``.
    :param split_merge: proposals of :class:`~regbayes.inference.SplitMerge` per sweep.
    """
    return _kernel(model, CollapsedSlice(clusters, covered_by=COVERED_BY), split_merge, "dpgmm slice")


def _kernel(model: Callable, labels: Move, split_merge: int, name: str) -> MoveKernel:
    moves = [
        *hyper_moves(),
        labels,
        *([SplitMerge(mixture, ("z",), split_merge, covered_by=COVERED_BY)] if split_merge else []),
    ]
    return MoveKernel(model, moves, name=name, num_active=num_clusters)


def dpgmm_log_density(
    draws: Sites,
    X: ArrayLike,
    X_new: ArrayLike,
    *,
    max_clusters: int = 64,
    concentration: ArrayLike | Distribution = 1.0,
    prior_mean: ArrayLike = 0.0,
    prior_count: ArrayLike | Distribution = 0.1,
    degrees_of_freedom: ArrayLike | Distribution | None = None,
    scatter: ArrayLike | Distribution = 1.0,
) -> jax.Array:
    r"""Log of the posterior predictive density at new points, components integrated out.

    .. math:: p(x | X) = \frac{1}{S} \sum_s \frac{1}{n + \alpha} \Big[\sum_k n_k\,t(x | X_k) + \alpha\,t(x)\Big]

    :param draws: the site ``z`` (S, n) and those of hyper-priors, as from ``MCMC.get_samples()``.
    :param X: (n, d) the data of the fit.
    :param X_new: (n', d) new points.
    :param max_clusters: it and the others as the program was given them.
    :return: (n',).

    **Example**: see :func:`regbayes.models.dpgmm`.
    """
    settings = {
        "concentration": concentration,
        "prior_mean": prior_mean,
        "prior_count": prior_count,
        "degrees_of_freedom": degrees_of_freedom,
        "scatter": scatter,
    }
    sites, X, fixed = _checked(draws, X, max_clusters, settings)
    X_new = check_features(X_new)
    if X_new.shape[1] != X.shape[1]:
        raise ValueError(f"X_new must have {X.shape[1]} columns as X, found {X_new.shape[1]}")
    return _log_density(sites, X, X_new, fixed, max_clusters=max_clusters)


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


def dpgmm_components(
    rng_key: jax.Array,
    draws: Sites,
    X: ArrayLike,
    *,
    max_clusters: int = 64,
    prior_mean: ArrayLike = 0.0,
    prior_count: ArrayLike | Distribution = 0.1,
    degrees_of_freedom: ArrayLike | Distribution | None = None,
    scatter: ArrayLike | Distribution = 1.0,
) -> Sites:
    """The clusters' means and covariances, drawn given each partition; a slot without data has them from the prior.

    :param rng_key: random key.
    :param draws: as for :func:`dpgmm_log_density`; those of ``dpmmgm`` serve as well.
    :param X: (n, d) the data of the fit.
    :param max_clusters: it and the others as the program was given them.
    :return: ``counts`` (S, M), ``mu`` (S, M, d) and ``Lambda`` (S, M, d, d).

    **Example**

    >>> import numpy as np
    >>> from jax import random
    >>> from regbayes.inference import dpgmm_components
    >>> X, draws = np.eye(4), {"z": np.array([[0, 0, 1, 1]])}
    >>> dpgmm_components(random.key(0), draws, X, max_clusters=3)["Lambda"].shape
    (1, 3, 4, 4)
    """
    settings = {
        "prior_mean": prior_mean,
        "prior_count": prior_count,
        "degrees_of_freedom": degrees_of_freedom,
        "scatter": scatter,
    }
    sites, X, fixed = _checked(draws, X, max_clusters, settings)

    def one(draw: tuple[jax.Array, Sites]) -> Sites:
        key, sites = draw
        program = clusters(sites, X, max_clusters=max_clusters, concentration=1.0, **fixed)
        C, mu = split_components(program.posterior(sites["z"]).law().sample(key))
        eye = jnp.broadcast_to(jnp.eye(X.shape[1], dtype=C.dtype), C.shape)
        root = lax.linalg.triangular_solve(C, eye, left_side=True, lower=True)
        Lambda = jnp.swapaxes(root, -1, -2) @ root
        return {"counts": counts_of(sites["z"], max_clusters), "mu": mu + X.mean(0), "Lambda": Lambda}

    return lax.map(one, (random.split(rng_key, len(sites["z"])), sites))


def _checked(draws: Sites, X: ArrayLike, max_clusters: int, settings: dict) -> tuple[Sites, jax.Array, dict]:
    """The draws as arrays, the data, and the settings with those that are sites of the draws left out."""
    X = check_features(X)
    priors = {name: isinstance(value, Distribution) for name, value in settings.items()}
    sites = check_draws(draws, ["z"], priors, slots=max_clusters)
    if sites["z"].shape[1] != len(X):
        raise ValueError(f"draws must label the {len(X)} rows of X, found z of shape {sites['z'].shape}")
    return sites, X, {name: None if name in sites else value for name, value in settings.items()}


def dpgmm_log_likelihood(draws: Sites, arguments: dict) -> jax.Array:
    """(S, n) ``log p(x_i | x_-i, z_-i)``: its label summed out, the components integrated out given all others."""
    X = check_features(arguments["X"])
    n, M = len(X), arguments["max_clusters"]

    def one(sites: Sites) -> jax.Array:
        given = {**arguments, **sites}
        values: list = [given.get(name) for name in ("prior_mean", "prior_count", "degrees_of_freedom", "scatter")]
        prior, alpha = normal_wishart(X, *values), given["concentration"]
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
