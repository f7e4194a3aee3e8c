"""The Crammer-Singer dual: certificates from the definition, agreement with scikit-learn, warm starts, the edges."""

import sys
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, LinearSVC

from regbayes.inference.duality import crammer_singer, objectives
from regbayes.inference.limits import EMSVC

module = sys.modules["regbayes.inference.duality.crammer_singer"]


def make_data(n=80, d=4, num_classes=3, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.argmax(X @ rng.normal(size=(d, num_classes)) + noise * rng.normal(size=(n, num_classes)), axis=1)
    return X, y


def price(num_classes, seed=0):
    """A label-cost matrix."""
    return np.random.default_rng(seed + 5).uniform(0.5, 2, (num_classes, num_classes)) * (1 - np.eye(num_classes))


def definition(K, y, cost, alpha, ell, offset):
    """The primal at ``W = sum_i alpha_i x_i'`` and the dual, from the definition, datum by datum."""
    scores, primal, dual = K @ alpha, np.sum(alpha * (K @ alpha)) / 2, -np.sum(alpha * (K @ alpha)) / 2
    cost = np.broadcast_to(cost, len(y))
    for i, true in enumerate(y):
        margins = [ell[true, k] + offset[i, k] + scores[i, k] for k in range(alpha.shape[1])]
        primal += cost[i] * (max(margins) - margins[true])
        omega = cost[i] * (np.arange(alpha.shape[1]) == true) - alpha[i]
        assert np.min(omega) >= -1e-12 * cost[i]
        assert np.sum(omega) == pytest.approx(cost[i], rel=1e-10)
        dual += sum(omega[k] * (ell[true, k] + offset[i, k] - offset[i, true]) for k in range(alpha.shape[1]))
    return primal, dual


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "costs-prices-offsets"])
@pytest.mark.parametrize("num_classes", [2, 3, 7])
@pytest.mark.parametrize("form", ["rows", "gram", "rbf"])
def test_the_gap_is_a_certificate(form, num_classes, extras, size):
    X, y = make_data(num_classes=num_classes)
    rng = np.random.default_rng(1)
    cost = size * (rng.uniform(0, 2, len(y)) * (rng.uniform(size=len(y)) < 0.9) if extras else np.ones(len(y)))
    ell = price(num_classes) if extras else 1 - np.eye(num_classes)
    offset = rng.normal(size=(len(y), num_classes)) if extras else np.zeros((len(y), num_classes))
    K = rbf_kernel(X, gamma=0.3) if form == "rbf" else X @ X.T
    found = crammer_singer(
        X if form == "rows" else K,
        y,
        cost,
        num_classes=num_classes,
        ell=ell if extras else 1.0,
        offset=offset if extras else None,
        precomputed=form != "rows",
    )
    primal, dual = definition(K, y, cost, found.alpha, ell, offset)
    assert found.converged
    assert found.gap <= 1e-6
    assert found.primal == pytest.approx(primal, rel=1e-9)
    assert found.dual >= dual - 1e-9 * primal
    assert primal - found.dual <= 1.01e-6 * primal
    assert found.scores == pytest.approx(K @ found.alpha, abs=1e-8 * np.max(np.abs(found.scores)))
    assert objectives(found.alpha, found.scores, y, cost, ell=ell, offset=offset)[0] == pytest.approx(primal)
    if form == "rows":
        assert found.weights == pytest.approx(found.alpha.T @ X, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("C", [0.01, 0.3, 3.0])
def test_it_agrees_with_liblinear(C):
    X, y = make_data(300, 6, 5)
    U = np.column_stack([X, np.ones(len(X))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        theirs = LinearSVC(multi_class="crammer_singer", C=C, tol=1e-7, max_iter=100_000).fit(X, y)
    W = np.column_stack([theirs.coef_, theirs.intercept_])
    scores = U @ W.T
    loss = np.max(1 - np.eye(5)[y] + scores, axis=1) - scores[np.arange(300), y]
    ours = crammer_singer(U, y, C)
    assert ours.primal == pytest.approx(np.sum(W**2) / 2 + C * np.sum(loss), rel=1e-4)
    assert ours.primal <= (np.sum(W**2) / 2 + C * np.sum(loss)) * (1 + 1e-6)
    assert ours.weights == pytest.approx(W, abs=0.02)


def test_it_agrees_with_the_primal_limit():
    X, y = make_data(150, 4, 4)
    mode = EMSVC(cost=0.5, tol=1e-8).fit(X, y)
    found = crammer_singer(np.column_stack([X, np.ones(150)]), y, 1.0, tol=1e-8)
    assert found.primal == pytest.approx(mode.objective_[-1], rel=1e-7)


def hinge_objective(K, sign, C, coef, intercept):
    """``|f|^2/2 + C sum (1 - y f)_+`` of ``f = K coef + intercept``, the intercept free."""
    return coef @ K @ coef / 2 + C * np.sum(np.maximum(0, 1 - sign * (K @ coef + intercept)))


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_two_classes_with_rbf_agree_with_libsvm(C):
    # Data with a mirror image of the other label: LIBSVM's free intercept is 0, and both objectives are the same.
    X, y = make_data(60, 2, 2)
    X, sign = np.concatenate([X, -X]), np.concatenate([2 * y - 1, 1 - 2 * y])
    K = rbf_kernel(X, gamma=0.5)
    theirs = SVC(C=C, kernel="precomputed", tol=1e-8).fit(K, sign)
    coef = np.zeros(120)
    coef[theirs.support_] = theirs.dual_coef_[0]
    assert abs(theirs.intercept_[0]) < 1e-5
    found = crammer_singer(K / 2, (sign > 0).astype(int), C, precomputed=True)  # the pair w/2, -w/2 costs half of w
    assert found.primal == pytest.approx(hinge_objective(K, sign, C, coef, 0.0), rel=2e-6)
    f = found.scores[:, 1] - found.scores[:, 0]
    assert f == pytest.approx(theirs.decision_function(K), abs=2e-2)


def test_a_wide_prior_on_the_intercept_is_libsvms_free_one():
    X, y = make_data(100, 2, 2, seed=3)
    X += 0.5
    K, sign, wide = rbf_kernel(X, gamma=0.5), 2 * y - 1, 1e4
    theirs = SVC(C=1.0, kernel="precomputed", tol=1e-8).fit(K, sign)
    coef = np.zeros(100)
    coef[theirs.support_] = theirs.dual_coef_[0]
    found = crammer_singer((K + wide) / 2, y, 1.0, precomputed=True, tol=1e-8)
    ours = (found.alpha[:, 1] - found.alpha[:, 0]) / 2
    value = hinge_objective(K, sign, 1.0, ours, wide * np.sum(ours))
    assert value == pytest.approx(hinge_objective(K, sign, 1.0, coef, theirs.intercept_[0]), rel=1e-4)


@pytest.mark.parametrize("precomputed", [False, True])
def test_both_methods_find_the_same(precomputed, monkeypatch):
    X, y = make_data(120, 3, 4)
    inputs = X @ X.T if precomputed else X
    monkeypatch.setattr(module, "_patience", lambda problem: np.inf)
    ascent = crammer_singer(inputs, y, 0.5, precomputed=precomputed)
    monkeypatch.setattr(module, "_patience", lambda problem: 1)
    interior = crammer_singer(inputs, y, 0.5, precomputed=precomputed)
    assert ascent.gap <= 1e-6
    assert interior.gap <= 1e-6
    assert interior.n_iter < ascent.n_iter
    assert interior.primal == pytest.approx(ascent.primal, rel=2e-6)
    assert np.mean(np.any(interior.alpha, axis=1)) <= np.mean(np.any(ascent.alpha, axis=1)) + 0.05


def test_large_costs_end_in_interior_point_steps():
    X, y = make_data(400, 5, 4)
    found = crammer_singer(100 * X, y, 100.0)
    assert found.gap <= 1e-6


def test_a_warm_start_saves_sweeps(monkeypatch):
    monkeypatch.setattr(module, "_patience", lambda problem: np.inf)
    X, y = make_data(200, 5, 3)
    cold = crammer_singer(X, y, 0.5)
    assert crammer_singer(X, y, 0.5, alpha=cold.alpha).n_iter == 0
    cost = 0.5 * np.random.default_rng(0).uniform(0.95, 1.05, 200)
    warm = crammer_singer(X, y, cost, alpha=cold.alpha * (cost / 0.5)[:, None], tol=1e-4)
    assert warm.gap <= 1e-4
    assert warm.n_iter < crammer_singer(X, y, cost, tol=1e-4).n_iter
    anything = crammer_singer(X, y, 0.5, alpha=np.random.default_rng(1).normal(size=(200, 3)))
    assert anything.primal == pytest.approx(cold.primal, rel=2e-6)


def test_costs_count_data():
    X, y = make_data(60, 3, 3)
    count = np.random.default_rng(0).integers(0, 4, 60)
    found = crammer_singer(X, y, 0.2 * count)
    repeated = crammer_singer(np.repeat(X, count, axis=0), np.repeat(y, count), 0.2)
    assert found.primal == pytest.approx(repeated.primal, rel=2e-6)
    assert not np.any(found.alpha[count == 0])


def test_edges():
    none = crammer_singer(np.ones((3, 2)), np.array([0, 1, 2]), 0.0)
    assert (none.primal, none.gap, none.converged) == (0.0, 0.0, True)
    zeros = crammer_singer(np.zeros((4, 2)), np.array([0, 1, 2, 0]), 1.0)
    assert zeros.primal == pytest.approx(4.0)
    assert zeros.gap <= 1e-6
    single = crammer_singer(np.array([[2.0]]), np.array([1]), 1.0, num_classes=3)
    assert single.scores[0, 1] - single.scores[0, 0] == pytest.approx(1.0, abs=1e-4)
    same = crammer_singer(np.ones((10, 1)), np.arange(10) % 2, 1.0)
    assert same.primal == pytest.approx(10.0)
    X, y = make_data(311, 21, 27, noise=0.1)
    assert crammer_singer(X, y, 1.0, num_classes=27).gap <= 1e-6
    limited = crammer_singer(X, y, 10.0, num_classes=27, max_iter=2)
    assert not limited.converged
    assert limited.n_iter == 2
    assert limited.dual <= limited.primal


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": -1.0}, "cost must be 0 or more"),
        ({"cost": np.nan}, "cost must be 0 or more"),
        ({"y": np.array([0.0, 1.0, 1.0])}, "y must be a vector of integer labels"),
        ({"y": np.array([0, 1])}, "inputs must have shape"),
        ({"num_classes": 1}, "y must hold labels 0..0, found 0..1"),
        ({"precomputed": True}, r"inputs must have shape \(3, 3\), a Gram matrix"),
        ({"ell": np.ones((2, 2))}, "zero diagonal"),
        ({"ell": -1.0}, "ell must be a number of at least 0"),
        ({"offset": np.ones((3, 3))}, r"offset must have shape \(3, 2\)"),
        ({"alpha": np.ones((2, 2))}, r"alpha must have shape \(3, 2\)"),
        ({"inputs": np.full((3, 2), np.inf)}, "inputs must be finite"),
        ({"tol": 0.0}, "tol must be positive"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    given = {"inputs": np.eye(3)[:, :2], "y": np.array([0, 1, 1]), "cost": 1.0, **arguments}
    with pytest.raises(ValueError, match=message):
        crammer_singer(given.pop("inputs"), given.pop("y"), given.pop("cost"), **given)
