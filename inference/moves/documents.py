"""Documents in clusters: moves of their labels, topics and the clusters' proportions, and predictions.

Topics and proportions are sites, which leaves documents independent given them; clusters' proportions are drawn by the
tables of the Chinese restaurant franchise, exactly. What documents pay for their cluster is a model's own.
"""

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution
from numpyro.infer.gibbs import GIBBS_SITES_KWARG

from ...models import Corpus, FlooredDirichlet, KnownLabels, tokens_of
from ...models.laws import cores as on_cores
from ...models.laws.corpora import check_landmarks, floored
from ..engine.move import Conditional, Move, difference
from ..engine.target import Sites, Target
from ..host import token_sweeps
from .given import given
from .labels import counts_of
from .tokens import Probabilities, Tokens, TokenSweep, TopicKernel, impute_tokens, no_margin, phi_given_z

SMOOTHING = 0.1
"""Occurrences of every word that landmarks are given, to begin with."""


class Documents(NamedTuple):
    """The program to the conditionals of labels and of clusters' proportions."""

    corpus: Corpus
    landmarks: Any
    num_clusters: int
    omega: jax.Array
    alpha_0: jax.Array
    alpha_1: jax.Array
    alpha: jax.Array


def documents(z: Sites, X, landmarks, **settings) -> Documents:
    """From the program's call."""
    s, corpus = SimpleNamespace(**settings), tokens_of(X)
    values = (jnp.asarray(value, jnp.result_type(float)) for value in (s.omega, s.alpha_0, s.alpha_1, s.alpha))
    return Documents(corpus, landmarks, check_landmarks(landmarks, corpus.num_documents, s.num_clusters)[1], *values)


def plain_tokens(z: Sites, X, landmarks, *, num_topics, alpha, **_) -> Tokens:
    """The program to the sweep over tokens: a document's proportions follow its cluster's; nobody pays."""
    corpus, dtype = tokens_of(X), z["mu"].dtype
    base, group = floored(alpha * z["mu"]), z["y"].astype(jnp.int32)
    return Tokens(corpus, z["phi"], base, group, no_margin(corpus, num_topics, dtype))


@given(documents)
def gamma_given_y(z: Sites, program: Documents) -> Distribution:
    """``gamma ~ Dir(omega + D_k)``, ``D_k`` the documents in cluster ``k``."""
    return FlooredDirichlet(program.omega + counts_of(z["y"], program.num_clusters).astype(program.omega.dtype))


def label_logits(z: Sites, program: Documents) -> jax.Array:
    """(D, K) log probabilities of the documents' clusters given their tokens' topics, up to a constant for each.

    ``gamma_k prod_t Gamma(alpha mu_kt + n_it)/Gamma(alpha mu_kt)``: theta integrated out, all documents at once.
    """
    corpus, alpha, mu = program.corpus, program.alpha, z["mu"]
    n, a = corpus.counts(z["z"], mu.shape[1], mu.dtype), floored(alpha * mu)

    def of_cluster(a: jax.Array) -> jax.Array:
        ratio = jnp.where(n > 0, gammaln(a + n) - gammaln(a), 0.0)
        total = jnp.sum(a)
        return jnp.sum(ratio, axis=1) + gammaln(total) - gammaln(total + corpus.lengths.astype(a.dtype))

    return jnp.log(z["gamma"]) + lax.map(of_cluster, a).T


def known_or(landmarks: Any, logits: jax.Array) -> KnownLabels:
    """The landmark's label where there is one, else a label by its log probability."""
    return KnownLabels(logits, jnp.full(len(logits), -1) if landmarks is None else landmarks)


def draw_tables(
    key: jax.Array,
    n: jax.Array,
    base: jax.Array,
    group: jax.Array,
    most: int,
    host: bool,
    uniforms: jax.Array | None = None,
) -> jax.Array:
    """Tables of Chinese restaurants with ``n`` customers and concentration ``a``: ``sum_{i<n} Bernoulli(a/(a + i))``.

    :param n: (R, T) counts, in the numbers' own type.
    :param base: (G, T) concentrations, by group.
    :param group: (R,) the rows' groups.
    :param most: at least the sum of ``n``.
    :param host: as for :func:`~regbayes.inference.moves.tokens.sweep_tokens`.
    :param uniforms: (most,), one for each customer in turn.
    """
    if host:
        uniforms = jnp.zeros(0, n.dtype) if uniforms is None else uniforms
        result = jax.ShapeDtypeStruct(n.shape, n.dtype)
        return on_cores.call(token_sweeps.tables, result, n, base, group, on_cores.seed_of(key), uniforms)
    sizes, a = jnp.ravel(n).astype(jnp.int32), jnp.ravel(base[group])
    customer, ends = jnp.arange(most, dtype=jnp.int32), jnp.cumsum(sizes)
    table = jnp.repeat(jnp.arange(len(sizes), dtype=jnp.int32), sizes, total_repeat_length=most)
    before, mass = (customer - (ends - sizes)[table]).astype(a.dtype), a[table]
    uniforms = random.uniform(key, (most,), a.dtype) if uniforms is None else uniforms
    opens = (uniforms * (mass + before) < mass) & (customer < ends[-1])
    return jnp.zeros(len(sizes), a.dtype).at[table].add(opens).reshape(n.shape)


def log_tables(m: jax.Array, n: jax.Array, a: jax.Array) -> jax.Array:
    """Log probability of ``m`` tables, ``a^m Gamma(a)/Gamma(a + n)`` up to a Stirling number of ``n`` and ``m``."""
    return jnp.sum(m * jnp.log(a) + gammaln(a) - gammaln(a + n))


class ClusterProportions(Move):
    """Redraw ``mu_0`` and all ``mu_k`` together.

    Documents' tables ``m_it ~ CRT(n_it, alpha mu_kt)`` are multinomial draws of ``mu_k``; with ``mu_k`` integrated out
    their sums ``M_kt`` have tables ``r_kt ~ CRT(M_kt, alpha_1 mu_0t)``, multinomial draws of ``mu_0``. So
    ``mu_0 ~ Dir(alpha_0/T + r_.t)``, ``mu_k ~ Dir(alpha_1 mu_0 + M_k)``, and the tables are forgotten.

    :param host: see :class:`~regbayes.inference.TokenSweep`.
    """

    num_keys = 4

    def __init__(self, host: bool | None = None) -> None:
        super().__init__(("mu0", "mu"))
        self._host = host

    def start(self, key, z, tuning):
        return {site: jnp.full_like(z[site], 1 / z[site].shape[-1]) for site in self.sites}

    def _laws(self, M: jax.Array, r: jax.Array, program: Documents) -> tuple[Distribution, Callable]:
        base = FlooredDirichlet(program.alpha_0 / M.shape[1] + jnp.sum(r, axis=0))
        return base, lambda mu0: FlooredDirichlet(program.alpha_1 * mu0 + M).to_event(1)

    def _tables(self, keys: jax.Array, z: Sites, program: Documents) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Documents' counts by cluster (D, T), their tables by cluster (K, T), and those tables' tables (K, T)."""
        corpus, alpha_1, alpha = program.corpus, program.alpha_1, program.alpha
        mu0, mu, y = z["mu0"], z["mu"], z["y"]
        n = corpus.counts(z["z"], mu.shape[1], mu.dtype)
        most, host = corpus.num_tokens, on_cores.wanted(self._host)
        m = draw_tables(keys[0], n, floored(alpha * mu), y, most, host)
        M = jnp.zeros_like(mu).at[y].add(m)
        return n, M, draw_tables(keys[1], M, floored(alpha_1 * mu0)[None], jnp.zeros(len(mu), int), most, host)

    def step(self, keys, z, log_joint, target, tuning):
        sites = {**target.given, **z}
        program = target.call(documents, sites)
        _, M, r = self._tables(keys[:2], sites, program)
        base, cluster = self._laws(M, r, program)
        mu0 = base.sample(keys[2])
        return {**z, "mu0": mu0, "mu": cluster(mu0).sample(keys[3])}, None

    def discrepancies(self, key, z, target, tuning):
        """As for a conditional, the program times the tables' law."""
        keys = random.split(key, 4)
        sites = {**target.given, **z}
        program = target.call(documents, sites)
        n, M, r = self._tables(keys[:2], sites, program)
        base, cluster = self._laws(M, r, program)
        mu0 = base.sample(keys[2])
        other = {**sites, "mu0": mu0, "mu": cluster(mu0).sample(keys[3])}

        def claimed(z: Sites) -> jax.Array:
            return base.log_prob(z["mu0"]) + cluster(z["mu0"]).log_prob(z["mu"])

        def actual(z: Sites) -> jax.Array:
            a = floored(program.alpha * z["mu"])
            # The documents' tables only matter by their sums in clusters.
            first = jnp.sum(M * jnp.log(a)) + log_tables(jnp.zeros(()), n, a[z["y"]])
            second = log_tables(r, M, jnp.broadcast_to(floored(program.alpha_1 * z["mu0"]), M.shape))
            return target.log_joint({site: z[site] for site in own}) + first + second

        own = list(z)
        return claimed(sites) - claimed(other), difference(actual, sites, other)


class RedrawDocuments(Move):
    r"""Propose a new label and new topics of all tokens for every document, together.

    Topics follow the label and the label follows topics: one after the other, neither gets far. The label is proposed
    by the words' probabilities under the clusters' own proportions,

    .. math:: q(y_i = k) \propto \gamma_k \prod_l \Big(\sum_t \mu_{kt} \phi_{t w_{il}}\Big)^{r_i},
              \qquad r_i = \frac{1 + \alpha}{N_i + \alpha},

    flattened as a document's proportions stray from its cluster's; then topics, each given those before it. The new
    state does not depend on the old one, whose weight under the same proposal decides.

    :param tokens: as for :class:`~regbayes.inference.TokenSweep`.
    :param penalty: ``(z, *args, **kwargs) -> (D, K)``, what labels pay for a margin, in logs.
    :param host: see :class:`~regbayes.inference.TokenSweep`.
    """

    num_keys = 4

    def __init__(
        self, tokens: Callable[..., Tokens], penalty: Callable[..., jax.Array] | None = None, host: bool | None = None
    ) -> None:
        super().__init__(
            ("y", "z"), covered_by="tests/inference/kernels/test_topics.py::test_documents_redrawn_by_enumeration"
        )
        self.tokens, self.penalty, self._host = tokens, penalty, host

    def step(self, keys, z, log_joint, target, tuning):
        old = {**target.given, **z}
        host = on_cores.wanted(self._host)
        tokens, landmarks = target.call(self.tokens, old), target.call(documents, old).landmarks
        logits = self._proposal(old, tokens, host)
        new = {**old, "y": known_or(landmarks, logits).sample(keys[0]).astype(z["y"].dtype)}
        other = tokens._replace(group=new["y"].astype(jnp.int32))
        new["z"], weight = impute_tokens(keys[1], other, None, host)
        _, before = impute_tokens(keys[2], tokens, z["z"], host)
        ratio = weight - before + self._label(new, logits, target) - self._label(old, logits, target)
        accept = jnp.log(random.uniform(keys[3], ratio.shape, ratio.dtype)) < ratio
        topics = jnp.where(accept[tokens.corpus.documents], new["z"].astype(z["z"].dtype), z["z"])
        return {**z, "y": jnp.where(accept, new["y"], z["y"]), "z": topics}, None

    def _proposal(self, z: Sites, tokens: Tokens, host: bool) -> jax.Array:
        """(D, K) log probabilities of labels, up to a constant for each document."""
        corpus, base = tokens.corpus, tokens.base
        alpha = jnp.sum(base, axis=1)
        logs = jnp.log((base / alpha[:, None]) @ floored(z["phi"]))
        rate = (1 + alpha) / (corpus.lengths.astype(base.dtype)[:, None] + alpha)
        return jnp.log(z["gamma"]) + rate * sum_words(corpus, logs, host)

    def _label(self, z: Sites, logits: jax.Array, target) -> jax.Array:
        """(D,) the label's log probability in the program, and what it pays, less that of the proposal."""
        terms = jnp.log(z["gamma"]) - logits
        if self.penalty is not None:
            terms = terms - target.call(self.penalty, z)
        return jnp.take_along_axis(terms, z["y"][:, None], axis=1)[:, 0]


def from_landmarks(key: jax.Array, z: Sites, X, landmarks, **_) -> Sites:
    """Labels by the landmarks' words, and tokens in topics that start as one cluster's: topic ``t`` is of ``t mod K``.

    A document begins in the cluster whose rivals' landmarks, together, explain its words least: a cluster's own are
    few, and their words are noise (complement naive Bayes; Rennie and others, 2003). From labels at random, clusters
    form among the other documents, and landmarks of several share one: a mode that a chain does not leave.
    """
    corpus, (K, T), dtype = tokens_of(X), z["mu"].shape, z["mu"].dtype
    y = z["y"]
    if landmarks is not None:
        known = jnp.asarray(landmarks)
        label = known[corpus.documents]
        counts = jnp.zeros((K, corpus.num_words), dtype).at[jnp.maximum(label, 0), corpus.words].add(label >= 0)
        others = jnp.sum(counts, axis=0) - counts + SMOOTHING
        logs = jnp.log(others) - jnp.log(jnp.sum(others, axis=1, keepdims=True))
        nearest = jnp.where(jnp.any(known >= 0), jnp.argmin(sum_words(corpus, logs, on_cores.available()), axis=1), y)
        y = jnp.where(known >= 0, known, nearest).astype(y.dtype)
    own = jnp.maximum((T - y + K - 1) // K, 1)  # topics of the document's cluster
    u = random.uniform(key, z["z"].shape, dtype)
    topic = y[corpus.documents] + K * jnp.floor(u * own[corpus.documents]).astype(y.dtype)
    return {"y": y, "z": (topic % T).astype(z["z"].dtype)}


def sum_words(corpus: Corpus, rows: jax.Array, host: bool) -> jax.Array:
    """(D, K) sums over documents' tokens of what ``rows`` (K, V) give their words."""
    if host:
        result = jax.ShapeDtypeStruct((corpus.num_documents, len(rows)), rows.dtype)
        return on_cores.call(token_sweeps.sums, result, corpus.words, corpus.offsets, rows.T)
    zeros = jnp.zeros(corpus.num_documents, rows.dtype)
    return lax.map(lambda row: zeros.at[corpus.documents].add(row[corpus.words]), rows).T


def num_clusters_used(z: Sites) -> jax.Array:
    """Clusters that hold a document."""
    return jnp.sum(counts_of(z["y"], z["gamma"].shape[0]) > 0)


class ClusterPrediction(NamedTuple):
    """What draws say of new documents.

    - **y** - (n,) the most probable clusters.
    - **probabilities** - (n, K) of the clusters, averaged over draws.
    - **proportions** - (n, T) the shares of topics, averaged over draws.
    """

    y: jax.Array
    probabilities: jax.Array
    proportions: jax.Array


class DocumentProgram(NamedTuple):
    """A model of documents in clusters, to what redraws labels and topics given what all documents share.

    - **model** - the NumPyro program.
    - **tokens** - as for :class:`~regbayes.inference.TokenSweep`.
    - **y_given_z** - the conditional of labels.
    - **penalty** - as for :class:`RedrawDocuments`.
    """

    model: Callable
    tokens: Callable[..., Tokens]
    y_given_z: Callable[..., KnownLabels]
    penalty: Callable[..., jax.Array] | None = None

    def kernel(self, model: Callable, weights: list[Move], host: bool | None, **options: Any) -> TopicKernel:
        """The kernel, with moves of weights if there are any."""
        shared = [Probabilities("phi", phi_given_z), ClusterProportions(host), Probabilities("gamma", gamma_given_y)]
        moves = [*shared, *weights, *self.moves(host)]
        return TopicKernel(model, moves, num_active=num_clusters_used, begin=from_landmarks, **options)

    def moves(self, host: bool | None) -> list[Move]:
        """Of labels and topics."""
        redraw = RedrawDocuments(self.tokens, self.penalty, host)
        return [redraw, Conditional("y", self.y_given_z), TokenSweep(self.tokens, host)]

    def predict(
        self, draws: Sites, corpus: Corpus, settings: dict, *, num_sweeps: int, seed: int, host: bool | None
    ) -> ClusterPrediction:
        """Sweeps over labels and topics of new documents, the program's other sites given by each draw."""
        (S, K, T), dtype = draws["mu"].shape, draws["mu"].dtype
        signature, settings = inspect.signature(self.model), {**settings, "num_clusters": K, "num_topics": T}
        moves = self.moves(host)

        def visit(corpus: Corpus, carry: tuple, step: tuple) -> tuple:
            (z, sums), (key, draw) = carry, step
            target = Target(self.model, signature, (corpus, None), {**settings, GIBBS_SITES_KWARG: draw})
            keys = random.split(key, (num_sweeps, len(moves)))

            def sweep(i: jax.Array, z: Sites) -> Sites:
                for move, key in zip(moves, keys[i], strict=True):
                    z = move.step(random.split(key, move.num_keys), z, None, target, {})[0]
                return z

            z = lax.fori_loop(0, num_sweeps, sweep, z)
            law = target.call(self.y_given_z, {**draw, **z})
            found = jax.nn.softmax(law.logits, axis=1), corpus.proportions(z["z"], T, dtype)
            return (z, jax.tree.map(jnp.add, sums, found)), None

        def run(key: jax.Array, draws: Sites, corpus: Corpus) -> tuple[jax.Array, jax.Array]:
            key_z, key_y, key = random.split(key, 3)
            D = corpus.num_documents
            z = {
                "y": random.randint(key_y, (D,), 0, K, jnp.int32),
                "z": random.randint(key_z, (corpus.num_tokens,), 0, T, jnp.int32),
            }
            sums = jnp.zeros((D, K), dtype), jnp.zeros((D, T), dtype)
            return lax.scan(functools.partial(visit, corpus), (z, sums), (random.split(key, S), draws))[0][1]

        probabilities, shares = (total / S for total in jax.jit(run)(random.key(seed), draws, corpus))
        return ClusterPrediction(jnp.argmax(probabilities, axis=1), probabilities, shares)
