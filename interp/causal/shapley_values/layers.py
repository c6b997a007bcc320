"""Exact Shapley values inside each layer: one game per attention."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.game.chain import Playable
from interp.causal.game.game import Game
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.solution import Solution, Told, check_exact, end_values, values
from interp.core.errors import OptionError


class Subgame:
    """Game in which only some players vary and the others are always active."""

    def __init__(self, game: Playable, players: list[int]) -> None:
        self.game, self.players = game, players

    def __len__(self) -> int:
        return len(self.players)

    def values(self, gates: Float[torch.Tensor, "coalition player"]) -> torch.Tensor:
        """Return the values of the whole game, with all other players active."""
        whole = torch.ones(len(gates), len(self.game), dtype=torch.double)
        whole[:, self.players] = gates.double()
        return torch.as_tensor(values(self.game, whole))


def layer_values(game: Game, *, progress: Told = None) -> Solution:
    """Compute `exact_values` of the players of every attention, with the others active."""
    member = game.players.member
    layers = [sorted({p for p in index.tolist() if p >= 0}) for index in member.values()]
    if sum(map(len, layers)) > len(game):
        raise OptionError(
            f"values per layer need players within a layer, but {game.players.kind} span several; "
            f"use players='heads'"
        )
    for players in layers:
        check_exact(len(players), "the exact mode of a layer", "fewer heads= or shapley(...)")
    per_prompt = np.zeros((len(game), len(game.task)))
    gaps, done = [], 0
    total = sum(2 ** len(players) - 2 for players in layers)
    for site, players in zip(member, layers, strict=True):
        report = None
        if progress is not None:
            what = f"{game.task.name}, {game.kind}, {site.stack} layer {site.layer}"
            report = lambda _, k, n, d=done, w=what: progress(w, d + k, total)  # noqa: E731
        of_layer = exact_values(Subgame(game, players), progress=report)
        per_prompt[players] = of_layer.per_prompt
        gaps.append(of_layer.efficiency_gap)
        done += of_layer.evaluations
        if progress is not None:
            progress(what, done, total)
    v_all, v_none = end_values(game)
    # difference of each layer's sum from the damage of ablating all its players
    notes = {"efficiency_gap": max(gaps, key=abs)}
    return Solution(per_prompt, np.zeros(len(game)), done, v_all, v_none, notes)
