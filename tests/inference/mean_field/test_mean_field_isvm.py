"""The infinite SVM by mean field: the objective after every single update, stationarity, scikit-learn's contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import betaln, digamma, softmax, xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from regbayes.datasets.isvm import make_isvm_setting3
from regbayes.inference.limits import EMSVC
from regbayes.inference.mean_field import InfiniteSVM, conjugate
from regbayes.inference.mean_field import isvm_equations as isvm
from regbayes.inference.mean_field.isvm_joint import joint_assignments
from regbayes.models.laws.families import family

LIKELIHOODS = ["gaussian", "bernoulli", "poisson", "multinomial"]


def make_data(likelihood="gaussian", n=60, d=3, num_classes=3, seed=0):
    """Two clusters with a rule of their own."""
    rng = np.random.default_rng(seed)
    z = np.arange(n) % 2
    if likelihood == "gaussian":
        X = rng.normal(size=(n, d)) + 5.0 * z[:, None]
    elif likelihood == "bernoulli":
        X = (rng.uniform(size=(n, d)) < np.where(z, 0.8, 0.2)[:, None]).astype(float)
    else:
        X = rng.poisson(np.where(z, 6.0, 1.5)[:, None] * np.ones(d)).astype(float)
    centred = X - np.array([X[z == 0].mean(axis=0), X[z == 1].mean(axis=0)])[z]
    eta = rng.normal(size=(2, d, num_classes))
    scores = np.einsum("nd,ndl->nl", centred, eta[z]) + 0.5 * rng.normal(size=(n, num_classes))
    return X, np.array(["a", "b", "c", "d"])[np.argmax(scores, axis=1)]


def observed(X, y, weight=None, see=lambda fit: None, **arguments):
    """A fit, and after every update, of all starts, its name, the descent, the objective traced and what is seen."""
    model = InfiniteSVM(random_state=0, **arguments)
    seen = []
    model._private = {"observe": lambda update, fit: seen.append((update, fit, fit.trace[-1], see(fit)))}
    model.fit(X, y, sample_weight=weight)
    return model, seen


def definition(fit):
    """``J`` term by term; the families' expectations have a test of their own."""
    hyper, phi, (nu, tau, count), w = fit.hyper, fit.phi, fit.q, fit.weight
    T = phi.shape[1]
    log_v = [digamma(a) - digamma(a + b) for a, b in nu] + [0.0]
    log_rest = [digamma(b) - digamma(a + b) for a, b in nu]
    z = np.sum(w[:, None] * (xlogy(phi, phi) - phi * [log_v[t] + sum(log_rest[:t]) for t in range(T)]))
    for t, (a, b) in enumerate(nu):  # KL(Beta(a, b) | Beta(1, alpha))
        z += (
            betaln(1, hyper.concentration) - betaln(a, b) + (a - 1) * log_v[t] + (b - hyper.concentration) * log_rest[t]
        )
    x = 0.0
    for t in range(T):
        theta, psi, normaliser = conjugate.expectations(hyper.likelihood, tau[t], count[t], hyper.variance)
        prior = conjugate.expectations(hyper.likelihood, hyper.tau, np.float64(hyper.held), hyper.variance)[2]
        x += theta @ (tau[t] - hyper.tau) - psi * (count[t] - hyper.held) - normaliser + prior
        size, h = conjugate.row_constants(hyper.likelihood, fit.X, hyper.variance)
        x -= w * phi[:, t] @ (fit.X @ theta - size * psi + h)
    margin = sum(np.sum(coef * fit.inputs.scores(coef)) for coef in fit.coef) / 2
    for d, y in enumerate(fit.y):
        a = fit.ell[y] + fit.scores[:, d] - fit.scores[:, d, [y]]
        loss = phi[d] @ np.max(a, axis=1) if fit.coupling == "relaxed" else np.max(phi[d] @ a)
        margin += hyper.C1 * w[d] * loss
    return margin + (1 + hyper.C2) * z + hyper.C2 * x


@parametrize_with_checks([InfiniteSVM(truncation=2, tol=1e-2, dual_tol=1e-3)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([InfiniteSVM(truncation=5)])
def test_scikit_learn_contract_of_other_settings(estimator, check):
    check(estimator)


CASES = [
    ("linear", "relaxed", "gaussian", 2),
    ("linear", "relaxed", "gaussian", 3),
    ("rbf", "relaxed", "gaussian", 2),
    ("rbf", "relaxed", "gaussian", 3),
    ("linear", "joint", "gaussian", 2),
    ("rbf", "joint", "gaussian", 3),
    ("linear", "relaxed", "bernoulli", 2),
    ("linear", "relaxed", "poisson", 3),
    ("rbf", "joint", "multinomial", 2),
]


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("kernel", "coupling", "likelihood", "num_classes"), CASES)
def test_no_update_raises_the_objective(kernel, coupling, likelihood, num_classes, weighted):
    X, y = make_data(likelihood, n=40, num_classes=num_classes)
    weight = np.random.default_rng(1).integers(0, 4, len(X)) / 2 if weighted else np.ones(len(X))
    model, seen = observed(
        X, y, weight, definition, truncation=4, kernel=kernel, coupling=coupling, likelihood=likelihood, C1=20.0,
        C2=5.0, prior_scale=0.8, ell=1.3, variance=1.5, concentration=2.0, max_iter=300,
    )  # fmt: skip
    for fit in {id(fit): fit for _, fit, _, _ in seen}.values():
        J = np.array(fit.trace)
        assert np.all(np.diff(J) <= 1e-9 * np.abs(J[:-1]))
    traced, defined = np.array([[J, K] for _, _, J, K in seen]).T
    assert traced == pytest.approx(defined, rel=1e-9)
    assert {"start", "assignments", "sticks", "components"} <= {update for update, *_ in seen}
    assert {"classifier", "classifiers"} & {update for update, *_ in seen}
    assert model.objective_[-1] == pytest.approx(min(traced), rel=1e-12)
    assert model.dual_gap_ <= 1e-6


def test_expectations_are_derivatives_of_the_families_normalisers():
    rng = np.random.default_rng(0)
    for likelihood in LIKELIHOODS:
        tau, count = rng.uniform(0.5, 2, (4, 3)), rng.uniform(3, 9, 4)
        X = rng.integers(0, 2, (5, 3)).astype(float)
        with jax.enable_x64(True):
            law = family(likelihood)
            slopes = jax.vmap(jax.grad(law.log_normaliser, argnums=(0, 1)), (0, 0, None))
            theta, psi = slopes(jnp.asarray(tau), jnp.asarray(count), 1.7)
            size, h = law.size(jnp.asarray(X)), law.base(jnp.asarray(X), 1.7)
        found = conjugate.expectations(likelihood, tau, count, 1.7)
        assert found[0] == pytest.approx(np.asarray(theta), rel=1e-9)
        assert found[1] == pytest.approx(-np.asarray(psi), rel=1e-9, abs=1e-12)
        assert conjugate.row_constants(likelihood, X, 1.7)[0] == pytest.approx(np.asarray(size))
        assert conjugate.row_constants(likelihood, X, 1.7)[1] == pytest.approx(np.asarray(h), abs=1e-12)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_gradient_vanishes_at_a_fixed_point(kernel, likelihood):
    """In every block, by JAX's derivatives of the very functions that the fit evaluates."""
    X, y = make_data(likelihood, n=50)
    model, seen = observed(
        X, y, truncation=3, kernel=kernel, likelihood=likelihood, C1=20.0, C2=5.0, tol=0.0, dual_tol=1e-10,
        max_iter=3000,
    )  # fmt: skip
    fit = next(fit for _, fit, J, _ in reversed(seen) if model.objective_[-1] == J)
    hyper, weight = fit.hyper, fit.weight
    share = np.array(fit.omega_share)
    omega = hyper.C1 * (weight * fit.phi.T)[:, :, None] * (np.eye(3)[fit.y] - share)
    K = fit.inputs.values if fit.inputs.precomputed else fit.inputs.values @ fit.inputs.values.T

    def lagrangian(logits, nu, tau, count, coef):
        """``J`` with each maximum over labels written as ``sum_y omega_y a(y)``."""
        phi = jax.nn.softmax(logits, axis=1)
        scores = jnp.einsum("nm,tml->tnl", K, coef)
        mixture = isvm.mixture_objective(phi, isvm.Components(nu, tau, count), fit.X, weight, hyper)
        part = jnp.sum(omega * isvm.margins(scores, fit.y, fit.ell))
        return mixture + jnp.sum(coef * scores) / 2 + part

    def objective(logits, nu, tau, count):
        phi = jax.nn.softmax(logits, axis=1)
        mixture = isvm.mixture_objective(phi, isvm.Components(nu, tau, count), fit.X, weight, hyper)
        losses = isvm.expert_losses(jnp.asarray(fit.scores), fit.y, fit.ell)
        return mixture + np.sum(fit.norms) / 2 + hyper.C1 * weight @ jnp.sum(phi * losses, axis=1)

    with jax.enable_x64(True):
        at = [jnp.asarray(a) for a in (np.log(np.maximum(fit.phi, 1e-300)), *fit.q)]
        found, gradients = jax.jit(jax.value_and_grad(objective, argnums=(0, 1, 2, 3)))(*at)
        assert float(found) == pytest.approx(fit.objective, rel=1e-10)
        value, slope = jax.jit(jax.value_and_grad(lagrangian, argnums=4))(*at, jnp.asarray(fit.coef))
    for gradient in gradients:
        assert np.max(np.abs(gradient)) < 1e-4
    # The classifiers' block has kinks: at the multipliers the Lagrangian is smooth, equal to J, and stationary.
    assert float(value) == pytest.approx(fit.objective, rel=1e-8)
    assert np.max(np.abs(slope)) < 1e-4
    assert np.min(omega) >= -1e-12
    assert np.sum(omega, axis=2) == pytest.approx(hyper.C1 * weight * fit.phi.T)


def test_joint_assignments_are_optimal():
    rng = np.random.default_rng(0)
    n, T, L, scale, cost = 12, 4, 3, 2.0, 5.0
    logits, G = rng.normal(size=(n, T)), 2 * rng.normal(size=(n, T, L))
    phi = np.empty((n, T))
    joint_assignments(logits, G, scale, cost, 1e-10, phi)

    def price(phi, d):
        return scale * np.sum(phi * (np.log(phi) - logits[d])) + cost * np.max(phi @ G[d])

    for d in range(n):
        starts = [np.log(phi[d]), rng.normal(size=T)]
        best = min(minimize(lambda u, d=d: price(softmax(u), d), u, method="Nelder-Mead").fun for u in starts)
        assert price(phi[d], d) <= best + 1e-6


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_jensens_inequality_orders_the_losses(kernel):
    X, y = make_data()
    _, seen = observed(X, y, truncation=4, kernel=kernel, C1=20.0, C2=1.0, variance=4.0)
    for _, fit, _, _ in seen[:: max(1, len(seen) // 10)]:
        joint = isvm.vote_losses(fit.phi, fit.scores, fit.y, fit.ell)
        relaxed = np.sum(fit.phi * isvm.expert_losses(fit.scores, fit.y, fit.ell), axis=1)
        assert np.all(joint <= relaxed + 1e-12)


@pytest.mark.parametrize("coupling", ["relaxed", "joint"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_single_component_is_a_support_vector_machine(num_classes, coupling):
    X, y = make_data(num_classes=num_classes)
    model = InfiniteSVM(1, C1=3.0, prior_scale=0.7, ell=1.4, coupling=coupling, dual_tol=1e-8).fit(X, y)
    svm = EMSVC(cost=1.5, prior_scale=0.7, ell=1.4, tol=1e-8).fit(X, y)
    assert np.squeeze(model.coef_) == pytest.approx(np.squeeze(svm.coef_), abs=1e-3)
    assert np.squeeze(model.intercept_) == pytest.approx(np.squeeze(svm.intercept_), abs=1e-3)
    assert model.decision_function(X) == pytest.approx(svm.decision_function(X), abs=2e-3)
    assert (model.num_components_, len(model.support_)) == (1, 1)


@pytest.mark.parametrize("coupling", ["relaxed", "joint"])
def test_a_gram_matrix_of_rows_is_the_linear_kernel(coupling):
    X, y = make_data(n=80)
    rows = InfiniteSVM(5, C1=5.0, coupling=coupling, random_state=0).fit(X, y)
    gram = InfiniteSVM(5, C1=5.0, coupling=coupling, kernel="precomputed", random_state=0).fit(X @ X.T, y)
    same = InfiniteSVM(5, C1=5.0, coupling=coupling, kernel=lambda A, B: A @ B.T, random_state=0).fit(X, y)
    new = make_data(n=30, seed=7)[0]
    for other, inputs in ((gram, new @ X.T), (same, new)):
        assert other.num_components_ == rows.num_components_ == 2
        assert other.decision_function(inputs) == pytest.approx(rows.decision_function(new), abs=0.02)
        assert other.responsibilities(inputs) == pytest.approx(rows.responsibilities(new), abs=1e-4)


def test_a_function_may_be_the_kernel():
    X, y = make_data(n=80)
    rbf = InfiniteSVM(5, kernel="rbf", gamma=0.3, random_state=0).fit(X, y)
    function = InfiniteSVM(5, kernel=lambda A, B: rbf_kernel(A, B, gamma=0.3), random_state=0).fit(X, y)
    assert function.decision_function(X) == pytest.approx(rbf.decision_function(X), abs=1e-6)
    with pytest.raises(ValueError, match="it must return the Gram matrix of its arguments"):
        InfiniteSVM(5, kernel=lambda A, B: np.ones(len(A))).fit(X, y)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_vote_is_weighted_by_responsibilities(kernel):
    X, y = make_data(n=120)
    model = InfiniteSVM(6, C1=10.0, kernel=kernel, random_state=0).fit(X, y)
    phi = model.responsibilities(X)
    assert phi.shape == (120, 6)
    assert np.sum(phi, axis=1) == pytest.approx(1.0)
    assert model.num_components_ == 2
    assert np.all(np.diff(model.mass_) <= 1e-9)
    assert np.sum(model.mass_) == pytest.approx(120)
    assert len(model.support_) == 6
    assert all(len(rows) for rows in model.support_[:2])
    assert set(np.argmax(phi, axis=1)[::2]) != set(np.argmax(phi, axis=1)[1::2])
    assert model.score(X, y) > 0.75
    if kernel == "linear":
        votes = np.einsum("nt,tld,nd->nl", phi, model.coef_, X) + phi @ model.intercept_
        assert model.decision_function(X) == pytest.approx(votes)
        linear = EMSVC(cost=5.0).fit(X, y)
        assert model.score(X, y) > linear.score(X, y) + 0.1


def test_the_margin_moves_data_to_the_expert_that_is_right():
    X, y, _ = make_isvm_setting3(100, seed=1)
    few = InfiniteSVM(5, C1=1e-3, C2=1.0, variance=6.0, random_state=0).fit(X, y)
    many = InfiniteSVM(5, C1=50.0, C2=1.0, variance=6.0, random_state=0).fit(X, y)
    assert many.score(X, y) > few.score(X, y) + 0.05


def test_weights_count_data():
    X, y = make_data(n=40)
    count = np.random.default_rng(0).integers(0, 3, 40)
    weighted = InfiniteSVM(1, C1=2.0, variance=2.0).fit(X, y, sample_weight=count)
    repeated = InfiniteSVM(1, C1=2.0, variance=2.0).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    assert weighted.objective_[-1] == pytest.approx(repeated.objective_[-1], rel=1e-6)
    assert weighted.decision_function(X) == pytest.approx(repeated.decision_function(X), abs=1e-2)


def test_seeds_decide():
    X, y, _ = make_isvm_setting3(150, seed=0)
    first, second = (InfiniteSVM(kernel="rbf", random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.objective_, second.objective_)
    more = InfiniteSVM(kernel="rbf", random_state=3, n_init=3).fit(X, y)
    assert more.objective_[-1] <= first.objective_[-1] + 1e-2 * abs(first.objective_[-1])


def test_prices_of_labels():
    X, y = make_data(n=150)
    dear = np.ones((3, 3)) - np.eye(3)
    dear[0] *= 20
    plain = InfiniteSVM(1).fit(X, y)
    model = InfiniteSVM(1, ell=dear).fit(X, y)
    missed = [np.sum((y == "a") & (m.predict(X) != "a")) for m in (model, plain)]
    assert missed[0] < missed[1]
    with pytest.raises(ValueError, match=r"ell must be a positive number, or a matrix \(3, 3\)"):
        InfiniteSVM(1, ell=np.ones((3, 3))).fit(X, y)


def test_a_search_over_cost_concentration_and_width():
    X, y, _ = make_isvm_setting3(90, seed=0)
    grid = {"C1": [0.1, 1.0], "concentration": [0.1, 10.0], "gamma": [0.1, 1.0]}
    search = GridSearchCV(InfiniteSVM(3, kernel="rbf", random_state=0), grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_score_ > 0.6
    gram = GridSearchCV(
        InfiniteSVM(4, kernel="precomputed", variance=0.1), {"C1": [1.0, 2.0]}, cv=2, error_score="raise"
    )
    assert gram.fit(rbf_kernel(X, gamma=0.1), y).best_score_ > 0.6


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_as_many_classes_as_protein_folds(kernel):
    rng = np.random.default_rng(0)
    y = np.arange(135) % 27
    X = rng.normal(size=(135, 21)) + 3 * rng.normal(size=(27, 21))[y]
    model = InfiniteSVM(kernel=kernel, truncation=5, variance=10.0, tol=1e-2, dual_tol=1e-3, random_state=0).fit(X, y)
    assert model.decision_function(X).shape == (135, 27)
    assert model.score(X, y) > 0.9
    assert np.all(np.diff(model.objective_) <= 1e-9 * np.abs(model.objective_[:-1]))


def test_too_few_sweeps_are_warned_of():
    X, y = make_data()
    with pytest.warns(ConvergenceWarning, match="reached max_iter=1 before the objective settled; raise max_iter"):
        InfiniteSVM(3, max_iter=1).fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({name: value}, f"{name}={value}")
        for name in ("C1", "C2", "concentration", "prior_scale", "variance", "dual_tol", "truncation", "n_init")
        for value in (0, -1)
    ]
    + [
        ({"kernel": "poly"}, "kernel must be 'linear', 'rbf', 'precomputed' or a function"),
        ({"coupling": "loose"}, "coupling must be 'relaxed' or 'joint'"),
        ({"likelihood": "cauchy"}, "likelihood must be one of gaussian"),
        ({"likelihood": "poisson"}, "likelihood='poisson' needs X to hold counts"),
        ({"likelihood": "poisson", "kernel": "precomputed"}, "it must be 'gaussian'; pass the inputs"),
        ({"kernel": "precomputed"}, "it must be square, a Gram matrix"),
        ({"gamma": -1.0}, "gamma must be a positive number or 'scale'"),
        ({"prior_mean": [1.0, 2.0]}, r"prior_mean must be a number, or \(3,\) of them"),
        ({"prior_count": 0.0}, "prior_count must be a positive number or None"),
        ({"ell": 0.0}, "ell must be a positive number"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    X, y = make_data()
    with pytest.raises(ValueError, match=message):
        InfiniteSVM(**arguments).fit(X - 0.5, y)


def test_single_class_is_refused():
    with pytest.raises(ValueError, match="y has one class with positive weight, 0: pass at least two classes"):
        InfiniteSVM().fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0, 0.0])
    with pytest.raises(ValueError, match="sample_weight ranges from -1 to 1"):
        InfiniteSVM().fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0, -1.0])
