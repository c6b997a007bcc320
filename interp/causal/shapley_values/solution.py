"""Result type of every sampler of a game, and their shared checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.game.chain import Playable
from interp.causal.game.game import Game
from interp.core.errors import OptionError
from interp.core.intervals import around
from interp.core.standard_errors import standard_error

Told = Callable[[str, int, int], None] | None
"""See `interp.causal.game.game.Progress`; or None."""

Array = np.ndarray
EXACT = 16
"""Maximum number of players whose coalitions may be enumerated."""
MIN_PAIRS = 8
"""Minimum number of permutation pairs before their spread may stop the sampling."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Value of each player on each prompt, with its errors.

    Args:
        per_prompt: in the task's unit.
        sampling_sem: error of the mean over prompts because only some coalitions were evaluated; 0
            if all were, NaN if it is unknown.
        evaluations: evaluated coalitions besides the full and the empty one.
        notes: additional diagnostics.
        sampling_df: degrees of freedom of `sampling_sem`: samples minus one.
    """

    per_prompt: Float[Array, "player prompt"]
    sampling_sem: Float[Array, " player"]
    evaluations: int
    v_all: Float[Array, " prompt"]
    v_none: Float[Array, " prompt"]
    notes: Mapping[str, Any] = field(default_factory=dict)
    sampling_df: float = math.inf

    @property
    def score(self) -> Float[Array, " player"]:
        """Mean over prompts."""
        return self.per_prompt.mean(1)

    @property
    def sem(self) -> Float[Array, " player"]:
        """Error over prompts and samples: the root of the sum of both squared errors.

        Variation common to prompts and samples is in both, so it is counted twice, which is
        conservative.
        """
        return np.sqrt(standard_error(self.per_prompt) ** 2 + self.sampling_sem**2)

    @property
    def sampling_interval(self) -> Float[Array, "player 2"]:
        """95 % interval of values on the given prompts, from the error over samples alone."""
        return around(self.score, [(self.sampling_sem, self.sampling_df)])

    @property
    def efficiency_gap(self) -> float:
        """Largest difference over prompts between the sum of values and v(all) - v(none)."""
        gap = self.per_prompt.sum(0) - (self.v_all - self.v_none)
        return float(gap[np.abs(gap).argmax()])


def end_values(game: Playable) -> tuple[Float[Array, " prompt"], Float[Array, " prompt"]]:
    """Return the game's values with all players and with none."""
    gates = torch.stack([torch.ones(len(game)), torch.zeros(len(game))]).double()
    both = values(game, gates)
    return both[0], both[1]


def values(
    game: Playable, gates: Any, done: Callable[[int], None] | None = None
) -> Float[Array, "coalition prompt"]:
    """Return values of the game as numpy; `done` receives the number of finished coalitions."""
    gates = torch.as_tensor(gates)
    if not isinstance(game, Game) or done is None:
        return np.asarray(game.values(gates), dtype=float)
    return game.values(gates, progress=lambda what, k, total: done(k)).numpy()


def subsets(n: int) -> Float[Array, "coalition player"]:
    """Return all coalitions of n players, with the first player changing slowest."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)[::-1]) & 1).astype(float)


def game_name(game: Playable) -> str:
    """Return the name of the game, for progress."""
    return f"{game.task.name}, {game.kind}" if isinstance(game, Game) else "game"


def check_exact(n: int, what: str, instead: str) -> None:
    """Raise if enumerating all coalitions would take too long."""
    if n > EXACT:
        raise OptionError(
            f"{what} enumerates all 2^{n} coalitions of {n} players, but the limit is {EXACT} "
            f"players; use {instead}"
        )


def check_budget(
    n: int, target_sem: float | None, max_evaluations: int | None, *, least: int, why: str
) -> None:
    """Raise if the target error is not positive or the budget is too small."""
    if n < 1:
        raise OptionError(
            "there is no player, so there is nothing to compute; choose at least one head"
        )
    if target_sem is not None and not target_sem > 0:
        raise OptionError(
            f"target_sem={target_sem}; a target standard error must be above 0, in the task's unit"
        )
    if max_evaluations is not None and max_evaluations < least:
        raise OptionError(
            f"max_evaluations={max_evaluations} of {n} players; {why} needs at least {least}"
        )
