"""Scores of predictions, cross-validation, and kernels against each other: against numbers worked out by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_base import from_dict
from draws import prior_sites, program_arguments, tree
from numpyro.infer.util import log_density

import regbayes
from regbayes import datasets
from regbayes.diagnostics import calibration, compare_kernels, loo, predictive
from regbayes.diagnostics.cross_validation import log_likelihood


def svm_tree(eta, **attrs):
    dt = from_dict({"posterior": {"eta": np.asarray(eta, float)}}, dims={"eta": ["weight"]})
    dt.attrs.update(program="svm", **attrs)
    return dt


def test_scores_of_draws_that_differ():
    X, y = np.array([[1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]]), np.array([1, 0, 0])
    eta = np.array([[[2.0, 0.0], [-2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]] * 2)
    scores, votes, table = predictive(svm_tree(eta), X, y)
    rows = scores["estimate"]
    assert rows["accuracy of one draw"] == pytest.approx((3 * 2 / 3 + 1 / 3) / 4)
    assert rows["accuracy of the vote"] == rows["accuracy of the mean discriminant"] == pytest.approx(2 / 3)
    # Hinges of a draw with weight 2: 0, 0, 1 + 1; with weight -2: 3, 3, 0; of the mean, weight 1: 0, 0, 1.5.
    assert rows["hinge loss of one draw"] == pytest.approx((3 * 2 + 6) / 4 / 3)
    assert rows["hinge loss of the mean discriminant"] == pytest.approx(1.5 / 3)
    np.testing.assert_allclose(votes, [[0.25, 0.75], [0.75, 0.25], [0.25, 0.75]])
    assert table["num"].sum() == 3
    wide = predictive(svm_tree(eta, argument_ell=3.0), X, y).scores["estimate"]
    assert wide["hinge loss of the mean discriminant"] == pytest.approx((2 + 2 + 3.5) / 3)


def test_the_last_of_a_weight_more_than_inputs_is_the_intercept():
    X, y = np.array([[1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]]), np.array([1, 0, 1])
    scores = predictive(svm_tree([[[1.0, 0.0, -0.25]] * 4]), X, y).scores["estimate"]
    assert scores["hinge loss of the mean discriminant"] == pytest.approx((0.25 + 0.75) / 3)


def test_errors_are_those_of_repeated_runs():
    """The standard deviation of each score over 200 runs is what a run says of it."""
    rng = np.random.default_rng(0)
    X, y, truth = datasets.make_svm(100, 2, noise=0.5)
    runs = [predictive(svm_tree(truth + 0.8 * rng.normal(size=(2, 60, 2))), X, y).scores for _ in range(200)]
    for row in ("accuracy of one draw", "hinge loss of one draw", "hinge loss of the mean discriminant"):
        spread = np.std([run.loc[row, "estimate"] for run in runs])
        claimed = np.mean([run.loc[row, "mcse"] for run in runs])
        assert 0.75 < claimed / spread < 1.35, row


def test_several_classes_by_crammer_and_singer():
    eta = np.array([[[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]] * 4])
    dt = from_dict({"posterior": {"eta": eta}}, dims={"eta": ["class", "weight"]})
    dt.attrs["model"] = "multiclass-svm"
    found = predictive(dt, np.array([[2.0, 0.5]]), np.array([0]), ell=1.0).scores["estimate"]
    assert found["hinge loss of one draw"] == pytest.approx(0.0)
    found = predictive(dt, np.array([[2.0, 0.5]]), np.array([1]), ell=1.0).scores["estimate"]
    assert found["hinge loss of one draw"] == pytest.approx(1 + 2 - 0.5)


@pytest.mark.parametrize("name", ["isvm", "dpmnl", "ilsvm", "medlda"])
def test_the_zoo_s_classifiers_are_known(name):
    """Labels that agree with the averaging classifier's own predictions are all right."""
    sites, (args, kwargs) = prior_sites(name, shape=(1, 6))
    dt = tree(name, sites, (args, kwargs))
    flat = {site: values[0] for site, values in sites.items()}
    predict = getattr(regbayes.inference, f"{name}_predict")
    settings = {k: v for k, v in kwargs.items() if k not in ("max_features", "num_topics")}
    if name == "dpmnl":
        settings["weighted"] = False  # as the mean of each draw's
    labels = np.asarray(predict(flat, args[0], **settings).y)
    rows = predictive(dt, args[0], labels).scores
    assert rows.loc["accuracy of the mean discriminant", "estimate"] == 1.0
    assert np.isfinite(rows.to_numpy()).all()
    assert ("log loss of one draw" in rows.index) == (name == "dpmnl")


def test_a_discriminant_of_one_s_own():
    dt = from_dict({"posterior": {"radius": np.array([[0.9, 1.0, 1.1, 1.0]])}})
    X, y = np.array([[0.5, 0.0], [2.0, 0.0]]), np.array([0, 1])
    with pytest.raises(ValueError, match="the program None; pass discriminant"):
        predictive(dt, X, y)
    found = predictive(dt, X, y, discriminant=lambda sites, X: np.linalg.norm(X, axis=1) - sites["radius"])
    assert found.scores.loc["accuracy of one draw", "estimate"] == 1.0


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((2, 2)), [0.5, 1.0], r"y must hold labels in 0\.\.L-1, found float64"),
        (np.zeros((2, 2)), [0, 2], r"y must label the 2 rows of X in 0\.\.1, found 2 up to 2"),
        (np.zeros((2, 2)), [0, 1, 1], "found 3"),
        (np.zeros((2, 5)), [0, 1], "X must have 2 columns"),
    ],
)
def test_predictive_says_what_is_wrong(X, y, message):
    with pytest.raises(ValueError, match=message):
        predictive(svm_tree(np.ones((1, 4, 2))), X, y)


def test_calibration_counts():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=20_000)
    y = (rng.uniform(size=p.size) < p).astype(int)
    table = calibration(np.stack([1 - p, p], axis=1), y, num_bins=5)
    assert table["num"].sum() == p.size
    np.testing.assert_array_less(np.abs(table["observed"] - table["predicted"]), 4 * table["error"])
    over = calibration(np.stack([1 - p, p], axis=1) ** 8 / np.sum([(1 - p) ** 8, p**8], axis=0)[:, None], y)
    assert (over["observed"] < over["predicted"] - 4 * over["error"]).any()
    with pytest.raises(ValueError, match="rows that sum to 1"):
        calibration([[0.9, 0.9]], [0])


def test_pointwise_density_of_gaussian_clusters_is_the_program_s():
    """``p(x_i | z_-i, x_-i)`` from the joint densities with and without the datum."""
    with jax.enable_x64(True):
        program, (X,), kwargs = program_arguments("dpgmm", max_clusters=4)
        X, z = X[:5], np.array([0, 2, 2, 0, 3])
        sites = {"z": z[None, None]}
        logs = log_likelihood(tree("dpgmm", sites, ((X,), kwargs)))["datum"].to_numpy()[0, 0]

        joint = jax.jit(lambda X, z: log_density(program, (X,), kwargs, {"z": z})[0])
        for i in range(5):
            labels = np.array([np.where(np.arange(5) == i, k, z) for k in range(4)])
            with_it = np.logaddexp.reduce([float(joint(X, row)) for row in labels])
            expected = with_it - float(joint(np.delete(X, i, axis=0), np.delete(z, i)))
            np.testing.assert_allclose(logs[i], expected, rtol=1e-9)


def test_pointwise_density_of_logits_is_the_program_s():
    with jax.enable_x64(True):
        sites, ((X, y), kwargs) = prior_sites("dpmnl", shape=(1, 1), max_clusters=4)
        logs = log_likelihood(tree("dpmnl", sites, ((X, y), kwargs)))["datum"].to_numpy()[0, 0]
        draw = {site: jnp.asarray(values[0, 0]) for site, values in sites.items()}
        program = regbayes.zoo["dpmnl"].program

        @jax.jit
        def density(X, y, z):
            return log_density(program, (X, y), {**kwargs, "num_classes": 2}, {**draw, "z": z})[0]

        for i in (0, 17):
            labels = [np.where(np.arange(len(X)) == i, k, draw["z"]) for k in range(4)]
            with_it = np.logaddexp.reduce([float(density(X, y, row)) for row in labels])
            without = float(density(*(np.delete(part, i, axis=0) for part in (X, y, draw["z"]))))
            np.testing.assert_allclose(logs[i], with_it - without, rtol=1e-8)


def partitions(n):
    """All labellings of n data in the order of appearance."""
    return [
        z
        for z in itertools.product(range(n), repeat=n)
        if all(k <= max(z[:i], default=-1) + 1 for i, k in enumerate(z))
    ]


def test_loo_is_the_exact_leave_one_out():
    """Against the evidence with and without each datum, summed over all partitions of five."""
    with jax.enable_x64(True):
        program, (X,), kwargs = program_arguments("dpgmm", max_clusters=6)
        X = X[:5]

        def joints(X):
            z = np.array(partitions(len(X)))
            density = jax.jit(jax.vmap(lambda z: log_density(program, (X,), kwargs, {"z": z})[0]))
            slots = np.array([np.sum(np.log(6 - np.arange(max(row) + 1))) for row in z])  # each in so many labellings
            return z, np.asarray(density(z)) + slots

        z, logs = joints(X)
        evidence = np.logaddexp.reduce(logs)
        exact = [evidence - np.logaddexp.reduce(joints(np.delete(X, i, axis=0))[1]) for i in range(5)]
        rng = np.random.default_rng(0)
        draws = z[rng.choice(len(z), size=(4, 2000), p=np.exp(logs - evidence))]
        found = loo(tree("dpgmm", {"z": draws}, ((X,), kwargs)), pointwise=True)
        np.testing.assert_allclose(np.asarray(found.elpd_i), exact, atol=0.02)
        assert np.max(np.asarray(found.pareto_k)) < 0.7


def test_log_likelihoods_stay_with_their_draws():
    sites, arguments = prior_sites("dpgmm", shape=(2, 3))
    whole = log_likelihood(tree("dpgmm", sites, arguments))["datum"].to_numpy()
    for chain in range(2):
        one = {site: values[chain : chain + 1] for site, values in sites.items()}
        found = log_likelihood(tree("dpgmm", one, arguments))["datum"].to_numpy()
        np.testing.assert_allclose(found[0], whole[chain], rtol=1e-4)


def test_loo_explains_where_there_is_none():
    for name, why in (("svm", "a pseudo-likelihood that is not normalised over labels"), ("ibp", "of its own")):
        with pytest.raises(ValueError, match=f"the model '{name}' has no log likelihood of a datum.*{why}"):
            loo(tree(name, *prior_sites(name)))


def autoregressive(rng, shape, rho=0.8):
    x = rng.normal(size=shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


def test_z_scores_are_standard_normal_where_kernels_agree():
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(100):
        a, b = (from_dict({"posterior": {"x": autoregressive(rng, (2, 200))}}) for _ in range(2))
        scores.append(compare_kernels(a, b).loc["x", ["z_mean", "z_var"]].to_numpy(float))
    assert np.all(np.abs(np.mean(scores, axis=0)) < 0.4)
    assert np.all((np.std(scores, axis=0) > 0.75) & (np.std(scores, axis=0) < 1.35))


def test_z_scores_find_another_mean_and_another_variance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 500))
    a, shifted, wider = (from_dict({"posterior": {"x": v}}) for v in (x[0], x[1] + 0.5, 1.5 * x[2]))
    assert abs(compare_kernels(a, shifted).loc["x", "z_mean"]) > 8
    assert abs(compare_kernels(a, wider).loc["x", "z_var"]) > 8
    assert abs(compare_kernels(a, wider).loc["x", "z_mean"]) < 4


def test_constants_are_compared_as_such():
    def runs(value, draws):
        return from_dict({"posterior": {"x": np.full((2, 50), value), "w": draws}})

    draws = np.random.default_rng(0).normal(size=(2, 2, 50))
    same, other = compare_kernels(runs(3.0, draws[0]), runs(3.0, draws[1])), None
    assert same.loc["x", ["z_mean", "z_var", "note"]].tolist() == [0.0, 0.0, "constant in a and b"]
    other = compare_kernels(runs(3.0, draws[0]), runs(4.0, draws[1]))
    assert other.loc["x", "z_mean"] == -np.inf
    with pytest.raises(ValueError, match="no scalar in common"):
        compare_kernels(from_dict({"posterior": {"u": draws[0]}}), from_dict({"posterior": {"v": draws[1]}}))


def test_mixtures_are_compared_by_invariants():
    rng = np.random.default_rng(0)
    trees = [from_dict({"posterior": {"z": rng.integers(0, 3, size=(2, 50, 8))}}) for _ in range(2)]
    assert list(compare_kernels(*trees).index) == ["num_clusters", "largest_share", "entropy"]
