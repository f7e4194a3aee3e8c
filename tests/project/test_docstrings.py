"""Every example in a docstring, and the README's program, runs."""

import doctest
import importlib
import pathlib
import pkgutil
import re

import pytest

import regbayes

PACKAGES = ["regbayes.datasets", "regbayes.diagnostics", "regbayes.inference", "regbayes.models"]
README = pathlib.Path(__file__).parents[2] / "README.md"


def modules():
    names = ["regbayes.zoo"]
    for package in PACKAGES:
        module = importlib.import_module(package)
        names += [info.name for info in pkgutil.walk_packages(module.__path__, f"{package}.")]
    return names


# The pages of the models each draw a chain, as the tests of the zoo do: the first stands for them.
PAGES = [entry.program.__module__ for entry in regbayes.zoo.values()]
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in PAGES[1:] else ()) for name in modules()]


@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    found = [test for name in modules() for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 10


def test_the_readme_s_programs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile("\n".join(programs), "README.md", "exec"), {})
    assert (tmp_path / "svm.nc").exists()
    assert "eta[" in capsys.readouterr().out
    assert regbayes.__version__
