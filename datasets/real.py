"""The papers' real data, from files: no copy comes with the library.

A data set is one ``.npz`` file of plain arrays: ``X`` (n, d) and ``y`` (n,), and where they exist ``feature_names``,
``class_names``, ``train`` (the official training part) and other columns of n rows. Nothing in it is scaled, shuffled
or left out. A folder of such files is a *data home*.
"""

import os
import pathlib
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

__all__ = ["load", "names"]

VARIABLE = "REGBAYES_DATA"


@dataclass(frozen=True)
class Source:
    """Where a data set is found and what its file must hold.

    :param file: the file's name in a data home.
    :param num_features: ``d``.
    :param labels: the file's labels of the classes ``0..L-1``, in their order.
    :param class_names: the classes' names, where the file does not tell.
    :param columns: what else the file may hold for each row.
    :param fetch: gets the file's arrays from the network; None where nobody gives them out.
    :param description: what the data are, and who measured them.
    """

    file: str
    num_features: int
    labels: tuple[int, ...]
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    fetch: Callable[[], dict[str, np.ndarray]] | None = None
    description: str = ""


def _fetch_parkinsons() -> dict[str, np.ndarray]:
    """OpenML's copy: features in the order of the original file, labels "1" and "2", and no speakers."""
    found = fetch_openml(data_id=1488, as_frame=False, parser="liac-arff", cache=False, n_retries=1)
    y = np.asarray(found.target).astype(int) - 1
    if found.data.shape != (195, 22) or np.bincount(y, minlength=2).tolist() != [48, 147]:
        raise ValueError(f"OpenML's data set 1488 is not the one expected, found shape {found.data.shape}")
    return {"X": found.data.astype(np.float32), "y": y.astype(np.int8), "feature_names": np.array(PARKINSONS)}


PARKINSONS = (
    *("MDVP:Fo(Hz)", "MDVP:Fhi(Hz)", "MDVP:Flo(Hz)", "MDVP:Jitter(%)", "MDVP:Jitter(Abs)", "MDVP:RAP", "MDVP:PPQ"),
    *("Jitter:DDP", "MDVP:Shimmer", "MDVP:Shimmer(dB)", "Shimmer:APQ3", "Shimmer:APQ5", "MDVP:APQ", "Shimmer:DDA"),
    *("NHR", "HNR", "RPDE", "DFA", "spread1", "spread2", "D2", "PPE"),
)

SOURCES: dict[str, Source] = {
    "parkinsons": Source(
        file="parkinsons.npz",
        num_features=22,
        labels=(0, 1),
        class_names=("healthy", "Parkinson's disease"),
        columns=("subject", "recording"),
        fetch=_fetch_parkinsons,
        description=(
            "Voice recordings of healthy speakers and of speakers with Parkinson's disease: 195 recordings of 32\n"
            "speakers (`subject`), 22 measures of dysphonia. Little, McSharry, Hunter, Spielman and Ramig,\n"
            "Suitability of dysphonia measurements for telemonitoring of Parkinson's disease, IEEE Transactions on\n"
            "Biomedical Engineering 56 (2009). A speaker has about six recordings: rows of one are not independent."
        ),
    ),
    "protein-fold": Source(
        file="protein_fold_dd.npz",
        num_features=21,
        labels=tuple(range(1, 28)),
        columns=("train", "protein_id"),
        description=(
            "Proteins of 27 folds: the percentage of each of the 20 amino acids, and the length of the sequence, with\n"
            "the official training part (`train`). Ding and Dubchak, Multi-class protein fold recognition using\n"
            "support vector machines and neural networks, Bioinformatics 17 (2001). Public copies hold 694 proteins\n"
            "of the original 698: two are missing from each part."
        ),
    ),
}


def names() -> list[str]:
    """The data sets that :func:`load` knows.

    >>> names()
    ['parkinsons', 'protein-fold']
    """
    return list(SOURCES)


def load(name: str, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """A real data set of the papers.

    Its file is looked for in ``data_home``; without one, in the folder that the environment variable
    ``REGBAYES_DATA`` names, then in the user's cache. Where a public service has the data, they are fetched and kept
    for the next time.

    :param name: a data set, as :func:`names` lists them.
    :param data_home: a folder of data files.
    :return: a ``Bunch`` with ``X`` (n, d) float32, ``y`` (n,) in ``0..L-1``, ``feature_names`` and ``class_names``
        (lists), ``DESCR``, ``path`` (the file), and what the file has for each row: ``train`` (boolean), ``subject``.

    >>> import tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> X, y = np.ones((3, 22)), np.array([0, 1, 1])
    >>> np.savez(folder / "parkinsons.npz", X=X, y=y, subject=np.array([1, 2, 2]))
    >>> data = load("parkinsons", data_home=folder)
    >>> data.X.shape, data.y.tolist(), data.subject.tolist(), data.class_names
    ((3, 22), [0, 1, 1], [1, 2, 2], ['healthy', "Parkinson's disease"])
    """
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}; found {name!r}")
    source, folders = SOURCES[name], _folders(data_home)
    for folder in folders:
        path = folder / source.file
        if path.is_file():
            return _bunch(source, _read(path), path)
    if source.fetch is None:
        raise FileNotFoundError(_advice(name, folders))
    path = folders[-1] / source.file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the retries; the end is told below
            arrays = source.fetch()
    except (OSError, ValueError) as error:  # no network, or not the data
        raise FileNotFoundError(f"{_advice(name, folders)} (Could not be fetched either: {error})") from None
    bunch = _bunch(source, arrays, path)
    _write(path, arrays)
    return bunch


def _folders(data_home: str | os.PathLike[str] | None) -> list[pathlib.Path]:
    """Where to look, in order; what is fetched goes to the last."""
    if data_home is not None:
        return [pathlib.Path(data_home).expanduser()]
    named = os.environ.get(VARIABLE)
    return [*([pathlib.Path(named).expanduser()] if named else []), _cache()]


def _cache() -> pathlib.Path:
    """The user's cache folder of this library, by the platform's convention."""
    default = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local")}
    root = os.environ.get("XDG_CACHE_HOME") or default.get(sys.platform, "~/.cache")
    return pathlib.Path(root).expanduser() / "regbayes"


def _advice(name: str, folders: list[pathlib.Path]) -> str:
    file, places = SOURCES[name].file, " or ".join(map(str, folders))
    return (
        f"the data set {name!r} needs the file {file}, which is not in {places}; put it there, or pass the folder that "
        f"has it as data_home or in the environment variable {VARIABLE}"
    )


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a file, none of them pickled: a pickle could run any code."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} must be a .npz file of plain arrays; found: {error}") from None


def _write(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    """Keep what was fetched; a reader sees the whole file or none."""
    part = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(part, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    except OSError as error:
        warnings.warn(f"could not keep the data for the next time in {path}: {error.strerror}", stacklevel=3)


def _bunch(source: Source, arrays: dict[str, np.ndarray], path: pathlib.Path) -> Bunch:
    """The arrays, checked, with labels from 0."""

    def check(right: bool, key: str, wanted: str, found: object) -> None:
        if not right:
            raise ValueError(f"{path}: {key} must be {wanted}, found {found}; get another copy of the file")

    for key in ("X", "y"):
        check(key in arrays, key, "in the file", f"only {', '.join(arrays) or 'nothing'}")
    X, y = arrays["X"], arrays["y"]
    n, d = len(y) if y.ndim else 0, source.num_features
    check(X.dtype.kind in "fiu", "X", "numbers", X.dtype)
    check(n > 0 and X.shape == (n, d), "X", f"of shape ({n or 'n'}, {d})", X.shape)
    check(bool(np.isfinite(X).all()), "X", "finite", "NaN or infinity")
    check(y.ndim == 1 and y.dtype.kind in "iu", "y", "a vector of integers", f"{y.dtype} of shape {y.shape}")
    stray = sorted(set(y.tolist()) - set(source.labels))
    check(not stray, "y", f"labels from {source.labels[0]} to {source.labels[-1]}", stray[:5])
    columns = {key: arrays[key] for key in source.columns if key in arrays}
    for key, column in columns.items():
        check(column.shape == (n,), key, f"of shape ({n},)", column.shape)
    if "train" in columns:
        check(columns["train"].dtype == bool, "train", "boolean", columns["train"].dtype)
    features = arrays.get("feature_names", np.array([f"x{j}" for j in range(d)])).tolist()
    classes = arrays.get(
        "class_names", np.array(source.class_names or [str(label) for label in source.labels])
    ).tolist()
    check(len(features) == d, "feature_names", f"{d} names", len(features))
    check(len(classes) == len(source.labels), "class_names", f"{len(source.labels)} names", len(classes))
    return Bunch(
        X=X.astype(np.float32),
        y=np.searchsorted(source.labels, y).astype(np.int32),
        feature_names=features,
        class_names=classes,
        **columns,
        DESCR=source.description,
        path=str(path),
    )
