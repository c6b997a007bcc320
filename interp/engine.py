"""Run a model over prompts and reduce every attention pattern to numbers per prompt and head.

The patterns of one layer at a time are asked for the reductions that the analyses named, and are
gone before the next layer runs. `stored` forms a layer's pattern whole; `streamed` never does.
Both evaluate the same definitions, so they give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from interp_kernels import attention_statistics, reference
from interp_kernels.problem import Attention
from interp_kernels.reductions import Chosen, Distance, Mass, Reduction, Targets
from torch import Tensor

from interp.analysis import Bound
from interp.errors import OptionError
from interp.model.calls import Call, ComputedCall, RecordedCall
from interp.model.sites import Site
from interp.prompts import Prompts

if TYPE_CHECKING:
    from interp.model.model import Model

ENGINES = {"stored": "reference", "streamed": "auto"}


@dataclass(eq=False)
class PerPrompt:
    """One metric: per site the mean over rows that count, `[prompt, head]`; NaN without rows."""

    bound: Bound
    values: dict[Site, list[Tensor]] = field(default_factory=dict)

    def of(self, site: Site) -> Tensor:
        """`[prompt, head]` in float64."""
        return torch.cat(self.values[site])


def applies(bound: Bound, site: Site, model: Model) -> bool:
    """Whether a metric means anything at a site.

    Positions of queries and keys can be compared only within one sequence, so detectors and
    distances leave cross attention out; predicates that read tokens need a model that reads them.
    """
    if bound.analysis.reads_tokens and not model.takes_text:
        return False
    positional = bound.analysis.kind == "detector" or any(
        isinstance(r, Distance) for r in bound.reductions()
    )
    return not (positional and site.stack == "cross")


def to_attention(call: Call, real: Tensor, tokens: Tensor | None) -> Attention:
    """An attention call in the words of the kernels."""
    queries, keys = call.z.shape[2], call.v.shape[2]
    same_sequence = queries == keys
    common: dict[str, Any] = {
        "query_padding": None if bool(real.all()) else real,
        "key_padding": real if same_sequence and not bool(real.all()) else None,
        "tokens": tokens if same_sequence else None,
    }
    if isinstance(call, ComputedCall):
        bias, mask = call.bias, call.mask
        if bias is not None and mask is not None:
            mask = mask[..., :keys]
            hidden = ~mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2
            bias = bias[..., :keys].masked_fill(hidden, torch.finfo(bias.dtype).min)
            if mask.dtype != torch.bool:
                bias = bias + mask.masked_fill(hidden, 0)
        elif bias is None and mask is not None:
            bias = mask[..., :keys]
        return Attention(
            q=call.q, k=call.k, v=call.v, causal=call.causal, scale=call.scale, bias=bias,
            softcap=call.softcap, sinks=call.sinks,
            offset=0 if call.causal else keys - queries, **common,
        )  # fmt: skip
    # The scores of such a call are what they are; only positions and visibility are asked here.
    shape = (*call.z.shape[:3], 1)
    return Attention(
        q=torch.zeros(shape), k=torch.zeros(*call.v.shape[:3], 1), v=call.v, causal=False,
        bias=call.visible(),
        offset=keys - queries, **common,
    )  # fmt: skip


def _statistics(
    call: Call, attention: Attention, asked: Sequence[Reduction], engine: str
) -> Mapping[str, Any]:
    if isinstance(call, RecordedCall):
        seen = call.visible()
        pattern = call.pattern() * seen
        scores = call.scores()
        return {r.name: reference.evaluate(r, attention, pattern, scores) for r in asked}
    return attention_statistics(attention, asked, backend=ENGINES[engine])


def reduce_patterns(
    model: Model,
    prompts: Prompts | Mapping[str, Tensor],
    bounds: Sequence[Bound],
    *,
    batch_size: int = 16,
    engine: str = "stored",
    advance: Callable[[int], None] = lambda prompts: None,
) -> list[PerPrompt]:
    """Values of every metric for every prompt and head, from one forward pass per batch.

    Args:
        engine: "stored" or "streamed"; obeyed, never swapped.
        advance: told how many prompts were finished.

    Raises:
        OptionError: no such engine.
        NonFiniteError: NaN or infinity in an attention output, naming the layer.
    """
    if engine not in ENGINES:
        raise OptionError(f"engine {engine!r} is not known; known: {', '.join(ENGINES)}")
    found = [PerPrompt(bound) for bound in bounds]
    batches = [prompts] if isinstance(prompts, Mapping) else list(prompts.batches(batch_size))
    for batch in batches:
        size = len(batch) if isinstance(batch, Prompts) else next(iter(batch.values())).shape[0]
        tokens = _looked_at(batch, model) if isinstance(batch, Prompts) else None

        def visit(
            site: Site, call: Call, real: Tensor, size: int = size, tokens: Tensor | None = tokens
        ) -> None:
            model.require_finite(call, site)
            mine = [p for p in found if applies(p.bound, site, model)]
            asked = [r for p in mine for r in p.bound.reductions()]
            if not asked:
                return
            attention = to_attention(call, real, tokens)
            statistics = _statistics(call, attention, asked, engine)
            for p in mine:
                p.values.setdefault(site, []).append(
                    _mean_over_rows(p.bound, statistics, real, size)
                )

        inputs = model.inputs(batch)  # before the visit: it may try the model on padding
        with torch.no_grad(), model.visited(visit):
            model.run(inputs)
        advance(size)
    return found


def _looked_at(batch: Prompts, model: Model) -> Tensor:
    """The tokens that predicates see, in the columns of the padded batch."""
    ids, _ = Prompts(batch.looked_at(), padding=batch.padding).padded()
    return ids.to(model.device)


def _mean_over_rows(bound: Bound, statistics: Mapping[str, Any], real: Tensor, size: int) -> Tensor:
    first, *rest = bound.reductions()
    values = statistics[first.name]
    values = values.weight if isinstance(values, Chosen) else values
    counts = real[:, None, :].expand_as(values)
    if rest:
        assert isinstance(first, Mass)
        assert isinstance(rest[0], Targets)
        counts = counts & (statistics[rest[0].name] > 0)
    values, counts = values.double(), counts.double()
    if values.shape[0] != size:  # windows of one image are rows of one item
        values, counts = (
            x.reshape(size, -1, *x.shape[1:]).transpose(1, 2).flatten(2) for x in (values, counts)
        )
    total = (values * counts).sum(-1)
    number = counts.sum(-1)
    return torch.where(number > 0, total / number, torch.nan).cpu()
