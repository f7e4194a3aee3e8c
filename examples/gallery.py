"""One picture per model of the zoo, from short fits, into ``docs/gallery/``; `make gallery` runs it.

    python examples/gallery.py [NAME ...] [--out DIR]

Each fit takes seconds; most of the time goes into compilation.
"""

import argparse
import os
import pathlib

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import matplotlib.pyplot as plt
import numpy as np
from jax import random
from matplotlib.ticker import MaxNLocator
from numpyro.infer import MCMC
from PIL import Image

import regbayes
from regbayes import datasets, diagnostics

DPI = 72
NUM_DRAWS = 100


def data_of(name):
    """Data that show what the model is for, and hyper-parameters; the zoo's example where that does."""
    if name == "svm":
        return datasets.make_svm(120, 2, noise=0.5, seed=1)[:2], {}
    if name == "multiclass-svm":
        return datasets.make_multiclass_svm(120, 2, 3, seed=1)[:2], {}
    if name in ("isvm", "dpmnl"):  # two blobs, each divided by a line of its own
        centres, lines = np.array([[-2.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 0.4], [0.4, -1.0]])
        z = np.arange(120) % 2
        X = centres[z] + 0.6 * np.random.default_rng(1).normal(size=(120, 2))
        y = (np.sum((X - centres[z]) * lines[z], axis=1) > 0).astype(int)
        return (X, y), {"variance": 0.4} if name == "isvm" else {"variance_scale": 0.4}
    if name in ("dpgmm", "dpmmgm"):  # three blobs, two of them close
        centres = np.array([[-1.5, 0.0], [1.2, 0.8], [1.2, -0.8]])
        X = centres[np.arange(90) % 3] + 0.4 * np.random.default_rng(1).normal(size=(90, 2))
        return (X,), {"scatter": 0.2} | ({} if name == "dpgmm" else {"cost": 0.05, "ell": 1.0})
    return regbayes.zoo[name].example()


def fit(name):
    """Two chains of the recommended kernel, as a tree."""
    entry = regbayes.zoo[name]
    args, settings = data_of(name)
    kernel = entry.kernels[list(entry.kernels)[-1]]()
    mcmc = MCMC(
        kernel,
        num_warmup=NUM_DRAWS,
        num_samples=NUM_DRAWS,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(random.key(0), *args, extra_fields=("log_joint",), **settings)
    return diagnostics.to_datatree(mcmc, seed=0)


def linear(dt):
    """The decision regions of linear weights."""
    data, eta = dt["constant_data"], dt["posterior"]["eta"].to_numpy()
    return diagnostics.plot_decision(eta.reshape(-1, *eta.shape[2:]), data["X"].to_numpy(), data["y"].to_numpy())


def features_of_inputs(dt):
    """Which of the buffet's features a datum has: the matrix of the best draw."""
    lp = dt["sample_stats"]["lp"].to_numpy()
    chain, draw = np.unravel_index(lp.argmax(), lp.shape)
    Z = dt["posterior"]["Z"].isel(chain=int(chain), draw=int(draw)).to_numpy()
    Z = Z[:, Z.any(0)]
    Z = Z[:, np.argsort(-Z.sum(0), kind="stable")]
    Z = Z[np.lexsort(Z.T[::-1])[::-1]]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.8), layout="constrained")
    left.imshow(Z, cmap="cividis", aspect="auto", interpolation="nearest")
    rows = "input" if dt.attrs["program"] == "mt_ilsvm" else "datum"
    left.set(xlabel="latent feature", ylabel=f"{rows}, sorted", title="which has which: Z of the best draw")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    diagnostics.plot_num_clusters(dt, ax=right)
    return figure


def num_clusters_beside(dt):
    """The map of pairs beside the number of clusters."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    diagnostics.plot_coclustering(dt, ax=left)
    diagnostics.plot_num_clusters(dt, ax=right)
    return figure


PICTURES = {
    "svm": linear,
    "multiclass-svm": linear,
    "svr": diagnostics.plot_posterior,
    "isvm": diagnostics.plot_mixture_decision,
    "dpmnl": diagnostics.plot_mixture_decision,
    "dpgmm": num_clusters_beside,
    "dpmmgm": num_clusters_beside,
    "ctm": diagnostics.plot_topics,
    "mmctm": diagnostics.plot_documents,
    "medlda": diagnostics.plot_documents,
    "medlda-regression": diagnostics.plot_topics,
    "ibp": features_of_inputs,
    "ilsvm": diagnostics.plot_features,
    "mt-ilsvm": features_of_inputs,
}


def shrink(path):
    """128 colours are enough, in half the bytes."""
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def main(names=(), out="docs/gallery"):
    """Fit and draw each of the models."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for name in names or regbayes.zoo.names():
        drawn = PICTURES[name](fit(name))
        figure = getattr(drawn, "figure", drawn)
        path = out / f"{name}.png"
        figure.savefig(path, dpi=DPI)
        plt.close(figure)
        shrink(path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One picture per model of the zoo.")
    parser.add_argument("names", nargs="*", help="models (all)")
    parser.add_argument("--out", default="docs/gallery", help="folder (%(default)s)")
    main(**vars(parser.parse_args()))
