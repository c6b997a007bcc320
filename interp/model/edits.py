"""Interventions on heads, named after what replaces a head's output z.

"Ablation" can mean several different interventions that give different numbers, so no function has
this name. Every edit acts on z, the input of the output projection split by head; an edited pattern
acts on z through the values. The name of the edit is stored in every result. With grouped-query
attention, edits act on query heads.

    with model.edited(zero("L1H4"), mean(["L0H2"], over="batch")):
        logits = model.run(prompts)

The block edits the module itself, also while its own `generate` writes: with any cache, beams or
sampling. Edits of patterns are in `pattern_edits`, those of attention to some keys in `key_edits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.model.calls.steps import query_positions, rows_of_step
from interp.model.head_arguments import HeadsLike, parse_heads

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

Positions = slice | int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class EditParts:
    """Intervention as data: `factor`·z, or for the factor 0 a value in its place.

    Args:
        factor: one factor, or one per head of the edit.
        value: replacement of z per stack and layer, or one for all; zero if None. It broadcasts to
            `[batch, head, query_pos, d_v]`.
        mean: replace z by its mean over the real positions of the batch.
    """

    factor: float | Tensor = 0.0
    value: Callable[[Site], Tensor] | None = None
    mean: bool = False


def chosen_positions(positions: Positions, real: Tensor, before: Tensor | None = None) -> Tensor:
    """Return the mask of chosen positions, counted without padding: `[batch, query_pos]`."""
    if positions is None:
        return torch.ones_like(real)
    ends = [positions.start, positions.stop] if isinstance(positions, slice) else positions
    ends = [ends] if isinstance(ends, int) else ends
    if before is not None and any(p is not None and p < 0 for p in ends):
        raise OptionError(
            f"an edit names positions {positions}, counted from the end, which moves while a model "
            "writes; count them from the first token"
        )
    past = torch.zeros(len(real), dtype=torch.long, device=real.device)
    past = past if before is None else past + before
    # the position of each token within its own prompt
    order = query_positions(real, before)
    length = real.long().sum(1) + past
    if isinstance(positions, slice):
        bounds = [positions.indices(n) for n in length.tolist()]
        picked = [range(*b) for b in bounds]
    else:
        wanted = [positions] if isinstance(positions, int) else list(positions)
        known = int(length.max())
        absent = [p for p in wanted if not -known <= p < known]
        if absent and before is None:
            raise OptionError(
                f"an edit names positions {absent}; the longest prompt has {known} tokens (0 to "
                f"{known - 1})"
            )
        picked = [[p if p >= 0 else n + p for p in wanted] for n in length.tolist()]
    chosen = torch.zeros_like(real)
    for row, places in enumerate(picked):
        chosen[row] = real[row] & torch.isin(
            order[row], torch.tensor(list(places), dtype=torch.long, device=real.device)
        )
    return chosen


@dataclass(frozen=True, eq=False)
class Edit:
    """Intervention. `replace(call, site, real)` returns the new z of all heads of a call.

    Args:
        kind: name of the intervention.
        heads: edited heads; in every stack when `stack` is None.
        positions: edited query positions, counted from the first real token of each prompt.
        parts: the same intervention as data, for a model that runs on another machine; None where
            it needs the attention pattern.
        of_run: what is read of all queries of a run, which a step with a cache does not have.
        of_pattern: z is the output of another pattern, which passes the layer's gate, if any.
    """

    kind: str
    heads: tuple[Head, ...]
    replace: Callable[[Call, Site, Tensor], Tensor] = field(repr=False)
    positions: Positions = None
    stack: str | None = None
    detail: str = ""
    parts: EditParts | None = field(default=None, repr=False)
    of_run: str = ""
    of_pattern: bool = False

    @property
    def name(self) -> str:
        """Name in results, such as `mean-batch(L1H4, L1H5)`."""
        where = ", ".join(map(str, self.heads))
        if self.stack:
            where = f"{self.stack} {where}"
        if self.positions is not None:
            where += f" at {self.positions}"
        return f"{self.kind}({where}{'; ' + self.detail if self.detail else ''})"

    def applies(self, site: Site) -> list[int]:
        """Return the heads of a site that this edit changes."""
        if self.stack is not None and site.stack != self.stack:
            return []
        mine = (None, site.stack)  # heads in results carry their stack
        return [h.head for h in self.heads if h.layer == site.layer and h.stack in mine]

    def __call__(self, call: Call, site: Site, real: Tensor) -> None:
        """Assign the edited z to the call; `real [batch, query_pos]` marks the real tokens."""
        heads = self.applies(site)
        if not heads or (site.gated and self.of_pattern == call.behind_gate):
            return
        if self.of_run and call.past is not None:
            raise OptionError(
                f"{self.name} reads {self.of_run}, and a run with a cache has the new queries "
                "only; use an edit whose value is fixed, such as mean(over='dataset'), or generate "
                "with use_cache=False"
            )
        z = call.z
        chosen = torch.zeros(z.shape[1], dtype=torch.bool, device=z.device)
        chosen[heads] = True
        rows = chosen_positions(self.positions, real, call.before)
        if self.positions is not None and not bool(rows.any()):
            return
        where = chosen[None, :, None] & rows[:, None, :]
        call.z = torch.where(where[..., None], self.replace(call, site, real).to(z.dtype), z)


def broadcast_value(value: Tensor, like: Tensor, what: str, site: Site) -> Tensor:
    """Broadcast a given value to a tensor of a call."""
    try:
        return value.to(like).expand_as(like)
    except RuntimeError as error:
        raise OptionError(
            f"{what} at {site.name}: a value of shape {tuple(value.shape)} does not broadcast to "
            f"{tuple(like.shape)}"
        ) from error


def zero(heads: HeadsLike, *, positions: Positions = None, stack: str | None = None) -> Edit:
    """Replace z by 0: the output of a head whose values are all zero.

    Args:
        heads: edited heads.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.
    """
    return Edit(
        "zero",
        parse_heads(heads),
        lambda call, site, real: torch.zeros_like(call.z),
        positions,
        stack,
        parts=EditParts(),
    )


def gate(
    heads, factor: float | Tensor, *, positions: Positions = None, stack: str | None = None
) -> Edit:
    """Multiply z by a factor; a tensor `[len(heads)]` that requires grad gives gate gradients.

    Args:
        heads: edited heads.
        factor: one factor, or one per head.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.

    Not for: estimating the effect of zeroing a head from the gradient: 0 is far from 1.
    """
    chosen = parse_heads(heads)
    if isinstance(factor, Tensor) and factor.shape not in ((), (1,), (len(chosen),)):
        raise OptionError(
            f"gate on {len(chosen)} heads with factors of shape {tuple(factor.shape)}; give "
            "one per head"
        )

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        if not isinstance(factor, Tensor):
            return call.z * factor
        scale = torch.ones(call.z.shape[1], dtype=factor.dtype, device=call.z.device)
        mine = [(i, h.head) for i, h in enumerate(chosen) if h.layer == site.layer]
        index = torch.tensor([h for _, h in mine], device=call.z.device)
        values = factor.expand(len(chosen))[[i for i, _ in mine]].to(call.z.device)
        return call.z * scale.index_put((index,), values)[:, None, None]

    if not bool(torch.as_tensor(factor).isfinite().all()):
        raise OptionError(f"gate with the factor {factor}; it must be a finite number")
    detail = f"factor={factor:g}" if isinstance(factor, (int, float)) else "factor=tensor"
    return Edit("gate", chosen, replace, positions, stack, detail, EditParts(factor))


def mean(
    heads: HeadsLike,
    *,
    over: Literal["batch", "position", "dataset"] = "batch",
    reference: dict[tuple[str, int], Tensor] | None = None,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Replace z by its mean; `over` selects one of three different interventions.

    Args:
        heads: edited heads.
        over: `batch`: over all real positions of all prompts of the batch;
            `position`: over the prompts of the batch, at each position counted from the first
            real token; `dataset`: over other prompts, given by `reference`.
        reference: for `dataset`: the result of `model.mean_z(prompts)`.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.
    """
    if over == "dataset" and reference is None:
        raise OptionError("mean over='dataset' needs reference=model.mean_z(prompts)")
    if over != "dataset" and reference is not None:
        raise OptionError(f"mean over={over!r} takes no reference; use over='dataset'")
    if over not in ("batch", "position", "dataset"):
        raise OptionError(f"mean over={over!r}; known: batch, position, dataset")

    def value(site: Site) -> Tensor:
        mean_z = (reference or {}).get((site.stack, site.layer))
        if mean_z is None:
            raise OptionError(f"the reference of mean over='dataset' has no {site.name}")
        return mean_z[None, :, None, :]

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        z, weight = call.z, real[:, None, :, None].to(call.z.dtype)
        if reference is not None:
            return broadcast_value(value(site), z, "mean over='dataset'", site)
        if over == "batch":
            return (
                (z * weight).sum((0, 2), keepdim=True) / weight.sum((0, 2), keepdim=True)
            ).expand_as(z)
        return _position_mean(z, real)

    parts = {"batch": EditParts(mean=True), "dataset": EditParts(value=value)}.get(over)
    of_run = "" if over == "dataset" else "the mean over the positions of a run"
    return Edit(
        f"mean-{over}", parse_heads(heads), replace, positions, stack, parts=parts, of_run=of_run
    )


def _position_mean(z: Tensor, real: Tensor) -> Tensor:
    """Average over prompts at each position, counted from the prompt's first real token."""
    order = (real.long().cumsum(1) - 1).clamp_min(0)
    index = order[:, None, :, None].expand_as(z)
    kept = z * real[:, None, :, None]
    total = torch.zeros_like(z).scatter_add(2, index, kept).sum(0)
    count = torch.zeros_like(real, dtype=z.dtype).scatter_add(1, order, real.to(z.dtype)).sum(0)
    average = total / count.clamp_min(1)[None, :, None]
    return average[None].expand_as(z).gather(2, index)


def resample(
    heads: HeadsLike,
    source: dict[tuple[str, int], Tensor],
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Replace z by z from another run, position by position.

    Args:
        heads: edited heads.
        source: `model.capture(other_prompts, ["z"]).z_by_site()`, of the same shape as this run.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.
    """

    def given(site: Site) -> Tensor:
        value = source.get((site.stack, site.layer))
        if value is None:
            raise OptionError(f"the source of resample has no {site.name}; capture that layer too")
        return value

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        value = rows_of_step(given(site), call, "resample", site)
        if value.shape != call.z.shape and value.shape[0] != 1:
            raise OptionError(
                f"resample at {site.name}: the source has shape {tuple(value.shape)}, "
                f"the run {tuple(call.z.shape)}; use prompts of equal number and length"
            )
        return value.to(call.z).expand_as(call.z)

    parts = EditParts(value=given)
    return Edit("resample", parse_heads(heads), replace, positions, stack, parts=parts)


def set_z(
    heads: HeadsLike, value: Tensor, *, positions: Positions = None, stack: str | None = None
) -> Edit:
    """Replace z by given values.

    Args:
        heads: edited heads.
        value: anything that broadcasts to `[batch, head, query_pos, d_head]` of the layer.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.
    """
    return Edit(
        "set",
        parse_heads(heads),
        lambda call, site, real: broadcast_value(
            rows_of_step(value, call, "set", site), call.z, "set", site
        ),
        positions,
        stack,
        parts=EditParts(value=lambda site: value),
    )


def add(
    heads: HeadsLike,
    value: dict[tuple[str, int], Tensor],
    coefficient: float = 1.0,
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Add a multiple of given values to z, such as a head's mean difference between two sets."""
    if not math.isfinite(coefficient):
        raise OptionError(f"add with the coefficient {coefficient}; it must be a finite number")

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        given = value.get((site.stack, site.layer))
        if given is None:
            raise OptionError(f"the values of add have no {site.name}; give that layer too")
        moved = given.to(call.z)
        if torch.broadcast_shapes(moved.shape, call.z.shape) != call.z.shape:
            raise OptionError(
                f"add at {site.name}: a value of shape {tuple(given.shape)} does not broadcast to "
                f"{tuple(call.z.shape)}"
            )
        return call.z + coefficient * moved

    detail = f"coefficient={coefficient:g}"
    return Edit("add", parse_heads(heads), replace, positions, stack, detail)
