"""Relevance by attention times its gradient, propagated through the layers."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


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
    from interp.attribution.chefer_rules import relevance
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
    from interp.attribution.streamed_gradients import weighted_patterns

    row = example.rows.to(torch.double)
    for weighted in reversed(weighted_patterns(example).values()):
        added = torch.zeros_like(row)
        for rows, block in weighted.blocks():
            if bool(row[rows].any()):
                added += row[rows] @ block.clamp_min(0).mean(0).cpu()
        row = row + added
    return row.numpy()
