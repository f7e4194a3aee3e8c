r"""The Bayesian support vector machine for two classes.

    eta ~ N(0, nu^2 I)                                           the weights
    phi(y_i | x_i, eta) = exp(-2 c max(0, ell - y_i eta'x_i))    the hinge as a pseudo-likelihood, y_i in {-1, +1}

**References**

1. *Data augmentation for support vector machines*, Polson and Scott, Bayesian Analysis 6 (2011).
2. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Wang and Zhu, AAAI (2014): one component
   of its mixture.
"""

import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from .factors import hinge
from .laws.arguments import check_features, check_labels, check_positive


def svm(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    prior_scale: ArrayLike = 1.0,
    intercept: bool = False,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) inputs.
    :param y: (n,) labels, 0 or 1; without them the program predicts: sites ``f`` (scores) and ``y`` (labels).
    :param cost: ``c``, the weight of the margin term.
    :param ell: the margin.
    :param prior_scale: ``nu``, the prior's standard deviation.
    :param intercept: append a constant 1 to the inputs; ``eta`` then has d + 1 entries, the last the intercept.

    **Example**

    >>> import regbayes
    >>> (X, y), _ = regbayes.zoo["svm"].example()
    >>> dt = regbayes.fit("svm", X, y, cost=0.5, num_warmup=10, num_samples=20, num_chains=2, progress=False)
    >>> dt["posterior"]["eta"].shape == (2, 20, X.shape[1])
    True
    """
    X = check_features(X, intercept=intercept)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    eta = numpyro.sample(
        "eta", dist.Normal(0.0, prior_scale).expand([X.shape[1]]).to_event(1), infer={"event_dims": ["weight"]}
    )
    f = X @ eta
    if y is None:
        numpyro.deterministic("f", f)
        numpyro.deterministic("y", (f > 0).astype(int))
        return
    y, _ = check_labels(y, len(X), num_classes=2)
    hinge("margin", f, 2 * y - 1, cost=cost, ell=ell)
