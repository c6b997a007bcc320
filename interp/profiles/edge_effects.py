"""Effects of some of a head's edges: on the loss to first order, and on the logits of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool

    from interp.profiles.effect_numbers import Estimates
    from interp.profiles.head_edges import HeadEdges


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
