"""Random tokens that say nothing, and the same said again and again."""

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
    """`[BOS]` and random tokens, `longest` in all, or as many as the model has room for.

    Without a period no token comes twice (as far as the vocabulary reaches); with one, a block of
    that many tokens is said again and again, so that all but its first copy can be foretold.

    Raises:
        PromptError: the model has no room for four tokens, or the period leaves no second copy.
    """
    first, ids = bos_id(model), ordinary_ids(model)
    longest = min(x for x in (longest, model.limit, model.context) if x)
    if longest < 4:
        raise PromptError(f"{model.name} has room for {longest} tokens; at least 4 are needed")
    room = longest - (first is not None)
    block = room if period is None else period
    if not 0 < block <= room or (period is not None and room < 2 * block):
        raise PromptError(
            f"a block of {block} tokens said twice does not fit into {room} of {model.name}"
        )
    rng = np.random.default_rng([seed, 7])
    rows = []
    for _ in range(n):
        part = rng.choice(ids, block, replace=block > len(ids))
        said = np.resize(part, room).tolist()
        rows.append(((first,) if first is not None else ()) + tuple(said))
    what = "none twice" if period is None else f"blocks of {period} said again and again"
    policy = "BOS first" if first is not None else "no BOS"
    return Prompts(tuple(rows), f"random tokens, {what}, {longest} tokens, {policy}")
