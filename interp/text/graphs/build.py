"""Attention graphs of a model's prompt, of any matrix, and of the product of several layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import words
from interp.model.content import result_provenance
from interp.model.head_arguments import parse_heads
from interp.model.model_argument import takes_model
from interp.text.graphs.graph import AttentionGraph
from interp.text.graphs.thresholds import kept_edges

if TYPE_CHECKING:
    import torch

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

LARGEST = 4096
"""Most nodes of a graph, whose matrix is stored; longer texts have a graph of sentences."""
OVER = ("mean", "product")


def graph_of(
    weights: Float[np.ndarray, "node node"],
    nodes: Sequence[str] | None = None,
    *,
    threshold: str = "disparity:0.05",
    seen: Any = None,
    kind: str = "attention",
    provenance: Mapping[str, Any] | None = None,
) -> AttentionGraph:
    """Make the graph of a matrix of attention: rows attend to columns.

    Args:
        weights: square matrix of weights that are not negative.
        nodes: names; numbers by default.
        threshold: which weights are edges; see `kept_edges`.
        seen: True where a node may attend to another; by default where a weight is positive, or on
            and below the diagonal if all weights above it are 0.
        kind: what the weights are.
        provenance: how they were computed.

    Raises:
        OptionError: the matrix is not square, is negative or not finite, or names do not fit.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 2 or w.shape[0] != w.shape[1]:
        raise OptionError(f"weights have shape {list(w.shape)}; a graph needs a square matrix")
    if not np.isfinite(w).all() or (w < 0).any():
        raise OptionError("weights are negative or not finite; a graph needs weights >= 0")
    names = tuple(map(str, range(len(w)) if nodes is None else nodes))
    if len(names) != len(w):
        raise OptionError(f"{len(names)} names for {len(w)} nodes; give one each")
    if len(w) > LARGEST:
        raise OptionError(
            f"{len(w):,} nodes; a graph of tokens has at most {LARGEST:,}. Make a graph of "
            "sentences: graph_of(chains.sentence_attention(model, chain))"
        )
    if seen is None:
        causal = not np.triu(w, 1).any()
        seen = np.tril(np.ones_like(w, dtype=bool)) if causal else np.ones_like(w, dtype=bool)
    seen = np.asarray(seen, dtype=bool)
    even = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    chosen = kept_edges(np.where(seen, w, 0), threshold)
    a, b = np.nonzero(chosen)
    order = np.argsort(-w[a, b], kind="stable")
    edges = np.stack([a[order], b[order]], 1)
    settings = {"made_by": "interp.text.graphs.graph_of", "threshold": threshold} | {
        **(provenance or {})
    }
    return AttentionGraph(names, w, even, edges, threshold, kind, settings)


def over_layers(
    patterns: Sequence[Float[np.ndarray, "head node node"]],
    *,
    over: str = "product",
    residual: float = 0.0,
) -> Float[np.ndarray, "node node"]:
    """Combine the attention of heads and layers to one matrix: an Attention Graph.

    Heads of a layer are averaged. Layers are multiplied, the last one first: the entry (i, j) is
    the attention that reaches j from i over all paths. Values and weights after attention are
    not part of it.

    Args:
        patterns: attention of every layer in order, `[head, node, node]`.
        over: "product" of the layers, or their "mean".
        residual: share of each layer that passes by the attention; .5 is that of rollout.

    Raises:
        OptionError: an option is not known or out of range, or there are no layers.

    Reference: El, Choudhury, Lio and Joshi 2025, "Towards Mechanistic Interpretability of Graph
    Transformers via Attention Graphs"; with the residual, Abnar and Zuidema 2020.

    Unit: attention weight.

    Not for: what reaches a node: values and residual streams are left out; see attribution.

    Cost: One product of square matrices per layer.

    Null: none; measures of its graph are compared with random graphs.
    """
    if over not in OVER or not 0 <= residual < 1 or not len(patterns):
        raise OptionError(
            f"over={over!r}, residual={residual}, {len(patterns)} layers: over is one of "
            f"{', '.join(OVER)}, the residual from 0 to below 1, and there is at least one layer"
        )
    layers = [np.asarray(p, dtype=np.float64).mean(0) for p in patterns]
    if over == "mean":
        return np.mean(layers, axis=0)
    eye, total = np.eye(len(layers[0])), np.eye(len(layers[0]))
    for layer in layers:
        total = (residual * eye + (1 - residual) * layer) @ total
    return total


@takes_model
def attention_graph(
    model: Model,
    prompt: Any,
    *,
    heads: Any = None,
    over: str = "mean",
    residual: float = 0.0,
    threshold: str = "disparity:0.05",
    skip_first: bool = True,
) -> AttentionGraph:
    """Make the graph of the attention between the tokens of one prompt.

    Args:
        model: the model.
        prompt: one prompt.
        heads: heads that are averaged; all by default.
        over: "mean" of heads and layers, or "product" of the layers; see `over_layers`.
        residual: share of each layer that passes by the attention, for the product.
        threshold: which weights are edges; see `kept_edges`.
        skip_first: leave out the first token as a node: as an attention sink it would be joined to
            every other. Weights are not changed.

    Raises:
        PromptError: there is not one prompt, or it is too short.
        OptionError: the prompt is too long, a head does not exist, or an option is out of range.

    Unit: attention weight.

    Cost: One forward pass.

    Not for: the flow of information: values and the paths around attention are no part of the
    graph.

    Null: random graphs of the same degrees, in the graph's own measures.

    Reference: El, Choudhury, Lio and Joshi 2025, "Towards Mechanistic Interpretability of Graph
    Transformers via Attention Graphs"; for prompts: this project.
    """
    prompts = Prompts.of(prompt, model)
    prompts.check(model)
    n = len(prompts.ids[0])
    if len(prompts) != 1 or n < 3:
        raise PromptError(
            f"{len(prompts)} prompts, the first of {n} tokens; a graph is of one prompt of at "
            "least 3 tokens"
        )
    if n > LARGEST:
        raise OptionError(
            f"{n:,} tokens; a graph of tokens has at most {LARGEST:,}. Make a graph of sentences: "
            "graph_of(chains.sentence_attention(model, chain))"
        )
    chosen = None if heads is None else parse_heads(heads)
    stacks = [s for s in model.stacks if s != "cross"]
    stack = stacks[-1] if "decoder" in stacks else stacks[0]
    layers: list[np.ndarray] = []
    n_chosen = 0

    def visit(site: Site, call: Call, real: torch.Tensor) -> None:
        nonlocal n_chosen
        if site.stack != stack:
            return
        mine = [h.head for h in chosen or () if h.layer == site.layer and h.stack in (None, stack)]
        if chosen is not None and not mine:
            return
        if mine and max(mine) >= site.n_heads:
            raise OptionError(f"{model.name} has {site.n_heads} heads in layer {site.layer}")
        n_chosen += len(mine)
        pattern = call.pattern()[0]
        layers.append((pattern if chosen is None else pattern[mine]).double().cpu().numpy())

    model.read(prompts, visit, last=1)
    if not layers or (chosen is not None and n_chosen < len(chosen)):
        raise OptionError(
            f"{model.name} has {n_chosen} of the {len(chosen or ())} heads in {stack}"
        )
    matrix = over_layers(layers, over=over, residual=residual)
    first = int(skip_first)
    provenance = result_provenance(
        model,
        "interp.text.graphs.attention_graph",
        prompts,
        heads=None if chosen is None else [str(h) for h in chosen],
        over=over,
        residual=residual,
        threshold=threshold,
        skip_first=skip_first,
    )
    ids = prompts.ids[0]
    return graph_of(
        matrix[first:, first:],
        words(model, ids)[first:],
        threshold=threshold,
        kind=f"attention, {over}",
        provenance=provenance,
    )
