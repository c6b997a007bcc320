"""Planted model that declines, through one head, if a marker is in the prompt."""

from __future__ import annotations

from dataclasses import replace

import torch

from interp.planted.assemble import Planted, Sizes, Stage, assemble
from interp.planted.heads import DECLINE, MARKER


def refusal(
    *,
    layers: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 64,
    context: int = 1024,
    seed: int = 0,
) -> Planted:
    """Build a head that attends to the marker (token 1), wherever it is, and writes "decline".

    Every other token is predicted from a table of bigrams in the embedding (`Planted.successor`).
    With a visible marker the head adds twice the logit of such a prediction to token 2, so that the
    model declines; without one it attends to the first token and writes nothing. It writes to the
    subspace "refusal". `config.marker_token_id` and `config.refusal_token_ids` name the tokens. The
    head is in the second quarter of the layers, so that its direction is in the stream well before
    the end.
    """
    sizes = Sizes(layers, heads, kv_heads, vocab, context, seed)
    stages = [Stage(()), Stage(("refusal",)), Stage(()), Stage(())]
    planted = assemble("refusal", stages[: max(layers, 2)], {}, sizes, bigrams=True)
    config = planted.model.config
    config.marker_token_id, config.refusal_token_ids = MARKER, [DECLINE]
    written = planted.subspaces["output"][DECLINE][None]
    return replace(planted, subspaces=planted.subspaces | {"refusal": torch.clone(written)})
