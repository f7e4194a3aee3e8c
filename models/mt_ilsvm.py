r"""The multi-task infinite latent SVM: a binary projection of the inputs that all tasks share.

    Z ~ IBP(alpha)                                                  which input (row) is part of which feature (column)
    w_n ~ N(0, sigma_0^2 I),   x_n ~ N(Z w_n, sigma_n^2 I)          the projection explains the inputs
    eta_m ~ N(0, nu^2 I)                                            one weight vector per task
    f_mn = eta_m'g_n                                                with g_n the features Z'x_n
    phi(y_mn) = exp(-2 c max(0, ell - y_mn f_mn))                   labels, -1 and 1
    phi(y_mn) = exp(-2 c max(0, |y_mn - f_mn| - epsilon))           responses

Behind the features ``g_n`` has the inputs (``extra_features``) and a constant 1 (``intercept``). The paper lets each
task have its ``sigma_0`` and each datum its ``sigma_n`` (there ``lambda``); here both are common, so that the
loadings can be integrated out. It bounds the loss of the averaged classifier (:class:`~regbayes.inference.MTILSVM`);
here it is the expected loss of the Gibbs classifier.

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR 15 (2014), section 4.3.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from .factors import epsilon_insensitive, hinge
from .ibp import ibp_sites
from .ilsvm import appended_inputs
from .laws.arguments import NeedsValues, check_features, check_positive, counted, is_concrete

LOSSES = ("hinge", "epsilon-insensitive")


def mt_ilsvm(
    X: ArrayLike,
    y: ArrayLike | None = None,
    task: ArrayLike | None = None,
    *,
    num_tasks: int | None = None,
    loss: str = "hinge",
    max_features: int = 32,
    concentration: ArrayLike | Distribution = 1.0,
    noise_scale: ArrayLike = 1.0,
    feature_scale: ArrayLike = 1.0,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    epsilon: ArrayLike = 0.1,
    prior_scale: ArrayLike = 1.0,
    extra_features: bool = False,
    intercept: bool = True,
) -> None:
    """The program; see the module's page for the generative process.

    :param X: (n, d) inputs.
    :param y: (n,) labels 0 and 1, or real responses, of the data's tasks; or (n, T), a column for each task. Without
        them the program is the feature model alone, with the site ``f`` (n, T).
    :param task: (n,) integers ``0..T-1``; not with a matrix ``y``, and needless with one task.
    :param num_tasks: ``T``; counted where it is not given. A task may have no data.
    :param loss: "hinge" or "epsilon-insensitive".
    :param max_features: slots of the buffer: storage, not a truncation. A kernel that fills it says so.
    :param concentration: ``alpha``, the mean number of features an input is part of, or a ``Gamma`` prior for it.
    :param noise_scale: ``sigma_n``, the standard deviation of the noise.
    :param feature_scale: ``sigma_0``, that of the loadings.
    :param cost: ``c``, the weight of the loss.
    :param ell: the margin of the hinge.
    :param epsilon: half the width of the tube.
    :param prior_scale: ``nu``, the standard deviation of the weights' prior.
    :param extra_features: append the inputs to the features that the tasks see.
    :param intercept: append a constant 1 to them.

    Sites ``Z`` (d, M), ``W`` (n, M) and ``eta`` (T, M and what is appended).

    **Example**

    >>> from jax import random
    >>> from numpyro.infer import MCMC
    >>> import regbayes
    >>> (X, y), settings = regbayes.zoo["mt-ilsvm"].example()
    >>> mcmc = MCMC(regbayes.zoo["mt-ilsvm"].kernels["collapsed"](), num_warmup=10, num_samples=10, progress_bar=False)
    >>> mcmc.run(random.key(0), X, y, **settings)
    >>> regbayes.inference.mt_ilsvm_predict(mcmc.get_samples(), X[:5]).y.shape == (5, y.shape[1])
    True
    """
    X = check_features(X)
    check_positive(cost=cost, ell=ell, prior_scale=prior_scale)
    check_positive(strict=False, epsilon=epsilon)
    rows, task, y, num_tasks = targets(len(X), y, task, num_tasks, loss)
    Z = ibp_sites(X.T, max_features, concentration, noise_scale, feature_scale, ("input", "datum"))
    appended = appended_inputs(X, extra_features, intercept)
    shape = (num_tasks, max_features + appended.shape[1])
    weights = dist.Normal(0.0, prior_scale).expand(shape).to_event(2)
    eta = numpyro.sample("eta", weights, infer={"event_dims": ["task", "feature_weight"]})
    g = jnp.concatenate([X @ Z.astype(X.dtype), appended], axis=1)
    if y is None:
        numpyro.deterministic("f", g @ eta.T)
        return
    f = jnp.sum(g[rows] * eta[task], axis=1)
    if loss == "hinge":
        hinge("margin", f, 2 * y - 1, cost=cost, ell=ell)
    else:
        epsilon_insensitive("margin", f, y, cost=cost, epsilon=epsilon)


def targets(
    n: int, y: ArrayLike | None, task: ArrayLike | None, num_tasks: int | None, loss: str
) -> tuple[jax.Array, jax.Array, jax.Array | None, int]:
    """The row, the task and the value of each known target, all (E,), and the number of tasks."""
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, found {loss!r}")
    if num_tasks is not None and (not isinstance(num_tasks, int | np.integer) or num_tasks < 1):
        raise ValueError(f"num_tasks must be a positive integer, found {num_tasks!r}")
    rows = jnp.arange(n)
    if y is not None and np.ndim(y) == 2:
        if task is not None:
            raise ValueError(f"task must be None with y of shape {np.shape(y)}: its columns are the tasks")
        T = np.shape(y)[1]
        if np.shape(y)[0] != n or T < 1 or num_tasks not in (None, T):
            wanted = f"({n}, {'T' if num_tasks is None else num_tasks})"
            raise ValueError(f"y must have shape {wanted}, a row per row of X, found shape {np.shape(y)}")
        return jnp.repeat(rows, T), jnp.tile(jnp.arange(T), n), jnp.ravel(_values(y, loss)), T
    if y is not None and np.shape(y) != (n,):
        raise ValueError(f"y must have shape ({n},) or ({n}, T), found shape {np.shape(y)}")
    if task is None:
        return rows, jnp.zeros(n, int), None if y is None else _values(y, loss), num_tasks or 1
    dtype = task.dtype if hasattr(task, "dtype") else np.asarray(task).dtype
    if np.shape(task) != (n,) or not np.issubdtype(dtype, np.integer):
        raise ValueError(f"task must hold ({n},) integers 0..T-1, found shape {np.shape(task)}")
    if not is_concrete(task):
        if num_tasks is None:
            raise NeedsValues("task is traced, so the tasks cannot be counted; give num_tasks")
    else:
        low, high = int(np.min(np.asarray(task))), int(np.max(np.asarray(task)))
        if low < 0 or (num_tasks is not None and high >= num_tasks):
            limit = "T" if num_tasks is None else num_tasks
            raise ValueError(f"task must hold integers 0..{limit}-1, found {low}..{high}; renumber them")
        num_tasks = counted("num_tasks", high + 1 if num_tasks is None else num_tasks)
    return rows, jnp.asarray(task, int), None if y is None else _values(y, loss), num_tasks


def _values(y: ArrayLike, loss: str) -> jax.Array:
    """The targets as floats, if they fit the loss."""
    dtype = np.dtype(y.dtype) if hasattr(y, "dtype") else np.asarray(y).dtype
    if not (np.issubdtype(dtype, np.floating) or np.issubdtype(dtype, np.integer) or dtype == np.bool_):
        raise ValueError(f"y must be real numbers, found dtype {dtype}; convert it first")
    if loss == "hinge" and np.issubdtype(dtype, np.floating):
        raise ValueError(f"y must hold integer labels 0 and 1 for the hinge, found dtype {dtype}")
    if is_concrete(y):
        found = np.unique(np.asarray(y))  # NumPy's: JAX would trace it under jit
        if loss == "hinge" and not np.isin(found, [0, 1]).all():
            raise ValueError(f"y must hold labels 0 and 1 for the hinge, found {', '.join(map(str, found[:10]))}")
        if not np.isfinite(found).all():
            raise ValueError("y must be finite, found others; leave those rows out of their task")
    return jnp.asarray(y).astype(jnp.result_type(float))
