"""Induction heads, as RazorAttention scores them."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="mean of (copies before the row) / (row + 1)",
)
def razor_induction(
    model,
    lab,
    *,
    period: int = 12,
    copies: int = 4,
    trials: int = 12,
    per_group: bool = False,
):
    """Attends to what followed earlier copies of the current token, in repeated random tokens.

    Random tokens, several times over, BOS first. Score = mean over
    the rows from the second copy on of the mass on the tokens after earlier copies of the row's
    token.
    Targets are found by token, so that tokens drawn twice from a small vocabulary count, and the
    mask is the model's own. The period differs from prompt to prompt, unless there is one prompt:
    at one period a head with a fixed offset would score as well.

    Not for: a replacement of `induction`: it uses more copies, all rows of later copies and, if
    asked, the maximum of a key-value group.

    Options:
        period: tokens per copy, at most (the paper takes 2500); cut to what the model has room for.
        copies: how often they stand in a row.
        trials: how many such prompts; those of one period are a cluster.
        per_group: give every head the largest score of its key-value group, as the paper selects.

    Reference: Tang et al. 2024, "RazorAttention: Efficient KV Cache Compression Through Retrieval
    Heads".
    """
    from interp.heads.detectors.induction import induction
    from interp.heads.experiments._repeated import on_repeats

    return on_repeats(model, lab, induction, period, copies, trials, per_group)
