"""What of a posterior does not depend on how clusters, topics and features are numbered."""

import numpy as np
import xarray as xr

from .structure import label_site

LONG_NAMES = {
    "lp": "log joint",
    "num_clusters": "number of clusters",
    "largest_share": "share of the largest cluster",
    "entropy": "entropy of the partition (nats)",
    "num_topics": "number of topics in use",
    "topic_entropy": "entropy of the topics (nats)",
    "num_features": "number of active features",
    "features_per_row": "features per row of Z",
    "training_loss": "training loss per datum",
}


def invariants(dt: xr.DataTree) -> xr.Dataset:
    """Label-invariant quantities of every draw: the ones to judge a mixture's convergence by.

    As far as the draws have them: ``lp``, the program's log joint; ``num_clusters``, ``largest_share`` and ``entropy``
    (in nats) of the partition; ``num_topics`` in use and their ``topic_entropy`` over tokens; ``num_features``, the
    columns of ``Z`` in use, and ``features_per_row``; ``training_loss``, the mean loss that the program's max-margin
    factors give a datum.

    :param dt: draws, as :func:`to_datatree` makes them.
    :return: variables with the dims chain and draw.

    **Example**

    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from regbayes.diagnostics import invariants
    >>> z = np.array([[[0, 0, 1, 1], [5, 5, 5, 2]]])  # one chain, two draws, four data
    >>> found = invariants(from_dict({"posterior": {"z": z}}))
    >>> found["num_clusters"].values.tolist(), found["largest_share"].values.tolist()
    ([[2, 2]], [[0.5, 0.75]])
    """
    posterior = dt["posterior"].to_dataset()
    stats = dt["sample_stats"].to_dataset() if "sample_stats" in dt.children else xr.Dataset()
    found = {"lp": stats["lp"].to_numpy()} if "lp" in stats else {}
    if clusters := label_site(posterior, "cluster"):
        shares = _shares(posterior[clusters])
        found["num_clusters"] = np.sum(shares > 0, axis=-1)
        found["largest_share"] = np.max(shares, axis=-1)
        found["entropy"] = _entropy(shares)
    if topics := label_site(posterior, "topic"):
        shares = _shares(posterior[topics])
        found["num_topics"] = np.sum(shares > 0, axis=-1)
        found["topic_entropy"] = _entropy(shares)
    if "Z" in posterior and "latent_feature" in posterior["Z"].dims:
        Z = posterior["Z"].transpose("chain", "draw", ..., "latent_feature").to_numpy()
        found["num_features"] = np.sum(np.any(Z > 0, axis=2), axis=-1)
        found["features_per_row"] = np.mean(np.sum(Z > 0, axis=-1), axis=-1)
    if "training_loss" in stats:
        found["training_loss"] = stats["training_loss"].to_numpy()
    variables = {name: (("chain", "draw"), value, {"long_name": LONG_NAMES[name]}) for name, value in found.items()}
    return xr.Dataset(variables, {dim: posterior[dim] for dim in ("chain", "draw")})


def _shares(site: xr.DataArray) -> np.ndarray:
    """(chain, draw, slots) share of each slot in the labels."""
    z = site.transpose("chain", "draw", ...).to_numpy()
    rows = z.reshape(-1, z.shape[-1]).astype(np.int64)
    slots = int(np.max(rows)) + 1
    flat = np.bincount((rows + slots * np.arange(len(rows))[:, None]).ravel(), minlength=slots * len(rows))
    return flat.reshape(*z.shape[:2], slots) / z.shape[-1]


def _entropy(shares: np.ndarray) -> np.ndarray:
    return -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=-1) + 0.0
