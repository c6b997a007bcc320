"""Attention times the target's derivative by it, in blocks of queries, for long inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.gradients import embedding_leaves, grads
from interp.causal.gate_derivatives import frozen
from interp.model.calls.call import Call, ComputedCall, repeat_kv
from interp.model.calls.sites import Site
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.attribution.example import Example

ENTRIES = 2**21  # weights of all heads at a time: 16 MiB in double precision


@dataclass(frozen=True, eq=False)
class WeightedPattern:
    """Pattern of one layer times the target's derivative by it, never stored as a whole.

    Args:
        call: the attention call.
        gradient: the target's derivative by the head outputs (z).
    """

    call: ComputedCall
    gradient: Float[Tensor, "head query_pos d_v"]

    def blocks(self) -> Iterator[tuple[slice, Float[Tensor, "head row key_pos"]]]:
        """Yield the queries of every block and its weights times their derivatives.

        The derivative by the weight of query i and key j is the inner product of the derivative by
        the output of i and the value of j.
        """
        heads, queries, _ = self.gradient.shape
        value = repeat_kv(self.call.v, heads)[0].double()
        size = max(1, ENTRIES // (heads * value.shape[1]))
        for first in range(0, queries, size):
            rows = slice(first, min(first + size, queries))
            derivative = self.gradient[:, rows].double() @ value.transpose(1, 2)
            yield rows, self.call.pattern(rows)[0].double() * derivative


def weighted_patterns(example: Example) -> dict[Site, WeightedPattern]:
    """Return the weighted pattern of every layer, in order of the run; see `pattern_gradients`."""
    model, calls, z = example.model, {}, {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        assert isinstance(call, ComputedCall), "is_streamed excludes a family's own code"
        z[site] = call.z = call.z.clone()
        every = {f.name: getattr(call, f.name) for f in fields(call)}
        detached = {name: x.detach() for name, x in every.items() if isinstance(x, Tensor)}
        calls[site] = replace(call, **detached)

    with torch.enable_grad(), frozen(model.module), inference(model.module):
        with embedding_leaves(model, None), model.visited(visit, stage="mix"):
            output = model.run(example.inputs)
        values = example.read(output)
    gradients = grads(model, values, list(z.values()))
    return {
        site: WeightedPattern(call, g[0].detach())
        for (site, call), g in zip(calls.items(), gradients, strict=True)
    }
