"""Graphs as input: files and matrices, prompts that list their edges, and attention by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from interp.core.errors import OptionError, PromptError
from interp.core.prompt_file import prompt_text
from interp.core.prompts import Prompts
from interp.core.text_file import lines_of_text
from interp.heads.engine import attention_statistics_of
from interp.model.hooks.kernel_call import to_attention
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain
from interp.text.graphs.graph import adjacency_of
from interp_kernels.reductions import SegmentToSegment

if TYPE_CHECKING:
    import os

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class GraphInput:
    """Directed graph with features; an undirected edge is stored in both directions.

    Args:
        nodes: names.
        adjacency: True where there is an edge.
        features: one row per node; one-hot by default.

    Raises:
        OptionError: sizes differ.
    """

    nodes: tuple[str, ...]
    adjacency: Bool[np.ndarray, "node node"]
    features: Float[np.ndarray, "node feature"]

    def __post_init__(self) -> None:
        n = len(self.nodes)
        if self.adjacency.shape != (n, n) or len(self.features) != n:
            raise OptionError(
                f"{n} nodes, an adjacency of shape {list(self.adjacency.shape)} and features of "
                f"{len(self.features)} nodes; all must have the same number"
            )

    @classmethod
    def of(
        cls,
        edges: Any,
        nodes: Sequence[str] | None = None,
        *,
        features: Any = None,
        directed: bool = False,
    ) -> GraphInput:
        """Make a graph from pairs, a matrix or a networkx graph.

        Args:
            edges: pairs of names or numbers, a matrix, or a networkx graph.
            nodes: names; by default those that occur in pairs of names, or numbers.
            features: one row per node; one-hot by default.
            directed: keep the direction of edges.

        Raises:
            OptionError: an edge names a node that does not exist, or sizes differ.
        """
        if nodes is None:
            nodes = _named(edges)
        names = tuple(map(str, nodes))
        adjacency = adjacency_of(edges, names)
        adjacency = adjacency if directed else adjacency | adjacency.T
        x = np.eye(len(names)) if features is None else np.asarray(features, dtype=np.float64)
        return cls(names, adjacency, x)

    def prompt(self) -> tuple[str, list[tuple[int, tuple[int, int]]]]:
        """Return a text that lists the edges, and the node and characters of every mention.

        An undirected edge is listed once.
        """
        text, mentions = "", []
        for a, b in zip(*np.nonzero(self.adjacency), strict=True):
            if a > b and self.adjacency[b, a]:
                continue
            for node, before in ((int(a), " " if text else ""), (int(b), " -> ")):
                text += before
                mentions.append((node, (len(text), len(text) + len(self.nodes[node]))))
                text += self.nodes[node]
            text += "."
        return text, mentions


def _named(edges: Any) -> list[str]:
    if hasattr(edges, "nodes") and hasattr(edges, "is_directed"):
        return [str(x) for x in edges.nodes()]
    if not isinstance(edges, (list, tuple)):
        return [str(i) for i in range(len(np.asarray(edges)))]
    ends = [x for pair in edges for x in pair]
    if any(isinstance(x, str) for x in ends):
        return list(dict.fromkeys(map(str, ends)))
    return [str(i) for i in range(1 + max((int(x) for x in ends), default=-1))]


def read_graph(path: str | os.PathLike, *, directed: bool = False) -> GraphInput:
    """Read a file of edges: one pair of names per line, between white space or commas.

    A line that begins with # is a comment; a line with one name is a node without edges.

    Args:
        path: the file.
        directed: keep the direction of edges.

    Raises:
        PromptError: the file cannot be read, holds no edges, or a line is not a pair.
    """
    pairs, nodes = [], {}
    for number, line in enumerate(lines_of_text(prompt_text(Path(path))), 1):
        words = line.replace(",", " ").split()
        if not words or line.lstrip().startswith("#"):
            continue
        if len(words) > 2:
            raise PromptError(
                f"{path} line {number}: {line.strip()!r} is not an edge; give two names, "
                "separated by a space or a comma"
            )
        nodes |= dict.fromkeys(words)
        if len(words) == 2:
            pairs.append(tuple(words))
    if not pairs:
        raise PromptError(f"{path} holds no edges; give two names per line")
    return GraphInput.of(pairs, tuple(nodes), directed=directed)


@takes_model
def node_attention(
    model: Model, graph: GraphInput
) -> tuple[Float[np.ndarray, "layer_head node node"], Chain]:
    """Return the attention of every head between the mentions of nodes, in a prompt of the edges.

    The mean over the pairs of tokens of two nodes' mentions. The first mention of a node cannot see
    later ones, so the matrix depends on the order of the edges.

    Args:
        model: a model that reads text.
        graph: the graph.

    Raises:
        PromptError: the model has no tokenizer, a node is not mentioned, or the prompt is too long.
    """
    text, mentions = graph.prompt()
    if missing := set(range(len(graph.nodes))) - {node for node, _ in mentions}:
        names = ", ".join(graph.nodes[i] for i in sorted(missing)[:5])
        raise PromptError(f"nodes without edges ({names}) do not occur in a prompt of edges")
    chain = Chain.of_text(model, text, spans=[s for _, s in mentions], name="edges")
    chain.fits(model)
    labels = torch.full((1, len(chain.ids)), -1)
    for (node, _), (a, b) in zip(mentions, chain.spans, strict=True):
        labels[0, a:b] = node
    n = len(graph.nodes)
    sizes = np.bincount(labels[labels >= 0].numpy(), minlength=n).astype(np.float64)
    attention = []

    def visit(site: Site, call: Call, real: torch.Tensor) -> None:
        if site.stack == "cross":
            return
        at = labels.to(call.z.device)
        asked = SegmentToSegment(at, at, n, n)
        values = attention_statistics_of(call, to_attention(call, real, None), [asked], "streamed")
        total = values[asked.name][0].double().cpu().numpy()
        attention.append(total / (sizes[:, None] * sizes[None, :]))

    model.read(Prompts((chain.ids,), "edges"), visit, last=1, streamed=True)
    return np.concatenate(attention), chain
