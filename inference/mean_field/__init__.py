"""Mean-field learners: estimators with the scikit-learn interface."""

from .isvm import InfiniteSVM

__all__ = ["InfiniteSVM"]
