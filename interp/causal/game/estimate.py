"""Time and memory of a game, told before it is played."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunEstimate:
    """What a run will take, told before it starts."""

    coalitions: int
    seconds: float
    n_bytes: int
    share: float  # of the block runs that full forwards would need
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"{self.coalitions} coalitions: about {self.seconds:.0f} s, "
            f"{self.n_bytes / 2**20:.0f} MiB over the weights; "
            f"{self.share:.0%} of the block runs of full forwards"
        )
        return text + "".join(f"; {note}" for note in self.notes)
