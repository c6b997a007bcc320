"""Heads of repeated random tokens."""

from interp.core.declaration import like
from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="mean of (copies before the row) / (row + 1)",
    task="repeats",
)
def echo(
    model,
    lab,
    *,
    period: int = 12,
    copies: int = 4,
    trials: int = 12,
    per_group: bool = False,
):
    """Attend to all earlier copies of the current token, in repeated random tokens.

    The prompt is BOS and a block of random tokens repeated several times. Score = mean over the
    rows from the second copy on of the mass on earlier copies of the row's token. Targets are found
    by token, so tokens drawn twice from a small vocabulary count, and the mask is the model's own.
    The period differs between prompts (unless there is only one): with one period a head with a
    fixed offset would score high too.

    Not for: models with a small vocabulary and long periods, where tokens repeat within a copy; or
    choosing a threshold for cache compression without testing it.

    Options:
        period: maximum tokens per copy (the paper uses 2500); reduced to fit the model's positions.
        copies: number of copies in a prompt.
        trials: number of prompts; those with one period form a cluster.
        per_group: give every head the largest score of its key-value group, as the paper selects.

    Reference: Tang et al. 2024, "RazorAttention: Efficient KV Cache Compression Through Retrieval
    Heads".
    """
    from interp.heads.detectors.duplicate_token import duplicate_token
    from interp.heads.experiments._repeated import on_repeats

    return on_repeats(model, lab, duplicate_token, period, copies, trials, per_group)


@like(echo)
def razor_induction(
    model,
    lab,
    *,
    period: int = 12,
    copies: int = 4,
    trials: int = 12,
    per_group: bool = False,
):
    """Attend to the tokens after earlier copies of the current one, in repeated random tokens.

    The prompt is BOS and a block of random tokens repeated several times. Score = mean over the
    rows from the second copy on of the mass on the tokens after earlier copies of the row's token.

    Not for: replacing `induction`: it uses more copies, all rows of later copies and optionally the
    maximum of a key-value group.
    """
    from interp.heads.detectors.induction import induction
    from interp.heads.experiments._repeated import on_repeats

    return on_repeats(model, lab, induction, period, copies, trials, per_group)
