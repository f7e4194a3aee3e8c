"""The command: what it prints, writes and returns."""

import os
import shutil
import subprocess
import sys

import pytest

import regbayes
from regbayes import cli
from regbayes.cli import main

HEAVY = ("jax", "numpyro", "arviz_base", "matplotlib", "scipy", "numpy", "sklearn")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(argument):
    code = f"import sys, regbayes.cli as c; c.main(['{argument}']); print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, imported = done.stdout.splitlines()
    assert imported == "[]"
    assert done.stderr == ""
    assert (f"regbayes {regbayes.__version__}" in text) == (argument == "--version")


def test_help_names_the_commands(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("list", "show", "demo", "reproduce"))


def test_list_is_the_zoo(capsys):
    assert main(["list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["name", "title", "kernels", "limit"]
    assert [line[0] for line in lines[2 : 2 + len(regbayes.zoo)]] == regbayes.zoo.names()
    assert lines[2][-3:] == ["augmentation,", "slice", "EMSVC"]


def test_show_svm(capsys):
    assert main(["show", "svm"]) == 0
    text = capsys.readouterr().out
    entry = regbayes.zoo["svm"]
    assert entry.title in text
    assert entry.paper in text
    assert "exp(-2 c max(0, ell - y_i eta'x_i))" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["eta", "latent", "Normal", "(2,)"] in lines
    assert ["margin", "factor", "Unit", "(60,)"] in lines
    assert ["ell", "1.0", "the", "margin."] in lines
    assert any(line[:2] == ["prior_scale", "1.0"] for line in lines)
    assert any(line[:2] == ["slice", "Elliptical"] for line in lines)
    assert "EMSVC: Linear support vector classifier" in text


@pytest.mark.parametrize("name", regbayes.zoo.names())
def test_show_every_model(name, capsys):
    assert main(["show", name]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{name}: {regbayes.zoo[name].title}\n")
    assert " latent " in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["show"], "required: NAME"),
        (["show", "svn"], "no model 'svn' in the zoo; it has svm, "),
        (["show", "svm", "--graph", "graph.txt"], "must name a file that ends in .png, .pdf, .svg, found 'graph.txt'"),
        (["show", "svm", "--graph", "no/such/graph.png"], "no folder"),
        (["demo", "--num-samples", "0"], "must be a whole number from 1"),
        (["demo", "--seed", "one"], "found 'one'"),
        (["demo", "--out", __file__], "must be a folder to write to"),
        (["reproduce", "table0"], "no table 'table0' to reproduce; there are bmc-fig2, bmc-fig3, "),
        (["reproduce", "m2dpm-table1", "--seeds", "0"], "must be a whole number from 1"),
        (["reproduce", "m2dpm-table1", "--n-jobs", "-2"], "must be a whole number from 1"),
        (["reproduce", "m2dpm-table1", "--out", __file__], "must be a folder to write to"),
    ],
)
def test_mistakes_return_2_and_say_what_is_wrong(arguments, message, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_graph_without_graphviz(tmp_path, monkeypatch, capsys):
    path = tmp_path / "graph.png"
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert main(["show", "svm", "--graph", str(path)]) == 2
    assert "pip install 'regbayes[graph]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "graphviz", os)  # any module will do to be imported
    monkeypatch.setenv("PATH", "")
    assert main(["show", "svm", "--graph", str(path)]) == 2
    assert "the program `dot`" in capsys.readouterr().err
    assert not path.exists()


def test_graph_is_the_program_s(tmp_path, monkeypatch, capsys):
    """What would be rendered, without the program that renders."""
    graphviz = pytest.importorskip("graphviz")
    rendered = []
    monkeypatch.setattr(
        graphviz.Digraph, "render", lambda self, name, **options: rendered.append((self, name, options))
    )
    monkeypatch.setattr(shutil, "which", lambda name: name)
    path = tmp_path / "graph.pdf"
    assert main(["show", "svm", "--graph", str(path)]) == 0
    ((graph, name, options),) = rendered
    assert (name, options["format"]) == (path.with_suffix(""), "pdf")
    assert "eta" in graph.source
    assert "margin" in graph.source
    assert f"Graph: {path}" in capsys.readouterr().out


def test_demo_writes_plots_and_prints_a_table(tmp_path, capsys, recwarn):
    out = tmp_path / "new" / "demo"
    tiny = ["--num-samples", "20", "--num-warmup", "5", "--num-chains", "2", "--seed", "3"]
    assert main(["demo", "--out", str(out), *tiny]) == 0
    text = capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["decision.png", "trace.png", "weights.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") and str(path) in text for path in out.iterdir())
    lines = [line.split() for line in text.splitlines()]
    head = next(line for line in lines if line[:1] == ["quantity"])
    assert head[-1] == "r_hat"
    table = {line[0]: line for line in lines if len(line) == len(head)}
    assert {"lp", "eta[0]", "eta[1]"} <= set(table)
    accuracies = [float(line[-1]) for line in lines if line[:1] in (["posterior"], ["limit"]) and len(line) == 3]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.8
    assert "regbayes show svm" in text
    assert not recwarn.list


DEVICES, ONE_THREAD = "--xla_force_host_platform_device_count", "--xla_cpu_multi_thread_eigen=false"


@pytest.mark.parametrize(
    ("flags", "num_chains", "expected"),
    [
        (None, 4, f"{ONE_THREAD} {DEVICES}=2"),
        (None, 5, f"{ONE_THREAD} {DEVICES}=1"),
        (None, 6, f"{ONE_THREAD} {DEVICES}=3"),
        ("--xla_foo=1", 3, f"--xla_foo=1 {ONE_THREAD} {DEVICES}=3"),
        (f"{DEVICES}=7", 4, f"{DEVICES}=7 {ONE_THREAD}"),
    ],
)
def test_devices_share_chains_evenly_and_respect_the_user_s_flags(flags, num_chains, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    monkeypatch.delenv("XLA_FLAGS")
    if flags is not None:
        monkeypatch.setenv("XLA_FLAGS", flags)
    cli.set_devices(num_chains)
    assert os.environ["XLA_FLAGS"] == expected


def test_a_closed_pipe_is_no_error():
    code = "import sys, regbayes.cli as c; sys.stdin.read(); sys.exit(c.main(['--help']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0
