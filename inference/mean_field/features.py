"""Inputs as a classifier and a mixture see them: rows, or inner products with the training data."""

from collections.abc import Callable

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

Array = np.ndarray


class FeatureSpace:
    """The feature space of a kernel, with the training data that new inputs are compared with.

    :param kernel: "linear", "rbf", "precomputed" or a function of two arrays.
    :param X: (n, d) training data; or, if precomputed, (n, m) of their inner products with ``m`` data.
    :param weight: (n,) of the training data.
    :param columns: (n,) where the training data stand among the ``m``.
    :param gamma: the width of "rbf", or "scale".
    :param intercept: append a constant feature.
    :param scale: the prior variance of the weights, by which inner products are multiplied.
    """

    def __init__(
        self,
        kernel: str | Callable,
        X: Array,
        weight: Array,
        columns: Array,
        *,
        gamma: float | str,
        intercept: bool,
        scale: float,
    ):
        self.kernel, self.columns, self.intercept, self.scale = kernel, columns, bool(intercept), scale
        if kernel == "precomputed":
            K = X[:, columns]
            values, vectors = np.linalg.eigh((K + K.T) / 2)
            positive = values > 1e-10 * max(values[-1], 1e-300)
            if not np.any(positive):
                raise ValueError("X has no positive eigenvalue: with kernel='precomputed' it must be a Gram matrix.")
            self.axes = vectors[:, positive] / np.sqrt(values[positive])
        elif kernel != "linear":
            self.X = X
        mean = np.average(X, axis=0, weights=weight).mean()
        spread = np.average((X - mean) ** 2, axis=0, weights=weight).mean()
        self.gamma = gamma if gamma != "scale" else 1 / (X.shape[1] * spread) if spread > 0 else 1.0

    def inputs(self, X: Array) -> Array:
        """The classifiers' rows (n, p), or inner products (n, m) with the training data, under a standard prior."""
        if self.kernel == "linear":
            return np.sqrt(self.scale) * (np.column_stack([X, np.ones(len(X))]) if self.intercept else X)
        if self.kernel == "precomputed":
            K = X[:, self.columns]
        elif self.kernel == "rbf":
            K = rbf_kernel(X, self.X, gamma=self.gamma)
        else:
            assert callable(self.kernel)
            K = np.asarray(self.kernel(X, self.X), float)
        size = len(self.columns)
        if K.shape != (len(X), size) or not np.all(np.isfinite(K)):
            raise ValueError(
                f"kernel returned shape {K.shape}, or entries that are not finite: it must return the Gram matrix of "
                f"its arguments, ({len(X)}, {size})."
            )
        return self.scale * (K + self.intercept)

    def coordinates(self, X: Array) -> Array:
        """The mixture's data (n, d): the inputs themselves or, if precomputed, principal coordinates."""
        return X[:, self.columns] @ self.axes if self.kernel == "precomputed" else X
