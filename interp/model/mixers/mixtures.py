"""Attentions whose map is a mixture of several softmaxes.

Talking heads (Shazeer et al. 2020, arXiv:2003.02436) in DeBERTa: scores are mixed over heads before
the softmax, and weights after it. The map of a head is its mixture of all softmaxes; entries may be
negative, and its rows sum to the row of the mixing matrix.

Differential attention (Ye et al. 2024, arXiv:2410.05258): a softmax minus lambda times another. The
H query heads of the config are H/2 pairs. Pair p has the map softmax_p - lambda softmax_{p+H/2}
over values of twice the head's width; its rows sum to 1 - lambda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
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


@register_mixer
class Differential(Mixer):
    """DiffLlama: two calls of the attention interface with equal queries and keys."""

    classes = ("DiffLlamaAttention",)
    needs = (
        "lambda_q1",
        "lambda_k1",
        "lambda_q2",
        "lambda_k2",
        "lambda_init",
        "groupnorm",
        "head_dim",
    )
    projection = "o_proj"

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the pairs' maps, with both softmaxes as parts."""
        if len(forward.calls) != 2:
            raise UnreadableAttention(
                f"{type(module).__name__} called attention {len(forward.calls)} times in one "
                "forward; differential attention calls it twice"
            )
        first, second = forward.calls
        pairs, groups = first.q.shape[1] // 2, first.v.shape[1] // 2
        lam = _lambda(module).to(first.q.dtype)
        both = torch.cat([first.z, second.z], -1)

        def softmaxes(rows: RowIndex) -> tuple[Tensor, Tensor]:
            weights = first.pattern(rows)
            return weights[:, :pairs], weights[:, pairs:]

        def of_rows(rows: Tensor) -> Tensor:
            left, right = softmaxes(rows)
            return left - lam.to(left.dtype) * right

        def to_projection(z: Tensor) -> Tensor:
            normed = (1 - module.lambda_init) * module.groupnorm.forward(z.transpose(1, 2))
            return normed.flatten(2)

        return MapCall(
            v=torch.cat([first.v[:, :groups], second.v[:, :groups]], -1),
            z=both[:, :pairs] - lam * both[:, pairs:],
            kind="differential",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=True,
            row_sum="1 - lambda",
            masked_by=first,
            parts={
                "first": lambda rows: softmaxes(rows)[0],
                "second": lambda rows: softmaxes(rows)[1],
            },
        )


def _lambda(module: Any) -> Tensor:
    """Return the factor of the second softmax."""
    first = torch.exp(torch.sum(module.lambda_q1 * module.lambda_k1, -1, dtype=torch.float32))
    second = torch.exp(torch.sum(module.lambda_q2 * module.lambda_k2, -1, dtype=torch.float32))
    return first - second + module.lambda_init
