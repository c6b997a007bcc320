"""Which package holds a model that `interp.load` is given, told without importing any of them.

Both packages are heavy and one patches torch when it is imported, so an object is recognised by
the module that its class comes from, and only then is the one file imported that knows the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn

from interp.core.errors import LoadError, UnknownName

SOURCES: Mapping[str, tuple[str, str]] = {
    "transformers": ("transformers", ""),
    "transformer-lens": ("transformer_lens", "interp.model.sources.transformer_lens"),
    "nnsight": ("nnsight", "interp.model.sources.nnsight"),
}
"""Name on the command line: the package, and the one module of ours that imports it."""


@dataclass(frozen=True)
class Held:
    """What a package's object comes down to.

    Args:
        module: what is run; a Hugging Face model wherever there is one.
        source: where it came from and how it is read, as results say it.
    """

    module: nn.Module
    tokenizer: Any
    name: str | None
    source: str


def package_of(x: object) -> str | None:
    """The source whose package an object's class, or a class it derives from, comes from."""
    roots = {cls.__module__.partition(".")[0] for cls in type(x).__mro__}
    return next((n for n, (package, ours) in SOURCES.items() if ours and package in roots), None)


def adapter(name: str) -> Any:
    """The module of ours that knows a package.

    Raises:
        UnknownName: there is no such source.
        LoadError: the package is not installed.
    """
    if name not in SOURCES:
        raise UnknownName("source", name, SOURCES)
    package, ours = SOURCES[name]
    if find_spec(package) is None:
        raise LoadError(f"the source {name!r} needs the package {package}; pip install {name}")
    return import_module(ours)


def wrapped(name: str, module: nn.Module, tokenizer: Any) -> Any:
    """A freshly loaded Hugging Face model as the object that users of a package hold.

    The module may be changed by it: TransformerLens rewires what it is given.
    """
    return adapter(name).wrap(module, tokenizer)
