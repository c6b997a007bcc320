"""Loss of the answer when tokens of a picture are dropped (FastV, FasterVLM, VFlowOpt).

Dropping a token from layer K on is hiding its key from every query in those layers: nothing else
reads what is computed at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnknownName
from interp.core.result_rows import ResultRows
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.vision.language.importance import class_attention, flow_importance
from interp.vision.language.prompts import (
    PicturePrompt,
    answer_log_p,
    prompts_with_pictures,
    provenance,
    require_option,
    text_sites,
)
from interp.vision.language.result import token_effects

if TYPE_CHECKING:
    from interp.model.model import Model


RANKED_BY = ("attention", "class_token", "flow")


def drop_tokens(
    model: Model,
    inputs: Mapping[str, Any],
    answers: Sequence[int],
    *,
    layer: int = 2,
    drop: float | Sequence[float] = 0.5,
    by: Literal["attention", "class_token", "flow"] = "attention",
    n_random: int = 5,
    seed: int = 0,
) -> ResultRows:
    """Drop the least important tokens of a picture, and measure the loss of the answer.

    Tokens are ranked by the attention of the last token in layer K - 1, averaged over heads, or by
    the vision tower alone; from layer K on the highest (1 - R) N of N remain. The null drops as
    many random tokens.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        answers: the token of the answer to each prompt.
        layer: K, the first layer without the dropped tokens; 0 if the tower ranks them.
        drop: R, the share that is dropped, or several.
        by: attention: FastV. class_token: attention of the tower's class token in its last layer
            (FasterVLM). flow: attention that a patch receives there, plus the entropy of its pixels
            (VFlowOpt's importance map).
        n_random: random sets of the null.
        seed: seed of the random sets.

    Returns:
        A row per share; see `token_effects` for the columns.

    Raises:
        OptionError: the layer has no attention before it, or a share is not between 0 and 1.
        PromptError: the inputs hold no pictures, or the answers do not fit.
        UnreadableAttention: the model does not read pictures inside text.

    Reference: Chen et al. 2024, "An Image is Worth 1/2 Tokens After Layer 2" (arXiv 2403.06764);
    Zhang et al. 2024 (FasterVLM, arXiv 2412.01818); Yang et al. 2025 (VFlowOpt, arXiv 2508.05211).

    Unit: nats of loss.

    Cost: One forward pass per prompt, share and random set.

    Null: as many random tokens.

    Not for: savings of time: dropped tokens are hidden, not left out.
    """
    view, prompts = prompts_with_pictures(model, inputs, answers)
    shares = [drop] if isinstance(drop, (int, float)) else list(drop)
    sites = text_sites(view)
    layers = [s.layer for s in sites]
    possible = [n + 1 for n in layers[:-1]] if by == "attention" else layers
    known = ", ".join(map(str, possible))
    require_option(layer in possible, f"layer={layer}: give one of {known}")
    if by not in RANKED_BY:
        raise UnknownName("ranking", by, RANKED_BY)
    require_option(
        bool(shares) and all(0 < r < 1 for r in shares), f"drop={shares}: give 0 < R < 1"
    )
    require_option(n_random >= 1, f"n_random={n_random}: give at least 1")
    rng = np.random.default_rng(seed)
    shape = len(shares), len(prompts)
    change, random, counts = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    chosen: list[list[tuple[int, ...]]] = [[] for _ in shares]
    for j, prompt in enumerate(prompts):
        places = prompt.image.nonzero().flatten()
        scores = importance(view, prompt, by, layer)
        plain = _loss(view, prompt)
        for i, share in enumerate(shares):
            number = max(1, round((1 - share) * len(places)))
            best = places[scores.argsort(descending=True, stable=True)[:number]]
            change[i, j] = _loss(view, prompt, best, layer) - plain
            sets = [places[rng.permutation(len(places))[:number]] for _ in range(n_random)]
            random[i, j] = np.mean([_loss(view, prompt, s, layer) - plain for s in sets])
            counts[i, j] = number
            chosen[i].append(tuple(sorted(best.tolist())))
    options = {
        "layer": layer,
        "drop": tuple(shares),
        "by": by,
        "draws": n_random,
        "seed": seed,
        "answers": tuple(map(int, answers)),
    }
    changes = [f"drop {r:g} after layer {layer - 1}" for r in shares]
    settings = provenance(view, inputs, "interp.vision.language.drop_tokens", **options)
    measured = "token_dropping", "nats"
    return token_effects(changes, measured, change, random, counts, chosen, prompts, settings)


def importance(
    view: Model, prompt: PicturePrompt, by: str, layer: int
) -> Float[Tensor, " image_token"]:
    """Return the importance of each token of the picture; with "attention", in the layer before."""
    if by != "attention":
        return (class_attention if by == "class_token" else flow_importance)(view, prompt)
    rows: list[Tensor] = []

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if not site.of_tower and site.layer == layer - 1:
            last = torch.tensor([call.z.shape[2] - 1], device=call.z.device)
            rows.append(call.pattern(last)[0, :, 0].double().mean(0).cpu())

    view.read(prompt.inputs, visit)
    return rows[0][prompt.image]


def _loss(
    view: Model, prompt: PicturePrompt, keep: Tensor | None = None, layer: int | None = None
) -> float:
    """Return -log p(answer), with all other tokens of the picture hidden from a layer on."""
    hidden = prompt.image.clone()
    if keep is not None:
        hidden[keep] = False

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site.of_tower or site.layer < (layer or 0):
            return
        scores = call.scores()
        there = hidden.to(scores.device)
        scores = scores.masked_fill(there, torch.finfo(scores.dtype).min)
        call.z = call.mix(call.normalised(scores)).to(call.z.dtype)

    if keep is None:
        return -answer_log_p(view, prompt)
    return -prompt.log_p(view.read(prompt.inputs, visit, stage="mix")[0, -1].double().cpu())
