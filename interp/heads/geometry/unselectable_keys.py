"""Keys that no query can select."""

from interp.heads.declaration import measurement


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("qk",), end="high")
def unselectable_keys(layer):
    """Share of a head's keys that no query can give the largest score.

    A key of a prompt is unselectable if it lies in the convex hull of the others. Keys with more
    dimensions than their number minus one are almost always all selectable. Decided by rank where
    that settles it, by trial queries, and otherwise by a linear program (HiGHS).

    Not for: causal limits: the first 48 keys of the prompt compete with each other here, whoever
    sees them, and biases by position count for nothing.

    Reference: Brody et al. 2023, "On the Expressivity Role of LayerNorm in Transformers' Attention"
    (arXiv 2305.02582; there with Gurobi and on hidden states).
    """
    from interp.heads.geometry._selectable import MOST, unselectable_share

    shared = layer.heads // layer.call.k.shape[1]
    found = unselectable_share(layer.call.k[:, :, :MOST].double())
    return found.repeat_interleave(shared, 1)
