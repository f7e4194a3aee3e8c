"""The table of faults keeps up with the library: ``make faults`` could plant each, and run its tests."""

import ast
import pathlib

import pytest
from planted import FAULTS

ROOT = pathlib.Path(__file__).parents[2]
ROOMS = ("models", "models/laws", "datasets", "diagnostics", "diagnostics/plots", "regbayes", "regbayes/zoo")
ROOMS += ("regbayes/commands", "regbayes/reproduce")
ROOMS += tuple(f"inference/{path.name}" for path in (ROOT / "inference").iterdir() if (path / "__init__.py").is_file())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.why}")
def test_a_fault_can_be_planted(fault):
    text = (ROOT / fault.file).read_text()
    assert text.count(fault.old) == 1
    ast.parse(text.replace(fault.old, fault.new))
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file()
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_faults_are_everywhere():
    """In all rooms, in all models' programs and in all of their kernels."""
    files = {fault.file for fault in FAULTS}
    rooms = {str(pathlib.PurePosixPath(file).parent) for file in files}
    assert not set(ROOMS) - rooms
    for room in ("models", "inference/kernels"):
        sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / room).glob("*.py")}
        assert not {path for path in sources if not path.endswith("__init__.py")} - files
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS) >= 60
