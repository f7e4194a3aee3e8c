"""Figures of the papers, and tables on data that stand in for others: how they are drawn, and their cells."""

import dataclasses
import functools

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.manifold import TSNE
from sklearn.utils import Bunch
from tables import FAST, NUM_SWEEPS, parkinsons, small_corpus, topic_clustering

from regbayes import reproduce
from regbayes.reproduce import Options, figure
from regbayes.reproduce.baselines import PosteriorClustering
from regbayes.reproduce.experiment import Method, Metric


def entries(settings, methods, sd=0.5):
    return [
        {"setting": setting, "method": method, "metric": "score", "ours": {"mean": i + 10.0 * j, "sd": sd}}
        for i, setting in enumerate(settings)
        for j, method in enumerate(methods)
    ]


def test_lines_go_over_the_numbers_of_the_settings():
    table = dataclasses.replace(reproduce.EXPERIMENTS["regbayes-fig8"], metrics={"score": Metric("score", 1)})
    drawn = figure.lines(
        table, entries(["a: C=0.1", "a: C=1", "a: C=10", "share=50%"], ["one", "two"]), [], metric="score"
    )
    first, second = drawn.axes
    assert (first.get_xlabel(), first.get_xscale(), first.get_ylabel()) == ("a: C", "log", "score")
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["one", "two"]
    np.testing.assert_allclose(first.containers[1][0].get_xydata().astype(float), [[0.1, 10], [1, 11], [10, 12]])
    assert (second.get_xlabel(), second.get_xscale()) == ("share", "linear")


def test_dots_are_the_means_of_the_methods():
    table = dataclasses.replace(reproduce.EXPERIMENTS["regbayes-fig7"], metrics={"score": Metric("score", 1)})
    (ax,) = figure.dots(table, entries(["School"], ["one", "two"]), [], metric="score").axes
    assert ax.containers[0][0].get_xdata().tolist() == [10.0, 0.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["two", "one"]
    assert (ax.get_xlabel(), ax.get_title()) == ("score", "School")


def test_scatters_show_the_first_seeds_labels():
    table = dataclasses.replace(reproduce.EXPERIMENTS["bmc-fig2"], methods={"one": None, "two": None})
    result = {"nmi": 0.5, "labels": [0, 0, 1]}
    cells = [
        {"setting": "Half-rings", "method": method, "seed": seed, "result": result if seed == 0 else {}}
        for seed in range(2)
        for method in ("one", "two")
    ]
    points = np.arange(6.0).reshape(3, 2)
    drawn = figure.scatters(table, [], cells, points=lambda setting, result: points, metric="nmi")
    assert [ax.get_title() for ax in drawn.axes] == ["Half-rings, one\nNMI 0.50", "Half-rings, two\nNMI 0.50"]
    first, second = drawn.axes[0].collections
    assert first.get_offsets().tolist() == [[0, 1], [2, 3]]
    assert second.get_offsets().tolist() == [[4, 5]]


def test_two_gaussians_are_drawn_with_who_predicts_what_where():
    methods = {name: reproduce.isvm.FIG1.methods[name] for name in ("RBF-SVM", "RBF-iSVM")}
    cells = [
        {"method": name, "seed": 0, "result": reproduce.isvm.figure1_cell("two Gaussians", method, 0, FAST)}
        for name, method in methods.items()
    ]
    scores = {cell["method"]: cell["result"] for cell in cells}
    assert scores["RBF-iSVM"]["accuracy"] > scores["RBF-SVM"]["accuracy"] > 75
    assert scores["RBF-iSVM"]["components"] == 2
    drawn = reproduce.isvm.draw_regions(reproduce.isvm.FIG1, [], cells)
    assert len(drawn.axes) == 2
    assert set(scores["RBF-SVM"]["regions"]) == {"0", "1"}
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["class 0", "class 1", "support"]


def test_two_classes_of_a_data_set_are_taken_at_random():
    cell, kmeans = reproduce.bmc.TABLE3.cell, reproduce.bmc.METHODS["k-means"]
    found = [cell("Iris", kmeans, seed, FAST) for seed in range(6)]
    assert {result["clusters"] for result in found} == {2}
    assert len({round(result["nmi"], 6) for result in found}) > 1
    assert cell("Iris", None, 0, FAST) == {}


def test_groups_of_recordings_by_their_size(tmp_path):
    parkinsons(tmp_path)
    options = Options(data_home=str(tmp_path))
    table = reproduce.m2dpm.TABLE5
    found = [table.cell(group, table.methods["as measured"], 0, options) for group in table.settings]
    sizes = [result["recordings"] for result in found if "recordings" in result]
    assert sizes == sorted(sizes, reverse=True)
    assert all(result["groups"] >= len(sizes) for result in found)


def test_documents_keep_their_topics_and_every_draw_of_their_labels(monkeypatch):
    small_corpus(monkeypatch)
    monkeypatch.setattr(reproduce.topics, "NUM_SWEEPS", NUM_SWEEPS)
    method = topic_clustering("mmctm", num_start=20)
    found = reproduce.topics.sweeps_cell("R8, L=5", method, 0, FAST)
    assert len(found["trace"]) == NUM_SWEEPS
    assert found["last"] > 80
    drawn = reproduce.topics.draw_traces(
        reproduce.topics.FIG9, [], [{"setting": "R8, L=5", "method": "MMCTM", "seed": 0, "result": found}]
    )
    (line,) = drawn.axes[1].lines
    np.testing.assert_allclose(line.get_ydata(), found["trace"])
    monkeypatch.setattr(reproduce.topics, "TSNE", functools.partial(TSNE, max_iter=250, method="exact"))
    embedded = reproduce.topics.embedding_cell("R8", method, 0, FAST)
    assert np.shape(embedded["embedding"]) == (80, 2)
    assert embedded["silhouette"] > 0


def test_documents_with_another_number_of_topics(monkeypatch):
    small_corpus(monkeypatch)
    found = reproduce.topics.topics_cell("R8: topics=4", topic_clustering("mmctm", num_start=20, num_topics=9), 0, FAST)
    assert found["accuracy"] > 60
    assert {setting.split(": ")[0] for setting in reproduce.topics.FIG4.settings} == set(reproduce.topics.DATA)


@pytest.mark.slow
def test_a_wide_margin_leaves_fewer_clusters(monkeypatch):
    X, y = make_blobs(60, centers=6, cluster_std=0.3, random_state=0)
    monkeypatch.setattr(reproduce.bmc, "clustering_data", lambda name, options: ((X - X.mean(0)) / X.std(0), y))
    method = Method(
        lambda seed: PosteriorClustering(
            "dpmmgm", num_tuning=20, num_warmup=30, num_samples=10, max_clusters=16, random_state=seed
        )
    )
    weak, strong = (reproduce.bmc.strength_cell(setting, method, 0, FAST) for setting in ("c=0.01", "ell=3.0"))
    assert weak["clusters"] > strong["clusters"] >= 1
    assert weak["nmi"] > 0.8


@pytest.mark.parametrize(
    ("table", "method"),
    [
        (reproduce.isvm.TABLE3, "Linear-iSVM"),
        (reproduce.isvm.TABLE3, "MNL"),
        pytest.param(reproduce.ilsvm.TABLE1, "iLSVM", marks=pytest.mark.slow),
    ],
    ids=["infinite SVM", "multinomial logits", "infinite latent SVM"],
)
def test_other_pictures_stand_in(table, method, monkeypatch):
    X, y = make_blobs(300, 6, centers=4, cluster_std=2.0, random_state=0)
    data = Bunch(X=np.column_stack([X, np.ones(300)]), y=y, train=np.arange(300) < 200)
    asked = []
    monkeypatch.setattr(reproduce.isvm.datasets, "load", lambda name, home: asked.append(name) or data)
    found = table.cell(table.settings[-1], table.methods[method], 0, FAST)
    assert found["accuracy"] > 80
    assert asked == ["satimage"]
