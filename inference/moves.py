"""Moves: the steps of a kernel, each leaving the marginal program invariant.

A move owns sites of the program and redraws them given the rest. Its functions are called like the program itself,
with the current sites in front: for ``def program(X, y, *, cost=1.0)`` a conditional is
``def conditional(rest, X, y, *, cost)``, and defaults that the caller left out are filled in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution

from .target import Sites, Target

Conditionals = Distribution | dict[str, Distribution]
"""What a conditional returns: one Distribution, or one per site where the move owns several."""


class Move(ABC):
    """One step of a kernel.

    :param sites: the site, or the sites, it owns.
    :param name: how reports call it.
    :param covered_by: for what :func:`~regbayes.diagnostics.conformance` cannot reach: the test that covers it.
    """

    def __init__(self, sites: str | Sequence[str], *, name: str | None = None, covered_by: str = "") -> None:
        self.sites: tuple[str, ...] = (sites,) if isinstance(sites, str) else tuple(sites)
        if not self.sites or not all(isinstance(site, str) for site in self.sites):
            raise ValueError(f"sites must be a site's name or several, found {sites!r}")
        self.name = name or f"{type(self).__name__}({', '.join(self.sites)})"
        self.covered_by = covered_by

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
        self, key: jax.Array, z: Sites, log_joint: jax.Array | None, target: Target, tuning: dict[str, jax.Array]
    ) -> tuple[Sites, jax.Array | None]:
        """The new sites, and the program's log joint there if the move happens to know it."""

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

    augmentation: Callable[..., Distribution] | None = None

    def __init__(
        self,
        sites: str | Sequence[str],
        conditional: Callable[..., Conditionals],
        *,
        rows: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(sites, name=name)
        if rows and len(self.sites) != 1:
            raise ValueError(f"rows visits the rows of one site, found sites {self.sites}")
        self.conditional, self.rows = conditional, rows

    def step(self, key, z, log_joint, target, tuning):
        if not self.rows:
            return self._move(key, z, target, None), None
        rows = z[self.sites[0]].shape[0]
        return lax.fori_loop(0, rows, lambda k, z: self._move(random.fold_in(key, k), z, target, k), z), None

    def _move(self, key: jax.Array, z: Sites, target: Target, k: Any) -> Sites:
        """Redraw the owned sites, or their row ``k``."""
        key_omega, key_sites = random.split(key)
        omega = None if self.augmentation is None else self._augment(z, target, k).sample(key_omega)
        new, old = _sample(key_sites, self._law(omega, z, target, k), self.sites), _block(z, self.sites, k)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in new.values()]))
        return _replace(z, {site: jnp.where(finite, new[site], old[site]) for site in new}, k)

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
        ks: list[Any] = list(range(z[self.sites[0]].shape[0])) if self.rows else [None]
        sides = [self._identity(random.fold_in(key, i), z, target, k) for i, k in enumerate(ks)]
        claimed, actual = zip(*sides, strict=True)
        return jnp.stack(claimed), jnp.stack(actual)

    def _identity(self, key: jax.Array, z: Sites, target: Target, k: Any) -> tuple[jax.Array, jax.Array]:
        key_omega, key_sites = random.split(key)
        omega = None if self.augmentation is None else self._augment(z, target, k).sample(key_omega)
        law = self._law(omega, z, target, k)
        a, b = _block(z, self.sites, k), _sample(key_sites, law, self.sites)
        claimed = _log_prob(law, a, self.sites) - _log_prob(law, b, self.sites)

        def log_density(z: Sites) -> jax.Array:
            log_joint = target.log_joint(z)
            return log_joint if omega is None else log_joint + self._augment(z, target, k).log_prob(omega).sum()

        return claimed, log_density(z) - log_density(_replace(z, b, k))


class Augmented(Conditional):
    """Draw an augmentation variable, then the owned sites given it, then forget it.

    The pair (sites, variable) has the density of the program times ``augmentation``, which integrates to the
    program; so the step leaves the program invariant, and nothing of the variable outlives it.

    :param sites: the site, or the sites, owned.
    :param augmentation: ``(z, *args, **kwargs) -> Distribution`` of the variable given every site.
    :param conditional: ``(omega, rest, *args, **kwargs) -> Distribution`` of the sites given the variable.
    :param rows: visit the rows of the (single) site one after the other: ``augmentation(k, z, ...)`` and
        ``conditional(k, omega, z, ...)``, where row ``k`` of ``z`` is not to be read by the latter.

    **Example**: see the source of :func:`regbayes.inference.svm_augmentation`.
    """

    def __init__(
        self,
        sites: str | Sequence[str],
        augmentation: Callable[..., Distribution],
        conditional: Callable[..., Conditionals],
        *,
        rows: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(sites, conditional, rows=rows, name=name)
        self.augmentation = augmentation


class EllipticalSlice(Move):
    r"""Generalised elliptical slice sampling of one site whose posterior is near-Gaussian.

    The target is split into a Student-t reference around a Gaussian fit and the ratio that is left,
    :math:`p(x) = t_\kappa(x; m, LL')\,R(x)`. Given the scale :math:`s` of the t, an ellipse through the current
    point is drawn from :math:`N(m, sLL')` and a point on it is accepted when :math:`\log R` lies above a uniform
    slice. Rejections shrink the bracket; every step moves. The heavier tails of the t bring back a chain that
    started far out. The fit enters once, when the kernel is initialised: any fit is exact, a good one is fast.

    :param site: the site owned.
    :param fit: ``(z, *args, **kwargs) -> (mean, scale_tril)``, the Gaussian fit of the flattened site: (D,) and (D, D).
    :param degrees_of_freedom: of the t, :math:`\kappa`.

    **References**

    1. *Elliptical slice sampling*, Murray, Adams and MacKay, AISTATS (2010).
    2. *Parallel MCMC with generalized elliptical slice sampling*, Nishihara, Murray and Adams, JMLR 15 (2014).
    """

    def __init__(
        self,
        site: str,
        fit: Callable[..., tuple[jax.Array, jax.Array]],
        *,
        degrees_of_freedom: float = 30.0,
        covered_by: str = "",
        name: str | None = None,
    ) -> None:
        super().__init__(site, name=name, covered_by=covered_by)
        self.fit, self.degrees_of_freedom = fit, degrees_of_freedom

    def setup(self, z, target):
        mean, scale_tril = target.call(self.fit, {**target.given, **z})
        return {"mean": mean, "scale_tril": scale_tril}

    def start(self, key, z, tuning):
        flat, unravel = ravel_pytree(z[self.sites[0]])
        return {self.sites[0]: unravel(self._reference(tuning).sample(key).astype(flat.dtype))}

    def _reference(self, tuning: dict[str, jax.Array]) -> Distribution:
        return dist.MultivariateStudentT(self.degrees_of_freedom, tuning["mean"], tuning["scale_tril"])

    def _scale(self, u: jax.Array) -> dist.InverseGamma:
        """The t's scale given the whitened point: conjugate inverse gamma."""
        kappa = self.degrees_of_freedom
        return dist.InverseGamma((kappa + u.size) / 2, (kappa + u @ u) / 2)

    def _log_reference(self, u: jax.Array) -> jax.Array:
        """Log density of the t at the whitened point, up to a constant."""
        kappa = self.degrees_of_freedom
        return -(kappa + u.size) / 2 * jnp.log1p(u @ u / kappa)

    def step(self, key, z, log_joint, target, tuning):
        (site,) = self.sites
        mean, scale_tril = tuning["mean"], tuning["scale_tril"]
        x, unravel = ravel_pytree(z[site])
        key_scale, key_ellipse, key_slice, key_angle, key_shrink = random.split(key, 5)
        u = lax.linalg.triangular_solve(scale_tril, (x - mean)[:, None], left_side=True, lower=True)[:, 0]
        v = jnp.sqrt(self._scale(u).sample(key_scale)) * random.normal(key_ellipse, u.shape, u.dtype)
        x_axis, v_axis = x - mean, scale_tril @ v

        def on_ellipse(angle: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            cos, sin = jnp.cos(angle), jnp.sin(angle)
            x = mean + cos * x_axis + sin * v_axis
            log_joint = target.log_joint({**z, site: unravel(x)})
            return x, log_joint, log_joint - self._log_reference(cos * u + sin * v)

        if log_joint is None:
            log_joint = target.log_joint(z)
        height = log_joint - self._log_reference(u) - random.exponential(key_slice, dtype=u.dtype)
        angle = random.uniform(key_angle, (), u.dtype, 0.0, 2 * jnp.pi)

        def shrink(carry: tuple) -> tuple:
            i, low, high, angle, *_ = carry
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            angle = random.uniform(random.fold_in(key_shrink, i), (), u.dtype, low, high)
            return i + 1, low, high, angle, *on_ellipse(angle)

        # A bracket shrunk to nothing has come back to the current point: stop there.
        def rejected(carry: tuple) -> jax.Array:
            i, low, high, *_, log_ratio = carry
            return ~(log_ratio > height) & (i < MAX_SHRINKS)

        first = (0, angle - 2 * jnp.pi, angle, angle, *on_ellipse(angle))
        i, _, _, _, x_new, log_joint_new, _ = lax.while_loop(rejected, shrink, first)
        moved = i < MAX_SHRINKS
        value = jnp.where(moved, x_new, x)
        return {**z, site: unravel(value)}, jnp.where(moved, log_joint_new, log_joint)

    def discrepancies(self, key, z, target, tuning):
        """The t's scale mixture, and ``log R + log t = log p`` for the ratio the slice compares."""
        (site,) = self.sites
        key_point, key_scale = random.split(key)
        reference, (_, unravel) = self._reference(tuning), ravel_pytree(z[site])
        points = reference.sample(key_point, (2,))
        white = [jnp.linalg.solve(tuning["scale_tril"], x - tuning["mean"]) for x in points]
        log_joints = [target.log_joint({**z, site: unravel(x)}) for x in points]
        ratios = [log_joint - self._log_reference(u) for log_joint, u in zip(log_joints, white, strict=True)]
        split = ratios[0] - ratios[1] + reference.log_prob(points[0]) - reference.log_prob(points[1])
        kappa, u = self.degrees_of_freedom, white[0]
        scale = self._scale(u).sample(key_scale)
        given_scale = dist.Normal(0.0, jnp.sqrt(scale)).expand(u.shape).to_event(1).log_prob(u)
        mixture = given_scale + dist.InverseGamma(kappa / 2, kappa / 2).log_prob(scale) - self._scale(u).log_prob(scale)
        white_reference = dist.MultivariateStudentT(kappa, jnp.zeros_like(u), jnp.eye(u.size, dtype=u.dtype))
        claimed = jnp.stack([split, mixture])
        return claimed, jnp.stack([log_joints[0] - log_joints[1], white_reference.log_prob(u)])


MAX_SHRINKS = 100
"""Shrinking halves the bracket on average; a hundred shrinks are beyond any float."""


def _block(z: Sites, sites: Sequence[str], k: Any) -> Sites:
    """The owned sites, or their row ``k``."""
    return {site: z[site] if k is None else z[site][k] for site in sites}


def _replace(z: Sites, new: Sites, k: Any) -> Sites:
    """The sites with the owned ones, or their row ``k``, replaced."""
    return {**z, **{site: value if k is None else z[site].at[k].set(value) for site, value in new.items()}}


def _sample(key: jax.Array, law: Conditionals, sites: Sequence[str]) -> Sites:
    laws = _laws(law, sites)
    return {site: laws[site].sample(random.fold_in(key, i)) for i, site in enumerate(sites)}


def _log_prob(law: Conditionals, values: Sites, sites: Sequence[str]) -> jax.Array:
    laws = _laws(law, sites)
    return sum((laws[site].log_prob(values[site]).sum() for site in sites), start=jnp.zeros(()))


def _laws(law: Conditionals, sites: Sequence[str]) -> dict[str, Distribution]:
    laws = law if isinstance(law, dict) else {sites[0]: law}
    if set(laws) != set(sites):
        raise ValueError(f"a conditional must return one Distribution for each of {list(sites)}, found {list(laws)}")
    return laws
