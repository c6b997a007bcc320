"""Banded attention with global tokens (Beltagy et al. 2020, arXiv:2004.05150) of Longformer.

A query attends to the keys of its window and to the global tokens, in one softmax. Global tokens
attend to all keys, with projections of their own for queries, keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.model.calls.call import ALL, RowIndex, precise
from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


@dataclass(eq=False, kw_only=True)
class BandedCall(MapCall):
    """Call in which some queries take other values.

    Args:
        v_global: values that global tokens take; None if there are none.
        at_global: marks global tokens.
        band: one side of the window.
        unpadded: marks keys that are not padding.
    """

    v_global: Tensor | None
    at_global: Tensor
    band: int
    unpadded: Tensor

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of keys in the window, global keys, and all keys for global queries."""
        index = self._index(rows)
        near = (torch.arange(self.v.shape[2], device=index.device) - index[:, None]).abs()
        seen = (near <= self.band) | self.at_global[:, None] | self.at_global[:, index, None]
        return (seen & self.unpadded[:, None] & self.unpadded[:, index, None])[:, None]

    def mapped(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row d_v"]:
        """Compute the map times the values, which differ for global queries."""
        mixed = super().mapped(rows)
        if self.v_global is None:
            return mixed
        other = self.map(rows) @ precise(self.v_global)
        return torch.where(self.at_global[:, None, self._index(rows), None], other, mixed)


@register_mixer
class Banded(Mixer):
    """Attention of Longformer; positions after the prompt, to a multiple of the window, are cut."""

    classes = ("LongformerAttention",)
    needs = (
        "self.query",
        "self.key",
        "self.value",
        "self.query_global",
        "self.key_global",
        "self.value_global",
        "self.num_heads",
        "self.head_dim",
        "self.one_sided_attn_window_size",
    )
    projection = "output.dense"
    watched = ("self", "self.query", "self.key", "self.value")

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the softmaxes; z is what the module's own attention returned."""
        inner, given = module.self, forward.arguments
        hidden = given["hidden_states"]
        masked, at_global = given["is_index_masked"], given["is_index_global_attn"]
        length = int((~masked).any(0).nonzero().max()) + 1

        def heads(x: Tensor) -> Tensor:  # [pos, batch, width]
            return x[:length].unflatten(-1, (inner.num_heads, -1)).permute(1, 2, 0, 3)

        # the module divides the output of its query projection in place
        q, k, v = (heads(forward.returned[f"self.{n}"]) for n in ("query", "key", "value"))
        wide = hidden.transpose(0, 1)
        any_global = bool(at_global.any())
        of_global = [
            heads(getattr(inner, f"{n}_global").forward(wide)) if any_global else None
            for n in ("query", "key", "value")
        ]
        flags = at_global[:, :length]
        seen = ~masked[:, :length]
        scanned = forward.returned["self"][0]
        padded = scanned.shape[1]

        def of_rows(rows: Tensor) -> Tensor:
            call_seen = call.visible(rows)
            scores = precise(q[:, :, rows]) @ precise(k).mT
            if of_global[0] is not None and of_global[1] is not None:
                global_scores = precise(of_global[0][:, :, rows]) @ precise(of_global[1]).mT
                global_scores = global_scores / inner.head_dim**0.5
                scores = torch.where(flags[:, None, rows, None], global_scores, scores)
            weights = scores.masked_fill(~call_seen, -torch.inf).softmax(-1)
            return weights.nan_to_num(0.0) * call_seen  # rows of padding hold nothing

        def to_projection(z: Tensor) -> Tensor:
            flat = z.transpose(1, 2).flatten(2)
            return torch.nn.functional.pad(flat, (0, 0, 0, padded - length))

        call = BandedCall(
            v=v,
            z=scanned[:, :length].unflatten(-1, (inner.num_heads, -1)).transpose(1, 2),
            kind="banded softmax",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=False,
            row_sum="1",
            v_global=of_global[2],
            at_global=flags,
            band=inner.one_sided_attn_window_size,
            unpadded=seen,
        )
        return call
