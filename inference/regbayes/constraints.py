r"""Convex functions of posterior expectations, for :class:`.RegBayes`: what each charges, and its conjugate [1].

**Which way an inequality points.** A constraint is a function ``g`` of ``E = E_q[psi]``, and every one-sided constraint
asks ``E`` to be *small*: :class:`Hinge` asks ``E <= 0`` and charges ``C`` for each unit above, :class:`Inequality` asks
``E <= upper`` and takes no less. For "at least" negate ``psi``: a margin ``E_q[y f(x)] >= ell`` is
``Hinge(lambda sites: ell - y * f(sites), C)``.

The posterior is the program times ``exp(<phi, psi>)``. Its multipliers ``mu = -phi`` maximise a concave function less
the conjugate ``g*(mu) = sup_E <mu, E> - g(E)``, so ``phi <= 0`` wherever ``E`` is asked to be small.

References:

1. *Bayesian inference with posterior regularization and applications to infinite latent SVMs*, J. Zhu, N. Chen and
   E. P. Xing, JMLR (2014), section 3.3
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from jax.typing import ArrayLike

from ...models.laws.arguments import check_positive

Array = np.ndarray
OUTSIDE = 1e-9  # of a conjugate's domain, relative to its size: rounding


@dataclasses.dataclass(frozen=True, eq=False)
class Constraint(ABC):
    """What all constraints share; they differ in how far ``E`` is from what is asked, and in what that costs.

    :param psi: ``psi(sites, ...)``, an array: a function of the program's latent and deterministic sites by name and,
        where it has more arguments, of the program's arguments of the same names.
    :param name: how errors, results and the factor ``<name>_tilt`` of the tilted program call it.
    """

    psi: Callable[..., ArrayLike]
    name: str = dataclasses.field(default="", kw_only=True)
    hard: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.psi):
            raise ValueError(f"psi must be a function of the sites, found {self.psi!r}")
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be a non-empty string, found {self.name!r}")
        for field, value in self.settings.items():
            if field in ("C", "epsilon"):
                check_positive(strict=field == "C", **{field: value})
            elif not np.all(np.isfinite(value)):
                raise ValueError(f"{field} of the constraint {self.name!r} must be finite, found {value}")

    @property
    def settings(self) -> dict[str, Array]:
        """The numbers beside ``psi``."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("psi", "name")]
        return {name: np.asarray(getattr(self, name), float) for name in names}

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a ``psi`` whose shape the settings do not fit."""
        for field, value in self.settings.items():
            if not _fits(value.shape, shape):
                raise ValueError(
                    f"psi of the constraint {self.name!r} has shape {shape}, to which {field} of shape {value.shape} "
                    "does not broadcast; return one entry per constraint"
                )

    @abstractmethod
    def slack(self, E: Array) -> Array:
        """By how much each expectation is off what is asked; 0 if it is not."""

    def value(self, E: Array) -> float:
        """``g(E)``: the price of the slacks, or what is hard."""
        slack = self.slack(E)
        if self.hard:
            return np.inf if np.any(slack > 0) else 0.0
        return float(np.sum(self.settings["C"] * slack))

    @abstractmethod
    def conjugate(self, mu: Array) -> float:
        """``g*(mu)``; infinite outside its domain."""

    @abstractmethod
    def prox(self, mu: Array, step: ArrayLike) -> Array:
        """The maximiser of ``-g*(nu) - |nu - mu|^2 / (2 step)``."""

    def project(self, mu: Array) -> Array:
        """The nearest point of the domain of ``g*``."""
        return self.prox(mu, 0.0)

    def gap(self, E: Array, mu: Array) -> float:
        """``g(E) + g*(mu) - <mu, E>``: 0 where both are optimal, positive elsewhere."""
        return self.value(E) + self.conjugate(mu) - float(np.sum(mu * E))

    def steps(self, variance: Array) -> Array:
        """Curvatures that a step may use, from those of single entries: equal where :meth:`prox` couples entries."""
        return variance


@dataclasses.dataclass(frozen=True, eq=False)
class Hinge(Constraint):
    """``g(E) = C sum max(0, E)``: asks ``E_q[psi] <= 0`` (Lemma 9).

    :param C: the price of a unit, a number or one for each entry of ``psi``.

    >>> import numpy as np
    >>> margin = Hinge(lambda sites, X, y: 1 - (2 * y - 1) * (X @ sites["eta"]), C=2.0)
    >>> margin.value(np.array([-1.0, 0.5])), margin.project(np.array([-1.0, 0.5, 3.0]))
    (1.0, array([0. , 0.5, 2. ]))
    """

    C: ArrayLike = 1.0
    name: str = dataclasses.field(default="hinge", kw_only=True)

    def slack(self, E: Array) -> Array:
        return np.maximum(0.0, E)

    def conjugate(self, mu: Array) -> float:
        return _indicator(mu, self.project(mu), self.C)

    def prox(self, mu: Array, step: ArrayLike) -> Array:
        return np.clip(mu, 0.0, self.C)


@dataclasses.dataclass(frozen=True, eq=False)
class MaxHinge(Constraint):
    """``g(E) = C sum_i max_k E_ik``: asks the largest of each row of ``E_q[psi]`` to be small (Lemma 10).

    With ``psi_ik = ell 1[k != y_i] + s_ik - s_iy_i`` it is the multi-class hinge of the expected scores ``s``.

    :param psi: returns (..., L).
    :param C: the price of a unit, a number or one for each row (...).

    >>> import numpy as np
    >>> margin = MaxHinge(lambda sites: sites["scores"], C=2.0)
    >>> margin.value(np.array([[0.0, 1.0], [0.0, -1.0]])), margin.project(np.array([[1.0, 1.5]]))
    (2.0, array([[0.75, 1.25]]))
    """

    C: ArrayLike = 1.0
    name: str = dataclasses.field(default="max_hinge", kw_only=True)

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) < 1:
            raise ValueError(f"psi of the constraint {self.name!r} must have shape (..., L), found {shape}")
        super().check(shape[:-1])

    def slack(self, E: Array) -> Array:
        """(...), the largest of each row."""
        return np.max(E, axis=-1)

    def conjugate(self, mu: Array) -> float:
        return _indicator(mu, self.project(mu), np.asarray(self.C)[..., None])

    def prox(self, mu: Array, step: ArrayLike) -> Array:
        """The rows' projections onto ``{mu >= 0, sum_k mu_k = C}``: a threshold off the largest entries."""
        C = np.broadcast_to(self.C, mu.shape[:-1])[..., None]
        ordered = -np.sort(-mu, axis=-1)
        threshold = (np.cumsum(ordered, axis=-1) - C) / np.arange(1, mu.shape[-1] + 1)
        kept = np.sum(ordered > threshold, axis=-1, keepdims=True)
        return np.maximum(mu - np.take_along_axis(threshold, kept - 1, axis=-1), 0.0)

    def steps(self, variance: Array) -> Array:
        return np.broadcast_to(np.max(variance, axis=-1, keepdims=True), variance.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class EpsilonInsensitive(Constraint):
    """``g(E) = C sum max(0, |E - y| - epsilon)``: asks ``E_q[psi]`` to be within ``epsilon`` of ``y`` (Lemma 11).

    >>> import numpy as np
    >>> fit = EpsilonInsensitive(lambda sites, X: X @ sites["eta"], np.array([1.0, 2.0]), epsilon=0.25, C=2.0)
    >>> fit.value(np.array([1.125, 1.25]))
    1.0
    """

    y: ArrayLike = 0.0
    epsilon: ArrayLike = 0.0
    C: ArrayLike = 1.0
    name: str = dataclasses.field(default="epsilon_insensitive", kw_only=True)

    def slack(self, E: Array) -> Array:
        return np.maximum(0.0, np.abs(E - self.y) - self.epsilon)

    def conjugate(self, mu: Array) -> float:
        finite = float(np.sum(mu * self.y + self.epsilon * np.abs(mu)))
        return finite + _indicator(mu, self.project(mu), self.C)

    def prox(self, mu: Array, step: ArrayLike) -> Array:
        moved = mu - step * np.asarray(self.y)
        shrunk = np.sign(moved) * np.maximum(np.abs(moved) - step * np.asarray(self.epsilon), 0.0)
        return np.clip(shrunk, -np.asarray(self.C), self.C)


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic(Constraint):
    """``g(E) = C/2 sum (E - target)^2``: asks ``E_q[psi]`` to be near ``target``.

    >>> import numpy as np
    >>> Quadratic(lambda sites: sites["mu"], target=1.0, C=3.0).value(np.array([1.0, 3.0]))
    6.0
    """

    target: ArrayLike = 0.0
    C: ArrayLike = 1.0
    name: str = dataclasses.field(default="quadratic", kw_only=True)

    def slack(self, E: Array) -> Array:
        return np.abs(E - self.target)

    def value(self, E: Array) -> float:
        return float(np.sum(self.C * self.slack(E) ** 2) / 2)

    def conjugate(self, mu: Array) -> float:
        return float(np.sum(mu * self.target + mu**2 / (2 * np.asarray(self.C))))

    def prox(self, mu: Array, step: ArrayLike) -> Array:
        return (mu - step * np.asarray(self.target)) / (1 + step / np.asarray(self.C))


@dataclasses.dataclass(frozen=True, eq=False)
class Equality(Constraint):
    """Demands ``E_q[psi] = target``.

    >>> import numpy as np
    >>> balance = Equality(lambda sites, X: X @ sites["eta"], 0.0, name="balance")
    >>> balance.value(np.array([0.0])), balance.value(np.array([0.1]))
    (0.0, inf)
    """

    target: ArrayLike = 0.0
    name: str = dataclasses.field(default="equality", kw_only=True)
    hard = True

    def slack(self, E: Array) -> Array:
        return np.abs(E - self.target)

    def conjugate(self, mu: Array) -> float:
        return float(np.sum(mu * self.target))

    def prox(self, mu: Array, step: ArrayLike) -> Array:
        return mu - step * np.asarray(self.target)

    def gap(self, E: Array, mu: Array) -> float:
        """What it costs, to first order, to bring ``E`` to the target."""
        return float(np.sum(np.abs(mu * (E - self.target))))


@dataclasses.dataclass(frozen=True, eq=False)
class Inequality(Constraint):
    """Demands ``E_q[psi] <= upper``.

    >>> import numpy as np
    >>> size = Inequality(lambda sites: (sites["z"] == 0).sum(), upper=10.0, name="size")
    >>> size.value(np.array(9.0)), size.value(np.array(11.0))
    (0.0, inf)
    """

    upper: ArrayLike = 0.0
    name: str = dataclasses.field(default="inequality", kw_only=True)
    hard = True

    def slack(self, E: Array) -> Array:
        return np.maximum(0.0, E - self.upper)

    def conjugate(self, mu: Array) -> float:
        return float(np.sum(mu * self.upper)) + _indicator(mu, self.project(mu), 1.0)

    def prox(self, mu: Array, step: ArrayLike) -> Array:
        return np.maximum(mu - step * np.asarray(self.upper), 0.0)

    def gap(self, E: Array, mu: Array) -> float:
        """What it costs, to first order, to bring ``E`` to the bound, from above or, where ``mu`` holds it, below."""
        return float(np.sum(np.abs(mu * (E - self.upper))))


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        return False


def _indicator(mu: Array, nearest: Array, size: ArrayLike) -> float:
    """0 in the domain, infinity outside."""
    return np.inf if np.any(np.abs(mu - nearest) > OUTSIDE * (1 + np.abs(size))) else 0.0
