"""Every test that the page of corrections names is there."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_the_tests_that_show_the_corrections_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "errata.md").read_text())
    assert len(named) > 20
    for file, name in named:
        functions = {node.name for node in ast.parse((ROOT / file).read_text()).body if hasattr(node, "name")}
        assert name in functions, f"{file} has no {name}"
