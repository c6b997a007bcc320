"""Attribution graph of one prompt: direct effects between tokens, heads, MLPs, features and logits.

found = attribution_graph(model, "The cat sat on the mat. The cat sat on the")
found.top(10), found.grouped("head"), found.plot()
found.save("graph.graphml"), found.to_circuit_tracer("graph.json")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.circuits.why.batches import asked_prompts
from interp.circuits.why.graph_edges import MlpRule, direct_edges
from interp.circuits.why.graph_result import AttributionGraph
from interp.circuits.why.stream_parts import StreamDictionary
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.tokens import token_id, words
from interp.model.content import model_provenance
from interp.model.locate.norms import HELD_NORMS
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.model.model import Model

MOST_NODES = 12_000  # of the graph before pruning: 0.6 GB of edges


@takes_model
def attribution_graph(
    model: Model,
    prompt: Any,
    *,
    targets: Sequence[str | int] = (),
    mass: float = 0.95,
    most_logits: int = 10,
    node_share: float = 0.8,
    edge_share: float = 0.98,
    dictionaries: Sequence[StreamDictionary] = (),
    features: int = 64,
    mlp: MlpRule = "gradient",
) -> AttributionGraph:
    """Compute the direct effects between all parts of a model on one prompt, and prune the graph.

    Nodes are tokens, heads and MLPs at each position, features if dictionaries are given, and the
    most probable next tokens. Attention patterns, norm scales and MLP derivatives are held at their
    values in the run: an MLP is its gradient times each contribution, and an error node holds what
    that leaves out. Why a head attends is not in the graph; see `qk_shares`.

    Args:
        model: The model.
        prompt: One text or list of token ids.
        targets: Tokens whose logits are nodes; by default the most probable ones.
        mass: Probability that the logit nodes cover.
        most_logits: Largest number of logit nodes.
        node_share: Share of the influence on the logits that the kept nodes have.
        edge_share: Share of the influence that the kept edges between them have.
        dictionaries: Features of the stream that stand in place of the writers before them.
        features: Number of features of each dictionary that are nodes.
        mlp: Linear form of MLPs: "gradient", or "identity", where every activation is its ratio to
            its input times the input and both sides of a product count half, so that only biases
            are left out. In gated MLPs the gradient counts twice, and its error is about as large
            as the output.

    Raises:
        UnreadableAttention: The model has no residual graph, or the edges do not sum to the
            activations.
        PromptError: There are several prompts, or a target is not one token.
        OptionError: A share is not between 0 and 1, or the prompt is too long.

    Unit: Length of what a node writes; for logits, logits minus their mean.

    Cost: Three forward passes and a gradient per MLP; memory grows with the square of nodes.

    Null: None; compare the same prompt in a model with random weights.

    Not for: effects through attention patterns, which are held.

    Reference: Ameisen et al. 2025, "Circuit Tracing: Revealing Computational Graphs in Language
        Models", for the influence and the pruning.
    """
    for name, value in (("mass", mass), ("node_share", node_share), ("edge_share", edge_share)):
        if not 0 < value <= 1:
            raise OptionError(f"{name}={value} is not a share; give a number above 0, up to 1")
    if mlp not in ("gradient", "identity"):
        raise UnknownName("linear form of MLPs", mlp, ("gradient", "identity"))
    if most_logits < 1:
        raise OptionError(f"most_logits={most_logits}; give 1 or more")
    given = asked_prompts(model, prompt)
    if len(given) != 1:
        raise PromptError(f"{len(given)} prompts; a graph is of one prompt")
    ids = given.ids[0]
    groups = 2 + sum(s.n_heads + 2 for s in model.sites) + features * len(dictionaries)
    if groups * len(ids) > MOST_NODES:
        raise OptionError(
            f"the graph of {len(ids)} tokens has {groups * len(ids)} nodes, above {MOST_NODES}; "
            f"give a prompt of at most {MOST_NODES // groups} tokens"
        )
    direct = direct_edges(
        model,
        ids,
        mass=mass,
        most=most_logits,
        asked=[token_id(model, t) for t in targets],
        dictionaries=dictionaries,
        features=features,
        mlp=mlp,
    )
    start = torch.tensor([x.p for x in direct.nodes], dtype=torch.float32)
    kinds = [x.kind for x in direct.nodes]
    fixed = torch.tensor([k in ("embedding", "logit") for k in kinds])
    inputs = torch.tensor([k in ("embedding", "error") for k in kinds])
    nodes, edges, influence = pruned(direct.weights, start, fixed, inputs, node_share, edge_share)
    shares = row_shares(direct.weights)
    through = influence_of(shares, start) + start
    total = float(influence.sum()) or 1.0
    kept = [
        replace(direct.nodes[i], influence=float(influence[i]) / total)
        for i in nodes.nonzero().flatten().tolist()
    ]
    places = edges.nonzero()
    names = [x.name for x in direct.nodes]
    score = shares * through[:, None]
    order = places[score[edges].argsort(descending=True, stable=True)]
    t, s = order.unbind(1)
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.attribution_graph",
        "norms": HELD_NORMS,
        "options": {
            "mass": mass,
            "most_logits": most_logits,
            "node_share": node_share,
            "edge_share": edge_share,
            "targets": [str(x) for x in targets],
            "mlp": mlp,
        },
        "prompts": {"design": given.design, "n": 1, "hash": given.hash},
        "prompts_hash": given.hash,
    }
    heads = [x for x in direct.nodes if x.kind in ("head", "logit")]
    error = sum(abs(x.activation) for x in direct.nodes if x.kind == "error" and x.number == 0)
    written = sum(abs(x.activation) for x in direct.nodes if x.kind == "mlp")
    return AttributionGraph(
        model.name,
        tuple(words(model, list(ids))),
        direct.ids,
        model.n_layers,
        max(site.n_heads for site in model.sites),
        tuple(kept),
        tuple(names[i] for i in s.tolist()),
        tuple(names[i] for i in t.tolist()),
        direct.weights[t, s].double().numpy(),
        score[t, s].double().numpy(),
        len(direct.nodes),
        int((direct.weights != 0).sum()),
        max(abs(x.residual) for x in heads),
        error / written if written else 0.0,
        {int(x.number): words(model, [x.number])[0] for x in kept if x.kind == "logit"},
        (node_share, edge_share),
        provenance,
    )


_STEPS = 10_000  # longest path; the graph has no cycles, so that the sum ends before


def row_shares(weights: Float[Tensor, "target source"]) -> Float[Tensor, "target source"]:
    """Return the absolute weights, scaled so that the sources of each target sum to 1."""
    size = weights.abs()
    return size / size.sum(1, keepdim=True).clamp_min(1e-10)


def influence_of(
    shares: Float[Tensor, "target source"], start: Float[Tensor, " node"]
) -> Float[Tensor, " node"]:
    """Return `start A + start A^2 + ...`: the influence of each node on the weighted logits."""
    total, step = torch.zeros_like(start), start
    for _ in range(_STEPS):
        step = step @ shares
        if not bool(step.any()):
            return total
        total = total + step
    raise AssertionError("the attribution graph has a cycle")


def least_set(scores: Float[Tensor, " x"], share: float) -> Bool[Tensor, " x"]:
    """Return the mask of the fewest largest scores whose sum reaches a share of all."""
    if not len(scores) or float(scores.sum()) <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    ordered = scores.sort(descending=True).values
    reached = ordered.cumsum(0) / ordered.sum()
    at = int(torch.searchsorted(reached, torch.tensor(share, dtype=reached.dtype)))
    return scores >= ordered[min(at, len(ordered) - 1)]


def pruned(
    weights: Float[Tensor, "target source"],
    start: Float[Tensor, " node"],
    fixed: Bool[Tensor, " node"],
    inputs: Bool[Tensor, " node"],
    node_share: float,
    edge_share: float,
) -> tuple[Bool[Tensor, " node"], Bool[Tensor, "target source"], Float[Tensor, " node"]]:
    """Return masks of the nodes and edges that carry the influence, and each node's influence."""
    influence = influence_of(row_shares(weights), start)
    nodes = least_set(influence, node_share) | fixed
    left = weights * nodes[:, None] * nodes[None, :]
    shares = row_shares(left)
    through = influence_of(shares, start) + start
    scores = shares * through[:, None]
    edges = least_set(scores.flatten(), edge_share).reshape(scores.shape) & (scores > 0)
    while True:
        kept = nodes & (fixed | (edges.any(0) & (inputs | edges.any(1))))
        edges = edges & kept[:, None] & kept[None, :]
        if bool((kept == nodes).all()):
            return nodes, edges, influence
        nodes = kept
