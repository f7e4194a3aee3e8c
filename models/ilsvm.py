r"""The infinite latent SVM: features that explain the inputs and divide the classes, as many as the data ask for.

    Z ~ IBP(alpha),   w_dk ~ N(0, sigma_0^2)                        which datum has which feature; loadings
    x_n ~ N(W z_n, sigma_n^2 I)
    eta_y ~ N(0, nu^2 I)                                            one weight vector per class
    phi(y_n | z_n, eta) = exp(-2 c [max_y (ell 1[y != y_n] + eta_y'g_n) - eta_{y_n}'g_n])

with ``g_n`` the features ``z_n``, and behind them the inputs (``extra_features``) and a constant 1 (``intercept``). The
paper bounds the loss of the averaged classifier, by its dual (:class:`~regbayes.inference.ILSVM`); here it is the
expected loss of the Gibbs classifier. A slot that no datum has a feature in has loadings and weights from the prior.

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR 15 (2014), section 4.2.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .factors import multiclass_hinge
from .ibp import ibp_sites
from .laws.arguments import check_features, check_labels, check_num_classes, check_positive


def ilsvm(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    num_classes: int | None = None,
    max_features: int = 32,
    concentration: ArrayLike | Distribution = 1.0,
    noise_scale: ArrayLike = 1.0,
    feature_scale: ArrayLike = 1.0,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    prior_scale: ArrayLike = 1.0,
    extra_features: bool = False,
    intercept: bool = True,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) inputs.
    :param y: (n,) labels in ``0..L-1``; without them the program is the feature model alone, with sites ``f`` and ``y``
        for the scores and labels of its data. For new inputs see :func:`~regbayes.inference.ilsvm_predict`.
    :param num_classes: ``L``; counted in ``y`` when not given, and 2 without labels.
    :param max_features: slots of the buffer: storage, not a truncation. A kernel that fills it says so.
    :param concentration: ``alpha``, the mean number of features of a datum, or a ``Gamma`` prior for it.
    :param noise_scale: ``sigma_n``, the standard deviation of the noise.
    :param feature_scale: ``sigma_0``, that of the loadings.
    :param cost: ``c``, the weight of the margin.
    :param ell: the margin.
    :param prior_scale: ``nu``, the standard deviation of the weights' prior.
    :param extra_features: append the inputs to the features that the classifier sees.
    :param intercept: append a constant 1 to them.

    Sites ``Z`` (n, M), ``W`` (d, M) and ``eta`` (L, M and what is appended).

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X, y), settings = regbayes.zoo["ilsvm"].example()
    >>> mcmc = MCMC(regbayes.zoo["ilsvm"].kernels["collapsed"](), num_warmup=10, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y, **settings)
    >>> regbayes.inference.ilsvm_predict(mcmc.get_samples(), X[:5], **settings).y.shape
    (5,)
    """
    X = check_features(X)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    if y is not None:
        y, num_classes = check_labels(y, len(X), num_classes)
    check_num_classes(num_classes)
    Z = ibp_sites(X, max_features, concentration, noise_scale, feature_scale)
    appended = appended_inputs(X, extra_features, intercept)
    shape = (num_classes or 2, max_features + appended.shape[1])
    weights = dist.Normal(0.0, prior_scale).expand(shape).to_event(2)
    eta = numpyro.sample("eta", weights, infer={"event_dims": ["class", "feature_weight"]})
    f = jnp.concatenate([Z.astype(X.dtype), appended], axis=1) @ eta.T
    if y is None:
        numpyro.deterministic("f", f)
        numpyro.deterministic("y", jnp.argmax(f, axis=-1))
    else:
        multiclass_hinge("margin", f, y, cost=cost, ell=ell)


def appended_inputs(X: jax.Array, extra_features: bool, intercept: bool) -> jax.Array:
    """(n, e) what stands behind the features in the classifier's inputs."""
    return jnp.concatenate([X[:, : X.shape[1] * extra_features], jnp.ones_like(X[:, :intercept])], axis=1)
