"""Attention times its gradient."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="target", signed=False, needs="gradients", softmax_only=True)
def attention_gradient(example: Example, *, stack: str = "") -> Scores:
    """Sum |attention x derivative of the target by attention| over layers, heads and queries.

    The derivative by one pattern includes the effect on the patterns of later layers. In an
    encoder-decoder the tokens are the keys of both the encoder and cross attention. Above 256 MiB
    of patterns, those of one stack are computed in blocks and never stored.

    Not for: the sign of an effect: it sums absolute values.

    Args:
        example: the input and its target.
        stack: name of the stack to which the sum is restricted.

    Reference: Hao et al. 2021, "Self-Attention Attribution: Interpreting Information Interactions
    Inside Transformer", at one point of its path.
    """
    from interp.attribution.gradients import pattern_gradients
    from interp.attribution.graph.streamed_patterns import NOTES, is_streamed
    from interp.attribution.streamed_gradients import weighted_patterns

    wanted = set(example.sites(stack)) if stack else None
    if wanted is None and example.model.kind == "encoder-decoder":
        wanted = {s for s in example.model.sites if s.stack in ("encoder", "cross")}
    total = torch.zeros(len(example), dtype=torch.double)
    if len(example.model.stacks) == 1 and is_streamed(example, stack):
        for weighted in weighted_patterns(example).values():
            for _, block in weighted.blocks():
                total += block.abs().sum((0, 1)).cpu()
        return Scores(total.numpy(), notes=dict(NOTES))
    for site, (pattern, gradient) in pattern_gradients(example).items():
        if wanted is None or site in wanted:
            total += (pattern * gradient).abs().sum((0, 1))
    return Scores(total.numpy())
