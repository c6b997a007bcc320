"""Attention by the position of an item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.prompts import Prompts, bos_id, ordinary_ids
from interp.heads.declaration import experiment
from interp.heads.trials import Lab
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model


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
    over all heads; `interp.heads.experiments.item_position.by_slot` gives every position per head.

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


ENDS = ("both", "first", "last")
HIGHEST = 5  # number of heads whose two ends appear in the notes


def by_slot(
    model: Model, lab: Lab, *, items: int, size: int, orders: int, question: int, end: str = "both"
) -> dict[Site, Float[Tensor, "order head place"]]:
    """Return the share of the question's mass on items at each position, per order of the items."""
    if items < 3 or min(size, orders, question) < 1:
        raise OptionError(
            f"items={items}, size={size}, orders={orders}, question={question}: items must be at "
            f"least 3, the other values at least 1"
        )
    if end not in ENDS:
        raise OptionError(f"end={end!r} is not known; known: {', '.join(ENDS)}")
    rng, bos, ids = np.random.default_rng(lab.seed), bos_id(model), ordinary_ids(model)
    first = () if bos is None else (bos,)
    ends = [x for x in (model.limit, model.context) if x is not None]
    length = len(first) + items * size + question
    if ends and length > min(ends):
        raise PromptError(
            f"{items} items of {size} tokens and a question of {question} take {length} "
            f"positions; {model.name} has {min(ends)}; use fewer or smaller items"
        )
    number = items * size + question
    rows = torch.arange(length - question, length)
    place_shares: dict[Site, list[Tensor]] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        model.require_finite(call, site)
        pattern = call.pattern(rows.to(call.z.device))[0].double().mean(1)  # head, key
        mass = pattern[:, len(first) : length - question].unflatten(-1, (items, size)).sum(-1)
        # a head with no attention on the items prefers no position
        total = mass.sum(-1, keepdim=True)
        shares = torch.where(total > 0, mass / total, 1 / items)
        place_shares.setdefault(site, []).append(shares.cpu())

    drawn = np.zeros(0, int)
    for done in range(orders):
        # rotations of one random order: every item is at every position once per `items` prompts
        if done % items == 0:
            drawn = rng.choice(ids, number, replace=number > len(ids))
        blocks, asked = drawn[: items * size].reshape(items, size), drawn[items * size :].tolist()
        body = np.roll(blocks, done % items, axis=0).reshape(-1).tolist()
        prompts = Prompts(((*first, *body, *asked),), "items")
        model.read(prompts, visit, last=1)
        lab.progress("item_position", done + 1, orders)
    return {site: torch.stack(x) for site, x in place_shares.items()}


def at_ends(
    shares: Float[Tensor, "order head place"], end: str = "both"
) -> Float[Tensor, "order head"]:
    """Return the share at one end per order; for "both", at the end that is smaller on average.

    The smaller end is chosen once per head from the mean over the orders, not order by order: a
    minimum per order would fall with the spread between orders.
    """
    first, last = shares[..., 0], shares[..., -1]
    if end != "both":
        return first if end == "first" else last
    return torch.where(first.mean(0) <= last.mean(0), first, last)


def ends_of_highest(
    shares: Mapping[Site, Float[Tensor, "order head place"]],
    values: Mapping[Site, Float[Tensor, "order head"]],
) -> str:
    """Describe both ends of the heads with the highest score."""
    scored = [
        (float(value), f"{Head(site.layer, head)}", shares[site][:, head].mean(0))
        for site, x in values.items()
        for head, value in enumerate(x.mean(0))
    ]
    highest = sorted(scored, key=lambda row: -row[0])[:HIGHEST]
    return ", ".join(f"{head} {x[0]:.3f} and {x[-1]:.3f}" for _, head, x in highest)
