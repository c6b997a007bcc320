"""The package that holds a model given to `interp.load`, recognised without importing any.

Such packages are heavy and one patches torch when it is imported, so an object is recognised by the
module that its class comes from, and only then is the one adapter imported that knows the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from torch import nn

from interp.core.errors import LoadError, UnknownName
from interp.model.sources.registered import package_name, registered_names, sources


@dataclass(frozen=True)
class Held:
    """A package's object as interp reads it.

    Args:
        module: what is run; a Hugging Face model wherever there is one.
        source: where it came from and how it is read, as results say it.
    """

    module: nn.Module
    tokenizer: Any
    name: str | None
    source: str


class Adapter(Protocol):
    """Functions of a module that knows a package.

    A module may also have `remote(held, where, name, tokenizer)`, for models that run elsewhere.
    """

    def unwrap(self, held: Any, attention: str | None = None, /) -> Held:
        """The module to run for an object of the package; raises LoadError where there is none."""
        ...

    def wrap(self, module: nn.Module, tokenizer: Any, /) -> Any:
        """A freshly loaded Hugging Face model as the object that users of the package hold."""
        ...


def package_of(x: object) -> str | None:
    """The source whose package an object's class, or a class it derives from, comes from."""
    roots = {cls.__module__.partition(".")[0] for cls in type(x).__mro__} - {"builtins"}
    return next((n for n in sources() if package_name(n) in roots), None) if roots else None


def adapter(name: str) -> Any:
    """The `Adapter` of a source.

    Raises:
        UnknownName: there is no such source.
        LoadError: the package is not installed, or the module is not an adapter.
    """
    if name not in sources():
        raise UnknownName("source", name, registered_names())
    package, ours = package_name(name), sources()[name]
    if find_spec(package) is None:
        raise LoadError(f"the source {name!r} needs the package {package}; pip install {name}")
    found = import_module(ours)
    missing = [part for part in ("unwrap", "wrap") if not callable(getattr(found, part, None))]
    if missing:
        raise LoadError(
            f"the source {name!r} is registered as {ours}, which has no {' and no '.join(missing)};"
            " an adapter defines unwrap(held, attention) and wrap(module, tokenizer)"
        )
    return found


def wrapped(name: str, module: nn.Module, tokenizer: Any) -> Any:
    """A freshly loaded Hugging Face model as the object that users of a package hold.

    The module may be changed by it: TransformerLens rewires what it is given.
    """
    return adapter(name).wrap(module, tokenizer)
