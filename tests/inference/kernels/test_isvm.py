"""The Gibbs infinite SVM: its kernels against enumeration, its limit, its predictions, and the edges."""

import argparse
import functools
import pathlib
import re
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from arviz_stats import rhat
from draws import sites_and_logs
from jax import random
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC
from oracle import MAX_Z
from partitions import log_partitions, partition_scores
from scipy.special import gammaln, logsumexp
from sklearn.exceptions import ConvergenceWarning

from regbayes.datasets import make_m2dpm_setting1, make_m2dpm_setting2
from regbayes.diagnostics import conformance
from regbayes.inference import M2DPM, MoveKernel, SplitMerge, draw_chains, isvm_collapsed, isvm_predict, isvm_slice
from regbayes.inference.engine.target import outline
from regbayes.inference.kernels.isvm import mixture
from regbayes.models import isvm

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
KERNELS = {"collapsed": isvm_collapsed, "slice": isvm_slice}


def inputs(likelihood, n, d, num_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = {
        "gaussian": rng.normal(size=(n, d)),
        "bernoulli": rng.integers(0, 2, (n, d)).astype(float),
        "poisson": rng.poisson(2.0, (n, d)).astype(float),
        "multinomial": rng.poisson(2.0, (n, d)).astype(float),
    }[likelihood]
    return X, np.arange(n) % num_classes


# ----- Every move against the program


@pytest.mark.parametrize(
    ("likelihood", "num_classes", "settings"),
    [
        ("gaussian", 2, {"concentration": dist.Gamma(2.0, 1.0), "variance": dist.InverseGamma(3.0, 2.0)}),
        pytest.param("gaussian", 3, {"prior_mean": np.array([0.5, -1.0])}, marks=pytest.mark.slow),
        pytest.param("bernoulli", 2, {"prior_count": 3.0}, marks=pytest.mark.slow),
        ("poisson", 3, {"cost": 0.3, "ell": 2.0}),
        ("multinomial", 2, {"prior_scale": 2.0}),
    ],
)
def test_every_move_conforms_to_the_program(likelihood, num_classes, settings):
    X, y = inputs(likelihood, 5, 2, num_classes)
    program = functools.partial(isvm, likelihood=likelihood, num_classes=num_classes, max_clusters=4)
    for make in KERNELS.values():
        report = conformance(make(program), X, y, num_states=4, **settings)
        assert report.max_error <= 1e-8
        assert report.ok
        assert {"Sweep", "SliceAssignment"} & {row.move.split("(")[0] for row in report.rows}
        assert [row.covered_by for row in report.rows if "SplitMerge" in row.move] != [""]  # named, not passed over


# ----- Exhaustive enumeration

X5 = np.array([[-1.3], [-0.8], [0.1], [0.9], [1.6]])
LABELS = {2: np.array([0, 1, 1, 0, 1]), 3: np.array([0, 1, 2, 2, 1])}
SETTINGS = {
    "concentration": 1.4,
    "cost": 0.8,
    "ell": 1.2,
    "prior_scale": 1.5,
    "variance": 0.5,
    "prior_mean": 0.2,
    "prior_count": 0.4,
}
GRID = np.linspace(-6.5, 6.5, 401)


def log_inputs(x):
    """Of a cluster of inputs (m,) with the mean integrated out."""
    k, v, n = SETTINGS["prior_count"], SETTINGS["variance"], len(x)
    centred = x - SETTINGS["prior_mean"]
    squares = centred @ centred - centred.sum() ** 2 / (k + n)
    return -n / 2 * np.log(2 * np.pi * v) + 0.5 * np.log(k / (k + n)) - squares / (2 * v)


def log_margin(x, y, num_classes):
    """Of a cluster's labels with the classifier integrated out, on a grid in two dimensions."""
    c, ell, nu = (SETTINGS[name] for name in ("cost", "ell", "prior_scale"))
    first, second = np.meshgrid(GRID, GRID, indexing="ij")
    log_p = -(first**2 + second**2) / 2 - np.log(2 * np.pi) + 2 * np.log(GRID[1] - GRID[0])
    if num_classes == 2:  # slope and intercept
        for a, sign in zip(x, 2 * y - 1, strict=True):
            log_p = log_p - 2 * c * np.maximum(0, ell - sign * nu * (a * first + second))
    else:  # no intercept: only differences of the three slopes matter, normal with covariance nu^2 (1 + [i = j])
        scores = np.stack([0 * first, nu * (np.sqrt(2) * first), nu * (first / np.sqrt(2) + np.sqrt(1.5) * second)])
        for a, label in zip(x, y, strict=True):
            margins = a * scores + ell * (np.arange(3) != label)[:, None, None]
            log_p = log_p - 2 * c * (margins.max(0) - a * scores[label])
    return logsumexp(log_p)


@functools.cache
def enumerated(num_classes):
    y = LABELS[num_classes]
    log_evidence = lambda c: log_inputs(X5[c, 0]) + log_margin(X5[c, 0], y[c], num_classes)  # noqa: E731
    return log_partitions(5, SETTINGS["concentration"], log_evidence)


def split_merge_alone(program):
    """Labels moved by no other move: its Metropolis ratio has nowhere to hide."""
    kernel = isvm_collapsed(program, split_merge=3)
    return MoveKernel(program, [move for move in kernel.moves if type(move).__name__ != "Sweep"], name="split-merge")


def run(make, num_classes, num_samples=600, num_chains=16):
    max_clusters = 64 if make is isvm_slice else 8  # clusters without data too
    program = functools.partial(isvm, num_classes=num_classes, max_clusters=max_clusters, intercept=num_classes == 2)
    lengths = {"num_warmup": 50, "num_samples": num_samples, "num_chains": num_chains}
    return draw_chains(make(program), (X5, LABELS[num_classes]), SETTINGS, seed=5, **lengths, progress=False).sites


@pytest.mark.parametrize(
    ("make", "num_classes"),
    [(isvm_collapsed, 2), (isvm_slice, 3), (split_merge_alone, 2)],
    ids=["collapsed-2", "slice-3", "sm-2"],
)
def test_partitions_by_enumeration(make, num_classes):
    """Also of the components: the mean of the first datum's cluster, and its score, by the same enumeration."""
    draws = run(make, num_classes)
    assert np.abs(partition_scores(draws["z"], *enumerated(num_classes))).max() < MAX_Z


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("make", [isvm_collapsed, isvm_slice, split_merge_alone], ids=["collapsed", "slice", "sm"])
def test_partitions_by_enumeration_with_many_draws(make, num_classes):
    draws = run(make, num_classes, 10_000, 32)
    assert np.abs(partition_scores(draws["z"], *enumerated(num_classes))).max() < MAX_Z


# ----- Chains from far apart


def chains(make, X, y, *, num_warmup, num_samples, max_clusters, **settings):
    """Two chains from one cluster and two from all singletons."""
    n = len(X)
    starts = np.stack([np.zeros(n, int), np.zeros(n, int), np.arange(n), np.arange(n)])
    program = functools.partial(isvm, max_clusters=max_clusters, num_classes=2)
    mcmc = MCMC(
        make(program),
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=4,
        chain_method="sequential",  # side by side, all would pay for a fit that one needs
        progress_bar=False,
    )
    fields = ("log_joint", "num_active", "overflow")
    mcmc.run(random.key(0), X, y, init_params={"z": starts}, extra_fields=fields, **settings)
    assert not np.any(mcmc.get_extra_fields()["overflow"])
    return mcmc


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_chains_from_one_cluster_and_from_singletons_agree(kernel):
    """On Setting I; `pytest -rP` shows R-hat."""
    X, y, _ = make_m2dpm_setting1(300, 10, seed=1)
    settings = {"variance": 0.25, "cost": 1.0, "prior_scale": 1.0}
    mcmc = chains(KERNELS[kernel], X, y, num_warmup=1000, num_samples=3000, max_clusters=340, **settings)
    fields, z = mcmc.get_extra_fields(group_by_chain=True), mcmc.get_samples(group_by_chain=True)["z"]
    together = np.mean(np.asarray(z)[..., :-1] == np.asarray(z)[..., 1:], axis=-1)
    for name, values in {"num_active": fields["num_active"], "together": together}.items():
        value = float(rhat(np.asarray(values, float)))
        print(f"{kernel}: R-hat of {name} {value:.4f}, means {np.asarray(values).mean(1).round(3)}")
        assert value < 1.05


@pytest.mark.slow
def test_chains_from_one_cluster_and_from_singletons_find_the_same_clusters():
    X, y, truth = make_m2dpm_setting2(30, 4, 3, seed=1)
    for make in KERNELS.values():
        mcmc = chains(make, X, y, num_warmup=100, num_samples=50, max_clusters=40, variance=0.1, cost=0.5)
        z = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])[:, -1]
        pairs = truth.z[:, None] == truth.z
        for labels in z:
            assert np.mean((labels[:, None] == labels) == pairs) > 0.97


# ----- The small-variance limit


@pytest.mark.parametrize(("num_classes", "seed"), [(2, 0), (3, 1)])
def test_at_large_beta_a_sweep_takes_the_step_of_m2dpm(num_classes, seed):
    """Labels one after the other with births, then means, then an EM step of the classifiers.

    For three classes the auxiliary classifiers of empty slots are fixed draws of the prior, not the best for the
    datum, so no cluster is to open.
    """
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    X = (centres[np.arange(30) % 3] + 0.3 * rng.normal(size=(30, 2))).round(3)
    y = (rng.normal(size=(30, num_classes)) + 3 * X @ rng.normal(size=(2, num_classes))).argmax(1)
    cost, nu, penalty, beta = 0.3, 1.0, 3.0 if num_classes == 2 else 500.0, 200.0
    first = centres if num_classes == 3 else centres[:1] + 0.1
    scores = () if num_classes == 2 else (num_classes,)
    eta = 0.1 * rng.normal(size=(len(first), *scores, 3))
    limit = M2DPM(penalty=penalty, cost=cost, prior_scale=nu, order="sequential", max_iter=1, tol=1.0, warm_start=True)
    limit.classes_, limit.cluster_centers_ = np.unique(y), first
    limit.coef_, limit.intercept_ = eta[..., :-1], eta[..., -1]
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        limit.fit(X, y)

    with jax.enable_x64(True):
        slots = 12
        program = functools.partial(isvm, max_clusters=slots, num_classes=num_classes)
        kernel = isvm_collapsed(program, overrelaxation=0.0, split_merge=0)
        # exp(-beta J): the squared distance has weight 1, so the variance is 1/(2 beta).
        settings = {
            "variance": 1 / (2 * beta),
            "cost": beta * cost,
            "prior_scale": nu / beta**0.5,
            "concentration": np.exp(-beta * penalty) if num_classes == 2 else 1e-300,
            "prior_count": 1e-9,
        }
        target = kernel.target((X, y), settings)
        z = kernel.init(random.key(seed), 0, None, (X, y), settings).z
        D = np.sum((X[:, None] - first) ** 2, axis=2)
        z = {
            **z,
            "z": jnp.asarray(np.argmin(D, axis=1)),
            "mu": z["mu"].at[: len(first)].set(first),
            "eta": z["eta"].at[: len(first)].set(eta),
        }
        moves = {type(move).__name__ + str(move.sites): move for move in kernel.moves if move.applies(z)}
        (sweep,) = (move for name, move in moves.items() if name.startswith("Sweep"))
        z = sweep.step(random.split(random.key(seed), 3), z, None, target, {})[0]
        labels = np.asarray(z["z"])
        match = {int(k): int(limit.labels_[np.flatnonzero(labels == k)[0]]) for k in np.unique(labels)}
        np.testing.assert_array_equal([match[int(k)] for k in labels], limit.labels_)
        assert len(match) == limit.num_clusters_ == 3
        slots_used, clusters = list(match), list(match.values())
        if num_classes == 2:  # the limit's classifiers are those of the births here, up to what vanishes
            limit_eta = np.concatenate([limit.coef_, limit.intercept_[:, None]], 1)
        z = moves["Conditional('mu',)"].step(random.split(random.key(1), 2), z, None, target, {})[0]
        np.testing.assert_allclose(z["mu"][np.array(slots_used)], limit.cluster_centers_[clusters], atol=0.1)
        if num_classes == 2:
            z = moves["Augmented('eta',)"].step(random.split(random.key(2), 2), z, None, target, {})[0]
            np.testing.assert_allclose(z["eta"][np.array(slots_used)], limit_eta[clusters], atol=0.25)


# ----- Predictions


def draws_by_hand(num_classes, S=3, M=4, d=2):
    rng = np.random.default_rng(0)
    scores = () if num_classes == 2 else (num_classes,)
    return {
        "z": np.array([[0, 0, 1, 2], [3, 3, 3, 3], [0, 1, 0, 1]]),
        "mu": rng.normal(size=(S, M, d)),
        "eta": rng.normal(size=(S, M, *scores, d + 1)),
    }


@pytest.mark.parametrize("num_classes", [2, 3])
def test_predictions_are_their_definition(num_classes):
    draws, X = draws_by_hand(num_classes), np.array([[0.3, -0.2], [1.5, 0.7]])
    alpha, variance, count = 0.8, 0.5, 0.2
    f, votes = 0.0, np.zeros((2, num_classes))
    A = np.column_stack([X, np.ones(2)])
    log_normal = lambda x, v: -np.sum(x**2, -1) / (2 * v) - np.log(2 * np.pi * v)  # noqa: E731
    for z, mu, eta in zip(*draws.values(), strict=True):
        sizes = np.bincount(z, minlength=4)
        weights = sizes[:, None] * np.exp(log_normal(X - mu[:, None], variance))
        new = alpha * np.exp(log_normal(X, variance * (1 + 1 / count)))
        r = weights / (weights.sum(0) + new)
        scores = np.einsum("k...d,nd->kn...", eta, A)
        f += np.einsum("kn,kn...->n...", r, scores) / 3
        best = (scores > 0).astype(int) if num_classes == 2 else scores.argmax(-1)
        votes += (np.einsum("kn,knl->nl", r, np.eye(num_classes)[best]) + (1 - r.sum(0))[:, None] / num_classes) / 3
    found = isvm_predict(draws, X, concentration=alpha, variance=variance, prior_count=count)
    np.testing.assert_allclose(found.discriminant, f, rtol=1e-4)
    np.testing.assert_allclose(found.votes, votes, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found.y, (f > 0).astype(int) if num_classes == 2 else f.argmax(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "num_classes", "kernel"), [("gaussian", 3, "slice"), ("poisson", 2, "collapsed")]
)
def test_clusters_that_one_line_does_not_divide(likelihood, num_classes, kernel):
    rng = np.random.default_rng(2)
    z = np.arange(150) % 3
    if likelihood == "gaussian":
        X, settings = 6.0 * (z - 1)[:, None] + rng.normal(size=(150, 2)), {"prior_scale": 3.0}
    else:
        X, settings = rng.poisson(np.array([[3.0, 3.0], [3.0, 15.0], [15.0, 3.0]])[z]) * 1.0, {"prior_scale": 10.0}
    scores = (X - np.array([X[z == k].mean(0) for k in range(3)])[z]) @ rng.normal(size=(2, num_classes))
    y = (scores * np.array([1, -1, 1])[z][:, None]).argmax(1)
    program = functools.partial(isvm, likelihood=likelihood, num_classes=num_classes, max_clusters=24)
    mcmc = MCMC(KERNELS[kernel](program), num_warmup=100, num_samples=50, progress_bar=False)
    mcmc.run(random.key(0), X[:100], y[:100], **settings)
    found = isvm_predict(mcmc.get_samples(), X[100:], likelihood=likelihood, **settings)
    assert np.mean(found.y == y[100:]) > 0.8
    np.testing.assert_allclose(found.votes.sum(1), 1, rtol=1e-4)


def test_draws_are_checked():
    draws, X = draws_by_hand(2), np.zeros((3, 2))
    assert isvm_predict(draws, X).y.shape == (3,)
    with pytest.raises(ValueError, match="found no mu, eta"):
        isvm_predict({"z": draws["z"]}, X)
    with pytest.raises(ValueError, match="flatten chains"):
        isvm_predict({site: value[None] for site, value in draws.items()}, X)
    with pytest.raises(ValueError, match="must have 2 columns"):
        isvm_predict(draws, np.zeros((3, 3)))
    with pytest.raises(ValueError, match="intercept"):
        isvm_predict(draws, X, intercept=False)
    with pytest.raises(ValueError, match="variance has a prior"):
        isvm_predict(draws, X, variance=dist.InverseGamma(1.0, 1.0))
    with pytest.raises(ValueError, match="raise max_clusters"):
        isvm_predict({site: value[:1, :3] if site != "z" else value[:1] for site, value in draws.items()}, X)


# ----- The program


def test_program_is_the_generative_page():
    """The log joint, term by term."""
    X, y = inputs("gaussian", 6, 2, 2)
    rng = np.random.default_rng(1)
    z = np.array([3, 0, 3, 1, 1, 3])
    mu, eta = rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    alpha, v, k, c, ell, nu = 1.4, 0.5, 0.3, 0.7, 1.2, 1.5
    with jax.enable_x64(True):
        kernel = isvm_slice(functools.partial(isvm, max_clusters=5))
        settings = {"concentration": alpha, "variance": v, "prior_count": k, "cost": c, "ell": ell, "prior_scale": nu}
        found = float(jax.jit(kernel.target((X, y), settings).log_joint)({"z": z, "mu": mu, "eta": eta}))
    normal = lambda x, v: np.sum(-(x**2) / (2 * v) - np.log(2 * np.pi * v) / 2)  # noqa: E731
    sizes = np.array([3, 1, 2])
    total = 3 * np.log(alpha) + gammaln(alpha) - gammaln(alpha + 6) + gammaln(sizes).sum() - np.log(5 * 4 * 3)
    total += normal(mu, v / k) + normal(eta, nu**2) + normal(X - mu[z], v)
    f = np.sum(eta[z] * np.column_stack([X, np.ones(6)]), 1)
    total -= 2 * c * np.maximum(0, ell - (2 * y - 1) * f).sum()
    assert found == pytest.approx(total, rel=1e-10)


def test_without_labels_the_components_label_the_data():
    X, _ = inputs("gaussian", 6, 2, 2)
    sites, _ = sites_and_logs(isvm, X, num_classes=3)
    assert sites["f"].shape == (6, 3)
    np.testing.assert_array_equal(sites["y"], np.argmax(sites["f"], axis=1))
    assert outline(isvm, (X,), {})["f"]["value"].shape == (6,)


def test_priors_that_do_not_fit_are_refused():
    X, y = inputs("poisson", 6, 2, 2)
    with pytest.raises(ValueError, match="variance is of likelihood='gaussian'"):
        trace(seed(isvm, 0)).get_trace(X, y, likelihood="poisson", variance=dist.InverseGamma(1.0, 1.0))
    kernel, data = isvm_slice(functools.partial(isvm, max_clusters=4)), (X, y)
    with pytest.raises(ValueError, match="prior_count must be positive"):
        kernel.init(random.key(0), 0, None, data, {"prior_count": 0.0})
    for name, prior in (("concentration", dist.LogNormal(0.0, 1.0)), ("variance", dist.Gamma(1.0, 1.0))):
        with pytest.raises(ValueError, match=f"prior of {name}, found {type(prior).__name__}"):
            kernel.sample(kernel.init(random.key(0), 0, None, data, {name: prior}), data, {name: prior})


# ----- The edges


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_full_buffer_is_told(kernel):
    X, y, _ = make_m2dpm_setting2(40, 2, 4)
    program = functools.partial(isvm, max_clusters=2)
    sampler, settings = KERNELS[kernel](program), {"variance": 0.01}
    state = sampler.init(random.key(0), 0, None, (X, y), settings)
    for _ in range(20):
        state = sampler.sample(state, (X, y), settings)
    assert state.overflow
    assert "OVERFLOW" in sampler.get_diagnostics_str(state)
    with pytest.raises(ValueError, match="raise max_clusters"):
        isvm_predict(jax.tree.map(lambda leaf: leaf[None], state.z), X, **settings)


@pytest.mark.parametrize("kernel", KERNELS)
def test_clusters_that_empty_are_forgotten(kernel):
    """All data start alone and are alike: the clusters go, and their slots are drawn from the prior."""
    X, y = np.full((12, 2), 0.5), np.arange(12) % 2
    sampler = KERNELS[kernel](functools.partial(isvm, max_clusters=20))
    options = {"concentration": 0.1, "prior_count": 1.0, "variance": 1.0}
    state = sampler.init(random.key(0), 0, {"z": np.arange(12)}, (X, y), options)
    assert state.num_active == 12
    for _ in range(60):
        state = sampler.sample(state, (X, y), options)
    assert 1 <= int(state.num_active) <= 4
    assert not state.overflow
    assert np.isfinite(state.log_joint)
    empty = np.setdiff1d(np.arange(20), np.asarray(state.z["z"]))
    assert np.isfinite(state.z["mu"]).all()
    assert 0.5 < np.std(np.asarray(state.z["mu"])[empty]) < 1.5
    assert 0.5 < np.std(np.asarray(state.z["eta"])[empty]) < 1.5


@pytest.mark.parametrize("kernel", KERNELS)
def test_duplicates_constant_columns_and_two_data(kernel):
    sampler = KERNELS[kernel](functools.partial(isvm, max_clusters=6))
    for last in (0.0, 1e3):
        data = np.array([[1.0, 3.0, 0.0], [1.0, 3.0, last]]), np.array([0, 1])
        for cost in (1e-3, 1e3):
            state = sampler.init(random.key(0), 0, None, data, {"cost": cost})
            for _ in range(20):
                state = sampler.sample(state, data, {"cost": cost})
            assert np.isfinite(state.log_joint)
            assert all(np.isfinite(value).all() for value in state.z.values())


def test_odd_but_right_inputs_mean_the_same():
    X, y = inputs("poisson", 6, 2, 2)
    log_joints = []
    for x, labels in ((X, y), (X.astype(np.int8), y.astype(np.uint8)), (X.tolist(), y.astype(bool))):
        kernel = isvm_slice(functools.partial(isvm, likelihood="poisson", max_clusters=4))
        z = {"z": np.array([0, 1, 1, 2, 2, 0]), "mu": np.ones((4, 2)), "eta": np.ones((4, 3))}
        log_joints.append(float(kernel.target((x, labels), {}).log_joint(z)))
    np.testing.assert_allclose(log_joints, log_joints[0], rtol=1e-6)


def test_split_merge_needs_a_law_of_every_part():
    X, y = inputs("gaussian", 5, 2, 2)

    def without(*args, **kwargs):
        found = mixture(*args, **kwargs)
        return found._replace(parts=tuple(part._replace(cluster=None) for part in found.parts))

    kernel = isvm_collapsed(functools.partial(isvm, max_clusters=4))
    moves = [*kernel.moves[:-1], SplitMerge(without, ("z", "mu", "eta"), covered_by="this test")]
    broken = MoveKernel(kernel.model, moves)
    state = broken.init(random.key(0), 0, None, (X, y), {})
    with pytest.raises(ValueError, match="split-merge needs the `cluster` law"):
        broken.sample(state, (X, y), {})


@pytest.mark.slow
def test_the_example_runs_as_a_script(capsys):
    example = runpy.run_path(str(EXAMPLES / "infinite_svm.py"))
    example["main"](argparse.Namespace(num_data=200, num_warmup=200, num_samples=100, num_chains=1, seed=0))
    right = dict(re.findall(r"^(.*?), .* +([\d.]+)% right$", capsys.readouterr().out, re.MULTILINE))
    assert float(right["M2DPM"]) > 85
    assert float(right["infinite SVM"]) > 85
