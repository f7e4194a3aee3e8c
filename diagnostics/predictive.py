"""How well a posterior predicts: scores on held-out data with Monte Carlo errors, and whether votes are calibrated."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats import mcse
from numpy.typing import ArrayLike

from .structure import arguments_of, card_of, flat_draws, linear_site

NUM_BLOCKS = 20
"""Blocks of draws that the jackknife leaves out, one after the other."""


class Predictive(NamedTuple):
    """The result of :func:`predictive`.

    - **scores** - one row per score: ``estimate`` and ``mcse``, its Monte Carlo standard error over the draws.
    - **votes** - (n, L) share of the draws that vote for each class.
    - **calibration** - see :func:`calibration`.
    """

    scores: pd.DataFrame
    votes: np.ndarray
    calibration: pd.DataFrame


def predictive(
    dt: xr.DataTree,
    X: Any,
    y: ArrayLike,
    *,
    discriminant: Callable[[dict[str, np.ndarray], Any], ArrayLike] | None = None,
    ell: float | None = None,
    num_draws: int = 200,
    num_bins: int = 10,
) -> Predictive:
    """Accuracy and hinge loss on held-out data, with their Monte Carlo errors, and the calibration of the votes.

    Two classifiers can be made of draws. The *Gibbs* classifier decides by one draw: its scores are means over the
    draws, with errors that allow for autocorrelation. The *averaging* classifier decides by the mean discriminant of
    all draws, and a third by their vote: those errors are from a jackknife over blocks of draws. None of them includes
    the error that comes of there being ``n`` held-out data and no more.

    :param dt: draws, as :func:`to_datatree` makes them.
    :param X: (n, d) new inputs, or (n, V) counts of words.
    :param y: (n,) their labels in ``0..L-1``.
    :param discriminant: ``discriminant(sites, X)`` of one draw's sites: (n,), whose sign decides between two classes,
        or (n, L). Linear weights, and the classifiers whose card in the zoo says how to predict, need none.
    :param ell: the margin; by default the program's.
    :param num_draws: at most so many draws of each chain are used, evenly spaced.
    :param num_bins: of the calibration.

    **Example**

    >>> import regbayes
    >>> from regbayes.diagnostics import predictive
    >>> X, y, _ = regbayes.datasets.make_svm(200, 2)
    >>> dt = regbayes.fit("svm", X[:100], y[:100], num_warmup=10, num_samples=50, num_chains=2, progress=False)
    >>> list(predictive(dt, X[100:], y[100:]).scores.columns)
    ['estimate', 'mcse']
    """
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu" or not len(y) or y.min() < 0:
        raise ValueError(f"y must hold labels in 0..L-1, found {y.dtype} of shape {y.shape}")
    posterior = dt["posterior"].to_dataset()
    step = math.ceil(posterior.sizes["draw"] / num_draws)
    posterior = posterior.isel(draw=slice(None, None, step))
    f = _discriminants(dt, posterior, X, discriminant)
    num_classes = f.shape[-1] if f.ndim == 4 else 2
    if f.shape[2] != len(y) or y.max() >= num_classes:
        raise ValueError(
            f"y must label the {f.shape[2]} rows of X in 0..{num_classes - 1}, found {len(y)} up to {y.max()}"
        )
    named = _labels(f)
    votes = np.stack([(named == k).mean((0, 1)) for k in range(num_classes)], axis=-1)
    probabilities = discriminant is None and getattr(card_of(dt), "probabilities", False)
    ell = float(dt.attrs.get("argument_ell", 1.0)) if ell is None else ell
    loss = _log_losses if probabilities else lambda f, y: _hinges(f, y, ell)
    kind = "log loss" if probabilities else "hinge loss"
    hits = (named == y).mean(-1)
    rows = {
        "accuracy of one draw": (hits.mean(), _error(hits)),
        "accuracy of the vote": _jackknife(f, lambda f: np.mean(_vote(f) == y)),
        "accuracy of the mean discriminant": _jackknife(f, lambda f: np.mean(_labels(f.mean((0, 1))) == y)),
        f"{kind} of one draw": (loss(f, y).mean(), _error(loss(f, y).mean(-1))),
        f"{kind} of the mean discriminant": _jackknife(f, lambda f: loss(f.mean((0, 1)), y).mean()),
    }
    scores = pd.DataFrame.from_dict(rows, orient="index", columns=["estimate", "mcse"])
    return Predictive(scores, votes, calibration(votes, y, num_bins=num_bins))


def calibration(votes: ArrayLike, y: ArrayLike, *, num_bins: int = 10) -> pd.DataFrame:
    """Whether a class that a share ``p`` of the votes goes to is right in a share ``p`` of the cases.

    :param votes: (n, L) shares of the votes, or probabilities, rows summing to 1.
    :param y: (n,) labels.
    :param num_bins: bins of the leading class's share, between 1/L and 1.
    :return: a row per bin that is not empty: ``low``, ``high``, ``num`` cases, the mean ``predicted`` share of the
        leading class, the ``observed`` share of cases in which it is right, and its ``error``, the standard error of a
        share by Agresti and Coull, which is not 0 where all cases are right.

    **Example**

    >>> from regbayes.diagnostics import calibration
    >>> calibration([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1], num_bins=2)["observed"].tolist()
    [1.0, 0.5]
    """
    votes, y = np.asarray(votes, float), np.asarray(y)
    if votes.ndim != 2 or len(votes) != len(y) or not np.allclose(votes.sum(1), 1, atol=1e-4):
        raise ValueError(
            f"votes must have shape ({len(y)}, L) and rows that sum to 1, found shape {votes.shape} and sums "
            f"{np.atleast_1d(votes.sum(-1))[:3]}"
        )
    lead, right = votes.max(1), votes.argmax(1) == y
    edges = np.linspace(1 / votes.shape[1], 1, num_bins + 1)
    bins = np.clip(np.searchsorted(edges, lead, side="right") - 1, 0, num_bins - 1)
    rows = []
    for b in np.unique(bins):
        inside = bins == b
        num, observed = int(inside.sum()), right[inside].mean()
        middle = (right[inside].sum() + 2) / (num + 4)
        error = math.sqrt(middle * (1 - middle) / (num + 4))
        rows.append((edges[b], edges[b + 1], num, lead[inside].mean(), observed, error))
    return pd.DataFrame(rows, columns=["low", "high", "num", "predicted", "observed", "error"])


def _discriminants(dt: xr.DataTree, posterior: xr.Dataset, X: Any, discriminant: Callable | None) -> np.ndarray:
    """(chain, draw, n[, L]) discriminants of new inputs, draw by draw."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    draws, card, weights = flat_draws(posterior), card_of(dt), linear_site(posterior)
    single = ({name: values[s : s + 1] for name, values in draws.items()} for s in range(math.prod(shape)))
    if discriminant is not None:
        found = np.stack([np.asarray(discriminant({k: v[0] for k, v in draw.items()}, X)) for draw in single])
    elif card and card.predict:
        predict = functools.partial(card.predict, **settings_of(dt, card, draws))
        if "each" in inspect.signature(card.predict).parameters:  # it goes on from draw to draw
            found = np.asarray(predict(draws, X, each=True).discriminant)
        else:
            found = np.stack([np.asarray(predict(draw, X).discriminant) for draw in single])
    elif weights and getattr(card, "task", "") != "numbers":
        found = _linear(draws[weights], np.asarray(X, float))
    else:
        name = dt.attrs.get("program")
        raise ValueError(f"dt is of the program {name!r}; pass discriminant, as no card says how it predicts classes")
    return found.reshape(*shape, *found.shape[1:])


def settings_of(dt: xr.DataTree, card: Any, draws: dict[str, np.ndarray]) -> dict[str, Any]:
    """The hyper-parameters a card's prediction asks for, as the fit had them; all of them, if it takes any."""
    asked = list(inspect.signature(card.predict).parameters.values())
    if any(p.kind is p.VAR_KEYWORD for p in asked):
        asked += inspect.signature(card.program).parameters.values()
    wanted = [p.name for p in asked if p.kind is p.KEYWORD_ONLY]
    # What had a prior is a site; the draws' values count, whatever number is given.
    return {name: 1.0 if name in draws else value for name, value in arguments_of(dt).items() if name in wanted}


def _linear(eta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """(S, n[, L]) scores under weights (S, [L,] d), or d + 1 with an intercept."""
    if eta.shape[-1] == X.shape[1] + 1:
        X = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    if eta.shape[-1] != X.shape[1]:
        raise ValueError(f"X must have {eta.shape[-1]} columns, as the weights have entries, found shape {X.shape}")
    return np.einsum("s...d,nd->sn...", eta, X)


def _labels(f: np.ndarray) -> np.ndarray:
    """Labels of discriminants (..., n) or (..., n, L): of a single draw and a mean (n[, L]) as well as of all."""
    several = f.ndim in (2, 4)
    return f.argmax(-1) if several else (f > 0).astype(int)


def _vote(f: np.ndarray) -> np.ndarray:
    labels = _labels(f)
    counts = np.stack([(labels == k).sum((0, 1)) for k in range(f.shape[-1] if f.ndim == 4 else 2)], axis=-1)
    return counts.argmax(-1)


def _hinges(f: np.ndarray, y: np.ndarray, ell: float) -> np.ndarray:
    """(..., n) hinges of discriminants (..., n) or, after Crammer and Singer, (..., n, L)."""
    if f.ndim in (1, 3):
        return np.maximum(0, ell - (2 * y - 1) * f)
    own = np.arange(f.shape[-1]) == y[:, None]
    return np.max(f + ell * ~own, axis=-1) - np.sum(np.where(own, f, 0), axis=-1)


def _log_losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    own = np.take_along_axis(p, np.broadcast_to(y[:, None], (*p.shape[:-1], 1)), axis=-1)[..., 0]
    return -np.log(np.maximum(own, np.finfo(np.float32).tiny))


def _error(values: np.ndarray) -> float:
    """Monte Carlo standard error of the mean of (chain, draw) values; 0 of a constant."""
    return float(mcse(values.astype(float), method="mean")) if np.ptp(values) else 0.0


def _jackknife(f: np.ndarray, score: Callable[[np.ndarray], float]) -> tuple[float, float]:
    """A score of all discriminants (chain, draw, ...), and its error by leaving out one block of draws at a time."""
    num = min(NUM_BLOCKS, f.shape[1])
    if num < 2:
        return float(score(f)), float("nan")
    blocks = np.array_split(np.arange(f.shape[1]), num)
    without = np.array([score(np.delete(f, block, axis=1)) for block in blocks])
    return float(score(f)), float(np.sqrt((num - 1) / num * np.sum((without - without.mean()) ** 2)))
