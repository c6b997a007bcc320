"""Attention by the position of an item."""

from interp.analysis import experiment


@experiment(
    unit="share of the mass on items",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="2 / items",
)
def item_position(
    model, lab, *, items: int = 6, size: int = 6, orders: int = 24, question: int = 2
):
    """Attends to the first and the last of several items, whatever they say (an attention basin).

    Random items stand in random order, and random tokens follow as the question; the next prompts
    turn the order, so that each item stands once at every place where `orders` is a multiple of
    `items`. Then come other items. What shares an order is a cluster. Score = share of
    the question's attention to items that falls on the first and on the last. The notes give the
    mean share at every place, over all heads; `interp.special._items.by_slot` gives it per head.

    Options:
        items: how many stand in a row.
        size: tokens per item, all different where the vocabulary allows.
        orders: prompts; so many of them as there are items turn one order.
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
    shared = [f"order {trial // items}" for trial in range(orders)]
    return Trials(values, notes=notes, clusters=shared)
