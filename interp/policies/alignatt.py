"""AlignAtt: stop before a token that attends most to one of the newest source positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from interp.core.head import Head
from interp.model.policy import Action, Step
from interp.policies.edatt import source_weights


@dataclass(frozen=True)
class AlignAtt:
    """Policy that waits for more source once the most attended position is among the newest.

    Args:
        heads: the heads that align target and source.
        recent: number of newest source positions; the larger, the later the model writes.
        frames: source positions that count, in order; by default all but the last.

    Reference: Papi, Turchi and Negri 2023, "AlignAtt: Using Attention-based Audio-Translation
    Alignments as a Guide for Simultaneous Speech Translation" (Interspeech; arXiv 2305.11408).
    """

    names: ClassVar[tuple[str, ...]] = ("pattern",)
    heads: Sequence[Head]
    recent: int = 2
    frames: Sequence[int] | None = None

    def __call__(self, step: Step) -> Action:
        """Stop before a token that is aligned with one of the newest positions."""
        rows = source_weights(step, self.heads, self.frames)
        return Action(stop=rows.argmax(-1) >= rows.shape[1] - self.recent)
