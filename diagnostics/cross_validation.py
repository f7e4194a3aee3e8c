r"""Leave-one-out cross-validation by Pareto-smoothed importance sampling, for the models that have a likelihood.

A mixture's datum comes with a label of its own. Importance sampling over that label fails; summed out it does not:
what stands for the likelihood of datum ``i`` in a draw is

.. math:: p(x_i | z_{-i}, \cdot) = \sum_k p(z_i = k | z_{-i})\, p(x_i | z_i = k, \cdot),

with the components of the draw, or with all other data where those are integrated out; a model's card has it.
"""

from typing import Any

import numpy as np
import xarray as xr
from arviz_stats import loo as arviz_loo

from .structure import arguments_of, card_of, flat_draws

TIES = 1e-6
"""In nats, how far equal log densities are moved apart."""


def loo(dt: xr.DataTree, *, pointwise: bool = False) -> Any:
    """The expected log predictive density of a new datum's, by leave-one-out, with ArviZ's warnings on its Pareto k.

    Of models whose card has a log likelihood. A max-margin factor is a pseudo-likelihood: it is not normalised over the
    labels, so that there is no predictive density to estimate; compare such models by :func:`predictive` on held-out
    data. In feature and topic models a datum has many latent variables of its own, over which importance sampling
    fails.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param pointwise: also each datum's share and its Pareto k.
    :return: ArviZ's ``ELPDData``; ``elpd``, ``se``, ``p`` and, pointwise, ``elpd_i`` and ``pareto_k``.

    **Example**: all data in one cluster.

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import loo
    >>> X = np.random.default_rng(0).normal(size=(20, 2))
    >>> dt = from_dict({"posterior": {"z": np.zeros((2, 100, 20), int)}, "constant_data": {"X": X}})
    >>> arguments = {"max_clusters": 4, "concentration": 1.0, "prior_mean": 0.0, "prior_count": 0.1, "scatter": 1.0}
    >>> dt.attrs = {"model": "dpgmm", **{f"argument_{name}": value for name, value in arguments.items()}}
    >>> int(loo(dt).n_data_points)
    20
    """
    logs = log_likelihood(dt)
    # Draws of one partition have equal weights, through which no Pareto tail can be laid.
    logs = logs + np.random.default_rng(0).uniform(0, TIES, logs["datum"].shape)
    reff = None if dt["posterior"].sizes["chain"] > 1 else 1.0
    tree = xr.DataTree.from_dict({"posterior": dt["posterior"].to_dataset(), "log_likelihood": logs})
    return arviz_loo(tree, pointwise=pointwise, var_name="datum", reff=reff)


def log_likelihood(dt: xr.DataTree) -> xr.Dataset:
    """(chain, draw, datum) log of ``p(x_i | z_-i, ...)``, labels included where the model has them."""
    card = card_of(dt)
    if card is None or card.log_likelihood is None:
        name = dt.attrs.get("program") if card is None else card.name
        if "sample_stats" in dt.children and "training_loss" in dt["sample_stats"]:
            why = "a max-margin factor is a pseudo-likelihood that is not normalised over labels"
        else:
            why = "where a datum has many latent variables of its own, importance sampling over them fails"
        raise ValueError(f"the model {name!r} has no log likelihood of a datum: {why}; hold data out, see predictive")
    posterior = dt["posterior"].to_dataset()
    draws = flat_draws(posterior)
    arguments = {name: value for name, value in arguments_of(dt).items() if name not in draws}
    logs = np.asarray(card.log_likelihood(draws, arguments))
    logs = logs.reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)
    coords = {dim: posterior[dim] for dim in ("chain", "draw")}
    return xr.Dataset({"datum": (("chain", "draw", "case"), logs)}, coords)
