"""When memory runs out: told from other errors, and met with fewer prompts at a time."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.prompts import Prompts

Batch = Prompts | Mapping[str, Tensor]
_Found = TypeVar("_Found")

# torch has no class of its own for what the allocators of the CPU say
_SAID = ("DefaultCPUAllocator", "not enough memory", "CUDA out of memory")


class LessAtOnce(UserWarning):
    """Memory ran out, and the run goes on with fewer prompts at a time."""


def ran_out(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _SAID)


def prompts_in(batch: Batch) -> int:
    """How many prompts run at once."""
    if isinstance(batch, Prompts):
        return len(batch)
    return max((x.shape[0] for x in batch.values() if isinstance(x, Tensor)), default=1)


def batch_parts(batch: Batch, size: int) -> list[Batch]:
    """A batch in parts of at most `size` prompts."""
    if isinstance(batch, Prompts):
        return list(batch.batches(size))
    n = prompts_in(batch)

    def part(x: Any, start: int) -> Any:
        whole = not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != n
        return x if whole else x[start : start + size]

    return [{k: part(x, start) for k, x in batch.items()} for start in range(0, n, size)]


def backing_off(todo: Sequence[Batch], run: Callable[[Batch], _Found], name: str) -> list[_Found]:
    """What `run` gives for every batch, each in as many parts as memory asks for.

    Once memory ran out, no later part is larger than what fitted. `run` must leave nothing behind
    when it fails.

    Raises:
        PromptError: one prompt alone does not fit.
    """
    found: list[_Found] = []
    waiting = list(todo)
    most: int | None = None
    while waiting:
        batch = waiting.pop(0)
        n = prompts_in(batch)
        if most is not None and n > most:
            waiting[:0] = batch_parts(batch, most)
            continue
        try:
            found.append(run(batch))
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
        # here the failed run's tensors are let go: the error held them
        most = n // 2
        waiting.insert(0, batch)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(
            f"{name}: memory ran out with {n} prompts{_tokens(batch)} at a time; going on with "
            f"{most}, which changes no number",
            LessAtOnce,
            stacklevel=2,
        )
    return found


def _tokens(batch: Batch) -> str:
    return f" of up to {max(map(len, batch.ids)):,} tokens" if isinstance(batch, Prompts) else ""
