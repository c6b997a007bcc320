"""Rows and columns of the weights that belong to each head, located by value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.model.calls.sites import Site
from interp.model.locate.find_layout import layouts
from interp.model.locate.layout import ReadMatrix

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class HeadIndices:
    """Outputs of the modules that make q, k and v, by head.

    Args:
        module: for "q", "k" and "v" the name of the linear module; absent where it is unknown.
        index: for the same parts, outputs of that module `[head, d]`, heads being kv heads for k
            and v.
        normed: parts with a norm between the module and the scores.
    """

    module: dict[str, str]
    index: dict[str, Tensor]
    normed: frozenset[str]

    @property
    def whole(self) -> bool:
        """True if q, k and v are all located."""
        return len(self.module) == 3


def head_indices(model: Model, site: Site) -> HeadIndices:
    """Return the located rows of one attention; parts that are not plain matrices are absent."""
    layout = layouts(model).sites[site]
    module: dict[str, str] = {}
    index: dict[str, Tensor] = {}
    normed = set()
    for part, n in (("q", site.n_heads), ("k", site.n_kv_heads), ("v", site.n_kv_heads)):
        reading = getattr(layout, part)
        if not isinstance(reading, ReadMatrix):
            continue
        if reading.own_norm is not None:
            normed.add(part)
        rows = reading.columns.index
        plain = plain_linear(model.module.get_submodule(reading.module))
        if not plain or rows.numel() % n or (bool((rows < 0).any()) and part != "k"):
            continue
        module[part], index[part] = reading.module, rows.reshape(n, -1)
    return HeadIndices(module, index, frozenset(normed))


def plain_linear(module: nn.Module) -> bool:
    """Return True for a Linear or Conv1D module with a floating-point matrix and no children."""
    weight: Any = getattr(module, "weight", None)
    known = isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    known = known and not any(True for _ in module.children())
    return known and isinstance(weight, Tensor) and weight.is_floating_point()


def axis_of(module: nn.Module, side: str) -> int:
    """Return the axis of a linear module's weight that is its "in" or "out" side."""
    out_first = isinstance(module, nn.Linear)
    return int((side == "out") != out_first)


def columns_of(site: Site, heads: Any) -> Tensor:
    """Return the inputs of the output projection that are z of these heads."""
    at = torch.as_tensor(list(heads), dtype=torch.long)[:, None] * site.d_v
    return (at + torch.arange(site.d_v)).flatten()


def require_removable(model: Model) -> None:
    """Raise unless the weights of single heads can be changed."""
    where = f"{model.name}: heads cannot be removed from its checkpoint"
    if model.ranks is not None or model.elsewhere is not None:
        raise OptionError(f"{where}: it is spread over processes; load it on one device")
    if not hasattr(model.module, "save_pretrained"):
        raise OptionError(f"{where}: {type(model.module).__name__} has no save_pretrained")
    if getattr(model.config, "quantization_config", None) is not None:
        raise OptionError(f"{where}: its weights are quantised; load it in float32 or bfloat16")
    seen: dict[int, str] = {}
    for site in model.sites:
        if site.projection is None:
            raise OptionError(f"{where}: {site.name} has no module that reads the heads' outputs")
        projection = model.module.get_submodule(site.projection)
        if not plain_linear(projection):
            kind = type(projection).__name__
            raise OptionError(f"{where}: {site.projection} is a {kind}, not a plain float matrix")
        weight: Any = projection.weight
        if weight.data_ptr() in seen:
            raise OptionError(
                f"{where}: {site.name} and {seen[weight.data_ptr()]} share their weights"
            )
        seen[weight.data_ptr()] = site.name
        if weight.shape[axis_of(projection, "in")] != site.n_heads * site.d_v:
            raise OptionError(f"{where}: {site.projection} reads more than the heads' outputs")
