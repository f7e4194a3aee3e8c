"""
A mixture with constraints on its posterior
===========================================

Few data of two overlapping clusters. What is known beside them is said of the posterior, not of the prior:

- **size**: cluster 0 is expected to have at most six members;
- **together**: two data are expected to share their cluster nine times out of ten.

Both are hard. The labels are enumerated, so expectations are exact; the posterior is the mixture's times
`exp(phi_size size + phi_together together)`, and `phi` tells what each demand costs.

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR (2014), section 3.
"""

import argparse

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random

from regbayes.inference import Enumeration, Inequality, RegBayes


def mixture(x, means=(-1.0, 1.0)):
    """(n,) data; labels `z` with even odds."""
    z = numpyro.sample("z", dist.Bernoulli(0.5).expand([len(x)]).to_event(1))
    numpyro.sample("x", dist.Normal(jnp.asarray(means)[z], 1.0).to_event(1), obs=x)


def size(sites):
    """Members of cluster 0."""
    return jnp.sum(sites["z"] == 0)


def apart(sites):
    """Whether the first datum and the last are in different clusters."""
    return sites["z"][0] != sites["z"][-1]


def main(args):
    rng = np.random.default_rng(args.seed)
    x = np.sort(rng.normal(size=args.num_data) - 0.5).astype(np.float32)
    constraints = [
        Inequality(size, args.num_data / 2, name="size"),
        Inequality(apart, 0.1, name="apart"),  # "together at least 0.9", the other way round
    ]
    loose = [Inequality(size, args.num_data, name="size"), Inequality(apart, 1.0, name="apart")]
    results = {}
    for title, demands in (("without constraints", loose), ("with constraints", constraints)):
        results[title] = RegBayes(mixture, demands, Enumeration()).run(random.key(args.seed), x)
        found = results[title].expectations
        print(
            f"{title:<20} expected size {float(found['size']):5.2f}, apart with probability {float(found['apart']):.3f}"
        )
    final = results["with constraints"]
    print(f"phi: size {float(final.phi['size']):.3f}, apart {float(final.phi['apart']):.3f}; gap {final.gap:.1e}")
    first = [float((result.draws["posterior"]["z"][..., 0] == 0).mean()) for result in results.values()]
    print(f"the first datum is in cluster 0 with probability {first[0]:.2f}, constrained {first[1]:.2f}")
    return final


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
