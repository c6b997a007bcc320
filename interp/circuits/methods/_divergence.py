"""Divergence of a patched run from the model's own output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.contrast import ContrastTask
    from interp.circuits.contrast_batch import ContrastBatch

METRICS = ("task", "kl")


def require_measure(metric: str) -> None:
    """Raise unless the metric is known."""
    if metric not in METRICS:
        raise OptionError(
            f"metric={metric!r}; expected task (the task's own measure) or kl (the divergence from"
            " the model's output)"
        )


def negative_divergence(
    task: ContrastTask, batch: ContrastBatch, own: Float[Tensor, "batch pos d_vocab"]
) -> Callable[[Tensor], Float[Tensor, " row"]]:
    """Return a function of logits: minus KL(model || logits) in nats, mean over read positions."""
    rows = [(k, p) for k, i in enumerate(batch.which) for p in task.task.positions[i]]
    of = torch.tensor([k for k, _ in rows], device=own.device)
    at = torch.tensor([p for _, p in rows], device=own.device)
    size = len(batch.which)

    def read(logits: Tensor) -> Float[Tensor, "copy row d_vocab"]:
        logits = logits[:, None] if logits.dim() == 2 else logits
        rows_read = logits.reshape(-1, size, *logits.shape[1:])[:, of, at]
        if rows_read.shape[-1] < 2:
            raise OptionError(
                f"{task.name}: the model has one logit, which is not a distribution; use"
                " metric=task"
            )
        return rows_read.double().log_softmax(-1)

    with torch.no_grad():
        wanted = read(own)[0]

    def value(logits: Tensor) -> Float[Tensor, " row"]:
        log_p = read(logits)
        each = (wanted.exp() * (wanted - log_p)).sum(-1)
        total = each.new_zeros(len(log_p), size).index_add(1, of, each)
        count = torch.bincount(of, minlength=size)
        return -(total / count).flatten()

    return value
