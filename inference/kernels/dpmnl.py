"""The kernel of the Dirichlet process mixture of multinomial logits (:mod:`regbayes.models.dpmnl`), and predictions.

Each sweep redraws the components given the labels, all slots at once, then the labels one after the other. Inputs are
conjugate: a new cluster's mean and variances are integrated out of its weight, and drawn when it is born. The logits
are not: empty slots serve as auxiliary components (Neal's algorithm 8), and coefficients move by slice sampling.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from ...models.dpmnl import dpmnl, prior_of_inputs
from ...models.laws.arguments import check_features, check_labels
from ..engine.compiled import over_rows
from ..engine.kernel import MoveKernel
from ..engine.move import CommonShift, Conditional
from ..engine.predictions import PREDICT_BLOCK, Prediction, check_draws, new_inputs, with_defaults
from ..engine.target import Sites
from ..moves.fits import inverse_root
from ..moves.given import given
from ..moves.hyper import concentration_move, value_of
from ..moves.labels import Mixture, Part, Sweep, cluster_sums, counts_of, num_occupied
from ..moves.row_slices import Rows, RowSlices
from ..moves.weights import shift_law

COVERED_BY = "tests/inference/kernels/test_dpmnl.py::test_partitions_by_enumeration"
COEFFICIENTS_COVERED_BY = "tests/inference/kernels/test_dpmnl.py::test_coefficients_by_quadrature"

FIT_STEPS = 4
"""Newton steps of each fit: any number is exact."""
SLICE_STEPS = 2
"""Slice steps about each fit, which cost less than the fit."""


class Logits(NamedTuple):
    """The program to its conditionals: inputs (n, d), the logits' inputs (n, p), labels (n,), settings.

    ``prior`` of the inputs' means and variances is ``m`` (d,), ``k0``, ``a`` and ``b`` (d,).
    """

    X: jax.Array
    A: jax.Array
    y: jax.Array
    prior: tuple[jax.Array, jax.Array, jax.Array, jax.Array]
    concentration: jax.Array
    prior_scale: Any
    num_slots: int


def logits(z: Sites, X, y, **settings) -> Logits:
    """From the program's call."""
    s = SimpleNamespace(**settings)
    A, X = check_features(X, intercept=s.intercept), check_features(X)
    prior = prior_of_inputs(X, s.prior_mean, s.prior_count, s.variance_shape, s.variance_scale)
    y = check_labels(y, len(A), z["beta"].shape[1])[0]
    return Logits(X, A, y, prior, value_of("concentration", s.concentration, z), s.prior_scale, s.max_clusters)


@given(logits)
def mixture(z: Sites, program: Logits) -> Mixture:
    """The program to the assignment moves: a normal that generates inputs, logits that generate labels."""
    parts = inputs_part(program.prior), logits_part(z["beta"].shape[1:], program.prior_scale)
    return Mixture((program.X, program.A, program.y), program.concentration, parts)


def inputs_part(prior: tuple[jax.Array, jax.Array, jax.Array, jax.Array]) -> Part:
    """The normal of a slot, integrated out where the slot is empty."""
    m, k0, a, b = prior

    def log_inputs(sites: Sites, data: tuple) -> jax.Array:
        return log_normal(sites["mu"], sites["sigma2"], data[0])

    def inputs_given_datum(data: tuple) -> dict:
        """Normal-inverse-gamma: ``IG(a + 1/2, b + k0 (x - m)^2/(2 (k0 + 1)))``, ``N((k0 m + x)/(k0 + 1), .)``."""
        x = data[0]
        sigma2 = dist.InverseGamma(a + 0.5, b + k0 * (x - m) ** 2 / (2 * (k0 + 1))).to_event(1)
        return {"sigma2": sigma2, "mu": lambda sites: mean_law((k0 * m + x) / (k0 + 1), sites["sigma2"], k0 + 1)}

    def mean_given_variance(sites: Sites) -> Distribution:
        return mean_law(m, sites["sigma2"], k0)

    laws = {"sigma2": dist.InverseGamma(a, b).to_event(1), "mu": mean_given_variance}
    return Part(("sigma2", "mu"), log_inputs, laws, lambda data: log_student(prior, data[0]), inputs_given_datum)


def logits_part(shape: tuple[int, ...], prior_scale: Any) -> Part:
    """The coefficients of a slot, of this shape."""

    def log_softmax(sites: Sites, data: tuple) -> jax.Array:
        _, A, y = data
        scores = jnp.einsum("kld,nd->kln", sites["beta"], A)
        own = jnp.arange(scores.shape[1])[:, None] == y
        return jnp.sum(jnp.where(own, scores, 0.0), axis=1) - jax.nn.logsumexp(scores, axis=1)

    return Part(("beta",), log_softmax, {"beta": dist.Normal(0.0, prior_scale).expand(shape).to_event(2)})


def log_normal(mu: jax.Array, sigma2: jax.Array, X: jax.Array) -> jax.Array:
    """(K, n) log densities of the rows of ``X`` under each slot's ``mu`` and ``sigma2`` (K, d)."""
    squares = jnp.sum((X - mu[:, None]) ** 2 / sigma2[:, None], axis=-1)
    return -0.5 * (squares + jnp.sum(jnp.log(2 * jnp.pi * sigma2), axis=-1)[:, None])


def log_student(prior: tuple[jax.Array, jax.Array, jax.Array, jax.Array], X: jax.Array) -> jax.Array:
    """(n,) log densities with mean and variances integrated out: Student's t of ``2a`` degrees of freedom."""
    m, k0, a, b = prior
    return dist.StudentT(2 * a, m, jnp.sqrt(b / a * (1 + 1 / k0))).log_prob(X).sum(-1)


def mean_law(mean: jax.Array, sigma2: jax.Array, count: jax.Array) -> Distribution:
    """``N(mean, sigma2/count)`` of a slot's ``mu``."""
    return dist.Normal(mean, jnp.sqrt(sigma2 / count)).to_event(1)


@given(logits)
def sigma2_given_mu(rest: Sites, program: Logits) -> Distribution:
    """``IG(a + (n_k + 1)/2, b + half the squares about mu_k, and of mu_k about m)``."""
    X, M, (m, k0, a, b) = program.X, program.num_slots, program.prior
    mu, counts = rest["mu"], counts_of(rest["z"], M)
    squares = cluster_sums(rest["z"], (X - mu[rest["z"]]) ** 2, M) + k0 * (mu - m) ** 2
    return dist.InverseGamma((a + (counts + 1) / 2)[:, None], b + squares / 2).to_event(2)


@given(logits)
def mu_given_sigma2(rest: Sites, program: Logits) -> Distribution:
    """``N((k0 m + sum x)/(k0 + n_k), sigma2_k/(k0 + n_k))``."""
    m, k0, *_ = program.prior
    count = (k0 + counts_of(rest["z"], program.num_slots))[:, None]
    mean = (k0 * m + cluster_sums(rest["z"], program.X, program.num_slots)) / count
    return mean_law(mean, rest["sigma2"], count).to_event(1)


@given(logits)
def class_beta(l: jax.Array, z: Sites, program: Logits) -> Rows:
    """The coefficients of class ``l`` in every slot given those of the other classes: logistic regressions.

    With ``tau_i`` the log-sum-exp of the other classes' scores, ``psi_i = beta_l'a_i - tau_i`` and ``t_i = 1[y_i = l]``
    the log likelihood is ``sum t_i psi_i - log(1 + exp(psi_i))``.
    """
    A, labels, M = program.A, z["z"], program.num_slots
    t = (program.y == l).astype(A.dtype)
    scores = jnp.einsum("nd,nld->nl", A, z["beta"][labels])
    tau = jax.nn.logsumexp(jnp.where(jnp.arange(scores.shape[1]) == l, -jnp.inf, scores), axis=1)
    precision = jnp.asarray(program.prior_scale, A.dtype) ** -2.0

    def log_density(beta: jax.Array) -> jax.Array:
        psi = jnp.sum(A * beta[labels], axis=1) - tau
        terms = t * psi - jax.nn.softplus(psi)
        return jax.ops.segment_sum(terms, labels, M) - precision / 2 * jnp.sum(beta**2, axis=1)

    return Rows(log_density, *fit_logits(labels, A, tau, t, precision, M))


def fit_logits(
    labels: jax.Array, A: jax.Array, tau: jax.Array, t: jax.Array, precision: jax.Array, num_slots: int
) -> tuple[jax.Array, jax.Array]:
    """Gaussian fits ``N(m_k, V_k)`` of every slot's logistic regression: means by majorised Newton steps.

    Under a fit ``psi_i`` has variance ``s^2 = a'V a``; averaged over it the logistic function is close to one of slope
    ``c = (1 + pi s^2/8)^(-1/2)``. Steps take Jaakkola and Jordan's curvature ``tanh(xi/2)/(2 xi)``,
    ``xi^2 = psi^2 + s^2``, which no step overshoots; the last pass takes that of the averaged loss. Where a slot's
    classes can be divided, ``V`` is then near the spread of the posterior, and not the curvature at its mode.

    :param labels: (n,) slots.
    :param A: (n, d) rows ``a``.
    :param tau: (n,) offsets.
    :param t: (n,) zeros and ones.
    :param precision: of each coefficient's prior.
    :param num_slots: ``M``.
    :return: means (M, d) and lower Cholesky factors (M, d, d) of the covariances.
    """
    d = A.shape[1]
    upper, eye = jnp.triu_indices(d), jnp.eye(d, dtype=A.dtype)
    prior = jnp.zeros((num_slots, d), A.dtype), jnp.broadcast_to(eye / jnp.sqrt(precision), (num_slots, d, d))

    def newton(m: jax.Array, root: jax.Array, majorise: bool) -> tuple[jax.Array, jax.Array]:
        """The step from ``m``, and the root of the inverse curvature there."""

        def derivatives(own: jax.Array, A: jax.Array, tau: jax.Array, t: jax.Array) -> jax.Array:
            psi = jnp.sum(A * m[own], axis=1) - tau
            s2 = jnp.sum(jnp.einsum("nd,nde->ne", A, root[own]) ** 2, axis=1)
            c = lax.rsqrt(1 + jnp.pi / 8 * s2)
            p = jax.nn.sigmoid(c * psi)
            xi = jnp.sqrt(psi**2 + s2) + jnp.finfo(A.dtype).tiny ** 0.5
            curvature = jnp.tanh(xi / 2) / (2 * xi) if majorise else c * p * (1 - p)
            products = A[:, upper[0]] * A[:, upper[1]]
            return jnp.concatenate([(p - t)[:, None] * A, curvature[:, None] * products], axis=1)

        sums = cluster_sums(labels, (labels, A, tau, t), num_slots, derivatives)
        gradient, triangle = sums[:, :d] + precision * m, sums[:, d:]
        hessian = jnp.zeros((num_slots, d, d), A.dtype).at[:, *upper].set(triangle).at[:, *upper[::-1]].set(triangle)
        root = jax.vmap(inverse_root)(hessian + precision * eye)
        return m - jnp.einsum("kde,kfe,kf->kd", root, root, gradient), root

    m, root = lax.fori_loop(0, FIT_STEPS, lambda _, fit: newton(fit[0], fit[1], majorise=True), prior)
    _, root = newton(m, root, majorise=False)
    # Single precision may give out; the prior then serves.
    finite = jnp.isfinite(m).all(-1) & jnp.isfinite(root).all((-1, -2))
    return jnp.where(finite[:, None], m, prior[0]), jnp.where(finite[:, None, None], root, prior[1])


def mean_beta(z: Sites, X, y, *, prior_scale, **_) -> Distribution:
    """``N(0, nu^2/L I)`` in every slot: a shift common to all classes changes no probability."""
    return shift_law(z["beta"], prior_scale)


def dpmnl_collapsed(model: Callable = dpmnl) -> MoveKernel:
    """One label after the other, new clusters' inputs integrated out; coefficients by slice sampling.

    :param model: the program, with structural options bound: ``functools.partial(dpmnl, max_clusters=128)``.
    """
    moves = [
        Conditional("sigma2", sigma2_given_mu),
        Conditional("mu", mu_given_sigma2),
        RowSlices("beta", class_beta, num_steps=SLICE_STEPS, covered_by=COEFFICIENTS_COVERED_BY),
        CommonShift("beta", mean_beta),
        concentration_move(),
        Sweep(mixture, ("z", "sigma2", "mu"), covered_by=COVERED_BY),
    ]
    return MoveKernel(model, moves, name="dpmnl collapsed", num_active=num_occupied)


def dpmnl_predict(draws: Sites, X: ArrayLike, *, weighted: bool = True, **settings: Any) -> Prediction:
    r"""Posterior predictive class probabilities of new inputs.

    .. math:: p(y | x) \propto \sum_s \frac{1}{n + \alpha}\Big[\sum_k n_k\,N(x; \mu_k, \sigma_k^2)\,
              \mathrm{softmax}(\beta_k [x, 1])_y + \alpha\,t(x)\,/\,L\Big]

    over draws ``s``: an occupied component in proportion to its size and its density at ``x``, and a new one with
    Student's density, whose coefficients are from the prior and favour no class. A draw counts in proportion to its
    own density of ``x``, as in the paper: the input is data too.

    :param draws: sites ``z`` (S, n), ``mu``, ``sigma2``, ``beta`` (S, M, ...), and ``concentration`` where it had a
        prior, as from ``MCMC.get_samples()``.
    :param X: (n', d) new inputs.
    :param weighted: False lets every draw count the same. That is not the model's predictive, but steadier where few
        draws have almost all of the density, as with many features.
    :param settings: the program's, as it was given them; what the draws tell is not read.
    :return: labels; averaged class probabilities (n', L); votes (n', L), the share of the draws whose own most
        probable class it is.

    **Example**: see :func:`regbayes.models.dpmnl`.
    """
    s = SimpleNamespace(**with_defaults(dpmnl, settings))
    sites = check_draws(draws, ("z", "mu", "sigma2", "beta"), {"concentration": s.concentration})
    X, A = new_inputs(X, sites, "beta", s.intercept)
    num = len(sites["z"])
    prior = prior_of_inputs(X, s.prior_mean, s.prior_count, s.variance_shape, s.variance_scale)
    alphas = jnp.broadcast_to(value_of("concentration", s.concentration, sites), (num,))
    total, votes = _predict(sites, alphas, X, A, log_student(prior, X), jnp.asarray(weighted))
    return Prediction(jnp.argmax(total, axis=1), total / jnp.sum(total, axis=1, keepdims=True), votes / num)


@jax.jit
def _predict(
    draws: Sites, alphas: jax.Array, X: jax.Array, A: jax.Array, log_new: jax.Array, weighted: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(n, L) sums over the draws of class probabilities, scaled, and of votes: draw by draw, in blocks of rows."""
    n, L = draws["z"].shape[1], draws["beta"].shape[2]

    def add(sums: tuple[jax.Array, jax.Array, jax.Array], draw: tuple[Sites, jax.Array]) -> tuple:
        (sites, alpha), (top, total, votes) = draw, sums
        log_sizes = jnp.log(counts_of(sites["z"], len(sites["mu"])))

        def one(row: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            """The density of an input, and its class probabilities."""
            x, a, log_new = row
            log_weights = log_sizes + log_normal(sites["mu"], sites["sigma2"], x[None])[:, 0]
            log_weights = jnp.append(log_weights, jnp.log(alpha) + log_new)
            weights = jax.nn.softmax(log_weights)
            p = weights[:-1] @ jax.nn.softmax(sites["beta"] @ a, axis=1) + weights[-1] / L
            return jax.nn.logsumexp(log_weights) - jnp.log(n + alpha), p

        log_density, p = lax.map(one, (X, A, log_new), batch_size=PREDICT_BLOCK)
        log_weight = jnp.where(weighted, log_density, 0.0)
        new_top = jnp.maximum(top, log_weight)  # sums are kept relative to the largest weight so far
        total = jnp.exp(top - new_top)[:, None] * total + jnp.exp(log_weight - new_top)[:, None] * p
        return (new_top, total, votes + jax.nn.one_hot(jnp.argmax(p, axis=1), L, dtype=p.dtype)), None

    zeros = jnp.zeros((len(X), L), X.dtype)
    start = (jnp.full(len(X), -jnp.inf, X.dtype), zeros, zeros)
    return lax.scan(add, start, (draws, alphas))[0][1:]


def dpmnl_log_likelihood(draws: Sites, arguments: dict) -> jax.Array:
    """(S, n) ``log p(x_i, y_i | z_-i, ...)``: its label summed out, with the components of the draw."""
    return over_rows(_log_likelihood, draws, arguments)


def _log_likelihood(sites: Sites, arguments: dict) -> jax.Array:
    """(n,) of a draw."""
    X, y = check_features(arguments["X"]), jnp.asarray(arguments["y"])
    A = check_features(arguments["X"], intercept=bool(arguments["intercept"]))
    n, M, alpha = len(X), arguments["max_clusters"], {**arguments, **sites}["concentration"]
    own = jax.nn.one_hot(sites["z"], M, dtype=X.dtype)
    sizes = jnp.sum(own, axis=0) - own  # (n, M), each datum left out
    # An empty slot has parameters from the prior and an equal share of what a new cluster has.
    shares = jnp.where(sizes > 0, sizes, alpha / jnp.sum(sizes == 0, axis=1, keepdims=True))
    log_p = jax.nn.log_softmax(jnp.einsum("kld,nd->nkl", sites["beta"], A), axis=-1)
    log_labels = jnp.take_along_axis(log_p, y[:, None, None], axis=2)[..., 0]
    logs = log_normal(sites["mu"], sites["sigma2"], X).T + log_labels
    return jax.nn.logsumexp(jnp.log(shares) + logs, axis=1) - jnp.log(n - 1 + alpha)
