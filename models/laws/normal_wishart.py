r"""Gaussian clusters with a normal-inverse-Wishart prior, their parameters integrated out.

    Lambda_k ~ IW(S, nu),   mu_k | Lambda_k ~ N(m, Lambda_k/r),   x_i | z_i = k ~ N(mu_k, Lambda_k)

``Lambda`` is a **covariance** (equation 9 of *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS 2014,
mixes it with a precision; the paper's Appendix B does not). A cluster of ``n`` data with mean ``xbar``
turns ``(m, r, nu, S)`` into

    r + n,   nu + n,   (r m + n xbar)/(r + n),   S + sum (x - xbar)(x - xbar)' + r n/(r + n) (xbar - m)(xbar - m)'

and is worth ``pi^(-n d/2) Gamma_d(nu_n/2)/Gamma_d(nu/2) |S|^(nu/2)/|S_n|^(nu_n/2) (r/r_n)^(d/2)``. ``S`` is positive
definite, so all of it is well defined for duplicate points, singular covariances and fewer data than dimensions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import gammaln, multigammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from .arguments import check_positive, is_concrete

STATISTICS_ENTRIES = 2**17
"""Numbers of the table of products ``x x'`` that are handled together: what fits the cache."""


class NormalWishart(NamedTuple):
    """The four numbers of a normal-inverse-Wishart law, or of a batch of them.

    - **mean** - (..., d), ``m``.
    - **strength** - (...), ``r``.
    - **degrees** - (...), ``nu``.
    - **scatter** - (..., d, d), ``S``.
    """

    mean: jax.Array
    strength: jax.Array
    degrees: jax.Array
    scatter: jax.Array

    def given(self, size: jax.Array, mean: jax.Array, scatter: jax.Array) -> "NormalWishart":
        """The posterior given clusters of these sizes (...), means (..., d) and scatters about them (..., d, d)."""
        shift = mean - self.mean
        pull = (self.strength * size / (self.strength + size))[..., None, None]
        return NormalWishart(
            self.mean + (size / (self.strength + size))[..., None] * shift,
            self.strength + size,
            self.degrees + size,
            self.scatter + scatter + pull * shift[..., None] * shift[..., None, :],
        )

    def log_normaliser(self) -> jax.Array:
        """Log of the integral of ``|Lambda|^(-(nu + d)/2 - 1) exp(-tr(S Lambda^-1)/2 - r/2 |mu - m|^2_Lambda)``."""
        d = self.mean.shape[-1]
        log_scale = d / 2 * (self.degrees * jnp.log(2.0) + jnp.log(2 * jnp.pi) - jnp.log(self.strength))
        return log_scale + multigammaln(self.degrees / 2, d) - self.degrees / 2 * log_determinant(self.scatter)

    def law(self) -> "NormalWishartLaw":
        """As a Distribution."""
        return NormalWishartLaw(*self)


class NormalWishartLaw(Distribution):
    r"""The law of a Gaussian component: its precision :math:`\Lambda^{-1} = CC' \sim W(\nu, S^{-1})`, and
    :math:`\mu \sim N(m, \Lambda/r)`.

    An event is one array (d, d + 1): the lower triangular ``C``, and ``mu`` as its last column.

    :param loc: (..., d), ``m``.
    :param count: (...), ``r``.
    :param degrees: (...), ``nu``, above ``d - 1``.
    :param scatter: (..., d, d), ``S``.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "count": constraints.positive,
        "degrees": constraints.positive,
        "scatter": constraints.positive_definite,
    }
    support = constraints.real_matrix
    pytree_data_fields = ("loc", "count", "degrees", "scatter")

    def __init__(
        self, loc: jax.Array, count: jax.Array, degrees: jax.Array, scatter: jax.Array, *, validate_args=None
    ) -> None:
        self.loc, self.count, self.degrees, self.scatter = loc, count, degrees, scatter
        shapes = jnp.shape(loc)[:-1], jnp.shape(count), jnp.shape(degrees), jnp.shape(scatter)[:-2]
        d = jnp.shape(loc)[-1]
        super().__init__(lax.broadcast_shapes(*shapes), (d, d + 1), validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """By Bartlett: ``C = T B`` with ``TT' = S^-1`` and ``B`` lower triangular, of chis and normals."""
        shape, d = (*sample_shape, *self.batch_shape), self.event_shape[0]
        key_chi, key_normal, key_mean = random.split(key, 3)
        chi2 = 2 * random.gamma(key_chi, (self.degrees[..., None] - jnp.arange(d)) / 2, (*shape, d))
        B = jnp.tril(random.normal(key_normal, (*shape, d, d), chi2.dtype), -1)
        B = B + jnp.sqrt(chi2)[..., None] * jnp.eye(d, dtype=chi2.dtype)
        C = inverse_root(self.scatter) @ B
        e = random.normal(key_mean, (*shape, d), chi2.dtype)
        mu = self.loc + solve_transposed(C, e) / jnp.sqrt(self.count)[..., None]
        return jnp.concatenate([C, mu[..., None]], axis=-1)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        C, mu = split_components(jnp.asarray(value))
        d, log_diagonal = mu.shape[-1], jnp.log(jnp.diagonal(C, axis1=-2, axis2=-1))
        log_det = 2 * jnp.sum(log_diagonal, -1)
        white = jnp.einsum("...de,...d->...e", C, mu - self.loc)
        log_normal = d / 2 * (jnp.log(self.count) - jnp.log(2 * jnp.pi)) + log_det / 2
        log_normal = log_normal - self.count * jnp.sum(white**2, -1) / 2
        trace = jnp.sum(self.scatter * (C @ jnp.swapaxes(C, -1, -2)), (-1, -2))
        log_constant = self.degrees / 2 * (log_determinant(self.scatter) - d * jnp.log(2.0))
        log_wishart = (self.degrees - d - 1) / 2 * log_det - trace / 2 + log_constant
        log_jacobian = d * jnp.log(2.0) + jnp.sum((d - jnp.arange(d)) * log_diagonal, -1)  # of CC' in C
        return log_wishart - multigammaln(self.degrees / 2, d) + log_jacobian + log_normal

    @property
    def mean(self) -> jax.Array:
        """The mean of ``mu``, beside a root of the mean of the precision."""
        C = jnp.sqrt(self.degrees)[..., None, None] * inverse_root(self.scatter)
        return jnp.concatenate([C, jnp.broadcast_to(self.loc[..., None], (*C.shape[:-1], 1))], axis=-1)


class GaussianClusters(Distribution):
    """Data (n, d) given their partition, each cluster's mean and covariance integrated out.

    :param prior: the normal-inverse-Wishart prior of the components.
    :param labels: (n,) slots.
    :param max_clusters: ``M``, the slots.

    **Example**: five points in two clusters.

    >>> import jax.numpy as jnp
    >>> from jax import random
    >>> from regbayes.models import GaussianClusters, NormalWishart
    >>> prior = NormalWishart(jnp.zeros(2), jnp.array(0.1), jnp.array(4.0), jnp.eye(2))
    >>> law = GaussianClusters(prior, jnp.array([0, 0, 0, 1, 1]), max_clusters=4)
    >>> law.log_prob(law.sample(random.key(0))).shape
    ()
    """

    support = constraints.real_matrix
    pytree_data_fields = ("prior", "labels")
    pytree_aux_fields = ("max_clusters",)

    def __init__(
        self, prior: NormalWishart, labels: ArrayLike, max_clusters: int, *, validate_args: bool | None = None
    ) -> None:
        self.prior, self.labels, self.max_clusters = prior, jnp.asarray(labels), max_clusters
        event_shape = (self.labels.shape[-1], prior.mean.shape[-1])
        super().__init__(self.labels.shape[:-1], event_shape, validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        key_components, key_noise = random.split(key)
        shape, (n, d) = (*sample_shape, *self.batch_shape), self.event_shape
        components = self.prior.law().sample(key_components, (*shape, self.max_clusters))
        labels = jnp.broadcast_to(self.labels, (*shape, n))
        C, mu = split_components(jnp.take_along_axis(components, labels[..., None, None], axis=-3))
        return mu + solve_transposed(C, random.normal(key_noise, (*shape, n, d), mu.dtype))

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        value = jnp.asarray(value)
        shape = lax.broadcast_shapes(value.shape[:-2], self.batch_shape)
        labels = jnp.broadcast_to(self.labels, (*shape, self.event_shape[0]))
        value = jnp.broadcast_to(value, (*shape, *self.event_shape))
        function = self._log_prob
        for _ in shape:
            function = jax.vmap(function)
        return function(value, labels)

    def _log_prob(self, X: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.sum(log_evidences(self.prior, *cluster_statistics(X, labels, self.max_clusters)))


def log_evidences(prior: NormalWishart, size: jax.Array, mean: jax.Array, scatter: jax.Array) -> jax.Array:
    """(...) log densities of clusters with these sizes, means and scatters; 0 for an empty one."""
    d = mean.shape[-1]
    log_ratio = prior.given(size, mean, scatter).log_normaliser() - prior.log_normaliser()
    return jnp.where(size > 0, log_ratio - size * d / 2 * jnp.log(2 * jnp.pi), 0.0)


def log_student(law: NormalWishart, X: jax.Array) -> jax.Array:
    """(..., n) log densities of single data (n, d) with the component integrated out: Student's t."""
    d, r, nu = X.shape[-1], law.strength[..., None], law.degrees[..., None]
    centred = X - law.mean[..., None, :]
    root = jnp.linalg.cholesky(law.scatter)
    white = lax.linalg.triangular_solve(root, jnp.swapaxes(centred, -1, -2), left_side=True, lower=True)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), -1)[..., None]
    log_constant = gammaln((nu + 1) / 2) - gammaln((nu - d + 1) / 2) - d / 2 * jnp.log(jnp.pi * (r + 1) / r)
    return log_constant - log_det / 2 - (nu + 1) / 2 * jnp.log1p(r / (r + 1) * jnp.sum(white**2, -2))


def cluster_statistics(X: jax.Array, labels: jax.Array, num_slots: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(M,) sizes, (M, d) means and (M, d, d) scatters about them; zeros for a slot without data.

    Two passes, so that single precision keeps the spread of a cluster that is far from the origin.
    """
    (n, d), slots = X.shape, jnp.arange(num_slots)
    hot = (labels == slots[:, None]).astype(X.dtype)
    size = jnp.sum(hot, 1)
    mean = hot @ X / jnp.maximum(size, 1)[:, None]
    centred = X - mean[labels]
    rows, columns = jnp.triu_indices(d)
    block = max(1, min(n, STATISTICS_ENTRIES // len(rows)))

    def add(b: jax.Array, total: jax.Array) -> jax.Array:
        start = jnp.minimum(b * block, n - block)
        own, C = lax.dynamic_slice_in_dim(labels, start, block), lax.dynamic_slice_in_dim(centred, start, block)
        counted = jnp.arange(block) + start >= b * block  # the last block reaches back
        part = ((own == slots[:, None]) & counted).astype(X.dtype)
        return total + part @ (C[:, rows] * C[:, columns])

    upper = lax.fori_loop(0, -(-n // block), add, jnp.zeros((num_slots, len(rows)), X.dtype))
    scatter = jnp.zeros((num_slots, d, d), X.dtype).at[:, rows, columns].set(upper).at[:, columns, rows].set(upper)
    return size, mean, scatter


def split_components(value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(..., d, d) roots of precisions and (..., d) means, from events of :class:`NormalWishartLaw`."""
    return value[..., :-1], value[..., -1]


def log_normal(components: jax.Array, X: jax.Array) -> jax.Array:
    """(K, n) log densities of data (n, d) under components (K, d, d + 1)."""
    C, mu = split_components(components)
    white = jnp.einsum("kde,nd->ken", C, X) - jnp.einsum("kde,kd->ke", C, mu)[..., None]
    log_constant = jnp.sum(jnp.log(jnp.diagonal(C, axis1=-2, axis2=-1)), -1) - X.shape[1] / 2 * jnp.log(2 * jnp.pi)
    return log_constant[:, None] - jnp.sum(white**2, 1) / 2


def log_determinant(matrix: jax.Array) -> jax.Array:
    """Of symmetric positive definite matrices, by Cholesky."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)), -1)


def inverse_root(matrix: jax.Array) -> jax.Array:
    """The lower triangular ``T`` with ``TT'`` the inverse of symmetric positive definite matrices (..., d, d)."""
    # matrix = VV' with V upper triangular is the Cholesky factorisation in reversed order, and T = V'^-1.
    V = jnp.linalg.cholesky(matrix[..., ::-1, ::-1])[..., ::-1, ::-1]
    eye = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return lax.linalg.triangular_solve(V, eye, left_side=True, lower=False, transpose_a=True)


def solve_transposed(C: jax.Array, e: jax.Array) -> jax.Array:
    """``C'^-1 e`` for lower triangular (..., d, d) and (..., d)."""
    return lax.linalg.triangular_solve(C, e[..., None], left_side=True, lower=True, transpose_a=True)[..., 0]


class IntegerLaw(Distribution):
    """A law over ``low..high``, given by its log probabilities up to a constant.

    :param logits: (..., high - low + 1).
    :param low: the least value.
    """

    arg_constraints = {"logits": constraints.real_vector}
    pytree_data_fields = ("logits",)
    pytree_aux_fields = ("low", "high")

    def __init__(self, logits: ArrayLike, low: int, *, validate_args: bool | None = None) -> None:
        self.logits, self.low = jax.nn.log_softmax(jnp.asarray(logits)), low
        self.high = low + self.logits.shape[-1] - 1
        super().__init__(self.logits.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(self.low, self.high)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.low + random.categorical(key, self.logits, shape=(*sample_shape, *self.batch_shape))

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        hot = jnp.asarray(value)[..., None] == jnp.arange(self.low, self.high + 1)
        return jnp.max(jnp.where(hot, self.logits, -jnp.inf), -1)

    @property
    def mean(self) -> jax.Array:
        return jnp.sum(jnp.exp(self.logits) * jnp.arange(self.low, self.high + 1), -1)


class TruncatedPoisson(IntegerLaw):
    """A Poisson variable given that it lies in ``low..high``: a prior of the degrees of freedom ``nu``.

    :param rate: of the Poisson law.
    :param low: the least value; for the degrees of freedom in ``d`` dimensions at least ``d``.
    :param high: the greatest value.

    **Example**

    >>> from regbayes.models import TruncatedPoisson
    >>> round(float(TruncatedPoisson(4.0, low=3, high=40).mean), 3)
    4.769
    """

    def __init__(self, rate: ArrayLike, low: int, high: int, *, validate_args: bool | None = None) -> None:
        if not 0 <= low <= high:
            raise ValueError(f"low and high must satisfy 0 <= low <= high, found {low} and {high}")
        k = jnp.arange(low, high + 1, dtype=jnp.result_type(float))
        logits = k * jnp.log(jnp.asarray(rate, k.dtype))[..., None] - gammaln(k + 1)
        super().__init__(logits, low, validate_args=validate_args)


def normal_wishart(
    X: jax.Array,
    prior_mean: ArrayLike,
    prior_count: ArrayLike,
    degrees_of_freedom: ArrayLike | None,
    scatter: ArrayLike,
) -> NormalWishart:
    """The prior for data (n, d), from what the user gave."""
    d = X.shape[1]
    if is_concrete(prior_mean) and not np.isfinite(np.asarray(prior_mean, float)).all():
        raise ValueError(f"prior_mean must be finite, found {prior_mean}")
    if np.shape(prior_mean) not in ((), (d,)):
        raise ValueError(f"prior_mean must be a number or have shape ({d},), found shape {np.shape(prior_mean)}")
    nu = d + 2.0 if degrees_of_freedom is None else degrees_of_freedom
    check_positive(prior_count=prior_count, degrees_of_freedom=nu)
    for name, value in (("prior_count", prior_count), ("degrees_of_freedom", nu)):
        if np.shape(value) != ():
            raise ValueError(f"{name} must be a number, found shape {np.shape(value)}")
    if is_concrete(nu) and not float(np.asarray(nu)) > d - 1:
        raise ValueError(f"degrees_of_freedom must be above d - 1 = {d - 1}, found {nu}")
    _check_scatter(scatter, d)
    S = jnp.asarray(scatter, X.dtype)
    return NormalWishart(
        jnp.broadcast_to(jnp.asarray(prior_mean, X.dtype), (d,)),
        jnp.asarray(prior_count, X.dtype),
        jnp.asarray(nu, X.dtype),
        S * jnp.eye(d, dtype=X.dtype) if S.ndim == 0 else S,
    )


def _check_scatter(scatter: ArrayLike, d: int) -> None:
    if np.shape(scatter) not in ((), (d, d)):
        raise ValueError(f"scatter must be a number or have shape ({d}, {d}), found shape {np.shape(scatter)}")
    if not is_concrete(scatter):
        return
    S = np.asarray(scatter, float)
    if S.ndim == 0:
        return check_positive(scatter=scatter)
    if not np.isfinite(S).all() or not np.allclose(S, S.T, rtol=1e-5):
        raise ValueError("scatter must be finite and symmetric; give a covariance times its degrees of freedom")
    if (low := np.linalg.eigvalsh(S)[0]) <= 0:
        raise ValueError(
            f"scatter must be positive definite, found the eigenvalue {low:.3g}; add a positive number to its diagonal"
        )
