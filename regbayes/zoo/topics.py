"""Cards of the topic models."""

from typing import Any

import numpy as np

from .. import datasets, inference, models
from .card import Card
from .mixtures import BMC
from .svms import spread

MEDLDA = (
    "Zhu, Ahmed and Xing, MedLDA: maximum margin supervised topic models, JMLR 13 (2012); Zhu, Chen and Xing, Bayesian "
    "inference with posterior regularization and applications to infinite latent SVMs, JMLR 15 (2014), Appendix B"
)
DOCUMENTS = {"X": ("document", "word"), "y": ("document",), "landmarks": ("document",)}


def _clustered(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    X, y, _ = datasets.make_corpus(12, 20, 4, 3, length=8, seed=seed)
    return (X, np.where(np.arange(12) < 6, y, -1)), {"num_topics": 4}


def _labelled(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_corpus(12, 20, 4, 3, length=8, seed=seed)[:2], {"num_topics": 4}


def _rated(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_corpus(12, 20, 4, 3, length=8, task="regression", seed=seed)[:2], {"num_topics": 4}


def _of_ratings(X: Any, y: Any) -> dict[str, Any]:
    """What the defaults are for standardised responses."""
    scale = spread(y)
    return {"prior_scale": scale, "epsilon": 0.1 * scale, "cost": 9 / scale}


CARDS = [
    Card(
        name="ctm",
        title="cluster-based topic model",
        paper="Wallach, Structured topic models for language, PhD thesis, University of Cambridge (2008); "
        f"{BMC}, section 5",
        program=models.ctm,
        example=_clustered,
        kernels={"collapsed": inference.ctm_collapsed},
        task="clusters",
        data=DOCUMENTS,
        labels="landmarks",
        picture="topics",
    ),
    Card(
        name="mmctm",
        title="max-margin clustering topic model",
        paper=BMC,
        program=models.mmctm,
        example=_clustered,
        kernels={"collapsed": inference.mmctm_collapsed},
        limit=inference.MaxMarginTopicMeans,
        task="clusters",
        data=DOCUMENTS,
        labels="landmarks",
        picture="documents",
    ),
    Card(
        name="medlda",
        title="max-margin supervised topic model, classes",
        paper=MEDLDA,
        program=models.medlda,
        example=_labelled,
        kernels={"collapsed": inference.medlda_collapsed},
        limit=inference.MedLDAMeans,
        learner=inference.MedLDA,
        task="classes",
        data=DOCUMENTS,
        predict=inference.medlda_predict,
        picture="documents",
    ),
    Card(
        name="medlda-regression",
        title="max-margin supervised topic model, real responses",
        paper=MEDLDA,
        program=models.medlda_regression,
        example=_rated,
        kernels={"collapsed": inference.medlda_regression_collapsed},
        limit=inference.MedLDAMeans,
        learner=inference.MedLDA,
        task="numbers",
        data=DOCUMENTS,
        settings=_of_ratings,
        picture="topics",
    ),
]
