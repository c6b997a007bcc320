"""Metrics that name segments, such as images, on prompts that may not hold these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.core.errors import PromptError
from interp.core.protocols import Reporter
from interp.heads.declaration import BoundAnalysis
from interp.heads.segment_targets import require_segments

if TYPE_CHECKING:
    from interp.model.model import Model


def with_their_segments(
    model: Model, metrics: Sequence[BoundAnalysis], prompts: Any, voice: Reporter, *, alone: bool
) -> list[BoundAnalysis]:
    """Return the metrics whose segments the prompts hold; the reason is reported for others."""
    usable = []
    for metric in metrics:
        try:
            if metric.analysis.names_segments:
                require_segments(metric, model, prompts)
        except PromptError as error:
            if alone:
                raise
            voice.note(f"{metric.label} is omitted on {model.name}: {error}")
        else:
            usable.append(metric)
    return usable
