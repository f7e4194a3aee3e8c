"""The kernel contract: wrong moves are caught, misfits are refused, a user's own program runs."""

import argparse
import functools
import pathlib
import runpy

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.handlers import mask, scale
from numpyro.infer import MCMC, NUTS
from oracle import assert_agree

import regbayes
from regbayes.diagnostics import conformance
from regbayes.inference import (
    Augmented,
    CommonShift,
    Conditional,
    EllipticalSlice,
    MarginWeights,
    Move,
    MoveKernel,
    Rescale,
)
from regbayes.inference.kernels import multiclass_svm as multiclass_moves
from regbayes.inference.kernels import svm as svm_moves
from regbayes.models import HingeOmega, InformationNormal, epsilon_insensitive, hinge, multiclass_svm, svm, temper

(X, Y), _ = regbayes.zoo["svm"].example()
EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def wrong_mean(omega, rest, *args, **kwargs):
    law = svm_moves.eta_given_omega(omega, rest, *args, **kwargs)
    return InformationNormal(1.01 * law.linear, law.precision)


def wrong_precision(omega, rest, *args, **kwargs):
    law = svm_moves.eta_given_omega(omega, rest, *args, **kwargs)
    return InformationNormal(law.linear, law.precision + jnp.eye(2))


def wrong_omega(z, *args, **kwargs):
    law = svm_moves.omega_given_eta(z, *args, **kwargs).base_dist
    return HingeOmega(law.b / 2).to_event(1)


class WrongRescale(Rescale):
    def _log_density(self, log_joint, t, size):
        return log_joint + (size - 1) * t


class WrongShift(CommonShift):
    def _shifted(self, z, mean):
        return {site: value + mean for site, value in z.items()}


class WrongSlice(EllipticalSlice):
    def _log_reference(self, u):
        return -u @ u / 2


RIGHT = (svm_moves.omega_given_eta, svm_moves.eta_given_omega)


@pytest.mark.parametrize(
    "move",
    [
        Augmented("eta", RIGHT[0], wrong_mean),
        Augmented("eta", RIGHT[0], wrong_precision),
        Augmented("eta", wrong_omega, RIGHT[1]),
        WrongRescale("eta"),
        WrongSlice("eta", svm_moves.eta_fit),
    ],
    ids=["mean", "precision", "omega", "jacobian", "reference"],
)
def test_a_wrong_move_is_caught(move):
    report = conformance(MoveKernel(svm, [move]), X, Y)
    assert report.max_error > 1e-3
    assert not report.ok
    assert "WRONG" in str(report)


def test_a_wrong_shift_is_caught():
    (X, y), _ = regbayes.zoo["multiclass-svm"].example()
    law = multiclass_moves.mean_eta
    assert conformance(MoveKernel(multiclass_svm, [CommonShift("eta", law)]), X, y).ok
    assert not conformance(MoveKernel(multiclass_svm, [WrongShift("eta", law)]), X, y).ok
    narrow = CommonShift("eta", lambda z, *args, **kwargs: dist.Normal(0.0, 0.5).expand([2]).to_event(1))
    assert not conformance(MoveKernel(multiclass_svm, [narrow]), X, y).ok


class Unreachable(Move):
    """A Metropolis move without an identity."""

    def step(self, keys, z, log_joint, target, tuning):
        return z, log_joint


def test_a_move_out_of_reach_is_listed_with_its_test():
    moves = [Augmented("eta", *RIGHT), Unreachable("eta", name="walk", covered_by="tests/test_walk.py")]
    report = conformance(MoveKernel(svm, moves), X, Y)
    assert report.max_error <= 1e-8
    assert "walk" in str(report)
    assert "tests/test_walk.py" in str(report)
    uncovered = conformance(MoveKernel(svm, [Unreachable("eta")]), X, Y)
    assert np.isnan(uncovered.max_error)
    assert not uncovered.ok
    assert "no test named" in str(uncovered)


def two_scales(X, y, z=None):
    """A program of a user: two hinges, an epsilon-insensitive term, a Gaussian child, a mask and a scale."""
    nu = numpyro.sample("nu", dist.Gamma(2.0, 1.0))
    eta = numpyro.sample("eta", dist.Normal(0.5, nu).expand([2, 2]).to_event(2))
    numpyro.sample("child", dist.Normal(eta[0], 0.7).to_event(1), obs=jnp.array([0.3, -0.2]))
    with mask(mask=jnp.arange(len(X)) % 3 > 0):
        hinge("first", X @ eta[0] - 0.1, 2 * y - 1, cost=0.7, ell=1.5)
    with scale(scale=2.0):
        hinge("second", X @ eta[1], 1 - 2 * y, cost=jnp.linspace(0.1, 1.0, len(X)))
    with numpyro.plate("data", len(X)):
        epsilon_insensitive("tube", X @ (eta[0] + eta[1]), X[:, 0], cost=0.2, epsilon=0.3)


@pytest.mark.parametrize("program", [two_scales, temper(two_scales, beta=3.0)], ids=["plain", "tempered"])
def test_the_move_read_off_any_program_conforms(program):
    kernel = MoveKernel(program, [MarginWeights("eta"), Unreachable("nu", covered_by="NUTS")])
    assert conformance(kernel, X, Y).max_error <= 1e-8


def bent(X, y):
    eta = numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    hinge("margin", X @ eta**2, 2 * y - 1)


def heavy_tailed(X, y):
    eta = numpyro.sample("eta", dist.StudentT(3.0, 0.0, 1.0).expand([2]).to_event(1))
    hinge("margin", X @ eta, 2 * y - 1)


def marginless(X, y):
    numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))


@pytest.mark.parametrize(
    ("program", "message"),
    [(bent, "not conditionally Gaussian"), (heavy_tailed, "not conditionally Gaussian"), (marginless, "no hinge")],
)
def test_a_program_the_move_does_not_fit_is_refused(program, message):
    mcmc = MCMC(MoveKernel(program, [MarginWeights("eta")]), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=message):
        mcmc.run(random.key(0), X, Y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MoveKernel(svm, []), "moves must be a non-empty list"),
        (lambda: MoveKernel(None, [Rescale("eta")]), "model must be a NumPyro program"),
        (lambda: Conditional([], None), "sites must be"),
        (lambda: Conditional(["a", "b"], None, rows=True), "one site"),
        (lambda: Augmented("eta", *RIGHT, overrelaxation=1.0), r"overrelaxation must lie in \[0, 1\), found 1.0"),
        (lambda: EllipticalSlice("eta", None, degrees_of_freedom=2.5), "degrees_of_freedom.*found 2.5"),
        (lambda: conformance(NUTS(svm), X, Y), "kernel must be a MoveKernel, found NUTS"),
    ],
)
def test_bad_construction_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("moves", "program", "init_params", "message"),
    [
        ([Rescale("beta")], svm, None, r"moves own sites \['beta'\].*latent sites of the program are \['eta'\]"),
        ([Rescale("eta")], two_scales, None, r"no move owns the latent sites \['nu'\].*Gibbs"),
        ([Rescale("eta")], svm, {"beta": jnp.ones(2)}, "init_params has the site 'beta'"),
        ([Rescale("eta")], svm, {"eta": jnp.ones(3)}, r"init_params\['eta'\] must have shape \(2,\), found \(3,\)"),
    ],
)
def test_a_misfit_is_refused_at_init(moves, program, init_params, message):
    with pytest.raises(ValueError, match=message):
        MoveKernel(program, moves).init(random.key(0), 0, init_params, (X, Y), {})


def test_a_start_that_is_given_is_taken():
    kernel = regbayes.zoo["svm"].kernels["slice"]()  # whose move would rather start elsewhere
    state = kernel.init(random.key(0), 0, {"eta": jnp.array([3.0, -4.0])}, (X, Y), {})
    np.testing.assert_array_equal(state.z["eta"], [3.0, -4.0])


def gaussian(x):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    numpyro.deterministic("sigma", tau**-0.5)
    numpyro.sample("x", dist.Normal(mu, tau**-0.5).expand([len(x)]).to_event(1), obs=x)


def mu_given_rest(rest, x):
    precision = 1 + rest["tau"] * len(x)
    return dist.Normal(rest["tau"] * x.sum() / precision, precision**-0.5)


def tau_given_rest(rest, x):
    return dist.Gamma(2 + len(x) / 2, 1 + ((x - rest["mu"]) ** 2).sum() / 2)


def test_conditionals_of_a_users_own_model():
    kernel = MoveKernel(gaussian, [Conditional("mu", mu_given_rest), Conditional("tau", tau_given_rest)])
    x = jnp.array([0.3, 1.2, -0.4, 2.0])
    assert conformance(kernel, x).max_error <= 1e-8
    draws = {}
    for name, sampler in (("ours", kernel), ("nuts", NUTS(gaussian))):
        settings = {"num_warmup": 300, "num_samples": 3000, "num_chains": 2, "chain_method": "vectorized"}
        mcmc = MCMC(sampler, progress_bar=False, **settings)
        mcmc.run(random.key(0), x)
        draws[name] = mcmc.get_samples(group_by_chain=True)
    assert set(draws["ours"]) == {"mu", "tau", "sigma"}
    for site in draws["ours"]:
        assert_agree(draws["ours"][site], draws["nuts"][site])


def test_two_sites_drawn_together():
    def both(rest, x):
        return {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(x, 2.0)}

    def program(x):
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Normal(x, 2.0))

    kernel = MoveKernel(program, [Conditional(["a", "b"], both)])
    assert conformance(kernel, 1.0).max_error <= 1e-8
    state = kernel.sample(kernel.init(random.key(0), 0, None, (1.0,), {}), (1.0,), {})
    assert state.z["a"] != state.z["b"]
    missing = MoveKernel(program, [Conditional(["a", "b"], lambda rest, x: {"a": dist.Normal(0.0, 1.0)})])
    with pytest.raises(ValueError, match=r"one Distribution for each of \['a', 'b'\], found \['a'\]"):
        conformance(missing, 1.0)


def test_structural_options_are_bound_by_partial():
    program = functools.partial(svm, intercept=True)
    for make in regbayes.zoo["svm"].kernels.values():
        kernel = make(program)
        assert conformance(kernel, X, Y).max_error <= 1e-8
        assert kernel.init(random.key(0), 0, None, (X, Y), {}).z["eta"].shape == (3,)


def test_the_hierarchical_example_agrees_with_nuts():
    example = runpy.run_path(str(EXAMPLES / "hierarchical_svm.py"))
    X, y, group = example["make_groups"](seed=0, num_data=40)
    draws = {
        name: example["run_inference"](kernel, X, y, group, seed=i, num_warmup=200, num_samples=1000, num_chains=2)
        for i, (name, kernel) in enumerate(example["make_kernels"]().items())
    }
    nuts, blocks = (mcmc.get_samples(group_by_chain=True) for mcmc in draws.values())
    for site in ("prior_scale", "eta"):
        assert_agree(nuts[site], blocks[site])


@pytest.mark.slow
def test_the_hierarchical_example_runs_as_a_script(capsys):
    example = runpy.run_path(str(EXAMPLES / "hierarchical_svm.py"))
    example["main"](argparse.Namespace(num_warmup=50, num_samples=50, num_chains=1, seed=0))
    out = capsys.readouterr().out
    assert "conformance of hierarchical_svm" in out
    assert out.count("prior_scale") == 2


def test_the_start_is_compiled_once_for_new_data_and_settings():
    traces = []

    def program(X, y, cost):
        traces.append(cost)
        eta = numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
        hinge("margin", X @ eta, 2 * y - 1, cost=cost)

    kernel = MoveKernel(program, [MarginWeights("eta")])
    y = jnp.asarray(Y)
    first = kernel.init(random.key(0), 0, None, (X, y, 1.0), {})
    count = len(traces)
    kernel.check(kernel.target((X, y, 1.0), {}))
    checking = len(traces) - count
    second = kernel.init(random.key(0), 0, None, (2 * X, y, 3.0), {})
    assert len(traces) == count + 2 * checking, "compiled anew"
    exact = kernel.target((2 * X, y, 3.0), {}).log_joint(second.z)
    np.testing.assert_allclose(second.log_joint, exact, rtol=1e-5)
    assert first.log_joint != second.log_joint


def test_a_program_may_look_at_its_arguments_values():
    def program(X, scale):
        width = 2.0 if scale > 1 else 1.0
        loc = np.asarray(X).mean()
        numpyro.sample("eta", dist.Normal(loc, width))

    kernel = MoveKernel(program, [Conditional("eta", lambda z, X, scale: dist.Normal(np.asarray(X).mean(), 2.0))])
    state = kernel.init(random.key(0), 0, None, (np.array([1.0, 3.0]), 4.0), {})
    np.testing.assert_allclose(state.log_joint, dist.Normal(2.0, 2.0).log_prob(state.z["eta"]), rtol=1e-6)
