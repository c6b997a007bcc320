"""Estimated time and memory of a game before it runs."""

from __future__ import annotations

from dataclasses import dataclass


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
