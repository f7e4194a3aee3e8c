"""Label switching: what a summary makes of it, and how draws are renumbered."""

from types import SimpleNamespace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_base import from_dict
from draws import prior_sites, program_arguments, tree
from numpyro.infer.util import log_density

import regbayes
from regbayes.diagnostics import coclustering, invariants, num_clusters, relabel, summary
from regbayes.diagnostics.arviz import assemble
from regbayes.models import hinge

TRUTH = np.repeat([0, 1, 2], [10, 6, 4])


@pytest.fixture
def switching():
    """Two chains of 50 draws with three clusters of known means, numbered at will; every fifth draw moves a datum."""
    rng = np.random.default_rng(0)
    z, mu = np.empty((2, 50, 20), int), np.empty((2, 50, 6))
    for chain, draw in np.ndindex(2, 50):
        slots = rng.permutation(6)
        labels = np.where((np.arange(20) == 9) & (draw % 5 == 0), 1, TRUTH)
        z[chain, draw] = slots[labels]
        mu[chain, draw, slots] = [-5, 0, 5, 9, 9, 9] + 0.1 * rng.normal(size=6)
    groups = {"posterior": {"z": z, "mu": mu, "alpha": rng.gamma(2, size=(2, 50))}}
    return from_dict({**groups, "sample_stats": {"lp": rng.normal(size=(2, 50))}}, dims={"mu": ["cluster"]})


def test_invariants_are_those_of_the_partition(switching):
    found = invariants(switching)
    assert list(found.data_vars) == ["lp", "num_clusters", "largest_share", "entropy"]
    assert (found["num_clusters"] == 3).all()
    np.testing.assert_allclose(found["largest_share"][0, :2], [0.45, 0.5])
    shares = np.array([10, 6, 4]) / 20
    np.testing.assert_allclose(found["entropy"][1, 1], -np.sum(shares * np.log(shares)))
    again = invariants(relabel(switching))
    assert all(np.allclose(found[name], again[name]) for name in found.data_vars)


def test_summary_of_switching_labels_is_finite_and_explained(switching):
    table = summary(switching)
    assert list(table.index) == ["lp", "num_clusters", "largest_share", "entropy", "alpha"]
    assert table.attrs["left_out"] == ["z", "mu"]
    assert "z, mu; see relabel" in table.loc["lp", "note"]
    assert table.loc["num_clusters", "note"] == "constant"
    assert table.loc["num_clusters", ["mean", "sd"]].tolist() == [3, 0]
    assert np.isfinite(table.drop(index="num_clusters").drop(columns="note").to_numpy(float)).all()
    assert len(summary(switching, "mu")) == 6  # what is asked for is listed
    assert summary(switching, "num_clusters").loc["num_clusters", "note"] == "constant"


@pytest.mark.parametrize("method", ["kl", "hungarian"])
def test_relabelled_draws_number_the_clusters_alike(switching, method):
    dt = relabel(switching, method)
    z, mu = dt["posterior"]["z"].to_numpy(), dt["posterior"]["mu"].to_numpy()
    assert (np.delete(z, 9, axis=-1) == np.delete(TRUTH, 9)).all()  # the largest cluster is 0
    np.testing.assert_allclose(mu[..., :3].mean((0, 1)), [-5, 0, 5], atol=0.1)
    np.testing.assert_array_equal(coclustering(dt), coclustering(switching))
    assert switching["posterior"].attrs.get("relabelled_cluster") is None  # a new tree
    table = summary(dt)
    assert [label for label in table.index if label.startswith("mu")] == ["mu[0]", "mu[1]", "mu[2]"]
    assert table.loc["mu[0]", "r_hat"] < 1.1
    assert table.attrs["left_out"] == ["z"]


def test_kl_needs_no_good_reference(switching):
    start = np.random.default_rng(1).integers(0, 3, 20)
    z = relabel(switching, "kl", reference=start)["posterior"]["z"].to_numpy()
    settled = np.delete(z, 9, axis=-1)
    assert (settled == settled[0, 0]).all()


def test_clusters_that_some_draws_lack_are_explained(switching):
    z = switching["posterior"]["z"].to_numpy().copy()
    z[0, :25] = z[0, :25, :1]  # one cluster
    dt = from_dict({"posterior": {"z": z, "mu": switching["posterior"]["mu"].to_numpy()}}, dims={"mu": ["cluster"]})
    notes = summary(relabel(dt))["note"]
    assert notes["mu[0]"] == ""
    assert notes["mu[1]"] == "in use in 75 % of the draws, else prior"


@pytest.mark.parametrize(
    ("name", "dim"), [("isvm", "cluster"), ("dpmnl", "cluster"), ("dpmmgm", "cluster"), ("mmctm", "topic")]
)
def test_relabelling_leaves_the_program_s_density(name, dim):
    with jax.enable_x64(True):
        sites, (args, kwargs) = prior_sites(name)
        dt = tree(name, sites, (args, kwargs))
        program = regbayes.zoo[name].program

        def log_joint(draw):
            return log_density(program, args, kwargs, draw)[0]

        renamed = relabel(dt, dim=dim, check=log_joint)["posterior"]
        assert all(np.any(renamed[site].to_numpy() != sites[site]) for site in sites if dim in renamed[site].dims)


def test_unlabelled_documents_have_clusters_to_relabel():
    with jax.enable_x64(True):
        _, args, _ = program_arguments("mmctm")
        sites, (_, kwargs) = prior_sites("mmctm", num_clusters=3)
        kwargs = {**kwargs, "num_clusters": 3}
        sites["y"] = np.random.default_rng(0).integers(0, 3, sites["y"].shape)
        program = regbayes.zoo["mmctm"].program
        dt = tree("mmctm", sites, (args[:1], kwargs))
        relabel(dt, check=lambda draw: log_density(program, args[:1], kwargs, draw)[0])
        assert num_clusters(dt).max() <= 3  # of documents, not of tokens


def test_a_density_that_depends_on_numbers_is_told(switching):
    with pytest.raises(ValueError, match=r"changed the log density of \d+ of 100 draws.*not exchangeable"):
        relabel(switching, check=lambda sites: sites["mu"][0])


def test_relabel_says_what_is_wrong(switching):
    with pytest.raises(ValueError, match="method must be one of kl, hungarian; found 'ecr'"):
        relabel(switching, "ecr")
    with pytest.raises(ValueError, match=r"no site with the numbers of topics, found \['z', 'mu', 'alpha'\]"):
        relabel(switching, dim="topic")
    with pytest.raises(ValueError, match="reference must hold 20 integer labels"):
        relabel(switching, reference=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"reference must number clusters 0\.\.5, found up to 6"):
        relabel(switching, reference=np.full(20, 6))
    sites, arguments = prior_sites("ctm")
    with pytest.raises(ValueError, match="landmarks say which cluster is which"):
        relabel(tree("ctm", sites, arguments))


@pytest.mark.parametrize("name", ["svr", "isvm"])
def test_training_loss_is_the_factor_s(name):
    """Undoing the program's own factor: ``-2 c`` times the loss, summed."""
    sites, (args, kwargs) = prior_sites(name, shape=(1, 3))
    loss = tree(name, sites, (args, {**kwargs, "cost": 0.7}))["sample_stats"]["training_loss"].to_numpy()
    program = regbayes.zoo[name].program
    for draw in range(3):
        values = {site: array[0, draw] for site, array in sites.items()}
        low, high = (log_density(program, args, {**kwargs, "cost": c}, values)[0] for c in (1.0, 2.0))
        terms = np.size(args[1])
        np.testing.assert_allclose(loss[0, draw], (low - high) / 2 / terms, rtol=1e-3, atol=1e-5)


def test_features_have_invariants():
    sites, arguments = prior_sites("ilsvm")
    found = invariants(tree("ilsvm", sites, arguments))
    np.testing.assert_array_equal(found["num_features"], sites["Z"].any(2).sum(-1))
    np.testing.assert_allclose(found["features_per_row"], sites["Z"].sum(-1).mean(-1))


def test_a_program_of_one_s_own_has_its_loss():
    def program(X, y):
        eta = numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.handlers.mask(mask=np.arange(len(y)) < 5):
            hinge("margin", X @ eta, 2 * y - 1, cost=3.0)

    (X, y), _ = regbayes.zoo["svm"].example()
    eta = np.random.default_rng(0).normal(size=(1, 4, 2))
    sampler = SimpleNamespace(model=program)
    dt = assemble(sampler, {"eta": eta}, {}, ((X, y), {}), overflow=False, attrs={})
    losses = np.maximum(0, 1 - (2 * y - 1) * (eta[0] @ np.asarray(X).T))
    np.testing.assert_allclose(dt["sample_stats"]["training_loss"][0], losses[:, :5].sum(1) / len(y), rtol=1e-5)
    assert dt.attrs["program"] == "program"
    assert list(summary(dt).index) == ["training_loss", "eta[0]", "eta[1]"]
