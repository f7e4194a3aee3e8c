"""
Equal expected scores for two groups: a logistic regression with a fairness constraint
======================================================================================

A group's members have higher inputs, so a logistic regression gives them higher scores. The demand

    E_q[mean score of group 1] = E_q[mean score of group 0]

is on the posterior. RegBayes finds the posterior nearest to the regression's that meets it: the program as it stands,
times `exp(phi (mean score of group 1 - mean score of group 0))`. NUTS draws from it; `phi_gap.png` shows the result.

**References**

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR (2014), section 3.
"""

import argparse
import pathlib

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import NUTS

from regbayes.diagnostics import plot_regbayes
from regbayes.inference import Equality, RegBayes, Sampling


def logistic(X, y, group):
    """(n, d) inputs, (n,) labels 0 or 1, (n,) groups 0 or 1, which the regression does not see."""
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([X.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    numpyro.deterministic("score", jax.nn.sigmoid(X @ w + b))
    numpyro.sample("y", dist.Bernoulli(logits=X @ w + b).to_event(1), obs=y)


def difference(sites, group):
    """Mean score of group 1 less that of group 0."""
    score = sites["score"]
    return (score * group).sum() / group.sum() - (score * (1 - group)).sum() / (1 - group).sum()


def make_data(num_data, seed):
    rng = np.random.default_rng(seed)
    group = np.arange(num_data) % 2
    X = rng.normal(size=(num_data, 3)) + group[:, None] * [0.8, 0.0, 0.3]
    y = rng.uniform(size=num_data) < 1 / (1 + np.exp(-(X @ [1.5, -1.0, 0.5] - 0.6)))
    return X.astype(np.float32), y.astype(np.int32), group


def main(args):
    data = make_data(args.num_data, args.seed)
    inference = Sampling(NUTS, num_warmup=args.num_warmup, num_draws=args.num_draws, num_samples=args.num_samples)
    demand = Equality(difference, 0.0, name="difference")
    result = RegBayes(logistic, demand, inference).run(random.key(args.seed), *data)
    scores = result.draws["posterior"]["score"].values
    gap = scores[..., data[2] == 1].mean() - scores[..., data[2] == 0].mean()
    print(result)
    print(f"phi {float(result.phi['difference']):.1f}, difference {gap:.4f} ± {float(result.errors['difference']):.4f}")
    right = np.mean((scores.mean((0, 1)) > 0.5) == data[1])
    print(f"{100 * right:.1f}% of the labels are on the right side of the mean score")
    args.out.mkdir(parents=True, exist_ok=True)
    plot_regbayes(result).savefig(args.out / "phi_gap.png", dpi=120)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=120)
    parser.add_argument("--num-warmup", type=int, default=500)
    parser.add_argument("--num-draws", type=int, default=250)
    parser.add_argument("--num-samples", type=int, default=1000)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("figures"), help="where the picture goes")
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
