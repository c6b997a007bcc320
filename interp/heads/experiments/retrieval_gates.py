"""Gates of retrieval heads, without training."""

from interp.heads.declaration import experiment


@experiment(
    unit="area",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1/2 + 1/(2 length)",
)
def retrieval_gates(
    model, lab, *, length: int = 48, trials: int = 8, skip: int = 1, per_group: bool = False
):
    """Needs more than the last tokens: a head's attention to keys that say nothing, by distance.

    Stands in for the gates that DuoAttention trains, from one forward pass per prompt. On random
    tokens, a head's score is averaged over all pairs at one distance, so only what it does by
    position is left; the softmax of these over `length` distances is the attention of a last query
    to keys that are all alike. Score = area under the cumulative attention from the oldest key on:
    near 0 for a streaming head, whose mass lies on the last tokens, 1/2 and a little for one that
    does not care, 1 for one that looks at the oldest. Heads that choose by content come out at 1/2:
    rank heads by it, or take a quantile; a fixed threshold says little.

    Not for: a fixed threshold: in grouped-query models nearly all gates are high. Rank the heads,
    or take a quantile.

    Options:
        length: distances.
        trials: random prompts of twice that many tokens (or as many as fit), one pass each.
        skip: first tokens that count neither as key nor as query, such as a sink's.
        per_group: give every head the mean of its key-value group, which a cache shares.

    Reference: Xiao et al. 2024, "DuoAttention: Efficient Long-Context LLM Inference with Retrieval
    and Streaming Heads"; computed in the way of kvpress, from average queries and keys.
    """
    from interp.heads.declaration import Trials
    from interp.heads.experiments._distances import gates
    from interp.heads.experiments._repeated import per_group as grouped

    found, notes = gates(model, lab, length, trials, skip)
    if per_group:
        found = {site: grouped(x, site, "mean") for site, x in found.items()}
    return Trials(found, notes=notes)
