"""Attention times its gradient, summed or propagated through the layers (Chefer)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


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
    from interp.attribution.gradients import pattern_gradients, weighted_patterns
    from interp.attribution.graph.streamed_patterns import NOTES, is_streamed

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


@attribution(unit="relevance", signed=False, needs="gradients", softmax_only=True)
def chefer(example: Example) -> Scores:
    """Roll out the attention that raises the target: add mean over heads of (dA x A)+ times R to R.

    R starts as the identity, so a position has relevance 1 to itself from the start. In an
    encoder-decoder, cross attention is combined with the relevance of both stacks (rules 10 and 11
    of the paper), and the output is a decoder position. Above 256 MiB of patterns, only the
    target's row of one stack is computed, in blocks, and there is no matrix.

    Not for: signs or small differences: negative parts are set to zero in every layer.

    Reference: Chefer et al. 2021, "Generic Attention-model Explainability for Interpreting Bi-Modal
    and Encoder-Decoder Transformers".
    """
    from interp.attribution.gradients import pattern_gradients
    from interp.attribution.graph.streamed_patterns import NOTES, is_streamed

    if len(example.model.stacks) == 1 and is_streamed(example, ""):
        return Scores(_row(example), notes=dict(NOTES))
    gradients = pattern_gradients(example)
    maps = [(s.stack, (p * g).clamp_min(0).mean(0)) for s, (p, g) in gradients.items()]
    matrix = relevance(maps, len(example), len(example.output_tokens))
    return Scores((example.rows.to(torch.double) @ matrix).numpy(), matrix.numpy())


def _row(example: Example) -> Float[np.ndarray, " source"]:
    """Multiply the target's row by the layers from the top, without storing a map."""
    from interp.attribution.gradients import weighted_patterns

    row = example.rows.to(torch.double)
    for weighted in reversed(weighted_patterns(example).values()):
        added = torch.zeros_like(row)
        for rows, block in weighted.blocks():
            if bool(row[rows].any()):
                added += row[rows] @ block.clamp_min(0).mean(0).cpu()
        row = row + added
    return row.numpy()


Map = Float[Tensor, "query_pos key_pos"]


def relevance(
    maps: Sequence[tuple[str, Map]], sources: int, outputs: int
) -> Float[Tensor, "output source"]:
    """Compute the relevance of each source to each output."""
    stacks = {stack for stack, _ in maps}
    relevances = torch.eye(sources, dtype=torch.double)
    if len(stacks) == 1:
        for _, a in maps:
            relevances = relevances + a @ relevances  # rule 5
        return relevances
    if stacks != {"encoder", "decoder", "cross"}:
        raise OptionError(
            f"relevance is defined for one stack, or for encoder, decoder and cross attention; the "
            f"model has {', '.join(sorted(stacks))}; use another method"
        )
    for stack, a in maps:
        if stack == "encoder":
            relevances = relevances + a @ relevances
    targets = torch.eye(outputs, dtype=torch.double)
    across = torch.zeros(outputs, sources, dtype=torch.double)
    for stack, a in maps:
        if stack == "decoder":
            across, targets = across + a @ across, targets + a @ targets  # rules 6 and 5
        elif stack == "cross":
            # rule 10; rule 11 adds nothing, because the encoder never reads the decoder
            across = across + normalised(targets).T @ a @ normalised(relevances)
    return across


def normalised(r: Float[Tensor, "pos pos"]) -> Float[Tensor, "pos pos"]:
    """Scale the part beyond the identity to rows of sum 1 and add the identity (rules 8, 9)."""
    eye = torch.eye(len(r), dtype=r.dtype)
    added = r - eye
    size = added.sum(-1, keepdim=True)
    return torch.where(size > 0, added / size.clamp_min(torch.finfo(r.dtype).tiny), added) + eye
