"""The Gaussian fits against the objective they minimise, and the algebra of the augmented hinge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import integrate, optimize, stats

from regbayes.inference.moves.augmentation import class_rows, information, weight_information
from regbayes.inference.moves.fits import fit_classes, fit_rows

CLOSE = 1e-2
"""In units of the fit's own standard deviations; the fits stop at steps of a tenth of that."""


def make_rows(n, d, seed=0, shift=0.5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + shift, rng.normal(size=n)


def averaged_hinge(mu, s):
    """``E (zeta)_+`` for ``zeta ~ N(mu, s^2)``."""
    return mu * norm.cdf(mu / s) + s * norm.pdf(mu / s)


def averaged_loss(m, V, A, tau, cost):
    return 2 * jnp.sum(cost * averaged_hinge(tau - A @ m, jnp.sqrt(jnp.einsum("nd,de,ne->n", A, V, A))))


def divergence(m, root, A, tau, cost, prior_precision):
    """Kullback-Leibler, of ``N(m, root root')`` to the posterior, up to a constant."""
    V = root @ root.T
    prior = prior_precision / 2 * (m @ m + jnp.trace(V))
    return averaged_loss(m, V, A, tau, cost) + prior - jnp.linalg.slogdet(root)[1]


@jax.jit
def slopes(m, root, A, tau, cost, prior_precision):
    """Of the divergence in units of the fit, and the precision that the averaged loss asks for, whitened."""
    eye = jnp.eye(len(m))

    def moved(shift, stretch):
        return divergence(m + root @ shift, root @ (eye + stretch), A, tau, cost, prior_precision)

    of_mean, of_root = jax.grad(moved, (0, 1))(jnp.zeros_like(m), 0 * eye)
    hessian = jax.hessian(averaged_loss)(m, root @ root.T, A, tau, cost)
    return of_mean, of_root, root.T @ (hessian + prior_precision * eye) @ root


def test_the_averaged_hinge_is_its_integral():
    with jax.enable_x64(True):
        for mu, s in ((-1.0, 0.7), (0.0, 1.0), (2.0, 0.3)):
            value, _ = integrate.quad(lambda x, mu=mu, s=s: x * stats.norm.pdf(x, mu, s), 0, mu + 12 * s, points=[mu])
            assert float(averaged_hinge(mu, s)) == pytest.approx(value, rel=1e-8)


ROWS = {
    "few": (5, 3, 1.0, 1.0),
    "many": (60, 3, 1.0, 1.0),
    "cheap": (20, 2, 1e-3, 1.0),
    "dear": (20, 2, 50.0, 1.0),
    "tight prior": (20, 2, 1.0, 100.0),
    "loose prior": (20, 2, 1.0, 1e-4),
    "cost per row": (20, 2, np.linspace(0.1, 2, 20), 1.0),
}


@pytest.mark.parametrize("case", ROWS)
def test_fit_rows_is_stationary_in_its_mean_and_covariance(case):
    n, d, cost, prior_precision = ROWS[case]
    with jax.enable_x64(True):
        A, tau = make_rows(n, d)
        m, root = jax.jit(fit_rows)(A, tau, cost, prior_precision)
        of_mean, of_root, white_precision = slopes(m, root, A, tau, cost, prior_precision)
        assert np.abs(of_mean).max() < CLOSE
        assert np.abs(of_root).max() < CLOSE
        np.testing.assert_allclose(white_precision, np.eye(d), atol=CLOSE)
        np.testing.assert_allclose(root, np.tril(root), atol=0)


@pytest.mark.parametrize(
    ("cost", "prior_precision", "shift"),
    [
        (0.3, 1.0, 0.0),
        (2.0, 1.0, 2.0),
        (20.0, 1.0, 0.5),
        (2.0, 0.1, 2.0),  # separable rows under a loose prior: half-way steps would cycle
    ],
)
def test_fit_rows_in_one_dimension_is_the_gaussian_nearest_to_the_posterior(cost, prior_precision, shift):
    A, tau = make_rows(8, 1, seed=1, shift=shift)
    nodes = np.linspace(-9, 9, 3001)
    weights = stats.norm.pdf(nodes)

    def objective(parameters):
        w = parameters[0] + np.exp(parameters[1]) * nodes
        energy = 2 * cost * np.maximum(0, tau - w[:, None] * A[:, 0]).sum(1) + prior_precision * w**2 / 2
        return weights @ energy / weights.sum() - parameters[1]

    best = optimize.minimize(objective, [0.0, -1.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    assert best.success
    with jax.enable_x64(True):
        m, root = map(np.asarray, jax.jit(fit_rows)(A, tau, cost, prior_precision))
    deviation = np.exp(best.x[1])
    assert float(root[0, 0]) == pytest.approx(deviation, rel=CLOSE)
    assert float(m[0]) == pytest.approx(best.x[0], abs=CLOSE * deviation)


def soft_loss(m, temperature, X, y, cost, ell):
    """The multi-class hinge with its maximum softened."""
    scores = X @ m.reshape(-1, X.shape[1]).T
    margins = (scores + ell * (np.arange(scores.shape[1]) != y[:, None])) / temperature[:, None]
    return 2 * cost * jnp.sum(temperature * jax.nn.logsumexp(margins, axis=1) - scores[np.arange(len(y)), y])


@jax.jit
def soft_derivatives(*arguments):
    return jax.grad(soft_loss)(*arguments), jax.hessian(soft_loss)(*arguments)


@pytest.mark.parametrize(("cost", "prior_precision", "ell"), [(1.0, 1.0, 1.0), (10.0, 0.1, 2.0), (0.01, 5.0, 0.5)])
def test_fit_classes_is_stationary_for_the_softened_loss(cost, prior_precision, ell):
    rng = np.random.default_rng(2)
    n, d, L = 30, 2, 3
    X, y = rng.normal(size=(n, d)), rng.integers(0, L, n)
    with jax.enable_x64(True):
        m, root = jax.jit(fit_classes, static_argnums=2)(X, y, L, cost, ell, prior_precision)
        assert m.shape == (L * d,)
        V = np.asarray(root @ root.T).reshape(L, d, L, d)
        covariance = np.einsum("nd,kdje,ne->nkj", X, V, X)
        centring = np.eye(L) - 1 / L
        spread = np.sqrt(np.trace(centring @ covariance @ centring, axis1=1, axis2=2) / L)
        # A Gumbel variable of scale T has the standard deviation T pi / sqrt(6).
        derivatives = soft_derivatives(m, spread * np.sqrt(6) / np.pi, X, y, cost, ell)
        m, root, gradient, hessian = map(np.asarray, (m, root, *derivatives))
        assert np.abs(root.T @ (gradient + prior_precision * m)).max() < CLOSE
        precision = hessian + prior_precision * np.eye(L * d)
        np.testing.assert_allclose(root.T @ precision @ root, np.eye(L * d), atol=CLOSE)


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
def test_fit_classes_lies_over_the_posterior(cost):
    """Two classes in one dimension: the difference of the weights, by quadrature, against the approximate fit."""
    X, y = make_rows(12, 1, seed=3)
    y = (y > 0).astype(int)
    signs = 2 * y - 1
    w = np.linspace(-8, 8, 20_001)
    # eta_1 - eta_0 has prior variance 2, and the loss is the binary hinge in it.
    log_p = -(w**2) / 4 - 2 * cost * np.maximum(0, 1 - np.outer(w, signs * X[:, 0])).sum(1)
    p = np.exp(log_p - log_p.max())
    mean = (w @ p) / p.sum()
    deviation = np.sqrt((w - mean) ** 2 @ p / p.sum())
    with jax.enable_x64(True):
        m, root = map(np.asarray, jax.jit(fit_classes, static_argnums=2)(X, y, 2, cost, 1.0, 1.0))
    contrast = np.array([-1.0, 1.0])
    assert abs(float(contrast @ m) - mean) < deviation
    assert 1 / 3 < np.linalg.norm(contrast @ root) / deviation < 3


SPOIL = {
    "nothing": lambda X: X,
    "large features": lambda X: 1e4 * X,
    "a row of zeros": lambda X: X * (np.arange(len(X)) != 3)[:, None],
    "only zeros": lambda X: 0 * X,
    "a constant column": lambda X: np.where(np.arange(X.shape[1]) == 1, 1.0, X),
    "a column of zeros": lambda X: np.where(np.arange(X.shape[1]) == 1, 0.0, X),
    "a column twice": lambda X: X[:, [0, 1, 1]],
    "scales far apart": lambda X: X * np.array([1e-4, 1.0, 1e4]),
}


@pytest.fixture(scope="module")
def single_precision_fits():
    rows, classes = jax.jit(fit_rows), jax.jit(fit_classes, static_argnums=2)

    def fit(kind, X, labels, cost):
        X = jnp.asarray(X, jnp.float32)
        if kind == "rows":
            return rows((2 * labels - 1)[:, None] * X, jnp.ones(len(X)), cost, 1.0)
        return classes(X, labels, 2, cost, 1.0, 1.0)

    return fit


@pytest.mark.parametrize("kind", ["rows", "classes"])
@pytest.mark.parametrize("cost", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("spoil", SPOIL)
def test_fits_are_finite_in_single_precision(single_precision_fits, kind, cost, spoil):
    X = SPOIL[spoil](make_rows(16, 3, seed=4)[0])
    m, root = single_precision_fits(kind, X, np.arange(16) % 2, cost)
    assert m.dtype == root.dtype == jnp.float32
    assert jnp.isfinite(m).all()
    assert jnp.isfinite(root).all()
    assert (jnp.diagonal(root) > 0).all()
    if kind == "rows":  # no wider than the prior
        assert (np.linalg.norm(root, axis=1) < 1 + CLOSE).all()
    if spoil == "only zeros":  # which say nothing, so the prior is left
        np.testing.assert_allclose(m, 0, atol=1e-6)
        np.testing.assert_allclose(root, np.eye(len(m)), atol=1e-6)


# ----- Rows and their information


@pytest.mark.parametrize("ell", [0.5, 1.0])
@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_the_multiclass_loss_is_one_hinge_in_the_score_of_one_class(num_classes, ell):
    rng = np.random.default_rng(num_classes)
    scores, y = rng.normal(size=(12, num_classes)), np.arange(12) % num_classes

    def loss(scores):
        margins = scores + ell * (np.arange(num_classes) != y[:, None])
        return np.array([max(row) - s[t] for row, s, t in zip(margins, scores, y, strict=True)])

    for k in range(num_classes):
        sgn, tau = class_rows(scores, y, k, ell)
        np.testing.assert_array_equal(sgn, np.where(y == k, 1, -1))
        rest = []
        for value in np.linspace(-4, 4, 17):
            moved = scores.copy()
            moved[:, k] = value
            rest.append(loss(moved) - np.maximum(0, tau - sgn * value))
            for found, wanted in zip(class_rows(moved, y, k, ell), (sgn, tau), strict=True):
                np.testing.assert_array_equal(found, wanted)  # the class's own score is not read
        np.testing.assert_allclose(rest, np.broadcast_to(rest[0], np.shape(rest)), atol=1e-12)


@pytest.mark.parametrize("cost", [0.7, np.linspace(0.2, 2, 6)], ids=["a cost", "a cost per row"])
def test_information_is_the_quadratic_of_the_scale_mixture(cost):
    A, tau = make_rows(6, 3, seed=5)
    omega, prior_precision = np.random.default_rng(6).gamma(1.0, size=6), 0.3

    def log_joint(w):
        zeta = tau - A @ w
        return -jnp.sum((omega + cost * zeta) ** 2 / (2 * omega)) - prior_precision * w @ w / 2

    with jax.enable_x64(True):
        h, P = weight_information(A, tau, omega, cost, prior_precision)
        np.testing.assert_allclose(jax.jit(jax.grad(log_joint))(np.zeros(3)), h, rtol=1e-10)
        np.testing.assert_allclose(jax.jit(jax.hessian(log_joint))(np.zeros(3)), -P, rtol=1e-10)
        of_rows = information(A, tau, omega, cost)
        np.testing.assert_allclose(of_rows[0], h, rtol=1e-12)
        np.testing.assert_allclose(of_rows[1] + prior_precision * np.eye(3), P, rtol=1e-12)


def test_numpy_and_jax_arrays_give_the_same_rows_and_information():
    A, tau = make_rows(6, 3, seed=7)
    scores, y, omega = np.random.default_rng(8).normal(size=(6, 4)), np.arange(6) % 4, np.full(6, 0.4)
    with jax.enable_x64(True):
        for fn, args in ((class_rows, (scores, y, 2, 1.0)), (weight_information, (A, tau, omega, 0.7, 0.3))):
            ours = fn(*args)
            theirs = jax.jit(fn)(*(jnp.asarray(arg) for arg in args))
            for one, other in zip(ours, theirs, strict=True):
                assert isinstance(one, np.ndarray)
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=1e-12)
