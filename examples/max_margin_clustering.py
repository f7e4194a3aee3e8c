"""
Clusters with a margin between them: half-rings, and what the margin's strength does
====================================================================================

A Dirichlet process mixture of Gaussians takes several Gaussians for one half-ring. With a margin between the clusters
(DPMMGM) every datum pays for how close the others' clusters come, so fragments of one ring merge. The script draws

- `half_rings.png`: the half-rings as the two models see them, the margin tuned for two clusters;
- `margin_strength.png`: how many clusters S1, data of fifteen Gaussians, keeps as `c` or `ell` grows.

The second needs S1 (`regbayes.datasets.load("s1")` tells where to put it) and ten minutes; `--only rings` does without.

**References**

1. *Robust Bayesian max-margin clustering*, Chen, Zhu and Zhang, NIPS (2014), figures 2 and 3.
"""

import argparse
import pathlib

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from jax import random
from numpyro.infer import MCMC
from sklearn.preprocessing import StandardScaler

from regbayes import datasets
from regbayes.diagnostics import num_clusters, point_estimate
from regbayes.inference import dpgmm_collapsed, dpmmgm_collapsed
from regbayes.inference.sampled import tune_margin
from regbayes.models import TruncatedPoisson

PRIOR_SCALE = 0.1
COSTS = (0.01, 0.1, 0.3, 0.45, 0.6, 1.0)
ELLS = (0.1, 1.0, 1.4, 1.8, 2.4, 3.0)


def make_priors(d):
    """Priors of the concentration and of the components' hyper-parameters, for standardised data."""
    return {
        "concentration": dist.Gamma(1.0, 1.0),
        "prior_count": dist.Gamma(1.0, 1.0),
        "degrees_of_freedom": TruncatedPoisson(d + 2.0, d, d + 100),
        "scatter": dist.InverseWishart(d + 2.0, scale_matrix=np.eye(d, dtype=np.float32)),
    }


def run_inference(mcmc, X, seed, init_params=None, **settings):
    """Labels of the draws (S, n)."""
    mcmc.run(random.key(seed), X, init_params=init_params, **make_priors(X.shape[1]), **settings)
    return np.asarray(mcmc.get_samples()["z"])


def make_mcmc(kernel, args):
    """Settings are traced, so that runs with other ones do not compile again."""
    options = {"progress_bar": False, "jit_model_args": True}
    return MCMC(kernel, num_warmup=args.num_warmup, num_samples=args.num_samples, **options)


def half_rings(args):
    """The partitions of both models."""
    X, _ = datasets.make_half_rings(args.num_data, seed=args.seed)
    X = StandardScaler().fit_transform(X).astype(np.float32)
    settings = {"max_strength": np.inf, "prior_scale": PRIOR_SCALE, **make_priors(2)}
    tuned = tune_margin(X, num_clusters=2, num_sweeps=3 * args.num_warmup, seed=args.seed, **settings)
    margin = {"cost": tuned.cost, "ell": tuned.ell, "prior_scale": PRIOR_SCALE}
    draws = {
        "DPGMM": run_inference(make_mcmc(dpgmm_collapsed(), args), X, args.seed),
        "DPMMGM": run_inference(make_mcmc(dpmmgm_collapsed(), args), X, args.seed, tuned.init_params, **margin),
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
    for ax, (name, z) in zip(axes, draws.items(), strict=True):
        labels, num = point_estimate(z).labels, num_clusters(z)
        ax.scatter(*X.T, c=labels, cmap="tab10" if labels.max() < 10 else "tab20", s=12)
        ax.set(title=f"{name}: {labels.max() + 1} clusters", aspect="equal", xlabel="standardised $x_1$")
        print(f"{name}: {num.mean():.1f} clusters on average, {labels.max() + 1} in the partition nearest to the draws")
    axes[0].set_ylabel("standardised $x_2$")
    axes[1].set_title(f"{axes[1].get_title()} ($c={tuned.cost:.2g}$, $\\ell={tuned.ell:.2g}$)")
    return figure


def margin_strength(args):
    """How many clusters there are for each ``c`` and for each ``ell``, all from a partition without a margin.

    One cluster pays nothing, so chains that start there stay there long after many would be likelier.
    """
    X = datasets.load("s1", args.data_home).X
    X = X[np.random.default_rng(args.seed).permutation(len(X))[: args.num_data]]
    X = StandardScaler().fit_transform(X).astype(np.float32)
    start = {"z": run_inference(make_mcmc(dpgmm_collapsed(), args), X, args.seed)[-1]}
    mcmc = make_mcmc(dpmmgm_collapsed(), args)

    def count(cost, ell):
        z = run_inference(mcmc, X, args.seed, start, cost=cost, ell=ell, prior_scale=PRIOR_SCALE)
        num = num_clusters(z)
        print(f"c={cost}, ell={ell}: {num.mean():.1f} clusters")
        return num.mean(), *np.quantile(num, [0.05, 0.95])

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    sweeps = ("c", COSTS, [(cost, 1.0) for cost in COSTS]), (r"\ell", ELLS, [(0.3, ell) for ell in ELLS])
    for ax, (symbol, values, settings) in zip(axes, sweeps, strict=True):
        mean, low, high = np.array([count(*setting) for setting in settings]).T
        ax.fill_between(values, low, high, alpha=0.25, linewidth=0)
        ax.plot(values, mean, "o-")
        ax.axhline(15, color="0.6", linestyle=":", label="Gaussians in the data")
        ax.set(xscale="log", xlabel=f"${symbol}$", ylim=(0, None))
    axes[0].set(ylabel="clusters: mean, 90% of the draws", title=r"$\ell = 1$")
    axes[1].set_title("$c = 0.3$")
    axes[0].legend(loc="lower left", frameon=False)
    return figure


FIGURES = {"rings": ("half_rings.png", half_rings), "strength": ("margin_strength.png", margin_strength)}


def main(args):
    args.out.mkdir(parents=True, exist_ok=True)
    for name in [args.only] if args.only else FIGURES:
        file, draw = FIGURES[name]
        figure = draw(args)
        figure.savefig(args.out / file, dpi=120)
        plt.close(figure)
        print(f"wrote {args.out / file}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=300)
    parser.add_argument("--num-warmup", type=int, default=200)
    parser.add_argument("--num-samples", type=int, default=200)
    parser.add_argument("--data-home", help="folder of the data sets, as for regbayes.datasets.load")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("figures"), help="where the pictures go")
    parser.add_argument("--only", choices=FIGURES, help="one picture")
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
