"""The catalogue: a mapping from a model's name to what the library has for it.

The module is itself the mapping, so ``regbayes.zoo["svm"]``, ``"svm" in regbayes.zoo`` and ``regbayes.zoo.names()``
work as written.

>>> import regbayes
>>> regbayes.zoo.names()[:5]
['svm', 'multiclass-svm', 'svr', 'isvm', 'dpmnl']
>>> entry = regbayes.zoo["svm"]
>>> sorted(entry.kernels)
['augmentation', 'slice']
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from . import datasets, inference, models

POLSON_SCOTT = "Polson and Scott, Data augmentation for support vector machines, Bayesian Analysis 6 (2011)"
CRAMMER_SINGER = (
    "Crammer and Singer, On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2 (2001); "
    "Wang and Zhu, Small-variance asymptotics for Dirichlet process mixtures of SVMs, AAAI (2014), Appendix C"
)
REGBAYES = (
    "Zhu, Chen and Xing, Bayesian inference with posterior regularization and applications to infinite latent SVMs, "
    "JMLR 15 (2014), Lemma 11"
)

M2DPM = (
    "Wang and Zhu, Small-variance asymptotics for Dirichlet process mixtures of SVMs, AAAI (2014); "
    "Zhu, Chen and Xing, Infinite SVM: a Dirichlet process mixture of large-margin kernel machines, ICML (2011)"
)
BMC = "Chen, Zhu and Zhang, Robust Bayesian max-margin clustering, NIPS (2014)"
RASMUSSEN = "Rasmussen, The infinite Gaussian mixture model, NIPS (2000); " + BMC + ", section 4"
WALLACH = (
    "Wallach, Structured topic models for language, PhD thesis, University of Cambridge (2008); " + BMC + ", section 5"
)
MEDLDA = (
    "Zhu, Ahmed and Xing, MedLDA: maximum margin supervised topic models, JMLR 13 (2012); Zhu, Chen and Xing, Bayesian "
    "inference with posterior regularization and applications to infinite latent SVMs, JMLR 15 (2014), Appendix B"
)
BUFFET = (
    "Griffiths and Ghahramani, Infinite latent feature models and the Indian buffet process, NIPS (2005); Teh, Görür "
    "and Ghahramani, Stick-breaking construction for the Indian buffet process, AISTATS (2007)"
)
ILSVM = (
    "Zhu, Chen and Xing, Bayesian inference with posterior regularization and applications to infinite latent SVMs, "
    "JMLR 15 (2014), section 4"
)
SHAHBABA_NEAL = "Shahbaba and Neal, Nonlinear models using Dirichlet process mixtures, JMLR 10 (2009)"


@dataclass(frozen=True)
class Entry:
    """What the zoo knows of a model.

    :param title: one line.
    :param paper: where it comes from.
    :param program: the NumPyro program.
    :param example: ``example(seed=0) -> (args, kwargs)``, small data for the program.
    :param kernels: name -> factory of an ``MCMCKernel``, callable without arguments; the recommended one comes last.
    :param limit: the small-variance limit, an estimator class, or None.
    :param learner: the mean-field learner, an estimator class, or None.
    """

    title: str
    paper: str
    program: Callable
    example: Callable[..., tuple[tuple, dict[str, Any]]]
    kernels: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    limit: type | None = None
    learner: type | None = None


def _svm(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_svm(60, 2, seed=seed)[:2], {}


def _multiclass_svm(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_multiclass_svm(60, 2, 3, seed=seed)[:2], {}


def _svr(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_svr(60, 2, seed=seed)[:2], {}


def _isvm(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_m2dpm_setting2(60, 2, 3, seed=seed)[:2], {"variance": 0.1}


def _dpmnl(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_m2dpm_setting2(60, 2, 3, seed=seed)[:2], {"variance_scale": 0.1}


def _dpgmm(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_m2dpm_setting2(60, 2, 3, seed=seed)[:1], {"scatter": 0.1}


def _clustered_documents(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    X, y, _ = datasets.make_corpus(12, 20, 4, 3, length=8, seed=seed)
    return (X, np.where(np.arange(12) < 6, y, -1)), {"num_topics": 4}


def _labelled_documents(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_corpus(12, 20, 4, 3, length=8, seed=seed)[:2], {"num_topics": 4}


def _rated_documents(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_corpus(12, 20, 4, 3, length=8, task="regression", seed=seed)[:2], {"num_topics": 4}


def _features(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_latent_features(24, 4, 3, seed=seed)[:1], {"noise_scale": 0.3}


def _classes_of_features(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_latent_features(24, 4, 3, seed=seed)[:2], {"noise_scale": 0.3}


def _tasks(seed: int = 0) -> tuple[tuple, dict[str, Any]]:
    return datasets.make_latent_tasks(20, 6, 3, num_tasks=3, seed=seed)[:2], {"noise_scale": 0.3}


ENTRIES: dict[str, Entry] = {
    "svm": Entry(
        title="Bayesian support vector machine, two classes",
        paper=POLSON_SCOTT,
        program=models.svm,
        example=_svm,
        kernels={"augmentation": inference.svm_augmentation, "slice": inference.svm_slice},
        limit=inference.EMSVC,
    ),
    "multiclass-svm": Entry(
        title="Bayesian support vector machine, several classes",
        paper=CRAMMER_SINGER,
        program=models.multiclass_svm,
        example=_multiclass_svm,
        kernels={
            "augmentation": inference.multiclass_svm_augmentation,
            "slice": inference.multiclass_svm_slice,
        },
        limit=inference.EMSVC,
    ),
    "svr": Entry(
        title="Bayesian support vector regression",
        paper=REGBAYES,
        program=models.svr,
        example=_svr,
        kernels={"augmentation": inference.svr_augmentation, "slice": inference.svr_slice},
        limit=inference.EMSVR,
    ),
    "isvm": Entry(
        title="infinite SVM: Dirichlet process mixture of large-margin classifiers",
        paper=M2DPM,
        program=models.isvm,
        example=_isvm,
        kernels={"collapsed": inference.isvm_collapsed, "slice": inference.isvm_slice},
        limit=inference.M2DPM,
        learner=inference.InfiniteSVM,
    ),
    "dpmnl": Entry(
        title="Dirichlet process mixture of multinomial logits",
        paper=SHAHBABA_NEAL,
        program=models.dpmnl,
        example=_dpmnl,
        kernels={"collapsed": inference.dpmnl_collapsed},
    ),
    "dpgmm": Entry(
        title="Dirichlet process mixture of Gaussians",
        paper=RASMUSSEN,
        program=models.dpgmm,
        example=_dpgmm,
        kernels={"slice": inference.dpgmm_slice, "collapsed": inference.dpgmm_collapsed},
    ),
    "dpmmgm": Entry(
        title="Dirichlet process max-margin Gaussian mixture",
        paper=BMC,
        program=models.dpmmgm,
        example=_dpgmm,
        kernels={"collapsed": inference.dpmmgm_collapsed},
        limit=inference.MaxMarginDPMeans,
    ),
    "ctm": Entry(
        title="cluster-based topic model",
        paper=WALLACH,
        program=models.ctm,
        example=_clustered_documents,
        kernels={"collapsed": inference.ctm_collapsed},
    ),
    "mmctm": Entry(
        title="max-margin clustering topic model",
        paper=BMC,
        program=models.mmctm,
        example=_clustered_documents,
        kernels={"collapsed": inference.mmctm_collapsed},
        limit=inference.MaxMarginTopicMeans,
    ),
    "medlda": Entry(
        title="max-margin supervised topic model, classes",
        paper=MEDLDA,
        program=models.medlda,
        example=_labelled_documents,
        kernels={"collapsed": inference.medlda_collapsed},
        limit=inference.MedLDAMeans,
        learner=inference.MedLDA,
    ),
    "medlda-regression": Entry(
        title="max-margin supervised topic model, real responses",
        paper=MEDLDA,
        program=models.medlda_regression,
        example=_rated_documents,
        kernels={"collapsed": inference.medlda_regression_collapsed},
        limit=inference.MedLDAMeans,
        learner=inference.MedLDA,
    ),
    "ibp": Entry(
        title="Indian buffet process, linear-Gaussian",
        paper=BUFFET,
        program=models.ibp,
        example=_features,
        kernels={"slice": inference.ibp_slice, "collapsed": inference.ibp_collapsed},
        limit=inference.LatentFeatureMeans,
    ),
    "ilsvm": Entry(
        title="infinite latent SVM: large-margin classifier on latent binary features",
        paper=ILSVM,
        program=models.ilsvm,
        example=_classes_of_features,
        kernels={"slice": inference.ilsvm_slice, "collapsed": inference.ilsvm_collapsed},
        limit=inference.MaxMarginFeatureMeans,
        learner=inference.ILSVM,
    ),
    "mt-ilsvm": Entry(
        title="multi-task infinite latent SVM: tasks on a shared binary projection",
        paper=ILSVM,
        program=models.mt_ilsvm,
        example=_tasks,
        kernels={"slice": inference.mt_ilsvm_slice, "collapsed": inference.mt_ilsvm_collapsed},
        learner=inference.MTILSVM,
    ),
}


def names() -> list[str]:
    """The models' names, in the catalogue's order."""
    return list(ENTRIES)


class _Zoo(ModuleType, Mapping):
    """A module that is a mapping over :data:`ENTRIES`."""

    def __getitem__(self, name: str) -> Entry:
        try:
            return ENTRIES[name]
        except KeyError:
            raise KeyError(f"no model {name!r} in the zoo; it has {', '.join(ENTRIES)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)

    __hash__ = ModuleType.__hash__
    __eq__ = ModuleType.__eq__


sys.modules[__name__].__class__ = _Zoo
