"""Small-variance limits of the models: deterministic estimators with the scikit-learn interface."""

from .dp_means import DPMeans
from .feature_means import LatentFeatureMeans, MaxMarginFeatureMeans
from .m2dpm import M2DPM
from .max_margin_dp_means import MaxMarginDPMeans
from .svm import EMSVC, EMSVR, em_step
from .topics import MaxMarginTopicMeans, MedLDAMeans
