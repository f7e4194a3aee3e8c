"""What estimators share: checks of their settings, labels as numbers, weights of data, and what a fit warns of.

An estimator is a dataclass, whose fields are its parameters: estimators of a family inherit those that they share.
"""

import warnings
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from ..engine.compiled import make_room

Array = np.ndarray


def check_number(name: str, value: Any, valid: Callable[[Any], bool], wanted: str, kind: Any = Real) -> None:
    """Raise a ValueError unless ``value`` is a finite number of the kind and valid."""
    if isinstance(value, bool) or not isinstance(value, kind) or not np.isfinite(value) or not valid(value):
        raise ValueError(f"{name}={value!r}: {name} must be {wanted}; pass {name} accordingly.")


def check_settings(
    estimator: Any,
    *,
    positive: Collection[str] = (),
    counts: Collection[str] = (),
    nonnegative: Collection[str] = (),
    optional: Collection[str] = (),
) -> None:
    """Check an estimator's numbers by name: positive, integers of at least 1, at least 0; the optional may be None.

    A fit begins with this, so room for what it compiles is made here.
    """
    make_room()
    wanted: list[tuple[Collection[str], Callable[[Any], bool], str, Any]] = [
        (positive, lambda value: value > 0, "a positive number", Real),
        (counts, lambda value: value >= 1, "an integer of at least 1", Integral),
        (nonnegative, lambda value: value >= 0, "a number of at least 0", Real),
    ]
    for names, valid, text, kind in wanted:
        for name in names:
            value = getattr(estimator, name)
            if value is not None or name not in optional:
                check_number(name, value, valid, text + " or None" * (name in optional), kind)


def check_weight(sample_weight: Any, X: Array) -> Array:
    """(n,) weights of data, not all of them 0."""
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.min(weight) < 0 or np.max(weight) == 0:
        raise ValueError(
            f"sample_weight ranges from {np.min(weight):g} to {np.max(weight):g}: it must not be negative, "
            "nor zero throughout; give weight 0 to the data to ignore and a positive one to the others."
        )
    return weight


def encode_labels(y: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """The classes (L,), two at least among data of positive weight, and labels (n,) in ``0..L-1``."""
    check_classification_targets(y)
    encoder = LabelEncoder().fit(y)
    classes, y = encoder.classes_, encoder.transform(y)
    present = np.unique(y if weight is None else y[weight > 0])
    if len(present) < 2:
        which = "" if weight is None else " with positive weight"
        raise ValueError(f"y has one class{which}, {classes[present].tolist()[0]!r}: pass at least two classes.")
    return classes, y


def labels_at(classes: Array, scores: Array) -> Array:
    """Labels (n,) at scores (n,), positive for the second of two classes, or (n, L)."""
    return classes[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]


def two_class(scores: Array) -> Array:
    """Scores (n, L); for two classes their difference (n,)."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def split_intercept(eta: Array, fit_intercept: bool) -> tuple[Array, Array]:
    """Weights (..., d) of the inputs, and the intercept's (...), which stands last; 0 without one."""
    return (eta[..., :-1], eta[..., -1]) if fit_intercept else (eta, np.zeros(eta.shape[:-1]))


class ScoreClassifier(ClassifierMixin):
    """A classifier that predicts by its ``decision_function``."""

    classes_: Array

    def predict(self, X):
        """Labels (n,)."""
        scores = self.decision_function(X)  # refuses where nothing is fitted
        return labels_at(self.classes_, scores)


def warn_of_end(estimator: Any, converged: bool, full: str = "", stacklevel: int = 3) -> None:
    """Warn where ``max_iter`` ended a fit, or where the bound ``full`` kept a cluster or a feature from it."""
    causes = []
    if full:
        one = full.removeprefix("max_").removesuffix("s")
        found = f"{full}={getattr(estimator, full)} while a further {one} would lower the objective"
        causes.append(f"{found}; raise {full} or penalty.")
    if not converged:
        causes.append(f"max_iter={estimator.max_iter} before the objective settled; raise max_iter or tol.")
    for cause in causes:
        warnings.warn(f"{type(estimator).__name__} reached {cause}", ConvergenceWarning, stacklevel=stacklevel)
