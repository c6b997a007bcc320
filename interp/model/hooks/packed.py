"""Attention over packed pictures: one call per picture becomes one call with a batch axis.

Qwen2-VL and its kin lay the patches of all pictures in one row and attend within each stretch that
`cu_seqlens` marks, one call of the attention interface after another. They are one attention over a
batch of pictures, or of windows; shorter ones are padded, and no query sees the padding.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, nn

from interp.model.calls.call import ComputedCall


@dataclass(eq=False)
class Stretches:
    """Calls of one forward of a packed attention, until the last of them ran."""

    expected: int
    calls: list[ComputedCall] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def add(self, call: ComputedCall, out: Tensor) -> ComputedCall | None:
        """Add a call; return the joint call once all are there."""
        self.calls.append(call)
        self.outputs.append(out)
        return as_batch(self.calls) if len(self.calls) == self.expected else None

    def write(self, z: Tensor) -> None:
        """Replace the outputs of all calls by those of an edited joint call."""
        for i, (call, out) in enumerate(zip(self.calls, self.outputs, strict=True)):
            mine = z[i : i + 1, :, : call.z.shape[2]]
            out.copy_(mine.to(out.dtype).transpose(1, 2).reshape(out.shape))


def as_batch(calls: Sequence[ComputedCall]) -> ComputedCall:
    """Return calls over stretches of one row as one call, `[stretch, head, pos, d]`."""
    lengths = [call.q.shape[2] for call in calls]
    first, longest = calls[0], max(lengths)

    def stacked(parts: Sequence[Tensor]) -> Tensor:
        padded = (torch.nn.functional.pad(x, (0, 0, 0, longest - x.shape[2])) for x in parts)
        return torch.cat(list(padded))

    mask = None
    if min(lengths) < longest:
        there = torch.arange(longest) < torch.tensor(lengths)[:, None]
        # a padded query sees the first key, so that its row is not empty
        seen = there[:, None] & (there[:, :, None] | (torch.arange(longest) == 0))
        mask = seen[:, None].to(first.q.device)
    return ComputedCall(
        stacked([c.q for c in calls]),
        stacked([c.k for c in calls]),
        stacked([c.v for c in calls]),
        stacked([c.z for c in calls]),
        scale=first.scale,
        mask=mask,
        softcap=first.softcap,
        sinks=first.sinks,
        owner=first.owner,
    )


PACKED = "cu_seqlens"  # argument of attentions that read the pictures of a batch in one row


@cache
def _takes_stretches(kind: type[nn.Module]) -> bool:
    return PACKED in inspect.signature(kind.forward).parameters


def packed_modules(model: nn.Module) -> list[nn.Module]:
    """Return the attention modules whose inputs are packed; blocks around them are left out."""
    modules = [m for m in model.modules() if _takes_stretches(type(m))]
    return [m for m in modules if not any(o is not m and o in set(m.modules()) for o in modules)]
