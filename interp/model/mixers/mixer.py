"""Adapters of token mixers: recognition of a module, and its forward as a `MapCall`.

A mixer is a module whose heads are linear maps of its inputs, and which ends in an output
projection. To read a module of another package or of a research project, derive a class from
`Mixer`, name the module's class and its output projection, return a `MapCall` from `read`, and pass
the class to `register_mixer`. Nothing is taken on trust: when a model is loaded, `map @ v` must
equal z and `to_projection(z)` the actual input of the projection, else the model is refused.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from interp.core.errors import OptionError, UnreadableAttention
from interp.model.calls.call import ComputedCall
from interp.model.calls.map_call import MapCall
from interp.model.inputs import given_cache


@dataclass(eq=False)
class Forward:
    """Observations of one forward of a mixer, up to its output projection."""

    arguments: Mapping[str, Any]
    calls: list[ComputedCall] = field(default_factory=list)
    """Calls that the module made of transformers' attention interface, in order."""
    given: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Positional arguments of each watched submodule."""
    returned: dict[str, Any] = field(default_factory=dict)
    """Output of each watched submodule."""


class Mixer(ABC):
    """Adapter of one mechanism to modules of some classes.

    Attributes:
        classes: names of the module classes.
        needs: attributes that a module must have, else it is not recognised; None counts as absent.
            A dotted name is a part of a part.
        projection: name of the submodule that maps the heads' outputs to the residual stream.
        watched: names of submodules whose arguments and outputs `read` uses; all must run.
        noticed: names of submodules that `read` uses where they run.
        guarded: names of classes that hold such modules, whose forwards `guard` checks first.
    """

    classes: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()
    projection: ClassVar[str]
    watched: ClassVar[tuple[str, ...]] = ()
    noticed: ClassVar[tuple[str, ...]] = ()
    guarded: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, module: nn.Module, forward: Forward) -> MapCall:
        """Return the call of one forward; it runs just before the output projection."""

    def enter(self, module: nn.Module, arguments: Mapping[str, Any]) -> None:  # noqa: B027
        """Check the arguments of a forward before it runs; raise if it cannot be read."""

    def guard(self, module: nn.Module, arguments: Mapping[str, Any]) -> None:  # noqa: B027
        """Check the arguments of a module that holds such modules; raise if it cannot be read."""

    def fits(self, module: nn.Module) -> bool:
        """Return True if the module is of a known class and has what `read` needs."""
        if type(module).__name__ not in self.classes:
            return False
        return all(_part(module, n) is not None for n in (*self.needs, self.projection))


def _part(module: Any, path: str) -> Any:
    """Return the attribute at a dotted path; None where there is none."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


REGISTERED: dict[str, Mixer] = {}
"""Adapters by the names of the classes that they read."""


def register_mixer(mixer: type[Mixer]) -> type[Mixer]:
    """Register an adapter for modules by the names of their classes; usable as a decorator.

    Raises:
        OptionError: it is not an adapter, or another one reads modules of the same class.
    """
    if not (inspect.isclass(mixer) and issubclass(mixer, Mixer)) or inspect.isabstract(mixer):
        raise OptionError(f"{mixer!r} is not a class derived from Mixer with a method read")
    for name in ("classes", "projection"):
        if not hasattr(mixer, name):
            raise OptionError(f"{mixer.__name__} does not define {name}")
    adapter = mixer()
    for name in adapter.classes:
        other = type(REGISTERED.get(name, adapter))
        if (other.__module__, other.__qualname__) != (mixer.__module__, mixer.__qualname__):
            raise OptionError(f"modules of class {name} are already read by {other.__name__}")
    REGISTERED.update(dict.fromkeys(adapter.classes, adapter))
    return mixer


def arguments_of(module: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a forward by name."""
    names = list(inspect.signature(module.forward).parameters)
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def refuse_cached_state(module: nn.Module, arguments: Mapping[str, Any], method: str) -> None:
    """Raise if a method of the given cache returns a state of this layer, or does not exist."""
    cache = given_cache(arguments)
    if cache is not None and not hasattr(cache, method):
        raise UnreadableAttention(
            f"{type(module).__name__} was given a cache of an unknown layout "
            f"({type(cache).__name__}, without {method}), so whether its inputs are complete is "
            "not known; run the whole prompt without a cache"
        )
    state = None if cache is None else getattr(cache, method)(getattr(module, "layer_idx", None))
    if state is not None and state is not False:
        raise UnreadableAttention(
            f"{type(module).__name__} continues from a cached state, in which earlier inputs are "
            "not kept apart, so its map cannot be read; run the whole prompt without a cache"
        )


def refuse_state(module: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Raise if a recurrent mixer continues from a cached state."""
    refuse_cached_state(module, arguments, "has_previous_state")
    packed = [n for n in ("seq_idx", "cu_seq_lens_q") if arguments.get(n) is not None]
    if packed:
        raise UnreadableAttention(
            f"{type(module).__name__} runs packed sequences ({packed[0]}), whose map cannot be "
            "read; run one sequence per row"
        )


def real_positions(arguments: Mapping[str, Any], like: Tensor) -> Tensor | None:
    """Return the mask of positions that are not padding, `[batch, pos]`; None without one."""
    mask = arguments.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.shape != like.shape[:2]:
        return None
    return mask.to(like.device)
