r"""The Gibbs infinite SVM: a Dirichlet process mixture of large-margin classifiers.

    z ~ CRP(alpha)                                                      the partition, labels in a buffer of slots
    mu_k ~ conjugate prior of the likelihood,   eta_k ~ N(0, nu^2 I)    each slot's mean and classifier
    x_i | z_i = k ~ p(x | mu_k)                                         an exponential family
    phi(y_i | z_i = k) = exp(-2 c max(0, ell - y_i eta_k'[x_i, 1]))     the hinge as a pseudo-likelihood

with the Crammer-Singer loss and one ``eta_k`` per class where there are more than two. A slot that holds no datum
has parameters from the prior: integrating them out leaves the Dirichlet process mixture itself. Two readings of a
margin are to be told apart: this one bounds the *expected loss* of the Gibbs classifier, which draws its components;
the infinite SVM of Zhu, Chen and Xing bounds the loss of the *averaged* classifier, which is smaller by Jensen's
inequality.

**References**

1. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Wang and Zhu, AAAI (2014).
2. *Infinite SVM: a Dirichlet process mixture of large-margin kernel machines*, Zhu, Chen and Xing, ICML (2011).
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .factors import hinge, multiclass_hinge
from .laws.arguments import check_features, check_labels, check_num_classes, check_positive, check_slots, hyper
from .laws.distributions import ChineseRestaurantProcess
from .laws.families import family


def isvm(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    likelihood: str = "gaussian",
    num_classes: int | None = None,
    max_clusters: int = 64,
    concentration: ArrayLike | Distribution = 1.0,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    prior_scale: ArrayLike = 1.0,
    intercept: bool = True,
    variance: ArrayLike | Distribution = 1.0,
    prior_mean: ArrayLike | None = None,
    prior_count: ArrayLike | None = None,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) inputs: numbers, zeros and ones, or counts, as the likelihood wants them.
    :param y: (n,) labels in ``0..L-1``; without them the program is the mixture alone, with sites ``f`` and ``y`` for
        the scores and labels that the data's own components give. For new inputs see
        :func:`~regbayes.inference.isvm_predict`.
    :param likelihood: "gaussian", "bernoulli", "poisson" or "multinomial".
    :param num_classes: ``L``; counted in ``y`` when not given.
    :param max_clusters: slots of the buffer: storage, not a truncation. A kernel that fills it says so.
    :param concentration: ``alpha``, or a ``Gamma`` prior for it.
    :param cost: ``c``, the weight of the margin term.
    :param ell: the margin.
    :param prior_scale: ``nu``, the standard deviation of the classifiers' prior.
    :param intercept: append a constant 1 to the classifiers' inputs (not to the clustering's).
    :param variance: of the Gaussian likelihood, the same in every direction and component, or an ``InverseGamma``
        prior for it.
    :param prior_mean: ``m``, mean of the components' prior, a number or (d,); by default 0 (gaussian), 1/2
        (bernoulli), 1 (poisson), 1/d (multinomial).
    :param prior_count: ``k``, how many earlier observations the prior is worth; by default 0.01, 2, 1 and d.

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X, y), _ = regbayes.zoo["isvm"].example()
    >>> mcmc = MCMC(regbayes.zoo["isvm"].kernels["collapsed"](), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y, variance=0.25)
    >>> regbayes.inference.isvm_predict(mcmc.get_samples(), X[:5], variance=0.25).y.shape
    (5,)
    """
    A, X = check_features(X, intercept=intercept), check_features(X)
    (n, d), inputs, components = X.shape, A.shape[1], family(likelihood)
    components.check(likelihood, X)
    check_slots(max_clusters)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    if y is not None:
        y, num_classes = check_labels(y, n, num_classes)
    check_num_classes(num_classes)
    several = num_classes is not None and num_classes > 2
    if isinstance(variance, Distribution) and likelihood != "gaussian":
        raise ValueError(f"variance is of likelihood='gaussian', found a prior for it with likelihood={likelihood!r}")
    alpha = hyper("concentration", concentration)
    variance = hyper("variance", variance)
    tau, count = components.prior(d, X.dtype, prior_mean, prior_count)

    z = numpyro.sample(
        "z", ChineseRestaurantProcess(alpha, n, max_clusters), infer={"event_dims": ["datum"], "labels": "cluster"}
    )
    means = components.conjugate(tau, count, variance).expand([max_clusters]).to_event(1)
    mu = numpyro.sample("mu", means, infer={"event_dims": ["cluster", "input"]})
    shape = (max_clusters, num_classes, inputs) if several else (max_clusters, inputs)
    axes = ["cluster", "class", "weight"] if several else ["cluster", "weight"]
    classifiers = dist.Normal(0.0, prior_scale).expand(shape).to_event(len(shape))
    eta = numpyro.sample("eta", classifiers, infer={"event_dims": axes})
    numpyro.sample("x", components.likelihood(mu[z], variance, X), obs=X)
    f = jnp.einsum("nd,n...d->n...", A, eta[z])
    if y is None:
        numpyro.deterministic("f", f)
        numpyro.deterministic("y", jnp.argmax(f, -1) if several else (f > 0).astype(int))
    elif several:
        multiclass_hinge("margin", f, y, cost=cost, ell=ell)
    else:
        hinge("margin", f, 2 * y - 1, cost=cost, ell=ell)
