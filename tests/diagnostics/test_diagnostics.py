"""Summaries and pictures of draws: what they say and what they draw."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from arviz_base import from_dict
from matplotlib.collections import PathCollection

from regbayes import datasets
from regbayes.diagnostics import plot_decision, plot_posterior, plot_trace, summary
from regbayes.diagnostics.arviz import assemble
from regbayes.diagnostics.summary import COLUMNS, scalars

NUM_CHAINS, NUM_DRAWS = 4, 250


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def normal():
    """(chain, draw, 2) independent standard normal draws."""
    return np.random.default_rng(0).normal(size=(NUM_CHAINS, NUM_DRAWS, 2))


@pytest.fixture
def dt(normal):
    return from_dict(
        {"posterior": {"eta": normal, "one": np.ones((NUM_CHAINS, NUM_DRAWS))}, "sample_stats": {"lp": normal[..., 0]}},
        dims={"eta": ["feature"]},
        coords={"feature": ["width", "height"]},
    )


def test_summary_leads_with_the_log_joint_and_explains_a_constant(dt, normal):
    table = summary(dt)
    assert list(table.index) == ["lp", "eta[width]", "eta[height]", "one"]
    assert list(table.columns) == COLUMNS
    assert table["note"].tolist() == ["", "", "", "constant"]
    row = table.loc["eta[height]"]
    np.testing.assert_allclose(row["mean"], normal[..., 1].mean())
    np.testing.assert_allclose(row["sd"], normal[..., 1].std(ddof=1))
    np.testing.assert_allclose([row["q5"], row["q95"]], np.quantile(normal[..., 1], [0.05, 0.95]))
    assert 0.99 < row["r_hat"] < 1.01
    assert 700 < row["ess_bulk"] < 1500
    np.testing.assert_allclose(row["mcse_mean"], row["sd"] / np.sqrt(1000), rtol=0.2)
    assert table.loc["one", ["mean", "sd"]].tolist() == [1, 0]
    assert table.loc["one", ["mcse_mean", "ess_bulk", "ess_tail", "r_hat"]].isna().all()


def test_summary_equals_arviz(dt):
    from arviz_stats import summary as arviz_summary

    ours = summary(dt, "eta")
    theirs = arviz_summary(dt, var_names=["eta"], round_to="none")
    for column in ("mean", "mcse_mean", "ess_bulk", "r_hat"):
        np.testing.assert_allclose(ours[column], theirs[column].astype(float), rtol=1e-6)


@pytest.mark.parametrize(
    ("draws", "note"),
    [
        (np.random.default_rng(0).normal(size=(1, 100)), "one chain"),
        (np.random.default_rng(0).normal(size=(2, 3)), "fewer than 4 draws"),
        (np.tile(np.arange(3.0)[:, None], 50), "constant in each chain"),
        (np.where(np.eye(2, 50), np.nan, 1.0), "not finite"),
        (np.where(np.eye(2, 50), -np.inf, 1.0), "not finite"),
        (np.ones((1, 1)), "constant"),
        (np.zeros((2, 50), bool), "constant"),
    ],
)
def test_summary_has_no_nan_without_a_note(draws, note):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = summary(from_dict({"posterior": {"x": draws}}))
    assert table.loc["x", "note"] == note
    assert table.loc["x"].isna().any()


def test_the_potential_energy_of_a_run_is_its_log_joint_with_the_other_sign(normal):
    fields = {"potential_energy": normal[..., 0]}
    found = assemble(None, {"eta": normal}, fields, ((), {}), overflow=False, attrs={})
    np.testing.assert_array_equal(found["sample_stats"]["lp"], -normal[..., 0])


def test_scalars_names_what_it_has(dt):
    assert list(scalars(dt, ["one", "lp"])) == ["one", "lp"]
    with pytest.raises(ValueError, match=r"var_names has \['nu'\], found \['eta', 'one', 'lp'\]"):
        scalars(dt, ["eta", "nu"])
    with pytest.raises(ValueError, match="no scalar quantity"):
        scalars(dt, [])


def test_trace_has_a_line_and_a_rank_histogram_per_chain(dt, normal):
    figure = plot_trace(dt)
    trace, rank = figure.axes
    assert (trace.get_xlabel(), trace.get_ylabel()) == ("draw", "log joint")
    assert [line.get_label() for line in trace.lines] == [f"chain {k}" for k in range(NUM_CHAINS)]
    np.testing.assert_array_equal(trace.lines[2].get_ydata(), normal[2, :, 0])
    steps = [patch for patch in rank.patches if patch.get_label().startswith("chain")]
    counts = np.array([patch.get_data().values for patch in steps])
    assert counts.shape == (NUM_CHAINS, 20)
    assert counts.sum() == NUM_CHAINS * NUM_DRAWS
    np.testing.assert_array_equal(counts.sum(0), NUM_CHAINS * NUM_DRAWS // 20)
    assert len(figure.legends[0].get_texts()) == NUM_CHAINS + 1


def test_trace_has_a_row_per_scalar(dt):
    figure = plot_trace(dt, ["eta", "one"])
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == ["eta[width]", "eta[height]", "one"]
    figure = plot_trace(from_dict({"posterior": {"x": np.arange(8.0).reshape(1, 8)}}))
    assert figure.axes[0].get_ylabel() == "x"


def test_plots_refuse_too_many_scalars_and_draws_that_are_not_finite():
    many = from_dict({"posterior": {"x": np.zeros((1, 8, 50))}})
    with pytest.raises(ValueError, match="at most 40 scalars, found 50"):
        plot_trace(many)
    with pytest.raises(ValueError, match="not finite"):
        plot_posterior(from_dict({"posterior": {"x": np.full((1, 8), np.nan)}}))


def test_posterior_has_densities_mean_and_interval(dt, normal):
    figure = plot_posterior(dt)
    width, _, one = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == ["eta[width]", "eta[height]", "one"]
    lines = {line.get_label(): line for line in width.lines}
    assert list(lines) == [*(f"chain {k}" for k in range(NUM_CHAINS)), "90 % interval", "mean"]
    np.testing.assert_allclose(lines["mean"].get_xdata(), normal[..., 0].mean())
    np.testing.assert_allclose(lines["90 % interval"].get_xdata(), np.quantile(normal[..., 0], [0.05, 0.95]))
    grid, density = lines["chain 0"].get_data()
    np.testing.assert_allclose(np.trapezoid(density, grid), 1, atol=0.02)
    assert [line.get_label() for line in one.lines] == ["constant"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(legend) == len(set(legend)) == NUM_CHAINS + 4


def draws_around(truth, num_draws=50):
    return truth + 0.1 * np.random.default_rng(1).normal(size=(num_draws, *truth.shape))


def background(ax):
    """(rows, columns, 3) colours, bottom row first."""
    return ax.images[0].get_array()


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_decision_of_two_classes():
    X, y, _ = datasets.make_svm(60, 2)
    ax = plot_decision({"eta": draws_around(np.array([2.0, 0.0]))}, X, y, class_names=["no", "yes"])
    points = [found for found in ax.collections if isinstance(found, PathCollection)]
    assert [len(found.get_offsets()) for found in points] == [np.sum(y == 0), np.sum(y == 1)]
    assert len({str(found.get_paths()[0].vertices) for found in points}) == 2, "markers differ"
    assert legend(ax) == ["no", "yes", "mean boundary", "mean margin"]
    lines = [found for found in ax.collections if not isinstance(found, PathCollection)]
    positions = sorted(np.mean(line.get_paths()[0].vertices[:, 0]) for line in lines)
    np.testing.assert_allclose(positions, [-0.5, 0.0, 0.5], atol=0.05)  # eta'x in -1, 0, 1
    red, _, blue = background(ax)[60, [0, -1]].T
    assert blue[0] > red[0]  # class 0 votes blue
    assert red[1] > blue[1]  # class 1 votes orange
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert "yes" in ax.figure.axes[1].get_ylabel()


def test_decision_shows_doubt_as_white():
    X, y, _ = datasets.make_svm(60, 2)
    ax = plot_decision(np.array([[1.0, 0.0], [-1.0, 0.0]]), X, y)
    np.testing.assert_allclose(background(ax), 1.0)


def test_decision_of_several_classes_with_intercept():
    X, y, truth = datasets.make_multiclass_svm(60, 2, 3)
    figure, (left, right) = plt.subplots(1, 2)
    weights = draws_around(truth)
    assert plot_decision(weights, X, y, ax=left) is left
    assert legend(left)[:3] == ["class 0", "class 1", "class 2"]
    shifted = np.concatenate([weights, np.broadcast_to([[0.0], [0.0], [100.0]], (50, 3, 1))], axis=-1)
    plot_decision(shifted, X, y, ax=right)
    np.testing.assert_allclose(np.ptp(background(right), axis=(0, 1)), 0)  # class 2 everywhere
    assert len(figure.axes) == 4  # two panels and their scales


def test_decision_of_any_posterior_by_its_predictions():
    X, y, _ = datasets.make_svm(60, 2)

    def predict(radii, points):
        return (np.sum(points**2, axis=1) > radii[:, None] ** 2).astype(int)

    ax = plot_decision(np.array([0.9, 1.0, 1.1]), X, y, predict=predict)
    assert legend(ax)[2:] == ["boundary of the vote"]
    (line,) = [found for found in ax.collections if not isinstance(found, PathCollection)]
    radius = np.linalg.norm(line.get_paths()[0].vertices, axis=1)
    np.testing.assert_allclose(radius.mean(), 1.0, atol=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((60, 3))}, r"X must have shape \(n, 2\)"),
        ({"y": np.zeros(3)}, "y must hold 60 labels"),
        ({"y": np.full(60, -1)}, "y must hold 60 labels"),
        ({"y": np.full(60, 2)}, r"y must have labels in 0\.\.1"),
        ({"samples": np.zeros((5, 4))}, "pass predict"),
        ({"class_names": ["a"]}, "class_names must hold 2 names"),
    ],
)
def test_decision_says_what_is_wrong(changes, message):
    X, y, truth = datasets.make_svm(60, 2)
    with pytest.raises(ValueError, match=message):
        plot_decision(**{"samples": draws_around(truth), "X": X, "y": y, **changes})
