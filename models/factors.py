r"""The max-margin factors: NumPyro primitives for pseudo-likelihoods :math:`\exp(-2c\,\mathrm{loss})`.

Each primitive is read in three ways:

- *marginal*, the default: :func:`numpyro.factor` with ``-2 c loss``; NUTS, ``log_density`` and every kernel's
  target use this;
- *augmented*, under :class:`augment`: the site ``<name>_omega`` joins, with the law that makes the product
  Gaussian in the score (Polson and Scott, 2011);
- *small-variance*, under :class:`temper`: every log density times ``beta``.

They stand inside or outside a plate and nest with NumPyro's ``seed``, ``substitute``, ``condition``, ``mask``,
``scale`` and ``plate``.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from jax.typing import ArrayLike
from numpyro.distributions.distribution import Unit
from numpyro.handlers import scale
from numpyro.primitives import Messenger

from .laws.arguments import check_positive, is_concrete
from .laws.distributions import HingeOmega

MARGIN = "margin"
"""Key of a factor's ``infer`` entry that holds what the augmented reading needs."""


def hinge(name: str, f: ArrayLike, y: ArrayLike, *, cost: ArrayLike = 1.0, ell: ArrayLike = 1.0) -> None:
    r"""The binary hinge, :math:`\exp\{-2c\,(\ell - y f)_+\}` per datum.

    :param name: name of the factor.
    :param f: the scores, any shape.
    :param y: the labels as signs, -1 or +1, of a shape that broadcasts with ``f``; others are refused.
    :param cost: ``c``, positive.
    :param ell: the margin, positive.

    **Example**: a support vector machine with a learned prior scale, ready for NUTS.

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from regbayes.models import hinge
    >>> def model(X, y):
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    ...     eta = numpyro.sample("eta", dist.Normal(0.0, scale).expand([X.shape[1]]).to_event(1))
    ...     hinge("margin", X @ eta, 2 * y - 1, cost=1.0)
    """
    check_positive(cost=cost, ell=ell)
    _check_signs(name, y)
    f, y = jnp.asarray(f), jnp.asarray(y)
    _check_broadcast(name, f=f, y=y, cost=cost, ell=ell)
    _factor(name, ell - y * f, cost)


def multiclass_hinge(
    name: str,
    scores: ArrayLike,
    y: ArrayLike,
    *,
    cost: ArrayLike = 1.0,
    ell: ArrayLike = 1.0,
    competitors: ArrayLike | None = None,
) -> None:
    r"""The Crammer-Singer hinge, :math:`\exp\{-2c\,[\max_k(\ell 1[k \ne y] + s_k) - s_y]\}` per datum.

    M2DPM's Appendix C prints :math:`\Delta = \ell 1[y = y_i]`; the margin is asked of the *other* classes.

    :param name: name of the factor.
    :param scores: (..., L) scores ``s``.
    :param y: (...) labels in ``0..L-1``.
    :param cost: ``c``, positive.
    :param ell: the margin, positive.
    :param competitors: booleans that broadcast with ``scores``: the classes the maximum runs over, such as the
        occupied clusters. A datum's own class needs no entry; with no other class its loss is 0.

    **Example**

    >>> import jax.numpy as jnp
    >>> from numpyro.infer.util import log_density
    >>> from regbayes.models import multiclass_hinge
    >>> scores = jnp.array([[0.0, 2.0, 1.5]])
    >>> float(log_density(lambda: multiclass_hinge("margin", scores, jnp.array([1])), (), {}, {})[0])
    -1.0
    """
    check_positive(cost=cost, ell=ell)
    _check_range(name, y, jnp.shape(scores)[-1])
    scores, y = jnp.asarray(scores), jnp.asarray(y)
    competitors = jnp.asarray(True if competitors is None else competitors)
    _check_broadcast(name, scores=scores[..., 0], y=y, cost=cost, ell=ell)
    _check_broadcast(name, scores=scores, competitors=competitors)
    own = jnp.arange(scores.shape[-1]) == y[..., None]
    rivals = ~own & competitors
    rival = jnp.max(jnp.where(rivals, scores, -jnp.inf), axis=-1)
    # Without a rival the loss is 0; a finite stand-in keeps gradients and omega free of infinities.
    rival = jnp.where(jnp.any(rivals, axis=-1), rival, 0.0)
    zeta = ell + rival - jnp.sum(jnp.where(own, scores, 0.0), axis=-1)
    _factor(name, jnp.where(jnp.any(rivals, axis=-1), zeta, 0.0), cost)


def epsilon_insensitive(
    name: str, f: ArrayLike, y: ArrayLike, *, cost: ArrayLike = 1.0, epsilon: ArrayLike = 0.1
) -> None:
    r"""Support vector regression's loss, :math:`\exp\{-2c\,(|y - f| - \epsilon)_+\}` per datum.

    It is the product of two hinges, ``(f - y - epsilon)_+`` and ``(y - f - epsilon)_+``, so the augmented reading
    has two ``omega`` per datum (a last axis of size 2).

    :param name: name of the factor.
    :param f: the predictions, any shape.
    :param y: the targets, of a shape that broadcasts with ``f``.
    :param cost: ``c``, positive.
    :param epsilon: half the width of the tube, non-negative.

    **Example**

    >>> from numpyro.infer.util import log_density
    >>> from regbayes.models import epsilon_insensitive
    >>> float(log_density(lambda: epsilon_insensitive("tube", 1.0, 2.5, epsilon=0.5), (), {}, {})[0])
    -2.0
    """
    check_positive(cost=cost)
    check_positive(strict=False, epsilon=epsilon)
    f, y = jnp.asarray(f), jnp.asarray(y)
    _check_broadcast(name, f=f, y=y, cost=cost, epsilon=epsilon)
    residual = f - y
    _factor(name, jnp.stack([residual - epsilon, -residual - epsilon], axis=-1), cost, event_dim=1)


class augment(Messenger):
    r"""Handler for the augmented reading: every max-margin factor gains a site ``<name>_omega``.

    ``omega`` has the law :class:`~regbayes.models.HingeOmega` given the factor's ``zeta``; together with the factor
    it makes the scale mixture :math:`(2\pi\omega)^{-1/2}\exp\{-(\omega + c\zeta)^2/(2\omega)\}`, whose integral over
    ``omega`` is the marginal factor. A ``scale`` (or subsampling plate) around the factor multiplies the cost.

    **Example**

    >>> import jax.numpy as jnp
    >>> from numpyro.handlers import seed, trace
    >>> from regbayes.models import augment, svm
    >>> X, y = jnp.array([[0.0, 1.0], [1.0, 0.5], [-1.0, 2.0]]), jnp.array([0, 1, 1])
    >>> list(trace(seed(augment(svm), 0)).get_trace(X, y))
    ['eta', 'margin', 'margin_omega']
    """

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        margin = msg["infer"].get(MARGIN) if msg["type"] == "sample" else None
        if margin is None:
            return
        factor_scale = 1.0 if msg["scale"] is None else jnp.asarray(msg["scale"])
        zeta, event_dim = margin["zeta"], margin["event_dim"]
        cost = _align(jnp.asarray(margin["cost"]) * factor_scale, event_dim)
        # The power s of a factor is a cost s c; omega's own density must not be raised to it.
        with scale(scale=1.0 / factor_scale):
            numpyro.sample(f"{msg['name']}_omega", HingeOmega(cost * jnp.abs(zeta)).to_event(event_dim))


class temper(scale):
    """Handler for the tempered reading: every log density of the program times ``beta``.

    As ``beta`` grows the posterior concentrates on the small-variance limit of the same program. For a Gaussian
    prior and a margin factor it is the program with ``prior_scale / sqrt(beta)`` and ``beta cost``.

    :param fn: the program.
    :param beta: the inverse temperature, positive.

    **Example**

    >>> from regbayes.models import svm, temper
    >>> cold = temper(svm, beta=100.0)
    """

    def __init__(self, fn: Callable | None = None, beta: ArrayLike = 1.0) -> None:
        super().__init__(fn, scale=beta)


class _Margin(dict):
    """Equal to itself alone: JAX compares what its traces carry, and arrays of an earlier trace cannot be."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


def _factor(name: str, zeta: ArrayLike, cost: ArrayLike, event_dim: int = 0) -> None:
    """``numpyro.factor`` of the summed hinges, with ``zeta`` left where :class:`augment` finds it."""
    loss = jnp.maximum(zeta, 0.0).sum(axis=tuple(range(-event_dim, 0)))
    unit = Unit(-2 * cost * loss)
    margin = _Margin(zeta=zeta, cost=cost, event_dim=event_dim)
    numpyro.sample(name, unit, obs=unit.sample(None), infer={"is_auxiliary": True, MARGIN: margin})


def _align(value: Any, event_dim: int) -> Any:
    """Append axes so that a per-datum value broadcasts against per-datum events."""
    return jnp.reshape(value, jnp.shape(value) + (1,) * event_dim)


def _check_broadcast(name: str, **arrays: ArrayLike) -> None:
    shapes = [jnp.shape(array) for array in arrays.values()]
    try:
        jnp.broadcast_shapes(*shapes)
    except ValueError:
        found = " and ".join(f"{key} of shape {shape}" for key, shape in zip(arrays, shapes, strict=True))
        raise ValueError(f"factor {name!r}: found {found}; give one value per datum in each") from None


def _check_signs(name: str, y: ArrayLike) -> None:
    if is_concrete(y) and not np.all(np.abs(np.asarray(y)) == 1):
        found = ", ".join(map(str, np.unique(np.asarray(y))[:5].tolist()))
        raise ValueError(f"factor {name!r}: found y {found}; signs must be -1 or 1: give 2 * y - 1 for labels 0 and 1")


def _check_range(name: str, y: ArrayLike, num_classes: int) -> None:
    if is_concrete(y) and np.size(y):
        low, high = np.min(np.asarray(y)), np.max(np.asarray(y))  # NumPy's: JAX would trace them under jit
        if low < 0 or high >= num_classes:
            raise ValueError(f"factor {name!r}: found y from {low} to {high}; labels must lie in 0..{num_classes - 1}")
