"""Circuit: nodes and edges with their scores, and how they were found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float

from interp.circuits.exports import DRAWN, CircuitFiles
from interp.circuits.nodes import NodeSet, effect_text, head_columns, larger_effect, node_of
from interp.core.errors import OptionError
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.core.ties import ordered

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Found
    from interp.model.model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Circuit(CircuitFiles, Result):
    """Nodes of a model with their scores for a task; larger absolute scores matter more.

    Its rows are the nodes, and after them the edges; nodes that are heads have a layer and a head.

    Args:
        model: Name of the model.
        n_layers, n_heads: Size of the model.
        task: Name of the task.
        method: Name of the method.
        level: "head" or "edge".
        nodes: Names in the order of the model, such as `embed`, `L0H3`, `mlp0`.
        score: Mean over prompts (or repeats) of the node's effect alone, positive where it helps,
            in `unit`; NaN where it was not measured.
        sem: Standard error of `score`; NaN where there is only one number.
        n: Number of prompts (or repeats).
        unit: Unit of the scores.
        edges: (writer, reader) names; empty at the level of heads.
        edge_score, edge_sem: Scores of the edges and their standard errors.
        roles: Names for groups of nodes, where they were given.
        notes: Remarks that the reader needs to interpret the scores.
        tables: Further results of the method.
        made: Provenance.
        conditional, conditional_sem: Effect of a node while the head in `conditional_on` is
            ablated, in `unit`, and its standard error; NaN where that was not measured, or no
            backup was found.
        conditional_on: By node, the head that is ablated.
        measured: By node, how its score was measured.
        estimate: By node, an estimate of its score by gradients or NaN; it orders nothing.
        edge_measured: By edge, how its score was measured; empty where that is as for the nodes.
        per_prompt: Score of each node, and after them of each edge, on each pair, `[row, prompt]`;
            None where a method has one score for all pairs, and in a circuit of a file.
        clusters: A label per pair where pairs share a template; errors are over clusters.
    """

    model: str
    n_layers: int
    n_heads: int
    task: str
    method: str
    level: str
    nodes: tuple[str, ...]
    score: Float[Array, " node"]
    sem: Float[Array, " node"]
    n: int
    unit: str
    edges: tuple[tuple[str, str], ...] = ()
    edge_score: Float[Array, " edge"] = field(default_factory=lambda: np.zeros(0))
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tables: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    conditional: Float[Array, " node"] = field(default_factory=lambda: np.zeros(0))
    conditional_sem: Float[Array, " node"] = field(default_factory=lambda: np.zeros(0))
    conditional_on: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    estimate: Float[Array, " node"] = field(default_factory=lambda: np.zeros(0))
    edge_sem: Float[Array, " edge"] = field(default_factory=lambda: np.zeros(0))
    edge_measured: tuple[str, ...] = ()
    per_prompt: Float[Array, "row prompt"] | None = field(default=None, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    why_no_per_prompt = "its method has one score for all pairs, or it is of a file without them"
    _units = ("node", "from", "to")
    _order = "score"

    def __post_init__(self) -> None:
        """Fill columns that were not given with empty ones of the right length."""
        n = len(self.nodes)
        for name in ("conditional", "conditional_sem", "estimate"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(n, math.nan))
        for name in ("conditional_on", "measured"):
            if not getattr(self, name):
                object.__setattr__(self, name, ("",) * n)
        if not len(self.edge_sem):
            object.__setattr__(self, "edge_sem", np.full(len(self.edges), math.nan))

    @classmethod
    def of(
        cls,
        model: Model,
        task: ContrastTask,
        method: str,
        level: str,
        options: Mapping[str, Any],
        found: Found,
    ) -> Circuit:
        """Make a circuit of a method's result, with its provenance."""
        from interp.circuits.contrast import example_pair, hashes
        from interp.core.standard_errors import standard_error
        from interp.model.content import model_provenance

        provenance = {
            **model_provenance(model),
            **task.about(),
            "method": method,
            "level": level,
            "options": dict(options),
            "forwards": found.forwards,
            "backwards": found.backwards,
            "signed": found.signed,
            "made_by": "interp.circuits.find_circuit",
            "pairs": hashes(task),
            "example": example_pair(model, task),
        }
        edges, now = found.edges_per_prompt, found.conditional
        pairs = found.columns == "pairs" and found.per_prompt.shape[1] == len(task)
        shared = task.clusters if pairs else None
        sem = partial(standard_error, clusters=shared)
        given, values = found.measured, found.per_prompt
        if edges is not None and edges.shape[1] == values.shape[1]:
            values = np.concatenate([values, edges])
        size = len(found.nodes) + len(found.edges), len(task)
        by_pair = found.columns == "pairs" and values.shape == size
        return cls(
            model.name,
            model.n_layers,
            model.n_heads,
            task.name,
            method,
            level,
            found.nodes,
            found.per_prompt.mean(1),
            sem(found.per_prompt),
            found.per_prompt.shape[1],
            found.unit,
            found.edges,
            np.zeros(0) if edges is None else edges.mean(1),
            dict(task.truth),
            found.notes,
            dict(found.tables),
            provenance,
            *((np.zeros(0), np.zeros(0)) if now is None else (now.mean(1), sem(now))),
            found.conditional_on,
            (given,) * len(found.nodes) if isinstance(given, str) else given,
            np.zeros(0) if found.estimate is None else found.estimate,
            np.zeros(0) if edges is None else sem(edges),
            found.edges_measured,
            values if by_pair else None,
            shared,
        )

    def __len__(self) -> int:
        return len(self.nodes) + len(self.edges)

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, task, method and options."""
        return {"model_id": self.model} | dict(self.made)

    @property
    def head_names(self) -> tuple[str, ...]:
        """The nodes that are heads."""
        return tuple(n for n in self.nodes if n.startswith("L"))

    @property
    def largest(self) -> Float[Array, " node"]:
        """Each node's score, conditional effect or share of its group, by which it is ordered."""
        groups = self.tables.get("groups", ())
        return larger_effect(self.score, self.conditional, self.nodes, groups)

    @property
    def chosen(self) -> NodeSet | None:
        """The smallest set of nodes and edges, which terminal, pages and files show; or None."""
        return NodeSet.of(self.tables)

    @property
    def ranking(self) -> tuple[str, ...]:
        """Nodes by the size of `largest`, ties in the order of the model; unmeasured nodes last."""
        order = np.where(np.isnan(self.score), -1.0, np.abs(self.largest))
        return tuple(self.nodes[i] for i in ordered(order))

    @property
    def edge_ranking(self) -> tuple[int, ...]:
        """Numbers of the edges by the size of their score, ties in the order of the model."""
        return tuple(ordered(np.abs(self.edge_score)))

    def top(self, k: int = 5, *, by: str | None = None, heads_only: bool = False) -> Self:
        """Keep the k nodes of largest score, and the edges between them.

        At the level of edges, keep the k edges of largest score and the nodes at their ends.

        Args:
            k: Number of nodes, or of edges.
            by: Another order, in which nodes and edges are rows alike; see `Result.top`.
            heads_only: Keep heads, also where there are edges.

        Raises:
            OptionError: k is negative.
            UnknownName: There is no such order.
        """
        if by is not None:
            return super().top(k, by=by)
        if k < 0:
            raise OptionError(f"k={k}; k is the number of nodes or edges to keep, 0 or more")
        if self.edges and not heads_only:
            kept_edges = set(self.edge_ranking[:k])
            keep = {n for i in kept_edges for n in (self.edges[i][0], node_of(self.edges[i][1]))}
        else:
            pool = [n for n in self.ranking if not heads_only or n.startswith("L")]
            keep = set(pool[:k])
            kept_edges = {
                i for i, (a, b) in enumerate(self.edges) if a in keep and node_of(b) in keep
            }
        rows = [i for i, name in enumerate(self.nodes) if name in keep]
        circuit = self._take([*rows, *(len(self.nodes) + i for i in kept_edges)])
        object.__setattr__(circuit, "_asked", len(circuit))  # all of it is displayed
        return circuit

    def _take(self, rows: Sequence[int]) -> Self:
        """Keep some nodes and edges, in the order of the model."""
        n = len(self.nodes)
        rows = sorted(rows)
        at, edges = [i for i in rows if i < n], [i - n for i in rows if i >= n]
        keep = {self.nodes[i] for i in at}
        circuit = replace(
            self,
            nodes=tuple(self.nodes[i] for i in at),
            score=self.score[at],
            sem=self.sem[at],
            conditional=self.conditional[at],
            conditional_sem=self.conditional_sem[at],
            conditional_on=tuple(self.conditional_on[i] for i in at),
            measured=tuple(self.measured[i] for i in at),
            estimate=self.estimate[at],
            edges=tuple(self.edges[i] for i in edges),
            edge_score=self.edge_score[edges],
            edge_sem=self.edge_sem[edges],
            edge_measured=tuple(self.edge_measured[i] for i in edges) if self.edge_measured else (),
            per_prompt=None if self.per_prompt is None else self.per_prompt[rows],
            roles={
                r: kept
                for r, names in self.roles.items()
                if (kept := tuple(name for name in names if name in keep))
            },
        )
        object.__setattr__(circuit, "_asked", self._asked)
        return circuit

    def _rows(self) -> pd.DataFrame:
        """Return nodes and edges; `metric` says which of the two a row is."""
        import pandas as pd

        nodes = self.nodes_to_pandas().assign(**head_columns(self.nodes), metric="node score")
        edges = self.edges_to_pandas().assign(metric="edge score")
        both = pd.concat([x for x in (nodes, edges) if len(x)] or [nodes], ignore_index=True)
        texts = ["node", "from", "to", "role", "conditional_on", "measured"]
        numbers = ["layer", "head", "conditional", "conditional_sem", "estimate"]
        both = both.reindex(columns=list(dict.fromkeys([*both.columns, *texts, *numbers, "stack"])))
        both[texts] = both[texts].astype(object).where(both[texts].notna(), "")
        both["stack"] = both["stack"].astype(object).where(both["stack"].notna(), None)
        both[numbers] = both[numbers].astype(float)
        return both if self.clusters is None else both.assign(clusters=len(set(self.clusters)))

    def wide(self) -> pd.DataFrame:
        """Return the table of nodes, or that of edges where only edges are kept."""
        return self.nodes_to_pandas() if self.nodes or not self.edges else self.edges_to_pandas()

    def nodes_to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per node, in the order of the model."""
        import pandas as pd

        role = {name: r for r, names in self.roles.items() for name in names}
        return pd.DataFrame(
            {
                "node": list(self.nodes),
                "score": self.score,
                "sem": self.sem,
                "n": self.n,
                "unit": self.unit,
                "role": [role.get(n, "") for n in self.nodes],
                "conditional": self.conditional,
                "conditional_sem": self.conditional_sem,
                "conditional_on": list(self.conditional_on),
                "measured": list(self.measured),
                "estimate": self.estimate,
            }
        )

    def edges_to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per edge; `in_set` marks those of the smallest set."""
        import pandas as pd

        frame = pd.DataFrame(
            {
                "from": [a for a, _ in self.edges],
                "to": [b for _, b in self.edges],
                "score": self.edge_score,
                "sem": self.edge_sem,
                "n": self.n,
                "unit": self.unit,
            }
        )
        if self.edge_measured:
            frame["measured"] = list(self.edge_measured)
        if self.chosen is not None:
            inside = set(self.chosen.edges)
            frame["in_set"] = [edge in inside for edge in self.edges]
        return frame

    def require(self, model: Model, *, same_weights: bool = True) -> None:
        """Raise unless the circuit belongs to this model.

        Args:
            model: The model.
            same_weights: Also compare the sha256 of the weights with those it was found on.

        Raises:
            OptionError: The number of layers or heads differs, or the weights differ.
        """
        mine, size = (self.n_layers, self.n_heads), (model.n_layers, model.n_heads)
        if mine != size:
            raise OptionError(
                f"the circuit is of {self.model} ({mine[0]} layers of {mine[1]} heads);"
                f" {model.name} has {size[0]} of {size[1]}; find a circuit for this model"
            )
        known = self.made.get("content_hash")
        if same_weights and known and known != model.content_hash:
            raise OptionError(
                f"the circuit is of {self.model} with the weights sha256 {str(known)[:12]};"
                f" {model.name} has {model.content_hash[:12]}; find it again, or give"
                " same_weights=False to use it on other weights of the same shape"
            )

    def plot(self, k: int = 60) -> go.Figure:
        """Draw layers from bottom to top, nodes by size and sign, with a slider for their number.

        At most 300 nodes or edges are drawn.
        """
        return drawn("plot", self, min(k, DRAWN))

    def __repr__(self) -> str:
        first = self.ranking[: self._asked or 4]
        best = ", ".join(f"{name} {self.said(self.nodes.index(name))}" for name in first)
        edges = f", {len(self.edges)} edges" if self.edges else ""
        return (
            f"Circuit({self.task} in {self.model} by {self.method}: {len(self.nodes)} nodes{edges},"
            f" first {best} {self.unit})"
        )

    def said(self, at: int, unit: str = "") -> str:
        """Describe the effects of the node of this number."""
        return effect_text(self.score[at], self.conditional[at], self.conditional_on[at], unit)


present(
    Circuit,
    plot="interp.report.circuit_drawing:draw",
    page="interp.report.circuit_graph:circuit_page",
    networkx="interp.report.circuit_formats:networkx_of",
    graphml="interp.report.circuit_formats:graphml_of",
    dot="interp.report.circuit_formats:dot_of",
    mermaid="interp.report.circuit_formats:mermaid_of",
    svg="interp.report.circuit_still:still",
)
