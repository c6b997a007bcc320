"""Pairs of prompts of one length, and the value of each from its logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.prompts import Prompts


@dataclass(frozen=True, eq=False)
class BatchValue:
    """The value of each prompt of a batch, in the task's unit times `sign`, from logits."""

    task: Task
    which: tuple[int, ...]
    sign: int = 1

    def __call__(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, " batch"]:
        """Return a number per prompt, from the logits of one copy or several one after another."""
        task, which = self.task, self.which
        copies, rest = divmod(len(logits), len(which))
        assert not rest
        if logits.dim() == 2:  # one output per prompt, and no positions
            if any(tuple(task.positions[i]) != (0,) for i in which):
                raise OptionError(
                    f"task {task.name}: the model gives one output per prompt; read it with"
                    " positions=[0]"
                )
            logits = logits[:, None]
        rows = [
            logits[c * len(which) + k, p]
            for c in range(copies)
            for k, i in enumerate(which)
            for p in task.positions[i]
        ]
        read = torch.stack(rows)
        if task.vocabulary is not None:
            read = read[:, list(task.vocabulary)]
        return self.of_rows(read, copies)

    def of_rows(self, read: Float[Tensor, "row column"], copies: int) -> Float[Tensor, " batch"]:
        """Return a number per prompt, from the rows and columns of logits that the task reads."""
        n = len(read) // copies
        parts = [self.task.values(read[c * n : (c + 1) * n], self.which) for c in range(copies)]
        return self.sign * torch.cat(parts)


@dataclass(frozen=True, eq=False)
class ContrastBatch:
    """Pairs of prompts of one length, with the function that measures them.

    `read_at` has the positions whose logits `value` reads, by prompt.
    """

    which: tuple[int, ...]
    clean: Prompts
    corrupted: Prompts
    read_at: tuple[tuple[int, ...], ...]
    value: BatchValue
