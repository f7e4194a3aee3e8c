"""What the programs refuse, with which words, and that nothing was compiled before; what odd inputs they take."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer.util
import pytest
from jax import random
from numpyro.handlers import seed
from numpyro.infer import MCMC, NUTS

from regbayes import zoo
from regbayes.inference import Augmented, EllipticalSlice, MoveKernel
from regbayes.models.laws.arguments import check_features, check_labels, check_positive, check_targets, is_concrete

X = np.random.default_rng(0).integers(-3, 4, size=(6, 2)).astype(np.float32)
Y = {
    "svm": np.array([0, 1, 1, 0, 1, 0]),
    "multiclass-svm": np.array([0, 1, 2, 2, 1, 0]),
    "svr": np.array([0, 2, -1, 1, 3, 1], np.float32),
    "isvm": np.array([0, 1, 1, 0, 1, 0]),
    "dpmnl": np.array([0, 1, 1, 0, 1, 0]),
    "medlda": np.array([0, 1, 1, 0, 1, 0]),
    "ilsvm": np.array([0, 1, 1, 0, 1, 0]),
    "medlda-regression": np.array([0, 2, -1, 1, 3, 1], np.float32),
}
KERNELS = [(name, kernel) for name in zoo for kernel in zoo[name].kernels]
LINEAR = ["svm", "multiclass-svm", "svr"]
LABELLED = ["svm", "multiclass-svm", "isvm", "dpmnl", "medlda", "ilsvm"]
REGRESSION = ["svr", "medlda-regression"]
DOCUMENTS = ["ctm", "mmctm", "medlda", "medlda-regression"]
CLUSTERED = ["ctm", "mmctm"]
FEATURES = ["ibp", "ilsvm", "mt-ilsvm"]
MARGIN = [
    "svm", "multiclass-svm", "svr", "isvm", "dpmmgm", "mmctm", "medlda", "medlda-regression", "ilsvm", "mt-ilsvm",
]  # fmt: skip
MIXTURES = ["isvm", "dpmnl", "dpgmm", "dpmmgm"]
WEIGHTED = [name for name in zoo if name not in ("dpgmm", "ctm", "ibp")]  # the others have weights with a prior


def changed(array, value, index=(1, 0)):
    array = np.array(array, dtype=np.result_type(array, value))
    array[index[: array.ndim]] = value
    return array


# What goes wrong -> (models or None for all, arguments that replace the good ones, words of the message).
BAD = {
    "X with NaN": (None, {"X": changed(X, np.nan)}, ["X", "finite", "nan", "(1, 0)"]),
    "X with infinity": (None, {"X": changed(X, -np.inf)}, ["X", "finite", "-inf", "(1, 0)"]),
    "X 1-D": (None, {"X": X[:, 0]}, ["X", "(n, d)", "(6,)"]),
    "X 3-D": (None, {"X": X[None]}, ["X", "(n, d)", "(1, 6, 2)"]),
    "X without rows": (None, {"X": X[:0], "y": np.array([], int)}, ["X", "at least one row", "(0, 2)"]),
    "X without columns": (None, {"X": X[:, :0]}, ["X", "at least one row and one column", "(6, 0)"]),
    "X of strings": (None, {"X": X.astype(str)}, ["X", "real numbers", "dtype"]),
    "X of objects": (None, {"X": X.astype(object)}, ["X", "real numbers", "object"]),
    "X complex": (None, {"X": X.astype(complex)}, ["X", "real numbers", "complex"]),
    "y too short": (list(Y), {"y": [0, 1, 1]}, ["y", "(6,)", "(3,)"]),
    "y a column": (list(Y), {"y": np.zeros((6, 1), int)}, ["y", "(6,)", "(6, 1)"]),
    "y with NaN": (REGRESSION, {"y": changed(Y["svr"], np.nan)}, ["y", "finite", "nan", "(1,)"]),
    "y with infinity": (REGRESSION, {"y": changed(Y["svr"], np.inf)}, ["y", "finite", "inf", "(1,)"]),
    "y of strings": (REGRESSION, {"y": np.array(list("abcdef"))}, ["y", "real numbers", "dtype"]),
    "labels -1 and 1": (["svm"], {"y": 2 * Y["svm"] - 1}, ["y", "0..1", "-1, 1"]),
    "labels 1 and 2": (["svm"], {"y": Y["svm"] + 1}, ["y", "0..1", "1, 2"]),
    "three labels for two": (["svm"], {"y": Y["multiclass-svm"]}, ["y", "0..1", "0, 1, 2"]),
    "labels from -1": (["multiclass-svm"], {"y": Y["multiclass-svm"] - 1}, ["y", "0..L-1", "-1, 0, 1"]),
    "labels from 1": (["multiclass-svm"], {"y": Y["multiclass-svm"] + 1}, ["y", "each class", "1, 2, 3"]),
    "labels from 1 to 2": (["isvm", "dpmnl", "medlda", "ilsvm"], {"y": Y["isvm"] + 1}, ["y", "each class", "1, 2"]),
    "no slots": (MIXTURES, {"max_clusters": 0}, ["max_clusters", "positive integer", "0"]),
    "no room for features": (FEATURES, {"max_features": 0}, ["max_features", "positive integer", "0"]),
    "noise negative": (FEATURES, {"noise_scale": -1.0}, ["noise_scale", "positive", "-1.0"]),
    "loadings of no size": (FEATURES, {"feature_scale": 0.0}, ["feature_scale", "positive", "0.0"]),
    "tasks of floats": (["mt-ilsvm"], {"y": Y["svm"] * 1.0}, ["y", "integer", "float64"]),
    "concentration 0": ([*MIXTURES, *FEATURES], {"concentration": 0.0}, ["concentration", "positive", "0.0"]),
    "variance -1": (["isvm"], {"variance": -1.0}, ["variance", "positive", "-1.0"]),
    "another likelihood": (["isvm"], {"likelihood": "cauchy"}, ["likelihood", "gaussian", "cauchy"]),
    "inputs not binary": (["isvm"], {"likelihood": "bernoulli"}, ["likelihood", "zeros and ones", "(0, 0)"]),
    "inputs not counts": (["isvm"], {"likelihood": "poisson"}, ["likelihood", "counts", "-"]),
    "labels with a gap": (["multiclass-svm"], {"y": 2 * Y["multiclass-svm"]}, ["y", "0, 2, 4", "num_classes=5"]),
    "too few classes": (["multiclass-svm"], {"num_classes": 2}, ["y", "0..1", "0, 1, 2"]),
    "float labels": (LABELLED, {"y": Y["svm"] * 1.0}, ["y", "integer", "float64"]),
    "string labels": (LABELLED, {"y": np.array(list("abcabc"))}, ["y", "integer", "dtype"]),
    "a single class": (LABELLED, {"y": np.ones(6, int)}, ["y", "single class", "1"]),
    "a single datum": (LABELLED, {"X": abs(X[:1]), "y": [1]}, ["y", "single class", "1"]),
    "epsilon negative": (REGRESSION, {"epsilon": -0.1}, ["epsilon", "non-negative", "-0.1"]),
    "epsilon NaN": (REGRESSION, {"epsilon": np.nan}, ["epsilon", "finite", "nan"]),
    "negative counts": (DOCUMENTS, {"X": changed(abs(X), -2.0)}, ["X", "counts", "-2.0", "(1, 0)"]),
    "broken counts": (DOCUMENTS, {"X": changed(abs(X), 1.5)}, ["X", "counts", "1.5", "(1, 0)"]),
    "no words": (DOCUMENTS, {"X": 0 * X}, ["X", "word in some document", "6 documents"]),
    "no topics": (DOCUMENTS, {"num_topics": 0}, ["num_topics", "positive integer", "0"]),
    "topics without mass": (DOCUMENTS, {"beta": 0.0}, ["beta", "positive", "0.0"]),
    "clusters unknown": (CLUSTERED, {"num_clusters": None}, ["num_clusters", "landmarks", "None"]),
    "too many landmarks": (CLUSTERED, {"landmarks": [0, 1]}, ["landmarks", "(6,)", "(2,)"]),
    "landmarks beyond": (CLUSTERED, {"landmarks": [0, 1, 2, -1, -1, -1]}, ["landmarks", "0..1", "2"]),
    "landmarks below": (CLUSTERED, {"landmarks": [0, 1, -2, -1, -1, -1]}, ["landmarks", "0..1", "-2"]),
    "landmarks of one": (CLUSTERED, {"landmarks": [1, -1, 1, -1, -1, -1]}, ["landmarks", "every cluster", "cluster 0"]),
    "landmarks broken": (CLUSTERED, {"landmarks": [0.0, 1, -1, -1, -1, -1]}, ["landmarks", "integer", "float64"]),
    "cost a word": (MARGIN, {"cost": "high"}, ["cost", "number", "high"]),
}
for argument, models in {
    "cost": MARGIN,
    "prior_scale": WEIGHTED,
    "ell": [m for m in MARGIN if m not in REGRESSION],
}.items():
    for value in (0.0, -2.0, np.nan, np.inf):
        BAD[f"{argument} {value}"] = (models, {argument: value}, [argument, "positive", "finite", str(value)])

TABLE = [(name, case) for case, (models, _, _) in BAD.items() for name in models or zoo]


def inputs(name):
    return abs(X) if name in DOCUMENTS else X


def arguments(name, **changes):
    options = {"X": inputs(name), "y": Y.get(name), **({"num_clusters": 2} if name in CLUSTERED else {}), **changes}
    X_, y = options.pop("X"), options.pop("y")
    return ((X_, y) if name in Y or name == "mt-ilsvm" else (X_,)), options


def refuse(*args, **kwargs):
    raise AssertionError("went on with arguments that should have been refused")


@pytest.fixture
def _nothing_compiles(monkeypatch):
    """No fit, no first state and no sweep, the things that compile, may be reached."""
    monkeypatch.setattr(MoveKernel, "_init_one", refuse)
    monkeypatch.setattr(MoveKernel, "_sweep", refuse)
    monkeypatch.setattr(numpyro.infer.util, "find_valid_initial_params", refuse)


def call(name, args, options):
    seed(zoo[name].program, 0)(*args, **options)


def init(kernel, name, args, options):
    zoo[name].kernels[kernel]().init(random.key(0), 0, None, args, options)


def nuts(name, args, options):
    mcmc = MCMC(NUTS(zoo[name].program), num_warmup=1, num_samples=1, progress_bar=False)
    mcmc.run(random.key(0), *args, **options)


@pytest.mark.usefixtures("_nothing_compiles")
@pytest.mark.parametrize(("name", "case"), TABLE)
def test_bad_arguments_are_refused_by_name_before_anything_compiles(name, case):
    _, changes, words = BAD[case]
    args, options = arguments(name, **changes)
    ways = [call, nuts, *(functools.partial(init, kernel) for kernel in zoo[name].kernels)]
    messages = []
    for way in ways:
        with pytest.raises(ValueError, match=rf"\b{words[0]}\b") as error:
            way(name, args, options)
        messages.append(str(error.value))
    assert [word for word in words if word not in messages[0]] == []
    assert set(messages) == {messages[0]}  # the same words whatever the way in


@pytest.mark.usefixtures("_nothing_compiles")
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_good_arguments_do_go_on(name, kernel):
    args, options = arguments(name)
    call(name, args, options)
    for way in (*([nuts] if name in LINEAR else []), functools.partial(init, kernel)):  # labels are not for NUTS
        with pytest.raises(AssertionError, match="went on"):
            way(name, args, options)


@pytest.mark.parametrize("name", zoo)
def test_bad_inputs_are_refused_in_prediction_too(name):
    options = {"num_classes": 3} if name in ("multiclass-svm", "medlda") else {}
    options |= {"num_clusters": 3} if name in CLUSTERED else {}
    predict = seed(zoo[name].program, 0)
    with pytest.raises(ValueError, match="X must be finite, found nan"):
        predict(changed(X, np.nan), **options)
    if name in WEIGHTED:
        with pytest.raises(ValueError, match=r"prior_scale must be positive and finite, found 0\.0"):
            predict(inputs(name), prior_scale=0.0, **options)


def test_prediction_of_several_classes_needs_their_number():
    with pytest.raises(ValueError, match="num_classes must be given"):
        seed(zoo["multiclass-svm"].program, 0)(X)


@pytest.mark.parametrize("y", [None, Y["multiclass-svm"]], ids=["prediction", "posterior"])
@pytest.mark.parametrize("num_classes", [-1, 0, 1, 3.5, "3"], ids=repr)
def test_a_useless_number_of_classes_is_refused_by_name(num_classes, y):
    with pytest.raises(ValueError, match=rf"num_classes .*found '?{num_classes}"):
        seed(zoo["multiclass-svm"].program, 0)(X, y, num_classes=num_classes)


# ----- Odd inputs that are right


def laws(name, kernel, X, y):
    """The program's log density, and what the kernel's moves draw from: conditionals, fits."""
    kernel = zoo[name].kernels[kernel]()
    target, classes = kernel.target((X, y), {}), () if name != "multiclass-svm" else (len(np.unique(y)),)
    z = {"eta": jnp.linspace(-1, 1, 2 * math.prod(classes)).reshape(*classes, 2)}

    def run():
        found = {"program": target.log_joint(z)}
        for move in kernel.moves:
            if isinstance(move, Augmented):
                k = (1,) if move.rows else ()
                omega = target.call(move.augmentation, *k, z)
                law = target.call(move.conditional, *k, omega.mean, z)
                found |= {"omega": omega.mean, "linear": law.linear, "precision": law.precision}
            elif isinstance(move, EllipticalSlice):
                found["mean"], found["root"] = target.call(move.fit, z)
        return found

    return jax.tree.map(np.asarray, jax.jit(run)())


@functools.cache
def plain_laws(name, kernel, labels):
    return laws(name, kernel, X, plain(name, labels))


def plain(name, labels):
    return Y[name] % 2 if labels == "two" else Y[name]


ODD = {
    "integer X": ("as they are", lambda X, y: (X.astype(np.int8), y)),
    "unsigned y": ("two", lambda X, y: (X, y.astype(np.uint8))),
    "double precision X, boolean y": ("two", lambda X, y: (X.astype(np.float64), y.astype(bool))),
    "lists": ("as they are", lambda X, y: (X.tolist(), y.tolist())),
}


@pytest.mark.parametrize(
    ("name", "kernel", "odd"), [(*case, odd) for case in KERNELS if case[0] in LINEAR for odd in ODD]
)
def test_odd_but_right_inputs_mean_the_same_as_plain_ones(name, kernel, odd):
    labels, convert = ODD[odd]
    found, wanted = laws(name, kernel, *convert(X, plain(name, labels))), plain_laws(name, kernel, labels)
    assert {"program", "omega"} <= set(found) or {"program", "mean"} <= set(found)
    assert {value.dtype for value in found.values()} == {np.dtype(np.float32)}
    for key, value in found.items():
        np.testing.assert_allclose(value, wanted[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("kernel", zoo["svr"].kernels)
def test_regression_works_with_one_datum(kernel):
    mcmc = MCMC(zoo["svr"].kernels[kernel](), num_warmup=1, num_samples=2, progress_bar=False)
    mcmc.run(random.key(0), X[:1], Y["svr"][:1])
    assert np.isfinite(mcmc.get_samples()["eta"]).all()


def test_classes_may_be_missing_when_their_number_is_given():
    y, num_classes = check_labels(np.array([0, 3, 3]), 3, num_classes=5)
    assert num_classes == 5
    np.testing.assert_array_equal(y, [0, 3, 3])
    log_density = functools.partial(numpyro.infer.util.log_density, zoo["multiclass-svm"].program)
    eta = np.zeros((5, 2))
    assert np.isfinite(log_density((X[:3], np.array([0, 3, 3])), {"num_classes": 5}, {"eta": eta})[0])


# ----- The checks themselves


def test_features_keep_their_values_and_gain_an_intercept():
    with jax.enable_x64(True):
        for array in (X, X.astype(int), X.astype(np.float64), X.tolist(), jnp.asarray(X)):
            found = check_features(array)
            assert jnp.issubdtype(found.dtype, jnp.floating)
            np.testing.assert_array_equal(found, X)
            np.testing.assert_array_equal(check_features(array, intercept=True), np.c_[X, np.ones(6)])
        assert check_features(X).dtype == jnp.float32
        assert check_features(X.astype(int)).dtype == jnp.float64


def test_labels_and_targets_are_converted():
    for y in (np.array([0, 1, 1]), [0, 1, 1], np.array([False, True, True]), np.array([0, 1, 1], np.uint8)):
        labels, num_classes = check_labels(y, 3)
        assert (labels.tolist(), labels.dtype, num_classes) == ([0, 1, 1], jnp.int32, 2)
        targets = check_targets(y, 3)
        assert (targets.tolist(), targets.dtype) == ([0, 1, 1], jnp.float32)


def test_traced_values_pass_and_traced_labels_need_their_number_of_classes():
    @jax.jit
    def run(X, y, cost):
        assert not is_concrete(cost)
        check_positive(cost=cost)
        labels, num_classes = check_labels(y, 6, num_classes=4)
        assert num_classes == 4
        with pytest.raises(ValueError, match="give num_classes"):
            check_labels(y, 6)
        with pytest.raises(ValueError, match=re.escape("y must have shape (7,)")):
            check_targets(cost * X[:, 0], 7)
        return check_features(X, intercept=True), labels

    features, labels = run(X, Y["svm"], -1.0)
    assert features.shape == (6, 3)
    np.testing.assert_array_equal(labels, Y["svm"])


def test_zero_is_refused_only_where_the_check_is_strict():
    check_positive(strict=False, epsilon=0.0)
    check_positive(cost=np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"cost must be positive and finite, found -3\.0"):
        check_positive(cost=np.array([1.0, -3.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 2.0], [1.0]], [0, 1]), "X must be a rectangular array"),
        ((np.full((2, 2), 1e300), [0, 1]), "X must be finite, found inf"),
    ],
)
def test_arrays_that_jax_cannot_hold_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        seed(zoo["svm"].program, 0)(*arguments)


def test_a_number_must_be_one():
    with pytest.raises(ValueError, match="cost must be a number, found '1'"):
        seed(zoo["svm"].program, 0)(X, Y["svm"], cost="1")


def test_half_precision_is_widened():
    kernel = zoo["svm"].kernels["slice"]()
    state = kernel.init(random.key(0), 0, None, (X.astype(np.float16), Y["svm"]), {})
    assert state.z["eta"].dtype == np.float32
