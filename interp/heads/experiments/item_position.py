"""Attention by the position of an item."""

from interp.heads.declaration import experiment


@experiment(
    unit="share of the mass on items",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1 / items",
    task="none: where a head attends in a list decides no answer",
)
def item_position(
    model,
    lab,
    *,
    items: int = 6,
    size: int = 6,
    orders: int = 24,
    question: int = 2,
    end: str = "both",
):
    """Attend to the first and the last of several items, whatever their content.

    This is called an attention basin.

    Random items are placed in random order, followed by random tokens as the question. The next
    prompts rotate the order, so that each item is once at every position if `orders` is a multiple
    of `items`; then new items are drawn. Prompts that share an order form a cluster. The share of a
    position is the part of the question's attention on items that falls there, averaged over
    prompts; score = the smaller of the shares of the first and the last position, 1/2 for an ideal
    basin. A head that attends to one end only, such as a previous-token head, has almost none at
    the other. The notes give both ends of the highest heads and the mean share at every position
    over all heads; `interp.heads.experiments._items.by_slot` gives every position per head.

    Not for: the effect of content: items are random tokens. With few `orders` the effects of an
    item and of its position cannot be separated.

    Options:
        items: number of items in a prompt.
        size: tokens per item, all different where the vocabulary allows.
        orders: number of prompts; each group of `items` prompts rotates one order.
        question: number of tokens after the items; only their rows count.
        end: `both` for the smaller share of the two; `first` or `last` for one of them.

    Reference: Yi et al. 2025, "Attention Basin: Why Contextual Position Matters in Large Language
    Models".
    """
    from interp.heads.experiments._items import at_ends, by_slot, ends_of_highest
    from interp.heads.trials import Trials

    shares = by_slot(model, lab, items=items, size=size, orders=orders, question=question, end=end)
    values = {site: at_ends(x, end) for site, x in shares.items()}
    curve = sum(x.mean((0, 1)) for x in shares.values()) / len(shares)
    notes = {
        "first and last place": ends_of_highest(shares, values),
        "mean share by place": " ".join(f"{x:.3f}" for x in curve.tolist()),  # type: ignore[union-attr]
    }
    shared = [f"order {trial // items}" for trial in range(orders)]
    return Trials(values, notes=notes, clusters=shared)
