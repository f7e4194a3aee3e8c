"""RegBayes with expectations by sampling and by variational inference, against closed forms."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import HMC, NUTS, BarkerMH, DiscreteHMCGibbs
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from regbayes.inference import (
    Enumeration,
    EpsilonInsensitive,
    Equality,
    Hinge,
    Inequality,
    MaxHinge,
    Quadratic,
    RegBayes,
    Sampling,
    Variational,
)

KEY = random.key(0)
# Nine coordinates, independent under the prior: E = MEAN - SCALE^2 mu in each.
MEAN = np.array([1.0, 2.0, 0.5, -1.0, 0.8, 0.2, 1.0, 0.4, -0.5])
SCALE = np.array([1.0, 0.5, 1.5, 1.0, 0.7, 1.0, 1.2, 1.2, 1.2])
PARTS = {"hinge": [0, 1], "eps": [2], "quad": [3], "equal": [4], "below": [5], "max": [6, 7, 8]}
Y = np.array([0.3, -0.2, 0.1])
DATA = np.array([0.9, 1.4, 1.1], np.float32)


def model(data):
    """The nine, and a mean whose prior mean is unknown."""
    numpyro.sample("x", dist.Normal(jnp.asarray(MEAN), jnp.asarray(SCALE)).to_event(1))
    theta = numpyro.param("theta", 0.0)
    eta = numpyro.sample("eta", dist.Normal(theta, 1.0))
    numpyro.sample("data", dist.Normal(eta, 0.5).expand([len(data)]).to_event(1), obs=data)


def part(name):
    index = np.array(PARTS[name])
    return lambda sites: sites["x"][index]


def constraints(counter):
    def pull(sites):
        counter.append(1)
        return 2 - sites["eta"]

    return [
        Hinge(part("hinge"), 0.6, name="hinge"),
        EpsilonInsensitive(part("eps"), 1.2, 0.2, 0.9, name="eps"),
        Quadratic(part("quad"), 0.5, 2.0, name="quad"),
        Equality(part("equal"), 0.3, name="equal"),
        Inequality(part("below"), -0.4, name="below"),
        MaxHinge(part("max"), 0.5, name="max"),
        Hinge(pull, 1.5, name="pull"),
    ]


V = SCALE**2
MU = np.concatenate(
    [
        np.clip(MEAN[:2] / V[:2], 0, 0.6),
        [(MEAN[2] - 1.2 + 0.2) / V[2]],
        [(MEAN[3] - 0.5) / (V[3] + 0.5)],
        [(MEAN[4] - 0.3) / V[4]],
        [(MEAN[5] + 0.4) / V[5]],
        [(0.5 + 0.6 / 1.44) / 2, (0.5 - 0.6 / 1.44) / 2, 0.0],
    ]
)
THETA = DATA.mean() + 1.5 / (3 * 4)  # where the margin's pull, 1.5, meets the data's precision, 12
INFERENCES = {
    "NUTS": Sampling(NUTS, num_warmup=300, num_draws=250, num_samples=1000, num_chains=2),
    "SVI": Variational(AutoMultivariateNormal, num_warmup=1500, num_draws=500, num_samples=4000),
}


@pytest.fixture(scope="module", params=INFERENCES)
def fitted(request):
    counter, seen = [], []
    result = RegBayes(
        model,
        constraints(counter),
        INFERENCES[request.param],
        tol=0.005,
        progress=lambda **step: seen.append(len(counter)),
    ).run(KEY, DATA)
    return result, seen


def flat(dataset):
    return np.concatenate([np.ravel(dataset[name]) for name in PARTS])


def test_closed_forms_within_the_noise(fitted):
    result, _ = fitted
    assert result.converged
    mu, E, errors = -flat(result.phi), flat(result.expectations), flat(result.errors)
    assert np.all(errors > 0)
    z = (E - (MEAN - V * mu)) / errors  # what the chain says at its own phi
    print(f"largest |z| {np.abs(z).max():.2f}; gap {result.gap:.4f} ± {result.gap_error:.4f}")
    assert np.abs(z).max() < 4
    divergence = np.sum(V * (mu - MU) ** 2) / 2  # from the solution, which the gap bounds
    print(f"KL(q || solution) {divergence:.4f}")
    assert divergence < result.gap + 4 * result.gap_error
    assert divergence < 0.03


def test_gap_is_small_for_its_error(fitted):
    result, _ = fitted
    assert 0 < result.gap_error < 0.1
    assert result.gap < 0.05 + 4 * result.gap_error


def test_unknown_parameter(fitted):
    result, _ = fitted
    error = np.sqrt(1 / 13 / 500)  # of a mean of some 500 draws
    np.testing.assert_allclose(result.params["theta"], THETA, atol=4 * error)
    np.testing.assert_allclose(2 - result.expectations["pull"], THETA, atol=4 * error)


def test_nothing_is_compiled_between_steps(fitted):
    _, seen = fitted
    assert len(seen) > 2
    assert len(set(seen)) == 1  # psi is traced before the first step, and never again


def test_draws(fitted):
    result, _ = fitted
    x = result.draws["posterior"]["x"]
    assert x.dims[:2] == ("chain", "draw")
    assert set(result.draws["posterior"].data_vars) == {"x", "eta"}
    np.testing.assert_allclose(x.mean(("chain", "draw"))[4], result.expectations["equal"][0], atol=1e-5)


@pytest.mark.parametrize("inference", [Sampling(HMC, num_warmup=100, num_draws=100, num_chains=1)])
def test_infeasible_is_named(inference):
    """A probability asked to be negative; the chain would follow phi for ever."""
    impossible = Inequality(lambda sites: 1 / (1 + jnp.exp(-sites["x"])), -0.5, name="impossible")
    program = lambda: numpyro.sample("x", dist.Normal(0.0, 1.0))  # noqa: E731
    with pytest.raises(ValueError, match="hard constraint 'impossible' cannot be met"):
        RegBayes(program, impossible, inference).run(KEY)


def test_draws_that_are_not_finite_are_named():
    steep = Hinge(lambda sites: jnp.log(sites["x"]), name="steep")
    program = lambda: numpyro.sample("x", dist.Normal(0.0, 1.0))  # noqa: E731
    inference = Variational(AutoNormal, num_warmup=10, num_draws=50)
    with pytest.raises(ValueError, match="psi of the constraint 'steep' must be finite, found"):
        RegBayes(program, steep, inference).run(KEY)


def test_kernels_that_keep_their_target_are_refused():
    with pytest.raises(ValueError, match="BarkerMH keeps the target it was given first"):
        RegBayes(model, Hinge(part("hinge")), BarkerMH).run(KEY, DATA)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="num_draws must be an integer of at least 40, found 10"):
        Sampling(NUTS, num_draws=10)
    with pytest.raises(ValueError, match="num_particles must be an integer of at least 1, found 0"):
        Variational(AutoNormal, num_particles=0)


def mixture(x, means):
    """Labels of a mixture."""
    with numpyro.plate("data", len(x)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.5, 0.5])))
        numpyro.sample("x", dist.Normal(jnp.asarray(means)[z], 1.0), obs=x)


def test_discrete_sites_by_sampling_and_by_enumeration():
    x, means = np.array([-1.0, -0.2, 0.1, 0.4, 1.2], np.float32), np.array([-1.0, 1.0], np.float32)

    def shifted(x, means):
        shift = numpyro.sample("shift", dist.Normal(0.0, 0.01))
        mixture(x, means + shift)

    size = Equality(lambda sites: jnp.sum(sites["z"]), 1.5, name="size")
    exact = RegBayes(mixture, size, Enumeration()).run(KEY, x, means)
    sampling = Sampling(lambda program: DiscreteHMCGibbs(HMC(program)), num_draws=250, num_samples=500)
    sampled = RegBayes(shifted, size, sampling).run(KEY, x, means)
    variance = float(exact.draws["posterior"]["z"].sum("z_dim_0").var())  # how E follows phi
    error = float(sampled.errors["size"]) / variance
    print(f"phi {float(sampled.phi['size']):.3f}, exactly {float(exact.phi['size']):.3f}, error {error:.3f}")
    np.testing.assert_allclose(sampled.phi["size"], exact.phi["size"], atol=4 * error)
