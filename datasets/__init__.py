"""The papers' synthetic settings and loaders for their real data."""

from .synthetic import make_multiclass_svm, make_svm, make_svr

__all__ = ["make_multiclass_svm", "make_svm", "make_svr"]
