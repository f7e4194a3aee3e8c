"""Exact samplers, moves, small-variance limits and mean-field learners."""

from .buffets import FeatureFlips, FeatureSweep
from .checkpoint import load_state, save_state
from .constraints import Constraint, EpsilonInsensitive, Equality, Hinge, Inequality, MaxHinge, Quadratic
from .ctm import ClusterPrediction, ClusterProportions, ctm_collapsed, ctm_predict
from .dpgmm import dpgmm_collapsed, dpgmm_components, dpgmm_log_density, dpgmm_slice
from .dpmmgm import dpmmgm_collapsed
from .dpmnl import dpmnl_collapsed, dpmnl_predict
from .duality.expectations import Infeasible
from .expectations import Enumeration, GaussianInference, Sampling, Variational
from .fits import fit_classes, fit_rows
from .gaussian_clusters import CollapsedSlice, CollapsedSweep
from .ibp import ibp_collapsed, ibp_slice
from .ilsvm import ilsvm_collapsed, ilsvm_predict, ilsvm_slice
from .isvm import isvm_collapsed, isvm_predict, isvm_slice
from .kernel import KernelState, MoveKernel
from .limits import (
    EMSVC,
    EMSVR,
    M2DPM,
    DPMeans,
    LatentFeatureMeans,
    MaxMarginDPMeans,
    MaxMarginFeatureMeans,
    MaxMarginTopicMeans,
    MedLDAMeans,
    em_step,
)
from .margin_weights import MarginWeights
from .mean_field import ILSVM, MTILSVM, InfiniteSVM, MedLDA
from .medlda import (
    medlda_collapsed,
    medlda_predict,
    medlda_regression_collapsed,
    medlda_regression_predict,
    medlda_transform,
)
from .mixtures import Mixture, Part, SliceAssignment, Sweep
from .mmctm import mmctm_collapsed, mmctm_predict
from .moves import Augmented, CommonShift, Conditional, Move
from .mt_ilsvm import mt_ilsvm_collapsed, mt_ilsvm_predict, mt_ilsvm_slice
from .multiclass_svm import multiclass_svm_augmentation, multiclass_svm_slice
from .predictions import Prediction
from .regbayes import RegBayes, RegBayesResult
from .row_slices import RowSlices
from .slices import EllipticalSlice, Rescale
from .split_merge import SplitMerge
from .sticks import StickEntries, StickSlices
from .svm import svm_augmentation, svm_slice
from .svr import svr_augmentation, svr_slice
from .target import Target
from .tilted import tilt
from .topics import ClassWeights, Margin, Tokens, TokenSweep, TopicKernel
from .tune_margin import TunedMargin, tune_margin

__all__ = [
    "EMSVC",
    "EMSVR",
    "ILSVM",
    "M2DPM",
    "MTILSVM",
    "Augmented",
    "ClassWeights",
    "ClusterPrediction",
    "ClusterProportions",
    "CollapsedSlice",
    "CollapsedSweep",
    "CommonShift",
    "Conditional",
    "Constraint",
    "DPMeans",
    "EllipticalSlice",
    "Enumeration",
    "EpsilonInsensitive",
    "Equality",
    "FeatureFlips",
    "FeatureSweep",
    "GaussianInference",
    "Hinge",
    "Inequality",
    "Infeasible",
    "InfiniteSVM",
    "KernelState",
    "LatentFeatureMeans",
    "Margin",
    "MarginWeights",
    "MaxHinge",
    "MaxMarginDPMeans",
    "MaxMarginFeatureMeans",
    "MaxMarginTopicMeans",
    "MedLDA",
    "MedLDAMeans",
    "Mixture",
    "Move",
    "MoveKernel",
    "Part",
    "Prediction",
    "Quadratic",
    "RegBayes",
    "RegBayesResult",
    "Rescale",
    "RowSlices",
    "Sampling",
    "SliceAssignment",
    "SplitMerge",
    "StickEntries",
    "StickSlices",
    "Sweep",
    "Target",
    "TokenSweep",
    "Tokens",
    "TopicKernel",
    "TunedMargin",
    "Variational",
    "ctm_collapsed",
    "ctm_predict",
    "dpgmm_collapsed",
    "dpgmm_components",
    "dpgmm_log_density",
    "dpgmm_slice",
    "dpmmgm_collapsed",
    "dpmnl_collapsed",
    "dpmnl_predict",
    "em_step",
    "fit_classes",
    "fit_rows",
    "ibp_collapsed",
    "ibp_slice",
    "ilsvm_collapsed",
    "ilsvm_predict",
    "ilsvm_slice",
    "isvm_collapsed",
    "isvm_predict",
    "isvm_slice",
    "load_state",
    "medlda_collapsed",
    "medlda_predict",
    "medlda_regression_collapsed",
    "medlda_regression_predict",
    "medlda_transform",
    "mmctm_collapsed",
    "mmctm_predict",
    "mt_ilsvm_collapsed",
    "mt_ilsvm_predict",
    "mt_ilsvm_slice",
    "multiclass_svm_augmentation",
    "multiclass_svm_slice",
    "save_state",
    "svm_augmentation",
    "svm_slice",
    "svr_augmentation",
    "svr_slice",
    "tilt",
    "tune_margin",
]
