"""The Indian buffet process: binary matrices with as many columns as the data ask for."""

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample


class IndianBuffetProcess(Distribution):
    r"""Which of ``num_data`` rows have which features, as a binary matrix in a buffer of columns.

    .. math:: p(Z) = \alpha^K e^{-\alpha H_n} \prod_{k} \frac{(n - m_k)!\,(m_k - 1)!}{n!} \times \frac{(M - K)!}{M!},
              \qquad H_n = \sum_{i \le n} \frac1i,

    over the ``K`` columns with ones, of which column ``k`` has ``m_k``. Griffiths and Ghahramani give the probability
    of the columns without order; where ``K_h`` of them are equal it has the factor :math:`1/\prod_h K_h!`. Put into
    distinct ones of the ``M`` slots at random, each such set has :math:`M!/((M - K)!\prod_h K_h!)` matrices, all
    different and equally likely: the factor cancels. The buffer is for storage: it matters only to sets of more than
    ``M`` features, which have no matrix here. Kernels report when it was full.

    :param concentration: ``alpha``, the mean number of features of a row.
    :param num_data: ``n``.
    :param max_features: ``M``, the slots.

    **Example**

    >>> from jax import random
    >>> from regbayes.models import IndianBuffetProcess
    >>> IndianBuffetProcess(1.0, num_data=5, max_features=8).sample(random.key(0)).shape
    (5, 8)

    **References**

    1. *Infinite latent feature models and the Indian buffet process*, Griffiths and Ghahramani, NIPS (2005).
    """

    arg_constraints = {"concentration": constraints.positive}
    pytree_data_fields = ("concentration",)
    pytree_aux_fields = ("num_data", "max_features")

    def __init__(
        self, concentration: ArrayLike, num_data: int, max_features: int, *, validate_args: bool | None = None
    ) -> None:
        self.concentration = jnp.asarray(concentration, jnp.result_type(float, concentration))
        self.num_data, self.max_features = num_data, max_features
        super().__init__(jnp.shape(concentration), (num_data, max_features), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=2)
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.boolean, 2)

    @property
    def mean_num_features(self) -> jax.Array:
        """``alpha H_n``: the number of features is Poisson with this mean."""
        return self.concentration * harmonic(self.num_data)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Feature after feature: who has it first, then who else; what finds no slot is left out."""
        shape = (*sample_shape, *self.batch_shape)
        rates = jnp.broadcast_to(self.mean_num_features, shape).ravel()
        Z = jax.vmap(self._sample_one)(random.split(key, len(rates)), rates)
        return Z.reshape(*shape, self.num_data, self.max_features)

    def _sample_one(self, key: jax.Array, rate: jax.Array) -> jax.Array:
        key_number, key_slots, key_first, key_rows = random.split(key, 4)
        M, guests = self.max_features, jnp.arange(1, self.num_data + 1)
        used = random.permutation(key_slots, M) < random.poisson(key_number, rate)
        first = 1 + random.categorical(key_first, -jnp.log(guests * 1.0), shape=(M,))
        uniforms = random.uniform(key_rows, (self.num_data, M), rate.dtype)

        def serve(counts: jax.Array, guest: tuple) -> tuple:
            i, u = guest
            row = used & ((i == first) | (u * i < counts))
            return counts + row, row

        return lax.scan(serve, jnp.zeros(M, rate.dtype), (guests, uniforms))[1].astype(jnp.int32)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        return self.log_prob_of_counts(jnp.sum(jnp.asarray(value), axis=-2))

    def log_prob_of_counts(self, counts: jax.Array) -> jax.Array:
        """The log probability of any matrix whose columns have so many ones, ``m_k`` (..., M)."""
        alpha, n, M = self.concentration, self.num_data, self.max_features
        m = counts.astype(alpha.dtype)
        num = jnp.sum(m > 0, axis=-1)
        column = gammaln(n - m + 1) + gammaln(jnp.maximum(m, 1.0)) - gammaln(n + 1.0)
        log_columns = jnp.sum(jnp.where(m > 0, column, 0.0), axis=-1)
        log_slots = gammaln(M - num + 1.0) - gammaln(M + 1.0)
        return num * jnp.log(alpha) - self.mean_num_features + log_columns + log_slots


def harmonic(n: int) -> float:
    """``H_n = 1 + 1/2 + ... + 1/n``."""
    return float(sum(1 / i for i in range(1, n + 1)))
