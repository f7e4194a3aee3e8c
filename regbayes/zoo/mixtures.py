"""Cards of the Dirichlet process mixtures: of classifiers, and of Gaussians."""

from typing import Any

import numpy as np

from .. import datasets, inference, models
from ..inference.kernels.dpgmm import dpgmm_log_likelihood
from ..inference.kernels.dpmnl import dpmnl_log_likelihood
from .card import Card, example, spread

BMC = "Chen, Zhu and Zhang, Robust Bayesian max-margin clustering, NIPS (2014)"
SHARE = 0.25
"""Of the data's variance, what a cluster is expected to have."""


def _bent() -> tuple[np.ndarray, np.ndarray]:
    """Two blobs, each divided by a line of its own."""
    centres, lines = np.array([[-2.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 0.4], [0.4, -1.0]])
    z = np.arange(120) % 2
    X = centres[z] + 0.6 * np.random.default_rng(1).normal(size=(120, 2))
    return X, (np.sum((X - centres[z]) * lines[z], axis=1) > 0).astype(int)


def _blobs() -> tuple[np.ndarray]:
    """Three blobs, two of them close."""
    centres = np.array([[-1.5, 0.0], [1.2, 0.8], [1.2, -0.8]])
    return (centres[np.arange(90) % 3] + 0.4 * np.random.default_rng(1).normal(size=(90, 2)),)


def _variances(X: Any) -> np.ndarray:
    """(d,) of the inputs; 1 of constants."""
    found = np.var(np.asarray(X, float), axis=0)
    return np.where(found > 0, found, 1.0)


def _of_isvm(X: Any, y: Any = None) -> dict[str, Any]:
    centre = np.mean(np.asarray(X, float), axis=0)
    return {"variance": SHARE * spread(X) ** 2, "prior_mean": centre, "prior_scale": 1 / spread(X)}


def _of_dpmnl(X: Any, y: Any = None) -> dict[str, Any]:
    centre = np.mean(np.asarray(X, float), axis=0)
    return {"variance_scale": SHARE * _variances(X), "prior_mean": centre, "prior_scale": 1 / spread(X)}


def _of_gaussians(X: Any) -> dict[str, Any]:
    return {"scatter": SHARE * np.diag(_variances(X)), "prior_mean": np.mean(np.asarray(X, float), axis=0)}


def _of_margins(X: Any) -> dict[str, Any]:
    """The margin's paper has its prior for data of scale 1."""
    return {**_of_gaussians(X), "prior_scale": 0.1 / spread(X)}


def _isvm_components(draws: dict[str, Any], arguments: dict[str, Any]) -> tuple | None:
    if arguments.get("likelihood", "gaussian") != "gaussian":
        return None
    mean, variance = draws["mu"], draws["variance"] if "variance" in draws else arguments["variance"]
    return mean, np.broadcast_to(np.reshape(variance, (-1, 1, 1)), mean.shape), draws["eta"]


CARDS = [
    Card(
        name="isvm",
        title="infinite SVM: Dirichlet process mixture of large-margin classifiers",
        paper="Wang and Zhu, Small-variance asymptotics for Dirichlet process mixtures of SVMs, AAAI (2014); Zhu, Chen "
        "and Xing, Infinite SVM: a Dirichlet process mixture of large-margin kernel machines, ICML (2011)",
        program=models.isvm,
        example=example(datasets.make_m2dpm_setting2, 60, 2, 3, variance=0.1),
        kernels={"collapsed": inference.isvm_collapsed, "slice": inference.isvm_slice},
        limit=inference.M2DPM,
        learner=inference.InfiniteSVM,
        task="classes",
        settings=_of_isvm,
        predict=inference.isvm_predict,
        components=_isvm_components,
        picture="decision",
        show=lambda: (_bent(), {"variance": 0.4}),
    ),
    Card(
        name="dpmnl",
        title="Dirichlet process mixture of multinomial logits",
        paper="Shahbaba and Neal, Nonlinear models using Dirichlet process mixtures, JMLR 10 (2009)",
        program=models.dpmnl,
        example=example(datasets.make_m2dpm_setting2, 60, 2, 3, variance_scale=0.1),
        kernels={"collapsed": inference.dpmnl_collapsed},
        task="classes",
        settings=_of_dpmnl,
        predict=inference.dpmnl_predict,
        probabilities=True,
        log_likelihood=dpmnl_log_likelihood,
        components=lambda draws, arguments: (draws["mu"], draws["sigma2"], draws["beta"]),
        picture="decision",
        show=lambda: (_bent(), {"variance_scale": 0.4}),
    ),
    Card(
        name="dpgmm",
        title="Dirichlet process mixture of Gaussians",
        paper=f"Rasmussen, The infinite Gaussian mixture model, NIPS (2000); {BMC}, section 4",
        program=models.dpgmm,
        example=example(datasets.make_m2dpm_setting2, 60, 2, 3, take=1, scatter=0.1),
        kernels={"slice": inference.dpgmm_slice, "collapsed": inference.dpgmm_collapsed},
        task="clusters",
        settings=_of_gaussians,
        log_likelihood=dpgmm_log_likelihood,
        picture="coclustering",
        show=lambda: (_blobs(), {"scatter": 0.2}),
    ),
    Card(
        name="dpmmgm",
        title="Dirichlet process max-margin Gaussian mixture",
        paper=BMC,
        program=models.dpmmgm,
        example=example(datasets.make_m2dpm_setting2, 60, 2, 3, take=1, scatter=0.1),
        kernels={"collapsed": inference.dpmmgm_collapsed},
        limit=inference.MaxMarginDPMeans,
        task="clusters",
        settings=_of_margins,
        picture="coclustering",
        show=lambda: (_blobs(), {"scatter": 0.2, "cost": 0.05, "ell": 1.0}),
    ),
]
