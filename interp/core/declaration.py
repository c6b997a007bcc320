"""Declared functions: the common base of metrics, attribution methods and circuit methods.

A declared function keeps its name (file name = function name = name on the command line). Its
keyword-only parameters are its options and its docstring is its help. People write both as
`local_window:width=8,rollout`. Nothing here imports torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from interp.core.errors import OptionError, UnknownName
from interp.core.option import Option, options_of
from interp.core.user_function import DIGITS, digest, is_registered, name_of, require_registrable


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Declaration:
    """A function under a name, with its options; calling it does what its kind does."""

    bound: ClassVar[type[Bound]]  # what `bind` makes

    kind: str
    function: Callable[..., Any]
    options: Mapping[str, Option] = field(default_factory=dict)
    called: str = ""  # the function's own name unless given

    @classmethod
    def declare(cls, function: Callable[..., Any], name: str | None = None, **about: Any) -> Any:
        """Declare a function.

        Raises:
            OptionError: the name cannot be one.
            TypeError: an option has no default, or a function of this package no docstring or
                another name than its file.
        """
        require_registrable(function)
        called = name_of(function, name)
        return cls(function=function, called=called, options=options_of(function), **about)

    @property
    def name(self) -> str:
        """The name on the command line; in this package also that of the function and its file."""
        return self.called or self.function.__name__

    @property
    def doc(self) -> str:
        """The docstring, dedented."""
        return inspect.getdoc(self.function) or ""

    def bind(self, **options: Any) -> Any:
        """This declaration with options set.

        Raises:
            UnknownName: an option it does not have.
            OptionError: a value of the wrong type.
        """
        values = {name: option.default for name, option in self.options.items()}
        for name, value in options.items():
            if name not in self.options:
                raise UnknownName(f"option of {self.name}", name, self.options or ["(none)"])
            values[name] = self.options[name].checked(value, self.name)
        changed = {n: v for n, v in values.items() if v != self.options[n].default}
        label = self.name + (
            ":" + ",".join(f"{n}={v}" for n, v in sorted(changed.items())) if changed else ""
        )
        return self.bound(self, MappingProxyType(values), label)

    @cached_property
    def _registered(self) -> bool:
        return is_registered(self.function)

    def __repr__(self) -> str:
        # Provenance holds this line: of the caller's own functions, which may share a name, it
        # says which one was meant.
        own = "" if self._registered else f" (code {digest(self.function)[:DIGITS]})"
        first = self.doc.partition("\n")[0]
        return f"<{self.kind} {self.name}{own}{f': {first}' if first else ''}>"


D = TypeVar("D", bound=Declaration)


@dataclass(frozen=True, eq=False)
class Bound(Generic[D]):
    """A declaration with its options chosen; `label` names it in results."""

    declaration: D
    options: Mapping[str, Any]
    label: str


Declaration.bound = Bound


def split_names(text: str) -> list[str]:
    """Split a list of names: `a,b:x=1,y=2,c` is three, since `y=2` is an option of `b`."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and ":" in found[-1] and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def parse_name(text: str) -> tuple[str, dict[str, str]]:
    """Split `name:option=value,option=value` into the name and the text of each option.

    Raises:
        OptionError: an option without a value, or one that is given twice.
    """
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{text!r}: write options as {name}:option=value")
        if option in given:
            raise OptionError(f"{text!r}: the option {option} is given twice; give it once")
        given[option] = value
    return name, given
