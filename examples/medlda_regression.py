"""
MedLDA regression in a dozen lines
==================================

Documents with a response: latent Dirichlet allocation, with regression weights on the documents' proportions, and the
demand that the *expected* prediction be within epsilon of the response:

    theta_i ~ Dir(1/2),  beta_k ~ Dir(1),  words of document i ~ Mult(theta_i beta),  eta ~ N(0, I)
    |E_q[eta'theta_i] - y_i| <= epsilon        at the price C for each unit that it is missed.

The topics of the words are summed out, so that any autoguide runs on the program as it stands; nothing in it mentions
a margin. The script prints the error of the expected predictions, and that of the responses' mean beside it.

**References**

1. *MedLDA: maximum margin supervised topic models*, Zhu, Ahmed and Xing, JMLR (2012).
2. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, Zhu, Chen and Xing,
   JMLR (2014), Appendix B.
"""

import argparse

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer.autoguide import AutoNormal

from regbayes.inference import EpsilonInsensitive, RegBayes, Variational


def lda(counts, num_topics=3):
    """(D, V) word counts."""
    D, V = counts.shape
    theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)).expand([D]).to_event(1))
    beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(V)).expand([num_topics]).to_event(1))
    eta = numpyro.sample("eta", dist.Normal(0.0, 1.0).expand([num_topics]).to_event(1))
    numpyro.deterministic("prediction", theta @ eta)
    numpyro.sample("words", dist.Multinomial(jnp.sum(counts, 1), theta @ beta).to_event(1), obs=counts)


def prediction(sites):
    return sites["prediction"]


def make_corpus(num_documents, seed):
    """Three topics on thirty words; the response is a linear function of the proportions."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(30, 0.2), size=3)
    theta = rng.dirichlet(np.full(3, 0.5), size=num_documents)
    counts = np.stack([rng.multinomial(100, row @ beta) for row in theta])
    return counts.astype(np.int32), theta @ [-1.0, 0.0, 1.0] + 0.05 * rng.normal(size=num_documents)


def main(args):
    counts, y = make_corpus(args.num_documents, args.seed)
    fit = EpsilonInsensitive(prediction, y, epsilon=0.1, C=args.cost, name="response")
    inference = Variational(AutoNormal, num_warmup=args.num_warmup, num_draws=args.num_draws, num_particles=4)
    regbayes = RegBayes(lda, fit, inference, tol=0.1, max_steps=args.max_steps, dims={"response": ["document"]})
    result = regbayes.run(random.key(args.seed), jnp.asarray(counts))
    error = float(np.sqrt(np.mean((result.expectations["response"].values - y) ** 2)))
    print(result)
    print(f"weights of the topics {result.draws['posterior']['eta'].mean(('chain', 'draw')).values.round(2)}")
    print(f"error of the expected predictions {error:.3f}, of their mean {np.std(y):.3f}")
    print(f"{int(np.sum(result.slacks['response'] > 0))} of {len(y)} documents are outside the tube")
    return error, float(np.std(y))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-documents", type=int, default=30)
    parser.add_argument("--num-warmup", type=int, default=1000)
    parser.add_argument("--num-draws", type=int, default=250)
    parser.add_argument("--max-steps", type=int, default=40)
    parser.add_argument("--cost", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
