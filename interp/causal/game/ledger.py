"""Finished coalitions of a game in a run store, so that an interrupted run resumes."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.store import Store
from interp.model.identity import identity_of
from interp.model.source_code import code_of

if TYPE_CHECKING:
    from interp.causal.game.interface import PlayedGame


class Ledger:
    """Values of one game's coalitions, stored in a folder.

    Raises:
        StoreError: the folder cannot be written, or was made by another version.
    """

    def __init__(self, folder: str | os.PathLike, game: PlayedGame) -> None:
        self.n_prompts = len(game.task)
        stated = game.identity()
        self.steps = Store(folder).steps("coalitions", stated["model"]["content_hash"], stated)

    def find(
        self, gates: Float[Tensor, "coalition player"]
    ) -> tuple[Bool[Tensor, " coalition"], Float[Tensor, "coalition prompt"]]:
        """Return a mask of the known coalitions, and their values; NaN for the others."""
        values = torch.full((len(gates), self.n_prompts), torch.nan, dtype=torch.double)
        known = torch.zeros(len(gates), dtype=torch.bool)
        names = _names(gates)
        there = self.steps.find(names)
        for row, name in enumerate(names):
            if name in there:
                values[row] = torch.frombuffer(bytearray(there[name]), dtype=torch.double)
                known[row] = True
        return known, values

    def add(
        self, gates: Float[Tensor, "coalition player"], values: Float[Tensor, "coalition prompt"]
    ) -> None:
        """Store the values of these coalitions; they are on disk when this returns."""
        rows = values.double().cpu().contiguous().numpy()
        self.steps.add({name: row.tobytes() for name, row in zip(_names(gates), rows, strict=True)})


def identity(game: PlayedGame) -> dict[str, Any]:
    """Return everything that affects a game's values, as the key of its ledger."""
    members = {site.name: index.tolist() for site, index in game.players.member.items()}
    about = {k: v for k, v in game.about().items() if k != "notes"}
    read = game.task.read_rows or game.task.read_prompt
    return about | {
        "model": identity_of(game.model),
        "reading": code_of([read]),
        "members": members,
    }


def _names(gates: Tensor) -> list[str]:
    rows = gates.detach().double().cpu().contiguous().numpy()
    return [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in rows]
