"""Exact samplers, moves, and small-variance limits."""

from .checkpoint import load_state, save_state
from .fits import fit_classes, fit_rows
from .kernel import KernelState, MoveKernel
from .limits import EMSVC, EMSVR, em_step
from .margin_weights import MarginWeights
from .moves import Augmented, CommonShift, Conditional, Move
from .multiclass_svm import multiclass_svm_augmentation, multiclass_svm_slice
from .slices import EllipticalSlice, Rescale
from .svm import svm_augmentation, svm_slice
from .svr import svr_augmentation, svr_slice
from .target import Target

__all__ = [
    "EMSVC",
    "EMSVR",
    "Augmented",
    "CommonShift",
    "Conditional",
    "EllipticalSlice",
    "KernelState",
    "MarginWeights",
    "Move",
    "MoveKernel",
    "Rescale",
    "Target",
    "em_step",
    "fit_classes",
    "fit_rows",
    "load_state",
    "multiclass_svm_augmentation",
    "multiclass_svm_slice",
    "save_state",
    "svm_augmentation",
    "svm_slice",
    "svr_augmentation",
    "svr_slice",
]
