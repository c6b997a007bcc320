"""An attention graph: nodes, the edges that a threshold kept, and what is measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError
from interp.core.rank_statistics import auroc
from interp.core.result import Result

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class AttentionGraph(Result):
    """Directed graph of attention; rows are edges, from the attending node to the attended one.

    The null of an edge is its weight if its row attended evenly to every node that it may see.

    Args:
        nodes: names of the nodes.
        weights: weight of every pair, before the threshold.
        even: weight of a pair under even attention; 0 where a node may not attend.
        edges: pairs of nodes that the threshold kept, the largest weight first.
        threshold: the threshold.
        kind: what the weights are.
        provenance: model, prompt and options.
    """

    nodes: tuple[str, ...]
    weights: Float[np.ndarray, "node node"]
    even: Float[np.ndarray, "node node"]
    edges: Int[np.ndarray, "edge 2"]
    threshold: str
    kind: str = "attention"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a graph is of one prompt, or of means that were taken before"
    _units = ("source", "target")
    _per_row = ("edges",)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        a, b = self.edges.T
        return pd.DataFrame(
            {
                "source": a,
                "target": b,
                "source_name": [self.nodes[i] for i in a],
                "target_name": [self.nodes[i] for i in b],
                "metric": self.kind,
                "score": self.weights[a, b],
                "null": self.even[a, b],
                "n": 1,
                "unit": "attention weight",
            }
        )

    def to_networkx(self) -> nx.DiGraph:
        """Return the graph with all nodes; edges have `weight`, and `length` = 1 / weight."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from((i, {"name": name}) for i, name in enumerate(self.nodes))
        for a, b in self.edges.tolist():
            w = float(self.weights[a, b])
            graph.add_edge(a, b, weight=w, length=1 / w)
        return graph

    def components(self) -> list[tuple[int, ...]]:
        """Return the weakly connected components, the largest first; a single node is one."""
        import networkx as nx

        node_sets = nx.weakly_connected_components(self.to_networkx())
        return sorted((tuple(sorted(c)) for c in node_sets), key=lambda c: (-len(c), c))

    def largest(self) -> AttentionGraph:
        """Return the largest weakly connected component as a graph of its own."""
        members = np.array(self.components()[0])
        place = {int(old): new for new, old in enumerate(members)}
        edges = [(place[a], place[b]) for a, b in self.edges.tolist() if a in place]
        cut = np.ix_(members, members)
        return replace(
            self,
            nodes=tuple(self.nodes[i] for i in members),
            weights=self.weights[cut],
            even=self.even[cut],
            edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
        )

    def path_length(self) -> float:
        """Return the mean number of edges between two nodes, directions ignored.

        Raises:
            OptionError: the graph is not connected, so that some pairs have no path.
        """
        import networkx as nx

        parts = self.components()
        if len(parts) > 1:
            raise OptionError(
                f"the graph is not connected: {len(parts)} components, the largest of "
                f"{len(parts[0])} of {len(self.nodes)} nodes; measure it with .largest(), or keep "
                "more edges"
            )
        return float(nx.average_shortest_path_length(self.to_networkx().to_undirected()))

    def centrality(self) -> pd.DataFrame:
        """Return the centralities of every node, and its component.

        `in_strength` and `out_strength` are sums of weights (attention received and given),
        `pagerank` the share of a random walk along edges with restarts, `betweenness` the share of
        shortest paths through the node, where an edge is 1 / weight long, and `closeness` the
        inverse mean distance of other nodes to it.

        A graph need not be connected. Betweenness counts the paths that exist; closeness is of the
        nodes that reach a node, times their share of all nodes, so that a node of a small component
        does not look central; the walk of PageRank restarts anywhere.
        """
        import networkx as nx
        import pandas as pd

        graph, n = self.to_networkx(), len(self.nodes)
        part = {i: at for at, mine in enumerate(self.components()) for i in mine}
        each = {
            "in_strength": dict(graph.in_degree(weight="weight")),
            "out_strength": dict(graph.out_degree(weight="weight")),
            "pagerank": nx.pagerank(graph, weight="weight"),
            "betweenness": nx.betweenness_centrality(graph, weight="length"),
            "closeness": nx.closeness_centrality(graph, distance="length"),
        }
        columns = {name: [float(values[i]) for i in range(n)] for name, values in each.items()}
        component = [part[i] for i in range(n)]
        return pd.DataFrame(
            {"node": range(n), "name": list(self.nodes), **columns, "component": component}
        )

    def communities(
        self, *, n_random: int = 20, seed: int = 0
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Return the community of each node (Louvain, directions ignored), and the modularity.

        The null is the modularity of communities found in graphs with the same degrees, whose edges
        carry the same weights in random order.

        Args:
            n_random: number of random graphs.
            seed: seed of the algorithm and of the random graphs.

        Raises:
            OptionError: the graph has no edges.

        Reference: Blondel et al. 2008, "Fast unfolding of communities in large networks".
        """
        from interp.text.graphs.rewire import rewired

        if not len(self.edges):
            raise OptionError("the graph has no edges, so no communities; keep more edges")
        weights = self.weights[tuple(self.edges.T)]
        labels, score = _louvain(len(self.nodes), self.edges.tolist(), weights, seed)
        rng, null = np.random.default_rng(seed), []
        for _ in range(n_random):
            other = rewired(self.edges.tolist(), rng)
            null.append(_louvain(len(self.nodes), other, rng.permutation(weights), seed)[1])
        values = {"modularity": score, "null": float(np.mean(null)), "null_sd": float(np.std(null))}
        values["p"] = (1 + sum(x >= score for x in null)) / (1 + n_random)
        return labels, values

    def motifs(self, *, n_random: int = 100, seed: int = 0) -> pd.DataFrame:
        """Return the number of three-node motifs of each kind, and in graphs of the same degrees.

        In a causal graph the random graphs are causal too.

        Args:
            n_random: number of random graphs.
            seed: seed of the random graphs.

        Reference: Milo et al. 2002, "Network Motifs"; names of Holland and Leinhardt 1976.
        """
        import pandas as pd

        from interp.text.graphs.rewire import rewired, triads

        rng, pairs, n = np.random.default_rng(seed), self.edges.tolist(), len(self.nodes)
        counts = triads(n, pairs)
        null = [triads(n, rewired(pairs, rng)) for _ in range(n_random)]
        rows = []
        for name, count in counts.items():
            drawn = np.array([x[name] for x in null], dtype=float)
            if not count and not drawn.any():
                continue
            above, below = (drawn >= count).sum(), (drawn <= count).sum()
            p = min(1.0, 2 * (1 + min(above, below)) / (1 + n_random))
            sd = float(drawn.std(ddof=1)) if n_random > 1 else np.nan
            mean = float(drawn.mean())
            z = (count - mean) / sd if sd > 0 else np.nan
            rows.append({"motif": name, "count": count, "null": mean, "sd": sd, "z": z, "p": p})
        return pd.DataFrame(rows, columns=["motif", "count", "null", "sd", "z", "p"])

    def against(self, adjacency: Any, *, n_random: int = 200, seed: int = 0) -> Mapping[str, float]:
        """Compare all weights, before the threshold, with the edges of a given graph.

        Over pairs of different nodes that may attend to each other. `precision` is the share of
        true edges among as many largest weights as there are true edges; the null exchanges the
        nodes of the given graph at random.

        Args:
            adjacency: a matrix, a networkx graph, or pairs of nodes (numbers or names).
            n_random: number of random exchanges.
            seed: their seed.

        Raises:
            OptionError: the size differs, a node does not exist, or all or no pairs are edges.
        """
        truth = adjacency_of(adjacency, self.nodes)
        allowed = (self.even > 0) & ~np.eye(len(self.nodes), dtype=bool)
        if not 0 < truth[allowed].sum() < allowed.sum():
            raise OptionError(
                f"{int(truth[allowed].sum())} of {int(allowed.sum())} pairs that may attend are "
                "edges of the given graph; a comparison needs pairs of both kinds"
            )
        score, precision = _compared(self.weights, truth, allowed)
        rng, null = np.random.default_rng(seed), []
        for _ in range(n_random):
            order = rng.permutation(len(truth))
            other = truth[np.ix_(order, order)]
            if 0 < other[allowed].sum() < allowed.sum():
                null.append(_compared(self.weights, other, allowed))
        drawn = np.array(null)
        return {
            "auroc": score,
            "auroc_null": float(drawn[:, 0].mean()),
            "auroc_p": float((1 + (drawn[:, 0] >= score).sum()) / (1 + len(drawn))),
            "precision": precision,
            "precision_null": float(drawn[:, 1].mean()),
            "edges": float(truth[allowed].sum()),
            "pairs": float(allowed.sum()),
        }

    def _graphml(self) -> str:
        import networkx as nx

        return "\n".join(nx.generate_graphml(self.to_networkx())) + "\n"

    def __repr__(self) -> str:
        n = len(self.components()) if len(self.nodes) else 0
        return (
            f"AttentionGraph of {len(self.nodes)} nodes and {len(self.edges)} edges "
            f"({self.threshold}), {n} component{'s' * (n != 1)}"
        )


def adjacency_of(given: Any, nodes: tuple[str, ...]) -> np.ndarray:
    """Return a boolean matrix from a matrix, a networkx graph, or pairs of numbers or names."""
    n = len(nodes)
    if hasattr(given, "edges") and hasattr(given, "is_directed"):
        pairs = list(given.edges())
        pairs += [] if given.is_directed() else [(b, a) for a, b in pairs]
        given = pairs
    matrix = np.asarray(given) if not isinstance(given, (list, tuple)) else None
    if matrix is not None:
        if matrix.shape != (n, n):
            raise OptionError(
                f"an adjacency of shape {list(matrix.shape)} for {n} nodes; expected [{n}, {n}]"
            )
        return matrix.astype(bool)
    adjacency = np.zeros((n, n), dtype=bool)
    for pair in given:
        a, b = (_node(x, nodes) for x in pair)
        adjacency[a, b] = True
    return adjacency


def _node(x: Any, nodes: tuple[str, ...]) -> int:
    if isinstance(x, str):
        if x not in nodes:
            raise OptionError(f"an edge names the node {x!r}, which does not exist")
        if nodes.count(x) > 1:
            raise OptionError(f"{nodes.count(x)} nodes are named {x!r}; give the node's number")
        return nodes.index(x)
    if not 0 <= int(x) < len(nodes):
        raise OptionError(
            f"an edge names the node {x}, which does not exist; there are 0 to {len(nodes) - 1}"
        )
    return int(x)


def _compared(weights: np.ndarray, truth: np.ndarray, allowed: np.ndarray) -> tuple[float, float]:
    scores, labels = weights[allowed], truth[allowed]
    first = np.argsort(-scores, kind="stable")[: int(labels.sum())]
    return float(auroc(scores, labels)), float(labels[first].mean())


def _louvain(
    n: int, edges: list, weights: np.ndarray, seed: int
) -> tuple[Int[np.ndarray, " node"], float]:
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    for (a, b), w in zip(edges, weights.tolist(), strict=True):
        before = graph.get_edge_data(a, b, {"weight": 0.0})["weight"]
        graph.add_edge(a, b, weight=before + w)
    communities = nx.community.louvain_communities(graph, weight="weight", seed=seed)
    labels = np.zeros(n, dtype=np.int64)
    for at, mine in enumerate(sorted(communities, key=min)):
        labels[list(mine)] = at
    return labels, float(nx.community.modularity(graph, communities, weight="weight"))
