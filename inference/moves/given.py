"""Conditionals that take the program's data and settings as one object."""

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def given(prepare: Callable) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let a conditional take one object, ``prepare(z, *args, **kwargs)``, in place of the program's arguments.

    ``fn(k, omega, z, prepared)``, the row and the augmentation variable where there are any, becomes
    ``(k, omega, z, *args, **kwargs)``, as moves call conditionals.
    """

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        num_first = len(inspect.signature(fn).parameters) - 1

        @functools.wraps(fn)
        def conditional(*call, **settings) -> T:
            first, args = call[:num_first], call[num_first:]
            return fn(*first, prepare(first[-1], *args, **settings))

        return conditional

    return decorate
