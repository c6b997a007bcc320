"""Options of declared functions: their keyword-only parameters."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from interp.core.errors import OptionError

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Option:
    """Keyword-only parameter of a declared function; its default determines its type."""

    name: str
    default: Any
    annotation: str

    @property
    def takes_any(self) -> bool:
        """True if values of other types than the default's are allowed."""
        return self.default is None or "Any" in self.annotation or "|" in self.annotation

    def parse(self, text: str) -> Any:
        """Read a value from the command line, as the type of the default."""
        kind = type(self.default)
        if kind is bool and text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if kind in (int, float, str):
            try:
                return kind(text)
            except ValueError:
                pass
        if self.takes_any:
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError):
                return text
        raise OptionError(f"option {self.name}={text!r} is not {self._expected()}")

    def checked(self, value: Any, owner: str) -> Any:
        """Return a value given from Python, with NumPy values as plain numbers and lists."""
        value = value.tolist() if hasattr(value, "tolist") else value
        kind = type(self.default)
        wanted = {int: Integral, float: Real}.get(kind, kind)
        fits = isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))
        if not fits and not self.takes_any:
            raise OptionError(f"{owner}: {self.name}={value!r} is not {self._expected()}")
        return value

    def _expected(self) -> str:
        name = type(self.default).__name__ if self.default is not None else self.annotation
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        return f"{expected.get(name, f'of type {name}')}, such as {self.default!r}"


def options_in(shared: type | None) -> dict[str, Option]:
    """Return the fields of a dataclass of options, which functions share, by name."""
    if shared is None:
        return {}
    return {f.name: Option(f.name, f.default, _in_words(f.type)) for f in fields(shared)}


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the keyword-only parameters of a function, by name."""
    options = {}
    for name, p in inspect.signature(function).parameters.items():
        if p.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if p.default is inspect.Parameter.empty:
            raise TypeError(f"{function.__name__}: option {name} needs a default")
        options[name] = Option(name, p.default, _in_words(p.annotation))
    return options


def _in_words(annotation: Any) -> str:
    return inspect.formatannotation(annotation).strip("'")
