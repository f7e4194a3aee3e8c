"""Exact samplers, moves, small-variance limits and mean-field learners."""

from .duality.expectations import Infeasible
from .engine.checkpoint import load_state, save_state
from .engine.kernel import KernelState, MoveKernel
from .engine.loop import BufferFull, Draws, draw_chains
from .engine.move import Augmented, CommonShift, Conditional, Move
from .engine.predictions import Prediction
from .engine.target import Target
from .kernels.ctm import ctm_collapsed, ctm_predict
from .kernels.dpgmm import dpgmm_collapsed, dpgmm_components, dpgmm_log_density, dpgmm_slice
from .kernels.dpmmgm import dpmmgm_collapsed
from .kernels.dpmnl import dpmnl_collapsed, dpmnl_predict
from .kernels.ibp import ibp_collapsed, ibp_slice
from .kernels.ilsvm import ilsvm_collapsed, ilsvm_predict, ilsvm_slice
from .kernels.isvm import isvm_collapsed, isvm_predict, isvm_slice
from .kernels.medlda import (
    medlda_collapsed,
    medlda_predict,
    medlda_regression_collapsed,
    medlda_regression_predict,
    medlda_transform,
)
from .kernels.mmctm import mmctm_collapsed, mmctm_predict
from .kernels.mt_ilsvm import mt_ilsvm_collapsed, mt_ilsvm_predict, mt_ilsvm_slice
from .kernels.multiclass_svm import multiclass_svm_augmentation, multiclass_svm_slice
from .kernels.svm import svm_augmentation, svm_slice
from .kernels.svr import svr_augmentation, svr_slice
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
from .mean_field import ILSVM, MTILSVM, InfiniteSVM, MedLDA
from .moves.documents import ClusterPrediction, ClusterProportions
from .moves.features import FeatureFlips, FeatureSweep
from .moves.fits import fit_classes, fit_rows
from .moves.gaussian_clusters import CollapsedSlice, CollapsedSweep
from .moves.labels import Mixture, Part, SliceAssignment, Sweep
from .moves.margin_weights import MarginWeights
from .moves.row_slices import RowSlices
from .moves.slices import EllipticalSlice, Rescale
from .moves.split_merge import SplitMerge
from .moves.sticks import StickEntries, StickSlices
from .moves.tokens import ClassWeights, Tokens, TokenSweep, TopicKernel
from .moves.tokens import TokenMargin as Margin
from .regbayes.constraints import Constraint, EpsilonInsensitive, Equality, Hinge, Inequality, MaxHinge, Quadratic
from .regbayes.expectations import Enumeration, GaussianInference, Sampling, Variational
from .regbayes.posterior import RegBayes, RegBayesResult
from .regbayes.tilted import tilt
from .sampled.tune_margin import TunedMargin, tune_margin
