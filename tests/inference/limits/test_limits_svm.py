"""The small-variance limits of the SVMs: scikit-learn's contract, LIBLINEAR's optimum, monotone traces."""

import copy
import doctest
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.inference.limits import EMSVC, EMSVR, em_step, svm

TOL = 1e-6


def make_data(kind, n=80, d=5, noise=1.0, offset=0.0, seed=0):
    """``X`` (n, d) and two classes, four classes or real targets; ``offset`` favours the first class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if kind == "regression":
        return X, X @ rng.normal(size=d) + noise * rng.standard_t(2, size=n)
    num_classes = 2 if kind == "binary" else 4
    scores = X @ rng.normal(size=(d, num_classes)) + noise * rng.normal(size=(n, num_classes))
    scores[:, 0] += offset
    return X, np.array(["a", "b", "c", "d"])[np.argmax(scores, axis=1)]


def loss(kind, model, X, y):
    """(n,) losses, written out from the definition."""
    if kind == "regression":
        return np.maximum(0, np.abs(y - model.predict(X)) - model.epsilon)
    s = model.decision_function(X)
    if kind == "binary":
        return np.maximum(0, model.ell - np.where(y == model.classes_[1], 1, -1) * s)
    other = y[:, None] != model.classes_
    return np.max(model.ell * other + s, axis=1) - s[~other]


def objective(kind, model, X, y, weight=1.0):
    """``|W|^2 / (2 nu^2) + 2 c sum_i loss_i`` at the model's coefficients."""
    square = np.sum(model.coef_**2) + np.sum(np.square(model.intercept_))
    return square / (2 * model.prior_scale**2) + 2 * model.cost * np.sum(weight * loss(kind, model, X, y))


def liblinear(kind, model, X, y, weight):
    """A copy of ``model`` with LIBLINEAR's coefficients for the same problem."""
    common = {"tol": 1e-10, "max_iter": 200_000, "fit_intercept": model.fit_intercept, "random_state": 0}
    C = 2 * model.cost * model.prior_scale**2
    if kind == "regression":
        peer, ell = LinearSVR(C=C, epsilon=model.epsilon, loss="epsilon_insensitive", **common), 1.0
    else:
        scheme = "ovr" if kind == "binary" else "crammer_singer"
        peer, ell = LinearSVC(C=C / model.ell, loss="hinge", multi_class=scheme, **common), model.ell
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer.fit(X, y, sample_weight=weight)
    return with_weights(model, ell * peer.coef_, ell * peer.intercept_)


def with_weights(model, coef, intercept):
    """A copy of a fitted ``model`` with other weights."""
    other = copy.copy(model)
    other.coef_, other.intercept_ = coef, intercept
    return other


def duplicated(X, y):
    """Every point twice, and the first ten once more with the targets of others."""
    return np.concatenate([X, X, X[:10]]), np.concatenate([y, y, y[10:20]])


def constant_columns(X, y):
    return np.column_stack([X, np.full(len(X), 3.0), np.zeros(len(X)), X[:, 0]]), y


def scaled(X, y):
    return 1e4 * X, y


# name: arguments of make_data, a change of the data, arguments of the estimator
CASES = {
    "plain": ({}, None, {}),
    "no intercept": ({}, None, {"fit_intercept": False}),
    "noiseless": ({"noise": 0.0}, None, {"cost": 10.0}),
    "duplicated points": ({}, duplicated, {}),
    "fewer points than features": ({"n": 12, "d": 30}, None, {"cost": 100.0}),
    "constant columns": ({}, constant_columns, {}),
    "features times 1e4": ({}, scaled, {}),
    "features times 1e4, noiseless": ({"noise": 0.0}, scaled, {}),
    "unbalanced": ({"offset": 4.0}, None, {}),
    "wide prior": ({}, None, {"prior_scale": 3.0}),
    "narrow prior": ({}, None, {"prior_scale": 0.1}),
    "cost 1e-6": ({}, None, {"cost": 1e-6}),
    "cost 1e-2": ({}, None, {"cost": 1e-2}),
    "cost 1e6": ({}, None, {"cost": 1e6}),
    "cost 1e6, noiseless": ({"noise": 0.0}, None, {"cost": 1e6}),
    "cost 1e6, duplicated": ({}, duplicated, {"cost": 1e6}),
    "margin 0.1": ({}, None, {"ell": 0.1}),
    "margin 7": ({}, None, {"ell": 7.0, "prior_scale": 2.0}),
    "epsilon 0": ({}, None, {"epsilon": 0.0}),
    "epsilon 1": ({}, None, {"epsilon": 1.0}),
}
TABLE = [
    pytest.param(kind, *case, id=f"{kind}: {name}")
    for name, case in CASES.items()
    for kind in ("binary", "multi-class", "regression")
    if not ({"ell", "offset"} if kind == "regression" else {"epsilon"}) & {*case[0], *case[2]}
]


def estimator(kind, **arguments):
    return (EMSVR if kind == "regression" else EMSVC)(tol=TOL, **arguments)


@parametrize_with_checks([EMSVC(), EMSVR()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("kind", "data", "change", "arguments"), TABLE)
def test_optimum(kind, data, change, arguments, weighted):
    X, y = make_data(kind, **data)
    if change:
        X, y = change(X, y)
    weight = np.random.default_rng(1).integers(0, 4, len(X)) / 2 if weighted else np.ones(len(X))
    model = estimator(kind, **arguments).fit(X, y, sample_weight=weight)  # a warning would be an error

    J = model.objective_
    zero = with_weights(model, 0 * model.coef_, 0 * model.intercept_)
    assert J[0] == pytest.approx(objective(kind, zero, X, y, weight), rel=1e-12)
    assert J[-1] == pytest.approx(objective(kind, model, X, y, weight), rel=1e-8)
    assert np.all(np.diff(J) <= 0)
    assert len(J) > model.n_iter_
    assert model.dual_gap_ <= TOL * J[-1]

    peer = objective(kind, liblinear(kind, model, X, y, weight), X, y, weight)
    assert J[-1] - model.dual_gap_ <= peer * (1 + 1e-12)
    assert J[-1] <= peer * (1 + TOL)
    if model.cost < 1e6 and change is not scaled:  # beyond, LIBLINEAR stops short of the optimum
        assert J[-1] >= peer * (1 - TOL)


@pytest.mark.parametrize("kind", ["binary", "multi-class", "regression"])
def test_gap_bounds_the_distance_to_the_optimum(kind):
    X, y = make_data(kind)
    best = estimator(kind, cost=3.0).fit(X, y)
    for max_iter in (1, 2, 4, 6, 8):
        with pytest.warns(ConvergenceWarning, match=f"max_iter={max_iter} at a relative duality gap of"):
            early = estimator(kind, cost=3.0, max_iter=max_iter).fit(X, y)
        assert early.n_iter_ == max_iter
        distance = early.objective_[-1] - best.objective_[-1]
        assert 0 < distance <= early.dual_gap_
        assert np.all(np.diff(early.objective_) <= 0)


@pytest.mark.parametrize(
    "problem",
    [
        svm.hinge_problem(np.eye(6, 3), np.array([1.0, -1, 1, 1, -1, -1]), 0.5, np.arange(1.0, 7), 0.7),
        svm.multiclass_problem(np.eye(6, 3), np.array([0, 1, 2, 3, 0, 1]), 4, 0.5, np.arange(1.0, 7), 0.7),
        svm.epsilon_problem(np.eye(6, 3), np.arange(6.0) - 2, 0.5, np.arange(1.0, 7), 0.7),
    ],
    ids=["binary", "multi-class", "regression"],
)
def test_gap_is_primal_less_dual(problem):
    rng = np.random.default_rng(0)
    W, V = rng.normal(size=(2, problem.D.shape[1], 3))
    p = rng.dirichlet(np.ones(len(problem.D)), size=6)

    def lagrangian(W):  # J with the weighted mean of the pieces for their maximum
        S = problem.X @ W.T
        return (
            0.35 * np.sum(W**2)
            + problem.c @ np.sum(p * (problem.b + S @ problem.D.T), axis=1)
            - np.sum(problem.c[:, None] * problem.e * S)
        )

    slope = np.array([lagrangian(E) - lagrangian(-E) for E in np.eye(V.size).reshape(-1, *V.shape)]) / 2
    minimiser = -slope.reshape(V.shape) / 0.7
    assert lagrangian(minimiser) <= lagrangian(minimiser + 1e-3 * V)
    gap = sum(svm.duality_gap(problem, W, p))
    assert gap == pytest.approx(svm.objective(problem, W) - lagrangian(minimiser), rel=1e-10)


@pytest.mark.parametrize("kind", ["binary", "multi-class", "regression"])
def test_tight_tolerance(kind):
    X, y = make_data(kind, n=300)
    model = estimator(kind).set_params(tol=1e-11).fit(X, y)
    assert model.dual_gap_ <= 1e-11 * model.objective_[-1]


@pytest.mark.parametrize("kind", ["binary", "multi-class", "regression"])
def test_beyond_float64_is_finite_and_warned_of(kind):
    X, y = duplicated(*constant_columns(*make_data(kind, noise=0.0)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = estimator(kind, cost=1e6).fit(1e8 * X, y)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.diff(model.objective_) <= 0)
    converged = model.dual_gap_ <= TOL * model.objective_[-1]
    assert [w.category for w in caught] == ([] if converged else [ConvergenceWarning])


@pytest.mark.parametrize("cost", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("seed", range(5))
def test_em_step_never_raises_the_objective(seed, cost):
    rng = np.random.default_rng(seed)
    A, tau, w = rng.normal(size=(40, 4)), rng.normal(size=40), rng.normal(size=4)
    c = cost * rng.uniform(0.5, 2, size=40)

    def J(w):
        return 0.7 * w @ w / 2 + 2 * c @ np.maximum(0, tau - A @ w)

    values = [J(w)]
    for _ in range(8):
        w = em_step(A, tau, w, c, 0.7)
        values.append(J(w))
    assert np.all(np.diff(values) <= 1e-12 * values[0])

    for _ in range(300):  # further on, rows reach the margin and need the floor
        w = em_step(A, tau, w, c, 0.7, floor=1e-6)
    b = np.column_stack([np.zeros(40), tau])
    problem = svm.PrimalProblem(A, b, np.array([[0.0], [-1.0]]), np.zeros((40, 1)), 2 * c, 0.7)
    mode = svm.posterior_mode(problem, max_iter=100, tol=1e-9)
    assert mode.gap <= 1e-9 * mode.objective[-1]
    assert mode.objective[-1] * (1 - 1e-9) <= J(w) <= mode.objective[-1] * (1 + 1e-3)


def test_residuals_within_epsilon_cost_nothing():
    model = EMSVR(epsilon=0.5).fit(np.eye(3), [0.1, -0.5, 0.3])
    assert model.coef_.tolist() == [0, 0, 0]
    assert model.objective_.tolist() == [0]
    assert model.dual_gap_ == 0


@pytest.mark.parametrize(("kind", "shape", "scores"), [("binary", (1, 5), (80,)), ("multi-class", (4, 5), (80, 4))])
def test_classifier_shapes_and_labels(kind, shape, scores):
    X, y = make_data(kind, noise=0.0)
    model = EMSVC(cost=100.0).fit(X, y)
    assert model.coef_.shape == shape
    assert model.intercept_.shape == shape[:1]
    assert model.decision_function(X).shape == scores
    assert model.score(X, y) == 1
    assert EMSVC(fit_intercept=False).fit(X, y).intercept_.tolist() == [0.0] * shape[0]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (model(**{name: value}), name)
        for model, names in ((EMSVC, ("cost", "ell", "prior_scale", "tol")), (EMSVR, ("cost", "prior_scale", "tol")))
        for name in names
        for value in (0.0, -1.0, np.inf, np.nan, "1", None)
    ]
    + [(EMSVR(epsilon=value), "epsilon") for value in (-0.1, np.inf, "auto")]
    + [(model(max_iter=value), "max_iter") for model in (EMSVC, EMSVR) for value in (0, 2.5, True)],
    ids=str,
)
def test_invalid_parameters_are_named(model, name):
    with pytest.raises(ValueError, match=f"{name}={getattr(model, name)!r}: {name} must be"):
        model.fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("y", "weight", "message"),
    [
        ([0, 1, 1], [1.0, -1.0, 1.0], "sample_weight ranges from -1 to 1"),
        ([0, 1, 1], [0.0, 1.0, 1.0], "y has one class with positive weight"),
        ([1, 1, 1], None, "y has one class"),
    ],
)
def test_invalid_data_are_named(y, weight, message):
    with pytest.raises(ValueError, match=message):
        EMSVC().fit([[0.0], [1.0], [2.0]], y, sample_weight=weight)


def test_features_beyond_float64_are_named():
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="scale the features"):
        EMSVC().fit([[-1e200], [1e200]], [0, 1])


def test_examples_in_docstrings():
    result = doctest.testmod(svm)
    assert result.attempted > 5
    assert result.failed == 0
