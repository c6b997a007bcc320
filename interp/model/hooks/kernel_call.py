"""Attention calls of a model as the `Attention` of the kernels, with masks as structure.

And what predicates see there: the tokens and the segments of its stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.core.prompts import Prompts
from interp.core.protocols import PictureModel
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.map_call import MapCall
from interp.model.calls.sites import Site
from interp.model.hooks.interface_call import built
from interp.model.segments import call_segments, read_inputs
from interp.model.single_prompts import apart, pictured
from interp_kernels.bias_rows import BiasRows
from interp_kernels.mask_structure import MaskStructure, relative_bias_of, structure_of
from interp_kernels.problem import Attention
from interp_kernels.segments import Segments


def to_attention(
    call: Call,
    real: Tensor,
    tokens: Tensor | None,
    *,
    cross: bool = False,
    segments: Segments | None = None,
) -> Attention:
    """Convert an attention call to the `Attention` of the kernels."""
    if isinstance(call, MapCall):
        raise UnreadableAttention(
            f"a {call.kind} map is not a softmax of queries and keys, which this analysis computes "
            "in tiles; detectors and statistics of `interp score` read it"
        )
    queries, keys = call.z.shape[2], call.v.shape[2]
    common = _common(call, real, tokens, cross, segments)
    if isinstance(call, ComputedCall):
        return Attention(
            q=call.q,
            k=call.k,
            v=call.v,
            scale=call.scale,
            softcap=call.softcap,
            sinks=call.sinks,
            **_masks(call, real, cross),
            **common,
        )
    # Scores of such a call are used as recorded; only positions and visibility matter here.
    shape = (*call.z.shape[:3], 1)
    return Attention(
        q=call.v.new_zeros(shape),
        k=call.v.new_zeros(*call.v.shape[:3], 1),
        v=call.v,
        causal=False,
        bias=call.visible(),
        offset=0 if cross else keys - queries,
        **common,
    )


def map_positions(
    call: MapCall,
    real: Tensor,
    tokens: Tensor | None,
    *,
    cross: bool = False,
    segments: Segments | None = None,
) -> Attention:
    """Return positions, mask and values of a map; its queries and keys are zeros without meaning.

    `interp.heads.map_rows` computes its statistics, none of which reads them.
    """
    masks: dict[str, Any] = {"causal": True, "offset": call.v.shape[2] - call.z.shape[2]}
    masks = masks if call.masked_by is None else _masks(call.masked_by, real, cross)
    zero = call.v.new_zeros(()).expand(1, 1, 1, 1)
    return Attention(
        q=zero.expand(*call.z.shape[:3], 1),
        k=zero.expand(*call.v.shape[:3], 1),
        v=call.v,
        **masks,
        **_common(call, real, tokens, cross, segments),
    )


def as_attention(
    call: Call,
    real: Tensor,
    tokens: Tensor | None,
    *,
    cross: bool = False,
    segments: Segments | None = None,
) -> Attention:
    """Return a call as statistics take it: a softmax by its tensors, a map by its positions."""
    make: Any = map_positions if isinstance(call, MapCall) else to_attention
    return make(call, real, tokens, cross=cross, segments=segments)


def _common(
    call: Call, real: Tensor, tokens: Tensor | None, cross: bool, segments: Segments | None
) -> dict[str, Any]:
    """Return padding, tokens and segments of a call, on its device."""
    here = call.z.device  # layers may lie on several
    real, tokens = real.to(here), None if tokens is None else tokens.to(here)
    same_sequence = not cross and call.z.shape[2] == call.v.shape[2]
    return {
        "query_padding": None if bool(real.all()) else real,
        "key_padding": real if same_sequence and not bool(real.all()) else None,
        "tokens": tokens if same_sequence else None,
        "segments": segments,
    }


def _masks(call: ComputedCall, real: Tensor, cross: bool) -> dict[str, Any]:
    """Return mask and bias of a call as the kernels take them: as structure where they have one."""
    queries, keys = call.z.shape[2], call.v.shape[2]
    options: dict[str, Any] = {"causal": call.causal, "offset": 0}
    if not (call.causal or cross):
        options["offset"] = keys - queries
    options["window"] = call.window
    bias: Any = call.bias
    mask: Any = call.mask
    if bias is not None:
        full = bias.shape[2] == queries  # one row of a bias serves every query
        options["relative_bias"] = relative_bias_of(bias, keys) if full else None
        bias = None if options["relative_bias"] is not None else bias[..., :keys]
    if mask is not None:
        # which keys are padding is known from the queries only where they are the same sequence
        known = not cross or bool(real.all())
        structure = _structure(call, mask, real, keys) if known else None
        if cross and structure is not None and structure.causal:
            structure = None  # one row sees every key: positions would be counted from the end
        if structure is not None:
            windows = [w for w in (call.window, structure.window) if w is not None]
            options["causal"] = call.causal or structure.causal
            offset = 0 if cross else keys - queries
            options |= {"window": min(windows, default=None), "offset": offset}
            options["ranges"] = structure.ranges
        elif bias is None:
            lazy = hasattr(mask, "in_rows") and mask.shape[-1] == keys
            bias = mask.in_rows() if lazy else built(mask)[..., :keys]
        else:
            bias = _together(bias, mask, keys)
    return options | {"bias": bias}


def _structure(call: ComputedCall, mask: Any, real: Tensor, keys: int) -> MaskStructure | None:
    if hasattr(mask, "structure") and mask.shape[-1] == keys:
        structure = mask.structure(real, call.owner)
    else:
        structure = structure_of(built(mask), real, keys)
    if structure is not None and structure.ranges is not None and call.q.is_cuda:
        return None  # the GPU kernels read the mask itself
    return structure


def _together(bias: Tensor, mask: Any, keys: int) -> BiasRows:
    """Return a bias where the mask shows a key, some queries at a time."""
    batch = max(bias.shape[0], mask.shape[0])
    heads, queries = max(bias.shape[1], mask.shape[1]), max(bias.shape[2], mask.shape[2])

    def rows(part: slice) -> Tensor:
        some, masks = ((x[:, :, part] if x.shape[2] > 1 else x) for x in (bias, built(mask)))
        masks = masks[..., :keys]
        hidden = ~masks if masks.dtype == torch.bool else masks <= torch.finfo(masks.dtype).min / 2
        some = some.masked_fill(hidden, torch.finfo(some.dtype).min)
        if masks.dtype != torch.bool:
            some = some + masks.masked_fill(hidden, 0)
        return some.expand(batch, heads, part.stop - part.start, keys)

    return BiasRows((batch, heads, queries, keys), bias.dtype, bias.device, rows)


class LookedAt:
    """Tokens and segments of one batch; one object per stack, which all of its layers share.

    Args:
        model: the model.
        batch: the prompts, or a mapping of input tensors.
    """

    def __init__(self, model: PictureModel, batch: Prompts | Mapping[str, Any]) -> None:
        self.model, self.given = model, batch
        self._kept: dict[Any, Any] = {}
        self.inputs: Mapping[str, Any]
        if isinstance(batch, Prompts):
            self.inputs = {"input_ids": padded_tokens(batch, model)}
            if batch.decoder is not None:
                self.inputs |= {"decoder_input_ids": padded_tokens(batch.decoder, model)}
        else:
            self.inputs = batch

    def tokens(self, site: Site, call: Call) -> Tensor | None:
        """Return the tokens that predicates see at a site; of tensors the ids of its stack."""
        ids = self.inputs.get("input_ids")
        if site.stack == "decoder":
            ids = self.inputs.get("decoder_input_ids", ids)
        if isinstance(self.given, Prompts):
            return ids
        if site.stack not in ("encoder", "decoder") and "text" not in site.stack:
            return None  # a vision or audio tower
        if ids is None or tuple(ids.shape) != (call.z.shape[0], call.v.shape[2]):
            return None
        key = ("tokens", site.stack)
        if key not in self._kept:
            ids = apart(self.model, ids) if pictured(self.model, self.given) else ids
            self._kept[key] = ids.to(self.model.device)
        return self._kept[key]

    def segments(self, site: Site, call: Call) -> Segments:
        """Return the segments that predicates see at a site."""
        shape = (call.z.shape[0], call.z.shape[2], call.v.shape[2])
        key = ("segments", site.stack, *shape)
        if key not in self._kept:
            if "inputs" not in self._kept:  # those of a chat may be refused
                self._kept["inputs"] = read_inputs(self.given)
            self._kept[key] = call_segments(self.model, self._kept["inputs"], site, shape)
        return self._kept[key]


def padded_tokens(batch: Prompts, model: PictureModel) -> Tensor:
    """Return the tokens that predicates see, in the columns of the padded batch."""
    ids, _ = Prompts(batch.looked_at(), padding=batch.padding).padded()
    return ids.to(model.device)
