"""Modules without weights: the parameters of a class on `meta`, its buffers as it computes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from interp.core.random_state import drawn_with
from interp.model.streamed import WeightPart

_construction = threading.RLock()


@contextmanager
def _without_weights() -> Iterator[None]:
    """Put every parameter that this thread registers on `meta`, and initialise none."""
    from transformers.initialization import no_init_weights

    thread, plain = threading.get_ident(), nn.Module.register_parameter

    def register(module: nn.Module, name: str, value: nn.Parameter | None) -> None:
        if value is not None and not value.is_meta and threading.get_ident() == thread:
            value = nn.Parameter(value.detach().to("meta"), requires_grad=value.requires_grad)
        plain(module, name, value)

    with _construction, drawn_with(None), no_init_weights():
        nn.Module.register_parameter = register  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.register_parameter = plain  # type: ignore[method-assign]


def skeleton(build: Callable[[], Any]) -> Any:
    """Return the module that `build` makes, with tied parameters and without their numbers."""
    with _without_weights():
        module = build()
        module.tie_weights()
    return module.eval()


def parts_of(module: nn.Module) -> list[WeightPart]:
    """Split the parameters of a module at its lists of layers: each child of a layer is a part.

    A child with lists of its own, such as experts, is split again; what lies outside lists, such as
    an embedding or a last norm, is a part as a whole.
    """
    owner: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    paths = set(_paths(module, "", False))
    for name, parameter in module.named_parameters():
        if id(parameter) in owner:
            continue
        path = name.rpartition(".")[0]
        while path not in paths:
            path = path.rpartition(".")[0]
        owner[id(parameter)] = path
        names.setdefault(path, []).append(name)
    return [WeightPart(path, tuple(mine)) for path, mine in names.items()]


def _paths(module: nn.Module, path: str, item: bool) -> Iterator[str]:
    """Return the paths of parts; parameters of a module that is split lie beside its children."""
    yield path
    listed = isinstance(module, nn.ModuleList)
    if item or any(isinstance(m, nn.ModuleList) for m in module.modules()):
        for name, child in module.named_children():
            yield from _paths(child, f"{path}.{name}" if path else name, listed)


def parameter_bytes(module: nn.Module) -> int:
    """Return the bytes of all parameters, each counted once."""
    return sum(p.numel() * p.element_size() for p in module.parameters())
