"""Games of which every coalition is known, for benchmarks/interval_coverage.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from interp.causal import repeats_task
from interp.causal.game.game import Game
from interp.causal.shapley_values.solution import subsets
from interp.model.load import load

Array = np.ndarray
GAMES = {
    # heads that feed each other, and others beside them
    "bundled:induction": ["L0H1", "L0H2", "L0H3", "L0H6", "L1H0", "L1H3", "L1H5", "L1H6"],
    # one head stands in for another that is gone
    "planted:backup": ["L0H1", "L0H3", "L1H0", "L1H1", "L1H2", "L2H0", "L2H1", "L2H3"],
}
"""Models and the heads that play: 256 coalitions each."""


class TableGame:
    """A game that looks its values up."""

    def __init__(self, table: Array, n: int) -> None:
        self.table, self.n = table, n
        self._place = 2 ** np.arange(n)[::-1]

    def __len__(self) -> int:
        return self.n

    def values(self, gates: object) -> torch.Tensor:
        """`[coalition, prompt]`."""
        index = np.rint(np.asarray(gates)).astype(int) @ self._place
        return torch.from_numpy(self.table[index])


def table_of(name: str, prompts: int, cache: Path) -> Array:
    """Values of all coalitions on a population of prompts, `[coalition, prompt]`, as a worth.

    The task's loss times -1, so that more is better.
    """
    heads = GAMES[name]
    model = load(name)
    task = repeats_task(model, n=prompts, max_length=10, seed=7)
    path = cache / f"{model.content_hash[:12]}-{task.hash[:12]}-{len(heads)}.npy"
    if not path.exists():
        game = Game(model, task, heads=heads, max_tokens=8192)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, -game.values(subsets(len(heads))).numpy())
    return np.load(path)
