"""Partitions of a few data, all of them, and how often a sampler visited each."""

import itertools

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy.special import gammaln, logsumexp


def growth_strings(n):
    """Every partition of n data, clusters numbered in the order of appearance."""
    return [s for s in itertools.product(range(n), repeat=n) if all(s[i] <= max((-1, *s[:i])) + 1 for i in range(n))]


def canonical(z):
    """(..., n) labels renumbered in the order of appearance."""
    first = np.argmax(z[..., :, None] == z[..., None, :], axis=-1)
    new = first == np.arange(z.shape[-1])
    return np.take_along_axis(np.cumsum(new, -1) - 1, first, -1)


def log_partitions(n, alpha, log_evidence):
    """Every partition and its log posterior under ``CRP(alpha)``, given the log evidence of a set of data."""
    found, partitions, logs = {}, np.array(growth_strings(n)), []
    for s in partitions:
        clusters = [s == k for k in range(s.max() + 1)]
        for c in clusters:
            if c.tobytes() not in found:
                found[c.tobytes()] = log_evidence(c)
        logs.append(sum(np.log(alpha) + gammaln(c.sum()) + found[c.tobytes()] for c in clusters))
    return partitions, np.array(logs) + gammaln(alpha) - gammaln(alpha + n)


def partition_scores(z, partitions, logs):
    """z-scores of the share of draws ``z`` (chains, draws, n) in each partition against its posterior probability."""
    expected = np.exp(logs - logsumexp(logs))
    hits = (canonical(np.asarray(z))[:, :, None] == partitions).all(-1)
    assert (hits.sum(-1) == 1).all()
    often = expected * hits[..., 0].size > 50  # the others count as one, or the normal approximation would not hold
    rare, mass = hits[..., ~often].any(-1, keepdims=True), expected[~often].sum()
    hits, expected = hits[..., often], expected[often]
    if mass * rare.size > 50:
        hits, expected = np.concatenate([hits, rare], -1), np.append(expected, mass)
    error = np.sqrt(expected * (1 - expected) / effective_sample_size(hits.astype(float)))
    scores = (hits.mean((0, 1)) - expected) / error
    print(f"largest |z| {np.abs(scores).max():.2f} of {len(scores)} events")
    return scores
