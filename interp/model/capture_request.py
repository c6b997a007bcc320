"""Request for activations of chosen heads, validated against the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import OptionError, UnknownName, UnreadableAttention
from interp.model.activation_names import NAMES, SOFTMAX_NAMES, STREAM_NAMES
from interp.model.calls.sites import APART, POOLING, Site, softmax_sites
from interp.model.locate.stream_layers import ENDS, StreamLayer, stream_layers
from interp.model.locate.streams import unavailable

if TYPE_CHECKING:
    from interp.model.transformer import Transformer


@dataclass
class CaptureRequest:
    """Requested activations, validated against the model."""

    names: tuple[str, ...]
    sites: list[Site]
    others: list[StreamLayer]  # layers without heads, whose streams are requested
    heads: dict[tuple[str, int], tuple[int, ...]]
    rows: Any
    positions: Any


def _index(x: Any, what: str) -> Any:
    if x is None or isinstance(x, slice):
        return slice(None) if x is None else x
    if isinstance(x, Tensor):
        if x.dtype.is_floating_point or x.dtype == torch.bool or x.dim() > 1:
            raise OptionError(f"{what} are integers or a slice, not a tensor of {x.dtype}")
        return x.reshape(-1).long()
    x = [x] if isinstance(x, (int, np.integer)) else list(x)
    if not all(isinstance(i, (int, np.integer)) for i in x):
        raise OptionError(f"{what} are integers or a slice, not {x!r}")
    return torch.tensor(x, dtype=torch.long)


def requested(
    model: Transformer, names: Sequence[str], layers, stack, heads, rows, positions
) -> CaptureRequest:
    """Validate a request for activations, or raise the reason why it is impossible."""
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name not in NAMES:
            raise UnknownName("activation", name, NAMES)
    sites = [s for s in model.sites if stack in (None, s.stack)]
    others = _without_heads(model, sites) if set(ENDS) & set(names) else []
    if layers is not None:
        wanted = [layers] if isinstance(layers, int) else list(layers)
        have = {s.layer for s in (*sites, *others)}
        if set(wanted) - have:
            raise OptionError(
                f"{model.name} has no attention in layers {sorted(set(wanted) - have)}; it has "
                f"{sorted(have)}"
            )
        sites = [s for s in sites if s.layer in wanted]
        others = [x for x in others if x.layer in wanted]
    chosen = {}
    for site in sites:
        mine = (
            list(range(site.n_heads))
            if heads is None
            else [heads]
            if isinstance(heads, int)
            else list(heads)
        )
        if mine and not all(isinstance(h, int) and -site.n_heads <= h < site.n_heads for h in mine):
            raise OptionError(f"{site.name} has heads 0 to {site.n_heads - 1}; requested: {mine}")
        chosen[site.stack, site.layer] = tuple(h % site.n_heads for h in mine)
    for name in names:
        for site in sites:
            _require(name, site, sites, named=layers is not None)
    return CaptureRequest(
        names, sites, others, chosen, _index(rows, "rows"), _index(positions, "positions")
    )


def _without_heads(model: Transformer, sites: Sequence[Site]) -> list[StreamLayer]:
    stacks = dict.fromkeys(s.stack for s in sites if s.stack not in APART)
    return [x for stack in stacks for x in stream_layers(model, stack) if x.site is None]


def _require(name: str, site: Site, sites: Sequence[Site], *, named: bool) -> None:
    """Raise if a site has no such activation, unless it is left out of a request of all layers."""
    if name in SOFTMAX_NAMES and site.kind != "softmax":
        if not named and softmax_sites(sites):
            return  # captured where they exist
        raise UnreadableAttention(
            f"{site.name} ({site.module}) has no {name}: its {site.kind} map is not one "
            "softmax; map, pattern (its absolute share), v and z can be captured"
        )
    if name in ("q", "k") and not site.has_qk:
        raise UnreadableAttention(
            f"{site.name}: the scores of this family are a sum of several products, "
            f"so no single {name} produces them; scores and pattern can be captured"
        )
    if name == "result" and not has_activation(name, site):
        if named or not any(has_activation(name, s) for s in sites):
            raise UnreadableAttention(
                f"{site.name} ({site.module}): what a head adds to the stream is not known, since "
                f"what its attention adds was not found: {unavailable(site, 'attn_out')}; capture z"
            )
        return
    if name in STREAM_NAMES and name not in site.streams:
        if not named and any(name in s.streams for s in sites):
            return  # captured where it is: not every block has an MLP
        raise UnreadableAttention(f"{site.name} has no {name}: {unavailable(site, name)}")


def has_activation(name: str, site: Site) -> bool:
    """Return False for an activation that `requested` left out at a site because it has none."""
    if name in SOFTMAX_NAMES:
        return site.kind == "softmax"
    if name == "result" and site.stack != POOLING:
        return "attn_out" in site.streams or site.projection is None
    return name not in STREAM_NAMES or name in site.streams
