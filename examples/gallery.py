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
from regbayes import diagnostics
from regbayes.commands.plot import pictures

DPI = 72
NUM_DRAWS = 100


def fit(name):
    """Two chains of the recommended kernel, as a tree."""
    entry = regbayes.zoo[name]
    args, settings = (entry.show or entry.example)()
    kernel = entry.kernels[list(entry.kernels)[-1]]()
    mcmc = MCMC(
        kernel, num_warmup=NUM_DRAWS, num_samples=NUM_DRAWS, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    mcmc.run(random.key(0), *args, extra_fields=("log_joint",), **settings)
    return diagnostics.to_datatree(mcmc, seed=0)


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
    rows = dt["posterior"]["Z"].dims[-2]
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


BESIDE = {"coclustering": num_clusters_beside, "num_features": features_of_inputs}
"""Pictures of ``regbayes plot`` that have another beside them here."""


def draw(name, dt):
    """The picture that the model's card names, or the last that suits the draws."""
    found = pictures(dt)
    picture = regbayes.zoo[name].picture or list(found)[-1]
    return BESIDE[picture](dt) if picture in BESIDE else found[picture][1]()


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
        drawn = draw(name, fit(name))
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
