"""Attention as it stands."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.core.errors import OptionError


@attribution(unit="attention mass", signed=False, needs="patterns")
def raw_attention(example: Example, *, layer: int = -1, stack: str = "") -> Scores:
    """Mean over heads of the attention of one layer, from the row that the target reads.

    What a head looks at is not what the model uses: see `occlusion` for that.

    Not for: explanations: what a head attends to is not what the model uses. `bundled:deceive`
    fools it.

    Args:
        layer: counted from 0, negative from the end.
        stack: where a model has several.

    Reference: the baseline of Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers".
    """
    sites, patterns = stored_layers(example, stack)
    if not -len(patterns) <= layer < len(patterns):
        raise OptionError(f"layer {layer}; there are {len(patterns)}, counted from 0")
    matrix = patterns[layer].double().mean(0)
    rows = target_rows(example, sites[0].stack)
    return Scores(rows @ matrix.cpu().numpy(), matrix.cpu().numpy())
