"""What races keep, and the page of them."""

import argparse
import importlib.util
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def races():
    spec = importlib.util.spec_from_file_location("races", ROOT / "benchmarks" / "races.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VALUES = {"ours": [1.0, 2.0, 3.0], "peer": [2.0, 2.0, 4.0]}


def test_ratios_are_taken_round_by_round(races):
    found = races.race("ours", "peer", VALUES, "seconds", most=0.8)
    assert found["ratio"] == {"median": 0.75, "least": 0.5, "largest": 1.0}
    assert (found["bar"], found["met"]) == ("at most 0.8", True)
    assert not races.race("ours", "peer", VALUES, "draws", least=1.0)["met"]
    assert "met" not in races.race("ours", "peer", VALUES, "seconds")
    assert races.figure("slope", 1.2, most=1.1)["met"] is False


def test_a_file_keeps_the_races_of_other_sections(races, tmp_path):
    args = argparse.Namespace(out=str(tmp_path), rounds=3)
    races.keep("svm.py", [races.race("ours", "peer", VALUES, "seconds", data="a")], args, first=1)
    races.keep("svm.py", [races.figure("slope", 1.2, most=1.1)], args, second=2)
    races.keep("svm.py", [races.race("ours", "peer", VALUES, "seconds", data="a", most=0.5)], args)
    record = json.loads((tmp_path / "svm.json").read_text())
    assert record["details"] == {"first": 1, "second": 2}
    assert record["settings"] == {"rounds": 3}
    slope, race = record["races"]
    assert slope["figure"] == "slope"
    assert race["met"] is False
    page = races.page(tmp_path)
    assert "| ours | peer | a | seconds | 2 | 2 | 0.75 (0.5 to 1) | at most 0.5 | **missed** |" in page
    assert "| slope |  | 1.2 | at most 1.1 | **missed** |" in page
    assert "Race the support vector machine's kernels against NUTS" in page


def test_the_page_is_made_of_the_files(races):
    folder = ROOT / "docs" / "benchmarks"
    assert races.page(folder) == (ROOT / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize("script", sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py")))
def test_scripts_tell_how_they_are_called(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    path = ROOT / "benchmarks" / f"{script}.py"
    with pytest.raises(SystemExit) as stop:
        exec(compile(path.read_text(), path, "exec"), {"__name__": "__main__", "__file__": str(path)})
    assert stop.value.code == 0
    assert "--out" in capsys.readouterr().out
