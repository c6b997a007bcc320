"""A game as its parts see it: what the ledger keeps by and what the estimate of time reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from interp.causal.game.batches import GameBatch
    from interp.causal.game.packing import Pack
    from interp.causal.game.players import Players
    from interp.causal.game.replay import CleanRun, Reuse
    from interp.causal.task import Task
    from interp.model.model import Model


class PlayedGame(Protocol):
    """Members of `interp.causal.game.game.Game` that its ledger and its estimate use."""

    model: Model
    task: Task
    players: Players
    reuse: Reuse
    batches: list[GameBatch]
    seconds: dict[int, float]  # of each batch's clean run
    pace: Any  # a `Pace`, once it was measured
    ledger: Any  # a `Ledger`, where finished coalitions are kept

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be used to save time on this model, and why."""
        ...

    @property
    def kept_bytes(self) -> int:
        """Bytes of clean runs that are kept."""
        ...

    def __len__(self) -> int: ...

    def about(self) -> dict[str, Any]:
        """What provenance says about the game."""
        ...

    def identity(self) -> dict[str, Any]:
        """Everything that moves the values."""
        ...

    def checked(self, gates: Any) -> Tensor:
        """Gates as a table, `[coalition, player]`."""
        ...

    def packs(self, table: Tensor) -> list[list[Pack]]:
        """Coalitions that run together, for each batch."""
        ...

    def clean_run(self, number: int) -> CleanRun:
        """The clean run of a batch."""
        ...

    def trim(self, number: int) -> None:
        """Let go of what a batch needs no more."""
        ...

    def evaluate(self, number: int, pack: Pack, table: Tensor) -> Tensor:
        """Values of the coalitions of a pack on a batch."""
        ...
