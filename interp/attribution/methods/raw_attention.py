"""Raw attention of one layer."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.attribution.graph.streamed_patterns import NOTES, attended, is_streamed
from interp.core.errors import OptionError


@attribution(unit="attention mass", signed=False, needs="patterns")
def raw_attention(example: Example, *, layer: int = -1, stack: str = "") -> Scores:
    """Average the attention of one layer over heads, from the target's output position.

    The tokens to which a head attends need not be those on which the output depends; `occlusion`
    measures the latter. Above 256 MiB of patterns only the target's row is computed, in blocks, and
    there is no matrix.

    Not for: explanations: attention to a token does not show that the model uses it.
    `bundled:deceive` misleads it.

    Args:
        example: the input and its target.
        layer: index of the layer from 0, negative from the end.
        stack: name of the stack, if the model has several.

    Reference: the baseline of Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers".
    """
    sites = example.sites(stack or None)
    if not -len(sites) <= layer < len(sites):
        raise OptionError(
            f"layer={layer} does not exist; there are {len(sites)} layers, counted from 0"
        )
    if is_streamed(example, stack):
        (row,) = attended(example, stack, layer % len(sites))
        return Scores(row.mean(0).numpy(), notes=dict(NOTES))
    sites, patterns = stored_layers(example, stack)
    matrix = patterns[layer].double().mean(0)
    rows = target_rows(example, sites[0].stack)
    return Scores(rows @ matrix.cpu().numpy(), matrix.cpu().numpy())
