"""
The infinite SVM: its posterior and its small-variance limit
============================================================

Data of three clusters, with a line of its own between the classes in each: no single line divides them. The script
draws from the Gibbs infinite SVM, prints how many clusters the posterior has, and predicts new data by the averaged
discriminant and by the votes of the Gibbs classifier. `M2DPM`, the model's small-variance limit, gives one clustering
and its classifiers in a moment.

**References**

1. *Small-variance asymptotics for Dirichlet process mixtures of SVMs*, Wang and Zhu, AAAI (2014).
"""

import argparse

import numpy as np
from jax import random
from numpyro.infer import MCMC
from sklearn.svm import LinearSVC

import regbayes
from regbayes.diagnostics import to_datatree
from regbayes.inference import M2DPM, isvm_predict

SETTINGS = {"variance": 1.0, "prior_scale": 3.0, "cost": 0.5}


def make_data(num_data, seed=0, noise=0.05):
    """Clusters of unit variance, a line through the centre of each, and a few labels the wrong way round."""
    rng = np.random.default_rng(seed)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 6.0]])
    directions = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0]])
    z = rng.integers(3, size=num_data)
    X = centres[z] + rng.normal(size=(num_data, 2))
    y = np.sum((X - centres[z]) * directions[z], axis=1) > 0
    return X.astype(np.float32), (y ^ (rng.uniform(size=num_data) < noise)).astype(np.int32)


def run_inference(X, y, *, seed, num_warmup, num_samples, num_chains, progress_bar=False):
    kernel = regbayes.zoo["isvm"].kernels["slice"]()
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=progress_bar,
    )
    mcmc.run(random.key(seed), X, y, extra_fields=("log_joint", "num_active"), **SETTINGS)
    return mcmc


def main(args):
    X, y = make_data(2 * args.num_data, args.seed)
    train, test = slice(args.num_data), slice(args.num_data, None)
    settings = {"num_warmup": args.num_warmup, "num_samples": args.num_samples, "num_chains": args.num_chains}
    mcmc = run_inference(X[train], y[train], seed=args.seed, progress_bar=True, **settings)
    stats = to_datatree(mcmc)["sample_stats"]
    sizes, counts = np.unique(stats["num_active"], return_counts=True)
    print(
        "clusters: "
        + ", ".join(f"{k} in {100 * c / counts.sum():.0f}% of the draws" for k, c in zip(sizes, counts, strict=True))
    )

    found = isvm_predict(mcmc.get_samples(), X[test], **SETTINGS)
    limit = M2DPM(cost=0.5, prior_scale=3.0, random_state=args.seed).fit(X[train], y[train])
    labels = {
        "infinite SVM, averaged discriminant": found.y,
        "infinite SVM, votes": np.argmax(found.votes, axis=1),
        f"M2DPM, {limit.num_clusters_} clusters": limit.predict(X[test]),
        "one linear SVM": LinearSVC(dual=False).fit(X[train], y[train]).predict(X[test]),
    }
    for name, values in labels.items():
        print(f"{name:<38}{100 * np.mean(np.asarray(values) == y[test]):6.1f}% right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-data", type=int, default=300)
    parser.add_argument("--num-warmup", type=int, default=300)
    parser.add_argument("--num-samples", type=int, default=500)
    parser.add_argument("--num-chains", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
