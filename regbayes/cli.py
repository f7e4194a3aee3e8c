"""The command ``regbayes``.

Each sub-command imports what it needs when it runs, so that ``regbayes --help`` answers at once.
"""

import argparse
import inspect
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import __version__
from .commands.common import UsageError, entry_of, folder, format_summary, set_devices, table

NUM_TRAIN, NUM_TEST = 300, 1000
GRAPHS = (".png", ".pdf", ".svg")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    :param argv: the arguments, by default those of the process.
    :return: the exit code: 0, or 2 after a usage error, which is told on stderr.

    >>> from regbayes.cli import main
    >>> main(["--version"])
    regbayes 0.1.0
    0
    """
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()  # a closed pipe shows here, not at the interpreter's end
    except UsageError as error:
        print(f"regbayes: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("regbayes: interrupted", file=sys.stderr)
        return 130


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = vars(_parser().parse_args(argv))
    except SystemExit as end:  # argparse has printed help, the version or an error
        return int(end.code or 0)
    command: Callable[..., None] = arguments.pop("command")
    command(**arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regbayes", description="A model zoo of max-margin Bayesian models in NumPyro. Start with: regbayes demo"
    )
    parser.add_argument("--version", action="version", version=f"regbayes {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    _add(commands, "list", list_models, "the models of the zoo, one per line")

    show = _add(commands, "show", show_model, "a model's citation, sites, arguments and kernels")
    show.add_argument("name", metavar="NAME", help="a model, as `regbayes list` names it")
    show.add_argument(
        "--graph", metavar="FILE", type=pathlib.Path, help="also draw its graph, as png, pdf or svg (needs Graphviz)"
    )

    demo = _add(commands, "demo", run_demo, "draw a posterior, check its convergence and plot it, within a minute")
    demo.add_argument(
        "--out", metavar="DIR", type=pathlib.Path, default="demo", help="folder for the plots (%(default)s)"
    )
    demo.add_argument("--seed", type=_seed, default=0, help="seed of the data and of the draws (%(default)s)")
    demo.add_argument("--num-samples", type=_count, default=1000, help="draws of each chain (%(default)s)")
    demo.add_argument("--num-warmup", type=_count, default=500, help="sweeps before them (%(default)s)")
    demo.add_argument("--num-chains", type=_count, default=4, help="chains (%(default)s)")

    fit = _add(commands, "fit", run_fit, "draw a model's posterior given data in a file, and write the draws")
    fit.add_argument("name", metavar="NAME", help="a model, as `regbayes list` names it")
    fit.add_argument(
        "--data",
        metavar="FILE",
        type=pathlib.Path,
        required=True,
        help="a csv with a header, or an npz with arrays by the program's names (X, y, ...)",
    )
    fit.add_argument("--out", metavar="FILE", type=pathlib.Path, default="fit.nc", help="the draws (%(default)s)")
    fit.add_argument("--label", metavar="COLUMN", help="column of the labels in a csv (y, label or landmarks)")
    fit.add_argument(
        "--set",
        dest="settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a hyper-parameter, as `regbayes show NAME` lists them; may be repeated",
    )
    fit.add_argument("--kernel", help="the kernel (the recommended one)")
    fit.add_argument("--num-samples", type=_count, default=1000, help="draws of each chain (%(default)s)")
    fit.add_argument("--num-warmup", type=_count, default=500, help="sweeps before them (%(default)s)")
    fit.add_argument("--num-chains", type=_count, default=4, help="chains (%(default)s)")
    fit.add_argument("--seed", type=_seed, default=0, help="seed of the draws (%(default)s)")
    fit.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same arguments")

    plot = _add(commands, "plot", run_plot, "the pictures that suit a fit")
    plot.add_argument("file", metavar="FILE", type=pathlib.Path, help="the draws, as `regbayes fit` writes them")
    plot.add_argument("--out", metavar="DIR", type=pathlib.Path, help="folder for the plots (the file's name)")

    reproduce = _add(commands, "reproduce", reproduce_table, "a table of a paper, its numbers beside ours")
    reproduce.add_argument("name", metavar="NAME", nargs="?", help="the table; without it, list those there are")
    reproduce.add_argument("--seeds", dest="num_seeds", metavar="N", type=_count, help="seeds (the table's own number)")
    reproduce.add_argument("--fast", action="store_true", help="a sketch: fewer seeds, folds, hyper-parameters, data")
    reproduce.add_argument(
        "--out",
        metavar="DIR",
        type=pathlib.Path,
        default="reproduced",
        help="folder for NAME.txt and NAME.json, where an interrupted run goes on (%(default)s)",
    )
    reproduce.add_argument(
        "--data-home", metavar="DIR", help="folder of the real data ($REGBAYES_DATA, then the cache)"
    )
    reproduce.add_argument("--n-jobs", type=_jobs, help="processes that share out the work; -1 is all cores")
    reproduce.add_argument(
        "--page", action="store_true", help="print a page of the tables that are in DIR, in Markdown"
    )
    return parser


def _add(commands, name: str, command: Callable[..., None], text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(command=command)
    return parser


def _count(text: str) -> int:
    return _integer(text, 1, 10**9)


def _jobs(text: str) -> int:
    return -1 if text == "-1" else _count(text)


def _seed(text: str) -> int:
    return _integer(text, 0, 2**32 - 1)


def _integer(text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}, found {text!r}")
    return value


def list_models() -> None:
    """Print the zoo as a table."""
    from . import zoo

    rows = [
        (name, entry.title, ", ".join(entry.kernels) or "-", entry.limit.__name__ if entry.limit else "-")
        for name, entry in zoo.items()  # type: ignore[attr-defined]
    ]
    print(table(("name", "title", "kernels", "limit"), rows))
    print("\nThe last kernel is the recommended one. More about a model: regbayes show NAME")


def show_model(name: str, graph: pathlib.Path | None = None) -> None:
    """Print what the zoo knows of a model and, given a file name, draw its graph."""
    if graph is not None:
        _check_graph(graph)
    entry = entry_of(name)
    args, kwargs = entry.example()
    arguments = inspect.signature(entry.program).bind(*args, **kwargs).arguments
    shapes = ", ".join(f"{key} {_shape(value)}" for key, value in arguments.items() if hasattr(value, "shape"))
    print("\n\n".join(filter(None, [f"{name}: {entry.title}", entry.paper, _page(entry.program)])) + "\n")
    print(f"Sites, for the example with {shapes}\n" + table(("site", "kind", "distribution", "shape"), _sites(entry)))
    print("\nKeyword arguments\n" + table(("name", "default", "meaning"), _keywords(entry.program)))
    kernels = [(key, _first_line(kernel)) for key, kernel in entry.kernels.items()]
    print("\nKernels, the last one recommended\n" + table(("name", "scheme"), kernels))
    kinds = {"Small-variance limit": "limit", "Mean-field learner": "learner", "Posterior estimator": "estimator"}
    for kind, field in kinds.items():
        if estimator := getattr(entry, field):
            print(f"\n{kind}\n  {estimator.__name__}: {_first_line(estimator)}")
    if graph is not None:
        _render(entry, graph)
        print(f"\nGraph: {graph}")


def _page(program: Callable) -> str:
    """The generative process, from the page of the program's module."""
    program = getattr(program, "func", program)  # of a partial application
    page = inspect.getdoc(inspect.getmodule(program)) or inspect.getdoc(program) or ""
    return page.split("**References**")[0].strip()


def _sites(entry: Any) -> list[tuple[str, ...]]:
    """Name, kind, distribution and shape of each site that the example traces."""
    from .inference.engine.target import outline

    sites = outline(entry.program, *entry.example())
    return [_site(site) for site in sites.values() if site["type"] in ("sample", "deterministic")]


def _site(site: dict[str, Any]) -> tuple[str, ...]:
    if site["type"] == "deterministic":
        return site["name"], "deterministic", "-", str(site["value"].shape)
    law = site["fn"]
    if type(law).__name__ == "Unit":
        return site["name"], "factor", "Unit", str(law.batch_shape)
    while hasattr(law, "base_dist") and type(law).__name__ in (
        "Independent",
        "ExpandedDistribution",
        "MaskedDistribution",
    ):
        law = law.base_dist
    kind = "observed" if site["is_observed"] else "latent"
    return site["name"], kind, type(law).__name__, str(site["value"].shape)


def _keywords(program: Callable) -> list[tuple[str, ...]]:
    """Name, default and meaning of each argument with a default; the meaning is the docstring's."""
    text = inspect.getdoc(getattr(program, "func", program)) or ""
    meanings = {
        key: " ".join(meaning.split())
        for key, meaning in re.findall(r"^:param (\w+):(.*?)(?=^\S|\Z|\n\n)", text, re.MULTILINE | re.DOTALL)
    }
    parameters = inspect.signature(program).parameters.values()
    return [(p.name, repr(p.default), meanings.get(p.name, "")) for p in parameters if p.default is not p.empty]


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _shape(value: Any) -> str:
    return str(tuple(value.shape))


def _check_graph(path: pathlib.Path) -> None:
    """Whether the graph can be drawn, before any work is done."""
    if path.suffix not in GRAPHS:
        raise UsageError(f"--graph must name a file that ends in {', '.join(GRAPHS)}, found {str(path)!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--graph: no folder {str(path.parent)!r}; make it first")
    try:
        import graphviz  # noqa: F401
    except ImportError:
        raise UsageError("--graph needs the Python package graphviz: pip install 'regbayes[graph]'") from None
    if shutil.which("dot") is None:
        raise UsageError("--graph needs the program `dot` of Graphviz, see https://graphviz.org/download/")


def _render(entry: Any, path: pathlib.Path) -> None:
    from .diagnostics import plot_graph

    args, kwargs = entry.example()
    plot_graph(entry.program, *args, filename=path, **kwargs)


def run_demo(out: pathlib.Path, seed: int, num_samples: int, num_warmup: int, num_chains: int) -> None:
    """Draw the posterior of a support vector machine; print its convergence, write its pictures into ``out``."""
    out = folder(out)
    set_devices(num_chains)
    os.environ.setdefault("MPLBACKEND", "agg")
    from . import datasets
    from .diagnostics import summary
    from .fitting import fit

    entry = entry_of("svm")
    scheme = list(entry.kernels)[-1]
    X, y, _ = datasets.make_svm(NUM_TRAIN + NUM_TEST, 2, noise=0.5, seed=seed)
    train, test = (X[:NUM_TRAIN], y[:NUM_TRAIN]), (X[NUM_TRAIN:], y[NUM_TRAIN:])
    print(f"The {entry.title}:\n{NUM_TRAIN} points in the plane, two classes that overlap, weights eta to learn.\n")
    print(
        f"Drawing {num_chains} x {num_samples} weights with the kernel {scheme!r}, after {num_warmup} warm-up sweeps.",
        flush=True,  # progress goes to stderr
    )
    lengths: dict[str, Any] = {"num_samples": num_samples, "num_warmup": num_warmup, "num_chains": num_chains}
    dt = fit("svm", *train, seed=seed, **lengths)

    print("\nConvergence: R-hat near 1 and a large effective sample size (ess); lp is the log joint.")
    print(format_summary(summary(dt)))
    eta = dt["posterior"]["eta"].to_numpy().reshape(-1, 2)
    _print_accuracy(entry.limit, eta, train, test)
    print("\nPlots")
    for path, text in _draw_plots(dt, eta, train, out):
        print(f"  {path}: {text}")
    print("\nNext: `regbayes list` for the other models, `regbayes show svm` for this one.")


def _print_accuracy(limit: Any, eta: Any, train: tuple, test: tuple) -> None:
    """The vote of the draws ``eta`` (S, d) beside the small-variance limit, on held-out data."""
    import numpy as np

    X, y = test
    vote = (X @ eta.T > 0).mean(1) > 0.5
    mode = limit(fit_intercept=False).fit(*train).predict(X)
    print(f"\nAccuracy on {len(y)} held-out points")
    rows = [("posterior vote", np.mean(vote == y)), (f"limit ({limit.__name__})", np.mean(mode == y))]
    print(table(("method", "accuracy"), [(method, f"{value:.3f}") for method, value in rows]))


def _draw_plots(dt: Any, eta: Any, train: tuple, out: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    import matplotlib.pyplot as plt

    from .diagnostics import plot_decision, plot_posterior, plot_trace

    plots: dict[str, tuple[Any, str]] = {
        "trace.png": (plot_trace(dt), "trace and ranks of the log joint"),
        "decision.png": (plot_decision(eta, *train).figure, "decision regions and how sure they are"),
        "weights.png": (plot_posterior(dt, "eta"), "posterior of the weights"),
    }
    for name, (figure, _) in plots.items():
        figure.savefig(out / name, dpi=150)
        plt.close(figure)
    return [(out / name, text) for name, (_, text) in plots.items()]


def run_fit(**arguments: Any) -> None:
    """Draw a posterior, write it, print its convergence."""
    from .commands.fit import fit

    fit(**arguments)


def run_plot(file: pathlib.Path, out: pathlib.Path | None) -> None:
    """Draw the pictures of a fit."""
    from .commands.plot import plot

    plot(file, out)


def reproduce_table(
    name: str | None,
    num_seeds: int | None,
    fast: bool,
    out: pathlib.Path,
    data_home: str | None,
    n_jobs: int | None,
    page: bool,
) -> None:
    """Run a table of a paper and print it; without a name, print which there are, or a page of those that were run."""
    from . import reproduce

    if page:
        try:
            print(reproduce.reproduction_page(reproduce.EXPERIMENTS, out), end="")
        except reproduce.OtherSettings as error:
            raise UsageError(str(error)) from None
        return
    if name is None:
        _list_tables()
        return
    if name not in reproduce.EXPERIMENTS:
        raise UsageError(f"no table {name!r} to reproduce; there are {', '.join(reproduce.names())}")
    options = reproduce.Options(fast=fast, data_home=data_home, n_jobs=n_jobs)
    out = folder(out)
    try:
        text = reproduce.run_experiment(name, reproduce.EXPERIMENTS[name], out, num_seeds=num_seeds, options=options)
    except (reproduce.OtherSettings, FileNotFoundError) as error:  # a run not to mix with, data not found
        raise UsageError(str(error)) from None
    print(f"{text}\n\nWritten: {out / name}.txt and {out / name}.json, with every seed")


def _list_tables() -> None:
    from . import reproduce

    rows = [(name, entry.title, *entry.duration) for name, entry in reproduce.EXPERIMENTS.items()]
    print(table(("name", "what", "takes about", "with --fast"), rows))
    print("\nRun one: regbayes reproduce NAME")
