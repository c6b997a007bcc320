"""Batches of a task's prompts, each with the replacements of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from interp.causal.game.interventions import intervention, names_with
from interp.causal.game.replacement import Replacement, TaskRuns, prompt_lengths
from interp.causal.game.replay import Wanted
from interp.causal.task import Task, part, real_tokens
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.sources.remote import RemoteModel

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class GameBatch:
    """Batch of prompts of the task; `wanted` is None if the model has one output per input."""

    which: tuple[int, ...]
    inputs: dict[str, Any]
    wanted: Wanted | None
    replacement: Replacement
    tokens: int  # positions of all rows


def make_batches(
    model: Model,
    task: Task,
    kind: str,
    reference: Any,
    seed: int,
    max_tokens: int,
    *,
    per_input: bool,
) -> list[GameBatch]:
    """Build batches of at most `max_tokens` positions (at least one prompt), in order."""
    if max_tokens < 1:
        raise OptionError(f"max_tokens={max_tokens}; it must be at least 1")
    entry = intervention(kind)
    if isinstance(model, RemoteModel) and entry.of_activations:
        raise OptionError(
            f"kind={kind!r} needs activations, and {model.name} runs at {model.elsewhere}; use "
            f"{names_with(lambda x: not x.of_activations)}, or load the model on this machine"
        )
    lengths = prompt_lengths(task.prompts)
    padded = _padded(model, task)
    paired = isinstance(task.prompts, Prompts) and task.prompts.decoder is not None
    most = max_tokens if padded or not paired else 0  # pairs of unequal lengths run one by one
    plain = [
        _batch(model, task, which, sum(lengths[i] for i in which), per_input)
        for which in _split(lengths, most, padded=padded)
    ]
    if entry.live is not None:
        return [replace(b, replacement=Replacement(live=entry.live)) for b in plain]
    if entry.fixed is None:
        return plain
    inputs = [b.inputs for b in plain]
    fixed = entry.fixed(TaskRuns(model, task, [b.which for b in plain], inputs, reference, seed))
    return [replace(b, replacement=Replacement(x)) for b, x in zip(plain, fixed, strict=True)]


def _padded(model: Model, task: Task) -> bool:
    """Return True if prompts of different lengths may share a batch."""
    return not isinstance(task.prompts, Prompts) or model.padding.changes(task.prompts) is None


def _split(
    lengths: Sequence[int], max_tokens: int, *, padded: bool = True
) -> list[tuple[int, ...]]:
    groups: list[list[int]] = []
    widest = 0
    for i, n in enumerate(lengths):
        room = bool(groups) and max(widest, n) * (len(groups[-1]) + 1) <= max_tokens
        if room and (padded or n == widest):
            groups[-1].append(i)
            widest = max(widest, n)
        else:
            groups.append([i])
            widest = n
    return [tuple(g) for g in groups]


def _batch(
    model: Model, task: Task, which: Sequence[int], tokens: int, per_input: bool
) -> GameBatch:
    prompts = part(task.prompts, which)
    inputs = model.inputs(prompts)
    positions = [task.positions[i] for i in which]
    real = real_tokens(prompts if isinstance(prompts, Prompts) else inputs)
    if real is None or per_input:
        if any(tuple(chosen) != (0,) for chosen in positions):
            raise OptionError(
                f"task {task.name}: {model.name} gives one output per input; "
                "read it with positions=[0]"
            )
        return GameBatch(tuple(which), inputs, None, Replacement(), tokens)
    columns = [row.nonzero().flatten() for row in real.cpu()]
    width = real.shape[1]
    flat = [i * width + int(columns[i][p]) for i, chosen in enumerate(positions) for p in chosen]
    columns_read = None
    if task.vocabulary is not None:
        columns_read = torch.tensor(task.vocabulary, device=model.device)
    shape = (int(real.shape[0]), int(width))
    wanted = Wanted(torch.tensor(flat, device=model.device), shape, columns_read)
    return GameBatch(tuple(which), inputs, wanted, Replacement(), max(tokens, real.numel()))
