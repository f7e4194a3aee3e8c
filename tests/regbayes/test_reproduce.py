"""Tables are run cell by cell, resume where they stopped, and set our numbers beside the paper's."""

import dataclasses
import doctest
import importlib
import json
import pathlib
import pkgutil

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from tables import FAST, parkinsons, small_corpus, topic_clustering

import regbayes
from regbayes import cli, datasets, inference, reproduce
from regbayes.inference.engine import compiled
from regbayes.inference.engine.compiled import likeness
from regbayes.reproduce import Experiment, Options, OtherSettings, m2dpm, run_experiment
from regbayes.reproduce.baselines import ClusterThenClassify, PosteriorClassifier, PosteriorClustering
from regbayes.reproduce.experiment import Method, Metric, Rows, evaluate

TOLD = ("k-means", "nCut", "limit")


# ----- The decoupled pipeline


@parametrize_with_checks([ClusterThenClassify(KMeans(2, n_init=1, random_state=0))])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_each_cluster_has_its_classifier():
    X, y, truth = datasets.make_m2dpm_setting2(3000, 2, 3, seed=1)
    model = ClusterThenClassify(KMeans(3, n_init=5, random_state=0), LinearSVC(dual=False, C=100.0)).fit(X, y)
    bayes = np.mean(truth.bayes(X) == y)
    assert model.score(X, y) > bayes - 0.02
    assert model.score(X, y) > LinearSVC(dual=False).fit(X, y).score(X, y) + 0.03
    for k, classifier in model.classifiers_.items():
        rows = model.cluster_.labels_ == k
        np.testing.assert_array_equal(model.predict(X[rows]), classifier.predict(X[rows]))


def test_a_cluster_of_one_class_predicts_it():
    X = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    y = np.array(["a", "a", "a", "a", "b", "b"])
    model = ClusterThenClassify(KMeans(2, n_init=3, random_state=0)).fit(X, y)
    assert sorted(isinstance(classifier, LinearSVC) for classifier in model.classifiers_.values()) == [False, True]
    assert model.predict([[-5.0], [0.3], [99.0]]).tolist() == ["a", "a", "b"]


# ----- Posteriors

# Of equal shape, and with the same hyper-parameter given, all of them run what one of them compiles.
CHAINS = {"num_warmup": 5, "num_samples": 6, "num_chains": 2, "max_clusters": 40, "concentration": 1.0}


@pytest.mark.parametrize("program", ["isvm", pytest.param("dpmnl", marks=pytest.mark.slow)])
def test_a_posterior_is_a_classifier(program):
    X, y, _ = datasets.make_m2dpm_setting2(80, 2, 2, seed=0)
    words = np.array(["no", "yes"])[y]
    model = PosteriorClassifier(program, **CHAINS, random_state=0)
    first = model.fit(X, words).draws_
    assert first["z"].shape == (12, 80)
    assert set(model.predict(X).tolist()) <= {"no", "yes"}
    again = clone(model).fit(X, words)
    np.testing.assert_array_equal(again.draws_["z"], first["z"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert not np.array_equal(clone(model).set_params(random_state=1).fit(X, words).draws_["mu"], first["mu"])


def test_searches_of_a_posterior_compile_once():
    X, y, _ = datasets.make_m2dpm_setting2(80, 2, 2, seed=0)
    model = PosteriorClassifier("isvm", **CHAINS, random_state=0)
    model.fit(X, y)
    code = compiled._kept[likeness(regbayes.zoo["isvm"].kernels["slice"]())]
    before = code.init._cache_size(), code.draws._cache_size()
    for concentration in (0.5, 0.8):
        model.set_params(concentration=concentration).fit(X, y)
    assert (code.init._cache_size(), code.draws._cache_size()) == before


def test_hyper_parameters_of_a_program_are_parameters():
    model = PosteriorClassifier("isvm", cost=2.0)
    assert model.get_params()["cost"] == 2.0
    model.set_params(cost=3.0, num_warmup=7, variance=0.5)
    assert (model.options, model.num_warmup) == ({"cost": 3.0, "variance": 0.5}, 7)
    assert clone(model).get_params() == model.get_params()
    assert "variance=0.5" in repr(model)


def test_a_full_buffer_is_doubled_until_it_suffices(monkeypatch):
    X, y, _ = datasets.make_m2dpm_setting2(80, 2, 2, seed=0)
    tried, real = [], inference.draw_chains

    def draw_chains(kernel, data, settings, **run):
        tried.append(settings["max_clusters"])
        if tried[-1] < 40:
            raise inference.BufferFull
        return real(kernel, data, settings, **run)

    monkeypatch.setattr(inference, "draw_chains", draw_chains)
    model = PosteriorClassifier("isvm", **{**CHAINS, "max_clusters": 10}).fit(X, y)
    assert tried == [10, 20, 40]
    assert (model.max_clusters_, model.get_params()["max_clusters"]) == (40, 10)
    assert set(model.predict(X).tolist()) <= {0, 1}


@pytest.mark.slow
def test_a_buffer_that_is_really_full_is_doubled():
    X, y, _ = datasets.make_m2dpm_setting2(60, 2, 6, seed=0)
    model = PosteriorClassifier("isvm", "collapsed", num_warmup=5, num_samples=5, max_clusters=2, variance=0.01)
    most = max(len(np.unique(z)) for z in model.fit(X, y).draws_["z"])
    assert 2 < most <= model.max_clusters_ <= 64
    assert set(model.predict(X).tolist()) <= {0, 1}


# ----- Evaluation


def test_hyper_parameters_are_chosen_in_the_training_part():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    y = (X[:, 0] + rng.normal(size=120) > 0).astype(int)  # so noisy that rows learned from score better
    method = Method(lambda seed: LogisticRegression(), {"C": [1e-9, 1.0, 1e-8]})
    found = evaluate(method, Rows(X[:80], y[:80]), Rows(X[80:], y[80:]), 0, Options())
    assert found["chosen"] == {"C": 1.0}
    assert found["accuracy"] == pytest.approx(100 * LogisticRegression().fit(X[:80], y[:80]).score(X[80:], y[80:]))
    assert found["f1"] == pytest.approx(found["accuracy"], abs=5)
    assert 0 < found["seconds"] < found["search_seconds"] + found["first_seconds"]


def test_groups_stay_whole_in_the_search():
    seen = []

    class Spy(LogisticRegression):
        def fit(self, X, y):
            seen.append(set(X[:, 1].astype(int).tolist()))
            return super().fit(X, y)

        def score(self, X, y):
            assert not seen[-1] & set(X[:, 1].astype(int).tolist())
            return super().score(X, y)

    groups = np.repeat(np.arange(12), 5)
    X = np.c_[np.random.default_rng(0).normal(size=60), groups]
    part = Rows(X, groups % 2, groups)
    evaluate(Method(lambda seed: Spy(), {"C": [1.0, 2.0]}), part, part, 0, Options())
    assert len(seen) == 2 * 5 + 2


@pytest.mark.parametrize(
    ("values", "thinned"), [([1], [1]), ([1, 2], [1, 2]), ([1, 2, 3], [1, 2]), ([1, 2, 3, 4, 5], [1, 3])]
)
def test_fast_searches_little(values, thinned):
    method = Method(lambda seed: LogisticRegression(), {"C": values})
    assert method.candidates(False) == {"C": values}
    assert method.candidates(True) == {"C": thinned}


# ----- Running


def tiny(calls=None, fail_at=None):
    """Two settings, two methods, cells that only say how they were called."""
    calls = [] if calls is None else calls

    def cell(setting, method, seed, options):
        if len(calls) == fail_at:
            raise KeyboardInterrupt
        calls.append((setting, method is None, seed))
        return {"accuracy": np.float32(50 + 10 * seed), "chosen": {"C": np.float64(0.5)}}

    return Experiment(
        title="a small table",
        duration=("a moment", "no time"),
        settings=("here", "there"),
        methods={"learner": Method(lambda seed: LogisticRegression(random_state=seed), {"C": [1.0]}), "oracle": None},
        metrics={"accuracy": Metric("accuracy (%)", 1), "seconds": Metric("time (s)", 2)},
        cell=cell,
        paper={("here", "learner"): {"accuracy": (61.5, 2.0), "seconds": (0.1, None)}},
        num_seeds=(3, 2),
        notes=("To be noted.",),
    )


def run(experiment, out, **options):
    lines = []
    text = run_experiment("tiny", experiment, out, progress=lines.append, **options)
    return text, json.loads((out / "tiny.json").read_text()), lines


def test_table_and_record(tmp_path):
    text, record, lines = run(tiny(), tmp_path / "new" / "out")
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["tiny:", "a", "small", "table"]
    assert ["here", "learner", "61.5", "(2.0)", "60.0", "(10.0)", "0.10", "-"] in rows
    assert ["there", "oracle", "-", "60.0", "(10.0)", "-", "-"] in rows
    assert "Mean (standard deviation) over 3 seeds." in text
    assert "To be noted." in text
    assert "fast" not in text
    assert (tmp_path / "new" / "out" / "tiny.txt").read_text() == text + "\n"
    assert len(lines) == 12
    assert lines[0].startswith("[1/12] here, learner, seed 0: accuracy (%) 50.0 [")

    assert record["complete"]
    assert record["versions"]["regbayes"] == regbayes.__version__
    assert {"numpy", "scikit-learn", "jax", "python", "machine"} <= set(record["versions"])
    assert record["settings"]["methods"]["learner"]["grid"] == {"C": [1.0]}
    assert "LogisticRegression" in record["settings"]["methods"]["learner"]["estimator"]
    assert record["settings"]["fast"] is False
    assert len(record["cells"]) == 12
    first = {"setting": "here", "method": "learner", "seed": 0, "result": {"accuracy": 50.0, "chosen": {"C": 0.5}}}
    assert record["cells"][0] == first
    entry = record["summary"][0]
    assert (entry["setting"], entry["method"], entry["metric"]) == ("here", "learner", "accuracy")
    assert entry["paper"] == {"mean": 61.5, "sd": 2.0}
    assert entry["ours"] == {"mean": 60.0, "sd": 10.0, "num_seeds": 3}
    assert sorted(path.name for path in (tmp_path / "new" / "out").iterdir()) == ["tiny.json", "tiny.txt"]


def test_one_seed_has_no_spread(tmp_path):
    text, record, _ = run(tiny(), tmp_path, num_seeds=1)
    assert record["summary"][0]["ours"] == {"mean": 50.0, "sd": None, "num_seeds": 1}
    assert "over 1 seed." in text


def test_differences_are_taken_seed_by_seed(tmp_path):
    def cell(setting, method, seed, options):
        return {"accuracy": 10.0 * seed + (seed if method else 0.0)}

    experiment = dataclasses.replace(tiny(), cell=cell, compare=(("learner", "oracle"),))
    text, record, _ = run(experiment, tmp_path)
    assert ["here", "learner", "-", "oracle", "+1.00", "(0.58)", "-"] in [line.split() for line in text.splitlines()]
    assert "Differences: mean (standard error) over the same seeds." in text
    entry = record["differences"][0]
    assert (entry["setting"], entry["methods"], entry["metric"]) == ("here", ["learner", "oracle"], "accuracy")
    assert (entry["mean"], entry["standard_error"]) == (1.0, pytest.approx(1 / 3**0.5))
    assert "Differences" not in run(experiment, tmp_path / "one", num_seeds=1)[0]


def test_what_is_far_from_the_paper_is_marked(tmp_path):
    metrics = {"accuracy": Metric("accuracy (%)", 1, marked=True)}
    paper = {("here", "learner"): {"accuracy": (57.9, 2.0)}, ("there", "learner"): {"accuracy": (58.0, 2.0)}}
    text, _, _ = run(dataclasses.replace(tiny(), metrics=metrics, paper=paper), tmp_path)
    rows = [line.split() for line in text.splitlines()]
    assert ["here", "learner", "57.9", "(2.0)", "60.0", "(10.0)", "!"] in rows
    assert ["there", "learner", "58.0", "(2.0)", "60.0", "(10.0)"] in rows
    assert "! is further from the paper's mean than its standard deviation." in text


def test_an_interrupted_run_goes_on(tmp_path):
    calls = []
    with pytest.raises(KeyboardInterrupt):
        run(tiny(calls, fail_at=5), tmp_path)
    record = json.loads((tmp_path / "tiny.json").read_text())
    assert (record["complete"], len(record["cells"])) == (False, 5)
    assert not (tmp_path / "tiny.txt").exists()
    text, record, lines = run(tiny(calls), tmp_path)
    assert len(calls) == len(set(calls)) == 12
    assert lines[0] == f"tiny: 5 of 12 cells are in {tmp_path / 'tiny.json'} already"
    assert lines[1].startswith("[6/12]")
    assert text == run(tiny(), tmp_path / "other")[0]
    assert record["complete"]


def test_cells_side_by_side_make_the_same_table(tmp_path):
    text, record, lines = run(tiny(), tmp_path)
    shared = dataclasses.replace(tiny(), side_by_side=True)
    again, found, told = run(shared, tmp_path / "two", options=Options(n_jobs=2))
    assert again == text
    assert found["summary"] == record["summary"]
    assert [line.split("]")[0] for line in told] == [line.split("]")[0] for line in lines]


def test_more_seeds_and_methods_extend_a_run(tmp_path):
    calls = []
    run(tiny(calls), tmp_path, num_seeds=1, methods=["oracle"])
    _, record, _ = run(tiny(calls), tmp_path, num_seeds=2)
    assert len(calls) == len(record["cells"]) == 8
    _, record, _ = run(tiny(calls), tmp_path, num_seeds=1, methods=["learner"])  # fewer: nothing is lost
    assert len(calls) == len(record["cells"]) == 8
    assert set(record["settings"]["methods"]) == {"learner", "oracle"}


def test_other_settings_are_not_mixed(tmp_path, monkeypatch):
    run(tiny(), tmp_path)
    before = (tmp_path / "tiny.json").read_text()
    with pytest.raises(OtherSettings, match=r"other settings \(fast, folds\); move it or choose another folder"):
        run(tiny(), tmp_path, options=FAST)
    methods = {"learner": Method(lambda seed: LogisticRegression(random_state=seed), {"C": [2.0]}), "oracle": None}
    with pytest.raises(OtherSettings, match=r"\(learner\)"):
        run(dataclasses.replace(tiny(), methods=methods), tmp_path)
    monkeypatch.setattr(reproduce.experiment, "__version__", "0.0.0")
    with pytest.raises(OtherSettings, match=r"\(version\)"):
        run(tiny(), tmp_path)
    assert (tmp_path / "tiny.json").read_text() == before
    (tmp_path / "tiny.json").write_text("[1, 2")
    with pytest.raises(OtherSettings, match="is not a file of this command"):
        run(tiny(), tmp_path)


def test_a_fast_run_says_so(tmp_path):
    text, record, _ = run(tiny(), tmp_path, options=FAST)
    assert "A fast run" in text
    assert (record["settings"]["fast"], record["settings"]["folds"], len(record["cells"])) == (True, 3, 8)


def test_unknown_methods_are_refused(tmp_path):
    with pytest.raises(ValueError, match="methods must be some of learner, oracle; found horse"):
        run(tiny(), tmp_path, methods=["horse", "oracle"])


# ----- The tables themselves


def test_every_number_of_the_paper_has_its_row():
    assert {"bmc-table1", "bmc-table2", "isvm-table1", "m2dpm-table4"} <= set(reproduce.names())
    assert reproduce.names() == sorted(reproduce.names())
    for experiment in reproduce.EXPERIMENTS.values():
        for (setting, method), numbers in experiment.paper.items():
            assert setting in experiment.settings
            assert method in experiment.methods
            assert set(numbers) <= set(experiment.metrics)


@pytest.mark.parametrize("name", reproduce.names())
def test_every_grid_fits_its_estimator(name):
    for method in reproduce.EXPERIMENTS[name].methods.values():
        if method is not None:
            for fast in (False, True):
                candidates = method.candidates(fast)
                json.dumps(candidates)
                for candidate in ParameterGrid(candidates):
                    clone(method.estimator(0, fast)).set_params(**candidate)


def test_clustering_methods_are_told_the_number_of_classes_or_not():
    X, y = reproduce.bmc.clustering_data("Iris", FAST)
    assert (len(X), len(np.unique(y))) == (150, 3)
    np.testing.assert_allclose(X.std(0), 1, rtol=1e-6)
    found = {name: reproduce.bmc.clustering_cell("Iris", reproduce.bmc.METHODS[name], 0, FAST) for name in TOLD}
    assert found["k-means"]["clusters"] == found["nCut"]["clusters"] == 3
    assert found["limit"]["nmi"] > 0.5


@pytest.mark.slow
def test_a_posterior_as_a_clustering():
    X, _ = reproduce.bmc.clustering_data("Half-circles", FAST)
    margin = PosteriorClustering("dpmmgm", num_tuning=10, num_warmup=5, num_samples=5, max_clusters=16, random_state=0)
    assert margin.fit_predict(X).shape == (200,)
    assert min(margin.cost_, margin.ell_) > 0
    grown = PosteriorClustering("dpgmm", num_warmup=5, num_samples=5, max_clusters=2, random_state=0).fit(X)
    assert grown.max_clusters_ >= 4
    assert grown.draws_["z"].max() < grown.max_clusters_


@pytest.mark.parametrize(
    ("method", "least"),
    [
        (topic_clustering("mmctm", num_start=20), 80),
        pytest.param(topic_clustering("ctm", landmarks=False), 80, marks=pytest.mark.slow),
        (reproduce.topics.METHODS["SVM"], 80),
        (Method(lambda seed: reproduce.topics.SelfTrainedSVM()), 80),
        # Most of so few words are in most documents: what they weigh tells little.
        (reproduce.topics.METHODS["self-training SVM, tf-idf"], 65),
    ],
    ids=["mmctm", "no landmarks", "svm", "self-training", "self-training, tf-idf"],
)
def test_documents_with_a_few_labels(monkeypatch, method, least):
    small_corpus(monkeypatch)
    found = reproduce.topics.documents_cell("R8, L=5", method, 0, FAST)
    assert found["accuracy"] > least
    assert found["training"] > least


def test_clusters_are_named_by_labelled_documents():
    clusters, known = np.array([2, 2, 2, 0, 0, 1, 1]), np.array([0, 0, -1, 1, -1, 1, 2])
    assert reproduce.topics._matched(clusters, known).tolist() == [1, 2, 0]


@pytest.mark.slow
def test_examples_in_docstrings():
    names = [f"regbayes.reproduce.{info.name}" for info in pkgutil.iter_modules(reproduce.__path__)]
    results = [doctest.testmod(importlib.import_module(name)) for name in ("regbayes.reproduce", *names)]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 5


QUICK = ["Linear-SVM", "MNL"]


def test_parkinsons_end_to_end(tmp_path):
    parkinsons(tmp_path)
    options = Options(fast=True, data_home=str(tmp_path))
    text = run_experiment("m2dpm-table4", m2dpm.TABLE4, tmp_path, num_seeds=1, options=options, methods=QUICK)
    record = json.loads((tmp_path / "m2dpm-table4.json").read_text())
    assert [(cell["setting"], cell["method"]) for cell in record["cells"]] == [
        (setting, method) for setting in ("by recording", "by speaker") for method in QUICK
    ]
    for cell in record["cells"]:
        assert len(cell["result"]["folds"]) == 5
        assert cell["result"]["accuracy"] > 80
    rows = [line.split() for line in text.splitlines()]
    assert any(row[:5] == ["by", "recording", "Linear-SVM", "87.2", "(2.3)"] for row in rows)


def test_without_speakers_only_recordings_are_split(tmp_path):
    parkinsons(tmp_path, subjects=False)
    found = m2dpm.parkinsons_cell("by speaker", m2dpm.TABLE4.methods["MNL"], 0, Options(True, str(tmp_path)))
    assert "does not tell the speakers" in found["skipped"]


def test_protein_folds_use_the_official_split(tmp_path):
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(1, 28), 10)
    X = rng.normal(size=(270, 21)) + 3 * np.eye(27, 21)[y - 1]
    train = np.arange(270) < 162
    domain = np.arange(270) % 2 == 0
    X[domain & ~train] = rng.normal(size=(54, 21))  # nothing tells their fold
    ids = np.where(domain, "1ABCA1", "1ABCA")
    np.savez(tmp_path / "protein_fold_dd.npz", X=X, y=y, train=train, protein_id=ids)
    options = Options(fast=True, data_home=str(tmp_path))
    found = m2dpm.protein_cell("official split", m2dpm.TABLE4.methods["MNL"], 0, options)
    assert found["rows"] == [162, 108]
    assert found["accuracy"] <= found["best"] <= 100
    assert found["accuracy"] == pytest.approx((found["chains"] + found["domains"]) / 2)
    assert found["domains"] < 20
    assert found["chains"] > 40
    np.savez(tmp_path / "protein_fold_dd.npz", X=X, y=y, train=train)
    assert "domains" not in m2dpm.protein_cell("official split", m2dpm.TABLE4.methods["MNL"], 0, options)
    np.savez(tmp_path / "protein_fold_dd.npz", X=X, y=y)
    with pytest.raises(ValueError, match="must tell the official training part"):
        m2dpm.protein_cell("official split", m2dpm.TABLE4.methods["MNL"], 0, options)


def test_domains_of_the_real_protein_folds_are_mixed_up(real_file):
    """What docs/reproduction.md says of the public copies."""
    data = real_file("protein-fold")
    domain = m2dpm.names_domain(data.protein_id)
    same = (data.X[~data.train, None] == data.X[data.train]).all(2)
    other_fold = same & (data.y[~data.train, None] != data.y[data.train])
    mistaken = other_fold.any(1)
    assert (same.any(1).sum(), mistaken.sum(), domain[~data.train].sum()) == (49, 6, 182)
    assert domain[~data.train][mistaken].all()
    pairs = np.argwhere(other_fold)
    named = {(data.protein_id[~data.train][i], data.protein_id[data.train][j]) for i, j in pairs}
    assert {("3RUBL1", "3RUB1"), ("3RUBL2", "3RUB2"), ("2NACA1", "2NADA1")} <= named
    immunoglobulin = data.protein_id.tolist().index("1CDG_1")
    assert data.class_names[data.y[immunoglobulin]].startswith("7 IMMUNOGLOBULIN")
    assert data.X[immunoglobulin, -1] == 400


def test_synthetic_settings_have_the_bayes_classifier(tmp_path):
    options = Options(fast=True)
    best = m2dpm.synthetic_cell("Setting II", None, 0, options)
    found = m2dpm.synthetic_cell("Setting II", m2dpm.TABLE4.methods["MNL"], 0, options)
    assert set(best) == {"accuracy"}
    assert best["accuracy"] > found["accuracy"] + 5


def test_clusters_are_counted_side_by_side():
    found = m2dpm.clusters_cell("n0=300", m2dpm.TABLE2.methods["M2DPM"], 0, FAST)
    z = datasets.make_m2dpm_dp(seed=0)[2].z[:300]
    assert found["true"] == len(np.unique(z))
    assert abs(found["found"] - found["true"]) <= 1
    assert found["close"] == 100


def test_the_tables_methods_beat_a_line_on_many_clusters():
    scores = {}
    for name in ("Linear-SVM", "DP-means+SVM", "M2DPM"):
        scores[name] = m2dpm.synthetic_cell("Setting II", m2dpm.TABLE1.methods[name], 0, FAST)["accuracy"]
    assert min(scores["DP-means+SVM"], scores["M2DPM"]) > scores["Linear-SVM"] + 5


# ----- The command


def test_the_command_lists_the_tables(capsys):
    assert cli.main(["reproduce"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[2 : 2 + len(reproduce.names())]] == reproduce.names()


def test_the_command_runs_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(reproduce.EXPERIMENTS, "tiny", tiny())
    arguments = ["reproduce", "tiny", "--seeds", "2", "--fast", "--out", str(tmp_path), "--n-jobs", "1"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("tiny: a small table\n")
    assert str(tmp_path / "tiny.json") in out
    assert "[8/8]" in err
    assert cli.main(arguments) == 0
    assert "8 of 8 cells are in" in capsys.readouterr().err
    assert cli.main([*arguments[:4], *arguments[5:]]) == 2
    assert "other settings (fast, folds)" in capsys.readouterr().err


def test_an_interruption_ends_the_command_with_130(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(reproduce.EXPERIMENTS, "tiny", tiny(fail_at=3))
    assert cli.main(["reproduce", "tiny", "--out", str(tmp_path)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "tiny.json").read_text())["cells"]) == 3


def test_missing_data_end_the_command_with_advice(tmp_path, capsys):
    assert cli.main(["reproduce", "m2dpm-table3", "--data-home", str(tmp_path), "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"needs the file protein_fold_dd.npz, which is not in {tmp_path}" in err
    assert "Traceback" not in err


# ----- The page of all tables

RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "results"


def test_the_page_is_made_of_the_files(capsys):
    """Its numbers are never typed: `make pages`."""
    assert cli.main(["reproduce", "--page", "--out", str(RESULTS)]) == 0
    assert capsys.readouterr().out == (RESULTS.parent / "reproduction.md").read_text()


@pytest.mark.parametrize("setting", ["n0=100", "n0=1,000"])
def test_a_small_table_comes_out_as_it_is_kept(setting):
    kept = json.loads((RESULTS / "m2dpm-table2.json").read_text())["cells"]
    (cell,) = [cell["result"] for cell in kept if (cell["setting"], cell["seed"]) == (setting, 0)]
    found = m2dpm.clusters_cell(setting, m2dpm.TABLE2.methods["M2DPM"], 0, Options())
    assert {key: found[key] for key in ("true", "found", "close")} == {
        key: cell[key] for key in ("true", "found", "close")
    }


def test_a_page_tells_agreement_in_standard_errors(tmp_path):
    metrics = {"score": Metric("score", 1), "limit": Metric("limit", 0, own=True), "other": Metric("other", 0)}
    spreads = {"same": 0.2, "more": 0.2, "still": 0.0}
    paper = {("one", name): {"score": (1.0, spread)} for name, spread in spreads.items()}
    methods = {name: Method(lambda seed: LogisticRegression()) for name in ("same", "more", "still", "new")}
    scores = {"same": 1.1, "more": 9.0, "still": 2.0, "new": 3.0}

    def cell(setting, method, seed, options):
        (name,) = [name for name in methods if methods[name] is method]
        return {"score": scores[name] + (1e-15 if name == "still" else 0.2) * seed, "limit": 10, "other": 20}

    table = Experiment("a score", ("now", "now"), ("one",), methods, metrics, cell, paper, num_seeds=(2, 1))
    run_experiment("scores", table, tmp_path, progress=lambda line: None)
    page = reproduce.reproduction_page({"scores": table, "other": table}, tmp_path)
    assert "| one | same | score | 1.0 (0.2) | 1.2 (0.1) | +1.1 | agrees |" in page
    assert "| one | more | score | 1.0 (0.2) | 9.1 (0.1) | +46.1 | higher |" in page
    assert "| one | still | score | 1.0 (0.0) | 2.0 (0.0) | - | higher |" in page  # no spread but of rounding
    assert "| one | same | limit | - | 10 (0) | - | - |" in page
    assert "| one | same | other |" not in page
    assert "| one | new | score | - | 3.1 (0.1) | - | - |" in page
    assert "8 of 8 cells (2 seeds) have been run" in page
    assert "## Not run yet\n\n- `other`: a score" in page
    (tmp_path / "scores.json").write_text("{}")
    with pytest.raises(OtherSettings, match="is not the file of a table; run `regbayes reproduce scores` again"):
        reproduce.reproduction_page({"scores": table}, tmp_path)
