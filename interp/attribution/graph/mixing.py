"""The layered graph of one example: which nodes it has, and which of them are sources and outputs.

For one stack of self-attention the nodes are its positions. An encoder-decoder is one graph over
the tokens of both: while the encoder runs, decoder nodes keep what they are, and the reverse; in
cross attention a decoder node keeps `residual` of itself and takes the rest from encoder nodes.
Sources are then the tokens of the encoder, outputs the positions of the decoder, and what stems
from the decoder's own tokens is what the sources' scores lack of 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.attribution.graph.layered import (
    REDUCTIONS,
    check_options,
    mixture,
    reduction_weights,
    rows_to_one,
)
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from interp.attribution.example import Example
    from interp.model.locate.sites import Site

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Mixing:
    """Layers over one set of nodes, the lowest first."""

    layers: list[Float[Array, "node node"]]
    rows: Float[Array, " output"]  # how much the target reads each output; sums to 1
    outputs: slice
    sources: slice
    notes: dict[str, Any] = field(default_factory=dict)

    def of_outputs(self, weights: Float[Array, "*n output"]) -> Float[Array, "*n node"]:
        """Weights of the outputs as weights of all nodes."""
        nodes = np.zeros((*weights.shape[:-1], len(self.layers[0])))
        nodes[..., self.outputs] = weights
        return nodes


def is_joint(example: Example, stack: str) -> bool:
    """Whether the graph is that of encoder and decoder together."""
    return not stack and "cross" in example.model.stacks


def chosen_sites(
    example: Example, stack: str, start_layer: int = 0, last_layer: int = -1
) -> list[Site]:
    """The attentions of a range of layers of one stack of self-attention.

    Raises:
        OptionError: a layer or stack that does not exist, or scores that would not be of the
            input's tokens.
    """
    sites = example.sites(stack or None)
    if sites[0].stack == "cross" or (
        sites[0].stack == "decoder" and "cross" in example.model.stacks
    ):
        raise OptionError(
            f"stack {sites[0].stack!r} of an encoder-decoder has no path from the input's tokens; "
            "leave stack out for both stacks together, or take 'encoder'"
        )
    for name, layer in (("start_layer", start_layer), ("last_layer", last_layer)):
        if not -len(sites) <= layer < len(sites):
            raise OptionError(f"{name} {layer}; there are {len(sites)}, counted from 0")
    first, last = start_layer % len(sites), last_layer % len(sites)
    if last < first:
        raise OptionError(f"start_layer {start_layer} lies above last_layer {last_layer}")
    return sites[first : last + 1]


def stored_layers(
    example: Example, stack: str
) -> tuple[list[Site], list[Float[Tensor, "head query_pos key_pos"]]]:
    """Attentions of one stack and their patterns, whose keys are the input's tokens.

    Raises:
        OptionError: several stacks and none named; keys or queries that are other positions.
    """
    sites, patterns = example.sites(stack or None), example.patterns(stack or None)
    queries = len(target_rows(example, sites[0].stack))
    for site, pattern in zip(sites, patterns, strict=True):
        own = site.stack == "decoder" and "cross" in example.model.stacks
        if own or tuple(pattern.shape[-2:]) != (queries, len(example)):
            raise OptionError(
                f"{site.name} attends from {pattern.shape[-2]} to {pattern.shape[-1]} positions "
                f"{'of the decoder' if own else ''}, the input has {len(example)} tokens: its "
                "attention is no score of them"
            )
    return sites, patterns


def target_rows(example: Example, stack: str) -> Float[Array, " output"]:
    """How much the target reads each output; all alike where it reads another stack's positions."""
    if stack == "encoder" and "cross" in example.model.stacks:
        return np.full(len(example), 1 / len(example))
    return example.rows.double().cpu().numpy()


def mixing(
    example: Example,
    residual: float,
    heads: Any,
    normalise: str,
    *,
    start_layer: int = 0,
    last_layer: int = -1,
    stack: str = "",
) -> Mixing:
    """The graph of an example, from stored patterns.

    Raises:
        OptionError: an option that does not fit, or layers of different lengths.
    """
    check_options(residual, normalise)
    if is_joint(example, stack):
        if (
            (start_layer, last_layer) != (0, -1)
            or not isinstance(heads, str)
            or (heads not in REDUCTIONS)
        ):
            raise OptionError(
                "of encoder and decoder together all layers take part, and heads are "
                f"{', '.join(REDUCTIONS)}; name stack='encoder' to choose layers or heads"
            )
        return _joint(example, residual, heads, normalise)
    sites = chosen_sites(example, stack, start_layer, last_layer)
    patterns = {s.layer: p for s, p in zip(*stored_layers(example, stack), strict=True)}
    weights = reduction_weights(heads, [s.n_heads for s in sites], [s.layer for s in sites])
    layers = []
    for i, site in enumerate(sites):
        pattern = patterns[site.layer]
        own = None if weights is None else weights[i]
        layers.append(mixture(pattern.double().cpu().numpy(), own, residual,
                              reduction=heads if weights is None else "mean",
                              normalise=normalise))  # fmt: skip
    rows = target_rows(example, sites[0].stack)
    return Mixing(layers, rows, slice(None), slice(None), row_notes(layers))


def _joint(example: Example, residual: float, heads: str, normalise: str) -> Mixing:
    n, m = len(example), len(example.output_tokens)
    source, output = slice(0, n), slice(n, n + m)
    places = {"encoder": (source, source), "decoder": (output, output), "cross": (output, source)}
    found: dict[tuple[str, int], Array] = {}
    for stack, place in places.items():
        for site, pattern in zip(example.sites(stack), example.patterns(stack), strict=True):
            weights = None if heads != "mean" else np.full(site.n_heads, 1 / site.n_heads)
            matrix = np.eye(n + m)
            mixed = mixture(pattern.double().cpu().numpy(), weights,
                            0.0 if stack == "cross" else residual, reduction=heads)  # fmt: skip
            if stack == "cross":
                matrix[output] *= residual
                mixed = (1 - residual) * mixed
            matrix[place] = mixed
            found[stack, site.layer] = rows_to_one(matrix) if normalise == "rows" else matrix
    order = sorted(key for key in found if key[0] == "encoder")
    order += sorted(
        ((s, i) for s, i in found if s != "encoder"), key=lambda k: (k[1], k[0] == "cross")
    )
    layers = [found[key] for key in order]
    return Mixing(layers, target_rows(example, ""), output, source, row_notes(layers))


def row_notes(layers: list[Array]) -> dict[str, Any]:
    """A word on rows that do not sum to one, where there are any."""
    sums = np.concatenate([matrix.sum(1) for matrix in layers])
    if np.abs(sums - 1).max() < 1e-4:  # float32 patterns
        return {}
    return {"row sums": [float(sums.min()), float(sums.max())]}
