"""Next item of an ordered list: Thursday after Monday Tuesday Wednesday.

The corrupted prompt shows other items in random order; the wrong answer is in neither prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks.wording import require
from interp.core.errors import PromptError
from interp.core.prompts import Prompts, bos_id

if TYPE_CHECKING:
    from interp.model.model import Model

SHOWN = 3  # items before the next one
LEAST = 8  # items that are one token, of a list that is used


def make(model: Model, n: int, seed: int) -> ContrastTask:
    """Return contrast pairs whose only role is `end`; pairs from one list form a cluster."""
    from interp.circuits.named._ordered import LISTS, known_lists

    require(model, n)
    rows = []  # ids of the items shown and of the next, and the list
    known = known_lists(model, LEAST)
    for name, (ids, after) in known.items():
        following = dict(after)
        for first in following:
            chain = [first]
            while len(chain) <= SHOWN and chain[-1] in following:
                chain.append(following[chain[-1]])
            if len(set(chain)) == SHOWN + 1:
                rows.append((tuple(ids[k] for k in chain), ids, name))
    if not rows:
        raise PromptError(
            f"the tokenizer of {model.name} has none of {len(LISTS)} ordered lists with {LEAST} "
            "items of one token"
        )
    rng = np.random.default_rng([seed, 41])
    bos = bos_id(model)
    start = () if bos is None else (bos,)
    by_list = {name: [r for r in rows if r[2] == name] for name in known}
    names = [name for name, mine in by_list.items() if mine]
    clean, corrupted, right, wrong, lists = [], [], [], [], []
    for i in range(n):
        name = names[i % len(names)]
        chain, items, _ = by_list[name][int(rng.integers(len(by_list[name])))]
        others = [x for x in items if x not in chain]
        clean.append((*start, *chain[:SHOWN]))
        corrupted.append((*start, *(int(x) for x in rng.choice(others, SHOWN, replace=False))))
        right.append(chain[SHOWN])
        wrong.append(int(rng.choice([x for x in others if x not in corrupted[-1]])))
        lists.append(name)
    task = logit_difference(
        model,
        Prompts(tuple(clean), f"{len(names)} ordered lists"),
        right,
        wrong,
        corrupted=Prompts(tuple(corrupted), "items in another order"),
        name="next_items",
    )
    return ContrastTask(task, tuple({"end": len(x) - 1} for x in clean), tuple(lists))
