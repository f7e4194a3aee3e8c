r"""The Bayesian support vector machine for several classes (Crammer and Singer's loss).

    eta_k ~ N(0, nu^2 I),  k = 0..L-1                                        one weight vector per class
    phi(y_i | x_i, eta) = exp(-2 c [max_k (ell 1[k != y_i] + s_ik) - s_iy_i])    with scores s_ik = eta_k'x_i

**References**

1. *On the algorithmic implementation of multiclass kernel-based vector machines*, Crammer and Singer, JMLR 2 (2001).
2. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Wang and Zhu, AAAI (2014), Appendix C:
   one component of its mixture (the margin there is printed for the wrong classes).
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from .factors import multiclass_hinge
from .laws.arguments import check_features, check_labels, check_num_classes, check_positive


def multiclass_svm(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    num_classes: int | None = None,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    prior_scale: ArrayLike = 1.0,
    intercept: bool = False,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) inputs.
    :param y: (n,) labels in ``0..L-1``; without them the program predicts: sites ``f`` (scores) and ``y`` (labels).
    :param num_classes: ``L``; counted in ``y`` when not given, and needed without ``y``.
    :param cost: ``c``, the weight of the margin term.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior's standard deviation.
    :param intercept: append a constant 1 to the inputs; each ``eta_k`` then has d + 1 entries, the last the intercept.

    **Example**: predictions for new inputs.

    >>> from jax import random
    >>> from numpyro.infer import MCMC, Predictive
    >>> import regbayes
    >>> from regbayes.models import multiclass_svm
    >>> (X, y), _ = regbayes.zoo["multiclass-svm"].example()
    >>> kernel = regbayes.zoo["multiclass-svm"].kernels["slice"]()
    >>> mcmc = MCMC(kernel, num_warmup=10, num_samples=50, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y)
    >>> predict = Predictive(multiclass_svm, mcmc.get_samples())
    >>> predict(random.key(1), X[:5], num_classes=3)["y"].shape
    (50, 5)
    """
    X = check_features(X, intercept=intercept)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    if y is not None:
        y, num_classes = check_labels(y, len(X), num_classes)
    elif num_classes is None:
        raise ValueError("num_classes must be given to predict without y, found None")
    check_num_classes(num_classes)
    law = dist.Normal(0.0, prior_scale).expand([num_classes, X.shape[1]]).to_event(2)
    eta = numpyro.sample("eta", law, infer={"event_dims": ["class", "weight"]})
    scores = X @ eta.T
    if y is None:
        numpyro.deterministic("f", scores)
        numpyro.deterministic("y", jnp.argmax(scores, axis=-1))
        return
    multiclass_hinge("margin", scores, y, cost=cost, ell=ell)
