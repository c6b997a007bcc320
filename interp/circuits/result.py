"""Circuit: nodes and edges with their scores, and how they were found."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.circuits.nodes import effect_text, larger_effect, node_of
from interp.core.display import Displayed
from interp.core.doors import behind
from interp.core.errors import OptionError, StoreError

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import plotly.graph_objects as go

    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Found
    from interp.model.model import Model

Array = np.ndarray
DRAWN = 300  # edges or nodes in a drawing at most


@dataclass(frozen=True, eq=False)
class Circuit(Displayed):
    """Nodes of a model with their scores for a task; larger absolute scores matter more.

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
    edge_sem: Float[Array, " edge"] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Fill columns that were not given with empty ones of the right length."""
        n = len(self.nodes)
        for name in ("conditional", "conditional_sem"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(n, math.nan))
        for name in ("conditional_on", "measured"):
            if not getattr(self, name):
                object.__setattr__(self, name, ("",) * n)
        if not len(self.edge_sem):
            object.__setattr__(self, "edge_sem", np.full(len(self.edges), math.nan))

    _order = "score"

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
        from interp.causal.importance import standard_error
        from interp.circuits.bootstrap import labels_of, of_found
        from interp.circuits.contrast import hashes
        from interp.model.content import model_provenance

        made = model_provenance(model) | task.about()
        made |= {"method": method, "level": level, "options": dict(options)}
        made |= {"forwards": found.forwards, "backwards": found.backwards, "signed": found.signed}
        made |= {"made_by": "interp.circuits.find_circuit", "pairs": hashes(task)}
        edges, now, shared = found.edges_per_prompt, found.conditional, labels_of(found, task)

        def sem(x: Float[np.ndarray, "node prompt"]) -> Float[np.ndarray, " node"]:
            return standard_error(x, shared)

        given = found.measured
        return cls(
            model.name, model.n_layers, model.n_heads, task.name, method, level, found.nodes,
            found.per_prompt.mean(1), sem(found.per_prompt), found.per_prompt.shape[1], found.unit,
            found.edges, np.zeros(0) if edges is None else edges.mean(1), dict(task.truth),
            found.notes, dict(found.tables) | {"stability": of_found(found, task)}, made,
            *((np.zeros(0), np.zeros(0)) if now is None else (now.mean(1), sem(now))),
            found.conditional_on,
            (given,) * len(found.nodes) if isinstance(given, str) else given,
            np.zeros(0) if edges is None else sem(edges),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def heads(self) -> tuple[str, ...]:
        """The nodes that are heads."""
        return tuple(n for n in self.nodes if n.startswith("L"))

    @property
    def largest(self) -> Float[Array, " node"]:
        """Each node's score or conditional effect, whichever is larger in size; 0 if both unknown.

        Nodes are ordered and drawn by its size.
        """
        return larger_effect(self.score, self.conditional)

    @property
    def ranking(self) -> tuple[str, ...]:
        """Nodes by the size of `largest`, ties in the order of the model; unmeasured nodes last."""
        order = np.where(np.isnan(self.score), -1.0, np.abs(self.largest))
        return tuple(self.nodes[i] for i in np.argsort(-order, kind="stable"))

    @property
    def edge_ranking(self) -> tuple[int, ...]:
        """Numbers of the edges by the size of their score, ties in the order of the model."""
        return tuple(np.argsort(-np.abs(self.edge_score), kind="stable").tolist())

    def stability(self, k: int, what: str = "heads") -> tuple[float, float, float] | None:
        """Return the mean Jaccard overlap of the top k heads (or edges) over resampled pairs.

        Returns:
            The mean and its 95 % interval; None where it was not measured, because there is one
            column of scores or the table does not include k.
        """
        for row in self.tables.get("stability", ()):
            if (row["what"], row["k"]) == (what, k):
                return row["jaccard"], row["low"], row["high"]
        return None

    def top(self, k: int, *, heads_only: bool = False) -> Circuit:
        """Keep the k nodes of largest score, and the edges between them.

        At the level of edges, keep the k edges of largest score and the nodes at their ends.

        Raises:
            OptionError: k is below 1.
        """
        if k < 1:
            raise OptionError(f"k={k} nodes are not a circuit; give 1 or more")
        if self.edges and not heads_only:
            order = self.edge_ranking[:k]
            keep = {n for i in order for n in (self.edges[i][0], node_of(self.edges[i][1]))}
            kept_edges = set(order)
        else:
            pool = [n for n in self.ranking if not heads_only or n.startswith("L")]
            keep = set(pool[:k])
            kept_edges = {
                i for i, (a, b) in enumerate(self.edges) if a in keep and node_of(b) in keep
            }
        at = [i for i, n in enumerate(self.nodes) if n in keep]
        rows = sorted(kept_edges)
        found = replace(
            self,
            nodes=tuple(self.nodes[i] for i in at),
            score=self.score[at],
            sem=self.sem[at],
            conditional=self.conditional[at],
            conditional_sem=self.conditional_sem[at],
            conditional_on=tuple(self.conditional_on[i] for i in at),
            measured=tuple(self.measured[i] for i in at),
            edges=tuple(self.edges[i] for i in rows),
            edge_score=self.edge_score[rows],
            edge_sem=self.edge_sem[rows],
            roles={
                r: kept for r, names in self.roles.items()
                if (kept := tuple(n for n in names if n in keep))
            },
        )  # fmt: skip
        object.__setattr__(found, "_asked", len(found))  # all of it is displayed
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per node, in the order of the model."""
        import pandas as pd

        role = {name: r for r, names in self.roles.items() for name in names}
        return pd.DataFrame(
            {
                "node": list(self.nodes), "score": self.score, "sem": self.sem, "n": self.n,
                "unit": self.unit, "role": [role.get(n, "") for n in self.nodes],
                "conditional": self.conditional, "conditional_sem": self.conditional_sem,
                "conditional_on": list(self.conditional_on), "measured": list(self.measured),
            }
        )  # fmt: skip

    def edges_to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per edge."""
        import pandas as pd

        return pd.DataFrame(
            {
                "from": [a for a, _ in self.edges],
                "to": [b for _, b in self.edges],
                "score": self.edge_score,
                "sem": self.edge_sem,
                "n": self.n,
                "unit": self.unit,
            }
        )

    # --- other forms --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, with NaN as None."""
        from interp.circuits.result_dict import told_of

        return told_of(self)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Circuit:
        """Make a circuit from the output of `to_dict`, of this version or the one before.

        Raises:
            StoreError: The data is not a circuit, or it is damaged.
        """
        from interp.circuits.result_dict import OF_EDGES, OF_NODES, fields_of

        try:
            found = cls(**fields_of(told))
            if {len(getattr(found, name)) for name in OF_NODES} != {len(found.nodes)}:
                raise ValueError("the numbers of nodes and scores differ")
            if {len(getattr(found, name)) for name in OF_EDGES} != {len(found.edges)}:
                raise ValueError("the numbers of edges and their scores differ")
            for size in ("n_layers", "n_heads", "n"):
                if not isinstance(getattr(found, size), int):
                    raise ValueError(f"{size} is {getattr(found, size)!r}, not a whole number")
            return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"this is not a circuit, or it is damaged: {error}") from error

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Return one JSON document, and write it to `path` if given, completely or not at all."""
        return _written(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, path: str | os.PathLike) -> Circuit:
        """Read a file that `to_json` wrote.

        Raises:
            StoreError: The file cannot be read or is damaged.
        """
        from interp.circuits.result_dict import json_of

        return cls._read(path, json_of(Path(path)))

    @classmethod
    def _read(cls, path: str | os.PathLike, told: Any) -> Circuit:
        try:
            return cls.from_dict(told)
        except StoreError as error:
            raise StoreError(f"{path}: {error}") from error

    def to_toml(self, path: str | os.PathLike | None = None) -> str:
        """Return the content of `to_json` as TOML, with nan for null.

        Such a file can be compared with like a published circuit (`interp circuit --truth FILE`):
        all of its heads are the circuit, so store only the first ones
        (`circuit.top(k).to_toml(path)`).
        """
        from interp.circuits.toml_text import dumps

        return _written(path, dumps(self.to_dict()))

    @classmethod
    def from_toml(cls, path: str | os.PathLike) -> Circuit:
        """Read a file that `to_toml` wrote.

        Raises:
            StoreError: The file cannot be read, is damaged, or is the file of a published circuit.
        """
        from interp.circuits.result_dict import toml_of

        return cls._read(path, toml_of(Path(path)))

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

    def evaluate(self, model: Model, task: ContrastTask, **options: Any) -> Any:
        """Measure how faithful, complete and minimal the circuit is (`interp.circuits.evaluation`).

        Use other pairs than it was found on: `make_contrast(model, name, seed=1)`.

        Raises:
            OptionError: The circuit is of another model, or the heads make no difference to the
                task.
        """
        return behind("Circuit.evaluate")(model, self, task, **options)

    def to_networkx(self) -> nx.MultiDiGraph:
        """Return a directed graph: nodes with score and role, edges with score and input.

        The key of an edge is the input of its head, `q`, `k` or `v`, and `in` where a node has only
        one input; so a writer may enter several inputs of one head.
        """
        return behind("Circuit.to_networkx")(self)

    def to_graphml(self, path: str | os.PathLike | None = None) -> str:
        """Return GraphML, for yEd, Gephi and Cytoscape; every edge has a unique id."""
        return _written(path, behind("Circuit.to_graphml")(self))

    def to_dot(self, path: str | os.PathLike | None = None) -> str:
        """Return DOT, for Graphviz; blue helps, orange hurts, and width is the absolute score."""
        return _written(path, behind("Circuit.to_dot")(self))

    def to_mermaid(self, path: str | os.PathLike | None = None) -> str:
        """Return Mermaid, for Markdown pages."""
        return _written(path, behind("Circuit.to_mermaid")(self))

    def to_svg(self, path: str | os.PathLike | None = None, *, k: int = 60) -> str:
        """Draw a static picture of the top k edges (or nodes), at most 300, with their share."""
        return _written(path, behind("Circuit.to_svg")(self, min(k, DRAWN)))

    def plot(self, k: int = 60) -> go.Figure:
        """Draw layers from bottom to top, nodes by size and sign, with a slider for their number.

        At most 300 nodes or edges are drawn.
        """
        return behind("Circuit.plot")(self, min(k, DRAWN))

    def __repr__(self) -> str:
        first = self.ranking[: self._asked or 4]
        best = ", ".join(f"{name} {self.said(self.nodes.index(name))}" for name in first)
        edges = f", {len(self.edges)} edges" if self.edges else ""
        return (
            f"Circuit({self.task} in {self.model} by {self.method}: {len(self)} nodes{edges},"
            f" first {best} {self.unit})"
        )

    def said(self, at: int, unit: str = "") -> str:
        """Describe the effects of the node of this number."""
        return effect_text(self.score[at], self.conditional[at], self.conditional_on[at], unit)


def _written(path: str | os.PathLike | None, text: str) -> str:
    if path is not None:
        from interp.core.files import write_atomically

        write_atomically(Path(path), text.encode())
    return text
