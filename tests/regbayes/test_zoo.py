"""One table runs the whole zoo: every program, kernel and limit keeps the same contract."""

import ast
import inspect
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax import lax, random
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import log_density

import regbayes
from regbayes.diagnostics import conformance, summary, to_datatree
from regbayes.inference import load_state, save_state
from regbayes.inference.engine import compiled, loop
from regbayes.inference.engine.compiled import likeness
from regbayes.inference.engine.target import outline
from regbayes.zoo import Card

NAMES = regbayes.zoo.names()
KERNELS = [(name, kernel) for name in NAMES for kernel in regbayes.zoo[name].kernels]


CHAINS = {"num_samples": 20, "num_warmup": 0, "chain_method": "vectorized", "progress_bar": False}


def run(name, kernel, *, num_chains=2, mcmc=None, key=0, **settings):
    entry = regbayes.zoo[name]
    args, kwargs = entry.example()
    mcmc = mcmc or MCMC(entry.kernels[kernel](), num_chains=num_chains, **{**CHAINS, **settings})
    key = random.key(key) if isinstance(key, int) else key
    mcmc.run(key, *args, extra_fields=("log_joint",), **kwargs)
    return mcmc


def hyper_parameter(name):
    """One that the example leaves at its default."""
    parameters = inspect.signature(regbayes.zoo[name].program).parameters
    return next(hyper for hyper in ("prior_scale", "prior_count", "alpha", "feature_scale") if hyper in parameters)


def example(name, seed=0, **hyper):
    """Arguments that all tests of a kernel compile for, hyper-parameters among them."""
    args, kwargs = regbayes.zoo[name].example(seed=seed)
    default = inspect.signature(regbayes.zoo[name].program).parameters[hyper_parameter(name)].default
    return args, {**kwargs, hyper_parameter(name): hyper.get(hyper_parameter(name), default)}


def started(sampler, args, kwargs):
    """Two chains."""
    return sampler.init(random.split(random.key(0), 2), 0, None, args, kwargs)


def swept(sampler, state, args, kwargs, num=1):
    """After so many sweeps, by the code of the loop that draws."""
    return sampler.draws(sampler.arguments(args, kwargs), loop.MOST_DRAWS, state, num, 1)[0]


def test_the_catalogue_is_a_mapping():
    assert list(regbayes.zoo) == NAMES == list(regbayes.zoo.keys())
    assert len(regbayes.zoo) == len(NAMES)
    assert "svm" in regbayes.zoo
    with pytest.raises(KeyError, match=r"no model 'svn'.*svm"):
        regbayes.zoo["svn"]


@pytest.mark.parametrize("name", NAMES)
def test_card_is_complete(name):
    entry = regbayes.zoo[name]
    assert entry.name == name
    assert entry.task
    assert entry.title
    assert entry.paper
    assert inspect.getdoc(entry.program)
    args, kwargs = entry.example(seed=1)
    assert outline(entry.program, args, kwargs)
    again, _ = entry.example(seed=1)
    other, _ = entry.example(seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(args, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(args, other, strict=True))


LIMITS = {
    "svm": "EMSVC",
    "multiclass-svm": "EMSVC",
    "svr": "EMSVR",
    "isvm": "M2DPM",
    "dpmmgm": "MaxMarginDPMeans",
    "mmctm": "MaxMarginTopicMeans",
    "medlda": "MedLDAMeans",
    "medlda-regression": "MedLDAMeans",
    "ibp": "LatentFeatureMeans",
    "ilsvm": "MaxMarginFeatureMeans",
}
LEARNERS = {
    "isvm": "InfiniteSVM",
    "medlda": "MedLDA",
    "medlda-regression": "MedLDA",
    "ilsvm": "ILSVM",
    "mt-ilsvm": "MTILSVM",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_its_own_limit_and_learner(name):
    entry = regbayes.zoo[name]
    assert getattr(entry.limit, "__name__", None) == LIMITS.get(name)
    assert getattr(entry.learner, "__name__", None) == LEARNERS.get(name)


@pytest.mark.parametrize("name", NAMES)
def test_axes_are_named_at_the_site(name):
    sites = outline(regbayes.zoo[name].program, *regbayes.zoo[name].example())
    for site in (s for s in sites.values() if s["type"] == "sample" and not s["is_observed"]):
        assert len(site["infer"].get("event_dims", ())) == site["value"].ndim
        assert ("labels" in site["infer"]) == (site["value"].dtype.kind == "i" and site["value"].ndim == 1)


@pytest.mark.parametrize("name", NAMES)
def test_settings_suit_the_scale_of_data(name):
    """The program takes them, and they grow with the data as their letters in the program do."""
    card = regbayes.zoo[name]
    args, kwargs = card.example()

    def log_probs():
        sites = trace(seed(card.program, 0)).get_trace(*args, **{**kwargs, **card.settings(*args)})
        return [site["fn"].log_prob(site["value"]) for site in sites.values() if "fn" in site]

    assert all(np.isfinite(values).all() for values in jax.jit(log_probs)())
    scales = {key: value for key, value in card.settings(*args).items() if key != "prior_mean"}
    wide = card.settings(*(10 * np.asarray(a) if np.asarray(a).dtype.kind == "f" else a for a in args))
    powers = {"scatter": 2, "variance": 2, "variance_scale": 2, "noise_scale": 1, "feature_scale": 1, "epsilon": 1}
    powers |= {"cost": -1, "prior_scale": {"numbers": int(np.asarray(args[0]).dtype.kind != "f")}.get(card.task, -1)}
    for key, value in scales.items():
        np.testing.assert_allclose(wide[key], value * 10.0 ** powers[key], rtol=1e-6)


def test_settings_leave_the_partition_its_posterior():
    card = regbayes.zoo["dpgmm"]
    with jax.enable_x64(True):
        (X,), _ = card.example()
        X = np.asarray(X, np.float64)
        labels = jnp.stack([jnp.arange(len(X)) % k for k in (2, 3)])

        def log_densities(Y):
            run = jax.jit(
                lambda z: lax.map(lambda z: log_density(card.program, (Y,), card.settings(Y), {"z": z})[0], z)
            )
            return run(labels)

        found = [np.diff(log_densities(Y)) for Y in (X, 1000 * X + 5000)]
    np.testing.assert_allclose(*found, rtol=1e-6)


def card(**changes):
    svm = regbayes.zoo["svm"]
    needed = {key: getattr(svm, key) for key in ("name", "title", "program", "example", "kernels")}
    return Card(**{**needed, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "two words"}, "name must be a word without blanks, found 'two words'"),
        ({"program": None}, "program and example of svm must be functions"),
        ({"kernels": {}}, "kernels of svm must name at least one factory"),
        ({"task": "ranking"}, "task of svm must be one of classes, numbers, clusters, features; found 'ranking'"),
        ({"labels": "words"}, "labels of svm must be one of classes, numbers, landmarks; found 'words'"),
    ],
)
def test_a_card_says_what_is_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        card(**changes)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="the zoo has a model 'svm' already; give the card another name"):
        regbayes.zoo.add(card())
    with pytest.raises(ValueError, match=r"card must be a regbayes\.zoo\.Card, found 'svm'"):
        regbayes.zoo.add("svm")
    with pytest.raises(KeyError, match="no model 'svn'"):
        regbayes.zoo.remove("svn")


ROOMS = ("diagnostics", "inference/engine", "inference/moves", "models/laws", "regbayes")
KNOWN_ELSEWHERE = ("regbayes/zoo", "regbayes/reproduce")  # the cards, and the papers' tables


def named_in(tree):
    """Words of a file's code: names and texts, but neither docstrings nor imports."""
    skipped = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield from re.findall(r"[\w-]+", node.value)
        elif isinstance(node, ast.Name | ast.Attribute | ast.arg | ast.keyword):
            yield getattr(node, "id", None) or getattr(node, "attr", None) or node.arg


def test_no_code_decides_by_a_model_s_name():
    programs = {regbayes.zoo[name].program.__name__ for name in NAMES}
    models = {*NAMES, *programs} - {"svm"}  # the demonstration's
    root = pathlib.Path(__file__).parents[2]
    files = [path for room in ROOMS for path in (root / room).rglob("*.py")]
    assert len(files) > 40
    for path in files:
        if not any(path.is_relative_to(root / room) for room in KNOWN_ELSEWHERE):
            assert not models & set(named_in(ast.parse(path.read_text()))), path


def unlike_defaults(program):
    """Numbers for all hyper-parameters, so that none is 1, or taken for another."""
    defaults = {key: p.default for key, p in inspect.signature(program).parameters.items()}
    numbers = [key for key, value in defaults.items() if isinstance(value, float)]
    return {key: (defaults[key] or 0.1) * (1.1 + 0.07 * i) for i, key in enumerate(numbers)}


# One kernel after the other, while its compiled code is there.
OF_A_KERNEL = pytest.mark.parametrize(("name", "kernel"), KERNELS, scope="module")


@OF_A_KERNEL
def test_every_move_conforms_to_the_program(name, kernel):
    entry = regbayes.zoo[name]
    args, kwargs = entry.example()
    report = conformance(entry.kernels[kernel](), *args, seed=3, **{**unlike_defaults(entry.program), **kwargs})
    assert report.max_error <= 1e-8
    assert report.ok


@OF_A_KERNEL
def test_kernel_keeps_the_contract(name, kernel):
    entry = regbayes.zoo[name]
    sampler = entry.kernels[kernel]()
    assert sampler.model is entry.program
    assert isinstance(sampler, MCMCKernel)
    state = started(sampler, *example(name))
    assert {"z", "rng_key", "log_joint", "num_active", "overflow"} <= set(state._fields)
    latent = {k for k, s in outline(entry.program, *entry.example()).items() if not s["is_observed"]}
    assert set(state.z) == latent  # augmentation variables do not outlive a move

    state = swept(sampler, state, *example(name))
    code = compiled._kept[likeness(sampler)]
    sizes = code.init._cache_size(), code.draws._cache_size()
    for i in range(3):
        arguments = example(name, seed=i, **{hyper_parameter(name): 0.5 + i})
        sampler = entry.kernels[kernel]()
        state = swept(sampler, started(sampler, *arguments), *arguments)
    # Compiled once for data of equal shapes, whatever the hyper-parameters.
    assert (code.init._cache_size(), code.draws._cache_size()) == sizes

    one = jax.tree.map(lambda leaf: leaf[0], state)
    refreshed = jax.jit(lambda one: sampler.refresh(one, *arguments))(one._replace(log_joint=jnp.zeros(())))
    assert float(one.log_joint) == pytest.approx(float(refreshed.log_joint), rel=1e-5)
    again = swept(sampler, jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), refreshed), *arguments)
    assert np.isfinite(again.log_joint).all()
    assert f"{float(one.log_joint):.2f}" in sampler.get_diagnostics_str(one)


@OF_A_KERNEL
def test_a_state_goes_on_from_a_file_bit_for_bit(name, kernel, tmp_path):
    arguments = example(name)
    first, second = (regbayes.zoo[name].kernels[kernel]() for _ in range(2))  # a new kernel, as after a restart
    state = swept(first, started(first, *arguments), *arguments, num=3)
    save_state(state, tmp_path / "chain.npz")
    started(second, *arguments)
    found = load_state(tmp_path / "chain.npz")
    assert jax.tree.structure(found) == jax.tree.structure(state)
    ends = [swept(sampler, at, *arguments, num=4) for sampler, at in ((first, state), (second, found))]
    assert np.any(ends[0].log_joint != state.log_joint)
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = random.key_data(one), random.key_data(other)
        np.testing.assert_array_equal(one, other)


BY_MCMC = [("svm", "slice", 1)]
RESUMED = [pytest.param(*both, 2, marks=pytest.mark.slow) for both in KERNELS] + BY_MCMC


@pytest.mark.parametrize(("name", "kernel", "num_chains"), RESUMED)
def test_a_chain_resumed_from_a_file_is_the_same_bit_for_bit(name, kernel, num_chains, tmp_path):
    whole = run(name, kernel, num_chains=num_chains).get_samples(group_by_chain=True)
    half = {**CHAINS, "num_samples": 10, "num_chains": num_chains}
    first = run(name, kernel, **half)
    save_state(first.last_state, tmp_path / "chain.npz")
    state = load_state(tmp_path / "chain.npz")
    assert jax.tree.structure(state) == jax.tree.structure(first.last_state)
    second = MCMC(regbayes.zoo[name].kernels[kernel](), **half)  # a new kernel, as after a restart
    second.post_warmup_state = state
    run(name, kernel, mcmc=second, key=state.rng_key)
    for site, draws in whole.items():
        both = [m.get_samples(group_by_chain=True)[site] for m in (first, second)]
        np.testing.assert_array_equal(draws, np.concatenate(both, axis=1))


@pytest.mark.parametrize(
    ("name", "kernel"), [(name, list(regbayes.zoo[name].kernels)[-1]) for name in NAMES], scope="module"
)
def test_conversion_to_arviz(name, kernel, tmp_path):
    args, kwargs = example(name)
    dt = regbayes.fit(name, *args, num_warmup=0, num_samples=20, num_chains=2, progress=False, **kwargs)
    check_tree(name, kernel, dt)
    check_axes(name, dt)
    check_file(dt, tmp_path / "fit.nc")


@pytest.mark.parametrize("name", ["svm", "isvm", "medlda"])
def test_conversion_of_mcmc_to_arviz(name):
    kernel = list(regbayes.zoo[name].kernels)[-1]
    check_tree(name, kernel, to_datatree(run(name, kernel), seed=0))


def check_tree(name, kernel, dt):
    assert dt["sample_stats"]["lp"].shape == (2, 20)
    parameters = inspect.signature(regbayes.zoo[name].program).parameters
    assert dt.attrs[f"argument_{hyper_parameter(name)}"] == parameters[hyper_parameter(name)].default
    assert dt.attrs["seed"] == 0
    assert "observed_data" not in dt.children  # a factor is not an observation
    assert set(dt["constant_data"].data_vars) == {"X", "y", "landmarks"} & set(parameters)
    assert dt.attrs["model"] == name
    assert dt.attrs["program"] == regbayes.zoo[name].program.__name__
    assert kernel in dt.attrs["kernel"]


def check_axes(name, dt):
    """Every axis has a name, and a summary lists no slots."""
    posterior = dt["posterior"].to_dataset()
    axes = [dim for group in ("posterior", "constant_data") for dim in dt[group].dims]
    assert not any("_dim_" in str(dim) for dim in axes), axes
    table = summary(dt)
    assert table.index[0] == "lp"
    assert len(table) < 15
    assert np.isfinite(table["mean"]).all()
    assert ("training_loss" in table.index) == (name not in ("dpgmm", "dpmnl", "ctm", "ibp"))
    hidden = {"cluster", "topic", "latent_feature", "feature_weight", "datum", "document", "token"}
    assert set(table.attrs["left_out"]) == {site for site in posterior if hidden & set(posterior[site].dims)}


def check_file(dt, path):
    """The way to a file and back keeps everything."""
    dt.to_netcdf(path)
    with xr.open_datatree(path) as found:
        assert found.identical(dt)
        assert found.attrs == dt.attrs
        assert found["posterior"].attrs == dt["posterior"].attrs


def test_a_saved_state_is_recognised(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match="not a saved state"):
        load_state(tmp_path / "other.npz")


def test_sweep_runs_under_scan_and_vmap():
    entry = regbayes.zoo["svm"]
    args, kwargs = entry.example()
    sampler = entry.kernels["slice"]()
    state = sampler.init(random.split(random.key(0), 3), 0, None, args, kwargs)
    state, draws = lax.scan(
        lambda s, _: (lambda new: (new, new.z["eta"]))(sampler.sample(s, args, kwargs)), state, None, length=4
    )
    assert draws.shape == (4, 3, 2)
    assert len(np.unique(draws[..., 0])) == 12


def test_truncated_draws_are_not_converted():
    mcmc = run("svm", "slice")
    mcmc._last_state = mcmc.last_state._replace(overflow=jnp.array(True))
    with pytest.raises(ValueError, match="buffer was full"):
        to_datatree(mcmc)


def test_a_new_start_sees_new_data():
    (given, y), _ = regbayes.zoo["svm"].example()
    buffer = np.empty(given.nbytes + 64, np.uint8)  # JAX reads where it lies what lies on a multiple of 64
    X = buffer[-buffer.ctypes.data % 64 :][: given.nbytes].view(given.dtype).reshape(given.shape)
    X[:] = given
    kernel, one = regbayes.zoo["svm"].kernels["slice"](), 2.0
    starts = [kernel.init(random.key(0), 0, None, (X, y), {"cost": one})]
    starts.append(kernel.init(random.key(0), 0, None, (X, y), {"ell": one}))
    X *= 3  # in place: the same object with other contents
    starts.append(kernel.init(random.key(0), 0, None, (X, y), {"ell": one}))
    assert len({float(state.log_joint) for state in starts}) == 3
    for state, data, hyper in zip(starts, (given, given, X), ({"cost": one}, {"ell": one}, {"ell": one}), strict=True):
        expected = kernel.target((data, y), hyper).log_joint(state.z)
        assert state.log_joint == pytest.approx(float(expected), rel=1e-5)
