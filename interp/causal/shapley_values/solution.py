"""What every sampler of a game gives back, and the checks they share."""

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
from interp.causal.importance import standard_error
from interp.core.errors import OptionError
from interp.core.intervals import around

Told = Callable[[str, int, int], None] | None
"""As `interp.causal.game.game.Progress`, or None."""

Array = np.ndarray
EXACT = 16
"""Players up to which all coalitions may be enumerated."""
MIN_PAIRS = 8
"""Pairs of permutations before their spread is trusted to stop the sampling."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The value of each player on each prompt, and how well it is known.

    Args:
        per_prompt: in the task's unit.
        sampling_sem: of the mean over prompts, because only some coalitions were seen; 0 where all
            were, NaN where it cannot be told.
        evaluations: coalitions that were evaluated besides all and none.
        notes: what else to know.
        sampling_df: degrees of freedom of `sampling_sem`: samples less one.
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
        """Over prompts and samples together: the root of the sum of both squared errors.

        What prompts and samples vary together is in both, so it is counted twice, to the safe side.
        """
        return np.sqrt(standard_error(self.per_prompt) ** 2 + self.sampling_sem**2)

    @property
    def sampling_interval(self) -> Float[Array, "player 2"]:
        """The 95 % interval of values on these very prompts: of the error over samples alone."""
        return around(self.score, [(self.sampling_sem, self.sampling_df)])

    @property
    def efficiency_gap(self) -> float:
        """Sum of the values less v(all) - v(none), on the prompt where it is largest."""
        gap = self.per_prompt.sum(0) - (self.v_all - self.v_none)
        return float(gap[np.abs(gap).argmax()])


def end_values(game: Playable) -> tuple[Float[Array, " prompt"], Float[Array, " prompt"]]:
    """The game's values with everybody and with nobody."""
    gates = torch.stack([torch.ones(len(game)), torch.zeros(len(game))]).double()
    both = values(game, gates)
    return both[0], both[1]


def values(
    game: Playable, gates: Any, done: Callable[[int], None] | None = None
) -> Float[Array, "coalition prompt"]:
    """Values of the game as numpy; `done` hears how many coalitions are finished."""
    gates = torch.as_tensor(gates)
    if not isinstance(game, Game) or done is None:
        return np.asarray(game.values(gates), dtype=float)
    return game.values(gates, progress=lambda what, k, total: done(k)).numpy()


def subsets(n: int) -> Float[Array, "coalition player"]:
    """All coalitions of n players, the first player changing slowest."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)[::-1]) & 1).astype(float)


def game_name(game: Playable) -> str:
    """What is played, for progress."""
    return f"{game.task.name}, {game.kind}" if isinstance(game, Game) else "game"


def check_exact(n: int, what: str, instead: str) -> None:
    """Refuse to enumerate more coalitions than fit into reasonable time.

    Raises:
        OptionError: more than 16 players.
    """
    if n > EXACT:
        raise OptionError(
            f"{what} enumerates all 2^{n} coalitions of {n} players, at most {EXACT} can be; "
            f"use {instead}"
        )


def check_budget(
    n: int, target_sem: float | None, max_evaluations: int | None, *, least: int, why: str
) -> None:
    """Refuse an error that is not positive and a budget that does not reach.

    Raises:
        OptionError: either.
    """
    if n < 1:
        raise OptionError("there is no player, so there is nothing to value")
    if target_sem is not None and not target_sem > 0:
        raise OptionError(
            f"target_sem={target_sem}; a standard error to reach is above 0, in the task's unit"
        )
    if max_evaluations is not None and max_evaluations < least:
        raise OptionError(
            f"max_evaluations={max_evaluations} of {n} players; {why} needs at least {least}"
        )
