"""One sequence spread over processes: each runs its part, and its queries see the keys of all.

Every process of a `torch.distributed` group (gloo or NCCL) calls `spread_scores` with the same
arguments. A process embeds, and runs through all layers, only its part of the tokens; in each
attention keys and values of all parts are gathered, and the streamed engine reduces the rows of
its own queries. So the memory of a pattern, and of what layers compute, falls with the number of
processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.heads.scoring import bound
from interp_kernels import attention_statistics
from interp_kernels.problem import Attention
from interp_kernels.reductions import Output, Reduction

if TYPE_CHECKING:
    from interp.model.model import Model

NAME = "interp_spread"


def spread_scores(
    model: Model, ids: Sequence[int], metrics: Sequence[str]
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Score one sequence, of which each process of the running group holds a part.

    Reference: He et al. 2023, "A Unified View of Long-Sequence Models towards Modeling
    Million-Scale Dependencies" (arXiv 2302.06218).
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    rank, number = dist.get_rank(), dist.get_world_size()
    if len(ids) % number or len(ids) < 2 * number:
        raise OptionError(f"{len(ids)} tokens do not spread evenly over {number} processes")
    size = len(ids) // number
    start = rank * size
    tokens = torch.tensor([list(ids)], device=model.device)
    asked = {name: bound(name).reductions() for name in metrics}
    sums: dict[str, dict[int, Tensor]] = {name: {} for name in metrics}

    def spread(
        module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, None]:
        if options.get("sliding_window") or options.get("softcap"):
            raise OptionError(f"{model.name}: windows and caps of scores are not spread")
        k, v = (_gathered(x, number) for x in (k, v))
        attention = Attention(
            q=q, k=k, v=v, causal=True, scale=options["scaling"], offset=start, tokens=tokens
        )
        each: dict[str, Reduction] = {r.name: r for some in asked.values() for r in some}
        reductions = [*each.values(), Output(name="z")]
        results = cast(
            "Mapping[str, Any]", attention_statistics(attention, reductions, backend="auto")
        )
        for name, (value, *rows) in asked.items():
            rate = results[value.name].double()
            counts = (results[rows[0].name] > 0).double() if rows else torch.ones_like(rate)
            counts = counts.expand_as(rate)
            both = torch.stack([(rate * counts).sum((0, 2)), counts.sum((0, 2))])
            dist.all_reduce(both)
            sums[name][module.layer_idx] = both[0] / both[1]
        return results["z"].to(q.dtype).transpose(1, 2).contiguous(), None

    ALL_ATTENTION_FUNCTIONS.register(NAME, spread)
    config: Any = model.module.config
    before = config._attn_implementation
    try:
        config._attn_implementation = NAME
        with torch.inference_mode():
            model.module(
                input_ids=tokens[:, start : start + size],
                use_cache=False,
                position_ids=torch.arange(start, start + size, device=model.device)[None],
            )
    finally:
        config._attn_implementation = before
        ALL_ATTENTION_FUNCTIONS._local_mapping.pop(NAME, None)
    return {
        name: torch.stack([layers[i] for i in sorted(layers)]).cpu().numpy()
        for name, layers in sums.items()
    }


def _gathered(x: Tensor, number: int) -> Tensor:
    """Return keys or values of all parts, in order."""
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(number)]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, 2)
