"""Attention by the position of an item."""

from interp.heads.declaration import experiment


@experiment(
    unit="share of the mass on items",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1 / items",
)
def item_position(
    model, lab, *, items: int = 6, size: int = 6, orders: int = 24, question: int = 2,
    end: str = "both",
):  # fmt: skip
    """Attends to the first and the last of several items, whatever they say (an attention basin).

    Random items stand in random order, and random tokens follow as the question; the next prompts
    turn the order, so that each item stands once at every place where `orders` is a multiple of
    `items`. Then come other items. What shares an order is a cluster. A place has the share of the
    question's attention to items that falls there, mean over the prompts; score = the smaller of
    the shares of the first and the last place, 1/2 for an ideal basin. A head that looks at one end
    alone, such as a previous-token head, has next to nothing at the other. The notes give both ends
    of the highest heads and the mean share at every place over all heads;
    `interp.heads.experiments._items.by_slot` gives every place per head.

    Not for: the effect of content: items are random tokens. With few `orders` an item and its place
    cannot be told apart.

    Options:
        items: how many stand in a row.
        size: tokens per item, all different where the vocabulary allows.
        orders: prompts; so many of them as there are items turn one order.
        question: tokens after the items, whose rows count.
        end: `both` for the smaller share of the two; `first` or `last` for one of them.

    Reference: Yi et al. 2025, "Attention Basin: Why Contextual Position Matters in Large Language
    Models".
    """
    from interp.heads.declaration import Trials
    from interp.heads.experiments._items import at_ends, by_slot, ends_of_highest

    shares = by_slot(model, lab, items=items, size=size, orders=orders, question=question, end=end)
    values = {site: at_ends(x, end) for site, x in shares.items()}
    curve = sum(x.mean((0, 1)) for x in shares.values()) / len(shares)
    notes = {
        "first and last place": ends_of_highest(shares, values),
        "mean share by place": " ".join(f"{x:.3f}" for x in curve.tolist()),  # type: ignore[union-attr]
    }
    shared = [f"order {trial // items}" for trial in range(orders)]
    return Trials(values, notes=notes, clusters=shared)
