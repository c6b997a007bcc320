"""The JSON of the front end of circuit-tracer, with heads and MLPs numbered as features.

That format knows features, errors, tokens and logits, and no heads. Here the node
`{layer}_{f}_{pos}` of type "cross layer transcoder" is

- head h for f = n_layers + h,
- the MLP for f = n_layers + n_heads,
- feature i of a dictionary for f = n_layers + n_heads + 1 + i,

with the name in `clerp`. Error nodes have the id `0_{layer}_{pos}`, which is the id of a feature of
layer 0 with the number `layer`; since numbers start at n_layers, no two ids are equal. Errors of
dictionaries are numbered behind those of MLPs in the second field: `0_{layer}_{pos}` stands for the
MLP, and a dictionary's error is a feature with f = n_layers + n_heads + 1 + 2**31.
`feature` is the Cantor pairing of layer and f.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from interp.core.ties import ordered_by

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from interp.circuits.why.graph_edges import GraphNode


DICTIONARY_ERROR = 2**31


def cantor(layer: int, number: int) -> int:
    """Return the Cantor pairing of two whole numbers, which is different for every pair."""
    return (layer + number) * (layer + number + 1) // 2 + number


def feature_number(node: GraphNode, n_layers: int, n_heads: int) -> int:
    """Return the number that stands for a head, an MLP, a feature or a dictionary's error."""
    place = {
        "head": node.number,
        "mlp": n_heads,
        "feature": n_heads + 1 + node.number,
        "error": n_heads + 1 + DICTIONARY_ERROR,
    }[node.kind]
    return n_layers + place


def tracer_document(graph: PrunedGraph, slug: str = "") -> dict[str, Any]:
    """Return the document as plain data: metadata, qParams, nodes and links."""
    ids = {x.name: _id(graph, x) for x in graph.nodes}
    if len(set(ids.values())) != len(ids):
        raise AssertionError("two nodes have the same id")
    order = ordered_by(graph.nodes, lambda x: x.influence)
    reached, cumulative = 0.0, {}
    for x in order:
        reached += x.influence
        cumulative[x.name] = min(reached, 1.0)
    nodes = [_node(graph, x, ids[x.name], cumulative[x.name]) for x in graph.nodes]
    links = [
        {"source": ids[s], "target": ids[t], "weight": w}
        for s, t, w in zip(graph.sources, graph.targets, graph.weights.tolist(), strict=True)
    ]
    groups = [
        [label, *(ids[name] for name in names)]
        for label, names in graph.groups("head").items()
        if len(names) > 1 and label not in ("tokens", "logits")
    ]
    digest = hashlib.sha256(repr((graph.model, graph.ids)).encode()).hexdigest()[:8]
    tokens = [_shown(t) for t in graph.tokens]
    return {
        "metadata": {
            "slug": slug or f"interp-{digest}",
            "scan": graph.model,
            "transcoder_list": [],
            "prompt_tokens": tokens,
            "prompt": "".join(graph.tokens),
            "node_threshold": graph.shares[0],
            "schema_version": 1,
        },
        "qParams": {
            "pinnedIds": [],
            "supernodes": groups,
            "linkType": "both",
            "clickedId": "",
            "sg_pos": "",
        },
        "nodes": nodes,
        "links": links,
    }


def _shown(token: str) -> str:
    return token.replace("\n", "⏎").replace("\t", "→").replace("\r", "↵")


def _is_mlp_error(node: GraphNode) -> bool:
    return node.kind == "error" and node.number == 0


def _id(graph: PrunedGraph, node: GraphNode) -> str:
    if node.kind == "embedding":
        return f"E_{node.number}_{node.position}"
    if node.kind == "logit":
        return f"{graph.n_layers + 1}_{node.number}_{node.position}"
    if _is_mlp_error(node):
        return f"0_{node.layer}_{node.position}"
    return f"{node.layer}_{feature_number(node, graph.n_layers, graph.n_heads)}_{node.position}"


def _node(graph: PrunedGraph, node: GraphNode, name: str, influence: float) -> dict[str, Any]:
    layer, number = str(node.layer), -1
    kind = "cross layer transcoder"
    text = graph.described(node)
    if node.kind == "embedding":
        layer, number, kind = "E", node.position, "embedding"
        text = _shown(graph.tokens[node.position])
    elif node.kind == "logit":
        layer, number, kind = str(graph.n_layers + 1), node.number, "logit"
        text = f'Output "{_shown(graph.texts[node.number])}" (p={node.p:.3f})'
    elif _is_mlp_error(node):
        kind = "mlp reconstruction error"
    else:
        number = cantor(node.layer, feature_number(node, graph.n_layers, graph.n_heads))
    most = max((x.p for x in graph.nodes), default=0.0)
    return {
        "node_id": name,
        "feature": number,
        "layer": layer,
        "ctx_idx": node.position,
        "feature_type": kind,
        "token_prob": node.p,
        "is_target_logit": node.kind == "logit" and node.p == most,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": f"{name.rpartition('_')[0]}-{node.position}",
        "clerp": text,
        "influence": influence,
        "activation": node.activation,
    }


class PrunedGraph(Protocol):
    """Attributes of `interp.circuits.AttributionGraph` that are drawn; described there."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def tokens(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def ids(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def n_layers(self) -> int: ...  # noqa: D102
    @property
    def n_heads(self) -> int: ...  # noqa: D102
    @property
    def nodes(self) -> tuple[GraphNode, ...]: ...  # noqa: D102
    @property
    def sources(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def targets(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def weights(self) -> Float[np.ndarray, " edge"]: ...  # noqa: D102
    @property
    def influences(self) -> Float[np.ndarray, " edge"]: ...  # noqa: D102
    @property
    def texts(self) -> Mapping[int, str]: ...  # noqa: D102
    @property
    def shares(self) -> tuple[float, float]: ...  # noqa: D102
    def __len__(self) -> int: ...
    def top(self, k: int) -> Self:
        """Return the graph with its first k edges."""
        ...

    def described(self, node: GraphNode) -> str:
        """Return a node's name with the text of its token."""
        ...

    def groups(self, by: str = "head") -> dict[str, tuple[str, ...]]:
        """Return the names of the nodes of each group."""
        ...
