"""Labelled corpora drawn from the topic models themselves, and the sparse matrices of real ones."""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import CountVectorizer


def counts(arrays: dict[str, np.ndarray]) -> scipy.sparse.csr_matrix:
    """The sparse matrix whose arrays a file holds, as 32-bit integers.

    >>> data, indices, indptr = np.array([3], np.uint16), np.array([1]), np.array([0, 0, 1])
    >>> counts({"data": data, "indices": indices, "indptr": indptr, "shape": np.array([2, 2])}).toarray().tolist()
    [[0, 0], [0, 3]]
    """
    parts = (arrays["data"].astype(np.int32), arrays["indices"], arrays["indptr"])
    return scipy.sparse.csr_matrix(parts, shape=tuple(int(size) for size in arrays["shape"]))


def fetch_news() -> dict[str, np.ndarray]:
    """20 Newsgroups through scikit-learn: words of two letters or more that occur twice, without headers."""
    parts = [fetch_20newsgroups(subset=subset, shuffle=False, remove=("headers",)) for subset in ("train", "test")]
    X = CountVectorizer(token_pattern=r"[a-zA-Z]{2,}").fit(text := [*parts[0].data, *parts[1].data])
    matrix, words = X.transform(text).tocsr(), X.get_feature_names_out()
    often = np.asarray(matrix.sum(0)).ravel() >= 2
    matrix = matrix[:, often].tocsr()
    rows = np.flatnonzero(np.diff(matrix.indptr) >= 2)
    matrix, y = matrix[rows], np.concatenate([part.target for part in parts])[rows]
    return {
        "data": matrix.data.astype(np.uint16),
        "indices": matrix.indices.astype(np.int32),
        "indptr": matrix.indptr.astype(np.int32),
        "shape": np.array(matrix.shape),
        "y": y.astype(np.int8),
        "train": rows < len(parts[0].data),
        "class_names": np.array(parts[0].target_names),
        "feature_names": words[often].astype(str),
    }


class CorpusTruth(NamedTuple):
    """What a corpus was drawn with.

    - **topics** - (T, V) the topics' probabilities of words.
    - **proportions** - (L, T) the classes' proportions of topics.
    - **shares** - (D, T) the documents' own shares of topics in their words.
    """

    topics: np.ndarray
    proportions: np.ndarray
    shares: np.ndarray


def make_corpus(
    num_documents: int = 200,
    num_words: int = 100,
    num_topics: int = 5,
    num_classes: int = 3,
    *,
    length: int = 50,
    alpha: float = 10.0,
    alpha_1: float = 2.0,
    beta: float = 0.1,
    task: str = "classification",
    noise: float = 0.1,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, CorpusTruth]:
    """Documents of a cluster-based topic model, with their classes or with a response to their topics.

    Topics are ``Dir(beta)``, classes' proportions ``Dir(alpha_1/T)``, documents' ``Dir(alpha times their class's)``.

    :param num_documents: ``D``.
    :param num_words: ``V``.
    :param num_topics: ``T``.
    :param num_classes: ``L``; they take turns.
    :param length: words in every document.
    :param alpha: how closely documents follow their class.
    :param alpha_1: small for classes of few topics.
    :param beta: small for topics of few words.
    :param task: "classification", or "regression": the response is linear in a document's shares of topics.
    :param noise: standard deviation of the response about that.
    :param seed: seed of the generator.
    :return: ``X`` (D, V) counts, ``y`` (D,) classes or responses, and the truth.

    >>> X, y, truth = make_corpus(30, 40, num_topics=4)
    >>> X.shape, int(X[0].sum()), sorted(set(y.tolist())), truth.topics.shape
    ((30, 40), 50, [0, 1, 2], (4, 40))
    """
    if task not in ("classification", "regression"):
        raise ValueError(f'task must be "classification" or "regression", found {task!r}')
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(num_words, beta), size=num_topics)
    proportions = rng.dirichlet(np.full(num_topics, alpha_1 / num_topics), size=num_classes)
    y = np.arange(num_documents) % num_classes
    theta = np.stack([rng.dirichlet(alpha * proportions[k] + 1e-9) for k in y])
    shares = np.stack([rng.multinomial(length, row) for row in theta])
    X = np.stack([sum(rng.multinomial(n, topic) for n, topic in zip(row, topics, strict=True)) for row in shares])
    x = shares / length
    truth = CorpusTruth(topics, proportions, x)
    if task == "classification":
        return X.astype(np.int32), y.astype(np.int32), truth
    response = x @ rng.normal(size=num_topics) + noise * rng.normal(size=num_documents)
    return X.astype(np.int32), response.astype(np.float32), truth
