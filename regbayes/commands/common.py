"""What the commands share: errors, tables, folders. It imports nothing heavy."""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from ..xla import ONE_THREAD, add_flag


class UsageError(Exception):
    """The user asked for something that cannot be done; the message says what to do."""


def entry_of(name: str) -> Any:
    from .. import zoo

    try:
        return zoo[name]  # type: ignore[index]
    except KeyError as error:
        raise UsageError(error.args[0]) from None


def folder(out: pathlib.Path) -> pathlib.Path:
    out = pathlib.Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out must be a folder to write to, found {str(out)!r}: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise UsageError(f"--out must be a folder to write to, found {str(out)!r}: it is read-only")
    return out


def set_devices(num_chains: int) -> None:
    """Ask XLA for host devices that share the chains evenly, at most one for each core, of one thread each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    devices = max(number for number in range(1, cores + 1) if num_chains % number == 0)
    add_flag(ONE_THREAD)
    add_flag(f"--xla_force_host_platform_device_count={devices}")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, two blanks apart, indented by two; columns of numbers to the right."""
    columns = [_column(cells) for cells in zip(header, *rows, strict=True)]
    head, *body = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    rule = "-" * (sum(len(column[0]) for column in columns) + 2 * len(columns) - 2)
    return "\n".join(f"  {line}" for line in (head, rule, *body))


def _column(cells: Sequence[str]) -> list[str]:
    """The cells, heading first, at one width."""
    numbers = all(re.fullmatch(r"nan|[-+]?[\d.]+(e[-+]?\d+)?", cell) for cell in cells[1:])
    width = max(map(len, cells))
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in cells]


def format_summary(summary: Any) -> str:
    """The summary with as many digits as it deserves."""
    digits = {"ess_bulk": "{:.0f}", "ess_tail": "{:.0f}", "mcse_mean": "{:.2g}"}
    columns = [column for column in summary.columns if column != "note" or summary["note"].any()]
    rows = [
        [str(label), *(row[c] if c == "note" else digits.get(c, "{:.3f}").format(row[c]) for c in columns)]
        for label, row in summary.iterrows()
    ]
    return table(["quantity", *columns], rows)
