"""Topic models: their kernels against enumeration and Geweke's test, compiled sweeps against JAX's, and the edges."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.sparse
from jax import lax, random
from numpyro.diagnostics import effective_sample_size
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC
from oracle import MAX_Z, assert_agree
from scipy import stats
from scipy.special import gammaln, logsumexp

from regbayes import models
from regbayes.datasets import make_corpus
from regbayes.diagnostics import conformance, to_datatree
from regbayes.inference import (
    ctm_collapsed,
    ctm_predict,
    medlda_collapsed,
    medlda_predict,
    medlda_regression_collapsed,
    medlda_regression_predict,
    medlda_transform,
    mmctm_collapsed,
    mmctm_predict,
)
from regbayes.inference.moves import tokens as token_moves
from regbayes.inference.moves.documents import draw_tables, sum_words
from regbayes.inference.moves.tokens import (
    TokenMargin,
    Tokens,
    TokenSweep,
    _host,
    class_margin,
    columns_of,
    impute_tokens,
    no_margin,
    sweep_tokens,
    tube_margin,
)
from regbayes.models import Corpus, FlooredDirichlet, KnownLabels, TokenTopics, TopicWords, tokens_of
from regbayes.models.laws import cores as host
from regbayes.models.laws import corpora
from regbayes.models.laws.corpora import tally
from regbayes.models.laws.gammas import log_gammas

KERNELS = {
    "ctm": ctm_collapsed,
    "mmctm": mmctm_collapsed,
    "medlda": medlda_collapsed,
    "medlda-regression": medlda_regression_collapsed,
}
PROGRAMS = {
    "ctm": models.ctm,
    "mmctm": models.mmctm,
    "medlda": models.medlda,
    "medlda-regression": models.medlda_regression,
}


# ----- Every z (and y) of two documents

X2, T2 = np.array([[2, 1], [0, 2]]), 2
MASSES = {"alpha": 1.5, "alpha_0": 3.0, "alpha_1": 2.5, "omega": 0.8}
MARGIN = {"cost": 0.8, "ell": 1.0, "prior_scale": 1.5}
ENUMERATED = {
    "ctm": ((), {"num_clusters": 2, **MASSES}),
    "mmctm": ((), {"num_clusters": 2, **MASSES, **MARGIN}),
    "medlda": ((np.array([0, 1]),), {"alpha": 1.5, **MARGIN}),
    "medlda-regression": ((np.array([0.7, -0.4]),), {"alpha": 1.5, "cost": 1.1, "epsilon": 0.2, "prior_scale": 1.5}),
}


def log_topics(n, a):
    """Log probability of a document's topics with counts ``n`` (..., T), its proportions integrated out."""
    total = gammaln(a.sum(-1)) - gammaln(a.sum(-1) + n.sum(-1))
    return total + np.sum(gammaln(a + n) - gammaln(a), axis=-1)


def loss(name, x, labels, eta, settings):
    """(num,) the summed loss of documents with shares ``x`` at draws of the weights."""
    if name == "medlda-regression":
        return sum(np.maximum(np.abs(y - eta @ row) - settings["epsilon"], 0) for y, row in zip(labels, x, strict=True))
    total = 0.0
    for y, row in zip(labels, x, strict=True):
        s = eta @ row
        total = total + np.max(s + settings["ell"] * (np.arange(2) != y), axis=1) - s[:, y]
    return total


@functools.cache
def enumerated(name, num=40_000):
    """All states (labels, topics), their probabilities and standard errors: sites averaged over ``num`` prior draws."""
    rng = np.random.default_rng(0)
    args, settings = ENUMERATED[name]
    corpus, clusters = tokens_of(X2), name in ("ctm", "mmctm")
    words, documents = np.asarray(corpus.words), np.asarray(corpus.documents)
    shape = (num, T2) if name == "medlda-regression" else (num, 2, T2)
    eta = settings.get("prior_scale", 0.0) * rng.normal(size=shape)
    mu0 = rng.dirichlet(np.full(T2, settings.get("alpha_0", 1.0) / T2), size=num)
    g = rng.gamma(settings.get("alpha_1", 1.0) * mu0[:, None, :] * np.ones((num, 2, T2)))
    mu = np.maximum(g, 1e-300) / np.maximum(g, 1e-300).sum(-1, keepdims=True)
    gamma = rng.dirichlet(np.full(2, settings.get("omega", 1.0)), size=num)
    states, logs, errors, known = [], [], [], {}

    def averaged(labels, n):
        """Of what the draws have to do with, and its relative error."""
        draws = np.zeros(num)
        if clusters:
            draws += sum(log_topics(n[d], settings["alpha"] * mu[:, y]) for d, y in enumerate(labels))
            draws += sum(np.log(gamma[:, y]) for y in labels)
        if name != "ctm":
            x = n / n.sum(1, keepdims=True)
            draws -= 2 * settings["cost"] * loss(name, x, labels if clusters else args[0], eta, settings)
        values = np.exp(draws)
        return np.log(values.mean()), values.std() / values.mean() / num**0.5

    for labels in itertools.product(range(2), repeat=2) if clusters else [(0, 0)]:
        for z in itertools.product(range(T2), repeat=len(words)):
            n = np.array([[np.sum((documents == d) & (np.array(z) == t)) for t in range(T2)] for d in range(2)])
            m = np.array([[np.sum((words == w) & (np.array(z) == t)) for w in range(2)] for t in range(T2)])
            log_p = np.sum(log_topics(m, np.full((T2, 2), 0.7)))
            if not clusters:
                log_p += np.sum(log_topics(n, np.full((2, T2), settings["alpha"] / T2)))
            key = *labels, *n.ravel()  # many states have the same counts
            if key not in known:
                known[key] = averaged(labels, n)
            states.append((*labels, *z))
            logs.append(log_p + known[key][0])
            errors.append(known[key][1])
    p = np.exp(np.array(logs) - logsumexp(logs))
    return np.array(states), p, p * np.array(errors)


def drawn(name, host, num_samples, without=(), num_chains=8):
    args, settings = ENUMERATED[name]
    kernel = KERNELS[name](functools.partial(PROGRAMS[name], num_topics=T2, beta=0.7), host=host)
    kernel.moves = tuple(move for move in kernel.moves if move.sites not in without)
    run = {"num_warmup": 50, "num_samples": num_samples, "num_chains": num_chains, "chain_method": "vectorized"}
    mcmc = MCMC(kernel, progress_bar=False, **run)
    mcmc.run(random.key(3), X2, *args, **settings)
    draws = mcmc.get_samples(group_by_chain=True)
    y = draws["y"] if "y" in draws else jnp.zeros((*draws["z"].shape[:2], 2), int)
    return np.concatenate([y, draws["z"]], axis=-1)


def assert_enumerated(name, host, num_samples, without=()):
    states, p, errors = enumerated(name)
    hits = (drawn(name, host, num_samples, without)[:, :, None] == states).all(-1)
    assert (hits.sum(-1) == 1).all()
    often = p * hits[..., 0].size > 50
    hits, p, errors = hits[..., often].astype(float), p[often], errors[often]
    scores = (hits.mean((0, 1)) - p) / np.sqrt(p * (1 - p) / effective_sample_size(hits) + errors**2)
    print(f"largest |z| {np.abs(scores).max():.2f} of {len(scores)} events")
    assert np.abs(scores).max() < MAX_Z


@pytest.mark.parametrize(("name", "host"), [("ctm", False), ("medlda", True)])
def test_assignments_by_enumeration(name, host):
    assert_enumerated(name, host, 1000)


@pytest.mark.parametrize(("name", "host"), [("ctm", True), pytest.param("mmctm", False, marks=pytest.mark.slow)])
def test_documents_redrawn_by_enumeration(name, host):
    """Labels and topics move by new documents alone."""
    assert_enumerated(name, host, 1000, without=(("y",), ("z",)))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("host", [True, False])
def test_assignments_by_enumeration_with_many_draws(name, host):
    assert_enumerated(name, host, 10_000)


# ----- Geweke's test


@pytest.mark.slow
def test_sites_keep_the_prior_when_words_are_redrawn():
    """Words given topics, then a sweep, with next to no margin: every site keeps its prior."""
    program = functools.partial(models.mmctm, num_clusters=2, num_topics=2)
    settings = {"alpha": 2.0, "alpha_0": 4.0, "alpha_1": 3.0, "beta": 0.8, "omega": 1.5, "cost": 1e-9, "ell": 1.0}
    corpus, kernel, names = (
        tokens_of(np.ones((3, 3), int)),
        mmctm_collapsed(program),
        ("phi", "mu0", "mu", "gamma", "eta"),
    )

    def statistics(z):
        shares = corpus.proportions(z["z"], 2, z["phi"].dtype)
        parts = [
            *(z[name].ravel() for name in names),
            z["y"].astype(float),
            shares.ravel(),
            shares[0, :1] * shares[1, :1],
        ]
        own = jnp.mean((z["y"][corpus.documents] == z["z"]).astype(float))  # how labels and topics go together
        return jnp.concatenate([*parts, own[None]])

    def prior(key):
        sites = trace(seed(program, key)).get_trace(corpus, **settings)
        return {name: sites[name]["value"] for name in (*names, "y", "z")}

    def chain(key):
        key, key_init = random.split(key)
        state = kernel.init(key_init, 0, prior(key_init), (corpus,), settings)

        def step(state, key):
            words = TopicWords(state.z["phi"], state.z["z"]).sample(key)
            redrawn = Corpus(words, corpus.documents, corpus.offsets, corpus.num_words)
            state = kernel.sample(state, (redrawn,), settings)
            return state, statistics(state.z)

        return lax.scan(step, state, random.split(key, 1500))[1]

    forward = jax.jit(jax.vmap(lambda key: statistics(prior(key))))(random.split(random.key(1), 3000))
    assert_agree(np.asarray(jax.jit(jax.vmap(chain))(random.split(random.key(0), 4))), np.asarray(forward)[None])


# ----- The sweep by compiled code and by JAX


def problem(kind, dtype, cost=1.0, rate=0.7):
    rng = np.random.default_rng(0)
    X = rng.poisson(rate, size=(40, 12))
    X[3] = 0
    X[7], X[7, 2] = 0, 1
    corpus, T = tokens_of(X), 11
    phi = jnp.asarray(rng.dirichlet(np.full(12, 0.3), size=T), dtype)
    y, eta = jnp.asarray(rng.integers(4, size=40)), jnp.asarray(rng.normal(size=(4, T)), dtype)
    margins = {
        "none": lambda: no_margin(corpus, T, dtype),
        "classes": lambda: class_margin(eta, y, cost, 0.5),
        "tube": lambda: tube_margin(3 * eta[0], jnp.asarray(rng.normal(size=40), dtype), cost, 0.1),
    }
    base, group = jnp.asarray(rng.gamma(0.3, size=(3, T)) + 1e-3, dtype), jnp.asarray(rng.integers(3, size=40))
    z = jnp.asarray(rng.integers(T, size=corpus.num_tokens), jnp.int32)
    return Tokens(corpus, phi, base, group.astype(jnp.int32), margins[kind]()), z


@pytest.mark.parametrize(
    ("kind", "cost", "rate"),
    # In long documents a class stays the strongest for many tokens, and rivals are not looked at meanwhile.
    [("none", 1.0, 0.7), ("classes", 3.0, 0.7), ("classes", 200.0, 0.7), ("classes", 30.0, 20.0), ("tube", 3.0, 20.0)],
)
def test_both_sweeps_draw_the_same(kind, cost, rate):
    with jax.enable_x64(True):
        tokens, z = problem(kind, jnp.float64, cost, rate)
        uniforms = random.uniform(random.key(0), z.shape, jnp.float64)
        run = jax.jit(sweep_tokens, static_argnames="host")
        for _ in range(3):
            a, b = (run(random.key(0), tokens, z, host=host, uniforms=uniforms) for host in (True, False))
            np.testing.assert_array_equal(a, b)
            z = a
        assert len(np.unique(z)) == 11


def test_topics_are_imputed_and_weighed():
    """Both ways draw the same; the weight makes up for what separates the draw's law from the program's."""
    with jax.enable_x64(True):
        tokens, _ = problem("none", jnp.float64)
        corpus, T = tokens.corpus, 11
        uniforms = random.uniform(random.key(0), (corpus.num_tokens,), jnp.float64)
        run = jax.jit(impute_tokens, static_argnames="host")
        (a, logs), (b, others) = (run(random.key(0), tokens, None, host=host, uniforms=uniforms) for host in (1, 0))
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(logs, others, rtol=1e-12)
        for host in (True, False):
            again, weights = run(random.key(1), tokens, a, host=host)
            np.testing.assert_array_equal(again, a)
            np.testing.assert_allclose(weights, logs, rtol=1e-12)
        phi, columns = np.asarray(tokens.phi), np.asarray(columns_of(tokens.phi))
        z, base = np.asarray(a), np.asarray(tokens.base)[np.asarray(tokens.group)]
        law = np.zeros(corpus.num_documents)  # log q(z)
        for d in range(corpus.num_documents):
            w = base[d].copy()
            for l in range(int(corpus.offsets[d]), int(corpus.offsets[d + 1])):
                p = w * phi[:, corpus.words[l]]
                law[d] += np.log(p[z[l]] / p.sum())
                w[z[l]] += 1
        n = np.asarray(corpus.counts(a, T, jnp.float64))
        joint = log_topics(n, base)
        np.add.at(joint, np.asarray(corpus.documents), np.log(columns[np.asarray(corpus.words), z]))
        np.testing.assert_allclose(joint, law + np.asarray(logs), rtol=1e-10, atol=1e-10)


def test_tables_are_drawn_the_same():
    """Both ways draw the same tables, and as many as a Chinese restaurant has: ``sum_{i<n} a/(a + i)`` on average."""
    with jax.enable_x64(True):
        tokens, z = problem("none", jnp.float64, rate=20.0)
        n, most = tokens.corpus.counts(z, 11, jnp.float64), tokens.corpus.num_tokens + 5
        run = jax.jit(draw_tables, static_argnames=("most", "host"))
        given = n, tokens.base, tokens.group, most
        uniforms = random.uniform(random.key(0), (most,), jnp.float64)
        found = [run(random.key(0), *given, host=host, uniforms=uniforms) for host in (True, False)]
        np.testing.assert_array_equal(*found)
        a = tokens.base[tokens.group][:, :, None]
        opens = jnp.where(jnp.arange(int(n.max())) < n[:, :, None], a / (a + jnp.arange(int(n.max()))), 0.0)
        error = float(jnp.sum(opens * (1 - opens))) ** 0.5
        for host in (True, False):
            draws = jnp.stack([run(random.key(k), *given, host=host) for k in range(20)])
            assert np.all(draws <= n)
            assert np.all((draws > 0) == (n > 0))
            assert abs(float(jnp.sum(draws)) / 20 - float(jnp.sum(opens))) < 4 * error / 20**0.5


def test_words_are_summed_the_same():
    with jax.enable_x64(True):
        corpus = problem("none", jnp.float64)[0].corpus
        rows = random.normal(random.key(0), (5, corpus.num_words), jnp.float64)
        wanted = jnp.zeros((corpus.num_documents, 5)).at[corpus.documents].add(rows.T[corpus.words])
        for host in (True, False):
            np.testing.assert_allclose(sum_words(corpus, rows, host), wanted, rtol=1e-12, atol=1e-12)


def test_sweeps_in_single_precision_have_the_same_conditionals():
    tokens, z = problem("classes", jnp.float32, 5.0)
    single = np.asarray(_host(jnp.zeros(2, jnp.uint32), tokens, z, jnp.zeros(0), frozen=True))
    with jax.enable_x64(True):
        tokens, z = problem("classes", jnp.float64, 5.0)
        double = np.asarray(_host(jnp.zeros(2, jnp.uint32), tokens, z, jnp.zeros(0), frozen=True))
    np.testing.assert_allclose(single, double, atol=2e-6)


def test_a_sweep_is_reproducible_and_uses_its_key():
    tokens, z = problem("classes", jnp.float32)
    a, b, c = (sweep_tokens(random.key(k), tokens, z, True) for k in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.any(a != c)


@pytest.mark.parametrize("name", ["medlda", "medlda-regression"])
def test_moves_conform_without_compiled_code(name):
    X, y, _ = make_corpus(4, 6, 3, 2, length=5, task="regression" if "regression" in name else "classification")
    X[1] = 0
    kernel = KERNELS[name](functools.partial(PROGRAMS[name], num_topics=3), host=False)
    report = conformance(kernel, X, y, num_states=2, prior_scale=2.0, beta=0.5)
    assert report.ok
    assert report.max_error <= 1e-8


# ----- The laws


@pytest.mark.parametrize("compiled", [True, False])
def test_gamma_variates(compiled, monkeypatch):
    """Against the exact law, small shapes by the chance of being below 1e-20."""
    if not compiled:
        monkeypatch.setattr(host, "available", lambda: False)
    for i, a in enumerate((0.1, 0.25, 0.5, 1.0, 5.5, 200.0)):
        x = np.exp(np.asarray(log_gammas(random.key(i), jnp.full(50_000, a)), float))
        assert stats.kstest(x, stats.gamma(a).cdf).pvalue > 1e-3
    logs = np.asarray(log_gammas(random.key(9), jnp.full(100_000, 0.01)))
    p = stats.gamma(0.01).cdf(1e-20)
    assert abs(np.mean(logs < np.log(1e-20)) - p) < MAX_Z * (p * (1 - p) / len(logs)) ** 0.5
    assert np.isfinite(logs).all()


def test_floored_dirichlet():
    a = jnp.array([[0.5, 2.0, 3.0], [1.0, 1.0, 4.0]])
    value = jnp.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(FlooredDirichlet(a).log_prob(value), dist.Dirichlet(a).log_prob(value), rtol=1e-5)
    draws = np.asarray(FlooredDirichlet(a).sample(random.key(0), (20_000,)))
    error = np.sqrt(np.asarray(dist.Dirichlet(a).variance) / 20_000)
    assert np.all(np.abs(draws.mean(0) - np.asarray(dist.Dirichlet(a).mean)) < MAX_Z * error)
    sparse = FlooredDirichlet(jnp.full(1000, 1e-3))
    assert np.isfinite(sparse.log_prob(sparse.sample(random.key(1))))


def test_topics_of_tokens_are_a_distribution():
    corpus, a = tokens_of([[2, 1], [0, 0], [1, 0]]), jnp.array([[0.5, 1.0], [1.0, 1.0], [2.0, 0.3]])
    law = TokenTopics(a, corpus)
    states = np.array(list(itertools.product(range(2), repeat=4)))
    p = np.exp(np.asarray(law.log_prob(states), float))
    assert p.sum() == pytest.approx(1, abs=1e-5)
    draws = np.asarray(law.sample(random.key(0), (5000,)))
    share = (draws[:, None] == states).all(-1).mean(0)
    assert np.all(np.abs(share - p) < MAX_Z * np.sqrt(p * (1 - p) / 5000))


def test_words_of_topics():
    phi = jnp.array([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5]])
    law = TopicWords(phi, jnp.array([0, 1]))
    words = np.asarray(law.sample(random.key(0), (4000,)))
    for l in range(2):
        share, p = np.bincount(words[:, l], minlength=3) / 4000, np.asarray(phi[l])
        assert np.all(np.abs(share - p) <= MAX_Z * np.sqrt(p * (1 - p) / 4000))
    assert law.log_prob(jnp.array([0, 2])) == pytest.approx(np.log(0.1), rel=1e-5)
    assert np.isfinite(law.log_prob(jnp.array([2, 2])))


def test_known_labels_stay():
    law = KnownLabels(jnp.log(jnp.array([0.2, 0.8])), jnp.array([-1, 0, -1]))
    draws = np.asarray(law.sample(random.key(0), (3000,)))
    assert np.all(draws[:, 1] == 0)
    assert abs(draws[:, 0].mean() - 0.8) < MAX_Z * (0.16 / 3000) ** 0.5
    assert law.log_prob(jnp.array([1, 0, 0])) == pytest.approx(np.log(0.16), rel=1e-5)
    assert law.log_prob(jnp.array([1, 1, 0])) == -np.inf


def test_a_margin_is_the_factor_of_the_program():
    rng = np.random.default_rng(0)
    x, eta, y = rng.dirichlet(np.ones(3), size=5), rng.normal(size=(4, 3)), rng.integers(4, size=5)

    def total(margin):
        s = margin.shifts + x @ margin.rows.T
        return float(jnp.sum(jnp.max(s, 1) - jnp.sum(x * margin.rows[margin.own], 1)))

    s = x @ eta.T
    own = s[np.arange(5), y]
    expected = np.sum(np.max(s + 0.3 * (np.arange(4) != y[:, None]), axis=1) - own)
    assert total(class_margin(jnp.asarray(eta), jnp.asarray(y), 1.0, 0.3)) == pytest.approx(expected, rel=1e-5)
    t = rng.normal(size=5)
    expected = np.sum(np.maximum(np.abs(s[:, 0] - t) - 0.2, 0))
    assert total(tube_margin(jnp.asarray(eta[0]), jnp.asarray(t), 1.0, 0.2)) == pytest.approx(expected, rel=1e-4)
    assert isinstance(no_margin(tokens_of(X2), 3, jnp.float32), TokenMargin)


# ----- Documents


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("part", [7, 10, 20, 100])
def test_tokens_are_counted_in_parts(part, host, monkeypatch):
    monkeypatch.setattr(corpora, "PART", part)
    monkeypatch.setattr(corpora.host, "available", lambda: host)
    rng = np.random.default_rng(0)
    rows, columns, exact = rng.integers(3, size=20), rng.integers(4, size=20), np.zeros((3, 4))
    np.add.at(exact, (rows, columns), 1)
    rows, columns = jnp.asarray(rows), jnp.asarray(columns)
    np.testing.assert_array_equal(jax.jit(lambda *a: tally(*a, (3, 4), jnp.float32))(rows, columns), exact)
    np.testing.assert_array_equal(tally(None, columns, (1, 4), jnp.int32), exact.sum(0, keepdims=True))
    both = jax.vmap(lambda rows: tally(rows, columns, (3, 4), jnp.float32))(jnp.stack([rows, 2 - rows]))
    np.testing.assert_array_equal(both, np.stack([exact, exact[::-1]]))


def test_topics_start_anywhere_in_parts(monkeypatch):
    monkeypatch.setattr(token_moves, "PART", 300)
    z = {"phi": jnp.zeros((4, 2)), "z": jnp.zeros(1000, jnp.int32)}
    found = np.bincount(TokenSweep(None).start(random.key(0), z, {})["z"], minlength=4)
    assert found.sum() == 1000
    assert stats.chisquare(found).pvalue > 1e-3


def test_dense_sparse_and_traced_documents_are_the_same():
    X = np.random.default_rng(0).poisson(0.5, size=(6, 5))
    X[2] = 0
    wanted = tokens_of(X)
    forms = [scipy.sparse.csr_matrix(X), scipy.sparse.csr_array(X.astype(float)), X.tolist(), X.astype(np.float32)]
    found = [*map(tokens_of, forms), jax.jit(lambda X: tokens_of(X, int(X_total)))(X)] if (X_total := X.sum()) else []
    for corpus in (*found, tokens_of(wanted)):
        assert corpus.num_words == 5
        for part in ("words", "documents", "offsets"):
            np.testing.assert_array_equal(getattr(corpus, part), getattr(wanted, part))
    np.testing.assert_array_equal(np.bincount(wanted.words, minlength=5), X.sum(0))
    np.testing.assert_array_equal(wanted.lengths, X.sum(1))
    shares = np.asarray(wanted.proportions(jnp.zeros(wanted.num_tokens, int), 3, jnp.float32))
    np.testing.assert_array_equal(shares[:, 0], (X.sum(1) > 0).astype(float))
    assert not shares[:, 1:].any()


def test_bad_sparse_counts_are_found():
    X = scipy.sparse.csr_matrix(np.array([[0, 1.0], [2.0, 0]]))
    for value, message in ((-1.0, "counts"), (0.5, "counts"), (np.nan, "finite")):
        bad = X.copy()
        bad.data[1] = value
        with pytest.raises(ValueError, match=rf"X must .*{message}.*found {value} at \(1, 0\)"):
            tokens_of(bad)
    with pytest.raises(ValueError, match="found 2 documents without any"):
        tokens_of(scipy.sparse.csr_matrix((2, 3)))
    with pytest.raises(ValueError, match="X is traced"):
        jax.jit(lambda X: tokens_of(X).words)(np.ones((2, 2)))


@pytest.mark.parametrize("name", KERNELS)
def test_a_sparse_corpus_runs_with_empty_documents(name):
    task = "regression" if name == "medlda-regression" else "classification"
    X, y, _ = make_corpus(10, 12, 3, 2, length=6, task=task)
    X[4] = 0
    kernel = KERNELS[name]()
    settings = {"num_topics": 60}  # more topics than words
    state = kernel.init(random.key(0), 0, None, (scipy.sparse.csr_matrix(X), y), settings)
    step = jax.jit(lambda state: kernel.sample(state, (scipy.sparse.csr_matrix(X), y), settings))
    for _ in range(3):
        state = step(state)
    assert np.isfinite(state.log_joint)
    assert state.num_active > 0
    text = kernel.get_diagnostics_str(state)
    assert ("accuracy" in text, "error" in text) == (name in ("mmctm", "medlda"), name == "medlda-regression")


# ----- Predictions


def fitted(name, X, *args, num_warmup=60, num_samples=15, **settings):
    mcmc = MCMC(KERNELS[name](), num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(random.key(0), X, *args, **settings)
    return mcmc


def test_classes_of_new_documents():
    X, y, _ = make_corpus(240, 60, 5, 3, length=40, seed=2)
    draws = fitted("medlda", X[:160], y[:160], num_topics=5).get_samples()
    found = medlda_predict(draws, X[160:])
    accuracy = np.mean(np.asarray(found.y) == y[160:])
    majority = np.bincount(y[160:]).max() / 80
    print(f"accuracy {accuracy:.3f}, majority {majority:.3f}")
    assert accuracy > majority + 5 * (majority * (1 - majority) / 80) ** 0.5
    eta = np.asarray(draws["eta"]).mean(0)
    assert min(np.abs(eta[i] - eta[j]).max() for i in range(3) for j in range(i)) > 0.1
    np.testing.assert_allclose(found.votes.sum(1), 1, rtol=1e-5)
    shares = medlda_transform(draws, X[160:])
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-4)
    again = medlda_predict(draws, scipy.sparse.csr_matrix(X[160:]), host=False)
    assert np.mean(np.asarray(again.y) == np.asarray(found.y)) > 0.9


def test_responses_of_new_documents():
    X, y, _ = make_corpus(240, 60, 5, 3, length=40, task="regression", seed=1)
    y = (y - y.mean()) / y.std()
    draws = fitted("medlda-regression", X[:160], y[:160], num_topics=5).get_samples()
    error = np.mean((np.asarray(medlda_regression_predict(draws, X[160:])) - y[160:]) ** 2)
    print(f"share of variance {1 - error / y[160:].var():.3f}")
    assert error < 0.6 * y[160:].var()


@pytest.mark.slow
def test_clusters_of_new_documents_and_a_start_from_another_chain():
    X, y, _ = make_corpus(150, 60, 5, 3, length=40, seed=1)
    landmarks = np.where(np.arange(100) < 15, y[:100], -1)
    first = fitted("ctm", X[:100], landmarks, num_topics=5)
    start = first.last_state.z
    kernel = mmctm_collapsed()
    state = kernel.init(random.key(1), 0, start, (X[:100], landmarks), {"num_topics": 5})
    for site, value in start.items():
        np.testing.assert_array_equal(state.z[site], value)
    assert state.z["eta"].shape == (3, 5)
    mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    sparse = scipy.sparse.csr_matrix(X[:100])
    mcmc.run(random.key(1), sparse, landmarks, init_params=start, num_topics=5)
    data = to_datatree(mcmc)["constant_data"]
    again = scipy.sparse.csr_matrix((data["X_data"], data["X_indices"], data["X_indptr"]), shape=data["X_shape"].values)
    assert (again != sparse).nnz == 0
    draws = mcmc.get_samples()
    assert np.all(np.asarray(draws["y"])[:, :15] == y[:15])
    plain, margin = ctm_predict(first.get_samples(), X[100:]), mmctm_predict(draws, X[100:])
    scores = [np.mean(np.asarray(found.y) == y[100:]) for found in (plain, margin)]
    print("accuracy without and with a margin", scores)
    assert min(scores) > 0.6
    np.testing.assert_allclose(margin.probabilities.sum(1), 1, rtol=1e-4)
    assert margin.proportions.shape == (50, 5)


@pytest.mark.parametrize("name", ["ctm", "mmctm"])
def test_labels_of_new_documents_by_enumeration(name):
    rng = np.random.default_rng(0)
    documents, copies = [(0, 0, 1, 2), (1, 2, 3), (3,)], 64
    phi, mu, gamma = rng.dirichlet(np.ones(4), size=3), rng.dirichlet(np.full(3, 0.3), size=2), np.array([0.3, 0.7])
    eta, settings = rng.normal(size=(2, 3)), {"alpha": 0.5}
    if name == "mmctm":
        settings |= {"cost": 0.8, "ell": 1.0}
    exact = np.zeros((3, 2))
    for d, k in itertools.product(range(3), range(2)):
        for z in itertools.product(range(3), repeat=len(documents[d])):
            n = np.bincount(z, minlength=3)
            log = np.log(gamma[k]) + log_topics(n, 0.5 * mu[k]) + np.log(phi[list(z), list(documents[d])]).sum()
            if name == "mmctm":
                log -= 2 * settings["cost"] * loss(name, [n / n.sum()], [k], eta[None], settings)[0]
            exact[d, k] += np.exp(log)
    exact /= exact.sum(1, keepdims=True)
    X = np.tile([np.bincount(words, minlength=4) for words in documents], (copies, 1))
    draws = {"phi": phi, "mu": mu, "gamma": gamma, "eta": eta}
    draws = {site: np.tile(value.astype(np.float32), (40,) + (1,) * value.ndim) for site, value in draws.items()}
    found = {"ctm": ctm_predict, "mmctm": mmctm_predict}[name](draws, X, num_sweeps=5, **settings)
    found = np.asarray(found.probabilities)[:, 0].reshape(copies, 3)
    scores = (found.mean(0) - exact[:, 0]) / (found.std(0, ddof=1) / copies**0.5)
    print(f"exact {exact[:, 0].round(3)}, largest |z| {np.abs(scores).max():.2f}")
    assert np.abs(scores).max() < MAX_Z


def test_predictions_refuse_what_does_not_fit():
    draws = {"phi": np.full((2, 3, 4), 0.25), "eta": np.zeros((2, 2, 3))}
    with pytest.raises(ValueError, match=r"X must have 4 columns, .* found shape \(1, 5\)"):
        medlda_predict(draws, np.ones((1, 5), int))
    with pytest.raises(ValueError, match="found no eta"):
        medlda_predict({"phi": draws["phi"]}, np.ones((1, 4), int))
    with pytest.raises(ValueError, match=r"found phi of shape \(3, 4\)"):
        medlda_transform({"phi": draws["phi"][0]}, np.ones((1, 4), int))
    with pytest.raises(ValueError, match="X must hold counts"):
        medlda_transform(draws, -np.ones((1, 4)))
    with pytest.raises(ValueError, match="found no mu, gamma"):
        ctm_predict(draws, np.ones((1, 4), int))
