"""The teaching notebooks run from the first cell to the last, and warn of nothing."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def complaints(cells):
    """What the cells wrote to the standard error, warnings among it."""
    outputs = [output for cell in cells for output in cell["outputs"]]
    return ["".join(output["text"]) for output in outputs if output.get("name") == "stderr"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """With fewer draws, but every cell."""
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", tmp_path, path]
    run = subprocess.run(command, env={**os.environ, "REGBAYES_FAST": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-4000:]
    cells = code_cells(tmp_path / path.name)
    assert all(cell["execution_count"] for cell in cells)
    assert complaints(cells) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs(path):
    """Of one run, in order."""
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert complaints(cells) == []
    pictures = [output for cell in cells for output in cell["outputs"] if "image/png" in output.get("data", {})]
    assert pictures
    text = path.read_text()
    assert "What you will learn" in text
    assert "<summary>Solution</summary>" in text
