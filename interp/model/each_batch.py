"""Runs of a model over batches, in step where its weights are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from torch import nn

from interp.core.random_state import drawing_here
from interp.model.hooks.tap import tap_is_open
from interp.model.streamed import in_step, streamed_weights

_Batch = TypeVar("_Batch")
_Found = TypeVar("_Found")


class EditableModel(Protocol):
    """What is needed to know of a model before its batches run in several threads."""

    module: nn.Module

    @property
    def active_edits(self) -> tuple[str, ...]:
        """Names of the active edits."""
        ...


def each_batch(
    model: EditableModel, todo: Iterable[_Batch], run: Callable[[_Batch], _Found]
) -> list[_Found]:
    """Return the results of `run` for every batch, with streamed weights made once for all.

    They are made once for each batch where something else looks at the run: an edit or a visitor
    belongs to the thread that opened it.
    """
    alone = model.active_edits or tap_is_open() or drawing_here()
    if alone or streamed_weights(model.module) is None:
        return [run(batch) for batch in todo]
    return in_step(model.module, list(todo), run)
