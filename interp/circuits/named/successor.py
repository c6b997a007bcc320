"""Successor heads."""

from interp.heads.declaration import experiment


@experiment(
    unit="share of list items",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="1 / (items of the list)",
    end="high",
    task="next_items",
)
def successor(model, lab, *, residual: bool = False, least: int = 5):
    """Write the next item of an ordered list from the item that it attends to, such as May to June.

    Lists are numbers, number words, ordinals, days, months and their short forms, and letters; only
    items that are one token after a space are used. The input is what the first MLP writes for an
    item alone, without attention. An item counts if the logit of its successor is the largest of
    its own list under the head's OV circuit. Score = the share of items, averaged within a list and
    then over lists, since pooled items would be mostly numbers. Weights alone decide: the score
    does not show where the head attends.

    Cost: One short forward pass per item, and products of factors.

    Null: the same with a random successor for every item of a list.

    Not for: models whose tokenizer splits the items; those with fewer than two lists get no scores.

    Options:
        residual: add the item's embedding to what the first MLP writes.
        least: a list needs so many items that are one token.

    Reference: Gould et al. 2023, "Successor Heads: Recurring, Interpretable Attention Heads In The
    Wild".
    """
    from interp.circuits.named._ordered import successors

    return successors(model, lab, residual, least)
