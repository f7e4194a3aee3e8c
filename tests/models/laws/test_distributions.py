"""The distributions: densities against SciPy's and NumPyro's, draws against exact distribution functions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from scipy import stats
from scipy.integrate import quad
from scipy.special import log_ndtr

from regbayes.models import ChineseRestaurantProcess, HingeNormal, HingeOmega, InformationNormal

P_VALUE = 1e-3
"""The draws are fixed by their seeds, so this is how surprising they may be, not how often a test fails."""


def omega_density(b):
    """``HingeOmega``'s density as a scalar function for SciPy; call it in double precision."""
    log_prob = jax.jit(HingeOmega(b).log_prob)
    return lambda omega: float(np.exp(log_prob(omega)))


def integral(fn, b):
    """Over ``omega > 0``, with ``omega = t^2``: the square root at 0 is gone and the rest is bell-shaped."""
    spread = np.sqrt(b + 2)
    low, high = np.sqrt(max(0.0, b - 20 * spread)), np.sqrt(b + 1 + 40 * spread)
    value, error = quad(lambda t: 2 * t * fn(t**2), low, high, points=[np.sqrt(b)] if b > 0 else None, limit=400)
    assert error < 1e-7
    return value


@pytest.mark.parametrize("b", [0, 1e-3, 0.5, 10, 200])
def test_omega_density_integrates_to_one_with_the_stated_mean_and_variance(b):
    with jax.enable_x64(True):
        law, density = HingeOmega(float(b)), omega_density(float(b))
        assert integral(density, b) == pytest.approx(1, rel=1e-6)
        assert integral(lambda omega: omega * density(omega), b) == pytest.approx(float(law.mean), rel=1e-6)
        variance = integral(lambda omega: (omega - float(law.mean)) ** 2 * density(omega), b)
        assert variance == pytest.approx(float(law.variance), rel=1e-6)


@pytest.mark.parametrize("b", [1e-3, 0.5, 10, 200])
def test_omega_density_is_that_of_scipy(b):
    omega = np.concatenate([np.geomspace(1e-3, 50, 12), b * np.linspace(0.5, 2, 7)])
    with jax.enable_x64(True):
        claimed = HingeOmega(b).log_prob(omega)
    generalised = stats.geninvgauss.logpdf(omega, 0.5, b, scale=b)
    reciprocal = stats.invgauss.logpdf(1 / omega, 1 / b) - 2 * np.log(omega)  # the Jacobian of 1/omega
    np.testing.assert_allclose(claimed, generalised, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(claimed, reciprocal, rtol=1e-8, atol=1e-8)


def test_omega_density_at_zero_is_chi_square():
    omega = np.geomspace(1e-6, 50, 20)
    with jax.enable_x64(True):
        np.testing.assert_allclose(HingeOmega(0.0).log_prob(omega), stats.chi2.logpdf(omega, 1), rtol=1e-12)


@pytest.mark.parametrize(("index", "holds"), [(0.5, True), (-0.5, False)])
@pytest.mark.parametrize("zeta", [-0.8, 1.3])
def test_scale_mixture_needs_index_one_half_and_not_the_printed_minus_one_half(index, holds, zeta):
    cost, omega = 0.7, np.geomspace(0.05, 10, 9)
    b = cost * abs(zeta)
    product = np.exp(-2 * cost * max(0, zeta)) * stats.geninvgauss.pdf(omega, index, b, scale=b)
    mixture = np.exp(-((omega + cost * zeta) ** 2) / (2 * omega)) / np.sqrt(2 * np.pi * omega)
    assert np.allclose(product, mixture, rtol=1e-8) == holds
    with jax.enable_x64(True):
        ours = np.exp(-2 * cost * max(0, zeta) + HingeOmega(b).log_prob(omega))
    np.testing.assert_allclose(ours, mixture, rtol=1e-12)


@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("b", [0, 1e-6, 0.3, 3, 50])
def test_omega_draws_follow_the_exact_distribution(b, x64):
    with jax.enable_x64(x64):
        omega = HingeOmega(float(b)).sample(random.key(1), (5000,))
        assert omega.dtype == (jnp.float64 if x64 else jnp.float32)
        omega = np.asarray(omega, float)
    if b == 0:
        assert stats.kstest(omega, stats.chi2(1).cdf).pvalue > P_VALUE
    else:
        assert stats.kstest(1 / omega, stats.invgauss(1 / b).cdf).pvalue > P_VALUE


def test_omega_is_finite_and_positive_in_single_precision_for_any_b():
    b = jnp.array([0, 1e-30, 1e-6, 1, 1e10, 1e18])
    omega = HingeOmega(b).sample(random.key(2), (20_000,))
    assert omega.dtype == jnp.float32
    assert jnp.isfinite(omega).all()
    assert (omega > 0).all()


@pytest.mark.parametrize("b", [2, np.array([1, 2]), True], ids=str)
def test_omega_takes_integers(b):
    law = HingeOmega(b)
    assert law.sample(random.key(0), (3,)).shape == (3, *np.shape(b))
    assert jnp.issubdtype(law.log_prob(1.0).dtype, jnp.floating)


def test_omega_refuses_a_negative_b_when_validated():
    with pytest.raises(ValueError, match="b"):
        HingeOmega(-1.0, validate_args=True)


def gaussian(d=3, seed=0, batch=()):
    """A linear term (..., d) and a precision (..., d, d) with correlations."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(*batch, d, d + 2))
    return rng.normal(size=(*batch, d)), root @ np.swapaxes(root, -1, -2)


@pytest.mark.parametrize(
    ("linear_batch", "precision_batch"), [((), ()), ((4,), (4,)), ((4,), ()), ((), (4,)), ((2, 1), (4,))], ids=str
)
def test_information_normal_is_numpyros_normal_in_double_precision(linear_batch, precision_batch):
    with jax.enable_x64(True):
        linear, precision = gaussian(batch=linear_batch)[0], gaussian(batch=precision_batch)[1]
        mean = np.linalg.solve(precision, linear[..., None])[..., 0]
        values = np.random.default_rng(1).normal(size=(5, *mean.shape))

        @jax.jit
        def run(linear, precision):
            law, peer = InformationNormal(linear, precision), dist.MultivariateNormal(mean, precision_matrix=precision)
            assert law.batch_shape == peer.batch_shape == mean.shape[:-1]
            assert law.event_shape == peer.event_shape == (3,)
            assert law.sample(random.key(0), (7,)).shape == (7, *mean.shape)
            return law.mean, law.log_prob(values), peer.log_prob(values)

        claimed, log_prob, wanted = run(linear, precision)
        assert claimed.shape == mean.shape
        np.testing.assert_allclose(claimed, mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(log_prob, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("linear_batch", "precision_batch"), [((), ()), ((4,), (4,)), ((), (4,)), ((4,), ())], ids=str)
def test_information_normal_has_the_inverse_precision_as_its_covariance(linear_batch, precision_batch):
    with jax.enable_x64(True):
        linear, precision = gaussian(batch=linear_batch)[0], gaussian(batch=precision_batch)[1]
        law = jax.jit(InformationNormal)(linear, precision)
        covariance = np.broadcast_to(np.linalg.inv(precision), (*law.batch_shape, 3, 3))
        variance = np.diagonal(covariance, axis1=-2, axis2=-1)
        for claimed, wanted in ((law.covariance_matrix, covariance), (law.variance, variance)):
            assert claimed.shape == wanted.shape
            np.testing.assert_allclose(claimed, wanted, rtol=1e-9, atol=1e-12)


def z_scores(draws, mean, covariance):
    """Of the sample means and of the sample covariances, on their exact standard errors."""
    n, centred = len(draws), draws - mean
    of_mean = centred.mean(0) / np.sqrt(np.diag(covariance) / n)
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / n)
    return np.concatenate([of_mean, ((centred.T @ centred / n - covariance) / error)[np.tril_indices(len(mean))]])


def draw(law, key, n):
    return law.sample(key, (n,))


def draw_vmapped(law, key, n):
    keys = random.split(key, n)
    return jax.vmap(lambda key: InformationNormal(law.linear, law.precision).sample(key))(keys)


def draw_jitted(law, key, n):
    # The distribution itself crosses the border of the compiled function.
    return jax.jit(lambda law: law.sample(key, (n,)))(law)


@pytest.mark.parametrize("draw", [draw, draw_vmapped, draw_jitted])
def test_information_normal_draws_have_its_moments(draw):
    linear, precision = gaussian(seed=3)
    law = InformationNormal(jnp.asarray(linear, jnp.float32), jnp.asarray(precision, jnp.float32))
    draws = np.asarray(draw(law, random.key(4), 20_000), float)
    covariance = np.linalg.inv(precision)
    z = z_scores(draws, covariance @ linear, covariance)
    assert np.abs(z).max() < stats.norm.isf(P_VALUE / (2 * len(z)))
    white = (draws - covariance @ linear) @ np.linalg.cholesky(precision)
    assert stats.kstest(np.sum(white**2, 1), stats.chi2(3).cdf).pvalue > P_VALUE


BAD_SCALES = np.geomspace(1e-6, 1e12, 5) ** 0.5


def badly_scaled(scale):
    """In units of ``1/scale`` this is a plain law: equal correlations, and a linear term of ones."""
    correlation = 0.5 * jnp.eye(len(scale)) + 0.5
    return InformationNormal(scale, scale[:, None] * correlation * scale)


def test_information_normal_survives_bad_scales_in_single_precision():
    @jax.jit
    def run(scale):
        law = badly_scaled(scale)
        return law.sample(random.key(5), (5000,)), law.log_prob(law.mean), law.covariance_matrix

    draws, log_prob, covariance = run(jnp.asarray(BAD_SCALES, jnp.float32))
    wanted = np.linalg.inv(0.5 * np.eye(5) + 0.5)
    z = z_scores(np.asarray(draws, float) * BAD_SCALES, wanted @ np.ones(5), wanted)
    assert np.abs(z).max() < stats.norm.isf(P_VALUE / (2 * len(z)))
    assert jnp.isfinite(log_prob)
    np.testing.assert_allclose(BAD_SCALES[:, None] * np.asarray(covariance, float) * BAD_SCALES, wanted, rtol=1e-4)


def test_information_normal_with_bad_scales_passes_validation():
    badly_scaled(jnp.asarray(BAD_SCALES, jnp.float32))


def test_information_normal_refuses_an_indefinite_precision_when_validated():
    with pytest.raises(ValueError, match="precision"):
        InformationNormal(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]]), validate_args=True)


def test_information_normal_maps_over_batches_like_single_laws():
    linear, precision = gaussian(batch=(4,))
    with jax.enable_x64(True):
        log_prob = jax.jit(lambda h, P: InformationNormal(h, P).log_prob(jnp.ones(3)))
        single = [log_prob(h, P) for h, P in zip(linear, precision, strict=True)]
        log_prob = jax.vmap(log_prob)(linear, precision)
        np.testing.assert_allclose(log_prob, single, rtol=1e-12)


HINGES = [(1.0, 1.0, 1.0), (0.1, 2.0, 3.0), (5.0, 1.0, 0.3), (2.0, 0.5, 4.0)]
HINGES += [(0.2, 3.0, 0.8)]  # 2 c s^2 is below ell


def hinge_density(cost, ell, s):
    """Of ``u = a'eta ~ N(0, s^2)`` tilted by the hinge, not normalised."""
    return lambda u: stats.norm.pdf(u, 0, s) * np.exp(-2 * cost * np.maximum(ell - u, 0))


@pytest.mark.parametrize(("cost", "ell", "scale"), HINGES)
def test_hinge_normal_is_normalised_in_closed_form(cost, ell, scale):
    a = np.array([0.6, -1.1])
    s = scale * np.linalg.norm(a)
    value, error = quad(hinge_density(cost, ell, s), -40 * s, 40 * s, points=[ell, 0.0], limit=400, epsabs=1e-14)
    with jax.enable_x64(True):
        assert error < 1e-9 * value
        assert float(HingeNormal(a.copy(), cost, ell, scale).log_normaliser) == pytest.approx(np.log(value), abs=1e-9)


def test_hinge_normal_far_out():
    """Where the printed form overflows: against SciPy's logarithms in their own stable arrangement."""
    with jax.enable_x64(True):
        for cost, s in ((1e3, 1.0), (1.0, 1e3), (1e3, 1e3), (1e-6, 1.0), (1.0, 1e-3)):
            found = float(HingeNormal(np.array([s]), cost, 1.0, 1.0).log_normaliser)
            t = 2 * cost * s - 1 / s
            inside = -2 * cost + 2 * (cost * s) ** 2 + log_ndtr(-t) if t < 30 else None
            if inside is None:  # Mills' ratio of a large argument
                inside = -0.5 / s**2 - np.log(t) + np.log1p(-1 / t**2 + 3 / t**4) - np.log(2 * np.pi) / 2
            assert found == pytest.approx(np.logaddexp(log_ndtr(-1 / s), inside), rel=1e-6)
    single = [HingeNormal(jnp.array([s]), c, 1.0, 1.0).log_normaliser for c in (1e-6, 1, 1e6) for s in (1e-4, 1, 1e4)]
    assert np.isfinite(single).all()
    assert np.max(single) <= 0


@pytest.mark.parametrize(("cost", "ell", "scale"), HINGES)
def test_hinge_normal_density_and_draws(cost, ell, scale):
    a = np.array([0.6, -1.1])
    s = scale * np.linalg.norm(a)
    with jax.enable_x64(True):
        law = HingeNormal(a.copy(), cost, ell, scale)
        eta = np.asarray(law.sample(random.key(1), (4000,)))
        other = np.array([[0.3, -2.0], [5.0, 1.0]])
        claimed = np.asarray(law.log_prob(other))
        log_normaliser = float(law.log_normaliser)
    expected = stats.norm.logpdf(other, 0, scale).sum(1) - 2 * cost * np.maximum(ell - other @ a, 0) - log_normaliser
    np.testing.assert_allclose(claimed, expected, rtol=1e-12)
    density = hinge_density(cost, ell, s)
    grid = np.linspace(-12 * s, 12 * s + ell, 200_001)
    cumulative = np.cumsum(density(grid))
    assert stats.kstest(eta @ a, lambda u: np.interp(u, grid, cumulative / cumulative[-1])).pvalue > P_VALUE
    across = eta @ np.array([1.1, 0.6]) / s  # orthogonal to a: the prior is left
    assert stats.kstest(across, stats.norm.cdf).pvalue > P_VALUE
    assert abs(stats.spearmanr(eta @ a, across).statistic) < 0.06


def test_hinge_normal_of_a_datum_of_zeros_is_the_prior_and_pays_the_margin():
    law = HingeNormal(jnp.zeros(2), 0.7, 1.5, 2.0)
    assert float(law.log_normaliser) == pytest.approx(-2 * 0.7 * 1.5, rel=1e-5)
    eta = law.sample(random.key(0), (4000,))
    assert stats.kstest(np.asarray(eta).ravel() / 2, stats.norm.cdf).pvalue > P_VALUE


@pytest.mark.parametrize(("n", "slots", "alpha"), [(4, 4, 0.7), (4, 6, 2.5), (3, 2, 1.0), (1, 3, 1.0)])
def test_restaurant_probabilities_sum_to_those_of_the_partitions_that_fit(n, slots, alpha):
    """To one where there are slots enough, and otherwise to the chance of few enough clusters."""
    labels = np.array(list(itertools.product(range(slots), repeat=n)))
    with jax.enable_x64(True):
        p = np.exp(ChineseRestaurantProcess(alpha, n, slots).log_prob(labels))
    weights = {1: [1.0], 3: [2.0, 3.0, 1.0]}  # unsigned Stirling numbers: alpha^K times them is the law of K
    if slots >= n:
        assert p.sum() == pytest.approx(1, rel=1e-12)
    else:
        stirling = np.array(weights[n]) * alpha ** np.arange(1, n + 1)
        assert p.sum() == pytest.approx(stirling[:slots].sum() / stirling.sum(), rel=1e-12)


def test_restaurant_draws_have_their_probabilities():
    law = ChineseRestaurantProcess(1.3, 4, 5)
    draws = np.asarray(jax.jit(lambda key: law.sample(key, (20_000,)))(random.key(3)))
    labels = np.array(list(itertools.product(range(5), repeat=4)))
    expected = np.exp(np.asarray(law.log_prob(labels), float))
    found = np.bincount(draws @ 5 ** np.arange(3, -1, -1), minlength=5**4)
    assert stats.chisquare(found, expected / expected.sum() * found.sum()).pvalue > P_VALUE


def test_restaurant_is_a_numpyro_distribution():
    law = ChineseRestaurantProcess(jnp.array([0.5, 2.0]), 3, 4)
    assert law.sample(random.key(0), (7,)).shape == (7, 2, 3)
    assert law.log_prob(law.sample(random.key(0), (7,))).shape == (7, 2)
    assert law.support.is_discrete
    assert law.support(np.array([[0, 3, 1], [0, 4, 1]])).tolist() == [True, False]
    with pytest.raises(ValueError, match="concentration"):
        ChineseRestaurantProcess(-1.0, 3, 4, validate_args=True)
