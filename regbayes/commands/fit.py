"""``regbayes fit``: draw a model's posterior given a file of data, and write it to a file.

A long run may be stopped at any time: its draws are kept beside the result, in the folder ``<out>.partial``, every half
minute and on an interrupt, and ``--resume`` goes on from there, to the same draws bit for bit.
"""

import functools
import hashlib
import inspect
import json
import os
import pathlib
import shutil
from time import monotonic
from typing import Any

from ..xla import ONE_THREAD, add_flag
from .common import UsageError, entry_of, format_summary

SAVE_EVERY = 30.0  # seconds


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
    entry = entry_of(name)
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out: no folder {str(out.parent)!r}; make it first")
    if out.suffix != ".nc":
        raise UsageError(f"--out must name a file that ends in .nc, found {str(out)!r}")
    scheme = kernel or list(entry.kernels)[-1]
    if scheme not in entry.kernels:
        raise UsageError(f"--kernel: {name} has {', '.join(entry.kernels)}; found {scheme!r}")
    options = _options(name, entry.program, settings)
    add_flag(ONE_THREAD)
    from .data import read

    args, notes = read(entry, data, label, options)
    run = _Run(entry, scheme, args, options, num_samples, num_warmup, num_chains, seed)
    plan = {
        "model": name,
        "kernel": scheme,
        "settings": {key: repr(value) for key, value in sorted(options.items())},
        "data": hashlib.sha256(data.read_bytes()).hexdigest(),
        "label": label,
        "num_samples": num_samples,
        "num_warmup": num_warmup,
        "num_chains": num_chains,
        "seed": seed,
    }
    partial = _Partial(out.with_name(out.name + ".partial"), plan, resume)
    shape = "x".join(map(str, args[0].shape))
    print(f"{entry.title}: {num_chains} x {num_samples} draws with the kernel {scheme!r}, data {shape}.", flush=True)
    run.draw(partial)
    dt = run.tree({**notes, "seed": seed})
    unfinished = out.with_name(out.name + ".writing")
    dt.to_netcdf(unfinished, engine="h5netcdf")
    os.replace(unfinished, out)
    partial.remove()
    _report(dt, out)


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


class _Run:
    """The chains: sweep after sweep, the same whether in one go or with stops."""

    def __init__(self, entry, scheme, args, options, num_samples, num_warmup, num_chains, seed) -> None:
        import jax

        # Whole numbers and words shape the program; real numbers are ordinary arguments.
        shaping = {key: value for key, value in options.items() if not isinstance(value, float)}
        self.kwargs = {key: value for key, value in options.items() if key not in shaping}
        program = functools.partial(entry.program, **shaping) if shaping else entry.program
        self.kernel, self.args = entry.kernels[scheme](program), args
        self.num_samples, self.num_warmup, self.seed = num_samples, num_warmup, seed
        keys = jax.random.split(jax.random.key(seed), num_chains)
        try:
            self.state = self.kernel.init(keys, 0, None, self.args, self.kwargs)
        except ValueError as error:  # the program tells what is wrong with its arguments
            raise UsageError(str(error)) from None
        self.pieces: list[dict[str, Any]] = []

    def draw(self, partial: "_Partial") -> None:
        """Sweep until done; a stop on the way leaves everything in ``partial``."""
        import jax
        from tqdm import tqdm

        done, self.pieces, state = partial.load()
        self.state = self.state if state is None else state
        sweep = jax.jit(lambda state: self.kernel.sample(state, self.args, self.kwargs))
        total, fresh, saved = self.num_warmup + self.num_samples, [], monotonic()
        with tqdm(total=total, initial=done, desc="warm-up", unit="sweep", mininterval=0.5) as bar:
            try:
                while done < total:
                    self.state = sweep(self.state)
                    done += 1
                    if done > self.num_warmup:
                        fresh.append((self.state.z, self.state.log_joint))
                    if bar.update():
                        bar.set_description("draws" if done > self.num_warmup else "warm-up")
                        bar.set_postfix_str(self._first_chain())
                    if monotonic() - saved > SAVE_EVERY:
                        fresh, saved = self._keep(partial, done, fresh), monotonic()
            except KeyboardInterrupt:
                self._keep(partial, done, fresh)
                print(f"\n{done} of {total} sweeps are kept in {partial.folder}; go on with --resume", flush=True)
                raise
        self._keep(partial, done, fresh)

    def _first_chain(self) -> str:
        import jax

        return self.kernel.get_diagnostics_str(jax.tree.map(lambda leaf: leaf[0], self.state))

    def _keep(self, partial: "_Partial", done: int, fresh: list) -> list:
        import numpy as np

        if np.any(np.asarray(self.state.overflow)):
            size = next((key for key in ("max_clusters", "max_features") if key in self._parameters()), "its size")
            raise UsageError(f"a chain's buffer was full, so its draws are truncated; run again with --set {size}=N")
        if fresh:
            sites = {key: np.stack([np.asarray(z[key]) for z, _ in fresh], axis=1) for key in fresh[0][0]}
            self.pieces.append({**sites, "log_joint": np.stack([np.asarray(lp) for _, lp in fresh], axis=1)})
        partial.save(done, self.pieces[-1] if fresh else None, self.state)
        return []

    def _parameters(self) -> list[str]:
        return list(inspect.signature(self.kernel.model).parameters)

    def tree(self, attrs: dict[str, Any]) -> Any:
        import numpy as np

        from ..diagnostics.arviz import assemble

        draws = {key: np.concatenate([piece[key] for piece in self.pieces], axis=1) for key in self.pieces[0]}
        fields = {"log_joint": draws.pop("log_joint")}
        attrs = {"num_warmup": self.num_warmup, "thinning": 1, **attrs}
        return assemble(self.kernel, draws, fields, (self.args, self.kwargs), overflow=False, attrs=attrs)


class _Partial:
    """A folder with the draws so far, in pieces, and the state to go on from; ``progress.json`` says which count."""

    def __init__(self, folder: pathlib.Path, plan: dict[str, Any], resume: bool) -> None:
        self.folder, self.plan, self.num_pieces, self.num_saves = folder, plan, 0, 0
        found = self._progress()
        if found and not resume:
            raise UsageError(f"an interrupted run is in {str(folder)!r}; go on with --resume, or remove it")
        if found and found["plan"] != plan:
            other = [key for key in plan if found["plan"].get(key) != plan[key]]
            raise UsageError(f"--resume: the run in {str(folder)!r} had another {', '.join(other)}; give the same")
        folder.mkdir(exist_ok=True)

    def _progress(self) -> dict[str, Any] | None:
        path = self.folder / "progress.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def load(self) -> tuple[int, list[dict[str, Any]], Any]:
        """How many sweeps were done, their draws, and the state; nothing where there is nothing."""
        import numpy as np

        from ..inference import load_state

        found = self._progress()
        if not found:
            return 0, [], None
        self.num_pieces, self.num_saves = found["num_pieces"], found["num_saves"]
        pieces = []
        for k in range(self.num_pieces):
            with np.load(self.folder / f"draws-{k}.npz", allow_pickle=False) as file:
                pieces.append(dict(file))
        return found["done"], pieces, load_state(self.folder / f"state-{self.num_saves}.npz")

    def save(self, done: int, piece: dict[str, Any] | None, state: Any) -> None:
        """First the files, then the line that makes them count: a stop in between loses nothing."""
        import numpy as np

        from ..inference import save_state

        if piece is not None:
            np.savez(self.folder / f"draws-{self.num_pieces}.npz", allow_pickle=False, **piece)
            self.num_pieces += 1
        old, self.num_saves = self.folder / f"state-{self.num_saves}.npz", self.num_saves + 1
        save_state(state, self.folder / f"state-{self.num_saves}.npz")
        line = {"plan": self.plan, "done": done, "num_pieces": self.num_pieces, "num_saves": self.num_saves}
        unfinished = self.folder / "progress.writing"
        unfinished.write_text(json.dumps(line))
        os.replace(unfinished, self.folder / "progress.json")
        old.unlink(missing_ok=True)

    def remove(self) -> None:
        """Once the result is written."""
        shutil.rmtree(self.folder, ignore_errors=True)
