"""The synthetic settings of the infinite SVM [1]; the second is Simulation 2 of dpMNL [2].

**References**

1. *Infinite SVM: a Dirichlet process mixture of large-margin kernel machines*, J. Zhu, N. Chen and E. P. Xing,
   ICML (2011), section 4.1
2. *Nonlinear models using Dirichlet process mixtures*, B. Shahbaba and R. Neal, JMLR (2009)
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit


class NonlinearTruth(NamedTuple):
    """What the labels were drawn with, and the best that can be done with it.

    In component ``k``, ``p(y = 1 | x) = sigmoid(-a_k sin(x_1^r + 1.2) - x_1 cos(b_k x_2 + 0.7) - c_k x_3 + 2)``.
    Setting 3 has negative ``x_1`` and ``r = 1.04``, a power that is not real: it is read as ``sign(x_1) |x_1|^r``. The
    methods take any rows together with their components; without them, the rows are those of the whole data set.

    >>> X, y, truth = make_isvm_setting2(200)
    >>> test = slice(100, 200)
    >>> truth.bayes(X[test], truth.z[test]).shape
    (100,)
    """

    z: np.ndarray  # (n,) components, 0..K-1
    abc: np.ndarray  # (K, 3) their a, b and c
    power: float  # r

    def probability(self, X: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
        """(n,) probability of the label 1 at the rows ``X`` (n, d) of the components ``z`` (n,)."""
        z = self.z if z is None else np.asarray(z)
        if len(z) != len(X):
            raise ValueError(f"z must hold the components of the {len(X)} rows of X, found {len(z)}; pass z[rows]")
        x_1, x_2, x_3 = np.asarray(X, float).T[:3]
        a, b, c = self.abc[z].T
        power = np.sign(x_1) * np.abs(x_1) ** self.power
        return expit(-a * np.sin(power + 1.2) - x_1 * np.cos(b * x_2 + 0.7) - c * x_3 + 2)

    def bayes(self, X: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
        """(n,) the more probable label: no classifier is right more often."""
        return (self.probability(X, z) > 0.5).astype(np.int32)


def make_isvm_figure1(
    num_data: int = 200, *, curve: float = 0.5, noise: float = 0.02, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two Gaussians of the plane with a curved boundary in each, as the infinite SVM's first figure illustrates them.

    The paper gives no numbers, so these are ours: unit variances about ``(-2.5, 0)`` and ``(2.5, 0)``, and the classes
    on the two sides of a parabola, which is upside down in the right one.

    :param num_data: ``n``, half of it in each Gaussian.
    :param curve: how bent the boundary is; 0 for a line.
    :param noise: share of labels the wrong way round.
    :param seed: seed of the generator.
    :return: ``X`` (n, 2), ``y`` (n,) in {0, 1}, and the Gaussians (n,).

    >>> X, y, z = make_isvm_figure1(100)
    >>> X.shape, sorted(set(y.tolist())), np.bincount(z).tolist()
    ((100, 2), [0, 1], [50, 50])
    """
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.arange(num_data) % 2)
    side, u = 2 * z - 1, rng.normal(size=(num_data, 2))
    y = side * (u[:, 1] - curve * (u[:, 0] ** 2 - 1)) > 0
    X = u + 2.5 * np.stack([side, 0 * side], axis=1)
    return X, (y ^ (rng.uniform(size=num_data) < noise)).astype(np.int32), z


def make_isvm_setting1(num_data: int = 10_000, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, NonlinearTruth]:
    """Setting 1 of the infinite SVM: two Gaussian components in four dimensions, the last of no use for the label.

    Each feature of the two components has its own mean, ``N(1, 1)`` and ``N(2, 1)``, and its own variance, ``log
    sigma^2 ~ N(0, 2^2)``; ``a``, ``b`` and ``c`` are ``N(1, 0.5^2)``, common to both; ``r = 3``. Components of equal
    size, in random order.

    :param num_data: ``n``.
    :param seed: seed of the generator.
    :return: ``X`` (n, 4), ``y`` (n,) in {0, 1}, and the truth.

    >>> X, y, truth = make_isvm_setting1(300)
    >>> X.shape, sorted(set(y.tolist())), np.bincount(truth.z).tolist()
    ((300, 4), [0, 1], [150, 150])
    """
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.arange(num_data) % 2).astype(np.int32)
    mu = rng.normal([[1.0], [2.0]], 1.0, size=(2, 4))
    sigma = np.exp(rng.normal(0.0, 2.0, size=(2, 4)) / 2)
    abc = np.tile(rng.normal(1.0, 0.5, size=3), (2, 1))
    return _label(rng, mu[z] + sigma[z] * rng.normal(size=(num_data, 4)), NonlinearTruth(z, abc, 3.0))


def make_isvm_setting2(num_data: int = 10_000, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, NonlinearTruth]:
    """Setting 2 of the infinite SVM: one cube, ``x ~ U[0, 5]^3``; ``a``, ``b``, ``c`` as in Setting 1; ``r = 1.04``.

    :param num_data: ``n``.
    :param seed: seed of the generator.
    :return: ``X`` (n, 3), ``y`` (n,) in {0, 1}, and the truth, with a single component.

    >>> X, y, truth = make_isvm_setting2(300)
    >>> X.shape, bool(X.min() >= 0), bool(X.max() <= 5)
    ((300, 3), True, True)
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 5.0, size=(num_data, 3))
    abc = rng.normal(1.0, 0.5, size=(1, 3))
    return _label(rng, X, NonlinearTruth(np.zeros(num_data, np.int32), abc, 1.04))


def make_isvm_setting3(num_data: int = 10_000, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, NonlinearTruth]:
    """Setting 3 of the infinite SVM: two cubes, ``[0, 5]^3`` and ``[-5, 0]^3``, of equal size, in random order.

    ``a``, ``b``, ``c`` are ``N(1, 0.5^2)`` in the first and ``N(-1, 0.5^2)`` in the second; ``r = 1.04``.

    :param num_data: ``n``.
    :param seed: seed of the generator.
    :return: ``X`` (n, 3), ``y`` (n,) in {0, 1}, and the truth.

    >>> X, y, truth = make_isvm_setting3(300)
    >>> bool(np.all((X > 0) == (truth.z == 0)[:, None]))
    True
    """
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.arange(num_data) % 2).astype(np.int32)
    X = rng.uniform(0.0, 5.0, size=(num_data, 3)) - 5.0 * z[:, None]
    abc = rng.normal([[1.0], [-1.0]], 0.5, size=(2, 3))
    return _label(rng, X, NonlinearTruth(z, abc, 1.04))


def _label(
    rng: np.random.Generator, X: np.ndarray, truth: NonlinearTruth
) -> tuple[np.ndarray, np.ndarray, NonlinearTruth]:
    """Draw the labels."""
    X = X.astype(np.float32)
    y = (rng.uniform(size=len(X)) < truth.probability(X)).astype(np.int32)
    return X, y, truth
