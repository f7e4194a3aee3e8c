"""
Maximum entropy discrimination: a support vector machine as a posterior
=======================================================================

A program with nothing but a prior of the weights, `eta ~ N(0, I)`, and a margin on the *expected* score of each datum,

    y_i E_q[eta'x_i] >= 1        at the price C for each unit that it is missed,

has the posterior `N(sum_i omega_i y_i x_i, I)`, where `omega` solves the dual of the linear support vector machine. The
posterior mean is that machine's weight vector, and `-phi` are its multipliers. The script compares both.

**References**

1. *Maximum entropy discrimination*, Jaakkola, Meila and Jebara, NIPS (1999).
2. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR (2014).
"""

import argparse

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from sklearn.svm import LinearSVC

from regbayes.inference import GaussianInference, Hinge, RegBayes


def model(X, y):
    """(n, d) inputs and (n,) signs: nothing is observed, the labels enter by the constraint alone."""
    numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))


def make_data(num_data, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_data, 3)).astype(np.float32)
    return X, np.where(X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=num_data) > 0, 1, -1)


def main(args):
    X, y = make_data(args.num_data, args.seed)
    margin = Hinge(lambda sites, X, y: 1 - y * (X @ sites["eta"]), C=args.cost, name="margin")
    result = RegBayes(model, margin, GaussianInference(num_samples=args.num_samples)).run(random.key(args.seed), X, y)
    mean = -X.T @ (y * result.phi["margin"].values)
    svm = LinearSVC(C=args.cost, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(X, y)
    print(result)
    print(f"weights of the posterior mean {mean.round(4)}, of LinearSVC {svm.coef_[0].round(4)}")
    print(f"support vectors: {int(np.sum(result.phi['margin'] < -1e-6))} of {len(y)}")
    print(f"correlation of the scores: {np.corrcoef(X @ mean, svm.decision_function(X))[0, 1]:.6f}")
    return mean, svm.coef_[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=200)
    parser.add_argument("--num-samples", type=int, default=1000)
    parser.add_argument("--cost", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
