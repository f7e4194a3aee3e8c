"""Gaussian blobs: a model of a user's own, which the library has never heard of, does all that the zoo's models do.

mu_k ~ N(0, 10^2 I),   z_i ~ Uniform(0..K-1),   x_i | z_i = k ~ N(mu_k, scale^2 I)
"""

import os
import pathlib
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from jax import random
from numpyro.infer import MCMC, NUTS, DiscreteHMCGibbs, Predictive

import regbayes
from regbayes.cli import main
from regbayes.diagnostics import conformance, num_clusters, plot_graph, summary, to_datatree
from regbayes.inference import Conditional, MoveKernel
from regbayes.zoo import Card

# The program.


def blobs(X, *, num_clusters=2, scale=1.0):
    """:param num_clusters: ``K``.
    :param scale: of a blob.
    """
    X = jnp.asarray(X)
    means = dist.Normal(0.0, 10.0).expand([num_clusters, X.shape[1]]).to_event(2)
    mu = numpyro.sample("mu", means, infer={"event_dims": ["cluster", "input"]})
    with numpyro.plate("datum", len(X)):  # a plate's name is its axis's
        z = numpyro.sample("z", dist.Categorical(jnp.ones(num_clusters) / num_clusters), infer={"labels": "cluster"})
        numpyro.sample("x", dist.Normal(mu[z], scale).to_event(1), obs=X)


# Its two conditionals.


def z_given_mu(rest, X, *, num_clusters, scale):
    """p(z_i = k | mu) ~ N(x_i; mu_k, scale^2 I)."""
    logits = dist.Normal(rest["mu"], scale).log_prob(jnp.asarray(X)[:, None]).sum(-1)
    return dist.Categorical(logits=logits).to_event(1)


def mu_given_z(rest, X, *, num_clusters, scale):
    """N(m_k, s_k^2), s_k^-2 = 10^-2 + n_k / scale^2, m_k = s_k^2 sum_i x_i / scale^2."""
    jax.debug.callback(nap)
    own = jax.nn.one_hot(rest["z"], num_clusters).T
    precision = 0.01 + own.sum(1)[:, None] / scale**2
    return dist.Normal(own @ jnp.asarray(X) / scale**2 / precision, precision**-0.5).to_event(2)


def nap():
    """Somebody who means to press Ctrl-C must have the time."""
    if Watched.interrupts:
        time.sleep(0.002)


class Watched(MoveKernel):
    """As it is looked at for the progress bar, somebody presses Ctrl-C, where a test wants it."""

    interrupts = 0

    def get_diagnostics_str(self, state):
        if Watched.interrupts:
            Watched.interrupts -= 1
            raise KeyboardInterrupt
        return super().get_diagnostics_str(state)


def blobs_gibbs(model=blobs):
    """Labels, then means."""
    return Watched(model, [Conditional("z", z_given_mu), Conditional("mu", mu_given_z)], name="blobs gibbs")


def example(seed=0):
    rng = np.random.default_rng(seed)
    return (np.repeat([[-4.0, 0.0], [4.0, 0.0]], 10, axis=0) + rng.normal(size=(20, 2)).astype(np.float32),), {}


# The card.
CARD = Card(name="blobs", title="blobs in the plane", program=blobs, example=example, kernels={"gibbs": blobs_gibbs})


@pytest.fixture
def zoo():
    regbayes.zoo.add(CARD)
    yield regbayes.zoo
    regbayes.zoo.remove("blobs")
    assert "blobs" not in regbayes.zoo


@pytest.fixture
def data(tmp_path):
    (X,), _ = example()
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["width,height", *(f"{a},{b}" for a, b in X), ""]))
    return path


def run(kernel, chain_method="vectorized", **settings):
    mcmc = MCMC(kernel, num_warmup=20, num_samples=50, num_chains=2, chain_method=chain_method, progress_bar=False)
    mcmc.run(random.key(0), *example()[0], **settings)
    return mcmc


def open_tree(path):
    with xr.open_datatree(path) as dt:
        return dt.load()


def fit(data, out, *more):
    sizes = ["--num-samples", "1000", "--num-warmup", "10", "--num-chains", "2"]
    return main(["fit", "blobs", "--data", str(data), "--out", str(out), "--set", "scale=1.5", *sizes, *more])


def test_it_is_listed_and_shown(zoo, capsys):
    assert zoo.names()[-1] == "blobs"
    assert main(["list"]) == 0
    assert "blobs in the plane" in capsys.readouterr().out
    assert main(["show", "blobs"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("blobs: blobs in the plane\n\nGaussian blobs: ")
    lines = [line.split() for line in text.splitlines()]
    assert ["z", "latent", "CategoricalProbs", "(20,)"] in lines
    assert ["scale", "1.0", "of", "a", "blob."] in lines
    assert ["gibbs", "Labels,", "then", "means."] in lines


def test_its_conditionals_are_checked():
    report = conformance(CARD.kernels["gibbs"](), *example()[0], verbose=False)
    assert report.ok
    assert report.max_error <= 1e-8


def test_its_draws_are_named_and_summarised(zoo):
    dt = to_datatree(run(blobs_gibbs(), scale=1.5))
    assert (dt.attrs["model"], dt.attrs["program"], dt.attrs["argument_scale"]) == ("blobs", "blobs", 1.5)
    assert dt["posterior"]["mu"].dims == ("chain", "draw", "cluster", "input")
    assert dt["posterior"]["z"].attrs["labels"] == "cluster"
    assert dt["constant_data"]["X"].dims == ("datum", "input")
    assert (num_clusters(dt) == 2).all()
    table = summary(dt)
    assert list(table.index) == ["num_clusters", "largest_share", "entropy"]
    assert table.attrs["left_out"] == ["mu", "z"]


def test_without_a_card_the_draws_tell_as_much():
    dt = to_datatree(run(blobs_gibbs(), scale=1.5))
    assert dt.attrs["model"] == "unknown"
    assert dt["posterior"]["z"].dims == ("chain", "draw", "datum")
    assert (num_clusters(dt) == 2).all()
    assert summary(dt).attrs["left_out"] == ["mu", "z"]


def test_numpyro_s_own_tools_do_not_mind_the_names_of_axes():
    args, _ = example()
    mcmc = run(DiscreteHMCGibbs(NUTS(blobs), modified=True), "sequential")
    dt = to_datatree(mcmc)
    assert dt["posterior"]["mu"].dims == ("chain", "draw", "cluster", "input")
    assert dt["posterior"]["z"].dims == ("chain", "draw", "datum")
    assert Predictive(blobs, mcmc.get_samples())(random.key(1), *args)["x"].shape == (100, 20, 2)
    pytest.importorskip("graphviz")
    assert "mu" in plot_graph(blobs, *args).source


def test_it_is_fitted_interrupted_resumed_and_plotted(zoo, data, tmp_path, capsys, monkeypatch):
    assert fit(data, tmp_path / "whole.nc") == 0
    assert "num_clusters" in capsys.readouterr().out
    stopped = tmp_path / "stopped.nc"
    monkeypatch.setattr(Watched, "interrupts", 1)
    assert fit(data, stopped) == 130
    assert not stopped.exists()
    assert "--resume" in capsys.readouterr().out
    assert fit(data, stopped, "--resume") == 0
    whole, parts = open_tree(tmp_path / "whole.nc"), open_tree(stopped)
    assert whole.attrs["model"] == "blobs"
    for site in ("z", "mu"):
        np.testing.assert_array_equal(whole["posterior"][site], parts["posterior"][site])
    assert main(["plot", str(stopped), "--out", str(tmp_path / "plots")]) == 0
    plots = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert plots == ["coclustering.png", "num_clusters.png", "trace.png"]


def test_an_installed_package_brings_its_own(data, tmp_path):
    """This very file as a package: a module, and a folder that says what it adds to the zoo."""
    site = tmp_path / "site"
    (site / "blobs-1.0.dist-info").mkdir(parents=True)
    (site / "fifteenth.py").write_text(pathlib.Path(__file__).read_text())
    (site / "blobs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: blobs\nVersion: 1.0\n")
    entries = "[regbayes.models]\nblobs = fifteenth:CARD\ngone = fifteenth:NOTHING\nagain = fifteenth:CARD\n"
    (site / "blobs-1.0.dist-info" / "entry_points.txt").write_text(entries)
    out = tmp_path / "fit.nc"
    commands = [
        ["list"],
        ["show", "blobs"],
        ["fit", "blobs", "--data", str(data), "--out", str(out), "--num-samples", "20", "--num-chains", "2"],
        ["plot", str(out)],
    ]
    code = f"import sys; from regbayes.cli import main; sys.exit(max(main(command) for command in {commands!r}))"
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "blobs in the plane" in done.stdout
    assert "'gone' (fifteenth:NOTHING) of the group regbayes.models is left out: AttributeError" in done.stderr
    assert "the zoo has a model 'blobs' already" in done.stderr
    assert (tmp_path / "fit" / "num_clusters.png").exists()
    dt = open_tree(out)
    assert dt.attrs["model"] == "blobs"
    assert dt["posterior"]["z"].dims == ("chain", "draw", "datum")
