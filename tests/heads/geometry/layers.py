"""Attention calls with known patterns, for analytic values of measures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from interp.core.registry import METRICS
from interp.heads.layer import LayerCall
from interp.model.calls.call import ComputedCall
from interp.model.calls.sites import Site
from interp.model.locate.layout import Writing

MEASURES = [n for n, e in METRICS.items() if e.group == "geometry" and e.kind == "measurement"]


def layer_of(
    q: Tensor, k: Tensor, v: Tensor | None = None, *, causal: bool = True, depth: int = 0, **more
) -> LayerCall:
    """The layer of queries [prompt, head, token, d] and keys and values of some heads."""
    if v is None:
        v = torch.randn(k.shape, generator=torch.Generator().manual_seed(5)).to(k.dtype)
    call = ComputedCall(q, k, v, torch.zeros(*q.shape[:3], v.shape[-1]), 1.0, causal=causal, **more)
    call.z = call.mix(call.pattern()).to(v.dtype)
    site = Site(
        "decoder",
        depth,
        f"layers.{depth}",
        0,
        q.shape[1],
        k.shape[1],
        q.shape[3],
        v.shape[3],
        False,
        True,
        causal,
    )
    return LayerCall(site, call)


def uniform(
    tokens: int, *, heads: int = 2, causal: bool = True, v: Tensor | None = None
) -> LayerCall:
    """Heads that attend evenly to what they see."""
    k = torch.randn(1, 1, tokens, 4, generator=torch.Generator().manual_seed(1))
    return layer_of(torch.zeros(1, heads, tokens, 4), k, v, causal=causal)


def patterned(scores: Tensor, **more) -> LayerCall:
    """Heads with these scores, [prompt, head, token, token]: keys are unit vectors."""
    tokens = scores.shape[-1]
    k = torch.eye(tokens).expand(len(scores), scores.shape[1], tokens, tokens)
    return layer_of(scores, k, **more)


def value(name: str, layer: LayerCall, **options) -> Tensor:
    """A measure of a layer, `[prompt, head]`."""
    return METRICS.load(name).bind(**options).measured(layer)


def writing(matrix: torch.Tensor) -> Any:
    """Weights by which heads write to the stream through a given matrix, without a norm."""
    site, layout = SimpleNamespace(gated=False), SimpleNamespace(o=Writing(None, 1.0))
    return SimpleNamespace(
        site=site,
        layout=layout,
        output_norm=None,
        added=matrix,
        added_bias=torch.zeros(matrix.shape[-1], dtype=matrix.dtype),
    )
