"""What every race keeps, a file for each script, and the page made of the files.

A race is between something of ours and a peer, round by round in one run. Interleaved rounds share the machine's mood,
so ratios are taken within a round: the median counts, the least and the largest show its spread.

    python benchmarks/races.py [--out bench]      prints the page
"""

import argparse
import json
import os
import pathlib
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

LIBRARIES = ("regbayes", "jax", "numpyro", "scikit-learn", "numba")
ROOT = pathlib.Path(__file__).parents[1]


def race(
    ours: str,
    peer: str,
    values: Mapping[str, Sequence[float]],
    quantity: str,
    *,
    data: str = "",
    most: float | None = None,
    least: float | None = None,
) -> dict[str, Any]:
    """One race: the ratio of our number to the peer's.

    :param ours: who runs.
    :param peer: against whom.
    :param values: name -> a number for each round.
    :param quantity: what is measured, such as "seconds".
    :param data: on what.
    :param most: the bar, where a small ratio is a good one.
    :param least: the bar, where a large one is.
    """
    ratios = np.array(values[ours], float) / np.array(values[peer], float)
    median = float(np.median(ratios))
    return {
        "race": ours,
        "peer": peer,
        "data": data,
        "quantity": quantity,
        "ours": [float(value) for value in values[ours]],
        "theirs": [float(value) for value in values[peer]],
        "ratio": {"median": median, "least": float(ratios.min()), "largest": float(ratios.max())},
        **_verdict(median, most, least),
    }


def figure(name: str, value: float, *, data: str = "", most: float | None = None, least: float | None = None) -> dict:
    """A number that is no ratio of two rounds' numbers, with its bar."""
    return {"figure": name, "value": float(value), "data": data, **_verdict(value, most, least)}


def _verdict(value: float, most: float | None, least: float | None) -> dict[str, Any]:
    if most is None and least is None:
        return {}
    bar = f"at most {most:g}" if most is not None else f"at least {least:g}"
    return {"bar": bar, "met": bool(value <= most if most is not None else value >= least)}  # type: ignore[operator]


def keep(script: str, races: Sequence[Mapping[str, Any]], args: argparse.Namespace, **details: Any) -> None:
    """Write ``OUT/NAME.json`` for ``NAME.py``; the races of other sections that the file has already stay."""
    path = pathlib.Path(getattr(args, "out", None) or "bench") / pathlib.Path(script).with_suffix(".json").name
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text()) if path.exists() else {}
    new = {_identity(entry) for entry in races}
    record = {
        "settings": {key: value for key, value in vars(args).items() if key not in ("out", "data_home", "peer")},
        "versions": _versions(),
        "races": [entry for entry in earlier.get("races", []) if _identity(entry) not in new] + list(races),
        "details": {**earlier.get("details", {}), **details},
    }
    path.write_text(json.dumps(record, indent=1, default=float) + "\n")
    print(f"written to {path}")


def _identity(entry: Mapping[str, Any]) -> tuple:
    return tuple(entry.get(key) for key in ("race", "peer", "figure", "data", "quantity"))


def _versions() -> dict[str, str]:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in LIBRARIES}, "cpu": machine}


# ----- The page


def page(folder: pathlib.Path) -> str:
    """Markdown of all files of a folder."""
    parts = [
        "# Races",
        "Made by `python benchmarks/races.py` from the files that `make bench` writes; no number is typed. A ratio is "
        "ours over the peer's in the same round: its median, and its least and largest over rounds. All races of a "
        "script are interleaved in one run, after compilation.",
    ]
    paths = sorted(folder.glob("*.json"))
    if not paths:
        parts.append("No file has been kept yet.")
    for path in paths:
        record = json.loads(path.read_text())
        parts += [f"## {path.stem}", _about(path.stem), _table(record["races"])]
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items() if name != "cpu")
        parts.append(f"Run on {record['versions']['cpu']}, with {versions}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(name: str) -> str:
    """The first paragraph of the script's own description."""
    text = (ROOT / "benchmarks" / f"{name}.py").read_text()
    found = re.match(r'"""(.*?)(\n\n|""")', text, re.DOTALL)
    return " ".join(found.group(1).split()) if found else ""


def _table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Races first, then other figures."""
    lines = []
    if raced := [entry for entry in entries if "race" in entry]:
        lines += ["| ours | peer | data | measured | ours | peer's | ratio | bar | |", "|" + "---|" * 9]
        for entry in raced:
            ratio = entry["ratio"]
            spread = f"{_short(ratio['median'])} ({_short(ratio['least'])} to {_short(ratio['largest'])})"
            middle = [_short(float(np.median(entry[side]))) for side in ("ours", "theirs")]
            cells = (entry["race"], entry["peer"], entry["data"], entry["quantity"], *middle, spread, *_bar(entry))
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    if figures := [entry for entry in entries if "figure" in entry]:
        lines += ["| figure | data | value | bar | |", "|" + "---|" * 5]
        for entry in figures:
            cells = (entry["figure"], entry["data"], _short(entry["value"]), *_bar(entry))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines).strip()


def _bar(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry.get("bar", "-"), {True: "met", False: "**missed**"}.get(entry.get("met"), "-")  # type: ignore[arg-type]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench"), help="the folder of the files")
    print(page(parser.parse_args().out), end="")
