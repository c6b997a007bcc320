"""Replacements for the output of an ablated head, of which most are fixed per task.

The output of a replaced head is `gate·z + (1 - gate)·replacement`. Means and resampled activations
come from the undisturbed run over all prompts of the task, so that a coalition's value does not
depend on which other heads are ablated or on batching; for one head at a time this equals the edit
of the same name. A live replacement is made from the current run. The kinds are declared in
`interp.causal.game.interventions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.task import Task, TaskInputs, part, size
from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import inference
from interp.model.sources.remote import RemoteModel

if TYPE_CHECKING:
    from interp.model.model import Model

_TOKENS_OF_AN_IMAGE = 128  # a guess, used only to size batches of inputs without tokens


@dataclass(frozen=True, eq=False)
class Replacement:
    """Replacement for one batch of prompts: `fixed[site] [#batch, head, #query_pos, d_v]`.

    A site without an entry is replaced by zero, or by what `live` makes of its attention call.
    """

    fixed: Mapping[Site, Tensor] = field(default_factory=dict)
    live: Callable[[Call], Tensor] | None = None

    def at(
        self, site: Site, z: Tensor, call: Call | None, kept: Tensor | None = None
    ) -> Tensor | None:
        """Return the replacement of `z [row, head, query_pos, d_v]`, or None for zero.

        `kept` is what `live` made in the clean run, used if the attention itself does not run.
        """
        if self.live is None:
            return self.rows(site, z.shape[0])
        return _repeated(self.live(call) if call is not None else kept, z.shape[0])

    def rows(self, site: Site, n: int) -> Tensor | None:
        """Return the fixed replacement for n rows of z, or None for zero."""
        return _repeated(self.fixed.get(site), n)


def _repeated(value: Tensor | None, n: int) -> Tensor | None:
    if value is None or value.shape[0] in (1, n):
        return value
    return value.repeat(n // value.shape[0], 1, 1, 1)


def gated(
    z: Float[Tensor, "row head query_pos d_v"],
    gate: Float[Tensor, "row head"] | Float[Tensor, "row head query_pos"],
    other: Float[Tensor, "#row head #query_pos d_v"] | None,
) -> Float[Tensor, "row head query_pos d_v"]:
    """Return `gate·z + (1 - gate)·other`, exactly z or other if a gate is 1 or 0."""
    gate = gate.to(z.device)  # layers may lie on several devices
    if z.shape[0] != gate.shape[0]:  # windows of one image are rows of one item
        gate = gate.repeat_interleave(z.shape[0] // gate.shape[0], 0)
    gate = gate[..., None] if gate.dim() == 3 else gate[:, :, None, None]
    if not gate.requires_grad and bool(((gate == 0) | (gate == 1)).all()):
        return torch.where(gate.bool(), z, z.new_zeros(()) if other is None else other.to(z.dtype))
    gate = gate.to(z.dtype)
    return gate * z if other is None else gate * z + (1 - gate) * other.to(z.dtype)


class Means:
    """Running means of z over batches, over all real positions or at each position."""

    def __init__(self, by_position: bool) -> None:
        self.by_position = by_position
        self.total: dict[Site, Tensor] = {}
        self.count: dict[Site, Tensor] = {}

    def add(self, site: Site, call: Call, real: Bool[Tensor, "batch query_pos"]) -> None:
        """Add one attention call to the means; to be used as a visitor."""
        z = call.z.double()
        if real.shape[0] != z.shape[0]:
            real = real.repeat_interleave(z.shape[0] // real.shape[0], 0)
        kept = z * real[:, None, :, None]
        if not self.by_position:
            total = kept.sum((0, 2))[:, None]
            count = real.sum()[None].double()
        else:
            order = _order(real)
            index = order[:, None, :, None].expand_as(kept)
            total = torch.zeros_like(kept).scatter_add(2, index, kept).sum(0)
            count = _counts(real)
        self.add_total(site, total, count)

    def add_elsewhere(
        self, site: Site, total: Tensor, real: Bool[Tensor, "batch query_pos"]
    ) -> None:
        """Add a sum of z that another machine made, of prompts padded on the right."""
        count = _counts(real) if self.by_position else real.sum()[None].double()
        self.add_total(site, total, count)

    def add_total(self, site: Site, total: Tensor, count: Tensor) -> None:
        """Add sums of z `[head, 1 or position, d_v]` and the number of tokens in each."""
        self.total[site] = _sum(self.total.get(site), total, 1)
        self.count[site] = _sum(self.count.get(site), count, 0)

    def fixed(self, real: Mapping[Site, Tensor]) -> dict[Site, Tensor]:
        """Return the means laid out for a batch with these real positions."""
        means = {}
        for site, total in self.total.items():
            mean = total / self.count[site].clamp_min(1)[:, None]
            if not self.by_position:
                means[site] = mean[None]
                continue
            at = _order(real[site])
            means[site] = mean[:, at].transpose(0, 1)
        return means


def _order(real: Tensor) -> Tensor:
    """Return the index of each column in its own prompt; 0 for left padding."""
    return (real.long().cumsum(1) - 1).clamp_min(0)


def _counts(real: Tensor) -> Tensor:
    """Count the prompts that have each position."""
    count = torch.zeros_like(real, dtype=torch.double)
    return count.scatter_add(1, _order(real), real.double()).sum(0)


def _sum(have: Tensor | None, new: Tensor, axis: int) -> Tensor:
    if have is None:
        return new
    short, long = sorted((have, new), key=lambda x: x.shape[axis])
    total = long.clone()
    total.narrow(axis, 0, short.shape[axis]).add_(short)
    return total


@dataclass(frozen=True, eq=False)
class TaskRuns:
    """Prompts of a task in batches, from whose undisturbed runs replacements are made.

    Args:
        which: numbers of the prompts of each batch.
        inputs: input tensors of each batch.
        reference: reference prompts, if any.
        seed: seed of the draw of other prompts.
    """

    model: Model
    task: Task
    which: Sequence[tuple[int, ...]]
    inputs: Sequence[dict[str, Any]]
    reference: Any = None
    seed: int = 0

    def means(self, *, by_position: bool) -> list[dict[Site, Tensor]]:
        """Return the mean of z over the task's prompts and positions, or at each position."""
        if by_position and len(self.task) < 2:
            raise PromptError(
                f"kind='mean-position' of task {self.task.name} over one prompt equals that "
                "prompt; give more prompts, or use kind='mean-batch'"
            )
        model, means = self.model, Means(by_position)
        reals: list[dict[Site, Tensor]] = [{} for _ in self.inputs]
        for real_of, inputs in zip(reals, self.inputs, strict=True):

            def visit(site: Site, call: Call, real: Tensor, kept: dict = real_of) -> None:
                kept[site] = real
                means.add(site, call, real)

            if isinstance(model, RemoteModel):
                totals = model.z_totals(inputs, by_position=by_position)
                for site, (total, real) in totals.items():
                    real_of[site] = real
                    means.add_elsewhere(site, total, real)
            else:
                _see(model, inputs, visit)
        return [means.fixed(real_of) for real_of in reals]

    def reference_means(self) -> list[dict[Site, Tensor]]:
        """Return the mean of z over the reference prompts, the same for each batch."""
        model, means = self.model, self.model.mean_z(self.reference)
        fixed = {s: means[s.stack, s.layer][None, :, None].to(model.device) for s in model.sites}
        return [fixed for _ in self.which]

    def other_prompts(self) -> list[dict[Site, Tensor]]:
        """Return z of each prompt's corrupted prompt, or of another prompt of the task."""
        task, drawn = self.task, None
        if task.corrupted is None:
            drawn = resample_sources(task, prompt_lengths(task.prompts), self.seed)
        else:
            require_equal_lengths(task)
        given = task.prompts if task.corrupted is None else task.corrupted
        parts = [[i if drawn is None else drawn[i] for i in which] for which in self.which]
        return [z_of(self.model, self.model.inputs(part(given, which))) for which in parts]


def z_of(model: Model, inputs: TaskInputs) -> dict[Site, Tensor]:
    """Return z of every attention in an undisturbed run, `[batch, head, query_pos, d_v]`."""
    outputs: dict[Site, Tensor] = {}
    _see(model, inputs, lambda site, call, real: outputs.update({site: call.z.clone()}))
    return outputs


def _see(model: Model, inputs: TaskInputs, visit: Any) -> None:
    with inference(model.module):
        model.read(inputs, visit)


def resample_sources(task: Task, lengths: list[int], seed: int) -> list[int]:
    """Choose the source prompt of each prompt for `resample` without corrupted prompts."""
    if len(task) < 2:
        raise PromptError(
            f"kind='resample' of task {task.name} needs a second prompt to draw from, "
            "or corrupted prompts"
        )
    if len(set(lengths)) > 1:
        raise PromptError(
            "kind='resample' copies z from one prompt to another position by position, but the "
            f"prompts have {min(lengths)} to {max(lengths)} tokens; "
            "use prompts of equal length, or a mean"
        )
    order = np.random.default_rng(seed).permutation(len(task))
    sources = [0] * len(task)
    # a single cycle, so that no prompt is its own source
    for i, j in zip(order, np.roll(order, 1), strict=True):
        sources[int(i)] = int(j)
    return sources


def require_equal_lengths(task: Task) -> None:
    """Raise unless each prompt is as long as its corrupted version."""
    assert task.corrupted is not None
    pairs = zip(prompt_lengths(task.prompts), prompt_lengths(task.corrupted), strict=True)
    for i, (clean, corrupted) in enumerate(pairs):
        if clean != corrupted:
            raise PromptError(
                f"task {task.name}: prompt {i} has {clean} tokens and its corrupted one "
                f"{corrupted}; activations are patched position by position, so give prompts of "
                f"equal length"
            )


def prompt_lengths(prompts: Prompts | TaskInputs) -> list[int]:
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
