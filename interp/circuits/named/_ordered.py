"""Ordered lists of words, and the next item that a head's OV circuit writes for each item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.named._task import without_scores
from interp.core.errors import OptionError
from interp.core.prompts import bos_id
from interp.core.tokens import encoded_text
from interp.heads.trials import Lab, Trials
from interp.model.edits import zero
from interp.model.locate.layout import stream_read
from interp.model.locate.weights import embeddings, predicting_sites

if TYPE_CHECKING:
    from interp.model.model import Model

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# Words in order, and whether the first one follows the last.
LISTS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "numbers": (tuple(str(x) for x in range(1, 201)), False),
    "number words": (
        (
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ),
        False,
    ),
    "ordinals": (
        (
            "first",
            "second",
            "third",
            "fourth",
            "fifth",
            "sixth",
            "seventh",
            "eighth",
            "ninth",
            "tenth",
        ),
        False,
    ),
    "days": (_DAYS, True),
    "short days": (tuple(day[:3] for day in _DAYS), True),
    "months": (_MONTHS, True),
    "short months": (tuple(month[:3] for month in _MONTHS), True),
    "letters": (tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), False),
}
NULLS = 20  # random successors of every item


def successors(model: Model, lab: Lab, residual: bool, least: int) -> Trials:
    """Score every head by the share of items after which it writes the next one."""
    if least < 3:
        raise OptionError(f"least={least}: a list needs at least 3 items to have a wrong one")
    known = known_lists(model, least)
    if len(known) < 2:
        have = ", ".join(known) or "none"
        return without_scores(
            model,
            f"the tokenizer has {len(known)} of {len(LISTS)} ordered lists with at least {least} "
            f"items of one token ({have}); the metric needs 2",
        )
    vocabulary = embeddings(model)
    rng = np.random.default_rng([lab.seed, 34])
    entering = {name: first_mlp(model, list(ids), residual) for name, (ids, _) in known.items()}
    values: dict = {}
    null: dict = {}
    for done, site in enumerate(predicting_sites(model)):
        ov = model.weights_of(site).OV
        real, beside = [], []
        for name, (ids, after) in known.items():
            x = entering[name][stream_read(site, "v")].to(ov.left)
            logits = (x @ ov.left) @ (ov.right @ vocabulary.W_U[:, list(ids)])
            best = logits.argmax(-1)[:, [a for a, _ in after]]
            real.append(_share(best, [b for _, b in after]))
            wrong = [_wrong(after, len(ids), rng) for _ in range(NULLS)]
            beside.append(torch.stack([_share(best, w) for w in wrong]).mean(0))
        values[site], null[site] = torch.stack(real), torch.stack(beside)
        lab.progress("successor", done + 1, len(model.sites))
    text = ", ".join(f"{name} {len(after)}" for name, (_, after) in known.items())
    return Trials(
        values,
        null,
        f"{NULLS} random successors of every item",
        {"items with a successor": text},
        headline=f"{len(known)} of {len(LISTS)} ordered lists: {', '.join(known)}",
    )


def _share(best: Tensor, wanted: Sequence[int]) -> Float[Tensor, " head"]:
    return (best == torch.as_tensor(wanted, device=best.device)).double().mean(-1).cpu()


def _wrong(after: Sequence[tuple[int, int]], n: int, rng: np.random.Generator) -> list[int]:
    """Draw for every item another one that is neither itself nor its successor."""
    drawn = []
    for item, right in after:
        at = [k for k in range(n) if k not in (item, right)]
        drawn.append(int(rng.choice(at)))
    return drawn


def known_lists(
    model: Model, least: int
) -> dict[str, tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """Return by list the ids of its items and the pairs of an item and its successor, by index.

    Items that are not one token are left out, and so are pairs with such an item.
    """
    lists = {}
    for name, (words, wraps) in LISTS.items():
        ids: dict[int, int] = {}  # place in the list -> token
        for place, word in enumerate(words):
            tokens = encoded_text(model.tokenizer, f" {word}", add_special_tokens=False)[
                "input_ids"
            ]
            if len(tokens) == 1 and tokens[0] != model.tokenizer.unk_token_id:
                ids[place] = tokens[0]
        if len(set(ids.values())) < max(least, len(ids)):
            continue
        index = {place: k for k, place in enumerate(ids)}
        last = len(words) if wraps else len(words) - 1
        follows = [(place, (place + 1) % len(words)) for place in range(last)]
        pairs = tuple((index[a], index[b]) for a, b in follows if a in index and b in index)
        if len(pairs) >= least - 1:
            lists[name] = tuple(ids.values()), pairs
    return lists


def first_mlp(
    model: Model, ids: Sequence[int], residual: bool
) -> dict[str, Float[Tensor, "item d_model"]]:
    """Return what the first MLP writes for single tokens, with the first layer's heads ablated."""
    sites = predicting_sites(model)
    first = min(site.layer for site in sites)
    heads = [(first, h) for s in sites if s.layer == first for h in range(s.n_heads)]
    bos = bos_id(model)
    prompts = [(token,) if bos is None else (bos, token) for token in ids]
    cache = model.capture(
        prompts,
        ("mlp_out",),
        layers=first,
        stack=sites[0].stack,
        positions=[-1],
        edits=[zero(heads)],
    )
    written = cache["mlp_out", first][:, 0].detach()
    vocabulary = embeddings(model)
    streams = {stream_read(site, "v") for site in sites}
    return {
        stream: written + (vocabulary.W_E(stream)[list(ids)] if residual else 0)
        for stream in streams
    }
