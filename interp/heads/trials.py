"""Inputs of an experiment on heads, and the scores that it returns for every trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp.core.protocols import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.calls.sites import Site


@dataclass(frozen=True)
class Lab:
    """Inputs of an experiment; slow diagnostic notes are omitted when it runs on a null."""

    seed: int
    progress: Progress
    notes: bool = True


@dataclass(frozen=True)
class Trials:
    """Result of an experiment.

    Args:
        values: per attention the score of every head in every trial, `[trial, head]`; a trial
            without information is a row of NaN and is not counted.
        null: the same scores on the experiment's own null trials, if it has any; otherwise it is
            run again on random weights. `null_kind` describes them.
        notes: additional diagnostics, such as the number of trials that the model failed.
        settled: options that the experiment chose for this model; a null on random weights uses the
            same ones.
        headline: one line that is shown with the scores, such as the chosen task or the reason why
            there are no scores.
        clusters: one label per trial for what trials share (a needle, a period, an order); the
            standard error is over clusters. Without labels every trial is its own cluster.
    """

    values: Mapping[Site, Tensor]
    null: Mapping[Site, Tensor] | None = None
    null_kind: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    settled: Mapping[str, Any] = field(default_factory=dict)
    headline: str = ""
    clusters: Sequence[str] | None = None
