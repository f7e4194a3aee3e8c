"""Kernels of the Gibbs infinite SVM (:mod:`regbayes.models.isvm`), and predictions from their draws.

Each sweep redraws the labels, then the components given the labels: means from their conjugate posterior, classifiers
by the augmentation of the SVMs, all clusters at once. Slots without data are drawn from the prior by the same lines.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import ReshapeTransform

from ...models import HingeNormal, isvm
from ...models.laws.arguments import check_features, check_labels
from ...models.laws.families import Family, Gaussian, family
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, CommonShift, Conditional, Move
from ..engine.predictions import PREDICT_BLOCK, Prediction, check_draws, new_inputs, with_defaults
from ..engine.target import Sites
from ..moves.augmentation import class_rows
from ..moves.fits import fit_classes, fit_rows
from ..moves.given import given
from ..moves.hyper import concentration_move, conjugate, there, value_of
from ..moves.labels import Mixture, Part, SliceAssignment, Sweep, cluster_sums, counts_of, num_occupied
from ..moves.split_merge import SplitMerge
from ..moves.weights import GroupHinges, mean_eta, of_rows, of_weights

COVERED_BY = "tests/inference/kernels/test_isvm.py::test_partitions_by_enumeration"

ONE_HOST = 0.875
"""How often a split-merge proposal has one host: every other time only, and draws are worth half as much."""
DEGREES_OF_FREEDOM = 30
"""Of the t's that split-merge moves propose classifiers from."""
ROUGH = 0.1
"""The tolerance of their fits: a finer one is hardly accepted more often, and takes several times as long."""


class Means(NamedTuple):
    """What generates inputs (n, d): a family, the sums and the size that its prior is worth, and the variance."""

    X: jax.Array
    law: Family
    tau: jax.Array
    worth: jax.Array
    variance: Any


class Classifiers(NamedTuple):
    """The program to its conditionals: what generates inputs, classifiers' inputs (n, p), labels (n,), settings."""

    means: Means
    A: jax.Array
    y: jax.Array
    num_classes: int
    num_slots: int
    concentration: jax.Array
    cost: Any
    ell: Any
    prior_scale: Any

    @property
    def precision(self) -> jax.Array:
        """``1/nu^2``."""
        return jnp.asarray(self.prior_scale, self.A.dtype) ** -2.0

    def log_margin(self, eta: jax.Array, data: tuple) -> jax.Array:
        """(K, n) ``-2 c`` times the loss of data under each slot's classifier."""
        _, A, y = data
        if eta.ndim == 2:
            return -2 * self.cost * jnp.maximum(self.ell - (2 * y - 1) * (eta @ A.T), 0.0)
        scores = jnp.einsum("kld,nd->kln", eta, A)
        own = jnp.arange(scores.shape[1])[:, None] == y
        best = jnp.max(scores + self.ell * ~own, axis=1)
        return -2 * self.cost * (best - jnp.sum(jnp.where(own, scores, 0.0), axis=1))


def classifiers(z: Sites, X, y, **settings) -> Classifiers:
    """From the program's call; where ``eta`` is being drawn there are two classes."""
    s = SimpleNamespace(**settings)
    A, X = check_features(X, intercept=s.intercept), check_features(X)
    L = z["eta"].shape[1] if "eta" in z and several_classes(z) else 2
    law, variance = family(s.likelihood), value_of("variance", s.variance, z)
    means = Means(X, law, *law.prior(X.shape[1], X.dtype, s.prior_mean, s.prior_count), variance)
    alpha = value_of("concentration", s.concentration, z)
    return Classifiers(means, A, check_labels(y, len(X), L)[0], L, s.max_clusters, alpha, s.cost, s.ell, s.prior_scale)


def two_classes(z: Sites) -> bool:
    """Whether each slot has one classifier."""
    return z["eta"].ndim == 2


def several_classes(z: Sites) -> bool:
    """Whether each slot has one classifier per class."""
    return z["eta"].ndim == 3


@given(classifiers)
def mixture(z: Sites, program: Classifiers) -> Mixture:
    """The program to the assignment moves: a mean that generates inputs, a classifier that pays the hinge."""
    data, loss = (program.means.X, program.A, program.y), 2 * program.cost * program.ell
    parts = means_part(program.means), classifiers_part(program, z["eta"].shape[1:])
    return Mixture(data, program.concentration, parts, (program.y, loss))


def means_part(means: Means) -> Part:
    """What the components' means say of inputs, conjugate to an exponential family."""
    X, law, tau, count, variance = means
    # Densities do not change under a shift of a Gaussian, and single precision keeps more digits about the middle.
    origin = X.mean(0) if isinstance(law, Gaussian) else jnp.zeros_like(tau)
    start = tau - count * origin

    def log_likelihood(sites: Sites, data: tuple) -> jax.Array:
        return law.log_density(sites["mu"] - origin, data[0] - origin, variance)

    def log_marginal(data: tuple) -> jax.Array:
        """``p(x_i)``, the mean integrated out."""
        return law.log_marginal(start, count, data[0] - origin, variance)

    def given_datum(data: tuple) -> dict[str, Distribution]:
        return {"mu": law.conjugate(tau + data[0], count + law.size(data[0]), variance)}

    def sums(weights: jax.Array, data: tuple) -> tuple[jax.Array, jax.Array]:
        return weights @ (data[0] - origin), weights @ law.size(data[0])

    def given_cluster(weights: jax.Array, data: tuple) -> dict[str, Distribution]:
        total, size = sums(weights, data)
        return {"mu": law.conjugate(tau + total + size * origin, count + size, variance)}

    def evidence(weights: jax.Array, data: tuple) -> jax.Array:
        total, size = sums(weights, data)
        return law.log_normaliser(start + total, count + size, variance) - law.log_normaliser(start, count, variance)

    prior = {"mu": law.conjugate(tau, count, variance)}
    return Part(("mu",), log_likelihood, prior, log_marginal, given_datum, given_cluster, evidence)


def classifiers_part(program: Classifiers, shape: tuple[int, ...]) -> Part:
    """What a slot's classifiers, of this shape, pay for labels."""
    L, cost, ell, binary = program.num_classes, program.cost, program.ell, len(shape) == 1

    def log_margin(sites: Sites, data: tuple) -> jax.Array:
        return program.log_margin(sites["eta"], data)

    def one_datum(data: tuple) -> HingeNormal:
        """The classifier of a new cluster given its datum, normalised in closed form for two classes."""
        _, A, y = data
        return HingeNormal((2 * y - 1)[:, None] * A, cost, ell, program.prior_scale)

    def given_cluster(weights: jax.Array, data: tuple) -> dict[str, Distribution]:
        """A heavy-tailed stand-in for the classifier's posterior: Student's t about the Gaussian fit."""
        _, A, y = data
        A = weights[:, None] * A
        if binary:
            fit = fit_rows((2 * y - 1)[:, None] * A, weights * ell, cost, program.precision, ROUGH)
            return {"eta": dist.MultivariateStudentT(DEGREES_OF_FREEDOM, *fit)}
        fit = fit_classes(A, y, L, cost, ell, program.precision, ROUGH)
        flat = dist.MultivariateStudentT(DEGREES_OF_FREEDOM, *fit)
        return {"eta": dist.TransformedDistribution(flat, ReshapeTransform(shape, (flat.event_shape[0],)))}

    def guess(weights: jax.Array, data: tuple) -> jax.Array:
        """Log evidence of a cluster's labels: the log density at the EM step from zero weights."""
        _, A, y = data
        zeros = jnp.zeros((len(y), L), A.dtype)
        if binary:
            sgn, tau = (2 * y - 1)[:, None], ell
        else:
            sgn, tau = jax.vmap(lambda k: class_rows(zeros, y, k, ell), out_axes=1)(jnp.arange(L))
        A, precision = weights[:, None] * A, program.precision
        root = jnp.linalg.cholesky(cost / ell * A.T @ A + precision * jnp.eye(A.shape[1], dtype=A.dtype))
        eta = cho_solve((root, True), A.T @ (cost * sgn * (1 + tau / ell))).T
        log_loss = program.log_margin(eta if binary else eta[None], data)[0]
        return weights @ log_loss - precision * jnp.sum(eta**2) / 2

    prior = {"eta": dist.Normal(0.0, program.prior_scale).expand(shape).to_event(len(shape))}
    part = Part(("eta",), log_margin, prior, cluster=given_cluster, guess=guess)
    if not binary:
        return part
    return part._replace(
        log_marginal=lambda data: one_datum(data).log_normaliser, posterior=lambda data: {"eta": one_datum(data)}
    )


@given(classifiers)
def mu_given_z(z: Sites, program: Classifiers) -> Distribution:
    """``q(mu_k | z)``, equation (14): the conjugate prior with the cluster's sums and size added."""
    X, law, tau, count, variance = program.means
    sums = cluster_sums(z["z"], jnp.column_stack([X, law.size(X)]), program.num_slots)
    return law.conjugate(tau + sums[:, :-1], count + sums[:, -1], variance).to_event(1)


@given(classifiers)
def hinges(z: Sites, program: Classifiers) -> GroupHinges:
    """Equations (17) and (18): ``zeta_i = ell - y_i eta_{z_i}'[x_i, 1]``."""
    A = (2 * program.y - 1)[:, None] * program.A
    return GroupHinges(A, program.ell, z["z"], program.num_slots, program.cost, program.precision)


@given(classifiers)
def class_hinges(k: jax.Array, z: Sites, program: Classifiers) -> GroupHinges:
    """Equation (38), exact: ``+-[x_i, 1]`` and ``tau_i`` of the hinge that the loss is in the classifiers of ``k``."""
    scores = jnp.einsum("nd,nld->nl", program.A, z["eta"][z["z"]])
    sgn, tau = class_rows(scores, program.y, k, program.ell)
    return GroupHinges(sgn[:, None] * program.A, tau, z["z"], program.num_slots, program.cost, program.precision)


@given(classifiers)
def variance_given_mu(z: Sites, program: Classifiers) -> Distribution:
    """``InverseGamma(a + (n + M) d/2, b + half the squares about the means, and of the means about their prior)``."""
    X, _, tau, count, variance = program.means
    squares = jnp.sum((X - z["mu"][z["z"]]) ** 2) + count * jnp.sum((z["mu"] - tau / count) ** 2)
    prior = conjugate("variance", variance, dist.InverseGamma)
    return dist.InverseGamma(prior.concentration + (len(X) + len(z["mu"])) * X.shape[1] / 2, prior.rate + squares / 2)


BINARY, SEVERAL = of_weights(hinges), of_rows(class_hinges, axis=1)


def isvm_collapsed(model: Callable = isvm, *, overrelaxation: float = 0.5, split_merge: int = 4) -> MoveKernel:
    """The paper's partially collapsed sampler, made exact: one label after the other, new clusters integrated out.

    :param model: the program, with structural options bound: ``functools.partial(isvm, likelihood="poisson")``.
    :param overrelaxation: of the classifiers' draws; 0 is the paper's.
    :param split_merge: proposals of :class:`~regbayes.inference.SplitMerge` per sweep; 0 is the paper's.
    """
    labels = Sweep(mixture, ("z", "mu", "eta"), covered_by=COVERED_BY)
    return _kernel(model, labels, overrelaxation, split_merge, "isvm collapsed")


def isvm_slice(model: Callable = isvm, *, overrelaxation: float = 0.5, split_merge: int = 4) -> MoveKernel:
    """All labels at once given the mixture's weights: the one for many data.

    :param model: it and the others as for :func:`isvm_collapsed`.
    """
    labels = SliceAssignment(mixture, ("z",), covered_by=COVERED_BY)
    return _kernel(model, labels, overrelaxation, split_merge, "isvm slice")


def _kernel(model: Callable, labels: Move, overrelaxation: float, split_merge: int, name: str) -> MoveKernel:
    merges = SplitMerge(mixture, ("z", "mu", "eta"), split_merge, one_host=ONE_HOST, covered_by=COVERED_BY)
    moves = [
        Conditional("mu", mu_given_z),
        Augmented("eta", *BINARY, overrelaxation=overrelaxation, when=two_classes),
        Augmented("eta", *SEVERAL, rows=True, axis=1, overrelaxation=overrelaxation, when=several_classes),
        CommonShift("eta", mean_eta, when=several_classes),
        concentration_move(),
        Conditional("variance", variance_given_mu, when=there),
        labels,
        *([merges] if split_merge else []),
    ]
    return MoveKernel(model, moves, name=name, num_active=num_occupied)


def isvm_predict(draws: Sites, X: ArrayLike, **settings: Any) -> Prediction:
    r"""Predictions for new inputs, which the likelihood assigns to the components of each draw.

    .. math:: f(x) = \frac{1}{S}\sum_s \sum_k r_{sk}(x)\,\eta_{sk}'[x, 1], \qquad
              r_{sk}(x) \propto n_{sk}\,p(x | \mu_{sk}),

    and a new component, whose classifier is 0 on average, in proportion to ``alpha`` times the density of ``x`` with
    its mean integrated out. The averaging classifier takes the sign, or the largest, of ``f``. The Gibbs classifier
    draws ``s`` and ``k`` and lets that component vote; what is returned is how its votes are shared out on average.

    :param draws: sites ``z`` (S, n), ``mu`` (S, M, d), ``eta`` (S, M, ...), and those of hyper-priors, as from
        ``MCMC.get_samples()``.
    :param X: (n', d) new inputs.
    :param settings: the program's, as it was given them; what the draws tell is not read.
    :return: labels; ``f``, (n',) for two classes and (n', L) for more; votes (n', L).

    **Example**: see :func:`regbayes.models.isvm`.
    """
    s = SimpleNamespace(**with_defaults(isvm, settings))
    hypers = {"concentration": s.concentration, "variance": s.variance}
    sites = check_draws(draws, ("z", "mu", "eta"), hypers)
    X, A = new_inputs(X, sites, "eta", s.intercept)
    law, num = family(s.likelihood), len(sites["z"])
    law.check(s.likelihood, X)
    tau, count = law.prior(X.shape[1], X.dtype, s.prior_mean, s.prior_count)
    sites.update({name: jnp.broadcast_to(value_of(name, value, sites), (num,)) for name, value in hypers.items()})
    f, votes = _predict(sites, X, A, tau / count, count, likelihood=s.likelihood)
    y = jnp.argmax(f, axis=1) if f.ndim == 2 else (f > 0).astype(int)
    return Prediction(y, f, votes)


@functools.partial(jax.jit, static_argnames="likelihood")
def _predict(draws: Sites, X, A, prior_mean, prior_count, *, likelihood: str) -> tuple[jax.Array, jax.Array]:
    """Averages over the draws of discriminants and votes: draw by draw, in blocks of rows."""
    num, several = len(draws["z"]), draws["eta"].ndim == 4
    L = draws["eta"].shape[2] if several else 2

    def add(sums: tuple[jax.Array, jax.Array], sites: Sites) -> tuple[tuple[jax.Array, jax.Array], None]:
        law = family(likelihood)
        prior = law.prior(X.shape[1], X.dtype, prior_mean, prior_count)
        means = means_part(Means(X, law, *prior, sites["variance"]))
        log_sizes = jnp.log(counts_of(sites["z"], len(sites["mu"])))

        def one(row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, a = row
            assert means.log_marginal is not None
            log_weights = log_sizes + means.log_density({"mu": sites["mu"]}, (x[None],))[:, 0]
            log_new = jnp.log(sites["concentration"]) + means.log_marginal((x[None],))
            r = jax.nn.softmax(jnp.append(log_weights, log_new))
            scores = sites["eta"] @ a
            vote = jax.nn.one_hot(jnp.argmax(scores, -1) if several else (scores > 0).astype(int), L, dtype=r.dtype)
            return r[:-1] @ scores, r[:-1] @ vote + r[-1] / L

        return jax.tree.map(jnp.add, sums, lax.map(one, (X, A), batch_size=PREDICT_BLOCK)), None

    start = jnp.zeros((len(X), L) if several else len(X), X.dtype), jnp.zeros((len(X), L), X.dtype)
    return jax.tree.map(lambda total: total / num, lax.scan(add, start, draws)[0])
