"""Neurons of the MLPs of an image tower, and runs with a token added behind the patches.

A neuron is an input of the matrix through which an MLP writes to the stream, as in DINOv2 with its
gated MLP, where that input is a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.core.interrupts import held, holding
from interp.vision.images import batches_of, vision_sites
from interp.vision.readout import image_output

if TYPE_CHECKING:
    from interp.model.model import Model

NeuronChange = Callable[[Tensor], Tensor]


def encoder_layers(model: Model) -> dict[int, str]:
    """Return the path of every layer of the image tower: the member of a list around attention."""
    paths_of_layers = {}
    for site in vision_sites(model):
        names = site.module.split(".")
        paths = [".".join(names[:i]) for i in range(1, len(names))]
        inside = [
            path
            for path, name in zip(paths, names, strict=False)
            if name.isdigit()
            and isinstance(model.module.get_submodule(path.rpartition(".")[0]), nn.ModuleList)
        ]
        if not inside:
            raise UnreadableAttention(f"{model.name}: {site.module} is in no list of layers")
        paths_of_layers[site.layer] = inside[-1]
    return paths_of_layers


@held()
def writing_matrices(model: Model, pixels: Tensor) -> dict[int, str]:
    """Return, for every layer, the path of the matrix through which its MLP writes to the stream.

    It is the last matrix of the layer that runs outside the attention and gives vectors of the
    stream's width.
    """
    layers = encoder_layers(model)
    attentions = {s.layer: s.module for s in vision_sites(model)}
    ran: dict[int, str] = {}
    with ExitStack() as open_hooks:
        for layer, path in layers.items():
            for name, each in model.module.get_submodule(path).named_modules(prefix=path):
                if isinstance(each, nn.Linear) and not name.startswith(f"{attentions[layer]}."):
                    note = _noted(ran, layer, name)
                    open_hooks.enter_context(_removed(each.register_forward_pre_hook(note)))
        [inputs] = batches_of(model, pixels[:1])
        sizes: dict[int, int] = {}
        for layer, path in layers.items():
            note = _sized(sizes, layer)
            module = model.module.get_submodule(path)
            open_hooks.enter_context(_removed(module.register_forward_hook(note)))
        image_output(model, inputs)
    for layer in layers:
        name = ran.get(layer)
        if name is None or model.module.get_submodule(name).out_features != sizes[layer]:
            raise UnreadableAttention(
                f"{model.name}: layer {layer} has no matrix outside its attention that writes "
                "vectors of the stream's width, so its neurons cannot be read"
            )
    return ran


def width_of(model: Model, matrix: str) -> int:
    """Return the number of neurons in front of a matrix, given by path."""
    module: Any = model.module.get_submodule(matrix)
    return int(module.in_features)


@holding
@contextmanager
def read_neurons(
    model: Model, matrices: Mapping[int, str]
) -> Iterator[dict[int, Tensor]]:  # [image, token, neuron] by layer
    """Collect the neurons of the layers in runs inside; the last run's remain."""
    neurons: dict[int, Tensor] = {}

    def keep(layer: int) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            neurons[layer] = args[0].detach()

        return hook

    with ExitStack() as open_hooks:
        for layer, name in matrices.items():
            module = model.module.get_submodule(name)
            open_hooks.enter_context(_removed(module.register_forward_pre_hook(keep(layer))))
        yield neurons


@holding
@contextmanager
def changed_neurons(model: Model, changes: Mapping[str, NeuronChange]) -> Iterator[None]:
    """NeuronChange the neurons in front of some matrices, given by path, in runs inside."""

    def hook_of(change: NeuronChange) -> Any:
        return lambda module, args: (change(args[0]), *args[1:])

    with ExitStack() as open_hooks:
        for name, change in changes.items():
            module = model.module.get_submodule(name)
            open_hooks.enter_context(_removed(module.register_forward_pre_hook(hook_of(change))))
        yield


@holding
@contextmanager
def added_token(model: Model) -> Iterator[list[Tensor]]:
    """Add a token of zeros behind the patches; it is cut off again behind the last layer."""
    paths = list(encoder_layers(model).values())
    streams: list[Tensor] = []

    def add(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        streams.clear()
        x = args[0]
        return (torch.cat([x, torch.zeros_like(x[:, :1])], 1), *args[1:])

    def read(module: nn.Module, args: Any, out: Any) -> None:
        streams.append((out[0] if isinstance(out, tuple) else out).detach())

    def cut(module: nn.Module, args: Any, out: Any) -> Any:
        return (out[0][:, :-1], *out[1:]) if isinstance(out, tuple) else out[:, :-1]

    modules = [model.module.get_submodule(p) for p in paths]
    with ExitStack() as open_hooks:
        open_hooks.enter_context(_removed(modules[0].register_forward_pre_hook(add)))
        for each in modules:
            open_hooks.enter_context(_removed(each.register_forward_hook(read)))
        open_hooks.enter_context(_removed(modules[-1].register_forward_hook(cut)))
        yield streams


def _noted(ran: dict[int, str], layer: int, name: str) -> Any:
    return lambda module, args: ran.__setitem__(layer, name)


def _sized(sizes: dict[int, int], layer: int) -> Any:
    return lambda module, args, out: sizes.__setitem__(
        layer, (out[0] if isinstance(out, tuple) else out).shape[-1]
    )


@contextmanager
def _removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()
