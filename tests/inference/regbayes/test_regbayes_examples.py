"""The example scripts of RegBayes, and its picture."""

import argparse
import pathlib
import runpy

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def run(name, **arguments):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](argparse.Namespace(seed=0, **arguments))


def test_maximum_entropy_discrimination(capsys):
    mean, coef = run("med_classifier", num_data=60, num_samples=10, cost=0.5)
    np.testing.assert_allclose(mean, coef, atol=1e-3)
    assert "correlation of the scores: 1.0000" in capsys.readouterr().out


def test_constrained_mixture(capsys):
    result = run("constrained_mixture", num_data=8)
    assert result.converged
    np.testing.assert_allclose([result.expectations["size"], result.expectations["apart"]], [4.0, 0.1], atol=1e-5)
    assert "with constraints     expected size  4.00, apart with probability 0.100" in capsys.readouterr().out


@pytest.mark.slow
def test_fair_scores(tmp_path, capsys):
    result = run("fair_scores", num_data=60, num_warmup=300, num_draws=250, num_samples=500, out=tmp_path)
    assert abs(result.expectations["difference"]) < 4 * result.errors["difference"]
    assert (tmp_path / "phi_gap.png").stat().st_size > 5_000


@pytest.mark.slow
def test_medlda_regression(capsys):
    error, spread = run("medlda_regression", num_documents=20, num_warmup=1000, num_draws=250, max_steps=30, cost=1.0)
    assert error < spread / 2
