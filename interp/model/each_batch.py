"""Runs of a model over batches: in step with streamed weights, smaller when memory runs out."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.core.random_state import drawing_here
from interp.model.hooks.tap import tap_is_open
from interp.model.inputs import ran_out
from interp.model.streamed import IN_STEP, in_step, streamed_weights

_Batch = TypeVar("_Batch")
_Found = TypeVar("_Found")

_WAITING = 2**28  # bytes of activations that may wait between two parts, or those of a layer
_COPIES = 8  # tensors of the width of the stream that a waiting batch holds, at most


class EditableModel(Protocol):
    """Properties of a model that are needed before its batches run in several threads."""

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


Batch = Prompts | Mapping[str, Tensor]


class LessAtOnce(UserWarning):
    """Warning that memory ran out and the run continues with smaller batches."""


def prompts_in(batch: Batch) -> int:
    """Return the number of prompts in a batch."""
    if isinstance(batch, Prompts):
        return len(batch)
    return max((x.shape[0] for x in batch.values() if isinstance(x, Tensor)), default=1)


def batch_parts(batch: Batch, size: int) -> list[Batch]:
    """Split a batch into parts of at most `size` prompts."""
    if isinstance(batch, Prompts):
        return list(batch.batches(size))
    n = prompts_in(batch)

    def part(x: Any, start: int) -> Any:
        whole = not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != n
        return x if whole else x[start : start + size]

    return [{k: part(x, start) for k, x in batch.items()} for start in range(0, n, size)]


def tokens_in(batch: Batch) -> int:
    """Return the tokens of a batch, padding included; of pictures the rows of their tensors."""
    if isinstance(batch, Prompts):
        return len(batch) * max(map(len, batch.ids))
    return max(x[..., 0].numel() for x in batch.values())


def backing_off(
    todo: Sequence[Batch], run: Callable[[Batch], _Found], name: str, *, told: bool = True
) -> list[_Found]:
    """Return the results of `run` for every batch, split into as many parts as memory requires.

    Once memory ran out, no later part is larger than the largest that fitted. `run` must have no
    side effects when it fails.
    """
    results: list[_Found] = []
    waiting = list(todo)
    most: int | None = None
    while waiting:
        batch = waiting.pop(0)
        n = prompts_in(batch)
        if most is not None and n > most:
            waiting[:0] = batch_parts(batch, most)
            continue
        try:
            results.append(run(batch))
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            if n == 1:
                raise PromptError(
                    f"{name}: memory ran out with one prompt{_tokens(batch)} at a time "
                    f"({str(error).strip().partition(chr(10))[0][:120]}); shorten it, use "
                    "engine='streamed' or a smaller dtype"
                ) from error
        else:
            continue
        # here the failed run's tensors are released: the exception referred to them
        most = n // 2
        waiting.insert(0, batch)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not told:
            continue
        warnings.warn(
            f"{name}: memory ran out with {n} prompts{_tokens(batch)} at a time; continuing with "
            f"{most}, which changes no number",
            LessAtOnce,
            stacklevel=2,
        )
    return results


def _tokens(batch: Batch) -> str:
    return f" of up to {max(map(len, batch.ids)):,} tokens" if isinstance(batch, Prompts) else ""


class LayersDone:
    """Progress over layers, also where a batch is run in parts of which some are repeated."""

    def __init__(self, advance: Callable[[], None], prompts: int, layers: int, batches: int):
        self.advance, self.prompts, self.layers = advance, prompts, layers
        self.total = layers * batches
        self.reported = self.before = self.part = self.seen = 0

    def begin(self, prompts: int) -> None:
        """Note that a part of this many prompts is about to run."""
        self.part, self.seen = prompts, 0

    def __call__(self) -> None:
        """Report a finished layer of the part."""
        self.seen += 1
        self._tell(self.before + self.part * self.seen / self.layers)

    def end(self) -> None:
        """Note that the part is finished."""
        self.before += self.part
        self._tell(self.before)

    def _tell(self, prompts: float) -> None:
        now = int(self.total * prompts / self.prompts + 1e-6)
        while self.reported < now:
            self.reported += 1
            self.advance()
