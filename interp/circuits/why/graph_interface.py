"""Interface of an attribution graph, for what draws or exports one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from interp.circuits.why.graph_edges import GraphNode


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
