"""Mean attention over all layers."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.attribution.graph.streamed_patterns import NOTES, attended, is_streamed


@attribution(unit="attention mass", signed=False, needs="patterns")
def mean_attention(example: Example, *, stack: str = "") -> Scores:
    """Average attention from the target's output position over layers and heads.

    Layers are treated independently: information that a lower layer moved is credited to the
    position to which it was moved, not to the token from which it came. Above 256 MiB of patterns
    only the target's row is computed, in blocks, and there is no matrix.

    Not for: explanations: information that lower layers moved is credited to the wrong position.
    `bundled:deceive` misleads it.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.
    """
    if is_streamed(example, stack):
        rows = torch.stack([row.mean(0) for row in attended(example, stack)])
        return Scores(rows.mean(0).numpy(), notes=dict(NOTES))
    sites, patterns = stored_layers(example, stack)
    matrix = torch.stack([p.double().mean(0) for p in patterns]).mean(0).cpu().numpy()
    return Scores(target_rows(example, sites[0].stack) @ matrix, matrix)
