"""Shared part of the metrics of sources: needles among segments of a context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from interp.cache.segments import Segments, source_trials
from interp.heads.experiments._needles import asked_instances, needle_notes
from interp.heads.needle.instance import NeedleOptions
from interp.heads.trials import Lab, Trials
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

ReadHeads = Callable[[Segments, Site], Float[Tensor, " head"]]


def on_sources(
    model: Model,
    lab: Lab,
    name: str,
    read: ReadHeads,
    needle: NeedleOptions,
    *,
    segment: int,
    last: int = 16,
) -> Trials:
    """Score every head by what it reads in prompts whose source segment is known."""
    task, instances, tried = asked_instances(model, lab.seed, needle)
    values = source_trials(
        model,
        instances,
        read,
        segment,
        lambda _, done, total: lab.progress(name, done, total),
        last=last,
    )
    notes = {"tasks": needle_notes(tried)} if tried else {}
    return Trials(
        values,
        notes=notes,
        settled={"task": task},
        headline=f"task {task}",
        clusters=[f"needle {x.needle}" for x in instances],
    )
