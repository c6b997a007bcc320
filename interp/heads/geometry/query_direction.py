"""Query directions that predict the attention of keys."""

from interp.heads.declaration import measurement


@measurement(
    unit="rank correlation",
    low=-1.0,
    high=1.0,
    requires=("qk", "self"),
    chance="0 for keys whose attention does not depend on that direction",
    end="both",
)
def query_direction(layer, *, by_group: bool = False):
    """Prediction of the attention that keys receive from the main query direction.

    The direction is the first right singular vector of the head's queries (not centred), oriented
    so that most queries have a positive projection. A key's attention is its mean over the queries
    that see it, at least a quarter of all. Spearman's correlation over the keys of a prompt;
    queries and attention come from the same prompt.

    Not for: choosing what to evict from a cache on other texts; Q-Filters fixes its directions on
    one set of texts and uses them on others.

    Options:
        by_group: average the oriented directions of the heads that share keys, as the paper does;
            the mean can cancel.

    Reference: Godey et al. 2025, "Q-Filters: Leveraging QK Geometry for Efficient Key-Value Cache
    Compression" (arXiv 2503.02812).
    """
    from interp.heads.geometry._received import (
        main_query_direction,
        rank_correlation,
        received_per_query,
        rounding_of_keys,
    )

    direction = main_query_direction(layer.q)
    if by_group:
        shared = layer.heads // layer.call.k.shape[1]
        mean = direction.unflatten(1, (-1, shared)).mean(2)
        direction = mean.repeat_interleave(shared, 1)
    projected = (layer.k @ direction[..., None])[..., 0]
    near = rounding_of_keys(layer) * layer.k.norm(dim=-1) * direction.norm(dim=-1)[..., None]
    return rank_correlation(projected, received_per_query(layer), near)
