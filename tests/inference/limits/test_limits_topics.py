"""Topic models in the small-variance limit: the objective after every single update, the tempered programs, edges."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from numpyro.infer.util import log_density
from scipy.optimize import minimize
from scipy.special import rel_entr, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes import models
from regbayes.datasets import make_corpus
from regbayes.inference.limits import MaxMarginTopicMeans, MedLDAMeans
from regbayes.inference.limits.topics import TopicDescent, barycentre
from regbayes.inference.mean_field.medlda_descent import Classes, Responses

CASES = ["classification", "regression", "clusters", "landmarks"]


@parametrize_with_checks([MedLDAMeans(num_topics=2, max_iter=5), MaxMarginTopicMeans(2, num_topics=2, max_iter=5)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        MedLDAMeans(num_topics=3, max_iter=20),
        MedLDAMeans("regression", num_topics=3, max_iter=20),
        MaxMarginTopicMeans(3, num_topics=3, max_iter=20),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract_of_other_settings(estimator, check):
    check(estimator)


def make_documents(task="classification", num=40, seed=0):
    X, y, _ = make_corpus(num, 30, 4, 3, length=15, task=task, seed=seed)
    X[3] = 0
    return X, y


def definition(descent):
    """``J`` word by word."""
    X, hyper, theta, phi = descent.X, descent.hyper, descent.theta, descent.phi
    (T, V), (D, _) = phi.shape, theta.shape
    J, x = np.sum(descent.eta**2) / (2 * hyper["prior_scale"] ** 2), np.zeros((D, T))
    for d in range(D):
        for l in range(X.indptr[d], X.indptr[d + 1]):
            t, w, n = descent.z[l], X.indices[l], X.data[l]
            J -= n * np.log(theta[d, t] * phi[t, w])
            x[d, t] += n
        x[d] /= max(x[d].sum(), 1e-300)
        y, s = descent.margin.y[d], descent.eta @ x[d]
        if len(s) == 1:
            J += 2 * hyper["cost"] * max(abs(y - s[0]) - descent.margin.epsilon, 0)
        else:
            J += 2 * hyper["cost"] * (np.max(s + descent.margin.ell * (np.arange(len(s)) != y)) - s[y])
        centre = descent.mu[y] if descent.known is not None else np.full(T, 1 / T)
        J += hyper["alpha"] * np.sum(rel_entr(centre, theta[d]))
    J += hyper["beta"] * V * sum(np.sum(rel_entr(np.full(V, 1 / V), row)) for row in phi)
    if descent.known is not None:
        J += hyper["alpha_1"] * sum(np.sum(rel_entr(descent.mu0, row)) for row in descent.mu)
        J += hyper["alpha_0"] * np.sum(rel_entr(np.full(T, 1 / T), descent.mu0))
    return J


def fitted(case, see=lambda update, descent: None, **options):
    X, y = make_documents("regression" if case == "regression" else "classification")
    options = {"num_topics": 4, "tol": 0, "random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if case in ("classification", "regression"):
            model = MedLDAMeans(case, **options)
            model._private = {"observe": see}
            return model.fit(X, y), X, y
        model = MaxMarginTopicMeans(3, **options)
        model._private = {"observe": see}
        landmarks = np.where(np.arange(40) < 9, y, -1) if case == "landmarks" else None
        return model.fit(X, landmarks=landmarks), X, y


@pytest.mark.parametrize("cost", [0.1, 5.0, 100.0])
@pytest.mark.parametrize("case", CASES)
def test_no_update_raises_the_objective(case, cost):
    seen = []
    model, *_ = fitted(case, lambda update, descent: seen.append((update, definition(descent))), cost=cost)
    J = model.objective_
    np.testing.assert_allclose(J[1:], [value for _, value in seen], rtol=1e-10)
    assert np.all(np.diff(J) <= 1e-9 * np.abs(J[:-1]))
    clusters = {"labels", "clusters"} if case in ("clusters", "landmarks") else {"proportions"}
    updates = {update for update, _ in seen}
    assert updates | {"words"} == {"weights", "words", "topics"} | clusters
    assert "words" in updates or cost == 100  # words start where the learner left them
    assert J[-1] < J[0] - 1


@pytest.mark.parametrize("case", ["classification", "regression", "landmarks"])
def test_the_objective_is_the_tempered_program(case):
    """``-log p / B`` tends to ``J`` at the best proportions."""
    rng = np.random.default_rng(0)
    X, T, K = scipy.sparse.csr_matrix([[2.0, 1, 0], [0, 1, 3]]), 2, 2
    z = np.array([0, 1, 1, 0])
    phi, mu, mu0 = rng.dirichlet(np.ones(3), size=T), rng.dirichlet(np.full(T, 5.0), size=K), np.array([0.4, 0.6])
    hyper = {"alpha": 1.5, "beta": 0.4, "cost": 0.7, "ell": 1.0, "prior_scale": 0.8}
    more = {"alpha_0": 2.0, "alpha_1": 3.0} if case == "landmarks" else {}
    y = np.array([1, 0]) if case != "regression" else np.array([0.9, -0.7])
    eta = rng.normal(size=(1 if case == "regression" else K, T))
    margin = Responses(y, 0.2) if case == "regression" else Classes(y, 1.0, K)
    known = y if case == "landmarks" else None
    means = (mu, mu0) if case == "landmarks" else (mu[:0], np.full(T, 1 / T))
    descent = TopicDescent(X, margin, known, phi, np.full((2, T), 1 / T), means, eta, {**hyper, **more})
    descent.z = z
    descent.fit_proportions()
    J = descent.value(eta)

    def error(B):
        settings = {name: B * value for name, value in {**hyper, **more}.items()}
        settings.update(num_topics=T, prior_scale=hyper["prior_scale"] / B**0.5)
        settings["epsilon" if case == "regression" else "ell"] = 0.2 if case == "regression" else 1.0
        if case == "regression":
            del settings["ell"]
        sites = {
            "phi": phi,
            "z": np.repeat(z, (B * X.data).astype(int)),
            "eta": eta[0] if case == "regression" else eta,
        }
        program = models.medlda_regression if case == "regression" else models.medlda
        if case == "landmarks":
            sites.update(mu=mu, mu0=mu0, gamma=np.array([0.3, 0.7]), y=y)
            program = models.mmctm
        sites = {name: jnp.array(value) for name, value in sites.items()}
        found, _ = log_density(program, ((B * X).toarray().astype(int), y), settings, sites)
        return abs(-float(found) / B - J)

    with jax.enable_x64(True):
        errors = error(100), error(1000)
    assert errors[1] < errors[0] / 4 < 0.1 * J


def test_barycentres_are_optimal():
    rng = np.random.default_rng(0)
    for a, b in ((5.0, 2.0), (0.1, 3.0), (300.0, 0.01)):
        g, anchor = np.log(rng.dirichlet(np.ones(4))), rng.dirichlet(np.ones(4))

        def price(m, a=a, b=b, g=g, anchor=anchor):
            return a * np.sum(m * (np.log(m) - g)) + b * np.sum(rel_entr(anchor, m))

        m = barycentre(g, a, b, anchor)
        assert np.sum(m) == pytest.approx(1.0, rel=1e-14)
        best = minimize(lambda u, price=price: price(softmax(u)), np.log(anchor))
        assert price(m) <= best.fun + 1e-9 * abs(best.fun)
    np.testing.assert_array_equal(barycentre(g, 0.0, 1.0, anchor), anchor)


@pytest.mark.parametrize("case", ["classification", "landmarks"])
def test_words_are_where_they_cost_least(case):
    """At the end no single word does better elsewhere."""
    ends = []
    fitted(case, lambda update, descent: ends.append(descent))
    descent = ends[-1]
    descent.assign()
    before = descent.value(descent.eta)
    for l in range(0, len(descent.z), 7):
        old = descent.z[l]
        for t in range(4):
            descent.z[l] = t
            assert descent.value(descent.eta) >= before - 1e-9 * before
        descent.z[l] = old


def test_predictions_of_new_documents():
    X, y, _ = make_corpus(300, 80, 8, 3, length=50, alpha_1=5.0, seed=2)
    model = MedLDAMeans(num_topics=5, random_state=0).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.8
    assert model.transform(X[:3]).sum(axis=1) == pytest.approx(1.0)
    landmarks = np.where(np.arange(200) < 30, y[:200], -1)
    clusters = MaxMarginTopicMeans(None, num_topics=8, random_state=0)
    labels = clusters.fit_predict(X[:200], landmarks=landmarks)
    np.testing.assert_array_equal(labels[:30], y[:30])
    assert np.mean(labels == y[:200]) > 0.8
    assert np.mean(clusters.predict(X[200:]) == y[200:]) > 0.75
    assert clusters.transform(X[200:]).shape == (100, 8)
    assert len(clusters.top_words([str(w) for w in range(80)], 3)[7]) == 3


def test_responses_of_new_documents():
    X, y, _ = make_corpus(400, 80, 8, 3, length=60, task="regression", noise=0.05, seed=1)
    model = MedLDAMeans("regression", num_topics=8, random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.8


@pytest.mark.parametrize("case", ["classification", "landmarks"])
def test_sparse_dense_and_empty_documents(case):
    model, X, _ = fitted(case)
    empty = np.zeros((1, 30))
    assert model.transform(empty).tolist() == [[0.0] * 4]
    assert model.predict(empty).shape == (1,)
    np.testing.assert_array_equal(model.predict(X), model.predict(scipy.sparse.csr_matrix(X)))


def test_bad_arguments_are_refused():
    X, y = make_documents()
    with pytest.raises(ValueError, match=r"landmarks must lie in 0..2, or be -1 for unknown, found 5"):
        MaxMarginTopicMeans(3).fit(X, landmarks=np.full(40, 5))
    with pytest.raises(ValueError, match=r"landmarks must have a document for every cluster 0..3, found none for 3"):
        MaxMarginTopicMeans(4).fit(X, landmarks=y)
    with pytest.raises(ValueError, match="Negative values in data passed to X, the counts of words"):
        MaxMarginTopicMeans(3).fit(X - 1)
    with pytest.raises(ValueError, match="40 documents without any word"):
        MedLDAMeans().fit(0 * X, y)
    with pytest.raises(ValueError, match="cost="):
        MedLDAMeans(cost=0.0).fit(X, y)
    with pytest.raises(ValueError, match="alpha_1="):
        MaxMarginTopicMeans(3, alpha_1=-1.0).fit(X)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 before the objective settled"):
        MedLDAMeans(num_topics=3, max_iter=1, random_state=0).fit(X, y)
