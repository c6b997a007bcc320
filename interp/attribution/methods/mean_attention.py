"""Attention of all layers together."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows


@attribution(unit="attention mass", signed=False, needs="patterns")
def mean_attention(example: Example, *, stack: str = "") -> Scores:
    """Mean over layers and heads of the attention from the row that the target reads.

    No layer knows of the ones below it here: what a lower layer moved is credited to the position
    it was moved to, not to the token that it came from.

    Not for: explanations: what lower layers moved is credited to the place where it was moved to.
    `bundled:deceive` fools it.

    Args:
        stack: where a model has several.
    """
    sites, patterns = stored_layers(example, stack)
    matrix = torch.stack([p.double().mean(0) for p in patterns]).mean(0).cpu().numpy()
    return Scores(target_rows(example, sites[0].stack) @ matrix, matrix)
