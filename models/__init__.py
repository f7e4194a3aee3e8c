"""The NumPyro programs of the zoo, and the factors they are made of."""

from .distributions import HingeOmega, InformationNormal
from .factors import augment, epsilon_insensitive, hinge, multiclass_hinge, temper
from .multiclass_svm import multiclass_svm
from .svm import svm
from .svr import svr

__all__ = [
    "HingeOmega",
    "InformationNormal",
    "augment",
    "epsilon_insensitive",
    "hinge",
    "multiclass_hinge",
    "multiclass_svm",
    "svm",
    "svr",
    "temper",
]
