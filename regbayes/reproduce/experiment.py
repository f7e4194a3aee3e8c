"""How a table is run: cell by cell, each kept as soon as it is done, then summed up beside the paper's numbers."""

import json
import os
import pathlib
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, ParameterGrid, StratifiedGroupKFold, StratifiedKFold

from .. import __version__
from ..inference.engine.compiled import make_room
from ..xla import ONE_THREAD, add_flag

__all__ = [
    "Experiment",
    "Method",
    "Metric",
    "Options",
    "OtherSettings",
    "Rows",
    "choose",
    "evaluate",
    "paper",
    "run_experiment",
]

LIBRARIES = ("jax", "numpy", "numpyro", "scikit-learn", "scipy")


class Metric(NamedTuple):
    """A column of a table.

    :param heading: its heading.
    :param digits: how many decimals it deserves.
    :param marked: mark our numbers that are further from the paper's than its standard deviation.
    :param own: a number that no paper has, and that the page shows beside the paper's.
    """

    heading: str
    digits: int
    marked: bool = False
    own: bool = False


ACCURACY, F1, SECONDS = Metric("accuracy (%)", 1), Metric("F1 (%)", 1), Metric("time (s)", 2)


class Options(NamedTuple):
    """What the user chose.

    :param fast: fewer seeds, folds and hyper-parameters, and smaller synthetic data; the numbers are only a sketch.
    :param data_home: a folder of data files, as for :func:`regbayes.datasets.load`.
    :param n_jobs: processes of a hyper-parameter search, or for the cells of a table without one; as in scikit-learn.
    """

    fast: bool = False
    data_home: str | None = None
    n_jobs: int | None = None

    @property
    def num_folds(self) -> int:
        """Folds of a hyper-parameter search."""
        return 3 if self.fast else 5


DEFAULT = Options()
Key = tuple[str, str, int]  # of a cell: setting, method, seed


@dataclass(frozen=True)
class Method:
    """A row of a table.

    :param make: ``make(seed)``, the estimator.
    :param grid: hyper-parameters to search by cross-validation: name -> values.
    :param fast: parameters of a fast run: name -> value.
    """

    make: Callable[[int], BaseEstimator]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fast: Mapping[str, Any] = field(default_factory=dict)

    def estimator(self, seed: int, fast: bool) -> Any:
        """The estimator of a run."""
        return self.make(seed).set_params(**(self.fast if fast else {}))

    def candidates(self, fast: bool) -> dict[str, list[Any]]:
        """The grid; if fast, the first and the middle value of each hyper-parameter."""
        return {key: _thin(values) if fast else list(values) for key, values in self.grid.items()}


def _thin(values: Sequence[Any]) -> list[Any]:
    n = len(values)
    return list(values) if n <= 2 else [values[0], values[n // 2]]


@dataclass(frozen=True)
class Experiment:
    """A table of a paper.

    :param title: what it shows.
    :param duration: how long a run takes, and a fast one.
    :param settings: its blocks of rows, such as data sets.
    :param methods: its rows, name -> :class:`Method`; None where ``cell`` needs no estimator.
    :param metrics: its columns, key -> :class:`Metric`.
    :param cell: ``cell(setting, method, seed, options)`` -> a number for each metric, and what else is worth keeping.
    :param paper: (setting, method) -> metric -> the paper's mean and standard deviation (None where it gives none).
    :param num_seeds: how many seeds, and how many if fast.
    :param notes: what to know when comparing.
    :param compare: pairs of methods, of which the differences seed by seed are reported too.
    :param side_by_side: whether processes share out the cells, rather than the candidates of a search.
    :param figure: ``figure(experiment, summary, cells)``, the picture where the paper has one: see :mod:`.figure`.
    """

    title: str
    duration: tuple[str, str]
    settings: tuple[str, ...]
    methods: Mapping[str, Method | None]
    metrics: Mapping[str, Metric]
    cell: Callable[[str, Method | None, int, Options], dict[str, Any]]
    paper: Mapping[tuple[str, str], Mapping[str, tuple[float, float | None]]]
    num_seeds: tuple[int, int] = (20, 2)
    notes: tuple[str, ...] = ()
    compare: tuple[tuple[str, str], ...] = ()
    side_by_side: bool = False
    figure: Callable[..., Figure] | None = None


def paper(metrics: Sequence[str], methods: Sequence[str], rows: Mapping[str, str]) -> dict[tuple[str, str], dict]:
    """The paper's numbers by (setting, method): metric -> mean and standard deviation.

    :param rows: setting -> what its row says of the methods, separated by commas: a mean and a standard deviation for
        each metric, ``-`` where there is none.
    """
    numbers = {}
    for setting, row in rows.items():
        for method, entry in zip(methods, row.split(","), strict=True):
            values = [None if value == "-" else float(value) for value in entry.split()]
            pairs = zip(values[::2], values[1::2], strict=True)
            numbers[setting, method] = dict(zip(metrics, pairs, strict=True))
    return numbers


class OtherSettings(Exception):
    """The folder holds a run of the same experiment with other settings."""


class Rows(NamedTuple):
    """Rows to learn from or to test on; ``groups`` (n,) must not be split."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None


def evaluate(
    method: Method,
    train: Rows,
    test: Rows,
    seed: int,
    options: Options,
    subsets: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Choose hyper-parameters by cross-validation on ``train``, fit, and score on ``test``.

    :param subsets: name -> rows of the test part, of which the accuracy is wanted too.
    :return: ``accuracy`` and ``f1`` (the classes' mean) in percent; ``seconds`` of a fit and its predictions without
        compilation, ``first_seconds`` with it, ``search_seconds`` of the cross-validation; ``chosen`` hyper-parameters;
        and the accuracy of each subset by its name.
    """
    start = time.perf_counter()
    chosen = choose(method, train, seed, options)
    search_seconds = time.perf_counter() - start
    times: list[float] = []
    for _ in range(2):  # the first compiles
        fitted = method.estimator(seed, options.fast).set_params(**chosen)
        start = time.perf_counter()
        found = fitted.fit(train.X, train.y).predict(test.X)
        times.append(time.perf_counter() - start)
    return {
        "accuracy": 100 * accuracy_score(test.y, found),
        "f1": 100 * f1_score(test.y, found, average="macro", zero_division=0),
        "seconds": times[-1],
        "first_seconds": times[0],
        "search_seconds": search_seconds,
        "chosen": chosen,
        **{name: 100 * accuracy_score(test.y[rows], found[rows]) for name, rows in (subsets or {}).items()},
    }


def choose(method: Method, train: Rows, seed: int, options: Options) -> dict[str, Any]:
    """The best of the method's grid by cross-validation; groups stay whole, and classes are spread over the folds."""
    estimator, grid = method.estimator(seed, options.fast), method.candidates(options.fast)
    candidates = list(ParameterGrid(grid))
    if len(candidates) == 1:
        return candidates[0]
    folds: Any = StratifiedKFold if train.groups is None else StratifiedGroupKFold
    cv = folds(options.num_folds, shuffle=True, random_state=seed)
    search = GridSearchCV(estimator, grid, cv=cv, n_jobs=options.n_jobs, refit=False, error_score="raise")
    with warnings.catch_warnings():  # some of the grid is a bad choice, to be found out
        warnings.simplefilter("ignore", ConvergenceWarning)
        return search.fit(train.X, train.y, groups=train.groups).best_params_


def run_experiment(
    name: str,
    experiment: Experiment,
    out: str | os.PathLike[str],
    *,
    num_seeds: int | None = None,
    options: Options = DEFAULT,
    methods: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> str:
    """Run an experiment, or the rest of one that was interrupted.

    Every cell, a method with a seed, is kept in ``NAME.json`` as soon as it is done; a run with the same settings
    goes on from there, also for more seeds.

    :param name: the experiment's name, of its files too.
    :param experiment: the experiment.
    :param out: the folder to write ``NAME.json`` and ``NAME.txt`` to.
    :param num_seeds: how many seeds, by default the experiment's.
    :param options: see :class:`Options`.
    :param methods: the rows to run, by default all.
    :param progress: gets a line for each cell.
    :return: the text table.
    """
    chosen = list(experiment.methods if methods is None else methods)
    unknown = [method for method in chosen if method not in experiment.methods]
    if unknown:
        raise ValueError(f"methods must be some of {', '.join(experiment.methods)}; found {', '.join(unknown)}")
    seeds = range(experiment.num_seeds[options.fast] if num_seeds is None else num_seeds)
    path = pathlib.Path(out) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = _settings(experiment, chosen, options)
    cells = _resume(path, settings)
    done = {(cell["setting"], cell["method"], cell["seed"]) for cell in cells}
    todo = [(setting, method, seed) for seed in seeds for setting in experiment.settings for method in chosen]
    record = {"name": name, "title": experiment.title, "versions": _versions(), "settings": settings}
    if done & set(todo):
        progress(f"{name}: {len(done & set(todo))} of {len(todo)} cells are in {path} already")
    rest = [key for key in todo if key not in done]
    for i, (key, result, seconds) in enumerate(_run_cells(experiment, rest, options), start=1 + len(todo) - len(rest)):
        setting, method, seed = key
        cells.append({"setting": setting, "method": method, "seed": seed, "result": result})
        _write(path, {**record, "complete": False, "cells": cells})
        progress(f"[{i}/{len(todo)}] {setting}, {method}, seed {seed}: {_brief(experiment, result)} [{seconds:.1f} s]")
    summary, differences = summarise(experiment, cells), paired_differences(experiment, cells)
    text = _report(name, experiment, summary, differences, options)
    _write(path, {**record, "complete": True, "summary": summary, "differences": differences, "cells": cells})
    path.with_suffix(".txt").write_text(text + "\n")
    if experiment.figure is not None:
        experiment.figure(experiment, summary, cells).savefig(path.with_suffix(".png"), dpi=120)
    return text


def _run_cells(experiment: Experiment, keys: Sequence[Key], options: Options) -> Iterator[tuple[Key, dict, float]]:
    """Every cell's key, result and time as soon as it is done."""
    if not experiment.side_by_side:
        yield from (_run_cell(experiment, key, options) for key in keys)
        return
    _share_cores()
    tasks = (delayed(_run_cell)(experiment, key, options) for key in keys)
    yield from Parallel(options.n_jobs, return_as="generator_unordered")(tasks)


def _share_cores() -> None:
    """One thread of XLA for this process and its children, if it has not started: more of them wait for each other."""
    add_flag(ONE_THREAD)
    os.environ.setdefault("NPROC", "1")


def _run_cell(experiment: Experiment, key: Key, options: Options) -> tuple[Key, dict, float]:
    setting, method, seed = key
    start = time.perf_counter()
    make_room()
    result = experiment.cell(setting, experiment.methods[method], seed, options)
    return key, result, time.perf_counter() - start


def _brief(experiment: Experiment, result: Mapping[str, Any]) -> str:
    metrics = experiment.metrics.items()
    return ", ".join(f"{metric.heading} {result[key]:.{metric.digits}f}" for key, metric in metrics if key in result)


def _settings(experiment: Experiment, methods: Sequence[str], options: Options) -> dict[str, Any]:
    """What must be equal for cells to be compared."""

    def describe(method: Method | None) -> dict[str, Any] | None:
        if method is None:
            return None
        estimator = " ".join(repr(method.estimator(0, options.fast)).split())
        return {"estimator": estimator, "grid": method.candidates(options.fast)}

    rows = {name: describe(experiment.methods[name]) for name in methods}
    return {"version": __version__, "fast": options.fast, "folds": options.num_folds, "methods": rows}


def _resume(path: pathlib.Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of an earlier run; its other methods join the settings."""
    if not path.exists():
        return []
    try:
        record = json.loads(path.read_text())
        earlier, cells = record["settings"], record["cells"]
        rows = earlier["methods"]
    except (ValueError, KeyError, TypeError):
        raise OtherSettings(f"{path} is not a file of this command; move it or choose another folder") from None
    mine = json.loads(json.dumps(settings))
    changed = [key for key in ("version", "fast", "folds") if earlier.get(key) != mine[key]]
    changed += [key for key, row in mine["methods"].items() if key in rows and rows[key] != row]
    if changed:
        raise OtherSettings(
            f"{path} holds a run with other settings ({', '.join(changed)}); move it or choose another folder"
        )
    settings["methods"] = {**rows, **settings["methods"]}
    return cells


def _write(path: pathlib.Path, record: dict[str, Any]) -> None:
    """Replace the file at once, so that an interruption leaves the old or the new one."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(record, indent=1, default=_plain) + "\n")
    part.replace(path)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays for JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"cannot keep {value!r} in JSON")


def _versions() -> dict[str, str]:
    libraries = {library: metadata.version(library) for library in LIBRARIES}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"regbayes": __version__, "python": platform.python_version(), **libraries, "machine": machine}


def summarise(experiment: Experiment, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds beside the paper's, one entry for each setting, method and metric."""
    entries = []
    for setting in experiment.settings:
        for method in experiment.methods:
            results = [c["result"] for c in cells if (c["setting"], c["method"]) == (setting, method)]
            for key in experiment.metrics:
                values = [result[key] for result in results if key in result]
                mean, sd = experiment.paper.get((setting, method), {}).get(key, (None, None))
                if values or (results and mean is not None):
                    paper, ours = {"mean": mean, "sd": sd}, _spread(values)
                    entries.append({"setting": setting, "method": method, "metric": key, "paper": paper, "ours": ours})
    return entries


def paired_differences(experiment: Experiment, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard error of the differences between two methods with the same seeds."""
    found = {(c["setting"], c["method"], c["seed"]): c["result"] for c in cells}
    entries = []
    for setting in experiment.settings:
        for method, other in experiment.compare:
            pairs = [
                (result, found[setting, other, seed])
                for (where, who, seed), result in found.items()
                if (where, who) == (setting, method) and (setting, other, seed) in found
            ]
            for key in experiment.metrics:
                values = [mine[key] - theirs[key] for mine, theirs in pairs if key in mine and key in theirs]
                if len(values) > 1:
                    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
                    entry = {"setting": setting, "methods": [method, other], "metric": key}
                    entries.append({**entry, "mean": float(np.mean(values)), "standard_error": error})
    return entries


def _spread(values: Sequence[float]) -> dict[str, Any]:
    n = len(values)
    mean, sd = float(np.mean(values)) if n else None, float(np.std(values, ddof=1)) if n > 1 else None
    return {"mean": mean, "sd": sd, "num_seeds": n}


def _report(
    name: str,
    experiment: Experiment,
    summary: Sequence[Mapping[str, Any]],
    differences: Sequence[Mapping[str, Any]],
    options: Options,
) -> str:
    """The table as text: for each metric the paper's number, then ours, each with its standard deviation."""
    rows: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for entry in summary:
        rows.setdefault((entry["setting"], entry["method"]), {})[entry["metric"]] = entry
    header = ["setting", "method"]
    for metric in experiment.metrics.values():
        header += [f"{metric.heading}: paper", "ours"]
    lines = []
    for (setting, method), entries in rows.items():
        line = [setting, method]
        for key, metric in experiment.metrics.items():
            paper, ours = (entries.get(key, {}).get(who) for who in ("paper", "ours"))
            far = metric.marked and _is_far(paper, ours, metric.digits)
            line += [number(paper, metric.digits), number(ours, metric.digits) + far * " !"]
        lines.append(line)
    seeds = sorted({entry["ours"]["num_seeds"] for entry in summary} - {0}) or [0]
    span = " to ".join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))
    notes = [f"Mean (standard deviation) over {span} seed{'s' * (span != '1')}.", *experiment.notes]
    if any(metric.marked for metric in experiment.metrics.values()):
        notes.append("! is further from the paper's mean than its standard deviation.")
    if options.fast:
        notes.append("A fast run: fewer seeds, folds and hyper-parameters and smaller synthetic data; only a sketch.")
    table = [*_align([header, *lines]), "", *_paired(experiment, differences)]
    return "\n".join([f"{name}: {experiment.title}", "", *table, *notes])


def _paired(experiment: Experiment, differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences as text."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for entry in differences:
        digits = experiment.metrics[entry["metric"]].digits + 1
        number = f"{entry['mean']:+.{digits}f} ({entry['standard_error']:.{digits}f})"
        rows.setdefault((entry["setting"], " - ".join(entry["methods"])), {})[entry["metric"]] = number
    if not rows:
        return []
    header = ["setting", "difference", *(metric.heading for metric in experiment.metrics.values())]
    lines = [[*key, *(row.get(metric, "-") for metric in experiment.metrics)] for key, row in rows.items()]
    return [*_align([header, *lines]), "", "Differences: mean (standard error) over the same seeds."]


def _is_far(paper: Mapping[str, Any] | None, ours: Mapping[str, Any] | None, digits: int) -> bool:
    """Whether our mean is further from the paper's than its standard deviation, as far as the paper's digits tell."""
    if paper is None or ours is None or paper["sd"] is None or ours["mean"] is None:
        return False
    return abs(ours["mean"] - paper["mean"]) > paper["sd"] + 0.5 * 10.0**-digits


def number(value: Mapping[str, Any] | None, digits: int) -> str:
    if value is None or value["mean"] is None:
        return "-"
    spread = "" if value["sd"] is None else f" ({value['sd']:.{digits}f})"
    return f"{value['mean']:.{digits}f}{spread}"


def _align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Two columns of words to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = [
        [
            cell.ljust(width) if j < 2 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]
    head, *body = ["  " + "  ".join(line).rstrip() for line in cells]
    return [head, "  " + "-" * (len(head) - 2), *body]
