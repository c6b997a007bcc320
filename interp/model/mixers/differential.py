"""Differential attention (Ye et al. 2024, arXiv:2410.05258): a softmax minus lambda times another.

The H query heads of the config are H/2 pairs. Pair p has the map softmax_p - lambda softmax_{p+H/2}
over values of twice the head's width; its rows sum to 1 - lambda.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import RowIndex
from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


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
