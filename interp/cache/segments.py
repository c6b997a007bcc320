"""Attention from the answer and from the last rows of a prompt to segments of its context.

Only the rows of the answer and the last rows of the prompt are formed, so memory is linear in the
length of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.cache.windows import cached_sites
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress
from interp.heads.needle.instance import Instance
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

WIDTH = 32  # tokens over which EHPC pools scores
LAST = 16  # last rows of a prompt that EHPC reads


@dataclass(frozen=True, eq=False)
class Segments:
    """Attention of every head to the segments of one prompt, `[head, segment]`.

    Args:
        ends: first and one-past-last position of each segment.
        source: which segments hold a token of the answer.
        citation: mass per segment of the rows that write the answer, averaged over rows.
        lookback: per segment the ratio of mean attention per token there to the sum of it and the
            mean attention per token on the answer written so far, averaged over rows.
        context: the same ratio for the whole context.
        evaluator: mass per segment of the last rows of the prompt, averaged over rows.
        pooled: the largest weight of those rows in a segment, after a moving average over keys.
    """

    ends: tuple[tuple[int, int], ...]
    source: Bool[Tensor, " segment"]
    citation: dict[Site, Float[Tensor, "head segment"]]
    lookback: dict[Site, Float[Tensor, "head segment"]]
    context: dict[Site, Float[Tensor, " head"]]
    evaluator: dict[Site, Float[Tensor, "head segment"]]
    pooled: dict[Site, Float[Tensor, "head segment"]]


def segment_ends(model: Model, instance: Instance, size: int) -> tuple[tuple[int, int], ...]:
    """Split the context after its first token into segments of `size` tokens, the last shorter."""
    if size < 1:
        raise OptionError(f"segment={size}: a segment has at least 1 token")
    first, end = int(bos_id(model) is not None), len(instance.context)
    starts = range(first, end, size)
    if len(starts) < 2:
        raise PromptError(
            f"a context of {end} tokens has {len(starts)} segment of {size}; use smaller segments "
            "or a longer prompt, since a source is found among at least two"
        )
    return tuple((start, min(start + size, end)) for start in starts)


def read_segments(
    model: Model,
    instance: Instance,
    ends: Sequence[tuple[int, int]],
    *,
    last: int = LAST,
    width: int = WIDTH,
) -> Segments:
    """Read the attention to every segment of one prompt, with its answer given."""
    if last < 1 or width < 1:
        raise OptionError(f"last={last}, width={width}: both must be at least 1")
    sites = frozenset(cached_sites(model))
    start, steps = instance.length, len(instance.answer)
    # the row that writes the first answer token is the last of the prompt
    answer = torch.arange(start - 1, start - 1 + steps)
    rows = torch.arange(max(0, start - last), start - 1 + steps)
    context = len(instance.context)
    first = ends[0][0]
    tables: dict[str, dict[Site, Tensor]] = {
        name: {} for name in ("citation", "lookback", "context", "evaluator", "pooled")
    }

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site not in sites:
            return
        model.require_finite(call, site)
        pattern = call.pattern(rows.to(call.z.device))[0].double().cpu()  # head row key
        written = pattern[:, answer - rows[0]]
        asked = pattern[:, : start - int(rows[0])]
        mass = _in_segments(written, ends)  # head row segment
        sizes = torch.tensor([b - a for a, b in ends], dtype=torch.double)
        # the question's last token, where the answer begins, counts as written: never empty
        new = torch.arange(1, steps + 1, dtype=torch.double)
        on_answer = written[..., start - 1 :].sum(-1) / new
        tables["citation"][site] = mass.mean(1)
        tables["lookback"][site] = _ratio(mass / sizes, on_answer[..., None]).mean(1)
        whole = written[..., first:context].sum(-1) / (context - first)
        tables["context"][site] = _ratio(whole, on_answer).mean(1)
        tables["evaluator"][site] = _in_segments(asked, ends).mean(1)
        smooth = torch.nn.functional.avg_pool1d(
            asked.mean(1)[:, None, :context],
            width,
            stride=1,
            padding=width // 2,
            count_include_pad=False,
        )[:, 0, :context]
        tables["pooled"][site] = torch.stack([smooth[:, a:b].amax(-1) for a, b in ends], -1)

    prompt = (*instance.prompt, *instance.answer[:-1])
    model.read(Prompts((prompt,), "needles"), visit, last=1)
    low, high = instance.span
    source = torch.tensor([a < high and low < b for a, b in ends])
    return Segments(tuple(ends), source, **tables)  # type: ignore[arg-type]


def _in_segments(
    pattern: Float[Tensor, "head row key"], ends: Sequence[tuple[int, int]]
) -> Float[Tensor, "head row segment"]:
    total = torch.nn.functional.pad(pattern.cumsum(-1), (1, 0))
    starts, stops = torch.tensor(list(ends)).T
    return (total[..., stops] - total[..., starts]).clamp_min(0)


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    """Return one / (one + other); 1/2 where both are 0."""
    total = one + other
    return torch.where(total > 0, one / total.clamp_min(torch.finfo(total.dtype).tiny), 0.5)


def source_trials(
    model: Model,
    instances: Sequence[Instance],
    read: Callable[[Segments, Site], Float[Tensor, " head"]],
    size: int,
    progress: Progress,
    *,
    last: int = LAST,
) -> dict[Site, Float[Tensor, "trial head"]]:
    """Return one number per head and instance, from the segments of each."""
    values: dict[Site, list[Tensor]] = {site: [] for site in cached_sites(model)}
    for done, x in enumerate(instances, 1):
        seen = read_segments(model, x, segment_ends(model, x, size), last=last)
        for site, each in values.items():
            each.append(read(seen, site))
        progress("instances", done, len(instances))
    return {site: torch.stack(each) for site, each in values.items()}
