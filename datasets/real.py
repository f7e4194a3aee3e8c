"""The papers' real data, from files: no copy comes with the library.

A data set is one ``.npz`` file of plain arrays: ``X`` (n, d) and ``y`` (n,), or ``Y`` (n, L) for data with several
labels each, and where they exist ``feature_names``, ``class_names`` or ``label_names``, ``train`` (the official
training part) and other columns of n rows. Nothing in it is scaled, shuffled
or left out. A folder of such files is a *data home*.
"""

import gzip
import os
import pathlib
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import fetch_openml, load_iris, load_wine
from sklearn.utils import Bunch

from .corpora import counts, fetch_news

VARIABLE = "REGBAYES_DATA"


@dataclass(frozen=True)
class Source:
    """Where a data set is found and what its file must hold.

    :param file: the file's name in a data home; empty for data that come with scikit-learn.
    :param num_features: ``d``; 0 for any.
    :param labels: the file's labels of the classes ``0..L-1``, in their order; for several labels each, their numbers.
    :param target: "class"; "labels", several of which hold for a row; or "number".
    :param class_names: the classes' names, where the file does not tell.
    :param columns: what else the file may hold for each row, along the last axis.
    :param vocabulary: for counts of words, kept as the arrays of a sparse matrix: the name of the file beside it that
        has the words, one per line, where the file itself does not.
    :param fetch: gets the file's arrays from elsewhere; None where nobody gives them out.
    :param description: what the data are, and who measured them.
    """

    file: str
    num_features: int
    labels: tuple[int, ...]
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    vocabulary: str = ""
    target: str = "class"
    fetch: Callable[[], dict[str, np.ndarray]] | None = None
    description: str = ""


def _fetch_parkinsons() -> dict[str, np.ndarray]:
    """OpenML's copy: features in the order of the original file, labels "1" and "2", and no speakers."""
    found = fetch_openml(data_id=1488, as_frame=False, parser="liac-arff", cache=False, n_retries=1)
    y = np.asarray(found.target).astype(int) - 1
    if found.data.shape != (195, 22) or np.bincount(y, minlength=2).tolist() != [48, 147]:
        raise ValueError(f"OpenML's data set 1488 is not the one expected, found shape {found.data.shape}")
    return {"X": found.data.astype(np.float32), "y": y.astype(np.int8), "feature_names": np.array(PARKINSONS)}


def _openml(
    data_id: int, classes: tuple[str, ...], counts: tuple[int, ...], num_features: int, labels: tuple[int, ...] = ()
) -> Callable[[], dict[str, np.ndarray]]:
    """A copy at OpenML, refused unless its classes have these names, in the order of the labels, and sizes.

    :param num_features: the last so many columns are the features.
    :param labels: the file's labels, by default from 0.
    """

    def fetch() -> dict[str, np.ndarray]:
        found = fetch_openml(data_id=data_id, as_frame=False, parser="liac-arff", cache=False, n_retries=1)
        names = np.asarray(found.target).astype(str)
        sizes = tuple(int(np.sum(names == name)) for name in classes)
        if sizes != counts or len(names) != sum(counts) or found.data.shape[1] < num_features:
            raise ValueError(
                f"OpenML's data set {data_id} is not the one expected, found shape {found.data.shape} and classes of "
                f"sizes {list(sizes)}"
            )
        y = np.argmax(names[:, None] == np.array(classes), axis=1)
        return {
            "X": found.data[:, -num_features:].astype(np.float32),
            "y": (np.array(labels)[y] if labels else y).astype(np.int8),
            "feature_names": np.array(found.feature_names[-num_features:], dtype=str),
            "class_names": np.array(classes),
        }

    return fetch


def _fetch_mnist() -> dict[str, np.ndarray]:
    """OpenML has the 10,000 test images last; pixels are integers."""
    digits = tuple(map(str, range(10)))
    arrays = _openml(554, digits, (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958), 784)()
    return {"X": arrays["X"][-10_000:].astype(np.uint8), "y": arrays["y"][-10_000:]}


def _bundled(loader: Callable[[], Bunch]) -> Callable[[], dict[str, np.ndarray]]:
    """Data that come with scikit-learn."""

    def fetch() -> dict[str, np.ndarray]:
        found = loader()
        names = {"feature_names": np.array(found.feature_names), "class_names": np.array(found.target_names)}
        return {"X": found.data, "y": found.target, **names}

    return fetch


PARKINSONS = (
    *("MDVP:Fo(Hz)", "MDVP:Fhi(Hz)", "MDVP:Flo(Hz)", "MDVP:Jitter(%)", "MDVP:Jitter(Abs)", "MDVP:RAP", "MDVP:PPQ"),
    *("Jitter:DDP", "MDVP:Shimmer", "MDVP:Shimmer(dB)", "Shimmer:APQ3", "Shimmer:APQ5", "MDVP:APQ", "Shimmer:DDA"),
    *("NHR", "HNR", "RPDE", "DFA", "spread1", "spread2", "D2", "PPE"),
)

GLASS = ("build wind float", "build wind non-float", "vehic wind float", "containers", "tableware", "headlamps")
LETTER = (
    *(789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792),
    *(783, 753, 803, 783, 758, 748, 796, 813, 764, 752, 787, 786, 734),
)
SEGMENT = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
VOWEL = ("hid", "hId", "hEd", "hAd", "hYd", "had", "hOd", "hod", "hUd", "hud", "hed")

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
            "of the original 698: two are missing from each part. Where `protein_id` names a domain of a chain, many\n"
            "of them have the sequence of another domain: do not set accuracies beside those of the original."
        ),
    ),
    "glass": Source(
        file="glass.npz",
        num_features=9,
        labels=(1, 2, 3, 5, 6, 7),
        fetch=_openml(41, GLASS, (70, 76, 17, 13, 9, 29), 9, (1, 2, 3, 5, 6, 7)),
        description=(
            "Splinters of glass: refractive index and eight oxides, 214 x 9, six kinds. UCI Glass Identification\n"
            "(German, 1987). Kind 4 of the original seven has no data; the number of the row is not a feature."
        ),
    ),
    "letter": Source(
        file="letter.npz",
        num_features=16,
        labels=tuple(range(26)),
        class_names=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        fetch=_openml(6, tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), LETTER, 16),
        description=(
            "Distorted capital letters in twenty fonts, 20,000 x 16, 26 letters. Frey and Slate, Letter recognition\n"
            "using Holland-style adaptive classifiers, Machine Learning 6 (1991)."
        ),
    ),
    "mnist": Source(
        file="mnist_test10k.npz",
        num_features=784,
        labels=tuple(range(10)),
        fetch=_fetch_mnist,
        description=(
            "The 10,000 test images of the handwritten digits MNIST, 28 x 28 pixels from 0 to 255. LeCun, Bottou,\n"
            "Bengio and Haffner, Gradient-based learning applied to document recognition, Proceedings of the IEEE 86\n"
            "(1998)."
        ),
    ),
    "satimage": Source(
        file="satimage.npz",
        num_features=36,
        labels=tuple(range(1, 8)),
        columns=("train",),
        description=(
            "Landsat images of soils, 3 x 3 pixels in four bands, 6,435 x 36, with the official training part\n"
            "(`train`). UCI Statlog Landsat Satellite (Srinivasan, 1993). The sixth of its seven classes has no data."
        ),
    ),
    "segment": Source(
        file="segment.npz",
        num_features=19,
        labels=tuple(range(7)),
        columns=("train",),
        fetch=_openml(36, SEGMENT, (330,) * 7, 19),
        description=(
            "Patches of seven outdoor images, 2,310 x 19, 330 of each of seven surfaces, with the official training\n"
            "part (`train`) where the copy tells. UCI Image Segmentation (Vision Group, 1990). The third feature is\n"
            "constant."
        ),
    ),
    "vehicle": Source(
        file="vehicle.npz",
        num_features=18,
        labels=tuple(range(4)),
        fetch=_openml(54, ("bus", "opel", "saab", "van"), (218, 212, 217, 199), 18),
        description=(
            "Silhouettes of four vehicles, 846 x 18 measures of shape. UCI Statlog Vehicle Silhouettes (Mowforth and\n"
            "Shepherd, 1987)."
        ),
    ),
    "vowel": Source(
        file="vowel.npz",
        num_features=10,
        labels=tuple(range(11)),
        columns=("train", "speaker", "sex"),
        fetch=_openml(307, VOWEL, (90,) * 11, 10),
        description=(
            "Eleven English vowels by fifteen speakers, 990 x 10 log area ratios. Deterding, Speaker normalisation\n"
            "for automatic speech recognition, PhD thesis, Cambridge (1989). `train`, `speaker` and `sex` where\n"
            "the copy tells."
        ),
    ),
    "seeds": Source(
        file="seeds.npz",
        num_features=7,
        labels=(1, 2, 3),
        fetch=_openml(1499, ("1", "2", "3"), (70,) * 3, 7, (1, 2, 3)),
        description=(
            "Kernels of three varieties of wheat by X-ray, 210 x 7. Charytanowicz, Niewczas, Kulczycki, Kowalski,\n"
            "Lukasik and Zak, Complete gradient clustering algorithm for features analysis of X-ray images (2010)."
        ),
    ),
    **{
        f"s{number}": Source(
            file=f"s{number}.npz",
            num_features=2,
            labels=tuple(range(1, 16)),
            description=(
                f"S-set {number} of four, the later the more overlap: 5,000 points of 15 clusters in the plane.\n"
                "Franti and Virmajoki, Iterative shrinking method for clustering problems, Pattern Recognition 39\n"
                "(2006)."
            ),
        )
        for number in range(1, 5)
    },
    "jain": Source(
        file="jain_halfrings.npz",
        num_features=2,
        labels=(1, 2),
        description=(
            "Two interlocked half-rings of unequal density, 373 points in the plane. Jain and Law, Data clustering: a\n"
            "user's dilemma, Pattern Recognition and Machine Intelligence (2005)."
        ),
    ),
    "20news": Source(
        file="news20_bow.npz",
        num_features=0,
        labels=tuple(range(20)),
        columns=("train", "doc_id"),
        vocabulary="news20_vocab.txt.gz",
        fetch=fetch_news,
        description=(
            "20 Newsgroups by date, counts of 61,188 words in 18,774 messages without their headers, 20 groups, with\n"
            "the official training part. Lang, NewsWeeder: learning to filter netnews, ICML (1995). What scikit-learn\n"
            "fetches has somewhat other words and messages."
        ),
    ),
    "r8": Source(
        file="r8_bow.npz",
        num_features=23585,
        labels=tuple(range(8)),
        columns=("train",),
        vocabulary="r8_vocab.txt.gz",
        description=(
            "Eight classes of Reuters-21578, one each: counts of 23,585 words in 7,674 documents, with the\n"
            "official training part. Cardoso-Cachopo, Improving methods for single-label text categorization, PhD\n"
            "thesis, Lisbon (2007)."
        ),
    ),
    "yeast": Source(
        file="yeast.npz",
        num_features=103,
        labels=tuple(range(14)),
        target="labels",
        columns=("train",),
        description=(
            "Genes of yeast, 2,417 x 103 of micro-array expressions and phylogenetic profiles, 14 functional classes\n"
            "of which a gene has several, with the official training part. Elisseeff and Weston, A kernel method for\n"
            "multi-labelled classification, NIPS (2001)."
        ),
    ),
    "scene": Source(
        file="scene.npz",
        num_features=294,
        labels=tuple(range(6)),
        target="labels",
        columns=("train",),
        description=(
            "Photographs of scenes, 2,407 x 294 colour moments of a grid, six labels of which some have two, with the\n"
            "official training part. Boutell, Luo, Shen and Brown, Learning multi-label scene classification, Pattern\n"
            "Recognition 37 (2004)."
        ),
    ),
    "school": Source(
        file="school.npz",
        num_features=28,
        labels=(),
        target="number",
        columns=("task", "train_splits"),
        description=(
            "Examination scores of 15,362 students of 139 schools (`task`), 27 features of student and school and a\n"
            "constant, with ten splits (`train_splits`). Inner London Education Authority, 1985 to 1987; splits of\n"
            "Argyriou, Evgeniou and Pontil, Multi-task feature learning, NIPS (2007)."
        ),
    ),
    "iris": Source(
        file="",
        num_features=4,
        labels=(0, 1, 2),
        fetch=_bundled(load_iris),
        description="Three species of iris, 150 x 4, from scikit-learn. Fisher, Annals of Eugenics 7 (1936).",
    ),
    "wine": Source(
        file="",
        num_features=13,
        labels=(0, 1, 2),
        fetch=_bundled(load_wine),
        description="Italian wines of three cultivars, 178 x 13, from scikit-learn. UCI Wine (Forina et al., 1988).",
    ),
}


def names() -> list[str]:
    """The data sets that :func:`load` knows.

    >>> names()[:4]
    ['parkinsons', 'protein-fold', 'glass', 'letter']
    """
    return list(SOURCES)


def load(name: str, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """A real data set of the papers.

    Its file is looked for in ``data_home``; without one, in the folder that the environment variable
    ``REGBAYES_DATA`` names, then in the user's cache. Where a public service has the data, they are fetched and kept
    for the next time; iris and wine come with scikit-learn.

    :param name: a data set, as :func:`names` lists them.
    :param data_home: a folder of data files.
    :return: a ``Bunch`` with ``X`` (n, d) float32, for documents counts in SciPy's CSR; ``y`` (n,) in ``0..L-1``,
        (n, L) in {0, 1} for several labels each, or numbers; ``feature_names`` and ``class_names`` (lists), ``DESCR``,
        ``path`` (the file, or "scikit-learn"), and what the file has for each row: ``train`` (boolean), ``subject``,
        ``task``, ``train_splits`` (boolean, with a row for each split).

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
    if not source.file and source.fetch is not None:
        return _bunch(source, source.fetch(), "scikit-learn")
    for folder in folders:
        path = folder / source.file
        if path.is_file():
            return _bunch(source, _with_words(source, _read(path), path), path)
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


def _with_words(source: Source, arrays: dict[str, np.ndarray], path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays, with the words from the file beside where there is one."""
    if not source.vocabulary or "feature_names" in arrays:
        return arrays
    words = path.with_name(source.vocabulary)
    if not words.is_file():
        return arrays
    with gzip.open(words, "rt", encoding="utf-8") as stream:
        return {**arrays, "feature_names": np.array(stream.read().split("\n")[:-1])}


def _bunch(source: Source, arrays: dict[str, np.ndarray], path: pathlib.Path | str) -> Bunch:
    """The arrays, checked, with labels from 0."""

    def check(right: bool, key: str, wanted: str, found: object) -> None:
        if not right:
            raise ValueError(f"{path}: {key} must be {wanted}, found {found}; get another copy of the file")

    if source.vocabulary:
        for key in ("data", "indices", "indptr", "shape"):
            check(key in arrays, key, "in the file", f"only {', '.join(arrays) or 'nothing'}")
        arrays = {**arrays, "X": counts(arrays)}
    target = "Y" if source.target == "labels" else "y"
    for key in ("X", target):
        check(key in arrays, key, "in the file", f"only {', '.join(arrays) or 'nothing'}")
    X, y = arrays["X"], arrays[target]
    n, d = len(y) if y.ndim else 0, source.num_features or X.shape[-1]
    check(X.dtype.kind in "fiu", "X", "numbers", X.dtype)
    check(n > 0 and X.shape == (n, d), "X", f"of shape ({n or 'n'}, {d})", X.shape)
    check(bool(np.isfinite(X.data if source.vocabulary else X).all()), "X", "finite", "NaN or infinity")
    y = _targets(source, y, check)
    columns = {key: arrays[key] for key in source.columns if key in arrays}
    for key, column in columns.items():
        shape = (len(column), n) if key == "train_splits" and column.ndim else (n,)
        check(column.shape == shape, key, f"of shape {shape}", column.shape)
        if key.startswith("train"):
            check(column.dtype == bool, key, "boolean", column.dtype)
    features = arrays.get("feature_names", np.array([f"x{j}" for j in range(d)])).tolist()
    default = np.array(source.class_names or [str(label) for label in source.labels], dtype=str)
    classes = arrays.get("label_names" if source.target == "labels" else "class_names", default).tolist()
    check(len(features) == d, "feature_names", f"{d} names", len(features))
    check(len(classes) == len(source.labels), "class_names", f"{len(source.labels)} names", len(classes))
    return Bunch(
        X=X if source.vocabulary else X.astype(np.float32),
        y=y,
        feature_names=features,
        class_names=classes,
        **columns,
        DESCR=source.description,
        path=str(path),
    )


def _targets(source: Source, y: np.ndarray, check: Callable[[bool, str, str, object], None]) -> np.ndarray:
    """Classes from 0 (n,), labels (n, L) or numbers (n,)."""
    if source.target == "labels":
        shape = (len(y), len(source.labels))
        check(y.shape == shape, "Y", f"of shape {shape}", y.shape)
        check(y.dtype.kind in "biu" and bool(np.isin(y, (0, 1)).all()), "Y", "0 or 1", y.dtype)
        return y.astype(np.int32)
    if source.target == "number":
        check(y.ndim == 1 and y.dtype.kind in "fiu", "y", "a vector of numbers", f"{y.dtype} of shape {y.shape}")
        check(bool(np.isfinite(y).all()), "y", "finite", "NaN or infinity")
        return y.astype(np.float32)
    check(y.ndim == 1 and y.dtype.kind in "iu", "y", "a vector of integers", f"{y.dtype} of shape {y.shape}")
    stray = sorted(set(y.tolist()) - set(source.labels))
    check(not stray, "y", f"labels from {source.labels[0]} to {source.labels[-1]}", stray[:5])
    return np.searchsorted(source.labels, y).astype(np.int32)
