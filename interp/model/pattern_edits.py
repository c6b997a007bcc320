"""Interventions on the attention pattern of heads; z follows from the pattern and the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.model.calls.steps import columns_of_step, rows_of_step
from interp.model.edits import Edit, Positions, broadcast_value
from interp.model.head_arguments import HeadsLike, parse_heads

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site


def uniform(heads: HeadsLike, *, positions: Positions = None, stack: str | None = None) -> Edit:
    """Spread the head's attention evenly over its visible keys; its values stay unchanged."""

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        from interp.model.hooks.long_output import uniform_output

        return uniform_output(call)

    heads = parse_heads(heads)
    return Edit("uniform-attention", heads, replace, positions, stack, of_pattern=True)


def set_pattern(
    heads: HeadsLike,
    pattern: Tensor | Callable[[Tensor], Tensor],
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Replace the attention pattern; z is computed from the new pattern and the head's values.

    Args:
        heads: edited heads.
        pattern: broadcasts to `[batch, head, query_pos, key_pos]`, or a function of the pattern.
            While generating with a cache a tensor gives the rows of the queries and keys of a step,
            and a function receives the keys that the cache holds.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.
    """

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        original = call.pattern()
        if isinstance(pattern, Tensor):
            rows = rows_of_step(pattern, call, "pattern", site)
            return call.mix(
                broadcast_value(columns_of_step(rows, call, site), original, "pattern", site)
            )
        # a copy: the function may write into it while the model still uses the original
        new = pattern(original.clone())
        return call.mix(broadcast_value(new, original, "pattern", site))

    return Edit("pattern", parse_heads(heads), replace, positions, stack, of_pattern=True)


def calibrate(
    heads: HeadsLike,
    *,
    keep: float = 0.4,
    over: float = 5.0,
    threshold: float | None = None,
    first: int = 1,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Calibrate attention (ACT): reduce the attention to sinks other than the first token.

    A key is a sink of a head if the mean attention from the queries that see it is above `over /
    keys`, or above `threshold`. Its attention is multiplied by `keep`, and the freed attention is
    distributed over the keys that are not such sinks, in proportion to their attention; a row that
    attends only to sinks stays unchanged.

    Reference: Yu et al. 2024, "Unveiling and Harnessing Hidden Attention Sinks" (ICML).
    """
    if not 0 <= keep <= 1 or over <= 0 or first < 0 or (threshold is not None and threshold < 0):
        raise OptionError(
            f"keep={keep}, over={over}, threshold={threshold}, first={first}; keep must be from 0 "
            "to 1, "
            "the others not negative"
        )

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        pattern, seen = call.pattern(), call.visible()
        queries = (seen & real[:, None, :, None]).to(pattern.dtype)
        alpha = (pattern * queries).sum(2) / queries.sum(2).clamp_min(1)
        same = seen.shape[-1] == real.shape[1]  # the keys are the queries' own tokens
        keys = real if same else seen.any(2).any(1)
        order = keys.long().cumsum(1) - 1
        limit = over / keys.sum(1, keepdim=True) if threshold is None else threshold
        limit = limit[:, None] if isinstance(limit, Tensor) else limit
        sink = (alpha > limit) & (keys & (order >= first))[:, None]
        on = pattern * sink[:, :, None]
        off = pattern - on
        rest = off.sum(-1, keepdim=True)
        given = (1 - keep) * on.sum(-1, keepdim=True)
        moved = on * keep + off * (1 + given / rest.clamp_min(torch.finfo(rest.dtype).tiny))
        return call.mix(torch.where(rest > 0, moved, pattern))

    detail = f"keep={keep:g}, " + (
        f"over={over:g}" if threshold is None else f"threshold={threshold:g}"
    )
    detail += f", first={first}"
    return Edit(
        "calibrate-attention",
        parse_heads(heads),
        replace,
        positions,
        stack,
        detail,
        of_run="the mean attention of the queries of a run",
        of_pattern=True,
    )


def temperature(
    heads, value: float, *, positions: Positions = None, stack: str | None = None
) -> Edit:
    """Divide the scores of a head by a temperature before its softmax.

    The new weights are p^(1 / value), normalised to the sum of the row; p are the model's own.
    Below 1 attention is sharper, as in tests of a model beyond its trained length; 1 changes
    nothing. Weights of exactly 0 stay 0.

    Reference: Wang et al. 2024, "Length Generalization of Causal Transformers without Position
    Encoding" (arXiv 2404.12224), whose HeadScale is 1 / value.
    """
    if not 0 < value < float("inf"):
        raise OptionError(f"temperature {value:g}: give a positive number")

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        pattern = call.pattern()
        least = torch.finfo(torch.float32).tiny
        scores = pattern.float().clamp_min(least).log() / value
        new = (scores - scores.amax(-1, keepdim=True)).exp() * (pattern > 0)
        whole = pattern.float().sum(-1, keepdim=True)
        new = new / new.sum(-1, keepdim=True).clamp_min(least) * whole
        return call.mix(new.to(pattern.dtype))

    heads, detail = parse_heads(heads), f"{value:g}"
    return Edit("temperature", heads, replace, positions, stack, detail, of_pattern=True)
