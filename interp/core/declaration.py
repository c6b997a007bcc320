"""Declared functions: the common base of metrics, attribution methods and circuit methods.

A declared function has one name: that of its file, of the function and on the command line. Its
keyword-only parameters are its options and its docstring is its help text. On the command line
functions and options are written as `local_window:width=8,rollout`. A family shares what it has in
common: `options=` names a dataclass of options, whose value is the last positional argument, and
`@like(other)` takes over the declaration of another function; in both cases sections of the
docstring that are not stated are shared too. This module does not import torch.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from interp.core.errors import OptionError, UnknownName
from interp.core.option import Option, options_in, options_of
from interp.core.user_function import DIGITS, digest, is_registered, name_of, require_registrable


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Declaration:
    """Named function with options; calling it applies the function."""

    bound: ClassVar[type[Bound]]  # the class that `bind` returns

    kind: str
    function: Callable[..., Any]
    options: Mapping[str, Option] = field(default_factory=dict)
    called: str = ""  # the function's own name unless given
    shared: type | None = None  # dataclass of the options that its family has in common
    of_family: str = ""  # docstring of the declaration that it is like

    @classmethod
    def declare(
        cls,
        function: Callable[..., Any],
        name: str | None = None,
        *,
        options: type | None = None,
        **about: Any,
    ) -> Any:
        """Declare a function; `options` is a dataclass of options that it shares with others."""
        require_registrable(function)
        called, known = name_of(function, name), options_in(options) | options_of(function)
        return cls(function=function, called=called, options=known, shared=options, **about)

    def apply(self, *args: Any, **options: Any) -> Any:
        """Call the function, with the options that it shares as one object."""
        if self.shared is None:
            return self.function(*args, **options)
        shared_options = {f.name: options.pop(f.name) for f in fields(self.shared)}
        return self.function(*args, self.shared(**shared_options), **options)

    @property
    def name(self) -> str:
        """Name on the command line; in this package also that of the function and its file."""
        return self.called or self.function.__name__

    @property
    def doc(self) -> str:
        """The docstring, dedented, with what it shares."""
        doc = inspect.getdoc(self.function) or ""
        classes = () if self.shared is None or self.of_family else self.shared.__mro__[:-1]
        shared = [self.of_family, *(inspect.cleandoc(c.__doc__ or "") for c in classes)]
        return reduce(partial(with_shared, options=[*self.options]), filter(None, shared), doc)

    def bind(self, **options: Any) -> Any:
        """Set options and return the bound declaration."""
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
        # Provenance holds this line: user-supplied functions may share a name, and it states
        # which of them was used.
        code = "" if self._registered else f" (code {digest(self.function)[:DIGITS]})"
        first = self.doc.partition("\n")[0]
        return f"<{self.kind} {self.name}{code}{f': {first}' if first else ''}>"


D = TypeVar("D", bound=Declaration)


def like(other: D, **about: Any) -> Callable[[Callable[..., Any]], D]:
    """Declare a function as another one is declared, but for the given arguments of its decorator.

    Sections of the docstring, and entries of its options, are those of the other unless stated.
    """

    def wrap(function: Callable[..., Any]) -> D:
        require_registrable(function)
        options = options_in(other.shared) | options_of(function)
        known = {"function": function, "called": name_of(function, None), "options": options}
        return replace(other, **known, of_family=other.doc, **about)

    return wrap


@dataclass(frozen=True, eq=False)
class Bound(Generic[D]):
    """Declaration with its options chosen; `label` is its name in results."""

    declaration: D
    options: Mapping[str, Any]
    label: str


Declaration.bound = Bound


def split_names(text: str) -> list[str]:
    """Split a list of names: `a,b:x=1,y=2,c` is three, since `y=2` is an option of `b`."""
    names: list[str] = []
    for part in filter(None, text.split(",")):
        if names and ":" in names[-1] and "=" in part and ":" not in part.partition("=")[0]:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def parse_name(text: str) -> tuple[str, dict[str, str]]:
    """Split `name:option=value,option=value` into the name and the text of each option."""
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{text!r} cannot be read; write options as {name}:option=value")
        if option in options:
            raise OptionError(f"{text!r}: the option {option} is given twice; give it once")
        options[option] = value
    return name, options


SECTIONS = ("Cost", "Null", "Not for", "Options", "Reference")
"""Sections that declarations may share, in the order in which they stand."""
_TITLE = re.compile(rf"({'|'.join(SECTIONS)}):")


def section(doc: str, title: str) -> str:
    """Return the text of a section on one line, up to the next empty line, or an empty text."""
    match = re.search(rf"^{title}:(.*?)(?:\n\s*\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


def with_shared(doc: str, shared: str, options: Sequence[str]) -> str:
    """Return a docstring with the sections of another one that it does not state.

    The entries of its options are those of either, of the named options in their order.
    """
    mine, other = _sections(doc), _sections(shared)
    entries = _options(other.get("Options", "")) | _options(mine.get("Options", ""))
    known = [entries[name] for name in options if name in entries]
    sections = other | mine | {"Options": "\n".join(["Options:", *known]) if known else ""}
    return "\n\n".join(filter(None, (sections.get(title) for title in ("", *SECTIONS))))


def _sections(doc: str) -> dict[str, str]:
    """Split a docstring by the titles of its sections; what precedes the first has none."""
    sections, title = {"": ""}, ""
    for paragraph in doc.split("\n\n"):
        started = _TITLE.match(paragraph)
        title = started[1] if started else title
        sections[title] = f"{sections[title]}\n\n{paragraph}" if sections.get(title) else paragraph
    return sections


def _options(text: str) -> dict[str, str]:
    """Split a section of options into its entries, by the first name that each describes."""
    entries = re.split(r"\n(?= {4}\w)", text)[1:]
    return {re.split("[,:]", entry.strip())[0]: entry for entry in entries}
