"""Small-variance limits of the models: deterministic estimators with the scikit-learn interface."""

from .dp_means import DPMeans
from .m2dpm import M2DPM
from .max_margin_dp_means import MaxMarginDPMeans
from .svm import EMSVC, EMSVR, em_step
from .topics import MaxMarginTopicMeans, MedLDAMeans

__all__ = [
    "EMSVC",
    "EMSVR",
    "M2DPM",
    "DPMeans",
    "MaxMarginDPMeans",
    "MaxMarginTopicMeans",
    "MedLDAMeans",
    "em_step",
]
