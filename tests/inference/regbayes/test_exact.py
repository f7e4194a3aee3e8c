"""RegBayes with exact expectations: closed forms, support vector machines, unknown parameters, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer.util import log_density
from scipy.optimize import minimize
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.svm import LinearSVC, LinearSVR

from regbayes.inference import (
    Enumeration,
    EpsilonInsensitive,
    Equality,
    GaussianInference,
    Hinge,
    Inequality,
    InfiniteSVM,
    MaxHinge,
    Quadratic,
    RegBayes,
)

KEY = random.key(0)
MEAN, SCALE = np.array([1.0, -0.5, 2.0, 0.2]), np.array([1.0, 0.5, 2.0, 1.5])


def x(sites):
    return sites["x"]


def normals(mean=MEAN, scale=SCALE):
    """Independent: in each coordinate ``E = mean - scale^2 mu``."""
    numpyro.sample("x", dist.Normal(jnp.asarray(mean.copy()), jnp.asarray(scale.copy())).to_event(1))


@pytest.fixture(scope="module")
def x64():
    with jax.enable_x64(True):
        yield


def simplex(v, C):
    """The projection by bisection of its threshold."""
    low, high = v.min() - C, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > C else (low, middle)
    return np.maximum(v - low, 0)


V, Y = SCALE**2, np.array([0.5, 0.5, -1.0, 0.2])
CLOSED_FORMS = {
    "hinge": (Hinge(x, 0.8), np.clip(MEAN / V, 0, 0.8)),
    "epsilon_insensitive": (
        EpsilonInsensitive(x, Y, 0.3, 0.6),
        np.clip(np.sign(MEAN - Y) * np.maximum(np.abs(MEAN - Y) - 0.3, 0) / V, -0.6, 0.6),
    ),
    "quadratic": (Quadratic(x, Y, 2.0), (MEAN - Y) / (V + 0.5)),
    "equality": (Equality(x, Y), (MEAN - Y) / V),
    "inequality": (Inequality(x, Y), np.maximum(MEAN - Y, 0) / V),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_forms(x64, name):
    constraint, mu = CLOSED_FORMS[name]
    result = RegBayes(normals, constraint, GaussianInference()).run(KEY)
    assert result.converged
    np.testing.assert_allclose(result.phi[name], -mu, atol=1e-6)
    np.testing.assert_allclose(result.expectations[name], MEAN - V * mu, atol=1e-6)
    np.testing.assert_allclose(result.slacks[name], constraint.slack(MEAN - V * mu), atol=1e-6)
    assert abs(result.gap) < 1e-9
    assert result.gap_error == 0


def test_closed_form_of_the_maximum(x64):
    mean = np.array([[1.0, 0.4, -2.0], [0.0, 0.1, 0.2]])
    result = RegBayes(
        lambda: numpyro.sample("x", dist.Normal(jnp.asarray(mean), 1.5).to_event(2)),
        MaxHinge(x, 0.5),
        GaussianInference(),
    ).run(KEY)
    mu = np.stack([simplex(row / 2.25, 0.5) for row in mean])
    np.testing.assert_allclose(result.phi["max_hinge"], -mu, atol=1e-6)
    assert abs(result.gap) < 1e-9


def test_objective_is_the_primal_at_the_solution(x64):
    """``KL(q || p) + g(E)``: the divergence of Gaussians with one covariance, and the price."""
    constraint, mu = CLOSED_FORMS["hinge"]
    result = RegBayes(normals, constraint, GaussianInference()).run(KEY)
    primal = np.sum(V * mu**2) / 2 + constraint.value(MEAN - V * mu)
    np.testing.assert_allclose(result.objective[-1], primal, atol=1e-9)
    assert np.all(np.diff(result.objective) >= -1e-12)


def test_several_constraints_on_correlated_sites(x64):
    """Against SciPy on the primal, a convex problem in the posterior mean."""
    rng = np.random.default_rng(0)
    B, A, y = rng.normal(size=(3, 3)), rng.normal(size=(5, 3)), rng.normal(size=5)
    prior, noise = B @ B.T + np.eye(3), 0.7

    def model(A, y):
        w = numpyro.sample("w", dist.MultivariateNormal(jnp.zeros(3), jnp.asarray(prior.copy())))
        numpyro.sample("y", dist.Normal(A @ w, noise), obs=y)

    constraints = [
        Quadratic(lambda sites, A: A[:2] @ sites["w"], 1.0, 3.0),
        Hinge(lambda sites: 1 - sites["w"][:1], 0.7),
        Equality(lambda sites: sites["w"].sum(), 0.5),
    ]
    result = RegBayes(model, constraints, GaussianInference()).run(KEY, jnp.asarray(A.copy()), y=jnp.asarray(y.copy()))
    P = np.linalg.inv(prior) + A.T @ A / noise**2
    m = np.linalg.solve(P, A.T @ y / noise**2)

    def primal(w):
        soft = 1.5 * np.sum((A[:2] @ w - 1) ** 2) + 0.7 * max(0.0, 1 - w[0])
        return (w - m) @ P @ (w - m) / 2 + soft

    free = np.linalg.svd(np.ones((1, 3)))[2][1:]
    best = minimize(lambda t: primal(0.5 / 3 + t @ free), np.zeros(2), method="Nelder-Mead", tol=1e-13)
    w = 0.5 / 3 + best.x @ free
    np.testing.assert_allclose(result.expectations["quadratic"], A[:2] @ w, atol=1e-5)
    np.testing.assert_allclose(result.expectations["equality"], 0.5, atol=1e-6)
    np.testing.assert_allclose(primal(w), result.objective[-1] - evidence(A, y, prior, noise), atol=1e-8)
    draws = result.draws["posterior"]["w"].values[0]
    error = np.sqrt(np.diag(np.linalg.inv(P)) / len(draws))
    assert np.all(np.abs(draws.mean(0) - w) < 4 * error)


def evidence(A, y, prior, noise):
    """``-log p(D)``."""
    cov = A @ prior @ A.T + noise**2 * np.eye(len(y))
    return (y @ np.linalg.solve(cov, y) + np.linalg.slogdet(2 * np.pi * cov)[1]) / 2


def classification(seed=0, n=40, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=d) + 0.7 * rng.normal(size=n) > 0).astype(int)


def weights(X, y):
    numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))


def test_maximum_entropy_discrimination_is_the_support_vector_machine():
    """A user's program with no max-margin term; in single precision."""
    X, y = classification()
    margin = Hinge(lambda sites, X, y: 1 - (2 * y - 1) * (X @ sites["eta"]), C=0.7)
    result = RegBayes(weights, margin, GaussianInference()).run(KEY, X.astype(np.float32), y)
    scores = (1 - result.expectations["hinge"].values) * (2 * y - 1)
    peer = LinearSVC(C=0.7, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(X, y)
    truth = peer.decision_function(X)
    assert np.corrcoef(scores, truth)[0, 1] > 0.999
    np.testing.assert_allclose(scores, truth, atol=1e-3)


def test_epsilon_insensitive_expectations_are_support_vector_regression():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    y = X @ np.array([1.0, -1.0, 0.5]) + 0.3 * rng.normal(size=30)
    fit = EpsilonInsensitive(lambda sites, X: X @ sites["eta"], y, 0.1, 0.5)
    result = RegBayes(weights, fit, GaussianInference()).run(KEY, X.astype(np.float32), y)
    peer = LinearSVR(C=0.5, epsilon=0.1, fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(X, y)
    np.testing.assert_allclose(result.expectations["epsilon_insensitive"], peer.predict(X), atol=1e-3)


def test_weights_of_the_infinite_svm():
    """The learner's responsibilities are 0 or 1 here: given them, its experts are posterior means."""
    rng = np.random.default_rng(2)
    z = np.arange(24) % 2
    X = rng.normal(size=(24, 2)) + 12.0 * z[:, None]
    y = ((X - 12.0 * z[:, None])[:, 0] * (1 - 2 * z) + 0.4 * rng.normal(size=24) > 0).astype(int)
    learner = InfiniteSVM(truncation=4, C1=0.8, prior_scale=1.3, dual_tol=1e-10, random_state=0).fit(X, y)
    phi = learner.responsibilities_[:, :2]
    np.testing.assert_allclose(phi, np.round(phi), atol=1e-6)
    A = np.column_stack([X, np.ones(24)])

    def model(A, y):
        numpyro.sample("eta", dist.Normal(0.0, 1.3).expand([2, 3]).to_event(2))

    margin = Hinge(lambda sites, A, y: 1 - (2 * y - 1)[:, None] * (A @ sites["eta"].T), np.maximum(0.8 * phi, 1e-12))
    mean = Quadratic(lambda sites: sites["eta"], 0.0, 1e-6, name="mean")  # costs next to nothing, tells the mean
    result = RegBayes(model, [margin, mean], GaussianInference()).run(KEY, A, y)
    found = result.expectations["mean"].values
    np.testing.assert_allclose(found[:, :2], learner.coef_[:2], atol=1e-3)
    np.testing.assert_allclose(found[:, 2], learner.intercept_[:2], atol=1e-3)


# ----- Discrete programs, the prior alone


def coins(bias=0.3):
    z = numpyro.sample("z", dist.Bernoulli(bias).expand([3]).to_event(1))
    numpyro.deterministic("heads", z.sum())


def heads(sites):
    return sites["heads"]


def test_enumeration_of_a_prior():
    """Remark 7: a program without data. Independent coins stay so, each with the odds that the mean asks for."""
    result = RegBayes(coins, Equality(heads, 2.4), Enumeration(num_samples=400)).run(KEY)
    np.testing.assert_allclose(result.expectations["equality"], 2.4, atol=1e-6)
    np.testing.assert_allclose(result.phi["equality"], np.log(0.8 / 0.2) - np.log(0.3 / 0.7), atol=1e-4)
    draws = result.draws["posterior"]
    assert draws["z"].shape == (1, 400, 3)
    np.testing.assert_array_equal(draws["heads"], draws["z"].sum("z_dim_0"))
    assert np.all(np.abs(draws["z"].mean(("chain", "draw")) - 0.8) < 4 * np.sqrt(0.16 / 400))


def test_truncated_prior():
    """Remark 7: the states outside a set have expectation 0, so the rest keeps its proportions."""
    logits = np.array([0.3, -1.0, 0.5, 2.0, 0.0])
    outside = Equality(lambda sites: sites["z"] >= 3, 0.0, name="outside")
    inside = Quadratic(lambda sites: jax.nn.one_hot(sites["z"], 5), 0.0, 1e-12, name="state")
    result = RegBayes(
        lambda: numpyro.sample("z", dist.Categorical(logits=jnp.asarray(logits))), [outside, inside], Enumeration()
    ).run(KEY)
    np.testing.assert_allclose(result.expectations["state"], [*softmax(logits[:3]), 0, 0], atol=1e-5)
    assert result.phi["outside"] < -10


def test_a_size_that_is_held_down():
    """An inequality that binds, and one that does not."""
    constraints = [Inequality(heads, 0.6, name="few"), Inequality(heads, 2.0, name="many")]
    result = RegBayes(coins, constraints, Enumeration()).run(KEY)
    np.testing.assert_allclose(result.expectations["few"], 0.6, atol=1e-6)
    assert result.phi["few"] < 0 == result.phi["many"]


# ----- Unknown parameters


def test_unknown_location(x64):
    """Extension 1: ``theta`` follows the posterior mean, which the margin pulls to ``mean(y) + C/n``."""
    y = np.array([0.1, 0.3, -0.4, 0.2])

    def model(y):
        theta = numpyro.param("theta", 0.0)
        eta = numpyro.sample("eta", dist.Normal(theta, 1.0))
        numpyro.sample("y", dist.Normal(eta, 1.0).expand([len(y)]).to_event(1), obs=y)

    margin = Hinge(lambda sites: 1 - sites["eta"], 0.8)
    result = RegBayes(model, margin, GaussianInference(), tol=1e-12).run(KEY, jnp.asarray(y))
    np.testing.assert_allclose(1 - result.expectations["hinge"], y.mean() + 0.2, atol=1e-5)
    np.testing.assert_allclose(result.params["theta"], y.mean() + 0.2, atol=1e-5)


def test_unknown_scale(x64):
    """The prior's scale, positive; against SciPy on the primal in the mean, the variance and the scale."""
    target = np.array([1.5, -0.5, 2.0])

    def model():
        scale = numpyro.param("scale", 0.7, constraint=dist.constraints.positive)
        eta = numpyro.sample("eta", dist.Normal(0.0, scale).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(eta, 1.0).to_event(1), obs=jnp.array([0.5, 0.5, 0.5]))

    result = RegBayes(model, Quadratic(lambda sites: sites["eta"], target, 2.0), GaussianInference(), tol=1e-10).run(
        KEY
    )

    def primal(t):
        m, v, s = t[:3], np.exp(t[3]), np.exp(t[4])
        joint = np.sum(norm.logpdf(m, 0, s) + norm.logpdf(0.5, m, 1)) - 1.5 * v * (1 + 1 / s**2)
        return -1.5 * np.log(2 * np.pi * np.e * v) - joint + np.sum((m - target) ** 2)

    best = minimize(primal, np.zeros(5), tol=1e-12)
    np.testing.assert_allclose(result.params["scale"], np.exp(best.x[4]), rtol=1e-3)
    np.testing.assert_allclose(result.expectations["quadratic"], best.x[:3], rtol=1e-3)
    np.testing.assert_allclose(result.objective[-1], best.fun, atol=1e-6)


def test_unknown_parameter_of_a_discrete_program():
    """A coin's bias, seen through noise and constrained: the bias is the posterior probability."""

    def model():
        bias = numpyro.param("bias", 0.5, constraint=dist.constraints.unit_interval)
        z = numpyro.sample("z", dist.Bernoulli(bias))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=0.8)

    constraint = Equality(lambda sites: sites["z"], 0.7)
    result = RegBayes(model, constraint, Enumeration(), tol=1e-6).run(KEY)
    np.testing.assert_allclose(result.params["bias"], 0.7, atol=1e-3)
    # with that bias, phi makes up for what the datum says
    np.testing.assert_allclose(expit(result.phi["equality"] + 0.8 - 0.5 + np.log(0.7 / 0.3)), 0.7, atol=1e-3)


# ----- What the result is, and what is refused


def test_tilted_program_and_named_axes():
    X, y = classification(n=5)
    margin = Hinge(lambda sites, X, y: 1 - (2 * y - 1) * (X @ sites["eta"]), C=0.7, name="margin")
    result = RegBayes(
        weights,
        margin,
        GaussianInference(num_samples=10),
        dims={"margin": ["datum"], "eta": ["feature"]},
        coords={"datum": list("abcde"), "feature": ["x", "y", "z"]},
    ).run(KEY, X, y)
    assert result.phi["margin"].sel(datum="b").ndim == 0
    assert result.draws["posterior"]["eta"].dims == ("chain", "draw", "feature")
    eta = jnp.array([0.3, -1.0, 0.2])
    before, after = (log_density(program, (X, y), {}, {"eta": eta})[0] for program in (weights, result.program))
    tilt = np.sum(result.phi["margin"].values * (1 - (2 * y - 1) * (X @ np.asarray(eta))))
    np.testing.assert_allclose(after - before, tilt, rtol=1e-4)
    assert "converged" in repr(result)


@pytest.mark.parametrize(
    ("model", "constraints", "inference", "message"),
    [
        (coins, Inequality(heads, -0.5, name="none"), Enumeration(), "hard constraint 'none' cannot be met"),
        (coins, Equality(heads, 3.5, name="all"), Enumeration(), "hard constraint 'all' cannot be met"),
        (
            normals,
            [Hinge(x), Equality(x, Y, name="here"), Equality(x, 2 + Y, name="there")],
            GaussianInference(),
            "hard constraints, together, 'here', 'there' cannot be met",
        ),
        (normals, Equality(lambda s: 0 * x(s), 1.0, name="zero"), GaussianInference(), "'zero' cannot be met"),
        (
            normals,
            Equality(x, np.zeros(3)),
            GaussianInference(),
            r"'equality' has shape \(4,\), to which target of shape",
        ),
        (
            normals,
            Hinge(lambda s: s["eta"], name="m"),
            GaussianInference(),
            r"'m' asks for the site 'eta', found .*'x'",
        ),
        (normals, Hinge(lambda s, X: s["x"], name="m"), GaussianInference(), r"'m' asks for the arguments \['X'\]"),
        (normals, Hinge(lambda s: jnp.log(x(s) - 99), name="m"), GaussianInference(), "'m' must be finite, found nan"),
        (coins, Hinge(lambda s: heads(s) / 0, name="m"), Enumeration(), "'m' must be finite, found nan"),
        (
            normals,
            Hinge(lambda s: x(s) + 0j, name="m"),
            GaussianInference(),
            "'m' must be real numbers, found dtype complex",
        ),
        (normals, Hinge(lambda s: x(s) ** 2, name="m"), GaussianInference(), "'m' is not linear in the sites; use"),
        (normals, Hinge(x), Enumeration(), "discrete sites with finite support, found 'x' from"),
        (coins, Hinge(heads), GaussianInference(), "needs real sites, found 'z'"),
        (coins, Hinge(heads), Enumeration(max_states=7), "the program has 8 states, more than max_states=7"),
        (normals, [Hinge(x), Hinge(x)], GaussianInference(), r"different names, found \['hinge'\] twice"),
        (normals, [], GaussianInference(), "constraints must be Hinge"),
        (normals, Hinge(x), "exact", "inference must be Sampling"),
        (lambda: numpyro.sample("x", dist.Cauchy()), Hinge(x), GaussianInference(), "density is not Gaussian"),
        (lambda: None, Hinge(x), GaussianInference(), "must have a latent sample site, found none"),
    ],
)
def test_refused(model, constraints, inference, message):
    with pytest.raises(ValueError, match=message):
        RegBayes(model, constraints, inference).run(KEY)


def test_steps_that_do_not_suffice_are_told():
    with pytest.warns(RuntimeWarning, match="reached max_steps=1 at a gap of"):
        result = RegBayes(coins, Hinge(heads), Enumeration(), max_steps=1).run(KEY)
    assert not result.converged
