"""Attention by the position of an item."""

from interp.analysis import experiment


@experiment(
    unit="share of the mass on items",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="2 / items",
)
def item_position(model, lab, *, items: int = 6, size: int = 6, orders: int = 8, question: int = 2):
    """Attends to the first and the last of several items, whatever they say (an attention basin).

    The same items stand in random order in every prompt, each item once at every place where
    `orders` is a multiple of `items`, and random tokens follow as the question. Score = share of
    the question's attention to items that falls on the first and on the last. The notes give the
    mean share at every place, over all heads; `interp.special._items.by_slot` gives it per head.

    Options:
        items: how many stand in a row.
        size: tokens per item, all different where the vocabulary allows.
        orders: permutations, one prompt each.
        question: tokens after the items, whose rows count.

    Reference: Yi et al. 2025, "Attention Basin: Why Contextual Position Matters in Large Language
    Models".
    """
    from interp.analysis import Trials
    from interp.special._items import by_slot

    shares = by_slot(model, lab, items=items, size=size, orders=orders, question=question)
    values = {site: x[..., 0] + x[..., -1] for site, x in shares.items()}
    curve = sum(x.mean((0, 1)) for x in shares.values()) / len(shares)
    notes = {"mean share by place": " ".join(f"{x:.3f}" for x in curve.tolist())}  # type: ignore[union-attr]
    return Trials(values, notes=notes)
