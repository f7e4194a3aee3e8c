"""What the pictures of mixtures, topics, features and checks draw."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from arviz_base import from_dict
from draws import prior_sites, tree
from matplotlib.patches import Ellipse

import regbayes
from regbayes import datasets
from regbayes.diagnostics import (
    calibration,
    plot_calibration,
    plot_coclustering,
    plot_concentration,
    plot_documents,
    plot_features,
    plot_graph,
    plot_kernels,
    plot_mixture_decision,
    plot_num_clusters,
    plot_objective,
    plot_topics,
    plot_trace,
)
from regbayes.inference import M2DPM


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


@pytest.fixture(scope="module")
def documents():
    """Topic draws of the example, their topics renumbered at random in each."""
    sites, arguments = prior_sites("medlda", shape=(2, 4))
    z, phi = sites["z"][:1, :1], sites["phi"][:1, :1]
    sites["z"], sites["phi"] = np.empty_like(sites["z"]), np.empty_like(sites["phi"])
    rng = np.random.default_rng(0)
    for where in np.ndindex(2, 4):
        new = rng.permutation(phi.shape[2])
        sites["z"][where], sites["phi"][where][new] = new[z[0, 0]], phi[0, 0]
    return tree("medlda", sites, arguments), (arguments[0], z[0, 0], phi[0, 0])


def test_coclustering_is_ordered_by_cluster():
    z = np.array([[0, 1, 0, 1, 1], [0, 1, 0, 1, 1], [0, 1, 0, 1, 0]])
    ax = plot_coclustering(z)
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (5, 5)
    np.testing.assert_allclose(shown, shown.T)
    np.testing.assert_allclose(shown[:2, :2], 1.0)  # the larger cluster first, and in it the firmest members
    np.testing.assert_allclose(shown[2, :2], 2 / 3)
    np.testing.assert_allclose(shown[3:, 3:], 1.0)
    assert [line.get_ydata()[0] for line in ax.lines[::2]] == [2.5]
    assert "share of draws" in ax.figure.axes[1].get_ylabel()
    with pytest.raises(ValueError, match=r"labels must have shape \(5,\)"):
        plot_coclustering(z, labels=[0, 1])


def test_number_of_clusters_has_a_bar_per_number_and_a_mark_per_chain():
    z = np.array([[[0, 0, 1], [1, 1, 1]], [[0, 1, 1], [0, 1, 2]]])
    ax = plot_num_clusters(from_dict({"posterior": {"z": z}}))
    assert [bar.get_x() + bar.get_width() / 2 for bar in ax.patches] == pytest.approx([1, 2, 3])
    assert [bar.get_height() for bar in ax.patches] == [0.25, 0.5, 0.25]
    np.testing.assert_allclose(lines(ax)["chain 1"].get_ydata(), [0, 0.5, 0.5])
    assert set(legend(ax)) == {"all draws", "chain 0", "chain 1"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("number of clusters", "posterior probability")
    constant = plot_num_clusters(from_dict({"posterior": {"z": np.zeros((1, 4, 3), int)}}))
    assert [bar.get_height() for bar in constant.patches] == [1.0]
    with pytest.raises(ValueError, match=r"found \[\]"):
        plot_num_clusters(from_dict({"posterior": {"eta": np.zeros((1, 4))}}))


def test_trace_of_a_mixture_shows_invariants_with_even_ranks():
    z = np.random.default_rng(0).integers(0, 2, size=(2, 100, 3))
    figure = plot_trace(from_dict({"posterior": {"z": z}}))
    assert [ax.get_ylabel() for ax in figure.axes[::2]] == [
        "number of clusters",
        "share of the largest cluster",
        "entropy of the partition (nats)",
    ]
    counts = np.array([patch.get_data().values for patch in figure.axes[1].patches if "chain" in patch.get_label()])
    assert (counts.sum(0) == 10).all()  # equal values are spread over the bins


def mixture(mu, eta, n=12):
    """Draws of an infinite SVM with clusters at ``mu``, all alike but for their numbers."""
    slots, num = 4, len(mu)
    X = np.repeat(mu, n // num, axis=0) + np.linspace(-0.2, 0.2, n)[:, None]
    y = np.arange(n) % 2
    labels = np.repeat(np.arange(num), n // num)
    shape = (1, 3)
    sites = {"z": np.empty((*shape, n), int), "mu": np.zeros((*shape, slots, 2)), "eta": np.zeros((*shape, slots, 3))}
    for draw in range(3):
        new = np.random.default_rng(draw).permutation(slots)
        sites["z"][0, draw] = new[labels]
        sites["mu"][0, draw][new[:num]] = mu
        sites["eta"][0, draw][new[:num]] = eta
    return tree("isvm", sites, ((X, y), {"variance": 0.04, "max_clusters": slots}))


def test_mixture_has_an_ellipse_per_component_and_margins():
    dt = mixture(np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([[5.0, 0.0, 5.0], [0.0, 8.0, 0.0]]))
    ax = plot_mixture_decision(dt, resolution=60)
    ellipses = [patch for patch in ax.patches if isinstance(patch, Ellipse)]
    np.testing.assert_allclose(sorted(patch.center[0] for patch in ellipses), [-1, 1], atol=1e-6)
    np.testing.assert_allclose([patch.width for patch in ellipses], 4 * 0.2, rtol=1e-6)
    contours = [found for found in ax.collections if type(found).__name__ == "QuadContourSet"]
    thin = [found for found in contours if found.get_linewidths()[0] == 1.0]
    left = [found.get_paths()[0].vertices for found in thin if found.get_paths()[0].vertices[:, 0].mean() < 0]
    assert sorted(np.round(v[:, 0].mean(), 1) for v in left) == [-1.2, -1.0, -0.8]  # 5 x + 5 in -1, 0, 1
    assert legend(ax)[2:] == ["mean boundary", "a component's own", "its margins", "component, 2 sd"]
    assert ax.images[0].get_array().shape == (60, 60, 3)
    with pytest.raises(ValueError, match="found 'svm'; use plot_decision"):
        plot_mixture_decision(from_dict({"posterior": {"eta": np.zeros((1, 4))}}, attrs={"/": {"program": "svm"}}))


def test_topics_are_those_of_the_draws_however_numbered(documents):
    dt, (_, z, phi) = documents
    figure = plot_topics(dt, num_words=3)
    assert len(figure.axes) == len(phi)
    biggest = np.argsort(-np.bincount(z, minlength=len(phi)), kind="stable")
    for ax, topic in zip(figure.axes, biggest, strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], np.sort(phi[topic])[::-1][:3], rtol=1e-5)
        words = [f"word {v}" for v in np.argsort(-phi[topic], kind="stable")[:3]]
        assert [text.get_text() for text in ax.get_yticklabels()] == words
    assert len(plot_topics(dt, which=[2, 0]).axes) == 2
    with pytest.raises(ValueError, match="vocabulary must hold 20 words, found 1"):
        plot_topics(dt, ["a"])
    with pytest.raises(ValueError, match=r"found sites \['x'\]"):
        plot_topics(from_dict({"posterior": {"x": np.zeros((1, 4))}}))
    with pytest.raises(ValueError, match="which must name"):
        plot_topics(phi, which=[9])


def test_documents_are_the_shares_of_their_tokens(documents):
    dt, ((X, y), z, phi) = documents
    ax = plot_documents(dt)
    shown = np.asarray(ax.images[0].get_array())
    owner = np.repeat(np.arange(len(X)), np.asarray(X).sum(1))
    shares = np.array([np.bincount(z[owner == d], minlength=len(phi)) for d in range(len(X))]) / 8
    np.testing.assert_allclose(shown.sum(1), 1)
    np.testing.assert_allclose(np.sort(shown.ravel()), np.sort(shares.ravel()), atol=1e-12)
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"class {k}" for k in np.unique(y)]
    assert len(ax.lines) == len(np.unique(y)) - 1
    assert len(ax.get_xticklabels()) == len(phi)
    with pytest.raises(ValueError, match="class_names must hold 3 names"):
        plot_documents(dt, class_names=["a"])
    with pytest.raises(ValueError, match="y must hold 12 labels"):
        plot_documents(dt, y=[0, 1])


def test_features_by_class():
    Z = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]])
    figure = plot_features(Z, [0, 0, 1, 1], class_names=["cat", "dog"])
    top, bottom = figure.axes
    assert [bar.get_height() for bar in top.patches] == [1.0, 0.25]  # the third is not active
    np.testing.assert_allclose(lines(bottom)["cat"].get_ydata(), [1, 0.5])
    np.testing.assert_allclose(lines(bottom)["dog"].get_ydata(), [1, 0])
    assert legend(bottom) == ["cat", "dog"]
    assert bottom.get_xlabel() == "latent feature, by its mean"
    with pytest.raises(ValueError, match="y must hold 4 labels"):
        plot_features(Z)


def test_features_of_draws_are_those_of_the_largest_log_joint():
    sites, arguments = prior_sites("ilsvm")
    dt = tree("ilsvm", sites, arguments)
    best = np.unravel_index(dt["sample_stats"]["lp"].to_numpy().argmax(), (2, 5))
    figure, Z, y = plot_features(dt), sites["Z"][best], np.asarray(arguments[0][1])
    means = np.mean([Z[y == k].mean(0) for k in np.unique(y)], axis=0)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(heights, -np.sort(-means[Z.any(0)]), rtol=1e-6)


def test_kernels_have_two_marks_per_quantity():
    draws = np.random.default_rng(0).normal(size=(2, 4, 100, 3))
    ax = plot_kernels(*(from_dict({"posterior": {"eta": part}}, attrs={"/": {"kernel": "k"}}) for part in draws))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["eta[0]", "eta[1]", "eta[2]"]
    assert legend(ax) == ["within 2 standard errors", "mean", "variance"]
    assert len(lines(ax)["mean"].get_xdata()) == 3
    assert ax.get_xlabel() == "(k - k) / Monte Carlo standard error"


def test_calibration_has_a_point_per_bin():
    table = calibration([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1, 0], num_bins=2)
    ax = plot_calibration(table)
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), table["observed"])
    assert [text.get_text() for text in ax.texts] == ["2", "2"]
    assert legend(ax) == ["calibrated", "bins of held-out data"]


def test_objective_has_a_step_per_update():
    X, y, _ = datasets.make_m2dpm_setting2(40, 2, 3)
    model = M2DPM(random_state=0).fit(X, y)
    ax = plot_objective({"limit": model, "trace": [3.0, 2.0]})
    np.testing.assert_array_equal(lines(ax)["limit"].get_ydata(), model.objective_)
    assert legend(ax) == ["limit", "trace"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("update", "objective")
    assert plot_objective(model).get_legend_handles_labels()[1] == ["M2DPM"]
    with pytest.raises(ValueError, match="fit it first"):
        plot_objective({"none": []})


def test_concentration_narrows_towards_the_limit():
    noise = np.random.default_rng(0).normal(size=(2, 200, 2))
    runs = {beta: from_dict({"posterior": {"eta": [1, -1] + noise / beta**0.5}}) for beta in (100.0, 1.0, 10.0)}
    ax = plot_concentration(runs, {"eta[0]": 1.0, "eta[1]": -1.0})
    bars = ax.collections[0].get_segments()  # 90 % of eta[0]
    widths = [bar[1, 1] - bar[0, 1] for bar in bars]
    np.testing.assert_allclose(widths, 3.29 / np.sqrt([1, 10, 100]), rtol=0.15)
    assert legend(ax) == ["eta[0], median", "eta[0], limit", "eta[1], median", "eta[1], limit"]
    assert lines(ax)["eta[1], limit"].get_ydata()[0] == -1.0
    with pytest.raises(ValueError, match=r"limit names \['eta\[7\]'\]"):
        plot_concentration(runs, {"eta[7]": 0.0})


def test_graph_has_the_sites():
    pytest.importorskip("graphviz")
    args, kwargs = regbayes.zoo["svm"].example()
    for _ in range(2):  # what the first trace leaves must not be in the way of the second
        source = plot_graph(regbayes.zoo["svm"].program, *args, **kwargs).source
        assert "eta" in source
        assert "margin" in source


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plot_coclustering([[0, 1], [0, 0]], ax=ax),
        lambda ax: plot_num_clusters(from_dict({"posterior": {"z": np.zeros((1, 4, 3), int)}}), ax=ax),
        lambda ax: plot_documents([[0.4, 0.6]], ax=ax),
        lambda ax: plot_objective([2.0, 1.0], ax=ax),
        lambda ax: plot_calibration(calibration([[0.9, 0.1]], [0]), ax=ax),
    ],
)
def test_panels_go_where_they_are_told(draw):
    _, (left, right) = plt.subplots(1, 2)
    assert draw(right) is right
    assert not left.has_data()
