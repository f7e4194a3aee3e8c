"""A program's arguments from a file: CSV with a header, or NumPy's npz."""

import csv
import inspect
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from .common import UsageError

KNOWN_LABELS = ("y", "label", "landmarks")


def read(card: Any, path: pathlib.Path, label: str | None, settings: Mapping[str, Any]) -> tuple[tuple, dict[str, str]]:
    """The program's data arguments, and what a fit should remember of the file.

    :param card: the model's card.
    :param path: the file.
    :param label: the column, or columns with commas between them, of a CSV that is the label.
    :param settings: the program's, as far as they are given: they may decide how labels are read.
    """
    if not path.is_file():
        raise UsageError(f"--data: no file {str(path)!r}")
    wanted = [p.name for p in inspect.signature(card.program).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if path.suffix == ".npz":
        if label is not None:
            raise UsageError(f"--label is for CSV files; in {str(path)!r} name the arrays {', '.join(wanted)}")
        return _from_npz(path, wanted), {}
    if path.suffix != ".csv":
        raise UsageError(f"--data must name a file that ends in .csv or .npz, found {str(path)!r}")
    return _from_csv(path, wanted, label, card.labels_of(settings), card.data)


def _from_npz(path: pathlib.Path, wanted: list[str]) -> tuple:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (ValueError, OSError) as error:
        raise UsageError(f"--data: {str(path)!r} is no npz of plain arrays: {error}") from None
    if {"indices", "indptr", "format"} <= set(arrays):  # by scipy.sparse.save_npz
        return (scipy.sparse.load_npz(path).tocsr(),)
    parts = {"X_data", "X_indices", "X_indptr", "X_shape"}
    if parts <= set(arrays):
        data, indices, pointers, shape = (arrays.pop(f"X_{part}") for part in ("data", "indices", "indptr", "shape"))
        arrays["X"] = scipy.sparse.csr_matrix((data, indices, pointers), shape=tuple(shape))
    unknown = [key for key in arrays if key not in wanted]
    if "X" not in arrays or unknown:
        raise UsageError(
            f"--data: {str(path)!r} must hold the arrays {', '.join(wanted)} (X may be sparse, as X_data, X_indices, "
            f"X_indptr and X_shape), found {', '.join(arrays)}"
        )
    return tuple(arrays.get(key) for key in wanted)


def _from_csv(
    path: pathlib.Path, wanted: list[str], label: str | None, kind: str, axes: Mapping[str, tuple[str, ...]]
) -> tuple[tuple, dict[str, str]]:
    with open(path, newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if len(rows) < 2:
        raise UsageError(f"--data: {str(path)!r} must have a header and at least one row, found {len(rows)} lines")
    header, body = [cell.strip() for cell in rows[0]], rows[1:]
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise UsageError(f"--data: row {number} of {str(path)!r} has {len(row)} cells, the header {len(header)}")
    columns = {title: [row[j].strip() for row in body] for j, title in enumerate(header)}
    labels = _label_columns(header, label, path, needed=len(wanted) > 1)
    features = [title for title in header if title not in labels]
    if not features:
        raise UsageError(f"--data: {str(path)!r} has no column besides the label {', '.join(labels)}")
    X = np.stack([_numbers(path, title, columns[title]) for title in features], axis=1)
    notes = {"input_names": json.dumps(features)}
    if len(wanted) == 1 or not labels:
        return (X,), notes
    if len(labels) > 1:
        if len(axes.get(wanted[1], ())) < 2:
            raise UsageError(f"--label must name one column, which is {wanted[1]}; found {label}")
        matrix = np.stack([_numbers(path, title, columns[title]) for title in labels], axis=1)
        return (X, matrix if kind == "numbers" else matrix.astype(int)), notes
    if kind == "numbers":
        return (X, _numbers(path, labels[0], columns[labels[0]])), notes
    y, names = _classes(columns[labels[0]], missing=kind == "landmarks")
    return (X, y), {**notes, "class_names": json.dumps(names)}


def _label_columns(header: list[str], label: str | None, path: pathlib.Path, needed: bool) -> list[str]:
    if label is None:
        found = [title for title in KNOWN_LABELS if title in header][:1]
        if needed and not found:
            raise UsageError(f"--label must name the label's column in {str(path)!r}, found {', '.join(header)}")
        return found
    labels = label.split(",")
    if missing := [title for title in labels if title not in header]:
        raise UsageError(f"--label: no column {', '.join(missing)} in {str(path)!r}, found {', '.join(header)}")
    return labels


def _numbers(path: pathlib.Path, title: str, cells: list[str]) -> np.ndarray:
    try:
        values = np.array([float(cell) for cell in cells])
    except ValueError:
        bad = next(number for number, cell in enumerate(cells, start=2) if not _is_number(cell))
        raise UsageError(
            f"--data: row {bad} of {str(path)!r} has {cells[bad - 2]!r} in the column {title!r}, which must hold "
            "numbers; remove or encode it, or name it with --label"
        ) from None
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _classes(cells: list[str], missing: bool) -> tuple[np.ndarray, list[str]]:
    """Labels 0..L-1 in the order of their names, or numbers; an empty cell is -1 where it may be."""
    kinds = {cell for cell in cells if cell or not missing}
    names = sorted(kinds, key=lambda cell: (0, float(cell), cell) if _is_number(cell) else (1, 0.0, cell))
    places = {cell: k for k, cell in enumerate(names)}
    return np.array([places.get(cell, -1) for cell in cells]), names
