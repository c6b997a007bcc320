"""Interface of a game for its ledger and its time estimate, and the estimate of a run."""

from __future__ import annotations

from dataclasses import dataclass
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
    seconds: dict[int, float]  # seconds of each batch's clean run
    pace: Any  # a `Pace`, set once it is measured
    ledger: Any  # a `Ledger` that stores finished coalitions

    @property
    def notes(self) -> tuple[str, ...]:
        """Optimisations that are unavailable on this model, with reasons."""
        ...

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of stored clean runs."""
        ...

    def __len__(self) -> int: ...

    def about(self) -> dict[str, Any]:
        """Return the game's provenance."""
        ...

    def identity(self) -> dict[str, Any]:
        """Return everything that affects the values."""
        ...

    def checked(self, gates: Any) -> Tensor:
        """Return gates as a table, `[coalition, player]`."""
        ...

    def packs(self, table: Tensor) -> list[list[Pack]]:
        """Return the coalitions that run together, for each batch."""
        ...

    def clean_run(self, number: int) -> CleanRun:
        """Return the clean run of a batch."""
        ...

    def trim(self, number: int) -> None:
        """Drop the data of a batch that is no longer needed."""
        ...

    def evaluate(self, number: int, pack: Pack, table: Tensor) -> Tensor:
        """Return the values of the coalitions of a pack on a batch."""
        ...


@dataclass(frozen=True)
class RunEstimate:
    """Estimated cost of a run before it starts."""

    coalitions: int
    seconds: float
    n_bytes: int
    share: float  # share of the block runs that full forward passes would need
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"{self.coalitions} coalitions: about {self.seconds:.0f} s, "
            f"{self.n_bytes / 2**20:.0f} MiB beside the weights; "
            f"{self.share:.0%} of the block runs of full forward passes"
        )
        return text + "".join(f"; {note}" for note in self.notes)
