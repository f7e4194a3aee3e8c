"""Moves: the steps of a kernel, each leaving the marginal program invariant.

A move owns sites of the program and redraws them given the rest. Its functions are called like the program itself,
with the current sites in front: for ``def program(X, y, *, cost=1.0)`` a conditional is
``def conditional(rest, X, y, *, cost)``, and defaults that the caller left out are filled in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.distributions import Distribution

from ...models import InformationNormal
from .target import Sites, Target

Conditionals: TypeAlias = Distribution | dict[str, Distribution]
"""What a conditional returns: one Distribution, or one per site where the move owns several."""


class Move(ABC):
    """One step of a kernel.

    :param sites: the site, or the sites, it owns.
    :param name: how reports call it.
    :param covered_by: for what :func:`~regbayes.diagnostics.conformance` cannot reach: the test that covers it.
    :param when: of the program's sites: whether the move is meant for it, by their shapes. A move whose sites are
        not all there is left out in any case where ``when`` is given, so one kernel serves a program's variants.
    """

    num_keys: int = 1
    """How many random keys a step takes. On a CPU a split costs as much as many draws: the kernel makes one."""
    branches: bool = False
    """Whether a step takes one of several ways, of which chains side by side would take all."""

    def __init__(
        self,
        sites: str | Sequence[str],
        *,
        name: str | None = None,
        covered_by: str = "",
        when: Callable[[Sites], bool] | None = None,
    ) -> None:
        self.sites: tuple[str, ...] = (sites,) if isinstance(sites, str) else tuple(sites)
        if not self.sites or not all(isinstance(site, str) for site in self.sites):
            raise ValueError(f"sites must be a site's name or several, found {sites!r}")
        self.name = name or f"{type(self).__name__}({', '.join(self.sites)})"
        self.covered_by, self.when = covered_by, when

    def likeness(self) -> dict[str, Any]:
        """What tells it from other moves of its class: kernels of equal moves share what is compiled."""
        return vars(self)

    def applies(self, z: Sites) -> bool:
        """Whether the move is meant for a program with the sites ``z``."""
        return self.when is None or (all(site in z for site in self.sites) and self.when(z))

    def validate(self, z: Sites, target: Target) -> None:
        """Raise a ``ValueError`` if the move does not fit the program; called once, at a draw ``z`` of the prior."""

    def setup(self, z: Sites, target: Target) -> dict[str, jax.Array]:
        """Constants of the move, computed once when the kernel is initialised and kept in its state."""
        return {}

    def start(self, key: jax.Array, z: Sites, tuning: dict[str, jax.Array]) -> Sites:
        """Where the owned sites start, unless the caller says; by default at the prior's draw in ``z``."""
        return {site: z[site] for site in self.sites}

    @abstractmethod
    def step(
        self, keys: jax.Array, z: Sites, log_joint: jax.Array | None, target: Target, tuning: dict[str, jax.Array]
    ) -> tuple[Sites, jax.Array | None] | tuple[Sites, jax.Array | None, jax.Array]:
        """The new sites, and the program's log joint there if the move happens to know it.

        A move over a padded buffer adds whether the buffer was too small for it.

        :param keys: :attr:`num_keys` random keys.
        :param z: the kernel's sites.
        :param log_joint: the program's log joint at ``z``, if the move before knew it.
        :param target: the program and its arguments.
        :param tuning: what :meth:`setup` returned.
        """

    def discrepancies(
        self, key: jax.Array, z: Sites, target: Target, tuning: dict[str, jax.Array]
    ) -> tuple[jax.Array, jax.Array] | None:
        """Both sides of the identity that makes the move right, evaluated at random values of the owned sites.

        The two arrays must agree. ``None``: there is no such identity, and :attr:`covered_by` says what stands in.
        """
        return None

    def rest(self, z: Sites, target: Target) -> Sites:
        """Every site the move does not own."""
        return {site: value for site, value in {**target.given, **z}.items() if site not in self.sites}


class Conditional(Move):
    """Draw the owned sites from their conditional given the rest: a Gibbs step.

    :param sites: the site, or the sites, owned.
    :param conditional: ``(rest, *args, **kwargs) -> Distribution``, or a dict of them, independent given the rest,
        when several sites are owned. With ``rows`` it is ``(k, z, *args, **kwargs)``, the conditional of row ``k``.
    :param rows: visit the rows of the (single) site one after the other. ``z`` then holds the site too, its row
        ``k`` not to be read.
    :param axis: along which the rows are counted.
    :param when: see :class:`Move`.

    A draw that comes out non-finite (a factorisation that failed in single precision) leaves the sites where they
    are. Whether it fails depends on what the draw is conditioned on alone, so the step stays invariant.

    **Example**: the mean of a Gaussian.

    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from regbayes.inference import Conditional, MoveKernel
    >>> def program(x):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("x", dist.Normal(mu, 1.0).expand([len(x)]).to_event(1), obs=x)
    >>> def mu_given_x(rest, x):
    ...     return dist.Normal(x.sum() / (len(x) + 1), (len(x) + 1) ** -0.5)
    >>> kernel = MoveKernel(program, [Conditional("mu", mu_given_x)])
    >>> from regbayes.diagnostics import conformance
    >>> conformance(kernel, jnp.arange(3.0), verbose=False).max_error < 1e-8
    True
    """

    num_keys = 2
    augmentation: Callable[..., Distribution] | None = None
    overrelaxation: float = 0.0

    def __init__(
        self,
        sites: str | Sequence[str],
        conditional: Callable[..., Conditionals],
        *,
        rows: bool = False,
        axis: int = 0,
        name: str | None = None,
        when: Callable[[Sites], bool] | None = None,
    ) -> None:
        super().__init__(sites, name=name, when=when)
        if rows and len(self.sites) != 1:
            raise ValueError(f"rows visits the rows of one site, found sites {self.sites}")
        self.conditional, self.rows, self.axis = conditional, rows, axis

    def step(self, keys, z, log_joint, target, tuning):
        if not self.rows:
            return self._move(keys, z, target, None), None
        rows = z[self.sites[0]].shape[self.axis]
        keys = random.split(keys[0], (rows, 2))
        return lax.fori_loop(0, rows, lambda k, z: self._move(keys[k], z, target, k), z), None

    def _move(self, keys: jax.Array, z: Sites, target: Target, k: Any) -> Sites:
        """Redraw the owned sites, or their row ``k``."""
        key_omega, key_sites = keys
        omega = None if self.augmentation is None else self._augment(z, target, k).sample(key_omega)
        law, old = self._law(omega, z, target, k), self._block(z, k)
        new = _sample(key_sites, law, self.sites)
        if self.overrelaxation:
            new = _overrelax(law, old, new, self.overrelaxation)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in new.values()]))
        return self._replace(z, {site: jnp.where(finite, new[site], old[site]) for site in new}, k)

    def _block(self, z: Sites, k: Any) -> Sites:
        """The owned sites, or their row ``k``."""
        return {site: z[site] if k is None else jnp.take(z[site], k, self.axis) for site in self.sites}

    def _replace(self, z: Sites, new: Sites, k: Any) -> Sites:
        """The sites with the owned ones, or their row ``k``, replaced."""
        row = (slice(None),) * self.axis + (k,)
        return {**z, **{site: value if k is None else z[site].at[row].set(value) for site, value in new.items()}}

    def _augment(self, z: Sites, target: Target, k: Any) -> Distribution:
        """The law of the augmentation variable given every site."""
        assert self.augmentation is not None
        return target.call(self.augmentation, *([] if k is None else [k]), {**target.given, **z})

    def _law(self, omega: Any, z: Sites, target: Target, k: Any) -> Conditionals:
        """The law of the owned sites, or of their row ``k``, given the rest and the augmentation variable."""
        first = [] if self.augmentation is None else [omega]
        if k is None:
            return target.call(self.conditional, *first, self.rest(z, target))
        return target.call(self.conditional, k, *first, {**target.given, **z})

    def discrepancies(self, key, z, target, tuning):
        """``log q(a|rest) - log q(b|rest)`` against ``log p(a, rest) - log p(b, rest)``, row by row if need be."""
        if not self.rows:
            return self._identity(key, z, target, None)
        rows = z[self.sites[0]].shape[self.axis]
        return lax.map(
            lambda row: self._identity(row[0], z, target, row[1]), (random.split(key, rows), jnp.arange(rows))
        )

    def _identity(self, key: jax.Array, z: Sites, target: Target, k: Any) -> tuple[jax.Array, jax.Array]:
        key_omega, key_sites = random.split(key)
        omega = None if self.augmentation is None else self._augment(z, target, k).sample(key_omega)
        law = self._law(omega, z, target, k)
        a, b = self._block(z, k), _sample(key_sites, law, self.sites)
        claimed = _log_prob(law, a, self.sites) - _log_prob(law, b, self.sites)

        def log_density(z: Sites) -> jax.Array:
            log_joint = target.log_joint(z)
            return log_joint if omega is None else log_joint + self._augment(z, target, k).log_prob(omega).sum()

        return claimed, difference(log_density, z, self._replace(z, b, k))


class Augmented(Conditional):
    """Draw an augmentation variable, then the owned sites given it, then forget it.

    The pair (sites, variable) has the density of the program times ``augmentation``, which integrates to the
    program; so the step leaves the program invariant, and nothing of the variable outlives it.

    :param sites: the site, or the sites, owned.
    :param augmentation: ``(z, *args, **kwargs) -> Distribution`` of the variable given every site.
    :param conditional: ``(omega, rest, *args, **kwargs) -> Distribution`` of the sites given the variable.
    :param rows: visit the rows of the (single) site one after the other: ``augmentation(k, z, ...)`` and
        ``conditional(k, omega, z, ...)``, where row ``k`` of ``z`` is not to be read by the latter.
    :param axis: along which the rows are counted.
    :param when: see :class:`Move`.
    :param overrelaxation: for a Gaussian conditional, how far its draw leans away from the old value, in [0, 1):
        ``m - o (x - m) + sqrt(1 - o^2) e`` leaves ``N(m, V)`` invariant as the independent draw ``m + e`` does
        (Adler, 1981), and undoes most of the correlation that the augmentation brings. 0 is the plain scheme.

    **Example**: see the source of :func:`regbayes.inference.svm_augmentation`.
    """

    def __init__(
        self,
        sites: str | Sequence[str],
        augmentation: Callable[..., Distribution],
        conditional: Callable[..., Conditionals],
        *,
        rows: bool = False,
        axis: int = 0,
        overrelaxation: float = 0.0,
        name: str | None = None,
        when: Callable[[Sites], bool] | None = None,
    ) -> None:
        super().__init__(sites, conditional, rows=rows, axis=axis, name=name, when=when)
        if not 0 <= overrelaxation < 1:
            raise ValueError(f"overrelaxation must lie in [0, 1), found {overrelaxation}")
        self.augmentation, self.overrelaxation = augmentation, overrelaxation


class CommonShift(Move):
    """Redraw the mean of a site's rows, their differences fixed.

    For losses that see only the differences between rows, as between the scores of classes: what is left of the
    mean's conditional is its prior, and row by row it would hardly ever move.

    :param site: the site, (..., rows, d).
    :param law: ``(z, *args, **kwargs) -> Distribution`` of the mean of the rows, given their differences.
    :param when: see :class:`Move`.
    """

    def __init__(
        self,
        site: str,
        law: Callable[..., Distribution],
        *,
        name: str | None = None,
        when: Callable[[Sites], bool] | None = None,
    ) -> None:
        super().__init__(site, name=name, when=when)
        self.law = law

    def _shifted(self, z: Sites, mean: jax.Array) -> Sites:
        (site,) = self.sites
        return {**z, site: z[site] + (mean - z[site].mean(-2))[..., None, :]}

    def step(self, keys, z, log_joint, target, tuning):
        return self._shifted(z, target.call(self.law, {**target.given, **z}).sample(keys[0])), None

    def discrepancies(self, key, z, target, tuning):
        """As for a conditional, with two means of the rows for the two values."""
        law = target.call(self.law, {**target.given, **z})
        a, b = z[self.sites[0]].mean(-2), law.sample(key)
        actual = difference(target.log_joint, self._shifted(z, a), self._shifted(z, b))
        return (law.log_prob(a) - law.log_prob(b))[None], actual[None]


def difference(function: Callable[[Any], jax.Array], a: Any, b: Any) -> jax.Array:
    """``function(a) - function(b)``, the function compiled once."""
    first, second = lax.map(function, jax.tree.map(lambda *pair: jnp.stack(pair), a, b))
    return first - second


def _sample(key: jax.Array, law: Conditionals, sites: Sequence[str]) -> Sites:
    laws, keys = _laws(law, sites), [key] if len(sites) == 1 else random.split(key, len(sites))
    return {site: laws[site].sample(key) for site, key in zip(sites, keys, strict=True)}


def _overrelax(law: Conditionals, old: Sites, new: Sites, overrelaxation: float) -> Sites:
    """Turn independent draws of Gaussian laws into over-relaxed ones."""
    laws = _laws(law, tuple(new))
    if bad := [site for site, law in laws.items() if not isinstance(law, InformationNormal)]:
        raise ValueError(f"overrelaxation needs an InformationNormal conditional, found another for sites {bad}")
    mean = {site: laws[site].mean for site in new}
    keep = (1 - overrelaxation**2) ** 0.5
    return {s: mean[s] - overrelaxation * (old[s] - mean[s]) + keep * (new[s] - mean[s]) for s in new}


def _log_prob(law: Conditionals, values: Sites, sites: Sequence[str]) -> jax.Array:
    laws = _laws(law, sites)
    return sum((laws[site].log_prob(values[site]).sum() for site in sites), start=jnp.zeros(()))


def _laws(law: Conditionals, sites: Sequence[str]) -> dict[str, Distribution]:
    laws = law if isinstance(law, dict) else {sites[0]: law}
    if set(laws) != set(sites):
        raise ValueError(f"a conditional must return one Distribution for each of {list(sites)}, found {list(laws)}")
    return laws
