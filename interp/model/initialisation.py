"""Random weights made part by part, by the class's own initialisation from a seed per part.

transformers initialises a model by calling `_init_weights` of the class on each module in turn. One
run of it on a module without weights (on `meta`) records which call writes which parameters. A part
is then drawn by its own calls, from a seed of the draw and the part's name, so a part is the same
whether the other parts exist or not.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.core.random_state import drawn_with, has_generator
from interp.model.skeleton import parts_of, skeleton
from interp.model.streamed import Streamed, WeightPart

if TYPE_CHECKING:
    from interp.model.transformer import Transformer


class NotApart(OptionError):
    """Raised if the parts of a class cannot be initialised apart; the message gives the reason."""


@dataclass(frozen=True, eq=False)
class Initialisation:
    """Initialisation of new modules of one class and config, part by part.

    Args:
        build: returns a new module without weights.
        module: such a module, on which parts are drawn.
        parts: its parts.
        calls: calls of the class's initialisation that write each part, in order, by its name.
        like: data type and device of each parameter.
    """

    build: Callable[[], nn.Module]
    module: nn.Module
    parts: tuple[WeightPart, ...]
    calls: Mapping[str, tuple[Callable[[], None], ...]]
    like: Mapping[str, tuple[torch.dtype, torch.device]]

    def draw(self, part: WeightPart, seed: int, fill: float | None = None) -> dict[str, Tensor]:
        """Return the tensors of one part of one draw, by name; filled first with `fill`."""
        from transformers.initialization import guard_torch_init_functions

        digest = hashlib.sha256(f"{seed} {part.parameters[0]}".encode()).digest()
        number, device = int.from_bytes(digest[:7], "little"), self.like[part.parameters[0]][1]
        place = device if has_generator(device) else torch.device("cpu")
        parameters: dict[str, nn.Parameter] = {}
        with drawn_with(number, place), torch.no_grad(), guard_torch_init_functions():
            empty = {name: self.module.get_parameter(name) for name in part.parameters}
            try:
                for name, parameter in empty.items():
                    value = torch.empty(parameter.shape, dtype=self.like[name][0], device=place)
                    parameters[name] = nn.Parameter(value)
                    _exchange(self.module, parameter, parameters[name])
                    if fill is not None:
                        parameters[name].fill_(fill)
                for call in self.calls[part.name]:
                    call()
            finally:
                for name, parameter in parameters.items():
                    _exchange(self.module, parameter, empty[name])
        return {name: parameter.detach().to(device) for name, parameter in parameters.items()}

    def stream(self, seed: int) -> nn.Module:
        """Return a new module whose weights are drawn when they are read."""
        module = self.build()
        identity = f"random weights {seed}"
        Streamed(module, self.parts, lambda part: self.draw(part, seed), self.like, identity)
        return module

    def fill(self, seed: int) -> nn.Module:
        """Return a new module with all weights of one draw."""
        module = self.build()
        for part in self.parts:
            for name, value in self.draw(part, seed).items():
                empty = module.get_parameter(name)
                _exchange(module, empty, nn.Parameter(value, empty.requires_grad))
        return module


def _exchange(module: nn.Module, old: nn.Parameter, new: nn.Parameter) -> None:
    """Put a parameter in place of another one, wherever it is tied."""
    for inner in module.modules():
        for key, parameter in inner._parameters.items():
            if parameter is old:
                inner._parameters[key] = new


def initialisation(model: Transformer) -> Initialisation:
    """Get the initialisation of a new module of a model's class, in its types and on its device."""
    from transformers import PreTrainedModel

    kind = type(model.module)
    if not issubclass(kind, PreTrainedModel) or hasattr(model.module, "fresh"):
        raise NotApart(f"{kind.__name__} is not a class of transformers")
    if model.elsewhere is not None:
        raise NotApart(f"{model.name} does not run in this process")
    dtypes = {_plain(n): p.dtype for n, p in model.module.named_parameters()}
    if any(not dtype.is_floating_point for dtype in dtypes.values()):
        raise NotApart(f"{kind.__name__} holds packed weights")
    buffers = {
        _plain(path): (dict(m._buffers), set(m._non_persistent_buffers_set))
        for path, m in model.module.named_modules()
    }
    config, device = copy.deepcopy(model.config), model.device

    def build() -> nn.Module:
        module = skeleton(lambda: kind(copy.deepcopy(config)))
        _take_buffers(module, buffers, device)
        return module

    try:
        module = build()
        parts, calls = _recorded(module, parts_of(module))
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError) as error:
        raise NotApart(f"{kind.__name__} cannot be built without weights: {error}") from error
    # what a user added, such as adapters, is not drawn
    like = {n: (dtypes.get(n, model.dtype), device) for n, _ in module.named_parameters()}
    result = Initialisation(build, module, tuple(parts), calls, like)
    for part in (part for part, unseen in parts.items() if unseen):
        for name, value in result.draw(part, 0, fill=torch.nan).items():
            if bool(value.isnan().any()):
                raise NotApart(f"{kind.__name__} does not initialise {name} in _init_weights")
    return result


def _plain(name: str) -> str:
    """Return a name inside a compiled layer as it is without torch.compile."""
    return name.replace("_orig_mod.", "").removesuffix("._orig_mod")


def _recorded(
    module: nn.Module, parts: list[WeightPart]
) -> tuple[dict[WeightPart, bool], dict[str, tuple[Callable[[], None], ...]]]:
    """Initialise a module without weights; return its parts, and the calls that write each.

    Parts that one call writes are joined. A part is True if not all of it was seen to be written.
    """
    from transformers.initialization import guard_torch_init_functions

    parameters = dict(module.named_parameters())
    at = {name: i for i, part in enumerate(parts) for name in part.parameters}
    joined = list(range(len(parts)))
    records: list[tuple[Callable[[], None], set[str], set[str]]] = []
    with drawn_with(None), torch.no_grad(), guard_torch_init_functions():
        before = {name: p._version for name, p in parameters.items()}
        for path, call in initialising_calls(module):
            call()
            after = {name: p._version for name, p in parameters.items()}
            inside = f"{path}." if path else ""
            here = {f"{inside}{key}" for key in module.get_submodule(path)._parameters}
            records.append((call, {n for n in after if after[n] != before[n]}, here & {*after}))
            before = after
    # A tied tensor is initialised where it has its name, if it is initialised there.
    named = {n for _, written, here in records if written & here for n in written}
    seen = {n for _, written, _ in records for n in written}
    order: list[tuple[Callable[[], None], int]] = []
    for call, written, here in records:
        # writing through `.data` counts no version: such a part is checked when it is drawn
        writes = (written if written & here or not written <= named else set()) | (here - seen)
        if writes:
            groups = {joined[at[name]] for name in writes}
            first = min(groups)
            joined = [first if group in groups else group for group in joined]
            order.append((call, at[min(writes)]))
    unseen = {*parameters} - seen
    whole: dict[int, list[str]] = {}
    for i, part in enumerate(parts):
        whole.setdefault(joined[i], []).extend(part.parameters)
    unseen_parts = {
        WeightPart(parts[g].name, tuple(n)): bool(unseen & {*n}) for g, n in whole.items()
    }
    calls = {
        parts[group].name: tuple(call for call, part in order if joined[part] == group)
        for group in whole
    }
    return unseen_parts, calls


def initialising_calls(module: nn.Module) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield transformers' initialisation of each module, with its path; children come first."""
    from transformers import PreTrainedModel

    seen: set[int] = set()

    def walk(path: str, inner: nn.Module, owner: Any) -> Iterator[tuple[str, Callable[[], None]]]:
        for name, child in inner.named_children():
            of_child = child if isinstance(child, PreTrainedModel) else owner
            yield from walk(f"{path}.{name}" if path else name, child, of_child)
        if id(inner) not in seen:
            seen.add(id(inner))
            yield path, lambda: owner._init_weights(inner)

    return walk("", module, module)


def _take_buffers(
    module: nn.Module,
    given: Mapping[str, tuple[dict[str, Tensor | None], set[str]]],
    device: torch.device,
) -> None:
    """Give each buffer the type of the given one, and its numbers if they are not saved."""
    for path, inner in module.named_modules():
        theirs, computed = given.get(path, ({}, set()))
        for key, buffer in inner._buffers.items():
            like = theirs.get(key)
            if buffer is not None and like is not None:
                value = like.clone() if key in computed else buffer.to(like.dtype)
                inner._buffers[key] = value.to(device)
