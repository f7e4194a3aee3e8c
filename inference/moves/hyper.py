"""Hyper-parameters that may have priors: their values, and the moves of those that several programs have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from ..engine.move import Augmented
from ..engine.target import Sites
from .labels import counts_of


def value_of(name: str, value: ArrayLike | Distribution, z: Sites) -> Any:
    """A hyper-parameter: the site where there is one, else the value given; its prior while it is being drawn."""
    if name in z:
        return z[name]
    return value if isinstance(value, Distribution) else jnp.asarray(value, jnp.result_type(float))


def conjugate(name: str, prior: Distribution, wanted: type[Distribution]) -> Distribution:
    """The prior of a hyper-parameter, if it is of the family that its conditional needs."""
    if not isinstance(prior, wanted):
        found = type(prior).__name__
        raise ValueError(f"the kernel needs a {wanted.__name__} prior of {name}, found {found}; give that or a number")
    return prior


def there(z: Sites) -> bool:
    """For moves of sites that exist where a hyper-parameter has a prior."""
    return True


def alpha_auxiliary(z: Sites, *args, **_) -> Distribution:
    """Escobar and West's variable, ``Beta(alpha + 1, n)``."""
    return dist.Beta(z["concentration"] + 1, len(z["z"]))


def alpha_given_auxiliary(x: jax.Array, rest: Sites, *args, max_clusters, concentration, **_) -> Distribution:
    """``Gamma(a + K, b - log x)`` or ``Gamma(a + K - 1, b - log x)``, with odds ``(a + K - 1)/(n (b - log x))``."""
    prior = conjugate("concentration", concentration, dist.Gamma)
    a, b, n = prior.concentration, prior.rate - jnp.log(x), len(rest["z"])
    num = jnp.sum(counts_of(rest["z"], max_clusters) > 0)
    logits = jnp.stack([jnp.log(a + num - 1), jnp.log(n * b)])
    return dist.MixtureSameFamily(dist.Categorical(logits=logits), dist.Gamma(a + num - jnp.arange(2), b))


def concentration_move() -> Augmented:
    """Of ``alpha`` of a Chinese restaurant process, where it has a prior."""
    return Augmented("concentration", alpha_auxiliary, alpha_given_auxiliary, when=there)
