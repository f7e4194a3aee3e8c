"""Data of Gaussian mixtures, their evidence written out, and whether chains from far apart agree."""

import functools

import numpy as np
import pytest
from arviz_stats import rhat
from jax import random
from numpyro.infer import MCMC
from scipy.special import multigammaln
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_moons

from regbayes import datasets


def statistics(x):
    return len(x), x.mean(0), (x - x.mean(0)).T @ (x - x.mean(0))


def log_evidence(x, m, r, nu, S):
    """Of a cluster (n, d), from the posterior's four numbers."""
    (n, mean, scatter), d = statistics(x), x.shape[1]
    S_n = S + scatter + r * n / (r + n) * np.outer(mean - m, mean - m)
    logs = multigammaln((nu + n) / 2, d) - multigammaln(nu / 2, d) - n * d / 2 * np.log(np.pi)
    logs += nu / 2 * np.linalg.slogdet(S)[1] - (nu + n) / 2 * np.linalg.slogdet(S_n)[1]
    return logs + d / 2 * np.log(r / (r + n))


SLOTS = 256


def starts(X, num_slots):
    """One cluster, k-means with 20, all singletons."""
    n = len(X)
    means = KMeans(min(20, n), n_init=1, random_state=0).fit(X).labels_
    return np.stack([np.zeros(n, int), means, np.arange(n) % num_slots])


def standardised(X):
    return (X - X.mean(0)) / X.std(0)


def half_rings():
    return standardised(make_moons(200, noise=0.08, random_state=0)[0])


def far_apart_data(name):
    if name == "half-rings":
        return half_rings()
    if name == "wine":
        return standardised(load_wine().data)
    try:
        return standardised(np.asarray(datasets.load("seeds").X, float))
    except FileNotFoundError:
        pytest.skip("REGBAYES_DATA names no folder with the seeds")


def compact(z, eta=None, *, num_slots):
    """The sites of one draw in fewer slots, the occupied ones first."""
    kept, labels = np.unique(z, return_inverse=True)
    if eta is None:
        return {"z": labels}
    order = np.concatenate([kept, np.setdiff1d(np.arange(len(eta)), kept)])
    return {"z": labels, "eta": np.asarray(eta)[order[:num_slots]]}


def agree(make, program, X, num_samples, num_slots=48, **settings):
    """Chains from the three starts: R-hat of log joint and number of clusters. `pytest -rP` shows it.

    Singletons need a slot each; what is left of them after a short while goes on in fewer, which is quicker.
    """

    def mcmc(num_slots, num_warmup, num_samples):
        kernel = make(functools.partial(program, max_clusters=num_slots), split_merge=10)
        lengths = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": 3}
        return MCMC(kernel, chain_method="sequential", progress_bar=False, **lengths)

    first = mcmc(SLOTS, 199, 1)
    first.run(random.key(0), X, init_params={"z": starts(X, SLOTS)}, **settings)
    sites = {name: value[:, -1] for name, value in first.get_samples(group_by_chain=True).items()}
    begin = [compact(*(sites[s][c] for s in ("z", "eta") if s in sites), num_slots=num_slots) for c in range(3)]
    begin = {site: np.stack([chain[site] for chain in begin]) for site in begin[0]}
    second = mcmc(num_slots, num_samples // 4, num_samples)
    second.run(
        random.key(1), X, init_params=begin, extra_fields=("log_joint", "num_active", "overflow"), **settings
    )  # fmt: skip
    fields = second.get_extra_fields(group_by_chain=True)
    assert not np.any(fields["overflow"])
    for name in ("log_joint", "num_active"):
        values = np.asarray(fields[name], float)
        constant = np.ptp(values) == 0  # chains that all stay at one value agree, and R-hat is 0/0
        value = 1.0 if constant else float(rhat(values))
        print(f"R-hat of {name} {value:.4f}, means {values.mean(1).round(2)}")
        assert value < 1.05
