"""``regbayes fit`` and ``regbayes plot``: files in, files out, and runs that are stopped on the way."""

import json

import numpy as np
import pytest
import scipy.sparse
import xarray as xr

import regbayes
from regbayes import datasets
from regbayes.cli import main
from regbayes.commands import data as reader
from regbayes.commands.common import UsageError
from regbayes.fitting import _scheme
from regbayes.inference.engine import loop

TINY = ["--num-samples", "6", "--num-warmup", "3", "--num-chains", "2"]


@pytest.fixture
def csv(tmp_path):
    """A file with two inputs and labels in words."""
    X, y, _ = datasets.make_svm(30, 2)
    lines = [f"{a},{b},{'yes' if k else 'no'}" for (a, b), k in zip(X, y, strict=True)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["width,height,kind", *lines, ""]))
    return path


def fit(*arguments):
    return main(["fit", *map(str, arguments)])


def open_tree(path):
    with xr.open_datatree(path) as dt:
        return dt.load()


def test_fit_then_plot(csv, tmp_path, capsys, recwarn):
    out = tmp_path / "fit.nc"
    assert fit("svm", "--data", csv, "--label", "kind", "--set", "cost=0.5", "--seed", 7, "--out", out, *TINY) == 0
    text, progress = capsys.readouterr()
    assert all(word in text for word in ("lp", "training_loss", "eta[1]", f"Written: {out}"))
    assert "Traceback" not in progress
    dt = open_tree(out)
    assert dict(dt["posterior"]["eta"].sizes) == {"chain": 2, "draw": 6, "weight": 2}
    assert (dt.attrs["argument_cost"], dt.attrs["seed"], dt.attrs["kernel"]) == (0.5, 7, "svm slice")
    assert dt.attrs["num_warmup"] == 3
    assert json.loads(dt.attrs["class_names"]) == ["no", "yes"]
    assert json.loads(dt.attrs["input_names"]) == ["width", "height"]
    assert not out.with_name("fit.nc.partial").exists()
    assert main(["plot", str(out), "--out", str(tmp_path / "plots")]) == 0
    text = capsys.readouterr().out
    names = ["decision.png", "posterior.png", "trace.png"]
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == names
    assert all(name in text for name in names)
    assert not recwarn.list


def test_the_recommended_kernel_draws_unless_another_is_named():
    for name in regbayes.zoo.names():
        entry = regbayes.zoo[name]
        assert _scheme(entry, None) == list(entry.kernels)[-1]
    assert _scheme(regbayes.zoo["svm"], "augmentation") == "augmentation"
    with pytest.raises(ValueError, match="kernel must be one of augmentation, slice, found 'nuts'"):
        regbayes.fit("svm", np.eye(2), np.arange(2), kernel="nuts")


def test_an_interrupted_run_goes_on(csv, tmp_path, capsys, monkeypatch):
    arguments = ["svm", "--data", csv, "--label", "kind", *TINY]
    assert fit(*arguments, "--out", tmp_path / "whole.nc") == 0
    stopped = tmp_path / "stopped.nc"
    original, left = loop._Run.chunk, iter(range(6))

    def chunk(run, sweeps):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return original(run, 1)

    with monkeypatch.context() as patch:
        patch.setattr(loop._Run, "chunk", chunk)
        assert fit(*arguments, "--out", stopped) == 130
    out, err = capsys.readouterr()
    assert "go on with --resume" in out
    assert "interrupted" in err
    assert not stopped.exists()
    assert fit(*arguments, "--out", stopped) == 2
    assert "go on with --resume, or remove it" in capsys.readouterr().err
    assert fit(*arguments, "--out", stopped, "--seed", 1, "--resume") == 2
    assert "had another seed; give the same" in capsys.readouterr().err
    rows = csv.read_text()
    csv.write_text(rows.replace("yes", "maybe").replace("no", "yes").replace("maybe", "no"))
    assert fit(*arguments, "--out", stopped, "--resume") == 2
    assert "had another data; give the same" in capsys.readouterr().err
    csv.write_text(rows)
    assert fit(*arguments, "--out", stopped, "--resume") == 0
    whole, parts = open_tree(tmp_path / "whole.nc"), open_tree(stopped)
    np.testing.assert_array_equal(whole["posterior"]["eta"], parts["posterior"]["eta"])
    np.testing.assert_array_equal(whole["sample_stats"]["lp"], parts["sample_stats"]["lp"])
    assert not stopped.with_name("stopped.nc.partial").exists()


def test_options_that_shape_the_program(tmp_path, capsys):
    X, y, _ = datasets.make_svm(20, 2)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    out = tmp_path / "fit.nc"
    settings = ["--set", "intercept=true", "--kernel", "augmentation"]
    assert fit("svm", "--data", tmp_path / "data.npz", "--out", out, *settings, *TINY) == 0
    dt = open_tree(out)
    assert dt["posterior"].sizes["weight"] == 3
    assert (dt.attrs["argument_intercept"], dt.attrs["kernel"], dt.attrs["program"]) == (1, "svm augmentation", "svm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["svn", "--data", "DATA"], "no model 'svn'"),
        (["svm"], "required: --data"),
        (["svm", "--data", "nowhere.csv"], "--data: no file 'nowhere.csv'"),
        (["svm", "--data", __file__], "must name a file that ends in .csv or .npz"),
        (["svm", "--data", "DATA"], "--label must name the label's column"),
        (["svm", "--data", "DATA", "--label", "sort"], "no column sort in"),
        (["svm", "--data", "DATA", "--label", "width"], "row 2 of"),
        (["svm", "--data", "DATA", "--label", "kind", "--kernel", "nuts"], "svm has augmentation, slice; found 'nuts'"),
        (["svm", "--data", "DATA", "--label", "kind", "--set", "price=1"], "with a name of svm: cost, ell, "),
        (["svm", "--data", "DATA", "--label", "kind", "--set", "cost"], "--set must be NAME=VALUE"),
        (["svm", "--data", "DATA", "--label", "kind", "--set", "cost=-1.0"], "cost"),
        (["svm", "--data", "DATA", "--label", "kind", "--out", "fit.txt"], "must name a file that ends in .nc"),
        (["svm", "--data", "DATA", "--label", "kind", "--out", "no/such/fit.nc"], "no folder 'no/such'"),
        (["svm", "--data", "DATA", "--num-chains", "0"], "must be a whole number from 1"),
    ],
)
def test_mistakes_are_told_before_any_work(arguments, message, csv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fit(*(csv if argument == "DATA" else argument for argument in arguments)) == 2
    _, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_full_buffer_is_told_with_what_to_do(tmp_path, capsys):
    X, _, _ = datasets.make_m2dpm_setting2(30, 2, 3)
    np.savez(tmp_path / "data.npz", X=X)
    small = ["--set", "max_clusters=2", "--set", "scatter=0.01", "--set", "concentration=50.0"]
    assert fit("dpgmm", "--data", tmp_path / "data.npz", "--out", tmp_path / "fit.nc", *small, *TINY) == 2
    assert "run again with --set max_clusters=N" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,y\n1,2\n", "row 2 of .* has 2 cells, the header 3"),
        ("a,b,y\n", "a header and at least one row"),
        ("y\n0\n1\n", "no column besides the label y"),
        ("a,y\n1,0\nx,1\n", "row 3 of .* has 'x' in the column 'a'"),
    ],
)
def test_tables_that_cannot_be_read(content, message, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read("svm", path)


def read(name, path, label=None, **settings):
    return reader.read(regbayes.zoo[name], path, label, settings)


def test_tables_by_kind_of_label(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,y\n1,2,10\n3,4,9\n5,6,10\n")
    (X, y), notes = read("svm", path)
    np.testing.assert_array_equal(X, [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(y, [1, 0, 1])  # numbers in their own order
    assert json.loads(notes["class_names"]) == ["9", "10"]
    np.testing.assert_array_equal(read("svr", path)[0][1], [10, 9, 10])
    assert [part.shape for part in read("dpgmm", path)[0]] == [(3, 2)]  # a label that no argument takes is left out
    (X, y), _ = read("mt-ilsvm", path, "b,y")
    assert (X.shape, y.shape, y.dtype) == ((3, 1), (3, 2), int)
    assert read("mt-ilsvm", path, "b,y", loss="epsilon-insensitive")[0][1].dtype == float
    with pytest.raises(UsageError, match="--label must name one column, which is y; found b,y"):
        read("svm", path, "b,y")
    path.write_text("a,b,landmarks\n1,0,x\n0,1,\n1,1,w\n")
    np.testing.assert_array_equal(read("ctm", path)[0][1], [1, -1, 0])


def test_arrays_and_sparse_counts(tmp_path):
    counts = scipy.sparse.csr_matrix(np.array([[2, 0, 1], [0, 1, 0]]))
    path = tmp_path / "counts.npz"
    scipy.sparse.save_npz(path, counts)
    (X,), _ = read("ctm", path)
    np.testing.assert_array_equal(X.toarray(), counts.toarray())
    parts = {"X_data": counts.data, "X_indices": counts.indices, "X_indptr": counts.indptr, "X_shape": counts.shape}
    np.savez(path, y=np.array([0, 1]), **parts)
    X, y = read("medlda", path)[0]
    np.testing.assert_array_equal(X.toarray(), counts.toarray())
    np.testing.assert_array_equal(y, [0, 1])
    np.savez(path, Z=np.zeros(2))
    with pytest.raises(UsageError, match=r"must hold the arrays X, y .*found Z"):
        read("medlda", path)
    np.savez(path, X=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="no npz of plain arrays"):
        read("svm", path)


def test_plot_says_what_is_wrong(tmp_path, capsys):
    assert main(["plot", str(tmp_path / "fit.nc")]) == 2
    assert "`regbayes fit` writes one" in capsys.readouterr().err
    (tmp_path / "fit.nc").write_text("nothing")
    assert main(["plot", str(tmp_path / "fit.nc")]) == 2
    assert "is no netCDF file" in capsys.readouterr().err
    xr.DataTree.from_dict({"other": xr.Dataset({"a": 1})}).to_netcdf(tmp_path / "fit.nc")
    assert main(["plot", str(tmp_path / "fit.nc")]) == 2
    assert "is not by `regbayes fit`: it has groups other" in capsys.readouterr().err
