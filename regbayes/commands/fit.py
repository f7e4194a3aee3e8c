"""``regbayes fit``: draw a model's posterior given a file of data, and write it to a file.

A long run may be stopped at any time: its draws are kept beside the result, in the folder ``<out>.partial``, every half
minute and on an interrupt, and ``--resume`` goes on from there, to the same draws bit for bit.
"""

import inspect
import pathlib
import re
from typing import Any

from .common import UsageError, entry_of, format_summary, set_devices


def fit(
    name: str,
    data: pathlib.Path,
    out: pathlib.Path,
    label: str | None,
    settings: list[str],
    kernel: str | None,
    num_samples: int,
    num_warmup: int,
    num_chains: int,
    seed: int,
    resume: bool,
) -> None:
    """Run a chain, or several, and write and summarise the draws."""
    set_devices(num_chains)
    entry = entry_of(name)
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out: no folder {str(out.parent)!r}; make it first")
    if out.suffix != ".nc":
        raise UsageError(f"--out must name a file that ends in .nc, found {str(out)!r}")
    scheme = kernel or list(entry.kernels)[-1]
    if scheme not in entry.kernels:
        raise UsageError(f"--kernel: {name} has {', '.join(entry.kernels)}; found {scheme!r}")
    options = _options(name, entry.program, settings)
    from ..fitting import fit as draw
    from .data import read

    args, notes = read(entry, data, label, options)
    shape = "x".join(map(str, args[0].shape))
    print(f"{entry.title}: {num_chains} x {num_samples} draws with the kernel {scheme!r}, data {shape}.", flush=True)
    lengths: dict[str, Any] = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains}
    try:
        dt = draw(name, *args, seed=seed, **lengths, kernel=scheme, out=out, resume=resume, attrs=notes, **options)
    except ValueError as error:  # the program tells what is wrong with its arguments
        raise UsageError(_in_words_of_the_command(str(error))) from None
    except KeyboardInterrupt:
        print(f"\nThe draws so far are kept in {out}.partial; go on with --resume", flush=True)
        raise
    _report(dt, out)


def _in_words_of_the_command(text: str) -> str:
    text = text.replace("go on with it (resume)", "go on with --resume").replace("resume: the run", "--resume: the run")
    return re.sub(r"raise (max_\w+) and run again", r"run again with --set \1=N", text)


def _report(dt: Any, out: pathlib.Path) -> None:
    from ..diagnostics import summary

    table = summary(dt)
    left_out = table.attrs["left_out"]
    notes = table["note"].str.replace(r"(; )?left out, as labels may switch.*", "", regex=True)
    print("\nConvergence: R-hat near 1 and a large effective sample size (ess); lp is the log joint.")
    print(format_summary(table.assign(note=notes)))
    if left_out:
        print(f"\nLeft out, numbered at will or as long as the data: {', '.join(left_out)}")
    print(f"\nWritten: {out}\nNext: regbayes plot {out}")


def _options(name: str, program: Any, settings: list[str]) -> dict[str, Any]:
    """Hyper-parameters from ``NAME=VALUE``."""
    known = [p.name for p in inspect.signature(program).parameters.values() if p.kind is p.KEYWORD_ONLY]
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or key not in known:
            raise UsageError(f"--set must be NAME=VALUE with a name of {name}: {', '.join(known)}; found {setting!r}")
        options[key] = _value(text)
    return options


def _value(text: str) -> Any:
    """A number, true, false, none, or the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
