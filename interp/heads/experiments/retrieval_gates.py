"""Gates of retrieval heads, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, PromptError
from interp.heads.declaration import experiment

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.trials import Lab
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@experiment(
    unit="area",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal"),
    chance="1/2 + 1/(2 length)",
    task="needles",
)
def retrieval_gates(
    model, lab, *, length: int = 48, trials: int = 8, skip: int = 1, per_group: bool = False
):
    """Attend beyond the last tokens: mean attention by distance to keys without information.

    Approximates the gates that DuoAttention trains, with one forward pass per prompt. On random
    tokens, a head's score is averaged over all pairs at one distance, so only its dependence on
    position remains; the softmax of these over `length` distances is the attention of a last query
    to identical keys. Score = area under the cumulative attention from the oldest key on: near 0
    for a streaming head, whose mass is on the last tokens, slightly above 1/2 for one without
    preference, 1 for one that attends to the oldest. Heads that attend by content score about 1/2:
    rank heads by it, or use a quantile; a fixed threshold is not informative.

    Not for: a fixed threshold: in grouped-query models nearly all gates are high. Rank the heads,
    or use a quantile.

    Options:
        length: number of distances.
        trials: number of random prompts, each of `2 * length` tokens (or as many as fit).
        skip: number of first tokens that are excluded as keys and as queries, such as a sink.
        per_group: give every head the mean of its key-value group, which a cache shares.

    Reference: Xiao et al. 2024, "DuoAttention: Efficient Long-Context LLM Inference with Retrieval
    and Streaming Heads"; computed as in kvpress, from average queries and keys.
    """
    from interp.heads.experiments.repeats import per_group as grouped
    from interp.heads.trials import Trials

    areas, notes = gates(model, lab, length, trials, skip)
    if per_group:
        areas = {site: grouped(x, site, "mean") for site, x in areas.items()}
    return Trials(areas, notes=notes)


def gates(
    model: Model, lab: Lab, length: int, trials: int, skip: int
) -> tuple[dict[Site, Float[Tensor, "trial head"]], dict[str, Any]]:
    """Return per prompt and head the area under the cumulative attention by distance."""
    import numpy as np
    import torch

    from interp.core.prompts import Prompts, bos_id, ordinary_ids

    if length < 2 or trials < 1 or skip < 0:
        raise OptionError(
            f"length={length}, trials={trials}, skip={skip}: they must be at least 2, 1 and 0"
        )
    ends = [x for x in (model.limit, model.context) if x is not None]
    tokens = min([2 * length + skip, *ends])
    distances = min(length, tokens - skip)
    if distances < 2:
        raise PromptError(
            f"{model.name} has positions for {tokens} tokens; skip={skip} of them "
            f"leaves fewer than 2; lower skip"
        )
    rng, bos, ids = np.random.default_rng(lab.seed), bos_id(model), ordinary_ids(model)
    first = () if bos is None else (bos,)
    areas: dict[Site, list[Tensor]] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site.kind != "softmax":
            return  # a state that does not grow: there is no cache to cut
        model.require_finite(call, site)
        areas.setdefault(site, []).append(_area(call, distances, skip).cpu())

    for done in range(trials):
        drawn = rng.choice(ids, tokens - len(first)).tolist()
        model.read(Prompts(((*first, *drawn),), "random tokens"), visit, last=1)
        lab.progress("retrieval_gates", done + 1, trials)
    notes = {"prompts": f"{trials} of {tokens} random tokens, {distances} distances"}
    return {site: torch.stack(x) for site, x in areas.items()}, notes


def _area(call: Call, distances: int, skip: int) -> Float[Tensor, " head"]:
    """Return the area of one prompt, a few rows at a time, so that memory stays linear."""
    import torch

    queries = call.z.shape[2]
    total = torch.zeros(call.n_heads, distances, dtype=torch.float64, device=call.z.device)
    count = torch.zeros(distances, dtype=torch.float64, device=call.z.device)
    for start in range(skip, queries, 64):
        rows = torch.arange(start, min(start + 64, queries), device=call.z.device)
        scores = call.scores(rows)[0].double()
        seen = call.visible(rows)[0].expand_as(scores)
        keys = rows[:, None] - torch.arange(distances, device=rows.device)  # row, distance
        inside = (keys >= skip) & (keys >= 0)
        keys = keys.clamp_min(0).expand(len(scores), -1, -1)
        inside = inside & seen.gather(-1, keys)
        total += (scores.gather(-1, keys) * inside).sum(1)
        count += inside[0].sum(0)
    # distances that the model hides (a sliding window) get no attention
    mean = torch.where(count > 0, total / count.clamp_min(1), -torch.inf)
    oldest_first = mean.softmax(-1).flip(-1)
    return oldest_first.cumsum(-1).mean(-1)
