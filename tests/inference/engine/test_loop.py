"""The loop that draws: compiled once, stopped and gone on with, in memory and in files."""

import json
import os
import random as dice
import signal
import subprocess
import sys
import textwrap
import time

import jax
import numpy as np
import pytest

import regbayes
from regbayes.inference import draw_chains, load_state, save_state
from regbayes.inference.engine import compiled, loop
from regbayes.inference.engine.compiled import likeness

KERNELS = [(name, kernel) for name in regbayes.zoo.names() for kernel in regbayes.zoo[name].kernels]
DEFAULT = [("svm", "slice"), ("isvm", "slice"), ("medlda", "collapsed")]
EVERY = [pytest.param(*both, marks=[] if both in DEFAULT else pytest.mark.slow) for both in KERNELS]
LENGTHS = {"num_warmup": 3, "num_samples": 8, "num_chains": 2, "thinning": 2, "progress": False}


def run(name, kernel, **options):
    args, kwargs = regbayes.zoo[name].example()
    return draw_chains(regbayes.zoo[name].kernels[kernel](), args, kwargs, **{**LENGTHS, **options})


def assert_equal(one, other):
    assert set(one.sites) == set(other.sites)
    for site in one.sites:
        np.testing.assert_array_equal(one.sites[site], other.sites[site])
    np.testing.assert_array_equal(one.log_joint, other.log_joint)


class Stop:
    """An interrupt after so many chunks of a sweep or a draw each."""

    def __init__(self, monkeypatch, after):
        self.left, self.original = after, loop._Run.chunk
        monkeypatch.setattr(loop._Run, "chunk", lambda run, sweeps: self.chunk(run))

    def chunk(self, run):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.original(run, 1)


@pytest.mark.parametrize(("name", "kernel"), EVERY)
def test_an_interrupted_run_goes_on_bit_for_bit(name, kernel, tmp_path, monkeypatch):
    whole = run(name, kernel)
    for after in (2, 7):  # in the warm-up, among the draws
        with monkeypatch.context() as patch:
            Stop(patch, after)
            with pytest.raises(KeyboardInterrupt):
                run(name, kernel, folder=tmp_path / "run", resume=after > 2)
    assert_equal(whole, run(name, kernel, folder=tmp_path / "run", resume=True))


def test_thinned_draws_are_every_other_of_all():
    every, thinned = run("svm", "slice", num_samples=16, thinning=1), run("svm", "slice")
    np.testing.assert_array_equal(thinned.sites["eta"], every.sites["eta"][:, 1::2])
    np.testing.assert_array_equal(thinned.log_joint, every.log_joint[:, 1::2])


def test_a_state_is_written_over_an_older_one(tmp_path):
    states = [run("svm", "slice", seed=seed).state for seed in range(2)]
    for state in states:
        save_state(state, tmp_path / "chain.npz")
        np.testing.assert_array_equal(load_state(tmp_path / "chain.npz").z["eta"], state.z["eta"])
    assert [path.name for path in tmp_path.iterdir()] == ["chain.npz"]


@pytest.mark.parametrize(("name", "kernel"), EVERY)
def test_two_data_sets_of_equal_shape_compile_once(name, kernel):
    entry = regbayes.zoo[name]
    run(name, kernel)
    code = compiled._kept[likeness(entry.kernels[kernel]())]
    sizes = code.init._cache_size(), code.draws._cache_size()
    args, kwargs = entry.example()
    others = tuple(np.asarray(data)[::-1] for data in args)
    again = draw_chains(entry.kernels[kernel](), others, kwargs, **{**LENGTHS, "num_samples": 5, "thinning": 1})
    assert again.log_joint.shape == (2, 5)
    assert (code.init._cache_size(), code.draws._cache_size()) == sizes
    assert not code.too_early


def test_equal_kernels_share_and_others_do_not():
    entry = regbayes.zoo["isvm"]
    make = entry.kernels["slice"]
    assert likeness(make()) == likeness(make())
    assert likeness(make()) != likeness(make(split_merge=1))
    assert likeness(make()) != likeness(entry.kernels["collapsed"]())
    keys = {likeness(regbayes.zoo[name].kernels[kernel]()) for name, kernel in KERNELS}
    assert len(keys) == len(KERNELS)


def test_what_a_function_is_made_around_tells_it_from_others():
    def made(width, of=()):
        return lambda x: x * width + len(of)

    assert likeness(made(1.0)) == likeness(made(1.0))
    assert likeness(made(1.0)) != likeness(made(2.0))
    assert likeness(made(np.arange(3))) == likeness(made(np.arange(3)))
    assert likeness(made(np.arange(3))) != likeness(made(np.arange(4)))
    assert likeness(made(np.arange(3))) != likeness(made(np.arange(1, 4)))
    assert likeness(made([1])) != likeness(made([1]))  # a list may change
    assert likeness(made(True)) != likeness(made(1))


def test_what_a_cell_of_a_notebook_reads_from_others_tells_it_from_itself():
    notebook = {"__name__": "__main__"}
    exec("def helper(x):\n    return x\n\ndef program(x):\n    return [helper(scale * x) for _ in range(2)]", notebook)
    notebook["scale"] = 1.0
    before = likeness(notebook["program"])
    assert likeness(notebook["program"]) == before
    notebook["scale"] = 2.0
    assert likeness(notebook["program"]) != before
    notebook["scale"] = 1.0
    assert likeness(notebook["program"]) == before
    exec("def helper(x):\n    return -x", notebook)
    assert likeness(notebook["program"]) != before


def test_arguments_are_copies_of_arrays_that_their_owner_may_change():
    X = np.ones(3)
    apart = compiled.Arguments(((X,), {}))
    X[:] = 2.0
    np.testing.assert_array_equal(apart.leaves[0], np.ones(3))


def test_labels_are_looked_at_in_every_data_set():
    (X, y), kwargs = regbayes.zoo["svm"].example()
    run("svm", "slice")
    with pytest.raises(ValueError, match="found 0, 1, 2"):
        draw_chains(regbayes.zoo["svm"].kernels["slice"](), (X, np.append(y[:-1], 2)), kwargs, **LENGTHS)


def test_a_folder_is_not_mistaken_for_another(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        Stop(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            run("svm", "slice", folder=tmp_path / "run")
    with pytest.raises(ValueError, match=r"an interrupted run is in .*go on with it"):
        run("svm", "slice", folder=tmp_path / "run")
    with pytest.raises(ValueError, match="had another seed; give the same"):
        run("svm", "slice", folder=tmp_path / "run", resume=True, seed=1)
    with pytest.raises(ValueError, match="had another thinning; give the same"):
        run("svm", "slice", folder=tmp_path / "run", resume=True, thinning=1)
    assert json.loads((tmp_path / "run" / "progress.json").read_text())["done"] == 3 + 2 * 2


def test_a_full_buffer_is_told():
    (X,), _ = regbayes.zoo["dpgmm"].example()
    kernel = regbayes.zoo["dpgmm"].kernels["collapsed"]()
    with pytest.raises(ValueError, match=r"buffer was full.*raise max_clusters"):
        draw_chains(kernel, (X,), {"max_clusters": 2, "scatter": 0.01, "concentration": 50.0}, **LENGTHS)


def test_lines_of_progress_where_output_is_piped(monkeypatch, capsys):
    monkeypatch.setattr(loop, "LINE_EVERY", 0.0)
    run("svm", "slice", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert all("sweeps" in line and "log joint" in line for line in lines)
    assert any(line.startswith("draws: ") for line in lines)
    assert "\r" not in "".join(lines)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [({"num_samples": 0}, "num_samples must be .* at least 1, found 0"), ({"num_warmup": 2.5}, "num_warmup must be")],
)
def test_lengths_are_checked(lengths, message):
    with pytest.raises(ValueError, match=message):
        run("svm", "slice", **lengths)


SCRIPT = """
    import regbayes
    from regbayes.inference import draw_chains
    from regbayes.inference.engine import loop

    loop.SAVE_EVERY, loop.CHUNK_SECONDS = 0.0, 0.01
    args, kwargs = regbayes.zoo[{name!r}].example()
    print("ready", flush=True)
    kernel = regbayes.zoo[{name!r}].kernels[{kernel!r}]()
    draw_chains(kernel, args, kwargs, folder={folder!r}, resume=True, **{lengths!r})
"""
LONG = {"num_warmup": 3, "num_samples": 400, "num_chains": 2, "thinning": 2, "progress": False}


@pytest.mark.parametrize(("name", "kernel"), EVERY)
def test_a_killed_run_goes_on_bit_for_bit(name, kernel, tmp_path):
    folder = str(tmp_path / "run")
    script = textwrap.dedent(SCRIPT.format(name=name, kernel=kernel, folder=folder, lengths=LONG))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ})
    progress = tmp_path / "run" / "progress.json"
    while process.poll() is None and not progress.exists():
        time.sleep(0.01)
    time.sleep(dice.Random(name + kernel).uniform(0.0, 0.3))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = json.loads(progress.read_text())["done"]
    assert done > 0
    assert_equal(run(name, kernel, **LONG), run(name, kernel, **LONG, folder=folder, resume=True))


def test_room_is_made_before_compiled_code_fills_the_process(monkeypatch):
    run("svm", "slice")
    key = likeness(regbayes.zoo["svm"].kernels["slice"]())
    assert key in compiled._kept
    monkeypatch.setattr(compiled, "MANY_MAPS", 0)
    compiled.make_room()
    assert key not in compiled._kept
    before = jax.jit(lambda x: x + 1)(1.0)
    assert before == 2.0
