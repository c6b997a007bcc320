"""Interventions on heads, named after what replaces a head's output z.

"Ablation" can mean several different interventions that give different numbers, so no function has
this name. Every edit acts on z, the input of the output projection split by head; an edited pattern
acts on z through the values. The name of the edit is stored in every result. With grouped-query
attention, edits act on query heads.

    with model.edited(zero("L1H4"), mean(["L0H2"], over="batch")):
        logits = model.run(prompts)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.model.edit_parts import EditParts, Positions, chosen_positions
from interp.model.head_arguments import parse_heads

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site


@dataclass(frozen=True, eq=False)
class Edit:
    """Intervention. `replace(call, site, real)` returns the new z of all heads of a call.

    Args:
        kind: name of the intervention.
        heads: edited heads; in every stack when `stack` is None.
        positions: edited query positions, counted from the first real token of each prompt.
        parts: the same intervention as data, for a model that runs on another machine; None where
            it needs the attention pattern.
    """

    kind: str
    heads: tuple[Head, ...]
    replace: Callable[[Call, Site, Tensor], Tensor] = field(repr=False)
    positions: Positions = None
    stack: str | None = None
    detail: str = ""
    parts: EditParts | None = field(default=None, repr=False)

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
        if not heads:
            return
        z = call.z
        chosen = torch.zeros(z.shape[1], dtype=torch.bool, device=z.device)
        chosen[heads] = True
        where = (
            chosen[None, :, None] & chosen_positions(self.positions, real, call.before)[:, None, :]
        )
        call.z = torch.where(where[..., None], self.replace(call, site, real).to(z.dtype), z)


def _fitting(value: Tensor, like: Tensor, what: str, site: Site) -> Tensor:
    try:
        return value.to(like).expand_as(like)
    except RuntimeError as error:
        raise OptionError(
            f"{what} at {site.name}: a value of shape {tuple(value.shape)} does not broadcast to "
            f"{tuple(like.shape)}"
        ) from error


def zero(heads, *, positions: Positions = None, stack: str | None = None) -> Edit:
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
    heads,
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
        found = (reference or {}).get((site.stack, site.layer))
        if found is None:
            raise OptionError(f"the reference of mean over='dataset' has no {site.name}")
        return found[None, :, None, :]

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        z, weight = call.z, real[:, None, :, None].to(call.z.dtype)
        if reference is not None:
            return _fitting(value(site), z, "mean over='dataset'", site)
        if over == "batch":
            return (
                (z * weight).sum((0, 2), keepdim=True) / weight.sum((0, 2), keepdim=True)
            ).expand_as(z)
        return _position_mean(z, real)

    parts = {"batch": EditParts(mean=True), "dataset": EditParts(value=value)}.get(over)
    return Edit(f"mean-{over}", parse_heads(heads), replace, positions, stack, parts=parts)


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
    heads,
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
        value = given(site)
        if value.shape != call.z.shape and value.shape[0] != 1:
            raise OptionError(
                f"resample at {site.name}: the source has shape {tuple(value.shape)}, "
                f"the run {tuple(call.z.shape)}; use prompts of equal number and length"
            )
        return value.to(call.z).expand_as(call.z)

    parts = EditParts(value=given)
    return Edit("resample", parse_heads(heads), replace, positions, stack, parts=parts)


def uniform(heads, *, positions: Positions = None, stack: str | None = None) -> Edit:
    """Spread the head's attention evenly over its visible keys; its values stay unchanged."""

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        from interp.model.hooks.long_output import uniform_output

        return uniform_output(call)

    return Edit("uniform-attention", parse_heads(heads), replace, positions, stack)


def set_z(heads, value: Tensor, *, positions: Positions = None, stack: str | None = None) -> Edit:
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
        lambda call, site, real: _fitting(value, call.z, "set", site),
        positions,
        stack,
        parts=EditParts(value=lambda site: value),
    )


def set_pattern(
    heads,
    pattern: Tensor | Callable[[Tensor], Tensor],
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Replace the attention pattern; z is computed from the new pattern and the head's values.

    Args:
        heads: edited heads.
        pattern: broadcasts to `[batch, head, query_pos, key_pos]`, or a function of the pattern.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.
    """

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        own = call.pattern()
        # a copy: the function may write into it while the model still uses the original
        new = pattern(own.clone()) if callable(pattern) else pattern
        return call.mix(_fitting(new, own, "pattern", site))

    return Edit("pattern", parse_heads(heads), replace, positions, stack)


def calibrate(
    heads,
    *,
    keep: float = 0.4,
    over: float = 5.0,
    threshold: float | None = None,
    first: int = 1,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Calibrate attention (ACT): reduce the attention to sinks other than the first token.

    A key is a sink of a head if the mean attention from the queries that see it is above `over /
    keys`, or above `threshold`. Its attention is multiplied by `keep`, and the freed attention is
    distributed over the keys that are not such sinks, in proportion to their attention; a row that
    attends only to sinks stays unchanged.

    Args:
        heads: edited heads.
        keep: factor of the attention to a sink, from 0 to 1.
        over: multiple of uniform attention above which a key is a sink.
        threshold: absolute mean attention above which a key is a sink, as in the published code;
            used in place of `over`.
        first: number of tokens at the beginning that never count as sinks (the published code
            exempts the first sink that it finds, wherever it is).
        positions: edited query positions; all by default.
        stack: attention stack; all by default.

    Reference: Yu et al. 2024, "Unveiling and Harnessing Hidden Attention Sinks" (ICML).

    Raises:
        OptionError: an argument is out of range.
    """
    if not 0 <= keep <= 1 or over <= 0 or first < 0 or (threshold is not None and threshold < 0):
        raise OptionError(
            f"keep={keep}, over={over}, threshold={threshold}, first={first}; keep must be from 0 "
            "to 1, "
            "the others not negative"
        )

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        pattern, seen = call.pattern(), call.visible()
        queries = (seen & real[:, None, :, None]).to(pattern.dtype)
        alpha = (pattern * queries).sum(2) / queries.sum(2).clamp_min(1)
        same = seen.shape[-1] == real.shape[1]  # the keys are the queries' own tokens
        keys = real if same else seen.any(2).any(1)
        order = keys.long().cumsum(1) - 1
        limit = over / keys.sum(1, keepdim=True) if threshold is None else threshold
        limit = limit[:, None] if isinstance(limit, Tensor) else limit
        sink = (alpha > limit) & (keys & (order >= first))[:, None]
        on = pattern * sink[:, :, None]
        off = pattern - on
        rest = off.sum(-1, keepdim=True)
        given = (1 - keep) * on.sum(-1, keepdim=True)
        moved = on * keep + off * (1 + given / rest.clamp_min(torch.finfo(rest.dtype).tiny))
        return call.mix(torch.where(rest > 0, moved, pattern))

    detail = f"keep={keep:g}, " + (
        f"over={over:g}" if threshold is None else f"threshold={threshold:g}"
    )
    detail += f", first={first}"
    return Edit("calibrate-attention", parse_heads(heads), replace, positions, stack, detail)


def temperature(
    heads, value: float, *, positions: Positions = None, stack: str | None = None
) -> Edit:
    """Divide the scores of a head by a temperature before its softmax.

    The new weights are p^(1 / value), normalised to the sum of the row; p are the model's own.
    Below 1 attention is sharper, as in tests of a model beyond its trained length; 1 changes
    nothing. Weights of exactly 0 stay 0.

    Args:
        heads: edited heads.
        value: the temperature, above 0.
        positions: edited query positions; all by default.
        stack: attention stack; all by default.

    Reference: Wang et al. 2024, "Length Generalization of Causal Transformers without Position
    Encoding" (arXiv 2404.12224), whose HeadScale is 1 / value.

    Raises:
        OptionError: the temperature is not a positive number.
    """
    if not 0 < value < float("inf"):
        raise OptionError(f"temperature {value:g}: give a positive number")

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        pattern = call.pattern()
        least = torch.finfo(torch.float32).tiny
        scores = pattern.float().clamp_min(least).log() / value
        new = (scores - scores.amax(-1, keepdim=True)).exp() * (pattern > 0)
        whole = pattern.float().sum(-1, keepdim=True)
        new = new / new.sum(-1, keepdim=True).clamp_min(least) * whole
        return call.mix(new.to(pattern.dtype))

    return Edit("temperature", parse_heads(heads), replace, positions, stack, f"{value:g}")
