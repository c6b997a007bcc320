"""Relevance by attention times its gradient, propagated through the layers."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="relevance", signed=False, needs="gradients")
def chefer(example: Example) -> Scores:
    """Roll out the attention that raises the target: add mean over heads of (dA x A)+ times R to R.

    R starts as the identity, so a position has relevance 1 to itself from the start. In an
    encoder-decoder, cross attention is combined with the relevance of both stacks (rules 10 and 11
    of the paper), and the output is a decoder position.

    Not for: signs or small differences: negative parts are set to zero in every layer.

    Reference: Chefer et al. 2021, "Generic Attention-model Explainability for Interpreting Bi-Modal
    and Encoder-Decoder Transformers".
    """
    from interp.attribution.chefer_rules import relevance
    from interp.attribution.gradients import pattern_gradients

    found = pattern_gradients(example)
    maps = [(s.stack, (p * g).clamp_min(0).mean(0)) for s, (p, g) in found.items()]
    matrix = relevance(maps, len(example), len(example.output_tokens))
    return Scores((example.rows.to(torch.double) @ matrix).numpy(), matrix.numpy())
