"""Random sets of heads beside a chosen one: the null of what is done to several heads at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.core.head import Head

if TYPE_CHECKING:
    from interp.model.model import Model


def random_sets(model: Model, chosen: Sequence[Head], n: int, seed: int) -> list[tuple[Head, ...]]:
    """Return different sets of as many heads of the same layers, none of them the chosen one."""
    rng = np.random.default_rng([seed, 44])
    sizes = {(s.stack, s.layer): s.n_heads for s in model.sites}
    wanted: dict[tuple[str, int], int] = {}
    for head in chosen:
        at = (str(head.stack), head.layer)
        wanted[at] = wanted.get(at, 0) + 1
    possible = math.prod(math.comb(sizes[at], k) for at, k in wanted.items()) - 1
    sets: dict[frozenset[Head], tuple[Head, ...]] = {}
    while len(sets) < min(n, possible):
        drawn = tuple(
            Head(layer, int(h), stack)
            for (stack, layer), k in wanted.items()
            for h in rng.choice(sizes[stack, layer], k, replace=False)
        )
        if set(drawn) != set(chosen):
            sets[frozenset(drawn)] = drawn
    return list(sets.values())
