"""Calls of public functions, whose arguments are checked before the function runs.

The annotation of a parameter is its declaration: an argument that does not fit is converted where
its meaning is clear (`interp.core.annotated`), and refused otherwise with what to give instead.
The package calls its own functions directly, without these checks.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, wraps
from numbers import Real
from pathlib import Path
from typing import Any

from interp.core.annotated import UNFIT, converted, in_words, value_in_words
from interp.core.errors import InterpError, OptionError, UnknownChoice, UnknownName

_SMALLEST = {
    "n": 1,
    "k": 1,
    "batch_size": 1,
    "max_length": 1,
    "max_tokens": 1,
    "max_evaluations": 1,
    "top": 0,
    "seed": 0,
    "layer": 0,
    "rate": 0,
    "rows": 1,
    "keys": 0,
    "queries": 0,
}
"""Smallest numbers that parameters of these names take."""


@cache
def with_checked_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that checks its arguments, and then does what the given one does."""
    signature = inspect.signature(function)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = {name: p for name, p in signature.parameters.items() if p.kind not in several}
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            raise _unbound(function.__name__, signature, options, error) from None
        for name, value in bound.arguments.items():
            parameter = taken.get(name)
            if parameter is None or value is parameter.default:
                continue
            if name not in hints:
                hints[name] = _hint(function, parameter.annotation)
            bound.arguments[name] = _argument(function.__name__, name, value, hints[name])
        torch = sys.modules.get("torch")
        if torch is not None and torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # gradients, and versions of tensors, need this
                return function(*bound.args, **bound.kwargs)
        return function(*bound.args, **bound.kwargs)

    return call


def _unbound(
    function: str, signature: inspect.Signature, options: Mapping[str, Any], error: TypeError
) -> InterpError:
    """Return the error for arguments that are too many, missing, or of another name."""
    known = list(signature.parameters)
    for name in options:
        if name not in known:
            return UnknownName(f"parameter of {function}", name, known)
    return OptionError(f"{function}: {error}; its parameters are {', '.join(known)}")


def _argument(function: str, name: str, value: Any, hint: Any) -> Any:
    """Return an argument as its parameter takes it."""
    argument = converted(value, hint)
    if argument is UNFIT and isinstance(value, str) and (choices := _choices(hint)):
        raise UnknownChoice(f"value of {name}", value, choices)
    if argument is UNFIT:
        raise OptionError(
            f"{function}: {name} must be {in_words(hint)}, and {value_in_words(value)} was given"
            f"{_remedy(hint)}"
        )
    smallest = _SMALLEST.get(name, 0 if name.startswith("n_") else None)
    if smallest is not None and isinstance(argument, Real) and argument < smallest:
        raise OptionError(f"{function}: {name} must be at least {smallest}, not {argument}")
    return argument


def _choices(hint: Any) -> list[str]:
    """Return the names among which a type chooses."""
    if typing.get_origin(hint) is typing.Literal:
        return [name for name in typing.get_args(hint) if isinstance(name, str)]
    return [name for each in typing.get_args(hint) for name in _choices(each)]


def _hint(function: Callable[..., Any], annotation: Any) -> Any:
    """Return the type that an annotation names; Any where a package that it needs is missing."""
    module = sys.modules[inspect.unwrap(function).__module__]

    class Names(dict):
        def __missing__(self, name: str) -> Any:
            if name in vars(module) or hasattr(builtins, name):
                raise KeyError(name)
            return _type_only(module, name)

    if annotation is inspect.Parameter.empty:
        return Any
    try:
        while isinstance(annotation, str):
            annotation = eval(annotation, vars(module), Names())
    except ImportError:
        return Any
    return annotation


def _type_only(module: types.ModuleType, name: str) -> Any:
    """Return what a module imports for type checkers alone."""
    for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
        for line in node.body if isinstance(node, ast.If) else ():
            names = [a.asname or a.name for a in getattr(line, "names", ())]
            names += [ast.unparse(x) for x in getattr(line, "targets", ())]
            if name in names:
                scope = dict(vars(module))
                exec(ast.unparse(line), scope)
                return scope[name]
    raise KeyError(name)


def _remedy(hint: Any) -> str:
    """Return where objects of the package that a type names come from; empty for other types."""
    inner = typing.get_args(hint)
    if inner:
        return next((remedy for remedy in map(_remedy, inner) if remedy), "")
    if not isinstance(hint, type) or not hint.__module__.startswith("interp."):
        return ""
    sources = _sources(hint.__name__)[:2]
    return f"; {' and '.join(sources)} return{'s' * (len(sources) == 1)} one" if sources else ""


@cache
def _sources(name: str) -> list[str]:
    """Return the public functions whose annotation says that they return a class."""
    import interp

    root = Path(str(interp.__file__)).parent
    end = rf"\) -> {name}:"
    pattern = re.compile(rf"^def (\w+)\((?:.*{end}|.*\n(?:    .*\n)*{end})$", re.MULTILINE)
    functions = []
    for stub in sorted(root.rglob("__init__.pyi"), key=lambda path: len(path.parts)):
        package = ".".join(["interp", *stub.parent.relative_to(root).parts])
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            path = stub.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            if path.is_file():
                made_there = set(pattern.findall(path.read_text(encoding="utf-8")))
                functions += [f"{package}.{a.name}" for a in node.names if a.name in made_there]
    return list(dict.fromkeys(functions))
