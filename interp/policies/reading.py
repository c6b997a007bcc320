"""EDAtt and AlignAtt: stop before a token whose attention lies on the newest part of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.head import Head
from interp.model.policy import Action, Step


def source_weights(
    step: Step, heads: Sequence[Head], frames: Sequence[int] | None
) -> Float[Tensor, "row frame"]:
    """Return the attention of the row that predicts the next token, mean over heads."""
    each = [step.cache["pattern", h.layer, h.stack or "cross"][:, h.head, -1] for h in heads]
    mean = torch.stack(each).mean(0)
    return mean[:, :-1] if frames is None else mean[:, list(frames)]


@dataclass(frozen=True)
class EDAtt:
    """Policy that waits for more source once attention leans on its newest positions.

    A token is written while the attention on the last `recent` positions is below `alpha`; the row
    is divided by its Euclidean norm first, as published.

    Args:
        heads: the heads that align target and source.
        alpha: attention from which the model waits; the smaller, the later it writes.
        recent: number of newest source positions.
        frames: source positions that count, in order; by default all but the last.

    Reference: Papi, Negri and Turchi 2023, "Attention as a Guide for Simultaneous Speech
    Translation" (ACL; arXiv 2212.07850). The heads are there all of the fourth of six layers, and
    `recent` is 2.
    """

    names: ClassVar[tuple[str, ...]] = ("pattern",)
    heads: Sequence[Head]
    alpha: float = 0.1
    recent: int = 2
    frames: Sequence[int] | None = None

    def __call__(self, step: Step) -> Action:
        """Stop before a token that attends to the newest positions."""
        rows = torch.nn.functional.normalize(source_weights(step, self.heads, self.frames), dim=-1)
        # a slice from -0 would be the whole row
        newest = rows[:, max(0, rows.shape[1] - self.recent) :]
        return Action(stop=newest.sum(-1) >= self.alpha)


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
