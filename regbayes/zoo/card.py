"""What the zoo knows of a model, in one place: its card."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TASKS = ("classes", "numbers", "clusters", "features", "")
LABELS = ("classes", "numbers", "landmarks")


def example(make: Callable, *sizes: int, take: int = 2, **settings: Any) -> Callable[..., tuple[tuple, dict[str, Any]]]:
    """An example: the first ``take`` things that ``make(*sizes, seed=seed)`` returns, and settings."""
    return lambda seed=0: (make(*sizes, seed=seed)[:take], settings)


def spread(values: Any) -> float:
    """The standard deviation of a column, on average over columns; 1 of constants."""
    return float(np.sqrt(np.var(np.asarray(values, float), axis=0).mean())) or 1.0


def _no_settings(*data: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Card:
    """All that commands, diagnostics, estimators and the gallery ask about a model.

    What is left out is made of the draws alone, whose axes the program has named.

    :param name: in the zoo: ``regbayes.zoo[name]``, ``regbayes show NAME``.
    :param title: one line.
    :param program: the NumPyro program.
    :param example: ``example(seed=0) -> (args, kwargs)``, small data for the program.
    :param kernels: name -> factory of an ``MCMCKernel``, callable without arguments or with a variant of the program
        (``functools.partial``); the recommended one comes last.
    :param paper: where it comes from.
    :param task: what it is for: "classes", "numbers", "clusters" or "features"; empty where it is none of them.
    :param limit: the small-variance limit, an estimator class, or None.
    :param learner: the mean-field learner, an estimator class, or None.
    :param estimator: the estimator class that draws the posterior, or None.
    :param data: names of the axes of the program's data; of an array with fewer axes, the first of them.
    :param labels: how the label's column of a file is read: "classes" (any words), "numbers", or "landmarks" (classes
        where they are known, else an empty cell); a function of the program's settings where these decide. By default
        "numbers" for that task, else "classes".
    :param settings: ``settings(*data) -> dict``, the program's arguments that suit data of such a scale; by default
        none, the program's own defaults.
    :param predict: ``predict(draws, X, **settings)``, a :class:`~regbayes.inference.Prediction` for new inputs averaged
        over draws (S, ...) of the sites; it gets those of the program's arguments that it has keywords for. With a
        keyword ``each`` it can return what each draw says. Linear weights need none.
    :param probabilities: whether its discriminants are probabilities of the classes.
    :param log_likelihood: ``log_likelihood(draws, arguments) -> (S, n)``, of each datum given the others and the draw,
        for :func:`~regbayes.diagnostics.loo`; None where there is none.
    :param components: of a mixture of classifiers, ``components(draws, arguments)``: mean and variance (S, M, d) of the
        inputs of each slot, and its classifier (S, M, [L,] d or d + 1), to be drawn in the plane; or None.
    :param pictures: more pictures for ``regbayes plot``: name -> (caption, function of the tree of draws).
    :param picture: the name of the picture that shows the model best; by default the last of ``regbayes plot``.
    :param show: ``show() -> (args, kwargs)``, the data for that picture; by default the example.
    """

    name: str
    title: str
    program: Callable
    example: Callable[..., tuple[tuple, dict[str, Any]]]
    kernels: Mapping[str, Callable[..., Any]]
    paper: str = ""
    task: str = ""
    limit: type | None = None
    learner: type | None = None
    estimator: type | None = None
    data: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"X": ("datum", "input"), "y": ("datum",), "task": ("datum",)}
    )
    labels: str | Callable[[Mapping[str, Any]], str] = ""
    settings: Callable[..., dict[str, Any]] = _no_settings
    predict: Callable[..., Any] | None = None
    probabilities: bool = False
    log_likelihood: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None
    components: Callable[[dict[str, Any], dict[str, Any]], tuple | None] | None = None
    pictures: Mapping[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    picture: str = ""
    show: Callable[[], tuple[tuple, dict[str, Any]]] | None = None

    def __post_init__(self) -> None:
        if not self.name or self.name.split() != [self.name]:
            raise ValueError(f"name must be a word without blanks, found {self.name!r}")
        if not callable(self.program) or not callable(self.example):
            raise ValueError(f"program and example of {self.name} must be functions, found {self.program!r}")
        if not self.kernels or not all(callable(factory) for factory in self.kernels.values()):
            raise ValueError(f"kernels of {self.name} must name at least one factory, found {self.kernels!r}")
        if self.task not in TASKS:
            raise ValueError(f"task of {self.name} must be one of {', '.join(TASKS[:-1])}; found {self.task!r}")
        if not callable(self.labels) and self.labels not in (*LABELS, ""):
            raise ValueError(f"labels of {self.name} must be one of {', '.join(LABELS)}; found {self.labels!r}")

    def labels_of(self, settings: Mapping[str, Any]) -> str:
        """How labels are read from a file, given the program's settings."""
        labels = self.labels(settings) if callable(self.labels) else self.labels
        return labels or ("numbers" if self.task == "numbers" else "classes")
