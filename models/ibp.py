r"""The Indian buffet process with a linear-Gaussian likelihood: as many binary features as the data ask for.

    Z ~ IBP(alpha)                                  which datum has which feature, in a buffer of slots
    w_dk ~ N(0, sigma_0^2)                          each feature's loadings
    x_n ~ N(W z_n, sigma_n^2 I)

A slot that no datum has a feature in has loadings from the prior: integrating them out leaves the model with
infinitely many features. The matrix is a site of its own, with the sticks of the stick-breaking construction
integrated out; :func:`~regbayes.inference.ibp_slice` brings them back for a while.

**References**

1. *Infinite latent feature models and the Indian buffet process*, Griffiths and Ghahramani, NIPS (2005).
2. *Stick-breaking construction for the Indian buffet process*, Teh, Görür and Ghahramani, AISTATS (2007).
3. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR 15 (2014), sections 4.1 and 4.2.
"""

import jax
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .laws.arguments import check_features, check_positive, check_slots, hyper
from .laws.buffet import IndianBuffetProcess


def ibp(
    X: ArrayLike,
    *,
    max_features: int = 32,
    concentration: ArrayLike | Distribution = 1.0,
    noise_scale: ArrayLike = 1.0,
    feature_scale: ArrayLike = 1.0,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) data.
    :param max_features: slots of the buffer: storage, not a truncation. A kernel that fills it says so.
    :param concentration: ``alpha``, the mean number of features of a datum, or a ``Gamma`` prior for it.
    :param noise_scale: ``sigma_n``, the standard deviation of the noise.
    :param feature_scale: ``sigma_0``, that of the loadings.

    Sites ``Z`` (n, max_features) and ``W`` (d, max_features).

    **Example**

    >>> import regbayes
    >>> (X,), settings = regbayes.zoo["ibp"].example()
    >>> dt = regbayes.fit("ibp", X, **settings, num_warmup=10, num_samples=20, num_chains=2, progress=False)
    >>> dt["posterior"]["Z"].shape == (2, 20, len(X), 32)
    True
    """
    X = check_features(X)
    ibp_sites(X, max_features, concentration, noise_scale, feature_scale)


def ibp_sites(
    Y: jax.Array,
    max_features: int,
    concentration: ArrayLike | Distribution,
    noise_scale: ArrayLike,
    feature_scale: ArrayLike,
    axes: tuple[str, str] = ("datum", "input"),
) -> jax.Array:
    """The sites of features that explain the rows of ``Y`` (n, D), with the names of its axes; the binary matrix."""
    check_slots(max_features, "max_features")
    check_positive(noise_scale=noise_scale, feature_scale=feature_scale)
    alpha = hyper("concentration", concentration)
    of_row, of_column = ({"event_dims": [axis, "latent_feature"]} for axis in axes)
    Z = numpyro.sample("Z", IndianBuffetProcess(alpha, len(Y), max_features), infer=of_row)
    loadings = dist.Normal(0.0, feature_scale).expand([Y.shape[1], max_features]).to_event(2)
    W = numpyro.sample("W", loadings, infer=of_column)
    numpyro.sample("x", dist.Normal(Z @ W.T, noise_scale).to_event(2), obs=Y)
    return Z
