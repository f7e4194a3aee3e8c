"""Cards of the topic models."""

import functools
from typing import Any

import numpy as np

from .. import datasets, inference, models
from .card import Card, example, spread
from .mixtures import BMC

MEDLDA = (
    "Zhu, Ahmed and Xing, MedLDA: maximum margin supervised topic models, JMLR 13 (2012); Zhu, Chen and Xing, Bayesian "
    "inference with posterior regularization and applications to infinite latent SVMs, JMLR 15 (2014), Appendix B"
)
DOCUMENTS = {"X": ("document", "word"), "y": ("document",), "landmarks": ("document",)}


def _corpus(**options: Any) -> Any:
    """Twelve documents."""
    return functools.partial(datasets.make_corpus, 12, 20, 4, 3, length=8, **options)


def _landmarks(seed: int) -> tuple:
    """The clusters of the first half are known."""
    X, y, _ = _corpus()(seed=seed)
    return X, np.where(np.arange(12) < 6, y, -1)


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
        example=example(_landmarks, num_topics=4),
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
        example=example(_landmarks, num_topics=4),
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
        example=example(_corpus(), num_topics=4),
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
        example=example(_corpus(task="regression"), num_topics=4),
        kernels={"collapsed": inference.medlda_regression_collapsed},
        limit=inference.MedLDAMeans,
        learner=inference.MedLDA,
        task="numbers",
        data=DOCUMENTS,
        settings=_of_ratings,
        picture="topics",
    ),
]
