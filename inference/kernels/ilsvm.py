"""Kernels of the infinite latent SVM (:mod:`regbayes.models.ilsvm`), and predictions for new inputs."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from ...models import HingeOmega, InformationNormal, ilsvm
from ...models.ilsvm import appended_inputs
from ...models.laws.arguments import check_features, check_labels
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, CommonShift, Conditional, Move
from ..engine.predictions import Prediction
from ..engine.target import Sites
from ..moves.augmentation import weight_information
from ..moves.features import (
    FeatureFlips,
    Features,
    FeatureSweep,
    Margin,
    alpha_given_features,
    loadings_given_features,
    num_features,
)
from ..moves.slices import Rescale
from ..moves.sticks import StickSlices
from . import ibp, multiclass_svm
from .isvm import there, value_of

COVERED_BY = "tests/inference/kernels/test_ilsvm.py::test_features_by_enumeration"

OWN = 8
"""The most features that a new input has to itself."""


def features(z: Sites, X, y, *, cost, ell, extra_features, intercept, **settings) -> Features:
    """The program to the moves over features: that of ``ibp`` with a margin."""
    program = ibp.features(z, X, **settings)
    if y is None:
        return program
    y = check_labels(y, len(program.rows), len(z["eta"]))[0]
    appended = appended_inputs(program.rows, extra_features, intercept)
    return program._replace(margin=class_margin(z["eta"], z["Z"].shape[1], appended, y, cost, ell))


def class_margin(eta: jax.Array, num_slots: int, appended: jax.Array, y: jax.Array, cost, ell) -> Margin:
    """``-2 c [max_y (ell 1[y != y_n] + s_y) - s_{y_n}]``: a row of ``Z`` has a say in the scores of its datum."""
    weights, base = eta[:, :num_slots].T, appended @ eta[:, num_slots:].T

    def log_factor(i: jax.Array, s: jax.Array) -> jax.Array:
        own = jnp.arange(s.shape[-1]) == y[i]
        return -2 * cost * (jnp.max(s + ell * ~own, axis=-1) - jnp.sum(jnp.where(own, s, 0.0), axis=-1))

    return Margin(
        lambda Z: Z @ weights + base,
        lambda scores, i: scores[i],
        lambda scores, i, new: scores.at[i].set(new),
        lambda i: weights,
        log_factor,
        lambda scores: jnp.sum(jax.vmap(log_factor)(jnp.arange(len(y)), scores)),
    )


def rows(k, z: Sites, X, y, *, ell, extra_features, intercept, **_) -> tuple[jax.Array, jax.Array]:
    """``zeta_n = tau_n - a_n'eta_k`` with ``a_n = +-g_n``, given the other classes' weights."""
    X = check_features(X)
    inputs = jnp.concatenate([z["Z"].astype(X.dtype), appended_inputs(X, extra_features, intercept)], axis=1)
    return multiclass_svm.rows(k, z["eta"], inputs, y, ell, intercept=False)


def omega_given_eta(k, z: Sites, X, y, *, cost, **settings) -> HingeOmega:
    """``1/omega_n ~ IG(1/(c|zeta_n|), 1)`` for the hinge that the loss is in ``eta_k``."""
    A, tau = rows(k, z, X, y, **settings)
    return HingeOmega(cost * jnp.abs(tau - A @ z["eta"][k])).to_event(1)


def eta_given_omega(k, omega: jax.Array, z: Sites, X, y, *, cost, prior_scale, **settings) -> InformationNormal:
    """``N(P^-1 h, P^-1)``: ``P = I/nu^2 + c^2 sum g g'/omega``; where no datum has a feature, the prior."""
    A, tau = rows(k, z, X, y, **settings)
    return InformationNormal(*weight_information(A, tau, omega, cost, jnp.asarray(prior_scale, A.dtype) ** -2.0))


def mean_eta(z: Sites, X, y, *, prior_scale, **_) -> Distribution:
    """``N(0, nu^2/L I)``: a shift common to all classes changes no loss."""
    L, p = z["eta"].shape
    return dist.Normal(0.0, prior_scale / L**0.5).expand([p]).to_event(1)


def ilsvm_collapsed(model: Callable = ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Row after row with the loadings and the sticks integrated out, flips of several entries, weights class by class.

    The one to use.

    :param model: the program, with structural options bound: ``functools.partial(ilsvm, max_features=64)``.
    :param overrelaxation: of the weights' draws.
    """
    moves = [
        *_weights(overrelaxation),
        FeatureSweep(features, covered_by=COVERED_BY),
        FeatureFlips(features, covered_by=COVERED_BY),
    ]
    return MoveKernel(model, moves, name="ilsvm collapsed", num_active=num_features)


def ilsvm_slice(model: Callable = ilsvm, *, overrelaxation: float = 0.5) -> MoveKernel:
    """Slice sampling of the sticks given the loadings, all rows of a feature at once; loadings; weights.

    :param model: the program, with structural options bound: ``functools.partial(ilsvm, max_features=64)``.
    :param overrelaxation: of the weights' draws.
    """
    moves = [
        *_weights(overrelaxation),
        StickSlices(features, covered_by=COVERED_BY),
        Conditional("W", loadings_given_features(features)),
    ]
    return MoveKernel(model, moves, name="ilsvm slice", num_active=num_features)


def _weights(overrelaxation: float) -> list[Move]:
    """The moves of the weights, and of ``alpha``."""
    return [
        Augmented("eta", omega_given_eta, eta_given_omega, rows=True, overrelaxation=overrelaxation),
        CommonShift("eta", mean_eta),
        Rescale("eta"),
        Conditional("concentration", alpha_given_features, when=there),
    ]


def ilsvm_predict(
    draws: Sites,
    X: ArrayLike,
    *,
    num_sweeps: int = 5,
    seed: int = 0,
    concentration: ArrayLike | Distribution = 1.0,
    noise_scale: ArrayLike = 1.0,
    feature_scale: ArrayLike = 1.0,
    extra_features: bool = False,
    intercept: bool = True,
    each: bool = False,
    **_: object,
) -> Prediction:
    """Classes of new inputs: the largest of the scores averaged over draws, and how the draws' votes are shared out.

    A new datum has feature ``k`` of a draw with the prior odds ``m_k/(n + 1 - m_k)``, and features of its own, which
    favour no class; its features are drawn by sweeps given the draw's loadings, all data at once.

    :param draws: sites ``Z`` (S, n, M), ``W`` (S, d, M), ``eta`` (S, L, ...), and ``concentration`` where it had a
        prior, as from ``MCMC.get_samples()``.
    :param X: (n', d) new inputs.
    :param num_sweeps: over the features of new data for each draw; the next draw goes on from there.
    :param seed: seed of the sweeps.
    :param concentration: it and the others as the program was given them; what the draws tell is not read.
    :param each: what each draw says, with a leading axis, instead of the average.
    :return: labels (n',), averaged scores (n', L), votes (n', L).

    **Example**: see :func:`regbayes.models.ilsvm`.
    """
    sites = check_feature_draws(draws, isinstance(concentration, Distribution))
    X = check_features(X)
    appended = appended_inputs(X, extra_features, intercept)
    (num, n, M), d, L = sites["Z"].shape, sites["W"].shape[1], sites["eta"].shape[1]
    if X.shape[1] != d or M + appended.shape[1] != sites["eta"].shape[2]:
        raise ValueError(
            f"X must have {d} columns, extra_features and intercept must be as in the fit, found shape {X.shape}"
        )
    alphas = jnp.broadcast_to(value_of("concentration", concentration, sites), (num,))
    ridge = (noise_scale / feature_scale) ** 2
    j = jnp.arange(OWN + 1)

    def log_residual(square: jax.Array, alpha: jax.Array) -> jax.Array:
        """Of residuals' squares, the number of own features summed out."""
        log_prior = j * jnp.log(alpha / (n + 1)) - gammaln(j + 1.0)
        spread = j / ridge
        logs = -d / 2 * jnp.log1p(spread) - square[:, None] / (2 * noise_scale**2 * (1 + spread))
        return jax.nn.logsumexp(log_prior + logs, axis=1)

    def visit(carry: tuple, draw: tuple) -> tuple:
        Z_new, f_sum, votes = carry
        key, sites, alpha = draw
        counts, W = jnp.sum(sites["Z"], axis=0), sites["W"]
        Z_new = jnp.where(counts > 0, Z_new, 0.0)
        log_odds = jnp.log(counts) - jnp.log(n + 1.0 - counts)
        uniforms = random.uniform(key, (num_sweeps * M, len(X)), X.dtype)

        def entry(step: jax.Array, carry: tuple) -> tuple:
            Z_new, residual = carry
            k = step % M
            residual = residual + Z_new[:, k, None] * W[:, k]
            squares = [jnp.sum((residual - w) ** 2, axis=1) for w in (W[:, k], 0.0)]
            logs = [log_residual(square, alpha) for square in squares]
            new = (uniforms[step] < jax.nn.sigmoid(log_odds[k] + logs[0] - logs[1])).astype(X.dtype)
            return Z_new.at[:, k].set(new), residual - new[:, None] * W[:, k]

        Z_new, _ = lax.fori_loop(0, num_sweeps * M, entry, (Z_new, X - Z_new @ W.T))
        f = jnp.concatenate([Z_new, appended], axis=1) @ sites["eta"].T
        vote = jax.nn.one_hot(jnp.argmax(f, axis=1), L, dtype=f.dtype)
        return (Z_new, f_sum + f, votes + vote), (f, vote) if each else None

    zeros = jnp.zeros((len(X), L), X.dtype)
    start = (jnp.zeros((len(X), M), X.dtype), zeros, zeros)
    steps = (random.split(random.key(seed), num), sites, alphas)
    (_, f, votes), every = jax.jit(lambda steps: lax.scan(visit, start, steps))(steps)
    if each:
        return Prediction(jnp.argmax(every[0], axis=-1), *every)
    return Prediction(jnp.argmax(f, axis=1), f / num, votes / num)


def check_feature_draws(draws: Sites, has_prior: bool = False) -> Sites:
    """The draws as arrays, if they have the sites of a feature model, one leading axis, and a free slot."""
    sites = ("Z", "W", "eta")
    if missing := [site for site in sites if site not in draws]:
        raise ValueError(f"draws must hold the sites {', '.join(sites)}, found no {', '.join(missing)}")
    if jnp.ndim(draws["Z"]) != 3:
        raise ValueError(f"draws must have one leading axis, found Z of shape {jnp.shape(draws['Z'])}; flatten chains")
    if has_prior and "concentration" not in draws:
        raise ValueError("concentration has a prior but draws have no site for it; give a number")
    M = jnp.shape(draws["Z"])[2]
    if jnp.any(jnp.sum(jnp.any(jnp.asarray(draws["Z"]) > 0, axis=1), axis=1) == M):
        raise ValueError(f"draws fill their buffer of {M} slots, so they may be truncated; raise max_features")
    names = [*sites, *(["concentration"] if "concentration" in draws else [])]
    return {site: jnp.asarray(draws[site]) for site in names}
