"""The Dirichlet process max-margin Gaussian mixture: its kernel against enumeration and NUTS, and the edges."""

import argparse
import functools
import pathlib
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from gaussian_mixtures import agree, far_apart_data, half_rings, log_evidence
from jax import random
from numpyro.handlers import condition
from numpyro.infer import MCMC, NUTS
from oracle import MAX_Z, assert_agree, z_scores
from partitions import canonical, growth_strings
from scipy.special import gammaln, logsumexp

from regbayes.diagnostics import conformance
from regbayes.inference import MoveKernel, dpmmgm_collapsed
from regbayes.inference.engine.target import outline
from regbayes.models import TruncatedPoisson, dpmmgm


def data(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 1.0


# ----- Every move against the program


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {"cost": 0.5, "ell": 1.0, "prior_scale": 1.0, "concentration": 3.0}),
        pytest.param(
            {"margin_features": 1, "intercept": True},
            {
                "concentration": dist.Gamma(5.0, 1.0),
                "prior_count": dist.Gamma(2.0, 3.0),
                "degrees_of_freedom": TruncatedPoisson(4.0, 2, 20),
                "scatter": dist.InverseWishart(4.0, scale_matrix=np.eye(2)),
            },
            marks=pytest.mark.slow,  # the moves of the hyper-parameters are those of dpgmm
        ),
    ],
    ids=["plain", "priors"],
)
def test_every_move_conforms_to_the_program(options, settings):
    program = functools.partial(dpmmgm, max_clusters=4, **options)
    report = conformance(dpmmgm_collapsed(program), data(6, 2), num_states=3, **settings)
    assert report.max_error <= 1e-8
    assert report.ok


# ----- Exhaustive enumeration

X5 = np.array([[-1.3], [-0.8], [0.1], [0.9], [1.6]])
SETTINGS = {
    "concentration": 1.4,
    "cost": 0.15,
    "ell": 1.2,
    "prior_scale": 0.8,
    "prior_mean": 0.2,
    "prior_count": 0.4,
    "degrees_of_freedom": 3.5,
    "scatter": 0.5,
}


@functools.cache
def enumerated(num=100_000):
    """Every partition, its log posterior up to a constant, and the relative error of it.

    The Gaussians are integrated in closed form, the weights by the average over ``num`` draws of their prior.
    """
    eta = SETTINGS["prior_scale"] * np.random.default_rng(0).normal(size=(num, 5))
    alpha, partitions, logs, errors = SETTINGS["concentration"], np.array(growth_strings(5)), [], []
    for s in partitions:
        K = s.max() + 1
        total = sum(np.log(alpha) + gammaln(np.sum(s == k)) for k in range(K))
        total += sum(log_evidence(X5[s == k], 0.2, 0.4, 3.5, 0.5 * np.eye(1)) for k in range(K))
        scores = eta[:, None, :K] * X5  # (num, 5, K)
        own = s[:, None] == np.arange(K)
        best = np.max(scores + SETTINGS["ell"] * ~own, axis=2)
        factor = np.exp(-2 * SETTINGS["cost"] * np.sum(best - np.sum(scores * own, 2), axis=1))
        logs.append(total + np.log(factor.mean()))
        errors.append(factor.std() / factor.mean() / num**0.5)
    return partitions, np.array(logs), np.array(errors)


def scores_of(z):
    """z-scores of the partitions' shares of draws (chains, draws, n), the errors of both sides included."""
    from numpyro.diagnostics import effective_sample_size

    partitions, logs, errors = enumerated()
    p = np.exp(logs - logsumexp(logs))
    p_error2 = (p * errors) ** 2 + p**2 * np.sum((p * errors) ** 2)
    hits = (canonical(np.asarray(z))[:, :, None] == partitions).all(-1)
    often = p * hits[..., 0].size > 50
    hits, p, p_error2 = hits[..., often].astype(float), p[often], p_error2[often]
    error2 = p * (1 - p) / effective_sample_size(hits) + p_error2
    found = (hits.mean((0, 1)) - p) / error2**0.5
    print(f"largest |z| {np.abs(found).max():.2f} of {len(found)} events")
    return found


def alone(name, program):
    """Labels moved by no other move: its Metropolis ratio has nowhere to hide."""
    moves = dpmmgm_collapsed(program, split_merge=3).moves
    return MoveKernel(program, [move for move in moves if name in move.name or "z" not in move.sites], name=name)


def run(make, num_samples=600, num_chains=16):
    settings = {"num_warmup": 50, "num_samples": num_samples, "num_chains": num_chains}
    kernel = make(functools.partial(dpmmgm, max_clusters=8))
    mcmc = MCMC(kernel, chain_method="vectorized", progress_bar=False, **settings)
    mcmc.run(random.key(5), X5, extra_fields=("overflow",), **SETTINGS)
    assert not np.any(mcmc.get_extra_fields()["overflow"])
    return mcmc.get_samples(group_by_chain=True)["z"]


MOVES = pytest.mark.parametrize("move", ["Sweep", "SplitMerge", "Gather"])


@MOVES
def test_partitions_by_enumeration(move):
    assert np.abs(scores_of(run(functools.partial(alone, move)))).max() < MAX_Z


@pytest.mark.slow
@MOVES
def test_partitions_by_enumeration_with_many_draws(move):
    assert np.abs(scores_of(run(functools.partial(alone, move), 10_000, 32))).max() < MAX_Z


# ----- The weights against NUTS


def weights_alone(**options):
    """The kernel's weights given the labels."""
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(30, 2)), jnp.asarray(np.arange(30) % 4)
    settings = {"cost": 1.0, "ell": 1.0, "prior_scale": 1.0}
    program = functools.partial(dpmmgm, max_clusters=5)
    fixed = lambda X, **kwargs: condition(program, data={"z": labels})(X, **kwargs)  # noqa: E731
    kernel = dpmmgm_collapsed(program, **options)
    moves = [move for move in kernel.moves if move.sites == ("eta",)]

    def total_loss(eta):
        scores = np.einsum("nd,...kd->...nk", X, eta[..., :4, :])
        own = np.asarray(labels)[:, None] == np.arange(4)
        return np.sum(np.max(scores + ~own, -1) - np.sum(scores * own, -1), -1)

    return X, labels, settings, fixed, moves[0], program, total_loss


def run_weights(num_samples, num_chains, **options):
    X, labels, settings, _, move, program, total_loss = weights_alone(**options)
    target = dpmmgm_collapsed(program).target((X,), settings)

    def step(z, key):
        z = move.step(random.split(key, move.num_keys), z, None, target, {})[0]
        return z, z["eta"]

    def chain(key):
        z = {"z": labels, "eta": jnp.zeros((5, 2))}
        return jax.lax.scan(step, z, random.split(key, num_samples + 100))[1][100:]

    return total_loss(np.asarray(jax.jit(jax.vmap(chain))(random.split(random.key(0), num_chains))))


def test_weights_of_a_single_cluster_keep_their_prior():
    """It pays nothing, and wherever its weights were, they go back to the prior."""
    X, labels, settings, _, move, program, _ = weights_alone()
    target = dpmmgm_collapsed(program).target((X,), settings)

    def step(z, key):
        return move.step(random.split(key, move.num_keys), z, None, target, {})[0], None

    def chain(key):
        z = {"z": jnp.ones_like(labels), "eta": jnp.full((5, 2), 9.0)}
        return jax.lax.scan(step, z, random.split(key, 20))[0]["eta"][1]

    eta = np.asarray(jax.jit(jax.vmap(chain))(random.split(random.key(0), 400)))
    assert np.all(np.abs(eta.mean(0)) < MAX_Z / 20)
    assert np.all(np.abs(eta.var(0) - 1) < MAX_Z * (2 / 400) ** 0.5)


def nuts_loss(num_samples, num_chains):
    X, _, settings, fixed, _, _, total_loss = weights_alone()
    mcmc = MCMC(
        NUTS(fixed), num_warmup=300, num_samples=num_samples, num_chains=num_chains, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(random.key(1), X, **settings)
    return total_loss(np.asarray(mcmc.get_samples(group_by_chain=True)["eta"]))


@pytest.mark.slow
def test_weights_against_nuts():
    """The exact step has the program's loss; the paper's has another, which is shown and not hidden."""
    reference = nuts_loss(300, 8)
    exact = run_weights(800, 8)
    assert_agree(exact[..., None], reference[..., None])
    paper = run_weights(800, 8, variant="paper")
    score = z_scores(paper[..., None], reference[..., None])[0, 0]
    print(f"loss: NUTS {reference.mean():.2f}, exact {exact.mean():.2f}, the paper's {paper.mean():.2f}, z {score:.0f}")
    assert score > 20


# ----- The program


def test_the_margin_is_over_occupied_clusters():
    X, eta = data(4, 2), np.random.default_rng(1).normal(size=(5, 2))
    program = functools.partial(dpmmgm, max_clusters=5, cost=0.7, ell=1.5)
    kernel = dpmmgm_collapsed(program)

    def log_margin(z):
        sites = kernel.target((X,), {}).trace({"z": jnp.asarray(z), "eta": jnp.asarray(eta)})
        return float(np.sum(sites["margin"]["fn"].log_factor))

    assert log_margin([2, 2, 2, 2]) == 0
    z = np.array([2, 0, 2, 0])
    scores = X @ eta.T
    rival = np.where(z == 2, scores[:, 0], scores[:, 2])
    own = scores[np.arange(4), z]
    np.testing.assert_allclose(log_margin(z), -1.4 * np.sum(np.maximum(0, 1.5 + rival - own)), rtol=1e-5)


def test_margin_features():
    X = data(8, 3)
    shape = lambda **options: outline(dpmmgm, (X,), options)["eta"]["value"].shape  # noqa: E731
    assert shape() == (64, 3)
    assert shape(margin_features=2, intercept=True) == (64, 3)
    assert shape(margin_features=lambda X: X[:, :1] ** 2) == (64, 1)
    for bad, message in (
        (0, "in 1..3, found 0"),
        (4, "in 1..3, found 4"),
        (lambda X: X[0], r"must return shape \(8, p\)"),
    ):
        with pytest.raises(ValueError, match=message):
            shape(margin_features=bad)
    for name in ("cost", "ell", "prior_scale"):
        with pytest.raises(ValueError, match=f"{name} must be positive"):
            shape(**{name: -1.0})
    with pytest.raises(ValueError, match="variant must be"):
        dpmmgm_collapsed(variant="printed")


# ----- The edges


@pytest.mark.parametrize(
    ("X", "settings"),
    [
        (np.ones((6, 2)), {}),
        pytest.param(np.array([[1.0, 0.0], [1.0, 1e3]] * 3), {"cost": 10.0}, marks=pytest.mark.slow),
        pytest.param(np.zeros((6, 2)), {"prior_scale": 10.0}, marks=pytest.mark.slow),
        (data(1, 6), {"prior_scale": 10.0}),
    ],
    ids=["duplicates", "constant column, far apart", "zeros", "one datum, fewer than dimensions"],
)
def test_degenerate_data(X, settings):
    sampler = dpmmgm_collapsed(functools.partial(dpmmgm, max_clusters=8))
    settings = {"cost": 0.1, "prior_scale": 0.1, **settings}
    state = sampler.init(random.key(0), 0, None, (X,), settings)
    for _ in range(20):
        state = sampler.sample(state, (X,), settings)
    assert np.isfinite(state.log_joint)
    assert np.isfinite(state.z["eta"]).all()
    assert 1 <= int(state.num_active) <= len(X)


@pytest.mark.slow
def test_many_dimensions_with_a_projection():
    X = np.random.default_rng(0).normal(size=(20, 784)).astype(np.float32)
    sampler = dpmmgm_collapsed(functools.partial(dpmmgm, max_clusters=4, margin_features=5), split_merge=0)
    state = sampler.init(random.key(0), 0, None, (X,), {})
    state = sampler.sample(state, (X,), {})
    assert state.z["eta"].shape == (4, 5)
    assert np.isfinite(state.log_joint)


@pytest.mark.slow
def test_no_cost_is_the_mixture_of_gaussians():
    """At a cost of almost nothing the partitions are those of dpgmm."""
    from regbayes.inference import dpgmm_collapsed
    from regbayes.models import dpgmm

    X, found = half_rings()[:30], []
    for make, program, settings in ((dpmmgm_collapsed, dpmmgm, {"cost": 1e-9}), (dpgmm_collapsed, dpgmm, {})):
        mcmc = MCMC(
            make(functools.partial(program, max_clusters=24)), num_warmup=100, num_samples=400, num_chains=8,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        mcmc.run(random.key(0), X, extra_fields=("num_active",), **settings)
        found.append(np.asarray(mcmc.get_extra_fields(group_by_chain=True)["num_active"])[..., None])
    assert_agree(*found)


# ----- Chains from far apart


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "margin", "num_samples"),
    [
        ("wine", {}, 12_000),
        ("seeds", {}, 3000),
        ("half-rings", {}, 3000),
        ("half-rings", {"cost": 0.01, "ell": 1.0}, 3000),
    ],
    ids=["wine", "seeds", "half-rings", "half-rings, several clusters"],
)
def test_chains_from_far_apart_agree(name, margin, num_samples):
    agree(dpmmgm_collapsed, dpmmgm, far_apart_data(name), num_samples, num_slots=64, **margin)


@pytest.mark.slow
def test_the_example_draws_half_rings(tmp_path, capsys):
    example = runpy.run_path(str(pathlib.Path(__file__).parents[3] / "examples" / "max_margin_clustering.py"))
    settings = {"num_data": 60, "num_warmup": 20, "num_samples": 20, "data_home": None, "seed": 0}
    example["main"](argparse.Namespace(**settings, only="rings", out=tmp_path))
    assert (tmp_path / "half_rings.png").stat().st_size > 10_000
    assert "DPMMGM: " in capsys.readouterr().out
