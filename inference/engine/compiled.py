"""What is compiled, kept for the life of the process: equal kernels and equal shapes share it.

Everything that is compiled takes its arguments apart: arrays and real numbers are traced, whatever shapes the program
(whole numbers, words, functions) is part of the key. So a new kernel of the same options on new data of equal shape
compiles nothing.
"""

import collections
import contextlib
import ctypes
import functools
import gc
import hashlib
import pathlib
from collections.abc import Callable, Hashable
from types import CodeType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.core import trace_state_clean

from ...models.laws.arguments import NeedsValues, is_concrete

NEEDS_VALUES = (
    NeedsValues,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What a program raises that cannot do with traced arguments."""

MAPS = pathlib.Path("/proc/self/maps")
MANY_MAPS = 30_000
"""Linux gives a process 65,530 memory maps, of which a compiled kernel keeps up to two thousand; beyond them XLA
crashes."""
MOST_KEPT = 128
"""Compiled functions that are kept, those used last."""

_kept: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()


def shared(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make`` made for an equal key, or makes now."""
    if key not in _kept:
        _kept[key] = make()
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def make_room(many: int | None = None) -> None:
    """Let go of compiled code if there is much of it; what runs, and what a caller holds, stays.

    :param many: memory maps; :data:`MANY_MAPS` by default.

    >>> make_room()
    """
    many = MANY_MAPS if many is None else many
    if not trace_state_clean() or not MAPS.exists() or MAPS.read_bytes().count(b"\n") <= many:
        return
    _kept.clear()
    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc would keep what is freed
        ctypes.CDLL(None).malloc_trim(0)


def by_level(run: Callable[["Arguments"], Any], arguments: tuple[tuple, dict[str, Any]], too_early: set) -> Any:
    """``run`` of arguments apart, as many of them traced as it can do with.

    :param too_early: where those arguments and levels are kept at which it looked at values.
    """
    for level in range(3):
        apart = Arguments(arguments, level)
        if level < 2 and (apart, level) in too_early:
            continue
        try:
            return run(apart)
        except NEEDS_VALUES:
            if level == 2:
                raise
            too_early.add((apart, level))
    raise AssertionError


class _OverRows:
    """A function of rows and arguments, compiled for all that are like it."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.too_early: set[tuple[Arguments, int]] = set()
        self.run = jax.jit(self._run, static_argnums=0)

    def _run(self, arguments: "Arguments", leaves: list, rows: Any) -> Any:
        args, kwargs = arguments.with_leaves(leaves)
        return lax.map(lambda row: self.function(row, *args, **kwargs), rows)


def over_rows(function: Callable, rows: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``function(row, *args, **kwargs)`` of each row, one after the other; compiled once for what is alike.

    :param function: it should not be made around data: what it is made around is part of the key.

    >>> over_rows(lambda row, scale: scale * row, jnp.arange(3.0), 2.0)
    Array([0., 2., 4.], dtype=float32)
    """
    code = shared(("over rows", likeness(function)), lambda: _OverRows(function))
    return by_level(lambda apart: code.run(apart, apart.leaves, rows), (args, kwargs), code.too_early)


class _Same:
    """An object that is like itself alone; the key keeps it alive, so that its place is not taken by another."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def likeness(value: Any, _above: tuple[int, ...] = ()) -> Hashable:
    """Equal for what compiles to the same: numbers, arrays and options by value, functions by their definition.

    Two functions are alike if one ``def`` made both, around alike values. What a function of a script or a notebook
    reads from there, where cells are run again, must be alike too; what one of a module reads from its module is not
    looked at.
    """
    if isinstance(value, bool | int | float | complex | str | bytes | None | type):
        return type(value), value
    if id(value) in _above:
        return "above", _above.index(id(value))
    above = (*_above, id(value))
    inner = functools.partial(likeness, _above=above)
    if isinstance(value, functools.partial):
        return "partial", inner(value.func), *map(inner, value.args), *_items(value.keywords, inner)
    if hasattr(value, "__func__"):
        return "method", inner(value.__func__), inner(value.__self__)
    if hasattr(value, "__code__"):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        inside = [inner(cell) if not isinstance(cell, list | dict | set) else _Same(cell) for cell in cells]
        defaults = [inner(default) for default in value.__defaults__ or ()]
        names = _names(value.__code__) & value.__globals__.keys() if value.__module__ == "__main__" else ()
        used = {name: value.__globals__[name] for name in names}
        rest = {**(value.__kwdefaults__ or {}), **used}
        return "function", _Same(value.__code__), *inside, *defaults, *_items(rest, inner)
    if _is_array(value):
        return "array", value.shape, str(value.dtype), digest(np.asarray(value))
    if isinstance(value, tuple | list):
        return type(value), *map(inner, value)
    if isinstance(value, dict):
        return "dict", *_items(value, inner)
    leaves, tree = jax.tree.flatten(value)
    if not (len(leaves) == 1 and leaves[0] is value):  # a law, a corpus
        return cast(Hashable, type(value)), _hashable(tree), *map(inner, leaves)
    if hasattr(value, "likeness"):
        return type(value), inner(value.likeness())
    return _hashable(value) if type(value).__eq__ is not object.__eq__ else _Same(value)


def _is_array(value: Any) -> bool:
    """Whether it has numbers to look at: no tracer, no key."""
    if isinstance(value, jax.Array):
        return is_concrete(value) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)
    return isinstance(value, np.ndarray | np.generic) and value.dtype != object


def _names(code: CodeType) -> set[str]:
    """All names that a function reads from its module, functions inside it too."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _items(values: dict[Any, Any], inner: Callable[[Any], Hashable]) -> tuple:
    return tuple((key, inner(value)) for key, value in sorted(values.items(), key=lambda item: str(item[0])))


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value


def digest(array: np.ndarray) -> bytes:
    """Of an array's contents."""
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()


class Arguments:
    """A program's arguments, apart: what is traced, and the rest, by which compiled code is told apart.

    Hashable by the rest, so that it can be a static argument of ``jax.jit`` next to the traced leaves.

    :param arguments: positional and keyword arguments.
    :param level: 0 traces arrays and real numbers; 1 of arrays only those that are real, or parts of a container such
        as a corpus; 2 nothing. Programs that look at values need the later ones.
    """

    def __init__(self, arguments: tuple[tuple, dict[str, Any]], level: int = 0) -> None:
        paths, self._tree = jax.tree_util.tree_flatten_with_path(arguments)
        self.traced = tuple(_is_traced(path, leaf, level) for path, leaf in paths)
        self.leaves = [_own(leaf) for (_, leaf), traced in zip(paths, self.traced, strict=True) if traced]
        self._fixed = [None if traced else leaf for (_, leaf), traced in zip(paths, self.traced, strict=True)]
        self._key = _hashable(self._tree), self.traced, tuple(map(likeness, self._fixed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arguments) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def with_leaves(self, leaves: list) -> tuple[tuple, dict[str, Any]]:
        """The arguments with other values of what is traced."""
        values = iter(leaves)
        both = zip(self.traced, self._fixed, strict=True)
        return jax.tree.unflatten(self._tree, [next(values) if traced else leaf for traced, leaf in both])


def _is_traced(path: tuple, leaf: Any, level: int) -> bool:
    if not is_concrete(leaf):
        return True
    if level == 2:
        return False
    if isinstance(leaf, float):
        return True
    if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
        return False
    inside = any(isinstance(step, jax.tree_util.GetAttrKey) for step in path)
    is_number = np.dtype(leaf.dtype).kind in "iub" and np.ndim(leaf) > 0 if level == 0 or inside else False
    return is_number or jnp.issubdtype(leaf.dtype, jnp.floating)


def _own(leaf: Any) -> Any:
    """A copy of a NumPy array: its owner may change it while JAX, which does not wait, still reads it."""
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf
