"""Synthetic data with known truth, in NumPy: reproducible from a seed, float32 like the rest of a default JAX."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit


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


class MixtureTruth(NamedTuple):
    """What a mixture of linear classifiers was drawn with, and the best that can be done with it.

    Cluster ``k`` has the mean ``mu_k`` and ``p(y = 1 | x, k) = sigmoid(eta_k . (x - mu_k))``. The methods take any
    rows together with their clusters; without clusters, the rows are those of the whole data set in their order.

    >>> X, y, truth = make_m2dpm_setting1(200)
    >>> test = slice(150, 200)
    >>> truth.bayes(X[test], truth.z[test]).shape
    (50,)
    """

    z: np.ndarray  # (n,) clusters, 0..K-1
    mu: np.ndarray  # (K, d) their means
    eta: np.ndarray  # (K, d) their classifiers

    def probability(self, X: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
        """(n,) probability of the label 1 at the rows ``X`` (n, d) of the clusters ``z`` (n,)."""
        z = self.z if z is None else np.asarray(z)
        if len(z) != len(X):
            raise ValueError(f"z must hold the clusters of the {len(X)} rows of X, found {len(z)}; pass z[rows]")
        return expit(np.sum(self.eta[z] * (X - self.mu[z]), axis=1))

    def bayes(self, X: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
        """(n,) the more probable label: no classifier is right more often."""
        return (self.probability(X, z) > 0.5).astype(np.int32)


def make_m2dpm_setting1(
    num_data: int = 1000,
    dim: int = 10,
    *,
    max_clusters: int = 10,
    concentration: float = 1.0,
    noise: float = 0.5,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, MixtureTruth]:
    """Setting I of M2DPM [1]: Gaussian clusters of a Chinese restaurant process, a linear classifier in each.

    ``z ~ CRP(concentration)``, which opens no more clusters once there are ``max_clusters``; ``x ~ N(mu_z, noise^2 I)``
    with ``mu_k = (k, ..., k)``, ``k = 1, 2, ...``; ``eta_k ~ N(0, I)``; ``p(y = 1) = sigmoid(eta_z . (x - mu_z))``.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param max_clusters: the most clusters.
    :param concentration: ``alpha`` of the process.
    :param noise: ``sigma``, the standard deviation of each feature in a cluster.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,) in {0, 1}, and the truth, with clusters from 0.

    **References**

    1. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Y. Wang and J. Zhu, AAAI (2015)

    >>> X, y, truth = make_m2dpm_setting1()
    >>> X.shape, sorted(set(y.tolist())), len(truth.mu) <= 10
    ((1000, 10), [0, 1], True)
    """
    rng = np.random.default_rng(seed)
    z = _restaurant(rng, num_data, concentration, max_clusters)
    mu = np.tile(np.arange(1.0, z.max() + 2)[:, None], dim)
    return _classify(rng, mu[z] + noise * rng.normal(size=(num_data, dim)), z, mu)


def make_m2dpm_setting2(
    num_data: int = 10_000, dim: int = 10, num_clusters: int = 10, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, MixtureTruth]:
    """Setting II of M2DPM (see :func:`make_m2dpm_setting1`): disjoint cubes, a linear classifier in each.

    Clusters of equal size, in random order; each feature ``x ~ U[k - 1/2, k + 1/2]``, ``k = 1, 2, ...``; classifiers
    and labels as in Setting I.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param num_clusters: ``K``.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,) in {0, 1}, and the truth, with clusters from 0.

    >>> X, y, truth = make_m2dpm_setting2(300, 2, 3)
    >>> X.shape, np.bincount(truth.z).tolist(), truth.mu.tolist()
    ((300, 2), [100, 100, 100], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    """
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.arange(num_data) % num_clusters).astype(np.int32)
    mu = np.tile(np.arange(1.0, num_clusters + 1)[:, None], dim)
    return _classify(rng, mu[z] + rng.uniform(-0.5, 0.5, size=(num_data, dim)), z, mu)


def make_m2dpm_dp(
    num_data: int = 10_000,
    dim: int = 10,
    *,
    concentration: float = 1.6,
    spread: float = 3.0,
    noise: float = 0.5,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, MixtureTruth]:
    """A sample of a Dirichlet process mixture of classifiers, as in Table 2 of M2DPM.

    Clusters come in the order of a Chinese restaurant process, so that the first ``n0`` rows are a sample of the same
    process and may show fewer clusters. ``mu_k ~ N(0, spread^2 I)``, ``x ~ N(mu_z, noise^2 I)``; classifiers and labels
    as in :func:`make_m2dpm_setting1`. The paper gives neither its concentration nor its base measure: at 1.6 one
    expects 7, 9, 11, 13 and 15 clusters in 100, 300, 1,000, 3,000 and 10,000 rows; the paper had 8, 9, 11, 13, 14.

    :param num_data: ``n``.
    :param dim: ``d``.
    :param concentration: ``alpha`` of the process.
    :param spread: standard deviation of the means; far above ``noise`` the clusters are apart.
    :param noise: standard deviation of each feature in a cluster.
    :param seed: seed of the generator.
    :return: ``X`` (n, d), ``y`` (n,) in {0, 1}, and the truth, with clusters from 0 in the order they open.

    >>> X, y, truth = make_m2dpm_dp(300)
    >>> int(truth.z[0]), len(truth.mu) == len(set(truth.z.tolist()))
    (0, True)
    """
    rng = np.random.default_rng(seed)
    z = _restaurant(rng, num_data, concentration)
    mu = spread * rng.normal(size=(z.max() + 1, dim))
    return _classify(rng, mu[z] + noise * rng.normal(size=(num_data, dim)), z, mu)


def _restaurant(
    rng: np.random.Generator, num_data: int, concentration: float, max_clusters: float = np.inf
) -> np.ndarray:
    """(n,) tables of a Chinese restaurant process, numbered as they open, at most ``max_clusters`` of them."""
    z, num_clusters = np.zeros(num_data, np.int32), 1
    for i, u in enumerate(rng.uniform(size=num_data)[1:], start=1):
        # Blackwell and MacQueen's urn: sit with an earlier guest, each equally likely, or alone.
        seat = u * (i + (concentration if num_clusters < max_clusters else 0.0))
        if seat < i:
            z[i] = z[int(seat)]
        else:
            z[i], num_clusters = num_clusters, num_clusters + 1
    return z


def _classify(
    rng: np.random.Generator, X: np.ndarray, z: np.ndarray, mu: np.ndarray
) -> tuple[np.ndarray, np.ndarray, MixtureTruth]:
    """Draw a classifier for each cluster, then the labels."""
    truth = MixtureTruth(z, mu, rng.normal(size=mu.shape))
    y = (rng.uniform(size=len(X)) < truth.probability(X)).astype(np.int32)
    return X.astype(np.float32), y, truth
