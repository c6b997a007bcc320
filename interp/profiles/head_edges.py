"""The sampled edges of one head, from what was kept of every window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.profiles.edges import VECTORS

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from interp.profiles.second_look import JudgedRows


@dataclass(frozen=True, eq=False)
class HeadEdges:
    """The sampled edges of one head, whose queries attend off the sink.

    Args:
        window: number of the window of every edge.
        row: number of the query among those of its window.
        number: of the edge among those of its window.
        key: position of the key.
        weight: attention of the query off the sink.
        fired: rules that fire on the key, then on the other key.
        vectors: by the names of `VECTORS`, as far as the attention has them.
    """

    window: Int[np.ndarray, " edge"]
    row: Int[np.ndarray, " edge"]
    number: Int[np.ndarray, " edge"]
    key: Int[np.ndarray, " edge"]
    weight: Float[np.ndarray, " edge"]
    fired: Bool[np.ndarray, "2 edge rule"]
    vectors: dict[str, Float[np.ndarray, "edge dim"]]

    @classmethod
    def of(cls, judged: JudgedRows, head: int) -> HeadEdges:
        """Return the edges of a head."""
        rows = judged.edge_rows
        window = np.concatenate([np.full(len(x), at) for at, x in enumerate(rows)])
        weight = np.concatenate(
            [w[head, x].astype(float) for w, x in zip(judged.weights, rows, strict=True)]
        )
        positive = weight > 0
        vectors = np.concatenate([x[head] for x in judged.edge_vectors])[positive].astype(float)
        bits = np.concatenate([x[:, head] for x in judged.edge_fired], 1)[:, positive]
        named = {name: vectors[:, at] for at, name in enumerate(VECTORS)}
        return cls(
            window[positive],
            np.concatenate(rows)[positive],
            np.concatenate([np.arange(len(x)) for x in rows])[positive],
            np.concatenate([x[0, head] for x in judged.edge_keys])[positive],
            weight[positive],
            np.unpackbits(bits, axis=-1, count=judged.total.shape[2]).astype(bool),
            {name: value for name, value in named.items() if value.any()},
        )
