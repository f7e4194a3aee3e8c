"""Statistical comparisons on Monte Carlo standard errors."""

import numpy as np
from numpyro.diagnostics import effective_sample_size

MAX_Z = 4.0
"""Fixed seeds make the tests reproducible; at this level one of sixteen thousand true nulls would fail."""


def z_scores(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """z-scores of the difference of means and of variances of two sets of draws.

    :param a: (chains, draws, ...) draws of one sampler.
    :param b: the same of another; may be of another length.
    :return: (2, ...) scores.
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    centre = (a.mean((0, 1)) + b.mean((0, 1))) / 2
    rows = []
    for moment in (lambda x: x, lambda x: (x - centre) ** 2):
        p, q = moment(a), moment(b)
        error = np.sqrt(_squared_error(p) + _squared_error(q))
        gap = np.asarray(p.mean((0, 1)) - q.mean((0, 1)))
        # Two values at equal distances from the centre have a constant square: no error, and no gap if it is the same.
        rows.append(np.divide(gap, error, out=np.where(gap == 0, 0.0, np.inf), where=error > 0))
    return np.stack(rows)


def assert_agree(a: np.ndarray, b: np.ndarray) -> None:
    """Two samplers agree in means and variances; `pytest -rP` shows the largest score."""
    largest = np.abs(z_scores(a, b)).max()
    print(f"largest |z| {largest:.2f} of {2 * np.size(a[0, 0])}")
    assert largest < MAX_Z


def _squared_error(draws: np.ndarray) -> np.ndarray:
    error, varying = np.zeros(draws.shape[2:]), np.ptp(draws, axis=(0, 1)) > 0
    error[varying] = draws[..., varying].var((0, 1)) / effective_sample_size(draws[..., varying])
    return error
