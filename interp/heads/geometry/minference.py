"""Margins of the three sparse patterns of MInference."""

from interp.core.declaration import like
from interp.heads.declaration import measurement


@measurement(
    unit="attention mass",
    low=-1.0,
    high=1.0,
    requires=("qk", "self", "causal"),
    chance="below 0 for at least two of the three patterns",
    end="high",
)
def minference_a_shape(layer, *, keys: int = 4):
    """Attention kept by first and nearest keys, minus the better of the other two patterns.

    A-shape keeps half of the budget at the start of the prompt and half next to the query. Above 0
    it is the kind of the head: see `interp.heads.minference_kinds`. Averaged over queries that see
    more keys than the budget, without the last.

    Not for: prompts with hardly more tokens than keys, which have no score. MInference compares at
    a budget of thousands of keys, over queries from 2500 on, and its code rewrites some winners as
    vertical-slash.

    Options:
        keys: budget of keys per query, at least 4.

    Reference: Jiang et al. 2024, "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs
    via Dynamic Sparse Attention" (arXiv 2407.02490).
    """
    from interp.heads.geometry._kinds import kind_margin

    return kind_margin(layer, "a_shape", keys)


@like(minference_a_shape)
def minference_block_sparse(layer, *, keys: int = 4):
    """Attention kept by chosen blocks of keys, minus the better of the other two patterns.

    For each block of queries, the four blocks of keys with the largest products of mean queries and
    mean keys; blocks have a quarter of the budget. Above 0 it is the kind of the head: see
    `interp.heads.minference_kinds`. Averaged over queries that see more keys than the budget,
    without the last.
    """
    from interp.heads.geometry._kinds import kind_margin

    return kind_margin(layer, "block_sparse", keys)


@like(minference_a_shape)
def minference_vertical_slash(layer, *, keys: int = 4):
    """Attention kept by chosen columns and diagonals, minus the better of the other two patterns.

    Half of the budget are the keys with the largest sums over the last queries, half the
    distances. Above 0 it is the kind of the head: see `interp.heads.minference_kinds`. Averaged
    over queries that see more keys than the budget, without those last.
    """
    from interp.heads.geometry._kinds import kind_margin

    return kind_margin(layer, "vertical_slash", keys)
