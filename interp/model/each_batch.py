"""Runs of a model over batches, in step where its weights are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from interp.core.random_state import drawing_here
from interp.model.hooks.tap import tap_is_open
from interp.model.streamed import IN_STEP, in_step, streamed_weights

_Batch = TypeVar("_Batch")
_Found = TypeVar("_Found")


_WAITING = 2**28  # bytes of activations that may wait between two parts, or those of a layer
_COPIES = 8  # tensors of the width of the stream that a waiting batch holds, at most


class EditableModel(Protocol):
    """What is needed to know of a model before its batches run in several threads."""

    module: nn.Module

    @property
    def active_edits(self) -> tuple[str, ...]:
        """Names of the active edits."""
        ...

    @property
    def d_model(self) -> Any:  # a cached property does not match an int
        """Width of the residual stream."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Data type."""
        ...


def each_batch(
    model: EditableModel,
    todo: Iterable[_Batch],
    run: Callable[[_Batch], _Found],
    tokens: Callable[[_Batch], int],
) -> list[_Found]:
    """Return the results of `run` for every batch, with streamed weights made once for many.

    Batches share a part as long as their waiting activations are small. Where something else looks
    at the run, each batch makes the weights: an edit or a visitor belongs to the thread that opened
    it.
    """
    weights = streamed_weights(model.module)
    if weights is None or model.active_edits or tap_is_open() or drawing_here():
        return [run(batch) for batch in todo]
    room, each = max(_WAITING, weights.room), _COPIES * model.d_model * model.dtype.itemsize
    results: list[_Found] = []
    group: list[_Batch] = []
    held = 0
    for batch in todo:
        size = tokens(batch) * each
        if group and (held + size > room or len(group) == IN_STEP):
            results += in_step(model.module, group, run)
            group, held = [], 0
        group.append(batch)
        held += size
    return results + in_step(model.module, group, run)
