"""Descents by whole updates, each taken only where it lowers the objective, over clusters or features."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from .descent import ROUNDING

S = TypeVar("S")  # a state, with the number ``num`` of its clusters or features


class Improvement(ABC, Generic[S]):
    """A descent from a state; ``observe(update, descent)`` is called after every single update.

    :param most: clusters or features, at most.
    """

    def __init__(self, state: S, most: float, observe: Callable[[str, Any], None] | None):
        self.state, self.most, self.observe, self.overflow = state, most, observe, False
        self.objective = self.value(state)
        self.trace = [self.objective]

    @abstractmethod
    def value(self, state: S) -> float:
        """``J``."""

    @abstractmethod
    def updates(self) -> Iterable[tuple[str, S]]:
        """The updates of an iteration that keep the clusters or features, each of the state as it then is."""

    @abstractmethod
    def renumber(self) -> bool:
        """One change of the number of clusters or features, if some change lowers the objective."""

    def accept(self, update: str, state: S) -> bool:
        """Take the state if its objective is lower."""
        found = self.value(state)
        if not found < self.objective - ROUNDING * abs(self.objective):
            return False
        if state.num > max(self.most, self.state.num):  # type: ignore[attr-defined]
            self.overflow = True
            return False
        self.state, self.objective = state, found
        self.trace.append(found)
        if self.observe is not None:
            self.observe(update, self)
        return True

    def settle(self, max_iter: int, tol: float) -> tuple[int, bool]:
        """Iterations, and whether they settled, at the clusters or features there are."""
        for n_iter in range(1, max_iter + 1):
            before = self.objective
            for update, state in self.updates():
                self.accept(update, state)
            if before - self.objective <= tol * self.objective:
                return n_iter, True
        return max_iter, False

    def run(self, max_iter: int, tol: float) -> tuple[int, bool]:
        """Iterations, and whether the objective settled."""
        n_iter, settled = 0, False
        while not settled and n_iter < max_iter:
            more, settled = self.settle(max_iter - n_iter, tol)
            n_iter += more
            settled = settled and not self.renumber()
        return n_iter, settled
