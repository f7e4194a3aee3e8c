"""The NumPyro programs of the zoo, and the factors they are made of."""

from .distributions import ChineseRestaurantProcess, HingeNormal, HingeOmega, InformationNormal
from .dpgmm import dpgmm
from .dpmmgm import dpmmgm
from .dpmnl import dpmnl
from .factors import augment, epsilon_insensitive, hinge, multiclass_hinge, temper
from .isvm import isvm
from .multiclass_svm import multiclass_svm
from .normal_wishart import GaussianClusters, NormalWishart, NormalWishartLaw, TruncatedPoisson
from .svm import svm
from .svr import svr

__all__ = [
    "ChineseRestaurantProcess",
    "GaussianClusters",
    "HingeNormal",
    "HingeOmega",
    "InformationNormal",
    "NormalWishart",
    "NormalWishartLaw",
    "TruncatedPoisson",
    "augment",
    "dpgmm",
    "dpmmgm",
    "dpmnl",
    "epsilon_insensitive",
    "hinge",
    "isvm",
    "multiclass_hinge",
    "multiclass_svm",
    "svm",
    "svr",
    "temper",
]
