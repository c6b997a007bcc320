"""Result of an attribution graph: the kept nodes and edges of one prompt, and its files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.why.graph_edges import GraphNode
from interp.core.errors import UnknownName
from interp.core.files import write_atomically
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.core.ties import ranked

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import plotly.graph_objects as go
    from jaxtyping import Float

Array = np.ndarray
DRAWN_EDGES = 300  # edges in a picture at most
GROUPINGS = ("head", "layer", "token")


@dataclass(frozen=True, eq=False, repr=False)
class AttributionGraph(Result):
    """Direct effects between the parts of a model on one prompt, after pruning.

    The rows are edges, by influence on the logits. The score of an edge is the part of the target's
    activation that the source contributes.

    Args:
        model: Name of the model.
        tokens, ids: The prompt.
        n_layers, n_heads: Size of the model.
        nodes: Kept nodes.
        sources, targets: Names of the nodes of each edge.
        weights: Score of each edge.
        influences: Share of the target's edges times the influence of the target.
        nodes_before, edges_before: Numbers before pruning.
        residual: Largest difference of a head's or logit's activation from the sum of its edges and
            biases.
        mlp_error: Sizes of the parts of MLPs that the gradient leaves out, of the sizes of all that
            MLPs write.
        texts: Texts of the tokens of logit nodes.
        shares: The shares of influence that kept nodes and edges have.
        made: Provenance.
    """

    model: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    n_layers: int
    n_heads: int
    nodes: tuple[GraphNode, ...] = field(repr=False)
    sources: tuple[str, ...] = field(repr=False)
    targets: tuple[str, ...] = field(repr=False)
    weights: Float[Array, " edge"] = field(repr=False)
    influences: Float[Array, " edge"] = field(repr=False)
    nodes_before: int
    edges_before: int
    residual: float
    mlp_error: float
    texts: Mapping[int, str]
    shares: tuple[float, float]
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "it is of one prompt"
    _units = ("source", "target")
    _by = "influence"
    _per_row = ("sources", "targets", "weights", "influences")
    _holds = (GraphNode,)

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the prompt and the options."""
        return self.made

    def __len__(self) -> int:
        return len(self.sources)

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "direct effect", "unit": "length written; logit for logits"}

    def _rows(self) -> pd.DataFrame:
        """Return a row per edge, by influence."""
        import pandas as pd

        return pd.DataFrame(
            {
                "source": self.sources,
                "target": self.targets,
                "score": self.weights,
                "influence": self.influences,
            }
        )

    @cached_property
    def node(self) -> Mapping[str, GraphNode]:
        """The kept nodes by name."""
        return {x.name: x for x in self.nodes}

    def described(self, node: GraphNode) -> str:
        """Return a node's name with the text of its token."""
        if node.kind == "logit":
            return f"output {self.texts[node.number]!r} (p={node.p:.3f})"
        return f"{node.name.partition('@')[0]} at {self.tokens[node.position]!r} ({node.position})"

    def groups(self, by: str = "head") -> dict[str, tuple[str, ...]]:
        """Return supernodes: names of the kept nodes by head (or MLP), layer or token.

        Raises:
            UnknownName: There is no such grouping.
        """
        if by not in GROUPINGS:
            raise UnknownName("grouping", by, GROUPINGS)
        by_label: dict[str, list[str]] = {}
        for x in self.nodes:
            if x.kind == "logit":
                label = "logits"
            elif by == "token":
                label = f"{self.tokens[x.position]} ({x.position})"
            elif x.kind == "embedding":
                label = "tokens"
            else:
                label = x.name.partition("@")[0] if by == "head" else f"layer {x.layer}"
            by_label.setdefault(label, []).append(x.name)
        return {label: tuple(names) for label, names in by_label.items()}

    def grouped(self, by: str = "head") -> pd.DataFrame:
        """Return the edges between supernodes: sums of scores and influences, the largest first."""
        import pandas as pd

        group = {name: label for label, names in self.groups(by).items() for name in names}
        frame = pd.DataFrame(
            {
                "source": [group[x] for x in self.sources],
                "target": [group[x] for x in self.targets],
                "score": self.weights,
                "influence": self.influences,
                "edges": 1,
            }
        )
        total: Any = frame.groupby(["source", "target"], sort=False, as_index=False).sum()
        return ranked(total, "influence").reset_index(drop=True)

    def to_networkx(self) -> nx.DiGraph:
        """Return a directed graph with the nodes' and edges' numbers as attributes."""
        import networkx as nx

        graph = nx.DiGraph()
        for x in self.nodes:
            graph.add_node(
                x.name,
                kind=x.kind,
                layer=x.layer,
                position=x.position,
                token=self.described(x),
                activation=x.activation,
                influence=x.influence,
            )
        for source, target, weight, influence in zip(
            self.sources, self.targets, self.weights.tolist(), self.influences.tolist(), strict=True
        ):
            graph.add_edge(source, target, weight=weight, influence=influence)
        return graph

    def to_circuit_tracer(self, path: str | os.PathLike | None = None, *, slug: str = "") -> str:
        """Return the JSON that the front end of circuit-tracer reads, and write it to a file.

        That format has no heads: see `interp.circuits.why.tracer_json` for how they are numbered.
        """
        from interp.circuits.why.tracer_json import tracer_document

        text = json.dumps(tracer_document(self, slug), indent=1, allow_nan=False) + "\n"
        if path is not None:
            write_atomically(Path(path), text.encode())
        return text

    def _graphml(self) -> str:
        import networkx as nx

        return "\n".join(nx.generate_graphml(self.to_networkx())) + "\n"

    def plot(self, k: int = 100) -> go.Figure:
        """Draw the first k edges, at most 300: tokens from left to right, layers upwards."""
        return drawn("plot", self, min(k, DRAWN_EDGES))

    def __repr__(self) -> str:
        return (
            f"AttributionGraph({self.model}, {len(self.tokens)} tokens: {len(self.nodes)} of "
            f"{self.nodes_before} nodes and {len(self)} of {self.edges_before} edges; MLP error "
            f"{self.mlp_error:.2f} of what MLPs write)"
        )


present(
    AttributionGraph,
    plot="interp.report.attribution_graph:drawn_figure",
    vector="interp.report.attribution_graph:save_graph",
    text="interp.report.printed.circuits:graph_text",
)
