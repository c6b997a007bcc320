"""Ablation game whose value is the hidden state of every prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.causal.game.game import Game
from interp.causal.measures import kl_to_clean
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.interrupts import held
from interp.core.prompts import Prompts
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.locate.find_layout import layouts

if TYPE_CHECKING:
    from interp.model.model import Model


class HiddenGame(Game):
    """Game that returns the input of the unembedding at the last token, under ablation of heads."""

    @classmethod
    def of(cls, model: Model, prompts: Prompts, **options: Any) -> HiddenGame:
        """Make the game on these prompts, read at their last token.

        Raises:
            UnreadableAttention: The model has no unembedding.
            OptionError: The players are not single heads.
        """
        leaving = layouts(model).vocabulary.leaving
        if isinstance(leaving, str):
            raise UnreadableAttention(leaving)
        game = cls(model, kl_to_clean(model, prompts, name="hidden_state"), **options)
        if game.players.kind != "heads":
            raise OptionError(
                f"players={game.players.kind!r} is not supported: heads are ablated one by one; "
                "give players='heads'"
            )
        return game

    @held()
    def hidden(self, gates: Any) -> Float[Tensor, "coalition prompt d_model"]:
        """Return the input of the unembedding at each prompt's last token, for each row of gates.

        It is float64 on the CPU, computed with the same reuse of the clean run as `values`.
        """
        table = self.checked(gates)
        leaving = layouts(self.model).vocabulary.leaving
        if isinstance(leaving, str):
            raise UnreadableAttention(leaving)
        found = torch.empty(len(table), len(self.task), leaving.width, dtype=torch.double)
        seen: list[Tensor] = []

        def keep(module: nn.Module, args: tuple) -> None:
            seen[:] = [args[0]]

        module = self.model.module.get_submodule(leaving.matrix)
        packs = self.packs(table)
        handle = module.register_forward_pre_hook(in_this_thread(keep))
        try:
            for number, batch in enumerate(self.batches):
                if batch.wanted is None:
                    raise OptionError(f"task {self.task.name} names no positions to read")
                with inference(self.model.module), torch.no_grad():
                    for pack in packs[number]:
                        copies = len(pack.rows)
                        if pack.first is None:  # no head is ablated
                            copies = 1
                            self._kept.pop(number, None)
                            self.clean_run(number)
                        else:
                            self.evaluate(number, pack, table[list(pack.rows)])
                        rows = seen[0].reshape(-1, leaving.width)[batch.wanted.copies(copies)]
                        value = rows.double().cpu().reshape(copies, len(batch.which), -1)
                        for at, row in enumerate(pack.rows):
                            found[row, list(batch.which)] = value[at if copies > 1 else 0]
                self.trim(number)
        finally:
            handle.remove()
        return found
