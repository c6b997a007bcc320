"""Detection of the package that holds a model given to `interp.load`, without importing packages.

Such packages are slow to import, and one of them patches torch, so an object is recognised by the
module of its class, and only the matching adapter is imported.
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
    """Object of another package in the form that interp reads.

    Args:
        module: the module that is run; a Hugging Face model where possible.
        source: origin and way of reading, as stated in results.
    """

    module: nn.Module
    tokenizer: Any
    name: str | None
    source: str


class Adapter(Protocol):
    """Interface of the module that adapts one package.

    A module may also have `remote(held, where, name, tokenizer)`, for remote models.
    """

    def unwrap(self, held: Any, attention: str | None = None, /) -> Held:
        """Return the module to run for an object of the package; raises LoadError without one."""
        ...

    def wrap(self, module: nn.Module, tokenizer: Any, /) -> Any:
        """Wrap a newly loaded Hugging Face model as the object that users of the package hold."""
        ...


def package_of(x: object) -> str | None:
    """Return the source that the class of an object, or one of its base classes, belongs to."""
    roots = {cls.__module__.partition(".")[0] for cls in type(x).__mro__} - {"builtins"}
    return next((n for n in sources() if package_name(n) in roots), None) if roots else None


def adapter(name: str) -> Any:
    """Import the `Adapter` of a source."""
    if name not in sources():
        raise UnknownName("source", name, registered_names())
    package, ours = package_name(name), sources()[name]
    if find_spec(package) is None:
        raise LoadError(
            f"the source {name!r} needs the package {package}; install it: pip install {name}"
        )
    module = import_module(ours)
    missing = [part for part in ("unwrap", "wrap") if not callable(getattr(module, part, None))]
    if missing:
        raise LoadError(
            f"the source {name!r} is registered as {ours}, which has no {' and no '.join(missing)};"
            " an adapter defines unwrap(held, attention) and wrap(module, tokenizer)"
        )
    return module


def wrapped(name: str, module: nn.Module, tokenizer: Any) -> Any:
    """Wrap a newly loaded Hugging Face model as the object that users of a package hold.

    The module may be changed: TransformerLens rewires the model that it wraps.
    """
    return adapter(name).wrap(module, tokenizer)
