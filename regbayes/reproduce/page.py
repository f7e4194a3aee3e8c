"""A page of all tables that have been run, made from their files alone: paper, ours, difference, verdict."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from .experiment import Experiment, OtherSettings, number, paired_differences, summarise

__all__ = ["reproduction_page"]

AGREES = 2.0
"""Standard errors within which two means agree."""
HEAD = """# The papers' tables, run again

Made by `make pages` from the files of `docs/results/`, which `regbayes reproduce NAME --out docs/results` writes: every
cell with its seed, settings and versions.

Means with standard deviations over seeds in brackets. The difference is ours less the paper's, in standard errors of
both means, the paper's rounded and taken as over as many repetitions as ours; there is none where neither tells a
spread. *Agrees* is within two of them, *higher* and *lower* are beyond; where no seed changes ours and the paper tells
no spread, the rounded numbers decide. What is known of the differences stands below each table."""


def reproduction_page(experiments: Mapping[str, Experiment], folder: str | os.PathLike[str]) -> str:
    """The page, in Markdown.

    :param experiments: name -> experiment, in the page's order.
    :param folder: where their files ``NAME.json`` are; those that are missing are listed as not run.
    """
    parts, missing = [HEAD], []
    for name, experiment in experiments.items():
        path = pathlib.Path(folder) / f"{name}.json"
        if path.exists():
            picture = f"\n\n![{experiment.title}](results/{name}.png)" if path.with_suffix(".png").exists() else ""
            parts.append(_section(name, experiment, _read(path)) + picture)
        else:
            missing.append(f"- `{name}`: {experiment.title}")
    if missing:
        parts.append("\n".join(["## Not run yet", "", *missing]))
    return "\n\n".join(parts) + "\n"


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        record["cells"], record["versions"], record["settings"]["fast"]
    except (ValueError, KeyError, TypeError):
        raise OtherSettings(f"{path} is not the file of a table; run `regbayes reproduce {path.stem}` again") from None
    return record


def _section(name: str, experiment: Experiment, record: Mapping[str, Any]) -> str:
    rows = [_row(experiment, entry) for entry in summarise(experiment, record["cells"])]
    told, own = {row[:2] for row in rows if row[3] != "-"}, {m.heading for m in experiment.metrics.values() if m.own}
    kept = [row for row in rows if row[3] != "-" or row[:2] not in told or row[2] in own]
    lines = [f"## {name}", "", f"{experiment.title[0].upper()}{experiment.title[1:]}. {_run(experiment, record)}", ""]
    lines += _table(("setting", "method", "", "paper", "ours", "difference", "verdict"), kept)
    pairs = [_pair(experiment, entry) for entry in paired_differences(experiment, record["cells"])]
    if pairs:
        lines += ["", "Differences seed by seed, with their standard errors:", ""]
        lines += _table(("setting", "between", "", "mean (error)"), pairs)
    return "\n".join([*lines, "", " ".join(experiment.notes)])


def _run(experiment: Experiment, record: Mapping[str, Any]) -> str:
    """How much of it has been run, and with what."""
    cells, methods, seeds = record["cells"], experiment.methods, experiment.num_seeds[0]
    versions, fast = record["versions"], "A fast run, only a sketch. " if record["settings"]["fast"] else ""
    libraries = ", ".join(f"{library} {versions[library]}" for library in ("jax", "numpyro", "scikit-learn"))
    total = len(experiment.settings) * len(methods) * seeds
    return f"{fast}{len(cells)} of {total} cells ({seeds} seeds) have been run, with {libraries}."


def _row(experiment: Experiment, entry: Mapping[str, Any]) -> tuple[str, ...]:
    metric, paper, ours = experiment.metrics[entry["metric"]], entry["paper"], entry["ours"]
    z = _difference(paper, ours, metric.digits)
    apart = "-" if z is None else f"{z:+.1f}"
    if z is None and paper["mean"] is not None and ours["num_seeds"] > 1:  # the same with every seed
        z = AGREES * (ours["mean"] - paper["mean"]) / 10.0**-metric.digits
    verdict = "-" if z is None else "agrees" if abs(z) <= AGREES else "higher" if z > 0 else "lower"
    numbers = number(paper, metric.digits), number(ours, metric.digits)
    return entry["setting"], entry["method"], metric.heading, *numbers, apart, verdict


def _difference(paper: Mapping[str, Any], ours: Mapping[str, Any], digits: int) -> float | None:
    """In standard errors; None where it cannot be told."""
    if paper["mean"] is None or ours["mean"] is None:
        return None
    spread = (((paper["sd"] or 0.0) ** 2 + (ours["sd"] or 0.0) ** 2) / ours["num_seeds"]) ** 0.5
    rounding = 10.0**-digits / 12**0.5  # of a number that may be anywhere in an interval of that length
    return (ours["mean"] - paper["mean"]) / (spread**2 + rounding**2) ** 0.5 if spread > rounding / 10 else None


def _pair(experiment: Experiment, entry: Mapping[str, Any]) -> tuple[str, ...]:
    metric = experiment.metrics[entry["metric"]]
    digits = metric.digits + 1
    value = f"{entry['mean']:+.{digits}f} ({entry['standard_error']:.{digits}f})"
    return entry["setting"], " and ".join(entry["methods"]), metric.heading, value


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", "---", "---", *["--:"] * (len(header) - 3)]
    return [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]
