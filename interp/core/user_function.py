"""User-supplied functions as declarations: names, and a hash of what they compute."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from interp.core.errors import OptionError

_LAMBDA = "<lambda>"
_NAME = re.compile(r"[A-Za-z_][\w-]*")  # must be readable in "name:option=value,option=value"
DIGITS = 8  # digits of a hash in a name
_DEEP = 12  # depth of nested objects that a hash follows
_PLAIN = (bool, int, float, complex, str, bytes, range, type(...))
_FIELDS = {
    types.ModuleType: ("__name__",),
    types.CodeType: ("co_code", "co_consts", "co_names", "co_varnames", "co_freevars"),
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
}
PREDICATE = "(query, key), (query, key, tokens) or (query, key, segments)"
_LIBRARIES = ("interp", "torch", "numpy")  # identified by their versions


def is_registered(function: Any) -> bool:
    """Return True if a function is declared in this package, where folders are the registry."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == "interp"


def require_registrable(function: Callable) -> None:
    """Check that a function of this package has a docstring.

    A user-supplied function, in a script, a module, a notebook or a file given by path, is used as
    an object, and its name and docstring are free.
    """
    if is_registered(function) and not function.__doc__:
        raise TypeError(
            f"{function.__name__}: it has no docstring, which is its help text; write one"
        )


def name_of(function: Callable, name: str | None = None) -> str:
    """Return the name of a declared function in tables.

    It is the function's own name unless `name` is given. A lambda, a `functools.partial` or a
    callable object has no distinctive name: it is named after its type and a hash of what it
    computes, such as `lambda_3f9c21aa`, so that the results of two of them are never confused.
    """
    if name is None:
        known = getattr(function, "__name__", None)
        if known is not None and known != _LAMBDA:
            return known
        kind = "lambda" if known else type(function).__name__
        return f"{kind}_{digest(function)[:DIGITS]}"
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"name={name!r} cannot be the name of a metric; use letters, digits, _ and -, and"
            " begin with a letter"
        )
    return name


def predicate_inputs(function: Callable, name: str) -> tuple[str, ...]:
    """Return what a predicate takes after query and key, in order: "tokens", "segments".

    A parameter named `segments` is given the segments of the prompt, another one the tokens.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{name}: {function!r} is not a function whose parameters can be read; a detector is a"
            f" function of {PREDICATE}"
        ) from error
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p for p in parameters if p.kind in places]
    names = [p.name for p in taken]
    several = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    swapped = names[:2] == ["key", "query"] or {"tokens", "segments"} & set(names[:2])
    # A third parameter with a default may be an option that lacks the `*` before it; passing
    # tokens to it would give meaningless numbers.
    inputs = tuple("segments" if p.name == "segments" else "tokens" for p in taken[2:])
    option = [p.name for p in taken[2:] if p.default is not p.empty and p.name not in inputs]
    if option:
        raise OptionError(
            f"{name}: write options after a star, (query, key, *, {option[0]}=...); a third"
            " parameter is given the tokens"
        )
    if several or swapped or len(taken) < 2 or len(set(inputs)) < len(inputs):
        raise OptionError(
            f"{name}: a detector is a function of {PREDICATE}, in this order, with options after a"
            f" star; this one takes ({', '.join(names)})"
        )
    return inputs


def digest(function: Any) -> str:
    """Compute a hexadecimal hash of what a function computes.

    It covers code, constants, defaults, closure values and the globals that the code names, and the
    same of functions among these. Lambdas that differ only in a captured variable therefore have
    different hashes. The hash depends on the version of Python.
    """
    state = hashlib.sha256()
    _add(state, function, frozenset())
    return state.hexdigest()


def _add(state: Any, x: Any, seen: frozenset[int]) -> None:
    """Add a value to a hash; a value nested inside itself is not followed again."""
    kind = type(x)
    state.update(f"({kind.__module__}.{kind.__qualname__} ".encode())
    if x is None or isinstance(x, _PLAIN):
        state.update(repr(x).encode())
    elif id(x) in seen:
        state.update(b"again")
    elif hasattr(x, "__array__"):  # a numpy array or a tensor of torch
        import numpy as np

        array = np.ascontiguousarray(np.asarray(x.detach().cpu() if hasattr(x, "detach") else x))
        state.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    else:
        for part in _parts(x, deep=len(seen) >= _DEEP):
            _add(state, part, seen | {id(x)})
    state.update(b")")


def _parts(x: Any, deep: bool) -> Iterator[Any]:
    """Yield the contents of a value that can change what a function computes with it."""
    fields = next((names for kind, names in _FIELDS.items() if isinstance(x, kind)), None)
    if fields is not None:
        yield from (getattr(x, name) for name in fields)
    elif isinstance(x, types.FunctionType):
        yield from (x.__code__, x.__defaults__, x.__kwdefaults__)
        yield from map(_inside, x.__closure__ or ())
        if str(x.__module__).partition(".")[0] not in _LIBRARIES:
            yield {n: x.__globals__[n] for n in _globals_of(x.__code__, x.__globals__)}
    elif isinstance(x, Mapping):
        yield from sorted(((repr(k), v) for k, v in x.items()), key=_first)
    elif isinstance(x, (set, frozenset)):
        yield sorted(map(digest, x))
    elif isinstance(x, (tuple, list)):
        yield from x
    elif isinstance(x, type):
        yield f"{x.__module__}.{x.__qualname__}"
        if x.__module__ == "__main__":
            yield {n: v for n, v in vars(x).items() if isinstance(v, types.FunctionType)}
    else:
        yield type(x)
        # A model is identified by its class: its weights are not part of a declaration.
        if not hasattr(x, "state_dict") and not deep:
            yield getattr(x, "__dict__", {})


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return None


def _globals_of(code: types.CodeType, known: Mapping[str, Any]) -> list[str]:
    """Return the globals that code names, in itself or in functions defined inside it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    names = {n for n in code.co_names if n in known}
    return sorted(names.union(*(_globals_of(c, known) for c in inner)))
