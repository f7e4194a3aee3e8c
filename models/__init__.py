"""The NumPyro programs of the zoo, and the factors they are made of."""

from .ctm import ctm
from .dpgmm import dpgmm
from .dpmmgm import dpmmgm
from .dpmnl import dpmnl
from .factors import augment, epsilon_insensitive, hinge, multiclass_hinge, temper
from .ibp import ibp
from .ilsvm import ilsvm
from .isvm import isvm
from .laws.buffet import IndianBuffetProcess
from .laws.corpora import Corpus, FlooredDirichlet, KnownLabels, TokenTopics, TopicWords, tokens_of
from .laws.distributions import ChineseRestaurantProcess, HingeNormal, HingeOmega, InformationNormal
from .laws.normal_wishart import GaussianClusters, NormalWishart, NormalWishartLaw, TruncatedPoisson
from .medlda import medlda, medlda_regression
from .mmctm import mmctm
from .mt_ilsvm import mt_ilsvm
from .multiclass_svm import multiclass_svm
from .svm import svm
from .svr import svr
