"""Replacements for the output of an ablated head: kinds of `interp.model.edits`, fixed per task.

The output of a replaced head is `gate·z + (1 - gate)·replacement`. Means and resampled activations
come from the undisturbed run over all prompts of the task, so that a coalition's value does not
depend on which other heads are ablated or on batching; for one head at a time this equals the edit
of the same name. `uniform-attention` spreads the head's attention uniformly over the values of the
current run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, UnknownName
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.long_output import uniform_output

if TYPE_CHECKING:
    from interp.causal.task import Task


@dataclass(frozen=True)
class Kind:
    """Replacement for z of an ablated head, and the questions it does not answer."""

    does: str
    not_for: str


KINDS: Mapping[str, Kind] = {
    "zero": Kind(
        "The head writes nothing: z is 0.",
        "later layers that rely on a head's constant part: zero is then out of distribution, "
        "which causes part of the damage.",
    ),
    "mean-batch": Kind(
        "z is its mean over all prompts and positions of the task.",
        "few prompts: the mean is taken over them, so each prompt keeps part of its own "
        "activation.",
    ),
    "mean-position": Kind(
        "z is its mean over the prompts at each position.",
        "prompts whose positions are not comparable.",
    ),
    "mean-dataset": Kind(
        "z is its mean over user-supplied reference prompts.",
        "reference prompts unlike those of the task.",
    ),
    "resample": Kind(
        "z is that of the corrupted prompt, or of another prompt of the same length.",
        "the total effect of a head: it measures only its effect on the difference between the "
        "two prompts.",
    ),
    "uniform-attention": Kind(
        "Attention is spread uniformly over the visible keys; the head still writes values.",
        "removing a head: it still writes the mean of the values. It tests whether the choice of "
        "tokens matters.",
    ),
}


@dataclass(frozen=True, eq=False)
class Replacement:
    """Replacement for one batch of prompts: `fixed[site] [#batch, head, #query_pos, d_v]`.

    A site without an entry is replaced by zero, or by its uniform attention if `live`.
    """

    fixed: Mapping[Site, Tensor] = field(default_factory=dict)
    live: bool = False

    def at(
        self, site: Site, z: Tensor, call: Call | None, uniform: Tensor | None = None
    ) -> Tensor | None:
        """Return the replacement of `z [row, head, query_pos, d_v]`, or None for zero.

        `uniform` is the uniform attention of the clean run, used if the attention itself does not
        run.
        """
        if self.live:
            value = uniform_output(call) if call is not None else uniform
        else:
            return self.rows(site, z.shape[0])
        return _repeated(value, z.shape[0])

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
        found = {}
        for site, total in self.total.items():
            mean = total / self.count[site].clamp_min(1)[:, None]
            if not self.by_position:
                found[site] = mean[None]
                continue
            at = _order(real[site])
            found[site] = mean[:, at].transpose(0, 1)
        return found


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
    found = [0] * len(task)
    # a single cycle, so that no prompt is its own source
    for i, j in zip(order, np.roll(order, 1), strict=True):
        found[int(i)] = int(j)
    return found


def check_kind(kind: str, reference: object) -> None:
    """Raise if a kind does not exist or lacks its reference prompts."""
    if kind not in KINDS:
        raise UnknownName("kind of ablation", kind, KINDS)
    if kind == "mean-dataset" and reference is None:
        raise OptionError("kind='mean-dataset' needs reference= prompts to take the mean over")
    if kind != "mean-dataset" and reference is not None:
        raise OptionError(
            f"kind={kind!r} does not accept reference prompts; use kind='mean-dataset'"
        )
