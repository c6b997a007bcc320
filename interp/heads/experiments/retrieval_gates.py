"""Gates of retrieval heads, without training."""

from interp.heads.declaration import experiment


@experiment(
    unit="area",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1/2 + 1/(2 length)",
    task="needles",
)
def retrieval_gates(
    model, lab, *, length: int = 48, trials: int = 8, skip: int = 1, per_group: bool = False
):
    """Attend beyond the last tokens: mean attention by distance to keys without information.

    Approximates the gates that DuoAttention trains, with one forward pass per prompt. On random
    tokens, a head's score is averaged over all pairs at one distance, so only its dependence on
    position remains; the softmax of these over `length` distances is the attention of a last query
    to identical keys. Score = area under the cumulative attention from the oldest key on: near 0
    for a streaming head, whose mass is on the last tokens, slightly above 1/2 for one without
    preference, 1 for one that attends to the oldest. Heads that attend by content score about 1/2:
    rank heads by it, or use a quantile; a fixed threshold is not informative.

    Not for: a fixed threshold: in grouped-query models nearly all gates are high. Rank the heads,
    or use a quantile.

    Options:
        length: number of distances.
        trials: number of random prompts, each of `2 * length` tokens (or as many as fit).
        skip: number of first tokens that are excluded as keys and as queries, such as a sink.
        per_group: give every head the mean of its key-value group, which a cache shares.

    Reference: Xiao et al. 2024, "DuoAttention: Efficient Long-Context LLM Inference with Retrieval
    and Streaming Heads"; computed as in kvpress, from average queries and keys.
    """
    from interp.heads.experiments._distances import gates
    from interp.heads.experiments._repeated import per_group as grouped
    from interp.heads.trials import Trials

    areas, notes = gates(model, lab, length, trials, skip)
    if per_group:
        areas = {site: grouped(x, site, "mean") for site, x in areas.items()}
    return Trials(areas, notes=notes)
