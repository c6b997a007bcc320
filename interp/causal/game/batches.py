"""Batches of a task's prompts, each with the replacements of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.game.replacement import Means, Replacement, resample_sources
from interp.causal.game.replay import Wanted
from interp.causal.task import Task, TaskInputs, part, real_tokens, size
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.calls.sites import Site
from interp.model.hooks.inference import inference
from interp.model.sources.remote import RemoteModel

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.model import Model

_TOKENS_OF_AN_IMAGE = 128  # a guess, used only to size batches of inputs without tokens


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
    if isinstance(model, RemoteModel) and kind in ("resample", "uniform-attention"):
        raise OptionError(
            f"kind={kind!r} needs activations, and {model.name} runs at {model.elsewhere}; use "
            "zero, mean-batch, mean-position or mean-dataset, or load the model on this machine"
        )
    lengths = _lengths(task.prompts)
    drawn = None
    if kind == "resample":
        if task.corrupted is None:
            drawn = resample_sources(task, lengths, seed)
        else:
            require_equal_lengths(task)
    if kind == "mean-position" and len(task) < 2:
        raise PromptError(
            f"kind='mean-position' of task {task.name} over one prompt equals that prompt; give "
            f"more prompts, or use kind='mean-batch'"
        )
    padded = _padded(model, task)
    paired = isinstance(task.prompts, Prompts) and task.prompts.decoder is not None
    most = max_tokens if padded or not paired else 0  # pairs of unequal lengths run one by one
    plain = [
        _batch(model, task, which, sum(lengths[i] for i in which), per_input)
        for which in _split(lengths, most, padded=padded)
    ]
    if kind == "uniform-attention":
        return [replace(b, replacement=Replacement(live=True)) for b in plain]
    if kind == "mean-dataset":
        means = model.mean_z(reference)
        fixed = {s: means[s.stack, s.layer][None, :, None].to(model.device) for s in model.sites}
        return [replace(b, replacement=Replacement(fixed)) for b in plain]
    if kind in ("mean-batch", "mean-position"):
        return _with_means(model, plain, kind)
    if kind == "resample":
        return [replace(b, replacement=_resampled(model, task, b, drawn)) for b in plain]
    return plain


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


def _with_means(model: Model, plain: list[GameBatch], kind: str) -> list[GameBatch]:
    means = Means(by_position=kind == "mean-position")
    reals: list[dict[Site, Tensor]] = [{} for _ in plain]
    for real_of, batch in zip(reals, plain, strict=True):

        def visit(site: Site, call: Call, real: Tensor, kept: dict = real_of) -> None:
            kept[site] = real
            means.add(site, call, real)

        if isinstance(model, RemoteModel):
            found = model.z_totals(batch.inputs, by_position=means.by_position)
            for site, (total, real) in found.items():
                real_of[site] = real
                means.add_elsewhere(site, total, real)
        else:
            _see(model, batch.inputs, visit)
    return [
        replace(b, replacement=Replacement(means.fixed(real_of)))
        for real_of, b in zip(reals, plain, strict=True)
    ]


def _resampled(model: Model, task: Task, batch: GameBatch, drawn: list[int] | None) -> Replacement:
    given = task.corrupted if drawn is None else task.prompts
    assert given is not None
    which = [i if drawn is None else drawn[i] for i in batch.which]
    return Replacement(z_of(model, model.inputs(part(given, which))))


def z_of(model: Model, inputs: TaskInputs) -> dict[Site, Tensor]:
    """Return z of every attention in an undisturbed run, `[batch, head, query_pos, d_v]`."""
    found: dict[Site, Tensor] = {}
    _see(model, inputs, lambda site, call, real: found.update({site: call.z.clone()}))
    return found


def _see(model: Model, inputs: TaskInputs, visit: Any) -> None:
    with inference(model.module):
        model.read(inputs, visit)


def require_equal_lengths(task: Task) -> None:
    """Raise unless each prompt is as long as its corrupted version."""
    assert task.corrupted is not None
    pairs = zip(_lengths(task.prompts), _lengths(task.corrupted), strict=True)
    for i, (clean, corrupted) in enumerate(pairs):
        if clean != corrupted:
            raise PromptError(
                f"task {task.name}: prompt {i} has {clean} tokens and its corrupted one "
                f"{corrupted}; activations are patched position by position, so give prompts of "
                f"equal length"
            )


def _lengths(prompts: Prompts | TaskInputs) -> list[int]:
    """Return the number of positions of each prompt in the batch."""
    if isinstance(prompts, Prompts):
        read = prompts.ids if prompts.decoder is None else prompts.decoder.ids
        return [max(len(p), len(r)) for p, r in zip(prompts.ids, read, strict=True)]
    widths = [
        int(x.shape[1])
        for name, x in prompts.items()
        if isinstance(x, Tensor) and name.endswith("input_ids")
    ]
    return [sum(widths) or _TOKENS_OF_AN_IMAGE] * size(prompts)
