"""Infinite latent SVMs by mean field: the objective after every update, stationarity, scikit-learn's contract."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, digamma, logit, xlogy
from scipy.stats import beta as beta_law
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.datasets import make_latent_features, make_latent_tasks
from regbayes.inference.limits import EMSVC, EMSVR
from regbayes.inference.mean_field import ILSVM, MTILSVM
from regbayes.inference.mean_field import ilsvm_equations as equations
from regbayes.inference.mean_field.ilsvm_duals import Cells, evaluate, solve_tasks

NAN = float("nan")


def features_data(n=40, num_classes=3, seed=0):
    X, y, _ = make_latent_features(n, 6, 3, num_classes=num_classes, noise=0.4, seed=seed)
    return X.astype(float), np.array(["a", "b", "c", "d"])[y]


def tasks_data(n=40, loss="hinge", seed=0):
    X, Y, _ = make_latent_tasks(n, 6, 3, num_tasks=4, noise=0.4, loss=loss, seed=seed)
    return X.astype(float), Y.astype(float)


def fit(model, *data, see=lambda fit: None, **given):
    """A fitted model, and after every update its name, the descent, the objective traced and what is seen."""
    seen = []
    model._private = {"observe": lambda update, fit: seen.append((update, fit, fit.trace[-1], see(fit)))}
    return model.fit(*data, **given), seen


# ----- The objective, written again entry by entry


def factors_by_definition(fit, T):
    """The part without classifiers, for the whole matrix ``T`` (R, C)."""
    psi, gamma, aux, loadings, variance = fit.q
    alpha, noise, feature = fit.scales
    (R, C), K = T.shape, psi.shape[1]
    if len(loadings) < C:  # columns were rotated: T = T~ Q'
        Q, triangle = np.linalg.qr(T.T)
        np.testing.assert_allclose(triangle.T, fit.T.values, atol=1e-12)
        loadings = Q @ loadings
    log_v = [digamma(a) - digamma(a + b) for a, b in gamma]
    log_rest = [digamma(b) - digamma(a + b) for a, b in gamma]
    J = 0.0
    for k, (a, b) in enumerate(gamma):  # KL(Beta(a, b) | Beta(alpha, 1))
        J += betaln(alpha, 1) - betaln(a, b) + (a - alpha) * log_v[k] + (b - 1) * log_rest[k]
        bound = sum(aux[k, m] * (log_rest[m] + sum(log_v[:m])) - xlogy(aux[k, m], aux[k, m]) for m in range(k + 1))
        for p in psi[:, k]:
            J += xlogy(p, p) + xlogy(1 - p, 1 - p) - p * sum(log_v[: k + 1]) - (1 - p) * bound
        for w in loadings[:, k]:  # KL(N(w, variance) | N(0, feature))
            J += ((variance[k] + w**2) / feature - 1 - np.log(variance[k] / feature)) / 2
    for r in range(R):
        for c in range(C):  # E (T - z . w)^2 = (T - psi . Phi)^2 + the variances of independent products
            mean = psi[r] @ loadings[c]
            spread = np.sum(psi[r] * (variance + loadings[c] ** 2) - (psi[r] * loadings[c]) ** 2)
            J += ((T[r, c] - mean) ** 2 + spread) / (2 * noise) + np.log(2 * np.pi * noise) / 2
    assert np.sum(aux[:, :K], axis=1) == pytest.approx(1.0)
    return J


def classes_by_definition(fit, model, X, y):
    """Crammer and Singer's loss of expected scores; of two classes the hinge of one vector."""
    weights = model.prior_scale * fit.classifiers.weights * (0.5**0.5 if len(set(y)) == 2 else 1.0)
    constant = np.full((len(X), 1), model.intercept_scaling)
    u = np.column_stack([fit.q.psi[: len(X)]] + [X] * model.extra_features + [constant])
    labels = np.unique(y)
    index = np.searchsorted(labels, y)
    if len(labels) == 2:
        eta = weights[1] - weights[0]
        loss = sum(max(0.0, model.ell - (2 * k - 1) * (row @ eta)) for row, k in zip(u, index, strict=True))
        return eta @ eta / (2 * model.prior_scale**2) + model.C * loss
    loss = 0.0
    for row, k in zip(u, index, strict=True):
        scores = weights @ row
        loss += max(model.ell * (j != k) + scores[j] - scores[k] for j in range(len(labels)))
    return np.sum(weights**2) / (2 * model.prior_scale**2) + model.C * loss


def tasks_by_definition(fit, model, X, targets):
    """``targets`` has (row, task, target) for each."""
    eta = model.prior_scale * fit.classifiers.weights
    u = [X @ fit.q.psi] + [X] * model.extra_features + [np.full((len(X), 1), model.intercept_scaling)]
    f = np.column_stack(u) @ eta.T
    if model.loss == "hinge":
        loss = sum(max(0.0, model.ell - t * f[row, task]) for row, task, t in targets)
    else:
        mean = np.mean([t for _, _, t in targets])
        loss = sum(max(0.0, abs(t - mean - f[row, task]) - model.epsilon) for row, task, t in targets)
    return np.sum(eta**2) / (2 * model.prior_scale**2) + model.C * loss


def assert_never_rises(seen):
    traced, defined = np.array([[J, K] for _, _, J, K in seen]).T
    assert traced == pytest.approx(defined, rel=1e-9)
    assert np.all(np.diff(traced) <= 1e-9 * np.abs(traced[:-1]))


COMMON = {
    "truncation": 4,
    "noise_scale": 0.5,
    "prior_scale": 0.8,
    "concentration": 1.5,
    "max_iter": 30,
    "intercept_scaling": 2.0,
}
CLASS_CASES = {
    "two classes": (2, {}),
    "three classes": (3, {"init": "random"}),
    "inputs": (3, {"extra_features": True}),
    "scales": (2, {"estimate_scales": True}),
    "decoupled": (3, {"coupled": False}),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CLASS_CASES)
def test_no_update_raises_the_objective(case):
    num_classes, arguments = CLASS_CASES[case]
    X, y = features_data(25, num_classes)
    more = features_data(10, seed=5)[0]
    model = ILSVM(C=3.0, ell=1.3, feature_scale=0.9, random_state=0, **COMMON, **arguments)

    def see(fit):
        return factors_by_definition(fit, np.concatenate([X, more])) + classes_by_definition(fit, model, X, y)

    model, seen = fit(model, X, y, see=see, X_unlabelled=more)
    assert_never_rises(seen)
    expected = {"start", "features", "bound", "sticks", "loadings"}
    assert expected | ({"scales"} if case == "scales" else set()) <= {update for update, *_ in seen}
    assert model.objective_[-1] == seen[-1][2]
    assert model.transduction_.shape == (10,)


TASK_CASES = {
    "labels": ("hinge", {}),
    "labels, svd": ("hinge", {"init": "svd", "extra_features": True}),
    "labels, scales": ("hinge", {"estimate_scales": True}),
    "numbers": ("epsilon-insensitive", {"epsilon": 0.2}),
    "numbers, inputs": ("epsilon-insensitive", {"extra_features": True}),
    "decoupled": ("hinge", {"coupled": False}),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("given", ["matrix", "tasks"])
@pytest.mark.parametrize("case", TASK_CASES)
def test_no_update_of_tasks_raises_the_objective(case, given):
    loss, arguments = TASK_CASES[case]
    X, Y = tasks_data(25, loss)
    more = tasks_data(6, seed=5)[0]
    Y[np.random.default_rng(0).uniform(size=Y.shape) < 0.2] = NAN
    task = np.arange(len(X)) % 4
    model = MTILSVM(loss=loss, C=2.0, ell=1.3, feature_scale=0.9, random_state=0, **COMMON, **arguments)
    known = np.argwhere(~np.isnan(Y)).tolist()
    if given == "tasks":
        known = [(row, m) for row, m in known if m == task[row]]
    targets = [(row, m, 2 * Y[row, m] - 1 if loss == "hinge" else Y[row, m]) for row, m in known]
    labels = [{t for _, m, t in targets if m == task} for task in range(4)]
    targets = [(row, m, t) for row, m, t in targets if len(labels[m]) > 1]  # a single label has no margin

    def see(fit):
        factors = factors_by_definition(fit, np.concatenate([X, more]).T)
        return factors + tasks_by_definition(fit, model, X, targets)

    data = (X, Y) if given == "matrix" else (X, Y[np.arange(len(X)), task], task)
    model, seen = fit(model, *data, see=see, X_unlabelled=more)
    assert_never_rises(seen)
    assert {"start", "features", "bound", "sticks", "loadings", "classifiers"} <= {update for update, *_ in seen}


# ----- Stationarity


def stationary(fit, lagrangian, at):
    """Every block's gradient at the end of a fit, by JAX's derivatives of the function that the fit evaluates."""
    q = fit.q
    with jax.enable_x64(True):

        def objective(theta, gamma, aux, loadings, log_variance, weights):
            psi = jax.nn.sigmoid(theta)
            lower = jnp.tril(jnp.ones(aux.shape, bool))
            laws = jnp.where(lower, jax.nn.softmax(jnp.where(lower, aux, -1e30), axis=1), 0.0)
            factors = equations.Factors(psi, gamma, laws, loadings, jnp.exp(log_variance))
            return equations.factor_objective(factors, fit.T, fit.scales) + lagrangian(psi, weights)

        theta = logit(np.clip(q.psi, 1e-15, 1 - 1e-15))
        start = (theta, q.gamma, np.log(np.maximum(q.aux, 1e-300)), q.loadings, np.log(q.variance), at)
        blocks = [jnp.asarray(np.array(block)) for block in start]
        value, gradients = jax.jit(jax.value_and_grad(objective, argnums=tuple(range(6))))(*blocks)
    assert float(value) == pytest.approx(fit.objective, rel=1e-8)
    largest = max(float(np.max(np.abs(gradient))) for gradient in gradients)
    print(f"largest gradient {largest:.1e}")
    assert largest < 1e-4


CONVERGED = {"tol": 1e-12, "dual_tol": 1e-11, "max_iter": 2000, "random_state": 0, "truncation": 3}


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_gradient_vanishes_at_a_fixed_point(num_classes):
    X, y = features_data(30, num_classes)
    _, seen = fit(ILSVM(C=1.0, noise_scale=1.0, **CONVERGED), X, y)
    descent = seen[-1][1]
    margin, alpha = descent.margin, descent.multipliers

    def lagrangian(psi, weights):
        """The maximum over labels as ``sum_y omega_y a(y)``: features and classifiers share their multipliers."""
        scores = margin.scale * jnp.concatenate([psi, jnp.asarray(margin.inputs)], axis=1) @ weights.T
        return jnp.sum(weights**2) / 2 - jnp.sum(alpha * (scores + margin.b))

    stationary(descent, lagrangian, descent.classifiers.weights)


@pytest.mark.parametrize(
    ("loss", "n", "C", "seed", "most"),
    [
        ("hinge", 60, 1.0, 0, 4),
        ("hinge", 30, 2.0, 1, 6),
        ("epsilon-insensitive", 30, 0.5, 0, 4),
        ("epsilon-insensitive", 20, 2.0, 2, 5),
    ],
)
def test_the_gradient_of_tasks_vanishes_at_a_fixed_point(loss, n, C, seed, most):
    """Also where more data of a task are on the margin than its 4 weights: a kink of what is minimised over them."""
    X, Y = tasks_data(n, loss, seed)
    _, seen = fit(MTILSVM(loss=loss, C=C, noise_scale=1.0, prior_scale=0.8, **CONVERGED), X, Y)
    descent = seen[-1][1]
    miss = descent.margin.misses(descent.q.psi, descent.classifiers.weights)
    on_margin = np.abs(np.abs(miss) - descent.margin.cells.epsilon) < 1e-6
    assert np.bincount(descent.margin.cells.task[on_margin]).max() == most
    margin, cells, beta = descent.margin, descent.margin.cells, descent.multipliers
    assert np.all((cells.low <= beta) & (beta <= cells.high))

    def lagrangian(psi, weights):
        scores = margin.scale * jnp.concatenate([X @ psi, jnp.asarray(margin.inputs)], axis=1) @ weights.T
        miss = cells.target - scores[cells.row, cells.task]
        return jnp.sum(weights**2) / 2 + jnp.sum(beta * miss) - cells.epsilon * np.sum(np.abs(beta))

    stationary(descent, lagrangian, descent.classifiers.weights)


# ----- The parts


def test_the_bound_on_the_sticks():
    gamma = np.random.default_rng(0).uniform(0.5, 4.0, (4, 2))
    aux = equations.update_aux(gamma)
    on, off = equations.log_features(gamma, aux)
    v = beta_law.rvs(gamma[:, 0], gamma[:, 1], size=(20_000, 4), random_state=0)
    draws = np.log1p(-np.cumprod(v, axis=1))
    error = draws.std(0) / np.sqrt(len(draws))
    assert on == pytest.approx(np.cumsum(digamma(gamma[:, 0]) - digamma(np.sum(gamma, axis=1))))
    assert abs(off[0] - draws.mean(0)[0]) < 4 * error[0]  # one stick: no bound
    assert np.all(off <= draws.mean(0) + 4 * error)
    for _ in range(3):  # (24) is the best law
        other = np.tril(aux * np.random.default_rng(1).uniform(0.5, 2.0, aux.shape))
        assert np.all(equations.log_features(gamma, other / other.sum(1, keepdims=True))[1] <= off + 1e-12)


def test_columns_may_be_rotated():
    rng = np.random.default_rng(0)
    T, psi = rng.normal(size=(5, 30)), rng.uniform(size=(5, 3))
    scales = equations.Scales(1.5, 0.7, 1.2)
    values = []
    for matrix in (equations.Matrix(T, 30), equations.Matrix.of(T)):
        loadings, variance = equations.update_loadings(psi, matrix, scales)
        gamma = equations.update_sticks(psi, np.eye(3), 1.5)
        q = equations.Factors(psi, gamma, equations.update_aux(gamma), loadings, variance)
        values.append((equations.factor_objective(q, matrix, scales), *equations.update_scales(q, matrix, scales)))
        values[-1] += tuple(equations.feature_logits(q, matrix, scales)[0].ravel())
    assert equations.Matrix.of(T).values.shape == (5, 5)
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize("loss", ["hinge", "epsilon-insensitive"])
def test_machines_of_tasks_are_support_vector_machines(loss):
    X, Y = tasks_data(30, loss)
    U, C = np.column_stack([X, np.ones(30)]), 1.4
    if loss == "hinge":
        sign = 2 * Y.T.ravel() - 1
        low, high = np.minimum(0, C * sign), np.maximum(0, C * sign)
        cells = Cells(np.tile(np.arange(30), 4), 30 * np.arange(5), 1.3 * sign, low, high, 0.0)
        peers = [EMSVC(cost=C / 2, ell=1.3, tol=1e-9).fit(X, y) for y in Y.T]
    else:
        cells = Cells(np.tile(np.arange(30), 4), 30 * np.arange(5), Y.T.ravel(), np.full(120, -C), np.full(120, C), 0.2)
        peers = [EMSVR(cost=C / 2, epsilon=0.2, tol=1e-9).fit(X, y) for y in Y.T]
    found = solve_tasks(cells, U, np.zeros(120), 1e-9)
    assert found.gap <= 1e-9
    for weights, peer in zip(found.weights, peers, strict=True):
        assert weights == pytest.approx(np.append(np.ravel(peer.coef_), peer.intercept_), abs=2e-4)
    assert evaluate(cells, U, found.beta).primal == pytest.approx(found.primal, rel=1e-12)
    warm = solve_tasks(cells, U * 1.01, found.beta, 1e-6)
    assert warm.gap <= 1e-6


# ----- What is learned


def test_features_are_found_and_counted():
    X, y, truth = make_latent_features(300, 12, 4, num_classes=2, noise=0.2, seed=0)
    model = ILSVM(truncation=8, noise_scale=0.5, random_state=0).fit(X[:200], y[:200])
    assert len(model.active_features_) == 4
    found = np.column_stack([model.features_[:, model.active_features_], np.ones(200)])
    rest = truth.Z[:200] - found @ np.linalg.lstsq(found, truth.Z[:200], rcond=None)[0]
    assert np.max(rest.var(0)) < 0.1 * np.min(truth.Z[:200].var(0))  # the true ones up to a linear map
    assert np.all(np.diff(np.sum(model.features_, axis=0)) <= 1e-6)
    psi = model.transform(X[200:])
    assert psi.shape == (100, 8)
    assert model.score(X[200:], y[200:]) > 0.95
    assert model.decision_function(X[200:]) == pytest.approx(psi @ model.coef_[0] + model.intercept_)


def test_the_margin_keeps_features_that_separate():
    """Under noise that hides the features a decoupled fit drops them."""
    X, y, _ = make_latent_features(300, 12, 4, num_classes=2, noise=0.2)
    joint, apart = (
        ILSVM(truncation=8, C=0.3, noise_scale=1.0, init="random", random_state=0, coupled=coupled)
        .fit(X[:200], y[:200]) for coupled in (True, False)
    )  # fmt: skip
    assert joint.objective_[-1] < apart.objective_[-1]
    assert joint.score(X[200:], y[200:]) > apart.score(X[200:], y[200:]) + 0.05


def test_tasks_share_their_features():
    X, Y, _ = make_latent_tasks(400, 20, 3, num_tasks=10, noise=0.2, seed=1)
    joint, apart = (
        MTILSVM(truncation=8, C=1.0, noise_scale=1.5, prior_scale=0.3, random_state=0, coupled=coupled)
        .fit(X[:60], Y[:60]) for coupled in (True, False)
    )  # fmt: skip
    assert joint.score(X[60:], Y[60:]) > apart.score(X[60:], Y[60:]) + 0.05
    assert joint.decision_function(X) == pytest.approx(X @ joint.coef_.T + joint.intercept_)
    assert joint.transform(X) @ joint.task_weights_.T + joint.intercept_ == pytest.approx(joint.decision_function(X))


def test_unlabelled_inputs_help_to_find_features():
    X, y, _ = make_latent_features(230, 10, 4, num_classes=2, noise=0.3, seed=3)
    few = ILSVM(truncation=6, C=0.3, noise_scale=0.5, random_state=0)
    alone = few.fit(X[:20], y[:20]).score(X[30:], y[30:])
    assert not hasattr(few, "transduction_")
    few.fit(X[:20], y[:20], X_unlabelled=X[30:])
    assert few.features_.shape == (20, 6)
    assert np.mean(few.transduction_ == y[30:]) > alone
    assert np.mean(few.transduction_ == few.predict(X[30:])) > 0.97


def test_a_row_of_unknown_targets_is_an_unlabelled_input():
    X, Y = tasks_data(30)
    model = MTILSVM(truncation=4, random_state=0)
    given = model.fit(X[:20], Y[:20], X_unlabelled=X[20:]).coef_
    hidden = Y.copy()
    hidden[20:] = NAN
    assert model.fit(X, hidden).coef_ == pytest.approx(given, abs=1e-6)


def test_a_matrix_and_a_vector_of_tasks_are_the_same():
    X, Y = tasks_data(30)
    task = np.repeat([3, 5, 7, 9], 30)
    matrix = MTILSVM(truncation=4, random_state=0, noise_scale=1.0).fit(X, Y)
    known = np.full((120, 4), NAN)
    known[np.arange(120), task // 2 - 1] = Y.T.ravel()
    long = MTILSVM(truncation=4, random_state=0, noise_scale=1.0).fit(np.tile(X, (4, 1)), known)
    vector = MTILSVM(truncation=4, random_state=0, noise_scale=1.0).fit(np.tile(X, (4, 1)), Y.T.ravel(), task)
    assert vector.coef_ == pytest.approx(long.coef_)
    assert vector.tasks_.tolist() == [3, 5, 7, 9]
    assert matrix.predict(X).shape == (30, 4)
    assert vector.predict(X, np.full(30, 5)) == pytest.approx(long.predict(X)[:, 1])
    assert vector.score(np.tile(X, (4, 1)), Y.T.ravel(), task) == pytest.approx(long.score(X, Y))
    with pytest.raises(ValueError, match="task holds 4, which fit did not see"):
        vector.predict(X, np.full(30, 4))
    with pytest.raises(ValueError, match="task is None, but fit had tasks"):
        vector.predict(X)


# ----- Clear outcomes


def test_a_task_of_one_label_predicts_it_and_one_without_any_predicts_the_first():
    X, Y = tasks_data(30)
    Y[:, 0], Y[:, 1], Y[:, 2] = 1.0, 0.0, NAN
    model = MTILSVM(truncation=4, ell=1.5, random_state=0).fit(X, Y)
    assert model.decision_function(X)[:, :3] == pytest.approx(np.tile([1.5, -1.5, 0.0], (30, 1)))
    assert np.all(model.predict(X)[:, :3] == [1, 0, 0])
    assert not np.any(model.coef_[:3])
    assert model.score(X, Y) > 0.8
    alone = MTILSVM(truncation=4, random_state=0).fit(X, Y[:, [3]])
    assert model.coef_[3] == pytest.approx(alone.coef_[0] * 1.5, rel=0.5)
    everything = MTILSVM(truncation=4).fit(X, np.ones((30, 2)))
    assert np.all(everything.predict(X) == 1)


def test_a_task_without_numbers_predicts_their_mean():
    X, Y = tasks_data(30, "epsilon-insensitive")
    Y[:, 1] = NAN
    model = MTILSVM(truncation=4, loss="epsilon-insensitive", random_state=0).fit(X, Y + 20)
    assert model.predict(X)[:, 1] == pytest.approx(20 + np.nanmean(Y))
    assert model.score(X, Y + 20) > 0.5
    assert not hasattr(model, "decision_function")


def test_inputs_of_zeros():
    X, Y = tasks_data(30)
    X[:, 2] = 0.0
    model = MTILSVM(truncation=4, random_state=0).fit(X, Y)
    without = MTILSVM(truncation=4, random_state=0, extra_features=True).fit(X, Y)
    assert np.all(np.isfinite(model.coef_))
    assert without.decision_function(X) == pytest.approx(without.decision_function(X))
    nothing = MTILSVM(truncation=4, random_state=0).fit(0 * X, Y)
    assert np.ptp(nothing.decision_function(0 * X), axis=0) == pytest.approx(0.0)
    assert np.all(nothing.predict(0 * X)[0] == (np.mean(Y, axis=0) > 0.5))
    X, y = features_data()
    empty = ILSVM(truncation=4, random_state=0).fit(0 * X, y)
    assert len(set(empty.predict(0 * X))) == 1


def test_no_array_is_quadratic_in_the_data():
    n = 4000
    X, Y, _ = make_latent_tasks(n, 8, 3, num_tasks=3)
    y = Y[:, 0]
    for model, targets in ((ILSVM(5, max_iter=2), y), (MTILSVM(5, max_iter=2), Y)):
        with pytest.warns(ConvergenceWarning, match="reached max_iter=2 before the objective settled"):
            model.fit(X[:50], targets[:50])  # compiles
        tracemalloc.start()
        with pytest.warns(ConvergenceWarning):
            model.fit(X, targets)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1000 * n  # an n x n array has 8 n^2 bytes, 32 times as much


def test_the_intercept_is_as_free_as_its_scaling():
    X, Y = tasks_data(40, "epsilon-insensitive")
    Y += [5.0, -5.0, 0.0, 0.0]
    near, free = (
        MTILSVM(4, "epsilon-insensitive", prior_scale=0.1, intercept_scaling=s, random_state=0).fit(X, Y)
        for s in (1.0, 100.0)
    )
    assert free.intercept_[:2] == pytest.approx([5, -5], abs=0.7)
    assert np.all(np.abs(near.intercept_[:2]) < 4.0)
    assert free.score(X, Y) > near.score(X, Y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_seeds_decide():
    X, y = features_data()
    first, again, other = (ILSVM(4, init="random", max_iter=5, random_state=s).fit(X, y).objective_ for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert first[0] != other[0]


def test_a_search_over_cost_and_concentration():
    X, Y = tasks_data(60)
    grid = {"C": [0.1, 1.0], "concentration": [0.5, 5.0]}
    search = GridSearchCV(MTILSVM(4, random_state=0, tol=1e-2), grid, cv=2, error_score="raise").fit(X, Y)
    assert search.best_score_ > 0.6


@parametrize_with_checks([ILSVM(truncation=3, tol=1e-2), MTILSVM(truncation=3, tol=1e-2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [ILSVM(truncation=5), MTILSVM(truncation=5), MTILSVM(truncation=5, loss="epsilon-insensitive", extra_features=True)]
)
def test_scikit_learn_contract_of_other_settings(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (model, {name: value}, f"{name}={value}")
        for model in (ILSVM, MTILSVM)
        for name in ("C", "concentration", "noise_scale", "prior_scale", "ell", "truncation", "max_iter")
        for value in (0, -1)
    ]
    + [
        (ILSVM, {"init": "pca"}, "init must be 'random' or 'svd'"),
        (MTILSVM, {"loss": "squared"}, "loss must be 'hinge' or 'epsilon-insensitive'"),
        (MTILSVM, {"epsilon": -1.0}, "epsilon must be a number of at least 0"),
    ],
)
def test_wrong_arguments_are_named(model, arguments, message):
    X, y = features_data(num_classes=2)
    with pytest.raises(ValueError, match=message):
        model(**arguments).fit(X, y)


def test_wrong_targets_are_named():
    X, y = features_data()
    with pytest.raises(ValueError, match="y has one class, 'a': pass at least two classes"):
        ILSVM().fit(X, np.full(len(X), "a"))
    with pytest.raises(ValueError, match=r"Only binary classification is supported\..*y has 3 labels"):
        MTILSVM().fit(X, y)
    with pytest.raises(ValueError, match="y has no known target"):
        MTILSVM().fit(X, np.full(len(X), NAN))
    with pytest.raises(ValueError, match="with task it must be a vector"):
        MTILSVM().fit(X, np.zeros((len(X), 2)), task=np.zeros(len(X), int))
    with pytest.raises(ValueError, match="it must hold 40 integers"):
        MTILSVM().fit(X, np.zeros(len(X)), task=np.zeros(len(X)))
