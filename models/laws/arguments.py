"""What the programs ask of their arguments, said before anything compiles.

Values are looked at only where they are known: an argument traced by JAX was checked when the kernel was
initialised with the same, then concrete, argument.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

_counted: ContextVar[dict[str, int] | None] = ContextVar("counted", default=None)


class NeedsValues(ValueError):
    """An argument is traced, and the program wants to see its values."""


@contextlib.contextmanager
def counting() -> Iterator[dict[str, int]]:
    """The sizes, by the names of their arguments, that programs count in data meanwhile: classes in labels, say."""
    found: dict[str, int] = {}
    token = _counted.set(found)
    try:
        yield found
    finally:
        _counted.reset(token)


def counted(name: str, size: int) -> int:
    """``size``, for :func:`counting` to know."""
    if (found := _counted.get()) is not None:
        found[name] = int(size)
    return size


def check_positive(*, strict: bool = True, **values: ArrayLike) -> None:
    """Refuse a hyper-parameter that is not a positive (or, not strictly, a non-negative) finite number.

    >>> check_positive(cost=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: cost must be positive and finite, found -1.0
    """
    for name, value in values.items():
        if not is_concrete(value):
            continue
        array = np.asarray(value)
        if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"{name} must be a number, found {value!r}")
        bad = ~np.isfinite(array) | ((array <= 0) if strict else (array < 0))
        if bad.any():
            kind = "positive" if strict else "non-negative"
            raise ValueError(f"{name} must be {kind} and finite, found {float(array[bad].flat[0])}")


def hyper(name: str, value: ArrayLike | Distribution) -> jax.Array:
    """A hyper-parameter: the value given, or a site where a prior was given."""
    if isinstance(value, Distribution):
        return numpyro.sample(name, value)
    check_positive(strict=True, **{name: value})
    return jnp.asarray(value, jnp.result_type(float))


def check_features(X: ArrayLike, *, intercept: bool = False) -> jax.Array:
    """``X`` as a finite, non-empty (n, d) array of floats, with a constant 1 appended for an intercept."""
    shape = _shape("X", X)
    if len(shape) != 2:
        raise ValueError(f"X must have shape (n, d), found shape {shape}; one row per datum")
    if 0 in shape:
        raise ValueError(f"X must have at least one row and one column, found shape {shape}")
    _check_numeric("X", X)
    X = _as_float(X)
    _check_finite("X", X)
    return jnp.concatenate([X, jnp.ones_like(X[:, :1])], axis=1) if intercept else X


def check_num_classes(num_classes: int | None) -> None:
    """Refuse a number of classes that is not a whole number of at least 2; None stands for not given."""
    if num_classes is not None and (not isinstance(num_classes, int | np.integer) or num_classes < 2):
        raise ValueError(f"num_classes must be an integer of at least 2, found {num_classes!r}")


def check_slots(slots: int, name: str = "max_clusters") -> None:
    """Refuse a buffer that cannot hold a cluster, or a feature."""
    if not isinstance(slots, int | np.integer) or slots < 1:
        raise ValueError(f"{name} must be a positive integer, found {slots!r}")


def check_labels(y: ArrayLike, n: int, num_classes: int | None = None) -> tuple[jax.Array, int]:
    """``y`` as (n,) integers in ``0..L-1`` and ``L``; without ``num_classes`` every class must occur."""
    check_num_classes(num_classes)
    _check_length("y", y, n)
    if not (np.issubdtype(_dtype(y), np.integer) or _dtype(y) == np.bool_):
        raise ValueError(f"y must hold integer labels 0..L-1, found dtype {_dtype(y)}; encode the classes as integers")
    if not is_concrete(y):
        if num_classes is None:
            raise NeedsValues("y is traced, so its classes cannot be counted; give num_classes")
        return jnp.asarray(y, dtype=jnp.int32), num_classes
    found = np.unique(np.asarray(y))
    if len(found) < 2:
        raise ValueError(f"y holds a single class, {found[0]}; a classifier needs at least two")
    limit = int(found[-1]) + 1 if num_classes is None else num_classes
    if found[0] < 0 or found[-1] >= limit or (num_classes is None and len(found) != limit):
        wanted = f"0..{limit - 1}" if num_classes is not None else "0..L-1, each class present"
        hint = "" if num_classes is not None or found[0] < 0 else f" (or give num_classes={limit})"
        raise ValueError(f"y must hold labels {wanted}, found {_some(found)}; relabel them{hint}")
    return jnp.asarray(y, dtype=jnp.int32), counted("num_classes", limit)


def check_targets(y: ArrayLike, n: int) -> jax.Array:
    """``y`` as (n,) finite floats."""
    _check_length("y", y, n)
    _check_numeric("y", y)
    y = _as_float(y)
    _check_finite("y", y)
    return y


def is_concrete(value: Any) -> bool:
    """Whether the value can be looked at: neither traced nor spread over other processes."""
    return not isinstance(value, jax.core.Tracer) and getattr(value, "is_fully_addressable", True)


def _dtype(value: ArrayLike) -> np.dtype:
    return np.dtype(value.dtype) if hasattr(value, "dtype") else np.asarray(value).dtype


def _as_float(value: ArrayLike) -> jax.Array:
    """In the array's own float type, which JAX cuts to single precision unless it is told otherwise."""
    # What is known stays known while JAX traces. What single precision cannot hold becomes infinite, and is refused.
    known = jax.ensure_compile_time_eval() if is_concrete(value) else contextlib.nullcontext()
    with known, np.errstate(over="ignore"):
        value = jnp.asarray(value)
    wide = value.dtype in (jnp.float32, jnp.float64)
    return value if wide else value.astype(jnp.result_type(float))


def _shape(name: str, value: ArrayLike) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array, found rows of different lengths") from None


def _check_length(name: str, value: ArrayLike, n: int) -> None:
    shape = _shape(name, value)
    if shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one entry per row of X, found shape {shape}")


def _check_numeric(name: str, value: ArrayLike) -> None:
    dtype = _dtype(value)
    if not (np.issubdtype(dtype, np.floating) or np.issubdtype(dtype, np.integer) or dtype == np.bool_):
        raise ValueError(f"{name} must be real numbers, found dtype {dtype}; convert it first")


def _check_finite(name: str, value: jax.Array) -> None:
    if not is_concrete(value):
        return
    array = np.asarray(value)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(index) for index in bad[0])
        raise ValueError(f"{name} must be finite, found {array[where]} at {where} and {len(bad)} such entries in all")


def _some(values: np.ndarray, most: int = 10) -> str:
    text = ", ".join(str(value) for value in values[:most])
    return text + (", ..." if len(values) > most else "")
