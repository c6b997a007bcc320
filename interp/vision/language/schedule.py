"""Schedule of layers by which tokens of a picture are dropped, chosen by the last token (VFlowOpt).

A schedule is the share of the picture's tokens that each layer of the text sees; it never rises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import OptionError, UnknownName
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.ties import largest
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.vision.language.dropping import RANKED_BY, importance
from interp.vision.language.prompts import (
    PicturePrompt,
    logits_after,
    prompts_with_pictures,
    provenance,
    require_option,
    selection_halves,
    text_sites,
)

if TYPE_CHECKING:
    from interp.model.model import Model

Schedule: TypeAlias = tuple[float, ...]  # share of the tokens that each layer sees

STAGES = 3  # at most
NEAR = 0.02  # of the mean share
DRAWS = 20_000


def pruning_schedule(
    model: Model,
    inputs: Mapping[str, Any],
    answers: Sequence[int],
    *,
    keep: float = 0.25,
    by: Literal["attention", "class_token", "flow"] = "flow",
    n_random: int = 40,
    merged: bool = False,
    seed: int = 0,
) -> ResultRows:
    """Choose in which layers how many tokens of a picture are dropped, at a given mean share.

    Random schedules of up to three stages are tried on half of the prompts. The one that changes
    the last token's prediction least (divergence from the run with all tokens) is judged on the
    other half, beside one stage with the same mean share.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        answers: the token of the answer to each prompt.
        keep: mean share of the picture's tokens that layers of the text see.
        by: order in which tokens are dropped, as in `drop_tokens`; by "attention" each stage ranks
            by the layer before it, and the first layer sees all tokens.
        n_random: number of random schedules that are tried.
        merged: put one token in place of the dropped ones, with the mean of their keys and of
            their values.
        seed: seed of the schedules and halves.

    Reference: Yang et al. 2025, "VFlowOpt" (arXiv 2508.05211). It compares representations of the
    last token; the divergence of what is predicted from it, random search in place of an
    optimiser, and means of keys and values for recycled tokens are choices made here.

    Returns:
        A row for the chosen schedule and one for a single stage: `score` is the change of the loss
        of the answer, `divergence` that from the run with all tokens, on the judged half; `null` is
        the mean score of all schedules that were tried, `shares` the share that each layer sees.

    Raises:
        OptionError: an option is out of range, or no schedule has this mean share.
        PromptError: the inputs hold no pictures, there are fewer than four prompts, or the answers
            do not fit.
        UnreadableAttention: the model does not read pictures inside text.

    Unit: nats of loss.

    Cost: One forward pass per prompt and schedule.

    Null: the schedules that were tried, on the judged half.

    Not for: savings of time: dropped tokens are hidden, not left out.
    """
    view, prompts = prompts_with_pictures(model, inputs, answers)
    require_option(0 < keep < 1, f"keep={keep}: give a share between 0 and 1")
    require_option(n_random >= 2, f"n_random={n_random}: give at least 2")
    if by not in RANKED_BY:
        raise UnknownName("ranking", by, RANKED_BY)
    layers = [site.layer for site in text_sites(view)]
    first = int(by == "attention")
    single = (1.0,) * first + ((keep * len(layers) - first) / (len(layers) - first),) * (
        len(layers) - first
    )
    require_option(
        single[-1] > 0, f"keep={keep}: by attention the first of {len(layers)} layers sees all"
    )
    tried = [single, *_drawn(len(layers), keep, first, n_random, seed)]
    chosen_on, judged_on = selection_halves(len(prompts), seed)
    effects = np.array([_effects(view, p, by, layers, tried, merged) for p in prompts])
    best = largest(-effects[chosen_on, :, 1].mean(0))
    change, divergence = effects[judged_on].transpose(2, 1, 0)  # [schedule, prompt]
    shown = [best, 0]
    columns = {
        "schedule": ["chosen", "one stage"],
        "score": change[shown].mean(1),
        "sem": standard_error(change[shown]),
        "n": len(judged_on),
        "null": change.mean(),
        "divergence": divergence[shown].mean(1),
        "mean_share": [np.mean(tried[i]) for i in shown],
    }
    options = {
        "keep": keep,
        "by": by,
        "n_random": n_random,
        "merged": merged,
        "seed": seed,
        "answers": tuple(map(int, answers)),
    }
    return ResultRows(
        "PruningSchedule",
        columns,
        ("schedule",),
        provenance(view, inputs, "interp.vision.language.pruning_schedule", **options),
        {"metric": "token_dropping", "unit": "nats", "judged": tuple(judged_on)},
        change[shown],
        arrays={"shares": np.array([tried[i] for i in shown])},
        by="lowest",
    )


def _drawn(layers: int, keep: float, first: int, number: int, seed: int) -> list[Schedule]:
    """Draw schedules whose mean share is near the given one."""
    rng, schedules = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        if len(schedules) == number:
            return schedules
        stages = rng.integers(1, min(STAGES, layers - first) + 1)
        starts = rng.choice(np.arange(first, layers), stages, replace=False)
        shares = np.ones(layers)
        for start in sorted(starts):
            shares[start:] *= rng.random()
        if abs(shares.mean() - keep) < NEAR:
            schedules.append(tuple(shares.tolist()))
    raise OptionError(
        f"keep={keep}: of {DRAWS} drawn schedules of {layers} layers only {len(schedules)} have "
        f"this mean share; give a lower n_random or another share"
    )


def _ranks(view: Model, prompt: PicturePrompt, by: str, layers: Sequence[int]) -> list[Tensor]:
    """Return the importance of the picture's tokens for a stage that begins at each layer."""
    if by != "attention":
        return [importance(view, prompt, by, 0)] * len(layers)
    later = [importance(view, prompt, by, layer) for layer in layers[1:]]
    return [torch.zeros(int(prompt.image.sum())), *later]


def _effects(
    view: Model,
    prompt: PicturePrompt,
    by: str,
    layers: Sequence[int],
    schedules: Sequence[Schedule],
    merged: bool,
) -> list[tuple[float, float]]:
    """Return per schedule the change of the answer's loss, and the divergence of the next token."""
    ranks = _ranks(view, prompt, by, layers)
    full = logits_after(view, prompt.inputs).log_softmax(-1)
    effects = []
    for schedule in schedules:
        hidden = _hidden(prompt, ranks, schedule)
        of_layer = dict(zip(layers, hidden, strict=True))

        def visit(site: Site, call: Call, real: Tensor, of_layer: Any = of_layer) -> None:
            if not site.of_tower and bool(of_layer[site.layer].any()):
                call.z = _mixed_without(call, of_layer[site.layer], merged).to(call.z.dtype)

        less = view.read(prompt.inputs, visit, stage="mix")[0, -1].double().cpu().log_softmax(-1)
        change = prompt.log_p(full) - prompt.log_p(less)
        effects.append((float(change), float((full.exp() * (full - less)).sum())))
    return effects


def _hidden(prompt: PicturePrompt, ranks: Sequence[Tensor], schedule: Schedule) -> list[Tensor]:
    """Return which tokens each layer does not see."""
    places = prompt.image.nonzero().flatten()
    hidden, left, masks = prompt.image & False, places, []
    for share, rank in zip(schedule, ranks, strict=True):
        number = max(1, round(share * len(places)))
        if number < len(left):
            ranks_left = rank[torch.searchsorted(places, left)]
            left = left[ranks_left.argsort(descending=True, stable=True)[:number]].sort().values
            hidden = prompt.image.clone()
            hidden[left] = False
        masks.append(hidden)
    return masks


def _mixed_without(call: Call, hidden: Tensor, merged: bool) -> Tensor:
    """Return the output with some keys hidden, or with their mean in place of the first of them."""
    scores = call.scores()
    there = hidden.to(scores.device)
    lowest = torch.finfo(scores.dtype).min
    if not merged:
        return call.mix(call.normalised(scores.masked_fill(there, lowest)))
    at = int(there.nonzero()[0])
    seen = call.visible() & there
    number = seen.sum(-1)
    together = (scores * seen).sum(-1) / number.clamp_min(1)
    scores = scores.masked_fill(there, lowest)
    scores[..., at] = together.masked_fill(number == 0, lowest)
    pattern = call.normalised(scores)
    v = repeat_kv(call.v, call.n_heads).to(pattern.dtype)
    added = v[:, :, there].mean(2) - v[:, :, at]
    return call.mix(pattern) + pattern[..., at, None] * added[:, :, None]
