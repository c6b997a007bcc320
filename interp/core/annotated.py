"""Values as annotations have them: whether they fit, what they mean, and the types in words.

A value that does not fit is converted where its meaning is clear: one value for a list of them, a
list for an array, 4.0 for 4, a name for an object of the package that `READERS` reads.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from interp.core.errors import InterpError
from interp.core.head import Head

UNFIT = object()
"""What `converted` returns for a value that means nothing as a type."""
READERS: dict[str, Callable[[Any], Any]] = {f"{Head.__module__}:Head": Head.parse}
"""What reads a value that denotes an object of a class, by the class (`module:name`)."""
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    PathLike: "a path",
    type(None): "None",
    None: "None",
}


@dataclass(frozen=True)
class _Kind:
    """Kind of types: functions of a value, or of the type alone, and of the type's parts."""

    of: Callable[[Any], bool]
    fits: Callable[[Any, Any, tuple[Any, ...]], bool]
    converted: Callable[[Any, Any, tuple[Any, ...]], Any] = lambda value, base, inner: UNFIT
    in_words: Callable[[Any, tuple[Any, ...]], str] = lambda base, inner: _named(base)


def fits(value: Any, hint: Any) -> bool:
    """Return True for a value of a type, as a type checker sees it."""
    kind, base, inner = _parts(hint)
    return kind.fits(value, base, inner)


def converted(value: Any, hint: Any) -> Any:
    """Return what a value means as a type, or `UNFIT`."""
    kind, base, inner = _parts(hint)
    return value if kind.fits(value, base, inner) else kind.converted(value, base, inner)


def in_words(hint: Any) -> str:
    """Return a type in words."""
    kind, base, inner = _parts(hint)
    return _WORDS[base] if base in _WORDS else kind.in_words(base, inner)


def value_in_words(value: Any) -> str:
    """Return in words what a value is."""
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:60] + '…'!r}"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, Real):
        return f"the number {value}"
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        kinds = sorted({type(each).__name__ for each in value})
        return f"a {type(value).__name__} of {len(value)} ({', '.join(kinds) or 'empty'})"
    return _named(type(value))


def _named(kind: Any) -> str:
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


@cache
def _parts(hint: Any) -> tuple[_Kind, Any, tuple[Any, ...]]:
    base, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    return next(kind for kind in _KINDS if kind.of(base)), base, inner


def _one_of(value: Any, _: Any, inner: tuple[Any, ...]) -> Any:
    """Return what a value means as the first member of a union that it fits."""
    if isinstance(value, str) and _takes_path_or_several(inner):
        return UNFIT  # the name of a file, or one of several texts
    wrong = None
    for each in inner:
        try:
            result = converted(value, each)
        except InterpError as error:
            wrong = error
        else:
            if result is not UNFIT:
                return result
    if wrong is not None:
        raise wrong
    return UNFIT


def _takes_path_or_several(inner: tuple[Any, ...]) -> bool:
    several = [each for each in inner if _parts(each)[0].fits is _are_several]
    return Path in inner and str not in inner and bool(several)


def _either_words(base: Any, inner: tuple[Any, ...]) -> str:
    words = list(map(in_words, inner))
    if _takes_path_or_several(inner):
        words[inner.index(Path)] = "a pathlib.Path"
    return " or ".join(dict.fromkeys(words))


def _is_number(value: Any, base: Any, _: tuple[Any, ...]) -> bool:
    return isinstance(value, base) and not isinstance(value, bool)


def _number(value: Any, base: Any, inner: tuple[Any, ...]) -> Any:
    """Return a number of another type, a fraction without a rest, or an array of one number."""
    if getattr(value, "shape", None) == () and not isinstance(value, Real):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return UNFIT
    if base is float or isinstance(value, Integral):
        return base(value)
    return int(float(value)) if float(value).is_integer() else UNFIT


def _in_class(value: Any, base: Any, _: tuple[Any, ...]) -> bool:
    return isinstance(value, base)


def _read(value: Any, base: Any, _: tuple[Any, ...]) -> Any:
    """Return the object of a class that a value denotes."""
    if base is Path and isinstance(value, str):
        return Path(value)
    if base is bool and type(value).__name__ == "bool_":  # of numpy
        return bool(value)
    read = READERS.get(f"{base.__module__}:{base.__qualname__}")
    return UNFIT if read is None else read(value)


def _has_members(value: Any, base: Any, _: tuple[Any, ...]) -> bool:
    kinds = [kind for kind in base.__mro__ if getattr(kind, "_is_protocol", False)]
    names = {n for kind in kinds for n in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    known = dir(value)
    return all(n in known for n in names if not n.startswith("_") or n == "__call__")


def _are_pairs(value: Any, base: Any, inner: tuple[Any, ...]) -> bool:
    return isinstance(value, base) and (
        not inner or all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    )


def _pairs(value: Any, base: Any, inner: tuple[Any, ...]) -> Any:
    """Return a dictionary of converted keys and values."""
    if not inner or not isinstance(value, Mapping):
        return UNFIT
    pairs = {converted(k, inner[0]): converted(v, inner[1]) for k, v in value.items()}
    return UNFIT if any(x is UNFIT for pair in pairs.items() for x in pair) else pairs


def _each(base: Any, inner: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Return the type of each of n values; as many as a tuple has where that is another number."""
    if base is tuple and inner and inner[-1] is not Ellipsis:
        return inner
    return (inner[0] if inner else Any,) * n


def _are_several(value: Any, base: Any, inner: tuple[Any, ...]) -> bool:
    if hasattr(value, "dtype") and base not in (list, tuple):  # an array or tensor, not a number
        return bool(getattr(value, "shape", ()))
    if not isinstance(value, base) or isinstance(value, (str, bytes, Mapping)):
        return False
    if not isinstance(value, (list, tuple, set, frozenset)):
        return True  # an iterator is read once, by the function
    kinds = _each(base, inner, len(value))
    return len(kinds) == len(value) and all(map(fits, value, kinds))


def _several(value: Any, base: Any, inner: tuple[Any, ...]) -> Any:
    """Return a list of values, each converted; a single value is a list of one."""
    alone = isinstance(value, (str, PathLike)) or not isinstance(value, (Iterable, bytes))
    if alone and (isinstance(value, (str, PathLike)) or (inner and inner[0] is not Any)):
        value = [value]
    elif alone or isinstance(value, (bytes, Mapping)):
        return UNFIT
    values: list[Any] = list(value)  # pyright: ignore[reportArgumentType]
    kinds = _each(base, inner, len(values))
    if len(kinds) != len(values):
        return UNFIT
    converted_values = [converted(each, kind) for each, kind in zip(values, kinds, strict=True)]
    return (
        UNFIT
        if any(x is UNFIT for x in converted_values)
        else converted_values
        if base is list
        else tuple(converted_values)
    )


def _several_words(base: Any, inner: tuple[Any, ...]) -> str:
    if base is tuple and len(inner) > 1 and Ellipsis not in inner:
        return f"a tuple of {len(inner)} ({', '.join(map(in_words, inner))})"
    return f"a list (each {in_words(inner[0])})" if inner and inner[0] is not Any else "a list"


def _array(value: Any, base: Any, _: tuple[Any, ...]) -> Any:
    """Return nested lists of numbers, or a tensor where an array is taken, as an array."""
    import numpy as np

    if not issubclass(base.array_type, np.ndarray):
        return UNFIT
    if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
        return UNFIT
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return UNFIT
    return array if array.dtype.kind in "biuf" else UNFIT


def _collects(base: Any) -> bool:
    ours = base.__module__ in ("builtins", "collections.abc")
    return ours and issubclass(base, Iterable) and base not in (str, bytes)


_KINDS = (
    _Kind(
        lambda base: base in (types.UnionType, typing.Union),
        lambda value, base, inner: any(fits(value, each) for each in inner),
        _one_of,
        _either_words,
    ),
    _Kind(
        lambda base: base is typing.Literal,
        lambda value, base, inner: any(type(value) is type(x) and value == x for x in inner),
        in_words=lambda base, inner: " or ".join(map(repr, inner)),
    ),
    _Kind(lambda base: base is None, lambda value, base, inner: value is None),
    _Kind(  # an array of jaxtyping: its shape is the function's to check
        lambda base: hasattr(base, "array_type"),
        lambda value, base, inner: isinstance(value, base.array_type),
        _array,
        lambda base, inner: f"an array of numbers ({base.dim_str.strip()})",
    ),
    _Kind(
        lambda base: base in (Any, object) or not isinstance(base, type),
        lambda value, base, inner: True,
    ),
    _Kind(lambda base: base in (int, float), _is_number, _number),
    _Kind(
        lambda base: base is Callable,
        lambda value, base, inner: callable(value),
        in_words=lambda base, inner: "a function",
    ),
    _Kind(lambda base: getattr(base, "_is_protocol", False), _has_members, _read),
    _Kind(
        lambda base: issubclass(base, Mapping),
        _are_pairs,
        _pairs,
        lambda base, inner: (
            f"a mapping of {' to '.join(map(in_words, inner))}" if inner else ("a mapping")
        ),
    ),
    _Kind(_collects, _are_several, _several, _several_words),
    _Kind(lambda base: True, _in_class, _read),
)
