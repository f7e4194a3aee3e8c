"""Is a kernel right? The identity every move must satisfy, evaluated against the program itself."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import random

from ..inference.engine.compiled import over_rows
from ..inference.engine.kernel import MoveKernel
from ..inference.engine.move import Move
from ..inference.engine.target import Sites, Target, prior_draw

TOLERANCE = 1e-8


@dataclass(frozen=True)
class Row:
    """What was found for one move.

    :param move: the move's name.
    :param sites: the sites it owns.
    :param error: the largest relative error of its identity; NaN where it has none.
    :param num_checked: at how many values the identity was evaluated.
    :param covered_by: the test that covers what the identity cannot reach.
    """

    move: str
    sites: tuple[str, ...]
    error: float
    num_checked: int
    covered_by: str

    @property
    def reached(self) -> bool:
        """Whether the identity reaches this move."""
        return self.num_checked > 0

    @property
    def ok(self) -> bool:
        """Whether the identity holds to 1e-8; a NaN is no."""
        return bool(self.error <= TOLERANCE)


@dataclass(frozen=True)
class Report:
    """The rows of :func:`conformance`; ``print`` shows them as a table."""

    kernel: str
    rows: tuple[Row, ...]

    @property
    def max_error(self) -> float:
        """The largest relative error over the moves that the identity reaches; NaN if it reaches none."""
        errors = [row.error for row in self.rows if row.reached]
        return float(np.max(errors)) if errors else float("nan")

    @property
    def ok(self) -> bool:
        """Whether every move that can be checked is right, and none is left without a check or a test."""
        return all(row.ok if row.reached else bool(row.covered_by) for row in self.rows)

    def __str__(self) -> str:
        width = max(len(row.move) for row in self.rows)
        lines = [f"conformance of {self.kernel} (float64)", f"{'move':<{width}}  {'checked':>7}  {'error':>8}"]
        for row in self.rows:
            error = f"{row.error:8.1e}" if row.reached else "       -"
            verdict = ("ok" if row.ok else "WRONG") if row.reached else "not reached by the identity"
            tail = f"; invariance covered by {row.covered_by}" if row.covered_by else ""
            tail = tail or ("" if row.reached else "; no test named")
            lines.append(f"{row.move:<{width}}  {row.num_checked:>7}  {error}  {verdict}{tail}")
        return "\n".join(lines)


def conformance(
    kernel: MoveKernel, *args: Any, seed: int = 0, num_states: int = 5, verbose: bool = True, **kwargs: Any
) -> Report:
    r"""Check every move of a kernel against its program, in float64.

    For a conditional the check is an identity, not a statistic: for any two values of the owned sites,
    :math:`\log q(a|r) - \log q(b|r) = \log p(a, r) - \log p(b, r)`, with :math:`p` the program's density (times the
    law of the augmentation variable, for an augmented move). A slice move is checked for the ratio it compares.
    Moves that no identity reaches are listed by name with the test that covers them.

    :param kernel: the kernel.
    :param args: the program's arguments.
    :param seed: seed of the random states.
    :param num_states: at how many states, drawn from the prior, each move is checked.
    :param verbose: print the table.
    :param kwargs: the program's keyword arguments.
    :return: a report with ``max_error`` and one row per move.

    **Example**

    >>> import regbayes
    >>> from regbayes.diagnostics import conformance
    >>> entry = regbayes.zoo["svm"]
    >>> args, kwargs = entry.example()
    >>> conformance(entry.kernels["augmentation"](), *args, verbose=False, **kwargs).max_error < 1e-8
    True
    """
    if not isinstance(kernel, MoveKernel):
        raise ValueError(f"kernel must be a MoveKernel, found {type(kernel).__name__}: only moves can be checked")
    with jax.enable_x64(True):
        args, kwargs = jax.tree.map(_double, (args, kwargs))
        moves = kernel.check(kernel.target(args, kwargs))
        args, kwargs = kernel.arguments(args, kwargs)
        keys = jax.vmap(random.split)(random.split(random.key(seed), num_states))
        states = over_rows(partial(prior_draw, kernel.model), keys[:, 0], *args, **kwargs)
        names = kernel.owned(jax.tree.map(lambda leaf: leaf[0], states))
        rows = keys[:, 1], {site: states[site] for site in names}
        sides = [over_rows(partial(_both_sides, kernel.model, move), rows, *args, **kwargs) for move in moves]
    report = Report(kernel.name, tuple(map(_row, moves, sides)))
    if verbose:
        print(report)
    return report


def _both_sides(
    model: Callable, move: Move, keyed: tuple[jax.Array, Sites], /, *args: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array] | None:
    """Of the identity that makes the move right, at a state."""
    (key, z), target = keyed, Target(model, inspect.signature(model), args, kwargs)
    return move.discrepancies(key, z, target, move.setup(z, target))


def _row(move: Move, sides: tuple[jax.Array, jax.Array] | None) -> Row:
    if sides is None:
        return Row(move.name, move.sites, float("nan"), 0, move.covered_by)
    claimed, actual = (np.ravel(side) for side in sides)
    errors = np.abs(claimed - actual) / np.maximum(1.0, np.abs(actual))
    return Row(move.name, move.sites, float(np.max(errors)), len(errors), move.covered_by)


def _double(leaf: Any) -> Any:
    """Floating arrays as copies in float64, everything else as it is.

    JAX remembers a NumPy array by its identity, in the precision in which it first saw it: the caller's own array must
    not be seen here, or later runs in single precision would be given this one's double.
    """
    is_array = isinstance(leaf, np.ndarray | np.generic | jax.Array) and np.issubdtype(leaf.dtype, np.floating)
    return np.array(leaf, dtype=np.float64) if is_array else leaf
