"""MedLDA by mean field: the objective after every single update, optimal words, scikit-learn's contract."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy.special import digamma, gammaln, softmax, xlogy
from scipy.stats import dirichlet
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.datasets import make_corpus
from regbayes.inference.limits import EMSVC, EMSVR
from regbayes.inference.mean_field import MedLDA
from regbayes.inference.mean_field.medlda_descent import dirichlet_divergence
from regbayes.inference.mean_field.medlda_words import _digamma, fit_words

TASKS = ["classification", "regression"]


@parametrize_with_checks([MedLDA(num_topics=2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([MedLDA(num_topics=3), MedLDA("regression", num_topics=3)])
def test_scikit_learn_contract_of_other_settings(estimator, check):
    check(estimator)


def make_documents(task, num=40, seed=0, **options):
    """Documents of different lengths, one of them empty."""
    X, y, _ = make_corpus(num, 30, 4, 3, length=15, task=task, seed=seed, **options)
    X[:, :10] += np.random.default_rng(seed).integers(0, 2, (num, 10))
    X[3] = 0
    return X, y


def responsibilities(fit):
    """(D, V, T) ``q(z)``, and the counts (D, V)."""
    X = fit.X.toarray()
    ratio = scipy.sparse.csr_matrix((fit.words.ratio, fit.X.indices, fit.X.indptr), shape=X.shape).toarray()
    held = ratio[:, :, None] * np.exp(fit.words.log_B)[:, None, :] * np.exp(fit.words.log_columns)
    return held / np.where(X > 0, X, 1)[:, :, None], X


def definition(fit):
    """``J`` term by term."""
    q, X = responsibilities(fit)
    np.testing.assert_allclose(q.sum(axis=2), X > 0, atol=1e-12)
    gamma, lam, hyper = fit.gamma, fit.topics.held, fit.hyper
    log_theta = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    log_phi = digamma(lam) - digamma(lam.sum(axis=1, keepdims=True))
    J = np.sum(X[:, :, None] * (xlogy(q, q) - q * (log_theta[:, None, :] + log_phi.T)))
    for rows, prior in ((gamma, hyper.alpha), (lam, hyper.beta)):
        for a in rows:
            b = np.full(len(a), prior)
            log_p = digamma(a) - digamma(a.sum())
            J += gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum() + (a - b) @ log_p
    x = np.einsum("dw,dwt->dt", X, q) / np.maximum(X.sum(axis=1), 1)[:, None]
    J += np.sum(fit.mu**2) / (2 * hyper.prior_scale**2)
    for row, y in zip(x, fit.margin.y, strict=True):
        s = fit.mu @ row
        if len(s) == 1:
            J += hyper.C * max(abs(y - s[0]) - fit.margin.epsilon, 0)
        else:
            J += hyper.C * (np.max(s + fit.margin.ell * (np.arange(len(s)) != y)) - s[y])
    return J


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("C", [0.5, 20.0, 1e3])
@pytest.mark.parametrize("task", TASKS)
def test_no_update_raises_the_objective(task, C, rounds):
    X, y = make_documents(task)
    model = MedLDA(task, num_topics=4, C=C, prior_scale=0.5, max_iter=40, tol=0, random_state=0)
    seen = []
    model._private = {"observe": lambda update, fit: seen.append((update, definition(fit))), "rounds": rounds}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    J = model.objective_
    np.testing.assert_allclose(J, [value for _, value in seen], rtol=1e-10)
    assert np.all(np.diff(J) <= 1e-9 * np.abs(J[:-1]))
    updates = {"start", "words", "topics", "weights"} | ({"proportions"} if rounds == 1 else set())
    assert {update for update, _ in seen} == updates
    assert J[-1] < J[0] - 1


@pytest.mark.parametrize("task", TASKS)
def test_words_are_optimal_under_their_margin(task):
    """No other topics of a document's words do better, and the multipliers bound what any could gain."""
    rng = np.random.default_rng(0)
    T, V, C = 3, 5, 6.0
    phi, log_theta = rng.dirichlet(np.ones(V), size=T), rng.normal(size=(1, T))
    counts = np.array([2.0, 1.0, 4.0, 0.5, 1.0])
    mu = 4 * rng.normal(size=(3, T))
    rows = mu if task == "classification" else np.stack([np.zeros(T), mu[0], -mu[0]])
    for shifts in ([[0.0, 1.0, 1.0]], [[0.0, -0.4, 0.2]], [[0.0, 3.0, 2.0]]):
        margin = rows, np.array(shifts), np.zeros(1, int), C
        omega = np.array([[C, 0.0, 0.0]])
        given = (counts, np.arange(V), np.array([0, V])), phi.T.copy(), log_theta.copy(), margin
        log_B, ratio, _ = fit_words(*given, omega, 1.0, 1, 1e-13)
        q = ratio[:, None] * np.exp(log_B) * phi.T / counts[:, None]

        def price(q, shifts=shifts):
            x = counts @ q / np.sum(counts)
            z = np.sum(counts[:, None] * (xlogy(q, q) - q * (log_theta + np.log(phi).T)))
            return z + C * (np.max(np.array(shifts[0]) + rows @ x) - rows[0] @ x)

        assert np.sum(omega) == pytest.approx(C)
        assert np.min(omega) >= 0
        for size in (1e-4, 1e-2, 1.0):  # convex: no direction leads down
            nearby = [softmax(np.log(q) + size * rng.normal(size=q.shape), axis=1) for _ in range(300)]
            assert min(map(price, nearby)) > price(q)


def test_special_functions():
    x = np.array([1e-3, 0.05, 0.7, 3.0, 9.99, 40.0, 1e5])
    assert [_digamma(value) for value in x] == pytest.approx(digamma(x), rel=1e-13)
    a, rng = np.array([0.4, 2.0, 1.3]), np.random.default_rng(0)
    draws = rng.dirichlet(a, 200_000).T
    draws = draws[:, np.all(draws > 0, axis=0)]
    terms = dirichlet.logpdf(draws, a) - dirichlet.logpdf(draws, np.full(3, 0.7))
    error = np.std(terms) / np.sqrt(len(terms))
    assert abs(dirichlet_divergence(a[None], 0.7) - np.mean(terms)) < 4 * error


@pytest.mark.parametrize("task", TASKS)
def test_weights_are_those_of_a_support_vector_machine(task):
    X, y = make_documents(task)
    model = MedLDA(task, num_topics=4, C=5.0, tol=1e-3, dual_tol=1e-8, random_state=0)
    model._private = {"observe": lambda update, fit: inputs.append(fit.shares) if update == "weights" else None}
    inputs = []
    model.fit(X, y)
    options = {"cost": 2.5, "prior_scale": 0.1, "fit_intercept": False, "tol": 1e-8}
    svm = EMSVR(epsilon=0.1, **options) if task == "regression" else EMSVC(**options)
    svm.fit(inputs[-1], y)
    assert model.coef_ == pytest.approx(svm.coef_, abs=1e-3)


def test_more_accurate_than_topics_found_without_labels():
    X, y, _ = make_corpus(700, 200, 20, 5, length=60, alpha=5.0, alpha_1=5.0, seed=0)
    train, test = slice(0, 400), slice(400, 700)
    model = MedLDA(num_topics=5, random_state=0).fit(X[train], y[train])
    lda = make_pipeline(LatentDirichletAllocation(5, random_state=0), LinearSVC(C=10.0)).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > lda.score(X[test], y[test]) + 0.03 > 0.8
    assert len(np.unique(model.coef_.round(6), axis=0)) == 5


def test_responses_of_new_documents():
    X, y, _ = make_corpus(400, 80, 8, 3, length=60, task="regression", noise=0.05, seed=1)
    model = MedLDA("regression", num_topics=8, random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.8


def test_two_classes_and_names():
    X, y, _ = make_corpus(120, 40, 4, 2, seed=0)
    names = np.array(["no", "yes"])[y]
    model = MedLDA(num_topics=3, C=20.0, random_state=0).fit(X, names)
    assert model.coef_.shape == (2, 3)
    f = model.decision_function(X)
    assert f == pytest.approx(model.transform(X) @ (model.coef_[1] - model.coef_[0]))
    np.testing.assert_array_equal(model.predict(X), np.where(f > 0, "yes", "no"))
    assert model.components_.sum(axis=1) == pytest.approx(1.0)
    assert model.get_feature_names_out().tolist() == ["medlda0", "medlda1", "medlda2"]


def test_sparse_and_dense_are_the_same_and_seeds_decide():
    X, y = make_documents("classification")
    dense, sparse, again, other = (
        MedLDA(num_topics=3, random_state=seed).fit(data, y)
        for data, seed in ((X, 0), (scipy.sparse.csr_array(X), 0), (scipy.sparse.csc_matrix(X), 0), (X, 1))
    )
    np.testing.assert_array_equal(dense.objective_, sparse.objective_)
    np.testing.assert_array_equal(dense.objective_, again.objective_)
    assert other.objective_[-1] != dense.objective_[-1]
    np.testing.assert_array_equal(dense.transform(X), dense.transform(scipy.sparse.csr_matrix(X)))


def test_documents_without_words_and_unseen_words():
    X, y = make_documents("classification")
    model = MedLDA(num_topics=3, C=10.0, random_state=0).fit(X, y)
    new = np.zeros((3, 30))
    new[1, 4] = 2
    shares = model.transform(new)
    assert shares.sum(axis=1) == pytest.approx([0, 1, 0])
    assert model.decision_function(new)[0].tolist() == [0, 0, 0]
    unseen = X.copy()
    unseen[:, 7] = 0
    assert np.isfinite(MedLDA(num_topics=3, random_state=0).fit(unseen, y).decision_function(X)).all()


def test_transform_looks_at_one_document_at_a_time():
    X, y = make_documents("classification", num=30)
    model = MedLDA(num_topics=3, random_state=0).fit(X, y)
    rows = np.concatenate([model.transform(X[[i]]) for i in range(30)])
    np.testing.assert_array_equal(rows, model.transform(X))


def test_top_words():
    X, y = make_documents("classification")
    model = MedLDA(num_topics=3, random_state=0).fit(X, y)
    words = [f"w{i}" for i in range(30)]
    found = model.top_words(words, 4)
    assert (len(found), len(found[0])) == (3, 4)
    for row, topic in zip(found, model.components_, strict=True):
        assert row[0] == words[np.argmax(topic)]
    with pytest.raises(ValueError, match="vocabulary has 29 words, the topics have 30"):
        model.top_words(words[1:])


@pytest.mark.parametrize(
    ("name", "value"),
    [("C", 0.0), ("ell", -1.0), ("alpha", np.inf), ("beta", "a"), ("num_topics", 2.5), ("epsilon", -0.1), ("tol", -1)],
)
def test_invalid_parameters_are_named(name, value):
    X, y = make_documents("classification")
    with pytest.raises(ValueError, match=f"{name}="):
        MedLDA(**{name: value}).fit(X, y)
    with pytest.raises(ValueError, match="task='ranking'"):
        MedLDA("ranking").fit(X, y)


def test_bad_documents_are_refused():
    X, y = make_documents("classification")
    with pytest.raises(ValueError, match="Negative values in data passed to X, the counts of words"):
        MedLDA().fit(X - 1, y)
    with pytest.raises(ValueError, match="X has 40 documents without any word"):
        MedLDA().fit(0 * X, y)
    with pytest.raises(ValueError, match="NaN"):
        MedLDA().fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="y has one class, 0: pass at least two"):
        MedLDA().fit(X, 0 * y)


def test_few_iterations_are_warned_of():
    X, y = make_documents("classification")
    with pytest.warns(ConvergenceWarning, match="max_iter=2 before the objective settled"):
        MedLDA(num_topics=3, max_iter=2, tol=0).fit(X, y)
