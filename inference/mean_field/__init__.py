"""Mean-field learners: estimators with the scikit-learn interface."""

from .ilsvm import ILSVM, MTILSVM
from .isvm import InfiniteSVM
from .medlda import MedLDA
