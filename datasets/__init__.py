"""The papers' synthetic settings and loaders for their real data."""

from .corpora import CorpusTruth, make_corpus
from .isvm import NonlinearTruth, make_isvm_figure1, make_isvm_setting1, make_isvm_setting2, make_isvm_setting3
from .latent import FeatureTruth, TaskTruth, make_latent_features, make_latent_tasks
from .real import load, names
from .shapes import make_half_circles, make_half_rings
from .synthetic import (
    MixtureTruth,
    make_m2dpm_dp,
    make_m2dpm_setting1,
    make_m2dpm_setting2,
    make_multiclass_svm,
    make_svm,
    make_svr,
)
