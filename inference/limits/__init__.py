"""Small-variance limits of the models: deterministic estimators with the scikit-learn interface."""

from .svm import EMSVC, EMSVR, em_step

__all__ = ["EMSVC", "EMSVR", "em_step"]
