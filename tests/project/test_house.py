"""The rooms of the house: which may import which, read off the sources."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("models", "inference", "diagnostics", "datasets", "regbayes")

FRONT_DOOR = ("regbayes",)
BESIDE = ("inference.limits", "inference.mean_field", "inference.sampled")
ABOVE = {
    "models": ("inference", "diagnostics", "datasets", *FRONT_DOOR),
    "datasets": ("models", "inference", "diagnostics", *FRONT_DOOR),
    "inference": ("diagnostics", *FRONT_DOOR),
    "inference.engine": ("inference.moves", "inference.kernels", *BESIDE),
    "inference.moves": ("inference.kernels", *BESIDE),
    "inference.kernels": BESIDE,
    "diagnostics": FRONT_DOOR,
}
"""What each room may not import: a folder with all that is in it."""


def files(room):
    return sorted((ROOT / room.replace(".", "/")).rglob("*.py"))


def within(name, room):
    return name == room or name.startswith(room + ".")


def address(path):
    """A module's address in the house, as ``inference.moves.labels``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def placed(name):
    """The address of what is imported as ``regbayes...``; None for the version, and for other packages."""
    package, _, rest = name.partition(".")
    if package != "regbayes" or rest == "__version__":
        return None
    return rest if rest.split(".")[0] in FOLDERS[:-1] else name


def imports(path):
    """Addresses of all that a file imports of the house, wherever in the file."""
    here = address(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    package = package if package[0] == "regbayes" else ["regbayes", *package]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (place for place in map(placed, names) if place)


def test_the_reader_finds_imports():
    found = set(imports(ROOT / "inference" / "kernels" / "svm.py"))
    assert {"models.svm", "models.laws.arguments.check_features", "inference.engine.move.Augmented"} <= found
    assert "diagnostics.conformance.conformance" in set(imports(ROOT / "diagnostics" / "__init__.py"))
    assert any(within(name, "regbayes") for name in imports(ROOT / "regbayes" / "cli.py"))


@pytest.mark.parametrize("room", ABOVE)
def test_dependencies_go_one_way(room):
    wrong = [
        f"{address(path)} imports {name}"
        for path in files(room)
        for name in imports(path)
        for above in ABOVE[room]
        if within(name, above)
    ]
    assert not wrong


def test_kernels_stand_alone():
    siblings = [
        f"{address(path)} imports {name}"
        for path in files("inference.kernels")
        for name in imports(path)
        if within(name, "inference.kernels")
    ]
    assert not siblings


def test_each_room_says_what_belongs_in_it():
    inits = [path for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py")]
    said = {address(path): ast.get_docstring(ast.parse(path.read_text())) or "" for path in inits}
    assert not [room for room, text in said.items() if not text]
    rooms = [room for room in said if within(room, "inference") and room != "inference"] + ["models.laws"]
    assert not [room for room in rooms if len(said[room].splitlines()) > 6]
