"""Sets of binary features of a few rows, all up to a number, and how often a sampler visited each."""

import itertools

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy.special import gammaln, logsumexp


def feature_sets(n, most):
    """Every set of at most ``most`` features of ``n`` rows, with repetitions: (sets, n, most), zeros last."""
    sets = [s for K in range(most + 1) for s in itertools.combinations_with_replacement(range(1, 2**n), K)]
    codes = np.array([s + (0,) * (most - len(s)) for s in sets])
    return codes[:, None, :] >> np.arange(n)[:, None] & 1


def keys(Z):
    """(...,) a number for each matrix (..., n, M) that does not depend on the order of its columns."""
    n = Z.shape[-2]
    codes = np.sort(np.sum(Z << np.arange(n)[:, None], axis=-2), axis=-1)[..., ::-1]
    width = min(codes.shape[-1], 62 // n)
    assert not codes[..., width:].any()
    return np.sum(codes[..., :width] << (n * np.arange(width)), axis=-1)


def log_prior(sets, alpha):
    """(sets,) log probabilities of the sets under the Indian buffet process, by Griffiths and Ghahramani's formula."""
    n, m = sets.shape[1], sets.sum(1)
    active = m > 0
    column = gammaln(n - m + 1) + gammaln(np.maximum(m, 1)) - gammaln(n + 1)
    codes = np.sum(sets << np.arange(n)[:, None], axis=1)
    codes, repeats, run = np.sort(codes, axis=1), np.zeros(len(sets)), np.ones(len(sets))
    for k in range(1, codes.shape[1]):  # the factorials of the numbers of equal ones, factor by factor
        run = np.where(codes[:, k] == codes[:, k - 1], run + 1, 1)
        repeats += np.where(codes[:, k] > 0, np.log(run), 0.0)
    H = np.sum(1 / np.arange(1, n + 1))
    return active.sum(1) * np.log(alpha) - alpha * H + np.sum(column * active, axis=1) - repeats


def log_rows(sets, X, noise_scale, feature_scale):
    """(sets,) log densities of ``X`` (n, d) with the loadings integrated out."""
    n, d = X.shape
    covariance = noise_scale**2 * np.eye(n) + feature_scale**2 * sets @ sets.swapaxes(1, 2)
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return -d / 2 * log_det - np.einsum("nd,snm,md->s", X, np.linalg.inv(covariance), X) / 2


def set_scores(Z, sets, logs):
    """z-scores of the share of draws ``Z`` (chains, draws, n, M) in each set against its posterior probability."""
    expected, found = np.exp(logs - logsumexp(logs)), keys(np.asarray(Z))
    often = expected * found.size > 50  # the others count as one, or the normal approximation would not hold
    hits = found[..., None] == keys(sets[often])
    hits, expected = np.concatenate([hits, ~hits.any(-1, keepdims=True)], -1), expected[often]
    expected = np.append(expected, 1 - expected.sum())
    error = np.sqrt(expected * (1 - expected) / effective_sample_size(hits.astype(float)))
    scores = (hits.mean((0, 1)) - expected) / error
    print(f"largest |z| {np.abs(scores).max():.2f} of {len(scores)} events")
    return scores
