"""Talking heads (Shazeer et al. 2020, arXiv:2003.02436) in DeBERTa: heads mix their attention.

Scores are mixed over heads before the softmax, and weights after it. The map of a head is its
mixture of all softmaxes; entries may be negative, and its rows sum to the row of the mixing matrix.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from interp.model.calls.call import ALL, RowIndex
from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


class _SeenCall(MapCall):
    """Call whose entries other than zero are what its module lets a query see."""

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of keys that have a weight in some head."""
        return (self.map(rows) != 0).any(1, keepdim=True)


@register_mixer
class TalkingHeads(Mixer):
    """Attention of DeBERTa with `talking_head`; without it the attention is one softmax."""

    classes = ("DebertaAttention",)
    needs = (
        "self.head_logits_proj",
        "self.head_weights_proj",
        "self.in_proj",
        "self.v_bias",
        "self.num_attention_heads",
    )
    projection = "output.dense"
    watched = ("self.in_proj", "self.head_weights_proj", "self")

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the mixed weights, which the module itself holds whole."""
        heads = module.self.num_attention_heads
        weights = forward.returned["self.head_weights_proj"].permute(0, 3, 1, 2)
        single = forward.given["self.head_weights_proj"][0].permute(0, 3, 1, 2)
        projected = forward.returned["self.in_proj"].unflatten(-1, (heads, -1))
        v = projected.chunk(3, -1)[2] + module.self.v_bias.view(heads, -1)
        z = forward.returned["self"][0].unflatten(-1, (heads, -1))
        return _SeenCall(
            v=v.transpose(1, 2),
            z=z.transpose(1, 2),
            kind="talking heads",
            of_rows=lambda rows: weights[:, :, rows],
            to_projection=lambda z: z.transpose(1, 2).flatten(2),
            signed=True,
            row_sum="a row of the matrix that mixes heads",
            parts={"softmax": lambda rows: single[:, :, rows]},
        )
