"""Data with known latent features, and tasks that share them, after the infinite latent SVMs [1].

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, J. Zhu, N. Chen and
   E. P. Xing, JMLR (2014), section 4
"""

from typing import NamedTuple

import numpy as np


class FeatureTruth(NamedTuple):
    """What data with latent features were drawn with."""

    Z: np.ndarray  # (n, K) features, 0 or 1
    W: np.ndarray  # (d, K) loadings
    eta: np.ndarray  # (L, K) the classes' weights


class TaskTruth(NamedTuple):
    """What tasks on a shared projection were drawn with."""

    Z: np.ndarray  # (d, K) the projection, 0 or 1
    W: np.ndarray  # (n, K) loadings of the data
    eta: np.ndarray  # (M, K) the tasks' weights


def make_latent_features(
    num_data: int = 200,
    dim: int = 20,
    num_features: int = 6,
    *,
    num_classes: int = 3,
    probability: float = 0.4,
    noise: float = 0.3,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, FeatureTruth]:
    """Inputs that are sums of latent features, and classes linear in the features.

    ``z_nk ~ Bernoulli(probability)``, ``W ~ N(0, 1)``, ``x ~ N(W z, noise^2 I)``; the class is the largest score
    ``eta_y . (z - probability)``, ``eta ~ N(0, 1)``.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param num_features: ``K``.
    :param num_classes: ``L``.
    :param probability: of each feature.
    :param noise: standard deviation of the inputs about ``W z``.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,) in ``0..L-1``, and the truth.

    >>> X, y, truth = make_latent_features(100, 12, 4)
    >>> X.shape, truth.Z.shape, sorted(set(truth.Z.ravel().tolist()))
    ((100, 12), (100, 4), [0, 1])
    """
    _check(num_features, probability, noise)
    rng = np.random.default_rng(seed)
    Z = (rng.uniform(size=(num_data, num_features)) < probability).astype(np.int32)
    W, eta = rng.normal(size=(dim, num_features)), rng.normal(size=(num_classes, num_features))
    X = Z @ W.T + noise * rng.normal(size=(num_data, dim))
    y = np.argmax((Z - probability) @ eta.T, axis=1)
    return X.astype(np.float32), y.astype(np.int32), FeatureTruth(Z, W, eta)


def make_latent_tasks(
    num_data: int = 200,
    dim: int = 20,
    num_features: int = 4,
    *,
    num_tasks: int = 8,
    probability: float = 0.4,
    noise: float = 0.3,
    loss: str = "hinge",
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, TaskTruth]:
    """Inputs ``x = Z w`` with a binary projection, and tasks linear in ``Z' x``.

    ``z_dk ~ Bernoulli(probability)``, ``w_n ~ N(0, I)``, ``x ~ N(Z w, noise^2 I)``; task ``m`` has the score ``f_m =
    eta_m . Z' x``, ``eta ~ N(0, 1)``, divided by its standard deviation, with noise added; a label is its sign.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param num_features: ``K``.
    :param num_tasks: ``M``.
    :param probability: of each entry of the projection.
    :param noise: standard deviation of the inputs about ``Z w``, and of the scores.
    :param loss: "hinge" for labels, "epsilon-insensitive" for numbers.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``Y`` (n, M) in {0, 1}, or numbers, and the truth.

    >>> X, Y, truth = make_latent_tasks(100, 12, num_tasks=5)
    >>> X.shape, Y.shape, truth.Z.shape
    ((100, 12), (100, 5), (12, 4))
    """
    _check(num_features, probability, noise)
    if loss not in ("hinge", "epsilon-insensitive"):
        raise ValueError(f"loss must be 'hinge' or 'epsilon-insensitive', found {loss!r}; pass one of them")
    rng = np.random.default_rng(seed)
    Z = (rng.uniform(size=(dim, num_features)) < probability).astype(np.int32)
    W, eta = rng.normal(size=(num_data, num_features)), rng.normal(size=(num_tasks, num_features))
    X = W @ Z.T + noise * rng.normal(size=(num_data, dim))
    f = X @ Z @ eta.T
    f = f / np.maximum(f.std(0), 1e-12) + noise * rng.normal(size=f.shape)
    Y = (f > 0).astype(np.int32) if loss == "hinge" else f.astype(np.float32)
    return X.astype(np.float32), Y, TaskTruth(Z, W, eta)


def _check(num_features: int, probability: float, noise: float) -> None:
    if num_features < 1:
        raise ValueError(f"num_features must be at least 1, found {num_features}; pass a positive number")
    if not 0 < probability < 1:
        raise ValueError(f"probability must be between 0 and 1, found {probability}; pass the share of ones")
    if not noise >= 0:
        raise ValueError(f"noise must be 0 or more, found {noise}; pass a standard deviation")
