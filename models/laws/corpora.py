"""What topic models share: documents as tokens, and the laws of topics, assignments and words.

Documents are counts (D, V), dense or SciPy's CSR. The programs see every occurrence of a word, a *token*: a
:class:`Corpus`, made of the counts by :func:`tokens_of`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax, random
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from . import cores as host
from .arguments import NeedsValues, counted, is_concrete
from .gammas import log_gammas

PART = 2**16
"""Tokens that are looked at together where arrays as long as the corpus would take too much memory."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Corpus:
    """Documents as tokens, those of a document together.

    :param words: (N,) the word of each token, in ``0..V-1``.
    :param documents: (N,) the document of each token, in ``0..D-1``, in order.
    :param offsets: (D + 1,) where each document's tokens begin, and N.
    :param num_words: ``V``.
    """

    words: jax.Array
    documents: jax.Array
    offsets: jax.Array
    num_words: int = field(metadata={"static": True})

    @property
    def num_documents(self) -> int:
        """``D``."""
        return self.offsets.shape[-1] - 1

    @property
    def num_tokens(self) -> int:
        """``N``."""
        return self.words.shape[-1]

    @property
    def lengths(self) -> jax.Array:
        """(D,) tokens in each document."""
        return self.offsets[1:] - self.offsets[:-1]

    def counts(self, z: jax.Array, num_topics: int, dtype: Any) -> jax.Array:
        """(D, T) tokens of each document in each topic."""
        return tally(self.documents, z, (self.num_documents, num_topics), dtype)

    def word_counts(self, z: jax.Array, num_topics: int, dtype: Any) -> jax.Array:
        """(T, V) tokens of each word in each topic."""
        return tally(z, self.words, (num_topics, self.num_words), dtype)

    def proportions(self, z: jax.Array, num_topics: int, dtype: Any) -> jax.Array:
        """(D, T) the share of each topic in a document's tokens; zeros for a document without any."""
        return self.counts(z, num_topics, dtype) / jnp.maximum(self.lengths, 1)[:, None].astype(dtype)


def tally(rows: jax.Array | None, columns: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """(R, C) how often each row occurs with each column; without rows all are the first.

    Long arrays are counted by compiled code on the host, or by parts: memory is for the counts alone.
    """
    N = len(columns)
    if N > PART and host.available():
        rows = jnp.zeros(0, jnp.int32) if rows is None else rows
        return host.call(_count, jax.ShapeDtypeStruct(shape, dtype), rows, columns)

    def cells(columns: jax.Array, start: ArrayLike = 0) -> jax.Array:
        return columns if rows is None else lax.dynamic_slice_in_dim(rows, start, len(columns)) * shape[1] + columns

    counts = jnp.zeros(shape[0] * shape[1], dtype)
    if N <= PART:
        return counts.at[cells(columns)].add(1).reshape(shape)

    def add(i: jax.Array, counts: jax.Array) -> jax.Array:
        start = jnp.minimum(i * PART, N - PART)  # the last part begins among the tokens of the one before
        new = start + jnp.arange(PART) >= i * PART
        return counts.at[cells(lax.dynamic_slice_in_dim(columns, start, PART), start)].add(new.astype(dtype))

    return lax.fori_loop(0, -(-N // PART), add, counts).reshape(shape)


@host.compiled(cache=True)
def _count(out, rows, columns):
    out[:] = 0
    if len(rows) == 0:
        for column in columns:
            out[0, column] += 1
    for i in range(len(rows)):
        out[rows[i], columns[i]] += 1


def tokens_of(X: Any, num_tokens: int | None = None) -> Corpus:
    """The tokens of documents given as counts; a :class:`Corpus` is passed on.

    :param X: (D, V) counts, dense or SciPy's CSR. A document may be empty, not all of them.
    :param num_tokens: ``N``, for counts that are traced.

    **Example**

    >>> from regbayes.models import tokens_of
    >>> corpus = tokens_of([[2, 0, 1], [0, 0, 0], [0, 1, 0]])
    >>> corpus.words.tolist(), corpus.documents.tolist(), corpus.offsets.tolist()
    ([0, 0, 2, 1], [0, 0, 0, 2], [0, 3, 3, 4])
    """
    if isinstance(X, Corpus):
        return X
    if not scipy.sparse.issparse(X) and not is_concrete(X):
        return _traced_tokens(X, num_tokens)
    counts = _check_counts(X)
    rows, columns = counts.nonzero() if not scipy.sparse.issparse(counts) else _cells(counts)
    repeats = counts.data if scipy.sparse.issparse(counts) else counts[rows, columns]
    repeats = np.asarray(repeats).astype(np.int64)
    words, documents = (np.repeat(np.asarray(part, np.int32), repeats) for part in (columns, rows))
    lengths = np.bincount(documents, minlength=counts.shape[0])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Corpus(jnp.asarray(words), jnp.asarray(documents), jnp.asarray(offsets), int(counts.shape[1]))


def _cells(counts: scipy.sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)), counts.indices


def _traced_tokens(X: jax.Array, num_tokens: int | None) -> Corpus:
    if jnp.ndim(X) != 2:
        raise ValueError(f"X must have shape (n, d), one row per document, found shape {jnp.shape(X)}")
    if num_tokens is None:
        raise NeedsValues("X is traced, so its tokens cannot be counted; give tokens_of(X) for it")
    D, V = X.shape
    X = jnp.asarray(X).astype(jnp.int32)
    cells = jnp.repeat(jnp.arange(D * V, dtype=jnp.int32), X.ravel(), total_repeat_length=num_tokens)
    offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(X.sum(1), dtype=jnp.int32)])
    return Corpus(cells % V, cells // V, offsets, V)


def _check_counts(X: Any) -> Any:
    """``X`` as non-negative whole numbers (D, V), dense or CSR, with a word in some document."""
    sparse = scipy.sparse.issparse(X)
    try:
        shape = X.shape if sparse else np.shape(X)
    except ValueError:
        raise ValueError("X must be a rectangular array, found rows of different lengths") from None
    if len(shape) != 2:
        raise ValueError(f"X must have shape (n, d), found shape {shape}; one row per document, one column per word")
    if 0 in shape:
        raise ValueError(f"X must have at least one row and one column, found shape {shape}")
    X = X.tocsr() if sparse else np.asarray(X)
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X must be real numbers, found dtype {X.dtype}; convert it first")
    values = X.data if sparse else X
    if not np.isfinite(values).all():
        bad = ~np.isfinite(values)
        where = _where(X, bad)
        raise ValueError(
            f"X must be finite, found {values[bad].flat[0]} at {where} and {bad.sum()} such entries in all"
        )
    bad = (values < 0) | (values != np.floor(values)) if values.dtype.kind != "b" else np.zeros(values.shape, bool)
    if bad.any():
        raise ValueError(f"X must hold counts, 0, 1, 2, ..., found {values[bad].flat[0]} at {_where(X, bad)}")
    total = int(values.sum(dtype=np.float64))
    if total == 0:
        raise ValueError(f"X must have a word in some document, found {shape[0]} documents without any")
    if total >= 2**31:
        raise ValueError(f"X must have fewer than 2^31 tokens, found {total}")
    return X


def _where(X: Any, bad: np.ndarray) -> tuple[int, ...]:
    """The first bad entry's row and column."""
    if not scipy.sparse.issparse(X):
        return tuple(int(index) for index in np.argwhere(bad)[0])
    first = int(np.argmax(bad))
    return int(np.searchsorted(X.indptr, first, side="right")) - 1, int(X.indices[first])


def check_num_topics(num_topics: int) -> None:
    """Refuse a number of topics that is not a whole number of at least 1."""
    if not isinstance(num_topics, int | np.integer) or num_topics < 1:
        raise ValueError(f"num_topics must be a positive integer, found {num_topics!r}")


def check_landmarks(
    landmarks: ArrayLike | None, num_documents: int, num_clusters: int | None
) -> tuple[jax.Array | None, int]:
    """The known labels (D,), -1 where unknown, as integers, and ``K``; every cluster has a landmark, or none has."""
    if num_clusters is not None and (not isinstance(num_clusters, int | np.integer) or num_clusters < 1):
        raise ValueError(f"num_clusters must be a positive integer, found {num_clusters!r}")
    if landmarks is None:
        if num_clusters is None:
            raise ValueError("num_clusters must be given without landmarks, found None")
        return None, num_clusters
    shape = np.shape(landmarks)
    if shape != (num_documents,):
        raise ValueError(f"landmarks must have shape ({num_documents},), one entry per row of X, found shape {shape}")
    if not is_concrete(landmarks):
        if num_clusters is None:
            raise NeedsValues("landmarks are traced, so clusters cannot be counted; give num_clusters")
        return jnp.asarray(landmarks, jnp.int32), num_clusters
    array = np.asarray(landmarks)
    if array.dtype.kind not in "iu":
        raise ValueError(f"landmarks must hold integer labels, -1 for unknown, found dtype {array.dtype}")
    limit = int(array.max()) + 1 if num_clusters is None else num_clusters
    if limit < 1:
        raise ValueError("num_clusters must be given where no landmark is known, found None")
    if array.min() < -1 or array.max() >= limit:
        bad = array[(array < -1) | (array >= limit)][0]
        raise ValueError(f"landmarks must lie in 0..{limit - 1}, or be -1 for unknown, found {bad}")
    missing = np.setdiff1d(np.arange(limit), array)
    if 0 < len(missing) < limit:
        raise ValueError(
            f"landmarks must have a document for every cluster 0..{limit - 1}, found none for {missing[0]}"
        )
    return jnp.asarray(array, jnp.int32), counted("num_clusters", limit)


def floor(dtype: Any) -> float:
    """The least probability that is told from 0: what is smaller is drawn as this, and counted as this."""
    return float(jnp.finfo(dtype).tiny) ** 0.75


def floored(values: jax.Array) -> jax.Array:
    """Probabilities, or Dirichlet parameters made of them, that are told from 0."""
    return jnp.maximum(values, floor(values.dtype))


class FlooredDirichlet(Distribution):
    r"""The Dirichlet with parameters, draws and densities floored at a number that single precision can hold.

    A parameter of 0.01, usual for topics, has a draw below :math:`10^{-29}` every other time: as 0 it would make
    densities infinite. No token tells the difference.

    :param concentration: (..., d), positive.

    **Example**

    >>> import jax.numpy as jnp
    >>> from jax import random
    >>> from regbayes.models import FlooredDirichlet
    >>> draw = FlooredDirichlet(jnp.full((2, 100), 0.001)).sample(random.key(0))
    >>> draw.shape, bool((draw > 0).all())
    ((2, 100), True)
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    pytree_data_fields = ("concentration",)

    def __init__(self, concentration: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.concentration = floored(jnp.asarray(concentration, jnp.result_type(float, concentration)))
        shape = jnp.shape(concentration)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        logs = log_gammas(key, jnp.broadcast_to(self.concentration, self.shape(sample_shape)))
        return floored(jax.nn.softmax(logs, axis=-1))

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        a = self.concentration
        value = floored(jnp.asarray(value, a.dtype))
        constant = gammaln(jnp.sum(a, -1)) - jnp.sum(gammaln(a), -1)
        return constant + jnp.sum((a - 1) * jnp.log(value), -1)


class TokenTopics(Distribution):
    r"""Topics of tokens with the document's proportions integrated out: a Dirichlet-multinomial per document.

    .. math:: p(z) = \prod_d \frac{\Gamma(a_{d\cdot})}{\Gamma(a_{d\cdot} + N_d)}
              \prod_t \frac{\Gamma(a_{dt} + n_{dt})}{\Gamma(a_{dt})}

    :param concentration: ``a``, (D, T) or (T,).
    :param corpus: the documents.

    **Example**

    >>> import jax.numpy as jnp
    >>> from jax import random
    >>> from regbayes.models import TokenTopics, tokens_of
    >>> TokenTopics(jnp.ones(3), tokens_of([[2, 0], [1, 1]])).sample(random.key(0)).shape
    (4,)
    """

    arg_constraints: dict = {}
    pytree_data_fields = ("concentration", "corpus")

    def __init__(self, concentration: ArrayLike, corpus: Corpus, *, validate_args: bool | None = None) -> None:
        self.concentration = floored(jnp.asarray(concentration, jnp.result_type(float, concentration)))
        self.corpus = corpus
        super().__init__((), (corpus.num_tokens,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.integer_interval(0, self.concentration.shape[-1] - 1), 1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        num = int(np.prod(sample_shape, dtype=int))
        z = lax.map(self._sample_one, random.split(key, num))
        return z.reshape(*sample_shape, self.corpus.num_tokens)

    def _sample_one(self, key: jax.Array) -> jax.Array:
        key_theta, key_z = random.split(key)
        T = self.concentration.shape[-1]
        theta = FlooredDirichlet(jnp.broadcast_to(self.concentration, (self.corpus.num_documents, T))).sample(key_theta)
        return _categories(key_z, theta, self.corpus.documents)

    def log_prob(self, value: ArrayLike) -> jax.Array:
        a = self.concentration

        def one(z: jax.Array) -> jax.Array:
            n = self.corpus.counts(z, a.shape[-1], a.dtype)
            total = jnp.broadcast_to(jnp.sum(a, -1), n.shape[:1])
            lengths = self.corpus.lengths.astype(a.dtype)
            used = jnp.where(n > 0, gammaln(a + n) - gammaln(a), 0.0)
            return jnp.sum(used) + jnp.sum(gammaln(total) - gammaln(total + lengths))

        return _each(one, jnp.asarray(value))


class TopicWords(Distribution):
    """The words of tokens given their topics.

    :param phi: (T, V) the topics' probabilities of words.
    :param z: (N,) the tokens' topics.

    **Example**

    >>> import jax.numpy as jnp
    >>> from regbayes.models import TopicWords
    >>> law = TopicWords(jnp.array([[0.5, 0.5], [1.0, 0.0]]), jnp.array([0, 1]))
    >>> round(float(law.log_prob(jnp.array([1, 0]))), 4)
    -0.6931
    """

    arg_constraints: dict = {}
    pytree_data_fields = ("phi", "z")

    def __init__(self, phi: ArrayLike, z: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.phi, self.z = jnp.asarray(phi), jnp.asarray(z)
        super().__init__((), jnp.shape(z)[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.integer_interval(0, self.phi.shape[-1] - 1), 1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        num = int(np.prod(sample_shape, dtype=int))
        words = lax.map(lambda key: _categories(key, self.phi, self.z), random.split(key, num))
        return words.reshape(*sample_shape, *self.event_shape)

    def log_prob(self, value: ArrayLike) -> jax.Array:
        logs = jnp.log(floored(self.phi))
        return _each(lambda words: jnp.sum(tally(self.z, words, logs.shape, logs.dtype) * logs), jnp.asarray(value))


class KnownLabels(Distribution):
    """Labels of which some are known: the others are categorical.

    :param logits: (K,) or (D, K) log probabilities of clusters, up to a constant.
    :param known: (D,) labels in ``0..K-1``, -1 where unknown.

    **Example**

    >>> import jax.numpy as jnp
    >>> from jax import random
    >>> from regbayes.models import KnownLabels
    >>> KnownLabels(jnp.zeros(2), jnp.array([1, -1, 0])).sample(random.key(0))[::2].tolist()
    [1, 0]
    """

    arg_constraints: dict = {}
    pytree_data_fields = ("logits", "known")

    def __init__(self, logits: ArrayLike, known: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.logits, self.known = jnp.asarray(logits), jnp.asarray(known)
        super().__init__((), jnp.shape(known), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.integer_interval(0, self.logits.shape[-1] - 1), 1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        drawn = random.categorical(key, self.logits, shape=self.shape(sample_shape))
        return jnp.where(self.known < 0, drawn, self.known)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        value = jnp.asarray(value)
        logs = jax.nn.log_softmax(self.logits, axis=-1)
        logs = jnp.broadcast_to(logs, (*value.shape, logs.shape[-1]))
        free = jnp.take_along_axis(logs, value[..., None], -1)[..., 0]
        right = jnp.where(value == self.known, 0.0, -jnp.inf)
        return jnp.sum(jnp.where(self.known < 0, free, right), -1)


def _each(fn: Callable[[jax.Array], jax.Array], value: jax.Array) -> jax.Array:
    """(...) a function of vectors at each of the vectors ``value`` (..., N)."""
    return jnp.vectorize(fn, signature="(n)->()")(value)


def _categories(key: jax.Array, probs: jax.Array, rows: jax.Array) -> jax.Array:
    """(N,) a draw from the row of ``probs`` (R, C) that ``rows`` (N,) names: bisection of the running sums."""
    totals = jnp.cumsum(probs, axis=1)
    C = probs.shape[1]
    height = random.uniform(key, rows.shape, probs.dtype) * totals[rows, -1]

    def halve(_: jax.Array, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) // 2
        above = totals[rows, middle] > height
        return jnp.where(above, low, middle + 1), jnp.where(above, middle, high)

    start = jnp.zeros(rows.shape, jnp.int32), jnp.full(rows.shape, C - 1, jnp.int32)
    return lax.fori_loop(0, C.bit_length(), halve, start)[0].clip(0, C - 1)
