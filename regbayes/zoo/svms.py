"""Cards of the support vector machines."""

from typing import Any

from .. import datasets, inference, models
from .card import Card, example, spread


def _weights(X: Any, y: Any = None) -> dict[str, Any]:
    """Weights that reach the margin."""
    return {"prior_scale": 1 / spread(X)}


def _targets(X: Any, y: Any) -> dict[str, Any]:
    """What the defaults are for standardised targets."""
    scale = spread(y)
    return {"prior_scale": scale / spread(X), "epsilon": 0.1 * scale, "cost": 1 / scale}


CARDS = [
    Card(
        name="svm",
        title="Bayesian support vector machine, two classes",
        paper="Polson and Scott, Data augmentation for support vector machines, Bayesian Analysis 6 (2011)",
        program=models.svm,
        example=example(datasets.make_svm, 60, 2),
        kernels={"augmentation": inference.svm_augmentation, "slice": inference.svm_slice},
        limit=inference.EMSVC,
        task="classes",
        settings=_weights,
        picture="decision",
        show=lambda: (datasets.make_svm(120, 2, noise=0.5, seed=1)[:2], {}),
    ),
    Card(
        name="multiclass-svm",
        title="Bayesian support vector machine, several classes",
        paper="Crammer and Singer, On the algorithmic implementation of multiclass kernel-based vector machines, JMLR "
        "2 (2001); Wang and Zhu, Small-variance asymptotics for Dirichlet process mixtures of SVMs, AAAI (2014), "
        "Appendix C",
        program=models.multiclass_svm,
        example=example(datasets.make_multiclass_svm, 60, 2, 3),
        kernels={"augmentation": inference.multiclass_svm_augmentation, "slice": inference.multiclass_svm_slice},
        limit=inference.EMSVC,
        task="classes",
        settings=_weights,
        picture="decision",
        show=lambda: (datasets.make_multiclass_svm(120, 2, 3, seed=1)[:2], {}),
    ),
    Card(
        name="svr",
        title="Bayesian support vector regression",
        paper="Zhu, Chen and Xing, Bayesian inference with posterior regularization and applications to infinite "
        "latent SVMs, JMLR 15 (2014), Lemma 11",
        program=models.svr,
        example=example(datasets.make_svr, 60, 2),
        kernels={"augmentation": inference.svr_augmentation, "slice": inference.svr_slice},
        limit=inference.EMSVR,
        task="numbers",
        settings=_targets,
        picture="posterior",
    ),
]
