"""The factors in their three readings: marginal against formulas, augmented by quadrature, tempered by rescaling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.handlers import condition, mask, scale, seed, substitute, trace
from numpyro.infer import Predictive
from numpyro.infer.util import log_density

from regbayes.models import (
    HingeOmega,
    augment,
    epsilon_insensitive,
    hinge,
    multiclass_hinge,
    multiclass_svm,
    svm,
    svr,
    temper,
)

COST = 0.7


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def hinge_loss(f, y, ell=1.0):
    return np.array([max(0.0, ell - t * s) for s, t in zip(f, y, strict=True)])


def multiclass_loss(scores, y, ell=1.0, competitors=None):
    """The definition: a maximum over the competitors and the own class, whose entry asks for no margin."""
    allowed = np.broadcast_to(True if competitors is None else competitors, np.shape(scores))
    losses = []
    for s, t, may in zip(scores, y, allowed, strict=True):
        losses.append(max(s[k] + ell * (k != t) for k in range(len(s)) if may[k] or k == t) - s[t])
    return np.array(losses)


def tube_loss(f, y, epsilon=0.1):
    return np.array([max(0.0, abs(t - s) - epsilon) for s, t in zip(f, y, strict=True)])


# Primitive, loss, labels, and scores that put zeta below, at and above 0 (for the tube: inside, on and off it).
CASES = {
    "hinge": (hinge, hinge_loss, [1, -1, 1], [[2.0, -1.0, 0.3]]),
    "hinge, wide margin": (
        functools.partial(hinge, ell=2.0),
        functools.partial(hinge_loss, ell=2.0),
        [1, -1],
        [[2, 1]],
    ),
    "multiclass": (
        multiclass_hinge,
        multiclass_loss,
        [0, 2, 1],
        [[[3.0, 1.0, 1.5], [0.0, 1.0, 2.0], [0.2, 0.1, -0.4]]],
    ),
    "tube": (epsilon_insensitive, tube_loss, [1.0, 0.0, -1.0, 2.0], [[1.05, 0.1, 0.5, 1.0]]),
    "no tube": (
        functools.partial(epsilon_insensitive, epsilon=0.0),
        functools.partial(tube_loss, epsilon=0.0),
        [1.0, 0.0],
        [[1.0, 2.0]],
    ),
}
DATA = [(case, i) for case, (_, _, y, _) in CASES.items() for i in range(len(y))]


def make(case, index=slice(None), *, cost=COST):
    """The factor of a case on some of its data, and its losses."""
    primitive, loss, y, (scores,) = CASES[case]
    scores, y = np.asarray(scores, float)[index], np.asarray(y)[index]
    return lambda: primitive("margin", jnp.asarray(scores), jnp.asarray(y), cost=cost), loss(scores, y)


def log_p(program, sites=None, *args):
    """The log density, compiled as one: op by op takes ten times as long."""
    return jax.jit(lambda sites: log_density(program, args, {}, sites)[0])(sites or {})


def draw(program, *args):
    """The latent sites of a run of the program."""

    def run():
        sites = trace(seed(program, 1)).get_trace(*args)
        return {k: site["value"] for k, site in sites.items() if site["type"] == "sample" and not site["is_observed"]}

    return jax.jit(run)()


def site_names(program, *args):
    return list(trace(seed(program, 0)).get_trace(*args))


def omega_shape(program):
    draw = jax.eval_shape(lambda: trace(seed(augment(program), 0)).get_trace()["margin_omega"]["value"])
    return draw.shape


def integrate(program, active=None):
    """``exp(log density)`` integrated over the ``active`` (at most two, by default all) ``omega``; the rest stay 1.

    The trapezoid rule in ``log omega`` converges geometrically: the integrand is smooth and dies off at both ends.
    """
    u = jnp.linspace(-42.0, 7.0, 350)
    shape = omega_shape(program)
    active = jnp.arange(np.prod(shape, dtype=int)) if active is None else jnp.asarray(active)
    grid = jnp.stack(jnp.meshgrid(*[u] * len(active), indexing="ij"), -1).reshape(-1, len(active))

    def integrand(point):
        omega = jnp.ones(np.prod(shape, dtype=int)).at[active].set(jnp.exp(point)).reshape(shape)
        return jnp.exp(log_p(augment(program), {"margin_omega": omega}) + point.sum())

    return float(jax.jit(jax.vmap(integrand))(grid).sum() * (u[1] - u[0]) ** len(active))


@pytest.mark.parametrize("case", CASES)
def test_log_density_is_the_formula(case):
    program, loss = make(case)
    np.testing.assert_allclose(log_p(program), -2 * COST * loss.sum(), rtol=1e-12)
    site = trace(program).get_trace()["margin"]
    np.testing.assert_allclose(site["fn"].log_prob(site["value"]), -2 * COST * loss, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_a_cost_per_datum_weighs_each_datum(case):
    cost = np.linspace(0.5, 2, len(CASES[case][2]))
    program, loss = make(case, cost=cost)
    np.testing.assert_allclose(log_p(program), -2 * cost @ loss, rtol=1e-12)
    assert omega_shape(program)[0] == len(cost)


@pytest.mark.parametrize(("case", "index"), DATA)
def test_integrating_omega_out_gives_the_marginal_factor(case, index):
    program, loss = make(case, slice(index, index + 1))
    assert integrate(program) == pytest.approx(np.exp(-2 * COST * loss[0]), rel=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_omega_and_factor_make_the_scale_mixture(case):
    program, _ = make(case)
    zeta = np.asarray(trace(program).get_trace()["margin"]["infer"]["margin"]["zeta"])
    omega = np.asarray(draw(augment(program))["margin_omega"])
    mixture = -((omega + COST * zeta) ** 2) / (2 * omega) - np.log(2 * np.pi * omega) / 2
    assert omega.shape == zeta.shape
    np.testing.assert_allclose(log_p(augment(program), {"margin_omega": omega}), mixture.sum(), rtol=1e-12)


def test_hinge_and_tube_leave_their_zeta_for_the_augmentation():
    f, y = np.array([0.5, -2.0]), np.array([1, -1])
    sites = trace(lambda: hinge("margin", f, y, ell=1.5)).get_trace()
    np.testing.assert_allclose(sites["margin"]["infer"]["margin"]["zeta"], 1.5 - y * f)
    sites = trace(lambda: epsilon_insensitive("margin", f, y, epsilon=0.2)).get_trace()
    zeta = np.stack([f - y - 0.2, y - f - 0.2], axis=-1)
    np.testing.assert_allclose(sites["margin"]["infer"]["margin"]["zeta"], zeta)


# ----- Nesting with NumPyro's handlers


@pytest.mark.parametrize("factor", [0.25, 3.0])
@pytest.mark.parametrize("case", ["hinge", "multiclass", "tube"])
def test_scale_is_a_power_of_the_factor_and_not_of_omegas_law(case, factor):
    program, loss = make(case, slice(-1, None))
    assert loss[0] > 0
    wanted = np.exp(-2 * COST * factor * loss[0])
    assert np.exp(log_p(scale(program, scale=factor))) == pytest.approx(wanted, rel=1e-12)
    assert integrate(scale(program, scale=factor)) == pytest.approx(wanted, rel=1e-8)


def test_scale_may_differ_between_data():
    program, loss = make("hinge", [0, 2])
    scales = np.array([0.5, 2.0])
    assert integrate(scale(program, scale=scales)) == pytest.approx(np.exp(-2 * COST * scales @ loss), rel=1e-8)


@pytest.mark.parametrize(("case", "active"), [("hinge", [2]), ("multiclass", [2]), ("tube", [4, 5])])
def test_masked_data_contribute_nothing_and_neither_do_their_omegas(case, active):
    program, loss = make(case)
    keep = np.arange(len(loss)) == 2
    masked = mask(program, mask=jnp.asarray(keep))
    assert loss[2] > 0
    np.testing.assert_allclose(log_p(masked), -2 * COST * loss[2], rtol=1e-12)
    assert integrate(masked, active) == pytest.approx(np.exp(-2 * COST * loss[2]), rel=1e-8)
    gradient = jax.grad(lambda omega: log_p(augment(masked), {"margin_omega": omega}))(jnp.ones(omega_shape(program)))
    np.testing.assert_array_equal(np.asarray(gradient != 0).reshape(len(keep), -1).any(1), keep)


HANDLERS = {
    "scale": lambda fn: scale(fn, scale=2.5),
    "scale per datum": lambda fn: scale(fn, scale=jnp.array([0.5, 1.0, 2.0])),
    "mask": lambda fn: mask(fn, mask=jnp.array([True, False, True])),
    "seed": lambda fn: seed(fn, 0),
    "temper": lambda fn: temper(fn, beta=4.0),
    "scale and mask": lambda fn: scale(mask(fn, mask=jnp.array([True, False, True])), scale=0.5),
    "scale twice": lambda fn: scale(scale(fn, scale=0.5), scale=3.0),
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_augment_may_stand_inside_or_outside_other_handlers(handler):
    (program, _), wrap = make("hinge"), HANDLERS[handler]
    readings = (wrap(augment(program)), augment(wrap(program)), augment(program))

    @jax.jit
    def densities(omega):
        return [log_density(reading, (), {}, {"margin_omega": omega})[0] for reading in readings]

    inside, outside, without = densities(jnp.array([0.3, 1.0, 2.0]))
    np.testing.assert_allclose(inside, outside, rtol=1e-12)
    # Only `seed` changes no density.
    assert (abs(inside - without) > 1e-3) == (handler != "seed")


def test_augmented_draws_of_omega_follow_its_law():
    program, _ = make("hinge")
    draws = trace(seed(augment(program), random.key(3))).get_trace()["margin_omega"]
    zeta = 1 - np.array([1, -1, 1]) * np.array([2.0, -1.0, 0.3])
    np.testing.assert_allclose(draws["fn"].log_prob(0.4), HingeOmega(COST * np.abs(zeta)).log_prob(0.4), rtol=1e-12)
    assert (draws["value"] > 0).all()
    assert not draws["is_observed"]


def test_omega_can_be_conditioned_and_substituted():
    program, _ = make("hinge")
    omega = jnp.array([0.3, 1.0, 2.0])
    wanted = log_p(augment(program), {"margin_omega": omega})
    conditioned = condition(augment(program), {"margin_omega": omega})
    sites = trace(conditioned).get_trace()
    assert sites["margin_omega"]["is_observed"]
    np.testing.assert_allclose(log_p(conditioned), wanted, rtol=1e-12)
    substituted = substitute(augment(program), {"margin_omega": omega})
    np.testing.assert_allclose(trace(substituted).get_trace()["margin_omega"]["value"], omega)
    np.testing.assert_allclose(log_p(substituted), wanted, rtol=1e-12)


@pytest.mark.parametrize("case", ["hinge", "multiclass", "tube"])
def test_a_factor_inside_a_plate_is_the_factor_outside(case):
    program, loss = make(case)

    def plated():
        with numpyro.plate("data", len(loss)):
            program()

    np.testing.assert_allclose(log_p(plated), log_p(program), rtol=1e-12)
    omega = jnp.linspace(0.3, 2, np.prod(omega_shape(program))).reshape(omega_shape(program))
    assert omega_shape(plated) == omega.shape
    sites = {"margin_omega": omega}
    np.testing.assert_allclose(log_p(augment(plated), sites), log_p(augment(program), sites), rtol=1e-12)


def test_a_subsampling_plate_scales_the_factor():
    f, y = jnp.array([2.0, -1.0, 0.3, -0.5]), jnp.array([1, -1, 1, 1])

    def program():
        with numpyro.plate("data", 4, subsample_size=2) as index:
            hinge("margin", f[index], y[index], cost=COST)

    index = jnp.array([2, 3])
    chosen = substitute(program, {"data": index})
    wanted = -2 * COST * 4 / 2 * hinge_loss(f[index], y[index]).sum()
    np.testing.assert_allclose(log_p(chosen), wanted, rtol=1e-12)
    assert integrate(chosen) == pytest.approx(np.exp(wanted), rel=1e-8)


# ----- Tempering

X = np.random.default_rng(0).normal(size=(6, 2))
PROGRAMS = {
    "svm": (svm, np.array([0, 1, 1, 0, 1, 0]), (2,)),
    "multiclass_svm": (multiclass_svm, np.array([0, 1, 2, 0, 1, 2]), (3, 2)),
    "svr": (svr, np.random.default_rng(1).normal(size=6), (2,)),
}


@pytest.mark.parametrize("beta", [0.5, 100.0])
@pytest.mark.parametrize("name", PROGRAMS)
def test_temper_is_a_narrower_prior_and_a_higher_cost(name, beta):
    program, y, shape = PROGRAMS[name]
    etas = np.random.default_rng(2).normal(size=(3, *shape))
    options = {"cost": 0.3 * beta, "prior_scale": 2.0 / np.sqrt(beta)}
    hot, cold = (
        functools.partial(program, **options),
        temper(functools.partial(program, cost=0.3, prior_scale=2.0), beta),
    )
    wanted, found = (jax.vmap(lambda eta, p=p: log_p(p, {"eta": eta}, X, y))(etas) for p in (hot, cold))
    np.testing.assert_allclose(np.diff(found), np.diff(wanted), rtol=1e-10)


# ----- The multi-class factor


@pytest.mark.parametrize("shape", [(5, 4), (4,), (5, 1)], ids=str)
def test_competitors_limit_the_maximum(shape):
    rng = np.random.default_rng(3)
    scores, y = rng.normal(size=(5, 4)), np.array([0, 1, 2, 3, 1])
    masks = rng.random((20, *shape)) < 0.5

    def program(competitors):
        multiclass_hinge("margin", scores, y, cost=COST, ell=0.8, competitors=competitors)

    found = jax.vmap(lambda competitors: log_p(program, {}, competitors))(masks)
    wanted = [-2 * COST * multiclass_loss(scores, y, 0.8, competitors).sum() for competitors in masks]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_without_a_rival_the_loss_is_zero_with_a_finite_gradient():
    y, competitors = jnp.array([0, 1]), jnp.array([[True, False, False], [True, True, False]])

    def program(scores):
        multiclass_hinge("margin", scores, y, competitors=competitors)

    scores = jnp.array([[-5.0, 1.0, 2.0], [0.5, 0.0, 9.0]])
    value, gradient = jax.value_and_grad(lambda scores: log_p(program, {}, scores))(scores)
    assert value == pytest.approx(-2 * 1.5)
    np.testing.assert_allclose(gradient, [[0, 0, 0], [-2, 2, 0]], atol=1e-14)
    assert integrate(lambda: program(scores), [0]) == pytest.approx(
        np.exp(log_p(augment(lambda: program(scores)), {"margin_omega": jnp.ones(2)}))
        / np.exp(HingeOmega(0.0).log_prob(1.0)),
        rel=1e-8,
    )
    slope = jax.grad(lambda s: log_p(augment(program), {"margin_omega": jnp.ones(2)}, s))(scores)
    assert jnp.isfinite(slope).all()
    np.testing.assert_allclose(slope[0], 0, atol=1e-14)


def test_two_classes_with_opposite_scores_are_the_binary_hinge():
    f, y = np.linspace(-3, 3, 13), np.arange(13) % 2
    for ell in (0.5, 1.0):
        program = functools.partial(multiclass_hinge, "margin", np.stack([-f / 2, f / 2], 1), y, cost=COST, ell=ell)
        binary = functools.partial(hinge, "margin", f, 2 * y - 1, cost=COST, ell=ell)
        np.testing.assert_allclose(log_p(program), log_p(binary), rtol=1e-12)
        np.testing.assert_allclose(log_p(binary), -2 * COST * hinge_loss(f, 2 * y - 1, ell).sum(), rtol=1e-12)


# ----- Gradients, predictions, errors


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("reading", ["marginal", "augmented"])
def test_gradients_are_those_of_finite_differences(name, reading):
    program, y, shape = PROGRAMS[name]
    program = augment(program) if reading == "augmented" else program
    sites = draw(program, X, y)

    def density(eta):
        return log_p(program, {**sites, "eta": eta}, X, y)

    eta, direction = sites["eta"], np.random.default_rng(4).normal(size=shape)
    slope = (density(eta + 1e-6 * direction) - density(eta - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(np.sum(jax.jit(jax.grad(density))(eta) * direction), slope, rtol=1e-6)


@pytest.mark.parametrize("eta", [0.0, 1.0, 1e3, -1e8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_finite_everywhere_also_on_the_kinks(name, eta):
    program, y, shape = PROGRAMS[name]
    # With eta = 0 all scores tie; the first row's loss is at its kink for eta = 1.
    rows = np.concatenate([np.array([[0.5, 0.5]]), X])
    y = np.concatenate([np.array([1], y.dtype), y])
    with jax.enable_x64(False):
        eta = jnp.full(shape, eta)
        gradient = jax.jit(jax.grad(lambda eta: log_p(program, {"eta": eta}, rows, y)))(eta)
        assert gradient.dtype == jnp.float32
        assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("program", "options", "eta_shape", "sites"),
    [
        (svm, {}, (), {"f": (), "y": ()}),
        (multiclass_svm, {"num_classes": 3}, (3,), {"f": (3,), "y": ()}),
        (svr, {}, (), {"y": ()}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_without_labels_the_programs_predict(program, options, eta_shape, sites, intercept):
    eta = np.random.default_rng(5).normal(size=(4, *eta_shape, 2 + intercept))
    new = X[:5]
    bound = functools.partial(program, intercept=intercept)
    found = Predictive(bound, {"eta": eta}, parallel=True)(random.key(0), new, **options)
    assert {name: value.shape for name, value in found.items()} == {k: (4, 5, *v) for k, v in sites.items()}
    inputs = np.concatenate([new, np.ones((5, 1))], 1) if intercept else new
    scores = np.einsum("nd,s...d->sn...", inputs, eta)
    np.testing.assert_allclose(found["f"] if "f" in found else found["y"], scores, rtol=1e-10)
    if program is not svr:
        labels = scores.argmax(-1) if eta_shape else scores > 0
        np.testing.assert_array_equal(found["y"], labels)
    prior = Predictive(bound, num_samples=3, parallel=True)(random.key(0), new, **options)
    assert prior["eta"].shape == (3, *eta_shape, 2 + intercept)
    assert set(prior) == {"eta", *sites}


@pytest.mark.parametrize(
    ("primitive", "args", "options", "found"),
    [
        (hinge, (np.ones(3), np.ones(4)), {}, ["(3,)", "(4,)", "f of", "y of"]),
        (epsilon_insensitive, (np.ones((2, 3)), np.ones(2)), {}, ["(2, 3)", "(2,)", "f of", "y of"]),
        (multiclass_hinge, (np.ones((3, 2)), np.zeros(2, int)), {}, ["(3,)", "(2,)", "scores", "y of"]),
        (
            multiclass_hinge,
            (np.ones((3, 2)), np.zeros(3, int)),
            {"competitors": np.ones(4, bool)},
            ["(3, 2)", "(4,)", "competitors"],
        ),
        (hinge, (np.ones(3), np.ones(3)), {"cost": np.ones(2)}, ["(3,)", "(2,)", "cost of"]),
    ],
)
def test_shapes_that_do_not_match_are_named(primitive, args, options, found):
    with pytest.raises(ValueError, match="'my_margin'") as error:
        log_p(lambda: primitive("my_margin", *args, **options))
    assert [text for text in found if text not in str(error.value)] == []


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, np.array([1.0, -2.0])], ids=str)
@pytest.mark.parametrize(
    ("primitive", "args", "name"),
    [
        (hinge, (np.ones(2), np.ones(2)), "cost"),
        (hinge, (np.ones(2), np.ones(2)), "ell"),
        (multiclass_hinge, (np.ones((2, 3)), np.zeros(2, int)), "cost"),
        (multiclass_hinge, (np.ones((2, 3)), np.zeros(2, int)), "ell"),
        (epsilon_insensitive, (np.ones(2), np.ones(2)), "cost"),
        (epsilon_insensitive, (np.ones(2), np.ones(2)), "epsilon"),
    ],
)
def test_hyper_parameters_out_of_range_are_named(primitive, args, name, bad):
    program = functools.partial(primitive, "margin", *args, **{name: bad})
    if name == "epsilon" and np.all(bad == 0.0):
        assert log_p(program) == 0  # a tube of no width is legal
        return
    offender = np.ravel(bad)[-1]
    with pytest.raises(ValueError, match=rf"{name} must be .*, found {offender}"):
        log_p(program)


def test_only_margin_factors_gain_an_omega():
    def program():
        numpyro.sample("x", dist.Normal())
        numpyro.factor("other", -1.0)
        hinge("first", jnp.zeros(2), jnp.ones(2))
        epsilon_insensitive("second", jnp.zeros(2), jnp.ones(2))
        numpyro.deterministic("z", jnp.zeros(3))

    sites = trace(seed(augment(program), 0)).get_trace()
    assert [name for name in sites if name.endswith("_omega")] == ["first_omega", "second_omega"]
    assert sites["second_omega"]["value"].shape == (2, 2)
    assert site_names(program) == ["x", "other", "first", "second", "z"]


def test_a_label_beyond_the_scores_is_named():
    with pytest.raises(ValueError, match=r"'margin'.*y from 0 to 2; labels must lie in 0\.\.1"):
        log_p(lambda: multiclass_hinge("margin", np.ones((2, 2)), np.array([0, 2])))


def test_labels_that_are_no_signs_are_named():
    with pytest.raises(ValueError, match=r"'margin': found y 0, 1; signs must be -1 or 1: give 2 \* y - 1"):
        log_p(lambda: hinge("margin", np.ones(3), np.array([0, 1, 1])))
    assert log_p(lambda: hinge("margin", np.ones(2), np.array([-1.0, 1.0]))) == pytest.approx(-4.0)
