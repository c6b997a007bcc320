"""Induction on random tokens: `... a b ... a` predicts b; corrupted, the first a is different."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts, bos_id, ordinary_ids

if TYPE_CHECKING:
    from interp.model.model import Model

LENGTH = 16  # tokens before the one that is repeated
LEAST = 6


def make(model: Model, n: int, seed: int) -> ContrastTask:
    """Make pairs of ids, with the roles `first` (a), `next` (b) and `end` (a again).

    No tokenizer is needed.
    """
    if n < 1:
        raise OptionError(f"n={n} pairs; give 1 or more")
    ids, first = ordinary_ids(model), bos_id(model)
    begin = () if first is None else (int(first),)
    room = min(x for x in (LENGTH + 2, model.limit, model.context) if x) - len(begin) - 1
    length = min(LENGTH, room, len(ids) - 2)
    if length < LEAST:
        raise PromptError(
            f"{model.name} has room for {room} tokens and a vocabulary of {len(ids)}; induction "
            f"needs {LEAST} different tokens and a repeat"
        )
    rng = np.random.default_rng([seed, 21])
    rows: dict[str, list] = {name: [] for name in ("clean", "corrupted", "right", "wrong", "roles")}
    for _ in range(n):
        drawn = rng.choice(ids, length + 2, replace=False).tolist()
        body, (other, wrong) = drawn[:length], drawn[length:]
        at = int(rng.integers(0, length - 2))
        rows["clean"].append((*begin, *body, body[at]))
        rows["corrupted"].append((*begin, *body[:at], other, *body[at + 1 :], body[at]))
        rows["right"].append(body[at + 1])
        rows["wrong"].append(wrong)
        start = len(begin)
        rows["roles"].append({"first": start + at, "next": start + at + 1, "end": start + length})
    task = logit_difference(
        model,
        Prompts(tuple(rows["clean"]), f"induction on {length} random tokens"),
        rows["right"],
        rows["wrong"],
        corrupted=Prompts(tuple(rows["corrupted"]), "the first of the repeat is another token"),
        name="induction",
    )
    return ContrastTask(task, tuple(rows["roles"]))
