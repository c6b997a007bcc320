"""The sampled edges of one head, and their effects on the loss and on the logits of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.profiles.edges import VECTORS

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from interp.profiles.effect_numbers import Estimates
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


class EdgeEffects:
    """Effects of sampled edges, from the derivatives at their queries.

    Args:
        estimates: sums of the forward and backward pass.
        windows: numbers of the windows that it read, in its order.
    """

    def __init__(self, estimates: Estimates, windows: Sequence[int]) -> None:
        self.estimates = estimates
        self.place = {window: at for at, window in enumerate(windows)}
        self.slopes = [x for part in estimates.parts for x in part.edge_slopes]
        self.scales = [x for part in estimates.parts for x in part.edge_scales]
        self.sides = np.repeat(estimates.sides, [len(part.edge_slopes) for part in estimates.parts])
        look = estimates.look
        self.site_of = {
            head: site for site, at in look.places.items() for head in range(at.start, at.stop)
        }

    def of(self, head: int, edges: HeadEdges, members: Bool[np.ndarray, " edge"]) -> dict[str, Any]:
        """Return the effects of a cluster of edges as plain data."""
        site = self.site_of[head]
        read = np.array([window in self.place for window in edges.window.tolist()])
        values = edges.vectors["values"][:, : site.d_v]
        beyond = values - np.average(values, axis=0, weights=edges.weight)
        change = np.zeros(len(self.slopes))
        written = np.zeros((2, site.d_v))
        weight = np.zeros(2)
        for at in np.flatnonzero(read & members).tolist():
            window = self.place[int(edges.window[at])]
            mine = edges.weight[at] * beyond[at]
            change[window] -= float(mine @ self.slopes[window][head, edges.number[at], : site.d_v])
            side = self.sides[window]
            written[side] += mine * self.scales[window][head, edges.number[at]]
            weight[side] += edges.weight[at]
        sums = self.estimates.sums
        queries = np.array([x.shape[1] for x in self.slopes], float)
        effects: dict[str, Any] = {"loss_estimate": sums.ratio(change, queries).plain()}
        writes = self.estimates.writes
        if not writes.why_not:
            inner = head - self.estimates.look.places[site].start
            matrix = writes.of[site].matrix[inner].double().cpu().numpy()
            effects |= self.estimates.tokens_of(written @ matrix, weight)
        return effects
