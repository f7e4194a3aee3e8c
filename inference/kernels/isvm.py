"""Kernels of the Gibbs infinite SVM (:mod:`regbayes.models.isvm`), and predictions from their draws.

Each sweep redraws the labels, then the components given the labels: means from their conjugate posterior, classifiers
by the augmentation of the SVMs, all clusters at once. Slots without data are drawn from the prior by the same lines.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import ReshapeTransform

from ...models import HingeNormal, HingeOmega, InformationNormal, isvm
from ...models.laws.arguments import check_features, check_labels
from ...models.laws.families import Family, family
from ..engine.kernel import MoveKernel
from ..engine.move import Augmented, CommonShift, Conditional, Move
from ..engine.predictions import PREDICT_BLOCK, Prediction, check_draws, new_inputs
from ..engine.target import Sites
from ..moves.augmentation import class_rows
from ..moves.fits import fit_classes, fit_rows
from ..moves.labels import Mixture, Part, SliceAssignment, Sweep, cluster_sums, counts_of, num_occupied
from ..moves.split_merge import SplitMerge

COVERED_BY = "tests/inference/kernels/test_isvm.py::test_partitions_by_enumeration"

ONE_HOST = 0.875
"""How often a split-merge proposal has one host: every other time only, and draws are worth half as much."""
DEGREES_OF_FREEDOM = 30
"""Of the t's that split-merge moves propose classifiers from."""
ROUGH = 0.1
"""The tolerance of their fits: a finer one is hardly accepted more often, and takes several times as long."""


def two_classes(z: Sites) -> bool:
    """Whether each slot has one classifier."""
    return z["eta"].ndim == 2


def several_classes(z: Sites) -> bool:
    """Whether each slot has one classifier per class."""
    return z["eta"].ndim == 3


def num_classes_of(z: Sites) -> int:
    """``L``."""
    return 2 if two_classes(z) else z["eta"].shape[1]


def inputs(X: ArrayLike, y: ArrayLike, z: Sites, intercept: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The clustering's inputs (n, d), the classifiers' (n, d or d + 1), and the labels (n,)."""
    A, X = check_features(X, intercept=intercept), check_features(X)
    return X, A, check_labels(y, len(X), num_classes_of(z))[0]


def components(
    X: jax.Array, z: Sites, likelihood, variance, prior_mean, prior_count
) -> tuple[Family, jax.Array, jax.Array, jax.Array]:
    """The family, the sums and the size that its prior is worth, and the variance."""
    law = family(likelihood)
    return law, *law.prior(X.shape[1], X.dtype, prior_mean, prior_count), value_of("variance", variance, z)


def value_of(name: str, value: ArrayLike | Distribution, z: Sites) -> jax.Array:
    """A hyper-parameter: the site where it has a prior, the value given where not."""
    return z[name] if name in z else jnp.asarray(value, jnp.result_type(float))


def mixture(
    z: Sites,
    X,
    y,
    *,
    likelihood,
    num_classes,
    max_clusters,
    concentration,
    cost,
    ell,
    prior_scale,
    intercept,
    variance,
    prior_mean,
    prior_count,
) -> Mixture:
    """The program to the assignment moves: a mean that generates inputs, a classifier that pays the hinge."""
    X, A, y = inputs(X, y, z, intercept)
    means = means_part(X, z, likelihood, variance, prior_mean, prior_count)

    def log_margin(sites: Sites, data: tuple) -> jax.Array:
        _, A, y = data
        if two_classes(z):
            return -2 * cost * jnp.maximum(ell - (2 * y - 1) * (sites["eta"] @ A.T), 0.0)
        scores = jnp.einsum("kld,nd->kln", sites["eta"], A)
        own = jnp.arange(scores.shape[1])[:, None] == y
        return -2 * cost * (jnp.max(scores + ell * ~own, axis=1) - jnp.sum(jnp.where(own, scores, 0.0), axis=1))

    def one_datum(data: tuple) -> HingeNormal:
        """The classifier of a new cluster given its datum, normalised in closed form for two classes."""
        _, A, y = data
        return HingeNormal((2 * y - 1)[:, None] * A, cost, ell, prior_scale)

    def classifier_of_cluster(weights: jax.Array, data: tuple) -> dict[str, Distribution]:
        """A heavy-tailed stand-in for the classifier's posterior: Student's t about the Gaussian fit."""
        _, A, y = data
        A, precision = weights[:, None] * A, jnp.asarray(prior_scale, A.dtype) ** -2.0
        if two_classes(z):
            fit = fit_rows((2 * y - 1)[:, None] * A, weights * ell, cost, precision, ROUGH)
            return {"eta": dist.MultivariateStudentT(DEGREES_OF_FREEDOM, *fit)}
        shape = z["eta"].shape[1:]
        flat = dist.MultivariateStudentT(
            DEGREES_OF_FREEDOM, *fit_classes(A, y, num_classes_of(z), cost, ell, precision, ROUGH)
        )
        return {"eta": dist.TransformedDistribution(flat, ReshapeTransform(shape, (flat.event_shape[0],)))}

    def guess(weights: jax.Array, data: tuple) -> jax.Array:
        """Log evidence of a cluster's labels: the log density at the EM step from zero weights."""
        _, A, y = data
        zeros = jnp.zeros((len(y), num_classes_of(z)), A.dtype)
        if two_classes(z):
            sgn, tau = (2 * y - 1)[:, None], ell
        else:
            sgn, tau = jax.vmap(lambda k: class_rows(zeros, y, k, ell), out_axes=1)(jnp.arange(num_classes_of(z)))
        A, precision = weights[:, None] * A, jnp.asarray(prior_scale, A.dtype) ** -2.0
        root = jnp.linalg.cholesky(cost / ell * A.T @ A + precision * jnp.eye(A.shape[1], dtype=A.dtype))
        eta = cho_solve((root, True), A.T @ (cost * sgn * (1 + tau / ell))).T
        log_loss = log_margin({"eta": eta if two_classes(z) else eta[None]}, data)[0]
        return weights @ log_loss - precision * jnp.sum(eta**2) / 2

    prior = {"eta": dist.Normal(0.0, prior_scale).expand(z["eta"].shape[1:]).to_event(z["eta"].ndim - 1)}
    if two_classes(z):
        classifiers = Part(
            ("eta",),
            log_margin,
            prior,
            lambda data: one_datum(data).log_normaliser,
            lambda data: {"eta": one_datum(data)},
            classifier_of_cluster,
            guess=guess,
        )
    else:
        classifiers = Part(("eta",), log_margin, prior, cluster=classifier_of_cluster, guess=guess)
    alpha = value_of("concentration", concentration, z)
    return Mixture((X, A, y), alpha, (means, classifiers), (y, 2 * cost * ell))


def means_part(X: jax.Array, z: Sites, likelihood, variance, prior_mean, prior_count) -> Part:
    """What the components' means say of inputs, conjugate to an exponential family."""
    law, tau, count, variance = components(X, z, likelihood, variance, prior_mean, prior_count)
    # Densities do not change under a shift of a Gaussian, and single precision keeps more digits about the middle.
    origin = X.mean(0) if likelihood == "gaussian" else jnp.zeros_like(tau)
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


def mu_given_z(z: Sites, X, y, *, likelihood, max_clusters, variance, prior_mean, prior_count, **_) -> Distribution:
    """``q(mu_k | z)``, equation (14): the conjugate prior with the cluster's sums and size added."""
    X = check_features(X)
    law, tau, count, variance = components(X, z, likelihood, variance, prior_mean, prior_count)
    sums = cluster_sums(z["z"], jnp.column_stack([X, law.size(X)]), max_clusters)
    return law.conjugate(tau + sums[:, :-1], count + sums[:, -1], variance).to_event(1)


def zeta(z: Sites, X, y, ell, intercept) -> tuple[jax.Array, jax.Array]:
    """``a_i = y_i [x_i, 1]`` and ``zeta_i = ell - a_i'eta_{z_i}``."""
    _, A, y = inputs(X, y, z, intercept)
    A = (2 * y - 1)[:, None] * A
    return A, ell - jnp.sum(A * z["eta"][z["z"]], axis=1)


def omega_given_eta(z: Sites, X, y, *, cost, ell, intercept, **_) -> HingeOmega:
    """``1/omega_i ~ IG(1/(c|zeta_i|), 1)``, equation (17)."""
    return HingeOmega(cost * jnp.abs(zeta(z, X, y, ell, intercept)[1])).to_event(1)


def eta_given_omega(
    omega: jax.Array, rest: Sites, X, y, *, max_clusters, cost, ell, prior_scale, intercept, **_
) -> InformationNormal:
    """Equation (18), every cluster's ``P = I/nu^2 + c^2 sum x x'/omega``, ``h = c sum y (omega + c ell)/omega x``."""
    A = check_features(X, intercept=intercept)
    y = check_labels(y, len(A), 2)[0]
    return _information(rest["z"], (2 * y - 1)[:, None] * A, ell, omega, cost, prior_scale, max_clusters)


def class_zeta(k, z: Sites, X, y, ell, intercept) -> tuple[jax.Array, jax.Array]:
    """``+-[x_i, 1]`` and ``tau_i`` of the hinge that the loss is in the classifiers of class ``k``."""
    _, A, y = inputs(X, y, z, intercept)
    scores = jnp.einsum("nd,nld->nl", A, z["eta"][z["z"]])
    sgn, tau = class_rows(scores, y, k, ell)
    return sgn[:, None] * A, tau


def class_omega(k, z: Sites, X, y, *, cost, ell, intercept, **_) -> HingeOmega:
    """``1/omega_i ~ IG(1/(c|zeta_i|), 1)`` for the hinge in the classifiers of class ``k``."""
    A, tau = class_zeta(k, z, X, y, ell, intercept)
    return HingeOmega(cost * jnp.abs(tau - jnp.sum(A * z["eta"][z["z"], k], axis=1))).to_event(1)


def class_eta(
    k, omega: jax.Array, z: Sites, X, y, *, max_clusters, cost, ell, prior_scale, intercept, **_
) -> InformationNormal:
    """Equation (38), exact: the classifiers of class ``k`` in every cluster given those of the other classes."""
    A, tau = class_zeta(k, z, X, y, ell, intercept)
    return _information(z["z"], A, tau, omega, cost, prior_scale, max_clusters)


def mean_eta(z: Sites, X, y, *, prior_scale, **_) -> Distribution:
    """``N(0, nu^2/L I)`` in every cluster: a shift common to all classes changes no loss."""
    slots, L, d = z["eta"].shape
    return dist.Normal(0.0, prior_scale / L**0.5).expand([slots, d]).to_event(2)


def alpha_auxiliary(z: Sites, X, y, *, concentration, **_) -> Distribution:
    """Escobar and West's variable, ``Beta(alpha + 1, n)``."""
    return dist.Beta(z["concentration"] + 1, len(z["z"]))


def alpha_given_auxiliary(x: jax.Array, rest: Sites, X, y, *, max_clusters, concentration, **_) -> Distribution:
    """``Gamma(a + K, b - log x)`` or ``Gamma(a + K - 1, b - log x)``, with odds ``(a + K - 1)/(n (b - log x))``."""
    prior = conjugate("concentration", concentration, dist.Gamma)
    a, b, n = prior.concentration, prior.rate - jnp.log(x), len(rest["z"])
    num = jnp.sum(counts_of(rest["z"], max_clusters) > 0)
    logits = jnp.stack([jnp.log(a + num - 1), jnp.log(n * b)])
    return dist.MixtureSameFamily(dist.Categorical(logits=logits), dist.Gamma(a + num - jnp.arange(2), b))


def variance_given_mu(z: Sites, X, y, *, max_clusters, variance, prior_mean, prior_count, **_) -> Distribution:
    """``InverseGamma(a + (n + M) d/2, b + half the squares about the means, and of the means about their prior)``."""
    X = check_features(X)
    n, d = X.shape
    tau, count = family("gaussian").prior(d, X.dtype, prior_mean, prior_count)
    squares = jnp.sum((X - z["mu"][z["z"]]) ** 2) + count * jnp.sum((z["mu"] - tau / count) ** 2)
    prior = conjugate("variance", variance, dist.InverseGamma)
    return dist.InverseGamma(prior.concentration + (n + max_clusters) * d / 2, prior.rate + squares / 2)


def conjugate(name: str, prior: Distribution, wanted: type[Distribution]) -> Distribution:
    """The prior of a hyper-parameter, if it is of the family that its conditional needs."""
    if not isinstance(prior, wanted):
        found = type(prior).__name__
        raise ValueError(f"the kernel needs a {wanted.__name__} prior of {name}, found {found}; give that or a number")
    return prior


def _information(labels, A, tau, omega, cost, prior_scale, num_slots: int) -> InformationNormal:
    """The Gaussian of every cluster's weights given ``omega``: sums over its rows ``zeta = tau - a'w``."""
    d, weight = A.shape[1], cost / omega
    h = cluster_sums(labels, A * (cost * (1 + weight * tau))[:, None], num_slots)
    rows, columns = jnp.triu_indices(d)
    upper = cluster_sums(labels, (A, cost * weight), num_slots, lambda A, w: A[:, rows] * A[:, columns] * w[:, None])
    P = jnp.zeros((num_slots, d, d), A.dtype).at[:, rows, columns].set(upper).at[:, columns, rows].set(upper)
    return InformationNormal(h, P + jnp.eye(d, dtype=A.dtype) * jnp.asarray(prior_scale, A.dtype) ** -2.0)


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

    :param model: the program, with structural options bound: ``functools.partial(isvm, likelihood="poisson")``.
    :param overrelaxation: of the classifiers' draws; 0 is the paper's.
    :param split_merge: proposals of :class:`~regbayes.inference.SplitMerge` per sweep; 0 is the paper's.
    """
    labels = SliceAssignment(mixture, ("z",), covered_by=COVERED_BY)
    return _kernel(model, labels, overrelaxation, split_merge, "isvm slice")


def _kernel(model: Callable, labels: Move, overrelaxation: float, split_merge: int, name: str) -> MoveKernel:
    merges = SplitMerge(mixture, ("z", "mu", "eta"), split_merge, one_host=ONE_HOST, covered_by=COVERED_BY)
    moves = [
        Conditional("mu", mu_given_z),
        Augmented("eta", omega_given_eta, eta_given_omega, overrelaxation=overrelaxation, when=two_classes),
        Augmented(
            "eta", class_omega, class_eta, rows=True, axis=1, overrelaxation=overrelaxation, when=several_classes
        ),
        CommonShift("eta", mean_eta, when=several_classes),
        Augmented("concentration", alpha_auxiliary, alpha_given_auxiliary, when=there),
        Conditional("variance", variance_given_mu, when=there),
        labels,
        *([merges] if split_merge else []),
    ]
    return MoveKernel(model, moves, name=name, num_active=num_occupied)


def there(z: Sites) -> bool:
    """For moves of sites that exist where a hyper-parameter has a prior."""
    return True


def isvm_predict(
    draws: Sites,
    X: ArrayLike,
    *,
    likelihood: str = "gaussian",
    num_classes: int | None = None,
    max_clusters: int | None = None,
    concentration: ArrayLike | Distribution = 1.0,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    prior_scale: ArrayLike = 1.0,
    intercept: bool = True,
    variance: ArrayLike | Distribution = 1.0,
    prior_mean: ArrayLike | None = None,
    prior_count: ArrayLike | None = None,
) -> Prediction:
    r"""Predictions for new inputs, which the likelihood assigns to the components of each draw.

    .. math:: f(x) = \frac{1}{S}\sum_s \sum_k r_{sk}(x)\,\eta_{sk}'[x, 1], \qquad
              r_{sk}(x) \propto n_{sk}\,p(x | \mu_{sk}),

    and a new component, whose classifier is 0 on average, in proportion to ``alpha`` times the density of ``x`` with
    its mean integrated out. The averaging classifier takes the sign, or the largest, of ``f``. The Gibbs classifier
    draws ``s`` and ``k`` and lets that component vote; what is returned is how its votes are shared out on average.

    :param draws: sites ``z`` (S, n), ``mu`` (S, M, d), ``eta`` (S, M, ...), and those of hyper-priors, as from
        ``MCMC.get_samples()``.
    :param X: (n', d) new inputs.
    :param likelihood: it and the others as the program was given them; what the draws tell is not read.
    :return: labels; ``f``, (n',) for two classes and (n', L) for more; votes (n', L).

    **Example**: see :func:`regbayes.models.isvm`.
    """
    priors = {"concentration": isinstance(concentration, Distribution), "variance": isinstance(variance, Distribution)}
    sites = check_draws(draws, ("z", "mu", "eta"), priors)
    X, A = new_inputs(X, sites, "eta", intercept)
    law, num = family(likelihood), len(sites["z"])
    law.check(likelihood, X)
    tau, count = law.prior(X.shape[1], X.dtype, prior_mean, prior_count)
    hypers = [("concentration", concentration), ("variance", variance)]
    sites.update({name: jnp.broadcast_to(value_of(name, value, sites), (num,)) for name, value in hypers})
    f, votes = _predict(sites, X, A, tau / count, count, likelihood=likelihood)
    y = jnp.argmax(f, axis=1) if f.ndim == 2 else (f > 0).astype(int)
    return Prediction(y, f, votes)


@functools.partial(jax.jit, static_argnames="likelihood")
def _predict(draws: Sites, X, A, prior_mean, prior_count, *, likelihood: str) -> tuple[jax.Array, jax.Array]:
    """Averages over the draws of discriminants and votes: draw by draw, in blocks of rows."""
    num, several = len(draws["z"]), draws["eta"].ndim == 4
    L = draws["eta"].shape[2] if several else 2

    def add(sums: tuple[jax.Array, jax.Array], sites: Sites) -> tuple[tuple[jax.Array, jax.Array], None]:
        means = means_part(X, sites, likelihood, None, prior_mean, prior_count)
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
