r"""Moves that topic models share: tokens' topics, topics, clusters' proportions, and weights under a margin.

Documents are independent given topics, clusters and weights, so all are swept at once, each token after token:

.. math:: p(z_{dl} = t \mid \cdot) \propto (n_{dt}^{-l} + a_{dt})\,\phi_{t, w_{dl}}\,\exp\{-2c\,\mathrm{loss}_d(t)\}.

A candidate topic shifts the document's scores by ``eta[:, t]/N_d``: the loss itself is there, no augmentation.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.distributions import Distribution

from ...models import Corpus, FlooredDirichlet, HingeOmega, InformationNormal, tokens_of
from ...models.laws import cores as on_cores
from ...models.laws.arguments import is_concrete
from ...models.laws.cores import seed_of
from ...models.laws.corpora import PART, floored, tally
from ..engine.kernel import KernelState, MoveKernel
from ..engine.move import Augmented, Conditional, Move
from ..engine.target import Sites, Target
from ..host import token_sweeps
from .augmentation import class_rows, weight_information
from .weights import Hinges

LANES = 256
"""Documents that are swept side by side without compiled code."""
CHECKED = 24
"""Tokens whose conditionals are compared with the program."""
FEATURES, SCORES = "features", "scores"
"""Names under which a move keeps documents' proportions and scores among the sites while it runs."""


class TokenMargin(NamedTuple):
    """The loss ``max_j (shifts_dj + rows_j'x_d) - rows_{own_d}'x_d`` of documents with proportions ``x_d``.

    - **rows** - (J, T) weights; a single row is no loss.
    - **shifts** - (D, J).
    - **own** - (D,) in ``0..J-1``.
    - **cost** - ``c``.
    """

    rows: jax.Array
    shifts: jax.Array
    own: jax.Array
    cost: jax.Array


class Tokens(NamedTuple):
    """What a sweep over tokens needs to know of a model.

    - **corpus** - the documents.
    - **phi** - (T, V) topics.
    - **base** - (G, T) Dirichlet parameters of documents' proportions, by group.
    - **group** - (D,) the documents' groups.
    - **margin** - what documents pay.
    """

    corpus: Corpus
    phi: jax.Array
    base: jax.Array
    group: jax.Array
    margin: TokenMargin


def no_margin(corpus: Corpus, num_topics: int, dtype: Any) -> TokenMargin:
    """Nothing to pay."""
    own = jnp.zeros(corpus.num_documents, jnp.int32)
    return TokenMargin(
        jnp.zeros((1, num_topics), dtype), jnp.zeros((corpus.num_documents, 1), dtype), own, jnp.ones((), dtype)
    )


def class_margin(eta: jax.Array, y: jax.Array, cost: Any, ell: Any) -> TokenMargin:
    """The multi-class hinge: ``shifts`` are ``ell 1[k != y_d]``."""
    others = y[:, None] != jnp.arange(len(eta))
    cost, ell = jnp.asarray(cost, eta.dtype), jnp.asarray(ell, eta.dtype)
    return TokenMargin(eta, ell * others, y.astype(jnp.int32), cost)


def tube_margin(eta: jax.Array, y: jax.Array, cost: Any, epsilon: Any) -> TokenMargin:
    """``max(0, |f - y| - epsilon)`` is the largest of 0, ``f - y - epsilon`` and ``y - f - epsilon``."""
    zero = jnp.zeros_like(y)
    shifts = jnp.stack([zero, -y - epsilon, y - epsilon], axis=1).astype(eta.dtype)
    own = jnp.zeros(y.shape, jnp.int32)
    return TokenMargin(jnp.stack([jnp.zeros_like(eta), eta, -eta]), shifts, own, jnp.asarray(cost, eta.dtype))


def columns_of(phi: jax.Array) -> jax.Array:
    """(V, T) probabilities of each word, scaled to a largest of 1: a factor that all topics share."""
    phi = floored(phi)
    return (phi / jnp.max(phi, axis=0)).T


def token_weights(tokens: Tokens, columns: jax.Array, n: jax.Array, s: jax.Array, l: jax.Array, old: jax.Array):
    """(B, T) weights of the topics of tokens ``l`` (B,), now ``old``, given all others, up to a factor per token.

    :param columns: (V, T) the topics' probabilities of words.
    :param n: (D, T) counts, the tokens included.
    :param s: (D, J) shifted scores, the tokens included.
    """
    rows, _, own, cost = tokens.margin
    d, topics = tokens.corpus.documents[l], jnp.arange(n.shape[1])
    w = n[d] - (old[:, None] == topics) + tokens.base[tokens.group[d]]
    w = w * columns[tokens.corpus.words[l]]
    if len(rows) == 1:
        return w
    inverse = 1 / tokens.corpus.lengths[d].astype(w.dtype)
    rest = s[d] - rows[:, old].T * inverse[:, None]
    worst = jnp.max(rest[:, :, None] + rows * inverse[:, None, None], axis=1)
    loss = worst - rows[own[d]] * inverse[:, None]
    return w * jnp.exp(2 * cost * (jnp.min(loss, axis=1, keepdims=True) - loss))


def shifted_scores(tokens: Tokens, n: jax.Array) -> jax.Array:
    """(D, J) ``shifts + rows'x`` of documents with counts ``n`` (D, T)."""
    x = n / jnp.maximum(tokens.corpus.lengths, 1)[:, None].astype(n.dtype)
    return tokens.margin.shifts + x @ tokens.margin.rows.T


def sweep_tokens(key: jax.Array, tokens: Tokens, z: jax.Array, host: bool, uniforms: jax.Array | None = None):
    """New topics (N,) of all tokens."""
    if host:
        return _host(seed_of(key), tokens, z, jnp.zeros(0, tokens.phi.dtype) if uniforms is None else uniforms)
    return _lanes(random.uniform(key, z.shape, tokens.phi.dtype) if uniforms is None else uniforms, tokens, z)


def _host(seed: jax.Array, tokens: Tokens, z: jax.Array, uniforms: jax.Array, frozen: bool = False) -> jax.Array:
    """The sweep by :mod:`regbayes.inference.host.token_sweeps`; ``frozen``, every token's probabilities (N, T)."""
    T = len(tokens.phi)
    columns = jnp.pad(columns_of(tokens.phi), ((0, 0), (0, -T % token_sweeps.WIDTH)))
    shape, dtype = ((len(z), T), tokens.phi.dtype) if frozen else (z.shape, z.dtype)

    arrays = (tokens.corpus.words, tokens.corpus.offsets, z, seed, uniforms, columns, tokens.base, tokens.group)
    return on_cores.call(token_sweeps.sweep, jax.ShapeDtypeStruct(shape, dtype), *arrays, *tokens.margin)


def _lanes(uniforms: jax.Array, tokens: Tokens, z: jax.Array) -> jax.Array:
    """The sweep in JAX: the documents in lanes of about equally many tokens, a token of every lane at each step."""
    corpus, T = tokens.corpus, len(tokens.phi)
    N, columns = len(z), columns_of(tokens.phi)
    n = corpus.counts(z, T, tokens.phi.dtype)
    s, rows = shifted_scores(tokens, n), tokens.margin.rows
    edges = _lane_edges(corpus)

    def step(i: jax.Array, carry: tuple) -> tuple:
        z, n, s = carry
        l = edges[:-1] + i
        valid = l < edges[1:]
        at = jnp.minimum(l, N - 1)
        d, old = corpus.documents[at], z[at]
        w = token_weights(tokens, columns, n, s, at, old)
        stays = old[:, None] == jnp.arange(T)  # the topic that a token has comes first
        above = jnp.sum(w, axis=1) * uniforms[at] - jnp.sum(jnp.where(stays, w, 0), axis=1)
        totals = jnp.cumsum(jnp.where(stays, 0, w), axis=1)
        new = jnp.sum(totals <= above[:, None], axis=1).clip(0, T - 1).astype(z.dtype)
        new = jnp.where(above > 0, new, old)
        one = valid.astype(n.dtype)
        n = n.at[d, old].add(-one).at[d, new].add(one)
        change = (rows[:, new] - rows[:, old]).T * (one / corpus.lengths[d].astype(n.dtype))[:, None]
        return z.at[jnp.where(valid, l, N)].set(new, mode="drop"), n, s.at[d].add(jnp.where(valid[:, None], change, 0))

    return lax.fori_loop(0, jnp.max(edges[1:] - edges[:-1]), step, (z, n, s))[0]


def _lane_edges(corpus: Corpus) -> jax.Array:
    """Where the tokens of each lane begin, and N."""
    N, lanes = corpus.num_tokens, min(LANES, corpus.num_documents)
    cuts = jnp.searchsorted(corpus.offsets, jnp.arange(lanes + 1) * (N / lanes), side="left")
    return corpus.offsets[jnp.minimum(cuts, corpus.num_documents)].at[-1].set(N)


def impute_tokens(
    key: jax.Array, tokens: Tokens, z: jax.Array | None, host: bool, uniforms: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    r"""Topics (N,) of all tokens, each drawn given those before it, without a margin, and log weights (D,).

    .. math:: q(z_d) = \prod_l \frac{(n_{d z_l}^{<l} + a_{d z_l})\,\phi_{z_l w_l}}{C_l},
              \qquad \log\frac{p(z_d, w_d)}{q(z_d)} = \sum_l \log\frac{C_l}{a_{d\cdot} + l - 1}

    up to a term of the document's words. Topics that are given are weighed as if they had been drawn.
    """
    corpus, dtype = tokens.corpus, tokens.phi.dtype
    T, columns = len(tokens.phi), columns_of(tokens.phi)
    fresh = z is None
    start = jnp.zeros(0 if fresh and host else corpus.num_tokens, jnp.int32) if z is None else z
    if host:
        columns = jnp.pad(columns, ((0, 0), (0, -T % token_sweeps.WIDTH)))
        result = (
            jax.ShapeDtypeStruct((corpus.num_tokens,), start.dtype),
            jax.ShapeDtypeStruct(corpus.lengths.shape, dtype),
        )
        uniforms = jnp.zeros(0, dtype) if uniforms is None else uniforms
        arrays = (corpus.words, corpus.offsets, start, seed_of(key), uniforms, columns, tokens.base, tokens.group)
        return on_cores.call(token_sweeps.impute, result, *arrays)
    uniforms = random.uniform(key, (corpus.num_tokens,), dtype) if uniforms is None else uniforms
    edges, N = _lane_edges(corpus), corpus.num_tokens

    def step(i: jax.Array, carry: tuple) -> tuple:
        z, w, logs = carry
        l = edges[:-1] + i
        valid = l < edges[1:]
        at = jnp.minimum(l, N - 1)
        d = corpus.documents[at]
        totals = jnp.cumsum(w[d] * columns[corpus.words[at]], axis=1)
        logs = logs.at[d].add(jnp.where(valid, jnp.log(totals[:, -1] / jnp.sum(w[d], axis=1)), 0))
        new = jnp.sum(totals <= uniforms[at, None] * totals[:, -1:], axis=1).clip(0, T - 1).astype(z.dtype)
        new = new if fresh else z[at]
        w = w.at[d, new].add(valid.astype(dtype))
        return z.at[jnp.where(valid, l, N)].set(new, mode="drop"), w, logs

    begin = start, tokens.base[tokens.group], jnp.zeros(corpus.num_documents, dtype)
    z, _, logs = lax.fori_loop(0, jnp.max(edges[1:] - edges[:-1]), step, begin)
    return z, logs


class TokenSweep(Move):
    """Redraw the topics ``z`` of all tokens, one after the other within a document, all documents at once.

    :param tokens: ``(z, *args, **kwargs) -> Tokens``, called like a conditional.
    :param host: by compiled code on the host's cores, or by JAX; by default the former where it can.
    """

    branches = True

    def __init__(self, tokens: Callable[..., Tokens], host: bool | None = None) -> None:
        if host and not on_cores.available():
            raise ValueError("host=True needs Numba and JAX on a CPU, found neither or one; leave host out")
        super().__init__("z", covered_by="tests/inference/kernels/test_topics.py::test_assignments_by_enumeration")
        self.tokens, self._host = tokens, host

    @property
    def host(self) -> bool:
        """Whether compiled code makes the sweep."""
        return on_cores.wanted(self._host)

    def start(self, key, z, tuning):
        """Any topic for any token: topics drawn from a sparse prior would hold on to what they are."""
        T, (N,), dtype = z["phi"].shape[0], z["z"].shape, z["z"].dtype
        if N <= PART:
            return {"z": random.randint(key, (N,), 0, T, dtype)}
        parts = lax.map(lambda key: random.randint(key, (PART,), 0, T, dtype), random.split(key, -(-N // PART)))
        return {"z": parts.ravel()[:N]}

    def step(self, keys, z, log_joint, target, tuning):
        tokens = target.call(self.tokens, {**target.given, **z})
        return {**z, "z": sweep_tokens(keys[0], tokens, z["z"], self.host)}, None

    def discrepancies(self, key, z, target, tuning):
        """The log probabilities of every topic for some tokens, as the sweep has them and as the program has."""
        tokens = target.call(self.tokens, {**target.given, **z})
        N, T = len(z["z"]), len(tokens.phi)
        at = random.permutation(key, N)[:CHECKED]
        if self.host:
            empty = jnp.zeros(0, tokens.phi.dtype)
            claimed = jnp.log(_host(seed_of(key), tokens, z["z"], empty, frozen=True)[at])
        else:
            n = tokens.corpus.counts(z["z"], T, tokens.phi.dtype)
            s = shifted_scores(tokens, n)
            w = token_weights(tokens, columns_of(tokens.phi), n, s, at, z["z"][at])
            claimed = jnp.log(w / jnp.sum(w, axis=1, keepdims=True))

        def log_joint(l: jax.Array, t: jax.Array) -> jax.Array:
            return target.log_joint({**z, "z": z["z"].at[l].set(t)})

        topics = jnp.arange(T, dtype=z["z"].dtype)
        actual = lax.map(lambda l: lax.map(lambda t: log_joint(l, t), topics), at)
        return claimed, jax.nn.log_softmax(actual, axis=1)


class Probabilities(Conditional):
    """A :class:`Conditional` of probability vectors, which start out even: a sparse prior's draw can be any corner."""

    def start(self, key, z, tuning):
        return {site: jnp.full_like(z[site], 1 / z[site].shape[-1]) for site in self.sites}


def phi_given_z(z: Sites, X, *args, num_topics, beta, **_) -> Distribution:
    """``phi_t ~ Dir(beta + m_t)``, ``m_tw`` the tokens of word ``w`` in topic ``t``."""
    return FlooredDirichlet(beta + tokens_of(X).word_counts(z["z"], num_topics, jnp.result_type(float))).to_event(1)


class ClassWeights(Augmented):
    """The weights of one class after the other by the augmentation; documents' proportions are computed once.

    ``1/omega_d ~ IG(1/(c|zeta_d|), 1)`` for the hinge in ``eta_k`` (the paper prints an index of -1/2); given these
    ``B = I/v + c^2 sum x x'/omega`` and ``c sum +-(1 + c tau/omega) x``, exact for one class at a time.

    :param labels: ``(z, *args, **kwargs) -> (D,)`` the documents' classes.
    :param overrelaxation: see :class:`~regbayes.inference.Augmented`.
    """

    def __init__(self, labels: Callable[..., jax.Array], overrelaxation: float = 0.5) -> None:
        both = ClassWeights._augment, ClassWeights._law
        super().__init__("eta", *both, rows=True, overrelaxation=overrelaxation)
        self.labels = labels

    def _hinges(self, k: Any, z: Sites, target: Target) -> tuple[Hinges, jax.Array, jax.Array]:
        """Rows and offsets of the hinge that the loss is in ``eta_k``; the rows' signs; the scores of class ``k``."""
        z = {**target.given, **z}
        eta, (cost, ell, prior_scale) = z["eta"], target.call(_loss)
        x = z[FEATURES] if FEATURES in z else _proportions(z, target)
        scores = z[SCORES] if SCORES in z else x @ eta.T
        sgn, tau = class_rows(scores, target.call(self.labels, z), k, ell)
        hinges = Hinges(x, tau, cost, jnp.asarray(prior_scale, x.dtype) ** -2.0)
        return hinges, sgn, jnp.take(scores, k, axis=1)

    def _augment(self, z: Sites, target: Target, k: Any) -> Distribution:
        (_, tau, cost, _), sgn, scores = self._hinges(k, z, target)
        return HingeOmega(cost * jnp.abs(tau - sgn * scores)).to_event(1)

    def _law(self, omega: jax.Array, z: Sites, target: Target, k: Any) -> InformationNormal:
        (x, tau, cost, precision), sgn, _ = self._hinges(k, z, target)
        return InformationNormal(*weight_information(x, tau, omega, cost, precision, sgn))

    def step(self, keys, z, log_joint, target, tuning):
        eta, x = z["eta"], _proportions(z, target)
        z = {**z, FEATURES: x, SCORES: x @ eta.T}
        keys = random.split(keys[0], (len(eta), 2))

        def visit(k: jax.Array, z: Sites) -> Sites:
            z = self._move(keys[k], z, target, k)
            return {**z, SCORES: z[SCORES].at[:, k].set(x @ z["eta"][k])}

        z = lax.fori_loop(0, len(eta), visit, z)
        return {site: value for site, value in z.items() if site not in (FEATURES, SCORES)}, None


def _proportions(z: Sites, target: Target) -> jax.Array:
    """(D, T) of the documents."""
    return target.call(corpus_of).proportions(z["z"], z["eta"].shape[-1], z["eta"].dtype)


def _loss(*args: Any, cost: Any, ell: Any, prior_scale: Any, **_: Any) -> tuple[Any, Any, Any]:
    return cost, ell, prior_scale


def corpus_of(X: Any, *args: Any, **kwargs: Any) -> Corpus:
    """The program's documents."""
    return tokens_of(X)


class TopicKernel(MoveKernel):
    """A :class:`MoveKernel` for programs of documents.

    Counts are expanded to tokens once. Sizes (topics, clusters, classes) are read off the state, so a sweep compiles
    once for all data of equal shapes, traced or not. The progress bar shows ``fit`` beside the log joint.

    :param begin: ``(key, z, *args, **kwargs) -> sites``: where some sites start, unless the caller says.
    :param fit: ``(z, *args, **kwargs) -> ()``: how well the training documents' labels are fitted.
    :param fit_name: what the progress bar calls it.
    """

    def __init__(
        self,
        model: Callable,
        moves: list[Move],
        *,
        name: str,
        num_active: Callable[[Sites], jax.Array] | None = None,
        begin: Callable[..., Sites] | None = None,
        fit: Callable[..., jax.Array] | None = None,
        fit_name: str = "accuracy",
    ) -> None:
        super().__init__(model, moves, name=name, num_active=num_active)
        self.begin, self.fit, self.fit_name = begin, fit, fit_name

    def target(self, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> Target:
        return super().target(*self.expand(model_args, model_kwargs))

    def expand(self, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> tuple[tuple, dict[str, Any]]:
        X = model_args[0] if model_args else (model_kwargs or {}).get("X")
        known = X is not None and is_concrete(X)  # where it is not, the state says how many tokens there are
        return self._expand(model_args, model_kwargs, None) if known else super().expand(model_args, model_kwargs)

    def _expand(self, args: tuple, kwargs: Mapping[str, Any] | None, num_tokens: int | None) -> tuple[tuple, dict]:
        """The arguments with the counts ``X`` as tokens."""
        kwargs = dict(kwargs or {})
        if args:
            return (tokens_of(args[0], num_tokens), *args[1:]), kwargs
        if "X" in kwargs:
            kwargs["X"] = tokens_of(kwargs["X"], num_tokens)
        return args, kwargs

    def _init_one(self, target: Target, rng_key: jax.Array, init_params: Sites | None) -> KernelState:
        state = super()._init_one(target, rng_key, init_params)
        if self.begin is not None:
            rng_key, key = random.split(state.rng_key)
            start = target.call(self.begin, key, {**target.given, **state.z})
            z = {**state.z, **{site: start[site] for site in start if site not in (init_params or {})}}
            log_joint = target.log_joint(z)
            state = state._replace(z=z, rng_key=rng_key, log_joint=log_joint, num_active=self._count(z))
        return self._with_fit(state, target)

    def _sweep(self, state: KernelState, model_args: tuple, model_kwargs: Mapping[str, Any] | None) -> KernelState:
        args, kwargs = self._expand(model_args, model_kwargs, state.z["z"].shape[-1])
        sizes = {"num_topics": ("phi", 0), "num_clusters": ("gamma", 0), "num_classes": ("eta", 0)}
        for name, (site, axis) in sizes.items():
            if name in self._signature.parameters and site in state.z:
                kwargs[name] = state.z[site].shape[axis]
        state = super()._sweep(state, args, kwargs)
        return self._with_fit(state, self.target(args, kwargs))

    def _with_fit(self, state: KernelState, target: Target) -> KernelState:
        if self.fit is None:
            return state
        value = target.call(self.fit, {**target.given, **state.z})
        return state._replace(tuning=(*state.tuning[:-1], {**state.tuning[-1], "fit": value}))

    def get_diagnostics_str(self, state: KernelState) -> str:
        text = super().get_diagnostics_str(state)
        return text if self.fit is None else f"{text}, {self.fit_name} {float(state.tuning[-1]['fit']):.3f}"


def new_documents(draws: Sites, X: Any, sites: tuple[str, ...]) -> tuple[Sites, Corpus]:
    """The draws' sites as arrays with one leading axis, and the tokens of new documents of the same vocabulary."""
    if missing := [site for site in sites if site not in draws]:
        raise ValueError(f"draws must hold the sites {', '.join(sites)}, found no {', '.join(missing)}")
    phi = jnp.shape(draws["phi"])
    if len(phi) != 3:
        raise ValueError(f"draws must have one leading axis, found phi of shape {phi}; flatten chains")
    corpus = tokens_of(X)
    if corpus.num_words != phi[2]:
        shape = (corpus.num_documents, corpus.num_words)
        raise ValueError(f"X must have {phi[2]} columns, the words of the draws' topics, found shape {shape}")
    return {site: jnp.asarray(draws[site]) for site in sites}, corpus


def num_topics_used(z: Sites) -> jax.Array:
    """Topics that hold a token."""
    topics = z["z"]
    return jnp.sum(tally(None, topics, (1, len(z["phi"])), jnp.int32) > 0)
