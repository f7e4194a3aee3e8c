"""
A max-margin model of your own: a hierarchical support vector machine
=====================================================================

Several groups share a classifier up to a group's own deviation, and the scale of the deviations is learned:

    prior_scale ~ HalfNormal(1)
    eta_0 ~ N(0, I),  eta_g ~ N(0, prior_scale^2 I)        shared weights and the groups' deviations
    y_i: hinge on (eta_0 + eta_g(i))'x_i

The program uses the `hinge` factor and nothing else of the library, so NUTS runs on it as it stands. The second
kernel draws all weights together by augmentation, with a move read off the program, and leaves the scale to NUTS,
as two blocks of NumPyro's `Gibbs`. The script checks the move against the program and compares the two posteriors.

**References**

1. *Data augmentation for support vector machines*, Polson and Scott, Bayesian Analysis 6 (2011).
"""

import argparse

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.handlers import condition
from numpyro.infer import MCMC, NUTS, Gibbs

from regbayes.diagnostics import conformance
from regbayes.inference import MarginWeights, MoveKernel, Rescale
from regbayes.models import hinge

NUM_GROUPS = 3


def hierarchical_svm(X, y, group):
    """(n, d) inputs, (n,) labels 0 or 1, (n,) groups. Row 0 of ``eta`` is shared, row 1 + g is group g's own."""
    prior_scale = numpyro.sample("prior_scale", dist.HalfNormal(1.0))
    scales = prior_scale ** np.array([0.0] + [1.0] * NUM_GROUPS)[:, None]
    eta = numpyro.sample("eta", dist.Normal(0.0, scales).expand([1 + NUM_GROUPS, X.shape[1]]).to_event(2))
    f = ((eta[0] + eta[1 + group]) * X).sum(-1)
    hinge("margin", f, 2 * y - 1, cost=1.0)


def make_groups(seed=0, num_data=100, dim=2):
    """Groups whose true weights differ a little."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(num_data, dim)), rng.integers(NUM_GROUPS, size=num_data)
    eta = np.array([2.0, -1.0])[:dim] + 0.7 * rng.normal(size=(NUM_GROUPS, dim))
    y = ((eta[group] * X).sum(1) + 0.5 * rng.normal(size=num_data) > 0).astype(np.int32)
    return X.astype(np.float32), y, group.astype(np.int32)


def make_kernels():
    """NUTS on everything, and augmentation for the weights beside NUTS for the scale."""
    weights = MoveKernel(hierarchical_svm, [MarginWeights("eta"), Rescale("eta")])
    return {
        "NUTS": NUTS(hierarchical_svm),
        "augmentation + NUTS": Gibbs([(weights, ["eta"]), (NUTS(hierarchical_svm), ["prior_scale"])]),
    }


def run_inference(kernel, X, y, group, *, seed, num_warmup, num_samples, num_chains, progress_bar=False):
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=progress_bar,
    )
    mcmc.run(random.key(seed), X, y, group)
    return mcmc


def main(args):
    X, y, group = make_groups(args.seed)
    # Given the scale, the weights' move is the whole kernel, and can be checked against the program.
    given_scale = condition(hierarchical_svm, {"prior_scale": 0.5})
    conformance(MoveKernel(given_scale, [MarginWeights("eta")]), X, y, group)
    for name, kernel in make_kernels().items():
        settings = {"num_warmup": args.num_warmup, "num_samples": args.num_samples, "num_chains": args.num_chains}
        mcmc = run_inference(kernel, X, y, group, seed=args.seed, progress_bar=True, **settings)
        print(f"\n{name}")
        mcmc.print_summary()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-warmup", type=int, default=500)
    parser.add_argument("--num-samples", type=int, default=1000)
    parser.add_argument("--num-chains", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
