"""Strongest links of every head over a long prompt: large single weights on distant keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp.core.ties import ordered
from interp.heads.patterns.stack import Link
from interp_kernels.reductions import Chosen

PER_QUERY = 4  # largest weights of every query among which a link is looked for
MOST = 8  # links per head


def strongest_links(
    chosen: Chosen, queries: Sequence[str], keys: Sequence[str], most: int = MOST
) -> list[tuple[Link, ...]]:
    """Return the strongest links of every head, at most one per query, the strongest first.

    The first key, and within one sequence the query itself and the tokens beside it, are excluded:
    they receive large weights in all models. A query whose largest weights are all on such keys has
    no link.
    """
    weight, key = (x[0].detach().float().cpu().numpy() for x in chosen)
    key = key.astype(int)
    query = np.arange(weight.shape[1])[None, :, None]
    far = (key > 0) & (weight > 0)
    if tuple(queries) == tuple(keys):
        far &= np.abs(query - key) > 1
    weight = np.where(far, weight, 0.0)
    best = weight.argmax(-1)[..., None]
    size, place = (np.take_along_axis(x, best, -1)[..., 0] for x in (weight, key))
    links = []
    for head in range(len(size)):
        order = ordered(size[head])[:most]
        links.append(
            tuple(
                Link(q, k, float(size[head, q]), queries[q], keys[k])
                for q, k in ((int(q), int(place[head, q])) for q in order)
                if size[head, q] > 0
            )
        )
    return links
