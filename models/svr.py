r"""Bayesian support vector regression.

    eta ~ N(0, nu^2 I)                                                the weights
    phi(y_i | x_i, eta) = exp(-2 c max(0, |y_i - eta'x_i| - epsilon))    a tube of half-width epsilon costs nothing

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR 15 (2014), Lemma 11: the loss of its regression models.
"""

import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from .factors import epsilon_insensitive
from .laws.arguments import check_features, check_positive, check_targets


def svr(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    cost: ArrayLike = 1.0,
    epsilon: ArrayLike = 0.1,
    prior_scale: ArrayLike = 1.0,
    intercept: bool = False,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) inputs.
    :param y: (n,) targets; without them the program predicts: site ``y``.
    :param cost: ``c``, the weight of the loss.
    :param epsilon: half the width of the tube.
    :param prior_scale: ``nu``, the prior's standard deviation.
    :param intercept: append a constant 1 to the inputs; ``eta`` then has d + 1 entries, the last the intercept.

    **Example**

    >>> import regbayes
    >>> (X, y), _ = regbayes.zoo["svr"].example()
    >>> dt = regbayes.fit("svr", X, y, epsilon=0.2, num_warmup=10, num_samples=20, num_chains=2, progress=False)
    >>> dt["posterior"]["eta"].shape == (2, 20, X.shape[1])
    True
    """
    X = check_features(X, intercept=intercept)
    check_positive(cost=cost, prior_scale=prior_scale)
    check_positive(strict=False, epsilon=epsilon)
    eta = numpyro.sample(
        "eta", dist.Normal(0.0, prior_scale).expand([X.shape[1]]).to_event(1), infer={"event_dims": ["weight"]}
    )
    f = X @ eta
    if y is None:
        numpyro.deterministic("y", f)
        return
    y = check_targets(y, len(X))
    epsilon_insensitive("tube", f, y, cost=cost, epsilon=epsilon)
