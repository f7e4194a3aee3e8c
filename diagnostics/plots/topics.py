"""Topics: the words they favour, and the documents they make up."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..relabelling import relabel
from .style import SHADES, axes_or_new, colour

MOST_TOPICS = 24


def plot_topics(
    topics: Any, vocabulary: Sequence[str] | None = None, *, num_words: int = 8, which: Sequence[int] | None = None
) -> Figure:
    """The most probable words of each topic, as bars.

    :param topics: draws of a topic model, as :func:`to_datatree` makes them; their topics are renumbered after the last
        draw and averaged. Or a fitted estimator with ``components_``, or probabilities (T, V).
    :param vocabulary: V words; by default their numbers.
    :param num_words: words of each topic.
    :param which: the topics to show, in this order; by default all, those of most tokens first where that is known.
    :return: the figure, one panel per topic.

    **Example**

    >>> from regbayes.diagnostics import plot_topics
    >>> figure = plot_topics([[0.7, 0.2, 0.1], [0.0, 0.1, 0.9]], ["ball", "game", "vote"], num_words=2)
    >>> [text.get_text() for text in figure.axes[1].get_yticklabels()]
    ['vote', 'game']
    """
    phi, order = _topics(topics)
    num_topics, size = phi.shape
    words = [f"word {v}" for v in range(size)] if vocabulary is None else list(map(str, vocabulary))
    if len(words) != size:
        raise ValueError(f"vocabulary must hold {size} words, found {len(words)}")
    shown = list(order[:MOST_TOPICS] if which is None else which)
    if not shown or not all(0 <= t < num_topics for t in shown) or len(shown) > MOST_TOPICS:
        raise ValueError(f"which must name 1 to {MOST_TOPICS} topics in 0..{num_topics - 1}, found {shown}")
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    height = 0.5 + 0.2 * min(num_words, size)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(2.6 * columns, 0.4 + (height + 0.4) * rows),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for ax, topic in zip(axes.flat, shown, strict=False):
        top = np.argsort(-phi[topic], kind="stable")[:num_words]
        ax.barh(np.arange(len(top)), phi[topic, top], color=colour(0), height=0.7)
        ax.set_yticks(np.arange(len(top)), [words[v] for v in top])
        ax.set_ylim(len(top) - 0.5, -0.5)
        ax.set_title(f"topic {topic}", fontsize="medium")
        ax.spines[["right", "top"]].set_visible(False)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=3))
    for ax in axes.flat[len(shown) :]:
        ax.remove()
    figure.supxlabel("probability of the word", fontsize="medium")
    return figure


def plot_documents(
    documents: Any, y: Any = None, *, class_names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Which topics make up which documents, as a map: documents by class and by their largest topic.

    :param documents: draws of a topic model, as :func:`to_datatree` makes them; their topics are renumbered after the
        last draw, shares averaged. Or a fitted estimator with ``shares_``, or shares (D, T).
    :param y: (D,) classes to group by; by default those of the fit, where it has any, or the draws' last clusters.
    :param class_names: their names.
    :param ax: where to draw; by default a new figure.
    :return: the axes.

    **Example**

    >>> from regbayes.diagnostics import plot_documents
    >>> ax = plot_documents([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 0])
    >>> ax.images[0].get_array().shape, [text.get_text() for text in ax.get_yticklabels()]
    ((3, 2), ['class 0', 'class 1'])
    """
    shares, found = _shares(documents)
    y = found if y is None else np.asarray(y)
    groups = np.zeros(len(shares), int) if y is None or np.asarray(y).dtype.kind not in "iu" else np.asarray(y)
    if groups.shape != shares.shape[:1]:
        raise ValueError(f"y must hold {len(shares)} labels, found shape {groups.shape}")
    values, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    names = [f"class {k}" for k in values] if class_names is None else list(class_names)
    if len(names) != len(values):
        raise ValueError(f"class_names must hold {len(values)} names, found {names}")
    # Topics by where they are largest, so that the map is about block diagonal.
    means = np.stack([shares[codes == k].mean(0) for k in range(len(values))])
    topics = np.lexsort((-means.max(0), means.argmax(0)))
    rank = np.argsort(topics)
    leading = shares.argmax(1)
    order = np.lexsort((-shares.max(1), rank[leading], codes))
    ax = axes_or_new(ax, (5.8, 4.6))
    image = ax.imshow(shares[np.ix_(order, topics)], cmap=SHADES, vmin=0, aspect="auto", interpolation="nearest")
    ends = np.cumsum(sizes)
    for border in ends[:-1] - 0.5:
        ax.axhline(border, color="white", linewidth=1)
    if len(values) > 1:
        ax.set_yticks(ends - sizes / 2 - 0.5, names)
        ax.tick_params(axis="y", length=0)
        ax.set_ylabel("documents, by class")
    else:
        ax.set_ylabel("document")
    step = -(-len(topics) // 20)
    ax.set_xticks(np.arange(0, len(topics), step), [str(t) for t in topics[::step]])
    ax.set_xlabel("topic")
    ax.figure.colorbar(image, ax=ax, label="share of the document's words", pad=0.02)
    return ax


def _last_numbering(dt: xr.DataTree) -> xr.DataTree:
    """The draws with topics numbered as in the last one; the whole posterior of all tokens would take too long."""
    if "relabelled_topic" in dt["posterior"].attrs:
        return dt
    last = dt["posterior"]["z"].isel(chain=-1, draw=-1).to_numpy()
    return relabel(dt, "hungarian", dim="topic", reference=last)


def _topics(topics: Any) -> tuple[np.ndarray, np.ndarray]:
    """(T, V) probabilities, and the topics' order."""
    if isinstance(topics, xr.DataTree):
        posterior = _last_numbering(_check_topics(topics))["posterior"]
        phi = posterior["phi"].mean(["chain", "draw"]).transpose("topic", "word").to_numpy()
        counts = np.bincount(posterior["z"].to_numpy().ravel(), minlength=len(phi))
        return phi, np.argsort(-counts, kind="stable")
    phi = np.asarray(getattr(topics, "components_", topics), float)
    if phi.ndim != 2 or not phi.size:
        raise ValueError(f"topics must be probabilities (T, V), a topic model's draws or estimator, found {phi.shape}")
    return phi, np.arange(len(phi))


def _shares(documents: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """(D, T) shares of topics, and classes (D,) where they are known."""
    if not isinstance(documents, xr.DataTree):
        shares = np.asarray(getattr(documents, "shares_", documents), float)
        if shares.ndim != 2 or not shares.size:
            raise ValueError(f"documents must be shares (D, T), draws or an estimator, found shape {shares.shape}")
        return shares, None
    posterior = _last_numbering(_check_topics(documents))["posterior"]
    data = documents["constant_data"].to_dataset()
    owner, num_documents = _owners(data)
    num_topics = posterior.sizes["topic"]
    z = posterior["z"].transpose("chain", "draw", "token").to_numpy().reshape(-1, len(owner))
    counts = np.zeros(num_documents * num_topics)
    for row in z:
        counts += np.bincount(owner * num_topics + row, minlength=len(counts))
    lengths = np.maximum(np.bincount(owner, minlength=num_documents), 1)
    shares = counts.reshape(num_documents, num_topics) / lengths[:, None] / len(z)
    if "y" in data:
        return shares, data["y"].to_numpy()
    clusters = posterior["y"].isel(chain=-1, draw=-1).to_numpy() if "y" in posterior else None
    return shares, clusters


def _owners(data: xr.Dataset) -> tuple[np.ndarray, int]:
    """(N,) the document of each token, in the order of the program's, and their number."""
    if "X_documents" in data:  # a corpus
        return data["X_documents"].to_numpy(), data["X_offsets"].size - 1
    if "X" in data:
        lengths = data["X"].to_numpy().sum(1).astype(int)
    else:  # the parts of a sparse matrix
        pointers = data["X_indptr"].to_numpy()
        lengths = np.add.reduceat(np.append(data["X_data"].to_numpy(), 0), pointers[:-1]).astype(int)
        lengths = np.where(np.diff(pointers) > 0, lengths, 0)
    return np.repeat(np.arange(len(lengths)), lengths), len(lengths)


def _check_topics(dt: xr.DataTree) -> xr.DataTree:
    posterior = dt["posterior"].to_dataset()
    if "phi" not in posterior or posterior["phi"].dims[-2:] != ("topic", "word"):
        raise ValueError(f"dt must hold the draws of a topic model, found sites {list(posterior.data_vars)}")
    return dt
