"""Layers of a stack in order, those without heads included: convolutions, MLPs, unread mixers.

Sites are attention layers and mixers. Hybrid models have other layers before, between and after
them (the convolutions of LFM2, the MLP layers of Nemotron-H), which write to the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import nn

from interp.model.calls.sites import Site, Where
from interp.model.inputs import text_config

if TYPE_CHECKING:
    from interp.model.transformer import Transformer

ENDS = ("resid_pre", "resid_post")
"""Activations that every layer of a stack has."""


@dataclass(frozen=True, eq=False)
class StreamLayer:
    """One layer of a stack.

    Args:
        stack: the stack.
        layer: number of the layer, as that of its attention.
        kind: what the layer is, such as "conv".
        site: its attention or mixer, if the model's sites have it.
        module: path of the layer, or of its attention.
        streams: where the streams of the layer are.
        run: number of the run of the module within one forward.
    """

    stack: str
    layer: int
    kind: str
    site: Site | None
    module: str
    streams: Mapping[str, Where]
    run: int = 0

    @property
    def name(self) -> str:
        """Name of the layer as one part of the model, such as "L0 conv"."""
        return f"L{self.layer} {self.kind}"


def stream_layers(model: Transformer, stack: str) -> tuple[StreamLayer, ...]:
    """Return all layers of a stack, in order."""
    sites = [s for s in model.sites if s.stack == stack]
    beside = [s for s in model.left_out if s.stack == stack and set(ENDS) <= set(s.streams)]
    layers = {
        s.layer: StreamLayer(
            stack, s.layer, s.kind, s if s in sites else None, s.module, s.streams, s.run
        )
        for s in (*sites, *beside)
    }
    blocks = [s.streams.get("resid_pre") for s in (*sites, *beside)]
    lists = {None if w is None or w.run else w.module.rpartition(".")[0] for w in blocks}
    parent = lists.pop() if len(lists) == 1 else None
    if not parent:
        return tuple(layers[layer] for layer in sorted(layers))
    rows = dict(model.module.get_submodule(parent).named_children())
    paths = {f"{parent}.{name}": i for i, name in enumerate(rows)}
    numbers = [paths.get(where.module) for where in blocks if where is not None]
    if numbers == [s.layer for s in (*sites, *beside)]:
        kinds = _kinds(model, len(rows))
        for (path, i), row in zip(paths.items(), rows.values(), strict=True):
            ends = {"resid_pre": Where(path, "in"), "resid_post": Where(path, "out")}
            new = StreamLayer(stack, i, kinds[i] or _first_part(row), None, path, ends)
            layers[i] = replace(layers[i], kind=kinds[i] or layers[i].kind) if i in layers else new
    return tuple(layers[layer] for layer in sorted(layers))


def _kinds(model: Transformer, n: int) -> list[str]:
    """Return what each layer is as the config calls it, or nothing."""
    config = text_config(model.config)
    for name in ("layer_types", "layers_block_type", "block_types"):
        given = getattr(config, name, None)
        if isinstance(given, (list, tuple)) and len(given) == n:
            return list(map(str, given))
    return [""] * n


def _first_part(row: nn.Module) -> str:
    """Return the name of the first part of a layer that is no norm."""
    names = (name for name, _ in row.named_children())
    return next((name for name in names if "norm" not in name and "ln" not in name), "layer")
