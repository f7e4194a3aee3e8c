"""The Dirichlet process mixture of multinomial logits: its program, kernel and predictions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from draws import sites_and_logs
from jax import lax, random
from numpyro.diagnostics import effective_sample_size
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC
from oracle import MAX_Z
from partitions import log_partitions, partition_scores
from scipy import stats
from scipy.special import gammaln, log_softmax, logsumexp

from regbayes.diagnostics import conformance
from regbayes.inference.kernels.dpmnl import dpmnl_collapsed, dpmnl_predict
from regbayes.models.dpmnl import dpmnl

X = np.array([[-1.2], [-0.7], [0.4], [1.1]])
Y = np.array([0, 1, 1, 0])
SETTINGS = {
    "concentration": 1.5,
    "prior_scale": 2.0,
    "prior_mean": 0.2,
    "prior_count": 0.5,
    "variance_shape": 1.5,
    "variance_scale": 0.5,
    "intercept": False,
}
NEW = np.array([[-0.9], [0.6], [3.0]])


def blobs(n=60, num_classes=2, key=0):
    """Four blobs at the corners of a square, classes alternating: no line divides them."""
    rng = np.random.default_rng(key)
    corner = rng.integers(0, 4, n)
    centres = 2.0 * np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]])
    return centres[corner] + 0.4 * rng.normal(size=(n, 2)), corner % num_classes


def log_evidence(x, y):
    """Of a cluster of inputs (m, 1) and two-class labels: normal-inverse-gamma in closed form, logits by quadrature."""
    m, k0, a, b = (SETTINGS[k] for k in ("prior_mean", "prior_count", "variance_shape", "variance_scale"))
    n, x = len(x), x[:, 0]
    b_n = b + 0.5 * np.sum((x - x.mean()) ** 2) + k0 * n * (x.mean() - m) ** 2 / (2 * (k0 + n))
    inputs = gammaln(a + n / 2) - gammaln(a) + a * np.log(b) - (a + n / 2) * np.log(b_n)
    inputs += 0.5 * np.log(k0 / (k0 + n)) - n / 2 * np.log(2 * np.pi)
    # Only the difference of the two coefficients matters: normal with variance 2 nu^2.
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    psi = np.sqrt(2) * SETTINGS["prior_scale"] * nodes[:, None] * x * (2 * y - 1)
    return inputs + logsumexp(-np.logaddexp(0, -psi).sum(1), b=weights / np.sqrt(2 * np.pi))


def posterior(x, y):
    """Every partition and its log posterior, not normalised."""
    return log_partitions(len(x), SETTINGS["concentration"], lambda c: log_evidence(x[c], y[c]))


@functools.cache
def small_run():
    """Many short chains on the small data."""
    mcmc = MCMC(
        dpmnl_collapsed(functools.partial(dpmnl, num_classes=2, max_clusters=5)),
        num_warmup=50,
        num_samples=1500,
        num_chains=16,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(random.key(1), X, Y, extra_fields=("overflow",), **SETTINGS)
    assert not np.any(mcmc.get_extra_fields()["overflow"])
    return mcmc.get_samples(group_by_chain=True)


@pytest.mark.parametrize("num_classes", [pytest.param(2, marks=pytest.mark.slow), 3])  # two are the zoo's
def test_every_move_conforms_to_the_program(num_classes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5, 2)), np.arange(5) % num_classes
    kernel = dpmnl_collapsed(functools.partial(dpmnl, num_classes=num_classes, max_clusters=4))
    settings = {"concentration": dist.Gamma(2.0, 1.0), "variance_scale": np.array([0.5, 2.0]), "prior_scale": 1.5}
    report = conformance(kernel, X, y, num_states=4, **settings)
    assert len(report.rows) == 6
    assert report.max_error <= 1e-8
    assert report.ok


def test_partitions_by_enumeration():
    assert np.abs(partition_scores(small_run()["z"], *posterior(X, Y))).max() < MAX_Z


def test_predictions_by_enumeration():
    """Class probabilities at new inputs are ratios of evidences with the new datum among the data."""
    both = [[logsumexp(posterior(np.vstack([X, x]), np.append(Y, label))[1]) for label in range(2)] for x in NEW]
    expected = np.exp(log_softmax(both, axis=1))
    draws = small_run()
    chains = [
        dpmnl_predict({site: value[c] for site, value in draws.items()}, NEW, **SETTINGS)
        for c in range(len(draws["z"]))
    ]
    p = np.array([chain.discriminant[:, 1] for chain in chains])
    z = (p.mean(0) - expected[:, 1]) / (p.std(0, ddof=1) / np.sqrt(len(p)))
    print(f"largest |z| {np.abs(z).max():.2f} of {len(z)}")
    assert np.abs(z).max() < MAX_Z


def test_coefficients_by_quadrature():
    """The slice move alone: three classes, two slots with data and one without."""
    x, y, labels = np.array([-1.0, 0.5, 2.0, 1.5, -0.3, 0.8]), np.array([0, 1, 2, 2, 2, 0]), [0, 0, 0, 0, 1, 1]
    nu, args = SETTINGS["prior_scale"], (x[:, None], y)
    kernel = dpmnl_collapsed(functools.partial(dpmnl, num_classes=3, max_clusters=3))
    move, target = next(move for move in kernel.moves if move.sites == ("beta",)), kernel.target(args, SETTINGS)

    def chain(key):
        z = {**kernel.init(key, 0, None, args, SETTINGS).z, "z": jnp.array(labels)}

        def sweep(beta, key):
            beta = move.step(random.split(key, 1), {**z, "beta": beta}, None, target, {})[0]["beta"]
            return beta, beta[..., 0]

        return lax.scan(sweep, z["beta"], random.split(key, 2000))[1]

    beta = np.asarray(jax.jit(jax.vmap(chain))(random.split(random.key(2), 8)), float)[:, 100:]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = nu * np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    log_weights = np.log(weights / weights.sum())
    prior = sum(np.meshgrid(log_weights, log_weights, log_weights, indexing="ij")).ravel()
    scores = []
    for slot in range(3):
        logs = prior.copy()
        for i in np.flatnonzero(np.array(labels) == slot):
            logs += log_softmax(grid * x[i], axis=1)[:, y[i]]
        p = np.exp(logs - logsumexp(logs))
        for moment in (lambda b: b, lambda b: b**2, lambda b: b * np.roll(b, 1, -1)):
            drawn = moment(beta[:, :, slot])
            error = drawn.std((0, 1)) / np.sqrt(effective_sample_size(drawn))
            scores.append((drawn.mean((0, 1)) - p @ moment(grid)) / error)
    print(f"largest |z| {np.abs(scores).max():.2f} of {np.size(scores)}")
    assert np.abs(scores).max() < MAX_Z


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 4])
def test_classes_that_no_line_divides(num_classes):
    inputs, labels = blobs(120, num_classes)
    kernel = dpmnl_collapsed(functools.partial(dpmnl, num_classes=num_classes, max_clusters=16))
    mcmc = MCMC(kernel, num_warmup=60, num_samples=40, progress_bar=False)
    settings = {"concentration": dist.Gamma(1.0, 1.0), "prior_count": 0.1, "variance_scale": 0.5}
    mcmc.run(random.key(0), inputs[:80], labels[:80], **settings)
    prediction = dpmnl_predict(mcmc.get_samples(), inputs[80:], **settings)
    assert prediction.y.shape == (40,)
    assert prediction.discriminant.shape == prediction.votes.shape == (40, num_classes)
    for table in (prediction.discriminant, prediction.votes):
        np.testing.assert_allclose(np.sum(table, axis=1), 1.0, rtol=1e-4)
    assert np.mean(prediction.y == labels[80:]) > 0.9
    plain = dpmnl_predict(mcmc.get_samples(), inputs[80:], weighted=False, **settings)
    np.testing.assert_array_equal(plain.votes, prediction.votes)
    np.testing.assert_allclose(plain.discriminant, prediction.discriminant, atol=0.2)


def test_far_from_the_data_a_new_component_favours_no_class():
    draws = {site: value[0, :50] for site, value in small_run().items()}
    far = dpmnl_predict(draws, np.array([[1e3]]), **SETTINGS)
    np.testing.assert_allclose(far.discriminant, 0.5, atol=1e-3)


def test_program_is_the_generative_page():
    """The log joint, term by term, against SciPy."""
    with jax.enable_x64(True):
        kernel = dpmnl_collapsed(functools.partial(dpmnl, num_classes=2, max_clusters=5))
        data = X.copy(), Y  # JAX remembers an array by its identity, in the precision it first had
        z = kernel.init(random.key(4), 0, None, data, SETTINGS).z
        found = float(jax.jit(kernel.target(data, SETTINGS).log_joint)(z))
    z = {site: np.asarray(value) for site, value in z.items()}
    m, k0, a, b = (SETTINGS[k] for k in ("prior_mean", "prior_count", "variance_shape", "variance_scale"))
    sizes = np.bincount(z["z"], minlength=5)
    occupied, alpha = sizes[sizes > 0], SETTINGS["concentration"]
    total = len(occupied) * np.log(alpha) + gammaln(alpha) - gammaln(alpha + 4) + gammaln(occupied).sum()
    total += gammaln(5 - len(occupied) + 1) - gammaln(6)
    total += stats.invgamma(a, scale=b).logpdf(z["sigma2"]).sum()
    total += stats.norm(m, np.sqrt(z["sigma2"] / k0)).logpdf(z["mu"]).sum()
    total += stats.norm(0, SETTINGS["prior_scale"]).logpdf(z["beta"]).sum()
    total += stats.norm(z["mu"][z["z"]], np.sqrt(z["sigma2"][z["z"]])).logpdf(X).sum()
    scores = np.einsum("nd,nld->nl", X, z["beta"][z["z"]])
    total += log_softmax(scores, axis=1)[np.arange(4), Y].sum()
    assert found == pytest.approx(total, rel=1e-10)


def test_without_labels_the_components_label_the_data():
    sites, _ = sites_and_logs(dpmnl, X, num_classes=3)
    assert sites["f"].shape == (4, 3)
    np.testing.assert_array_equal(sites["y"], np.argmax(sites["f"], axis=1))
    assert sites["beta"].shape == (64, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.array([0, 1, 2, 4])}, "each class present"),
        ({"y": np.array([0, 1, 1])}, r"y must have shape \(4,\)"),
        ({"num_classes": 1}, "num_classes must be an integer of at least 2"),
        ({"max_clusters": 0}, "max_clusters must be a positive integer"),
        ({"concentration": -1.0}, "concentration must be positive"),
        ({"prior_scale": 0.0}, "prior_scale must be positive"),
        ({"prior_count": 0.0}, "prior_count must be positive"),
        ({"prior_count": np.ones(1)}, "prior_count must be a number"),
        ({"variance_shape": np.inf}, "variance_shape must be positive and finite"),
        ({"variance_scale": np.ones(2)}, r"variance_scale must be a number or have shape \(1,\)"),
        ({"prior_mean": np.nan}, "prior_mean must be finite"),
        ({"prior_mean": np.zeros(3)}, r"prior_mean must be a number or have shape \(1,\)"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        trace(seed(dpmnl, 0)).get_trace(X, **{"y": Y, **arguments})


def test_draws_are_checked():
    draws = {
        "z": np.zeros((2, 4), int),
        "mu": np.zeros((2, 3, 1)),
        "sigma2": np.ones((2, 3, 1)),
        "beta": np.zeros((2, 3, 2, 2)),
    }
    assert dpmnl_predict(draws, X).y.shape == (4,)
    with pytest.raises(ValueError, match="found no"):
        dpmnl_predict({"z": draws["z"]}, X)
    with pytest.raises(ValueError, match="flatten chains"):
        dpmnl_predict({site: value[None] for site, value in draws.items()}, X)
    with pytest.raises(ValueError, match="must have 1 columns"):
        dpmnl_predict(draws, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="intercept"):
        dpmnl_predict(draws, X, intercept=False)
    with pytest.raises(ValueError, match="concentration has a prior"):
        dpmnl_predict(draws, X, concentration=dist.Gamma(1.0, 1.0))
