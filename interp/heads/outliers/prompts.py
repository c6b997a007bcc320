"""Random tokens without structure, and repeated blocks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import PromptError
from interp.core.prompts import Prompts, bos_id, ordinary_ids

if TYPE_CHECKING:
    from interp.model.model import Model


def random_tokens(
    model: Model, *, n: int = 16, longest: int = 64, period: int | None = None, seed: int = 0
) -> Prompts:
    """Return prompts of `[BOS]` and random tokens, `longest` in all or as many as fit.

    Without a period no token repeats (as far as the vocabulary allows); with one, a block of that
    many tokens is repeated, so that all but its first copy is predictable.

    Raises:
        PromptError: the model has fewer than four positions, or the period leaves no second copy.
    """
    first, ids = bos_id(model), ordinary_ids(model)
    longest = min(x for x in (longest, model.limit, model.context) if x)
    if longest < 4:
        raise PromptError(f"{model.name} has positions for {longest} tokens; at least 4 are needed")
    room = longest - (first is not None)
    block = room if period is None else period
    if not 0 < block <= room or (period is not None and room < 2 * block):
        raise PromptError(
            f"two copies of a block of {block} tokens do not fit into {room} positions of "
            f"{model.name}; use a shorter block"
        )
    rng = np.random.default_rng([seed, 7])
    rows = []
    for _ in range(n):
        part = rng.choice(ids, block, replace=block > len(ids))
        said = np.resize(part, room).tolist()
        rows.append(((first,) if first is not None else ()) + tuple(said))
    what = "none repeated" if period is None else f"repeated blocks of {period}"
    policy = "BOS first" if first is not None else "no BOS"
    return Prompts(tuple(rows), f"random tokens, {what}, {longest} tokens, {policy}")
