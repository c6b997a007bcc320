"""Layered graph of one example: its nodes, sources, outputs, and one matrix per layer.

For one stack of self-attention the nodes are its positions. An encoder-decoder is one graph over
the tokens of both stacks: encoder layers leave decoder nodes unchanged, and decoder layers leave
encoder nodes unchanged; in cross attention a decoder node keeps the share `residual` of itself and
takes the rest from encoder nodes. Sources are then the tokens of the encoder and outputs the
positions of the decoder. The scores of the sources sum to 1 minus the share of the decoder's own
tokens.
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
    from interp.model.calls.sites import Site

Array = np.ndarray
STORED_BYTES = 2**28  # largest size of the patterns of all layers that "auto" stores
MOST_BYTES = 2**32  # largest size of the patterns of all layers that are ever stored


@dataclass(frozen=True, eq=False)
class Mixing:
    """Matrices of all layers over one set of nodes, the lowest first."""

    layers: list[Float[Array, "node node"]]
    rows: Float[Array, " output"]  # weight of each output in the target; sums to 1
    outputs: slice
    sources: slice
    notes: dict[str, Any] = field(default_factory=dict)

    def of_outputs(self, weights: Float[Array, "*n output"]) -> Float[Array, "*n node"]:
        """Extend weights of the outputs to weights of all nodes."""
        nodes = np.zeros((*weights.shape[:-1], len(self.layers[0])))
        nodes[..., self.outputs] = weights
        return nodes


def is_joint(example: Example, stack: str) -> bool:
    """Return True if the graph covers encoder and decoder together."""
    return not stack and "cross" in example.model.stacks


def chosen_sites(
    example: Example, stack: str, start_layer: int = 0, last_layer: int = -1
) -> list[Site]:
    """Return the attention layers of a range of one stack of self-attention."""
    sites = example.sites(stack or None)
    if sites[0].stack == "cross" or (
        sites[0].stack == "decoder" and "cross" in example.model.stacks
    ):
        raise OptionError(
            f"stack {sites[0].stack!r} of an encoder-decoder has no path from the input's tokens; "
            "omit stack for both stacks together, or use 'encoder'"
        )
    for name, layer in (("start_layer", start_layer), ("last_layer", last_layer)):
        if not -len(sites) <= layer < len(sites):
            raise OptionError(
                f"{name}={layer} does not exist; there are {len(sites)} layers, counted from 0"
            )
    first, last = start_layer % len(sites), last_layer % len(sites)
    if last < first:
        raise OptionError(
            f"start_layer={start_layer} lies above last_layer={last_layer}; exchange them"
        )
    return sites[first : last + 1]


def stored_layers(
    example: Example, stack: str
) -> tuple[list[Site], list[Float[Tensor, "head query_pos key_pos"]]]:
    """Return the attention layers of one stack with their patterns over the input's tokens."""
    require_storable(example, stack)
    sites, patterns = example.sites(stack or None), example.patterns(stack or None)
    queries = len(target_rows(example, sites[0].stack))
    for site, pattern in zip(sites, patterns, strict=True):
        decoder_self = site.stack == "decoder" and "cross" in example.model.stacks
        if decoder_self or tuple(pattern.shape[-2:]) != (queries, len(example)):
            raise OptionError(
                f"{site.name} attends from {pattern.shape[-2]} to {pattern.shape[-1]} positions "
                f"{'of the decoder' if decoder_self else ''}, but the input has {len(example)} "
                "tokens: its attention is not a score of these tokens; use another stack or method"
            )
    return sites, patterns


def pattern_bytes(example: Example, stack: str) -> int:
    """Return the size of the patterns of all layers of one stack in float32."""
    return 4 * len(example) ** 2 * sum(s.n_heads for s in example.sites(stack or None))


def require_storable(example: Example, stack: str) -> None:
    """Raise if the patterns of all layers exceed 4 GiB."""
    size = pattern_bytes(example, stack)
    if size > MOST_BYTES:
        raise OptionError(
            f"{len(example):,} tokens have patterns of {size / 2**30:.0f} GiB, more than the "
            f"{MOST_BYTES / 2**30:.0f} GiB that are stored: what needs every output by every token "
            "is refused. For the row of one target use rollout (without full), raw_attention, "
            "mean_attention or value_weighted; for segments use interp view, which sums blocks"
        )


def target_rows(example: Example, stack: str) -> Float[Array, " output"]:
    """Return the weight of each output in the target, equal for the encoder of two stacks."""
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
    """Make the graph of an example from stored patterns."""
    check_options(residual, normalise)
    if is_joint(example, stack):
        if (
            (start_layer, last_layer) != (0, -1)
            or not isinstance(heads, str)
            or (heads not in REDUCTIONS)
        ):
            raise OptionError(
                "for encoder and decoder together all layers are included, and heads= is one of "
                f"{', '.join(REDUCTIONS)}; use stack='encoder' to choose layers or heads"
            )
        return _joint(example, residual, heads, normalise)
    sites = chosen_sites(example, stack, start_layer, last_layer)
    patterns = {s.layer: p for s, p in zip(*stored_layers(example, stack), strict=True)}
    weights = reduction_weights(heads, [s.n_heads for s in sites], [s.layer for s in sites])
    layers = []
    for i, site in enumerate(sites):
        pattern = patterns[site.layer]
        head_weights = None if weights is None else weights[i]
        layers.append(
            mixture(
                pattern.double().cpu().numpy(),
                head_weights,
                residual,
                reduction=heads if weights is None else "mean",
                normalise=normalise,
            )
        )
    rows = target_rows(example, sites[0].stack)
    return Mixing(layers, rows, slice(None), slice(None), row_notes(layers))


def _joint(example: Example, residual: float, heads: str, normalise: str) -> Mixing:
    n, m = len(example), len(example.output_tokens)
    source, output = slice(0, n), slice(n, n + m)
    places = {"encoder": (source, source), "decoder": (output, output), "cross": (output, source)}
    matrices: dict[tuple[str, int], Array] = {}
    for stack, place in places.items():
        for site, pattern in zip(example.sites(stack), example.patterns(stack), strict=True):
            weights = None if heads != "mean" else np.full(site.n_heads, 1 / site.n_heads)
            matrix = np.eye(n + m)
            mixed = mixture(
                pattern.double().cpu().numpy(),
                weights,
                0.0 if stack == "cross" else residual,
                reduction=heads,
            )
            if stack == "cross":
                matrix[output] *= residual
                mixed = (1 - residual) * mixed
            matrix[place] = mixed
            matrices[stack, site.layer] = rows_to_one(matrix) if normalise == "rows" else matrix
    order = sorted(key for key in matrices if key[0] == "encoder")
    order += sorted(
        ((s, i) for s, i in matrices if s != "encoder"), key=lambda k: (k[1], k[0] == "cross")
    )
    layers = [matrices[key] for key in order]
    return Mixing(layers, target_rows(example, ""), output, source, row_notes(layers))


def row_notes(layers: list[Array]) -> dict[str, Any]:
    """Return a note on the smallest and largest row sum if rows do not sum to one."""
    sums = np.concatenate([matrix.sum(1) for matrix in layers])
    if np.abs(sums - 1).max() < 1e-4:  # float32 patterns
        return {}
    return {"row sums": [float(sums.min()), float(sums.max())]}
