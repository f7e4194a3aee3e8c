"""Cards of the models of latent binary features."""

import functools
from typing import Any

from .. import datasets, inference, models
from .card import Card, example, spread

ILSVM = (
    "Zhu, Chen and Xing, Bayesian inference with posterior regularization and applications to infinite latent SVMs, "
    "JMLR 15 (2014), section 4"
)
SHARE = 0.5
"""Of the data's standard deviation, what is expected to be noise."""


def _of_features(X: Any, *targets: Any) -> dict[str, Any]:
    return {"noise_scale": SHARE * spread(X), "feature_scale": spread(X)}


def _of_tasks(X: Any, *targets: Any) -> dict[str, Any]:
    """There the classifiers see the inputs, not the features."""
    return {**_of_features(X), "prior_scale": 1 / spread(X)}


CARDS = [
    Card(
        name="ibp",
        title="Indian buffet process, linear-Gaussian",
        paper="Griffiths and Ghahramani, Infinite latent feature models and the Indian buffet process, NIPS (2005); "
        "Teh, Görür and Ghahramani, Stick-breaking construction for the Indian buffet process, AISTATS (2007)",
        program=models.ibp,
        example=example(datasets.make_latent_features, 24, 4, 3, take=1, noise_scale=0.3),
        kernels={"slice": inference.ibp_slice, "collapsed": inference.ibp_collapsed},
        limit=inference.LatentFeatureMeans,
        task="features",
        settings=_of_features,
        picture="num_features",
    ),
    Card(
        name="ilsvm",
        title="infinite latent SVM: large-margin classifier on latent binary features",
        paper=ILSVM,
        program=models.ilsvm,
        example=example(datasets.make_latent_features, 24, 4, 3, noise_scale=0.3),
        kernels={"slice": inference.ilsvm_slice, "collapsed": inference.ilsvm_collapsed},
        limit=inference.MaxMarginFeatureMeans,
        learner=inference.ILSVM,
        task="classes",
        settings=_of_features,
        predict=inference.ilsvm_predict,
        picture="features",
    ),
    Card(
        name="mt-ilsvm",
        title="multi-task infinite latent SVM: tasks on a shared binary projection",
        paper=ILSVM,
        program=models.mt_ilsvm,
        example=example(functools.partial(datasets.make_latent_tasks, num_tasks=3), 20, 6, 3, noise_scale=0.3),
        kernels={"slice": inference.mt_ilsvm_slice, "collapsed": inference.mt_ilsvm_collapsed},
        learner=inference.MTILSVM,
        task="classes",
        data={"X": ("datum", "input"), "y": ("datum", "task"), "task": ("datum",)},
        labels=lambda settings: "numbers" if settings.get("loss") == "epsilon-insensitive" else "classes",
        settings=_of_tasks,
        picture="num_features",
    ),
]
