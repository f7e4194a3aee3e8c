"""Synthetic data with known truth, in NumPy: reproducible from a seed, float32 like the rest of a default JAX."""

import numpy as np


def make_svm(
    num_data: int = 200, dim: int = 2, *, noise: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two overlapping classes split by a random hyperplane.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param noise: standard deviation added to the score before its sign is taken.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,) in {0, 1}, and the true weights (d,).

    >>> X, y, eta = make_svm(50, 3)
    >>> X.shape, sorted(set(y.tolist())), eta.shape
    ((50, 3), [0, 1], (3,))
    """
    rng = np.random.default_rng(seed)
    X, eta = rng.normal(size=(num_data, dim)), rng.normal(size=dim)
    y = (X @ eta + noise * rng.normal(size=num_data) > 0).astype(np.int32)
    return X.astype(np.float32), y, eta


def make_multiclass_svm(
    num_data: int = 200, dim: int = 2, num_classes: int = 3, *, noise: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping classes, each datum in the one with the largest noisy linear score.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param num_classes: ``L``.
    :param noise: standard deviation added to the scores.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,) in ``0..L-1``, and the true weights (L, d).

    >>> X, y, eta = make_multiclass_svm(60, 2, 4)
    >>> X.shape, eta.shape
    ((60, 2), (4, 2))
    """
    rng = np.random.default_rng(seed)
    X, eta = rng.normal(size=(num_data, dim)), 2 * rng.normal(size=(num_classes, dim))
    y = np.argmax(X @ eta.T + noise * rng.normal(size=(num_data, num_classes)), axis=1)
    return X.astype(np.float32), y.astype(np.int32), eta


def make_svr(
    num_data: int = 200, dim: int = 2, *, noise: float = 0.3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A linear function with Laplace noise.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param noise: scale of the noise.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,), and the true weights (d,).

    >>> X, y, eta = make_svr(50, 3)
    >>> X.shape, y.shape, eta.shape
    ((50, 3), (50,), (3,))
    """
    rng = np.random.default_rng(seed)
    X, eta = rng.normal(size=(num_data, dim)), rng.normal(size=dim)
    y = X @ eta + noise * rng.laplace(size=num_data)
    return X.astype(np.float32), y.astype(np.float32), eta
