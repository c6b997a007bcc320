"""VAR: attention of image-centric heads is moved from sinks to the rest of the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.core.head import Head
from interp.core.result_rows import ResultRows
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.calls.steps import key_positions
from interp.model.edits import Edit
from interp.model.key_edits import named_keys
from interp.vision.language.prompts import (
    PicturePrompt,
    answer_log_p,
    prompts_with_pictures,
    provenance,
    require_option,
    selection_halves,
    text_sites,
)
from interp.vision.language.result import token_effects
from interp.vision.language.sinks import found_dims, sink_ratios

if TYPE_CHECKING:
    from interp.model.model import Model

Marks = Mapping[Site, Bool[Tensor, "prompt position"]]


def redistribute(
    model: Model,
    inputs: Mapping[str, Any],
    dims: Sequence[int],
    *,
    tau: float = 20.0,
    keep: float = 0.6,
    rho: float = 0.5,
    least: float = 0.2,
    first_layer: int = 2,
    last_layer: bool = False,
) -> Edit:
    """Make the edit that moves attention from sinks to the picture, for a run or a generation.

    In heads that are image-centric for a query, weights on sinks of text and picture are multiplied
    by `keep`, and what is freed goes to the other tokens of the picture in proportion to their
    weights, so rows keep their sum. Sinks are those of the prompt, found in a run of their own as
    in `visual_sinks`; a layer without a visual sink stays as it is.

        with model.edited(redistribute(model, inputs, (1415, 2533))):
            model.module.generate(**inputs, max_new_tokens=40)

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        dims: dimensions that mark sinks, such as (1415, 2533) of LLaMA-2-7B; `visual_sinks` finds
            those of a model.
        tau: smallest ratio of a sink.
        keep: factor of the weights on sinks, 0 to 1.
        rho: largest share of sinks of an image-centric head.
        least: smallest mass on the picture of an image-centric head.
        first_layer: the first layer that is edited.
        last_layer: also edit the last layer, which the published code leaves out.

    Reference: Kang et al. 2025, "See What You Are Told: Visual Attention Sink in Large Multimodal
    Models" (arXiv 2503.03321).

    Raises:
        OptionError: an option is out of range.
        PromptError: the inputs hold no pictures.

    Unit: none: it is an edit; `redistribution` measures its effect.

    Cost: One run per prompt, and the patterns of the edited layers in each edited run.

    Null: random tokens in place of the sinks, in `redistribution`.

    Not for: models without massive activations: nothing is a sink, and nothing changes.
    """
    view, prompts = prompts_with_pictures(model, inputs)
    sites = edited_sites(view, first_layer, last_layer)
    ratios = [sink_ratios(view, each, sites) for each in prompts]
    sinks = _marked(
        sites, [{s: x[:, list(dims)].amax(-1) >= tau for s, x in r.items()} for r in ratios]
    )
    return redistributed(prompts, sinks, keep=keep, rho=rho, least=least)


def edited_sites(view: Model, first_layer: int, last_layer: bool) -> list[Site]:
    """Return the attentions over the text that are edited."""
    every = text_sites(view)
    end = every[-1].layer + last_layer
    sites = [s for s in every if first_layer <= s.layer < end]
    require_option(
        bool(sites),
        f"first_layer={first_layer}: {view.name} has no attention between it and its "
        f"last layer {every[-1].layer}; set last_layer or a smaller first_layer",
    )
    return sites


def redistributed(
    prompts: Sequence[PicturePrompt],
    sinks: Marks,
    *,
    keep: float,
    rho: float,
    least: float,
) -> Edit:
    """Make the edit for given sinks; see `redistribute`."""
    require_option(0 <= keep <= 1, f"keep={keep:g}: give a number from 0 to 1")
    require_option(0 <= rho <= 1 and 0 <= least <= 1, f"rho={rho:g}, least={least:g}: 0 to 1")
    picture = _stacked([p.image for p in prompts])

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        where = key_positions(call, real, site)
        image = named_keys(picture, where, site)[:, None, None]
        sink = named_keys(sinks[site], where, site)[:, None, None]
        p = call.pattern()
        on_image, rest = (p * image).sum(-1, keepdim=True), p * (image & ~sink)
        on_visual = (p * (image & sink)).sum(-1, keepdim=True)
        centric = (on_image >= least) & (on_visual <= rho * on_image)
        there = (image & sink).any(-1, keepdim=True) & (rest.sum(-1, keepdim=True) > 0)
        freed = (1 - keep) * (p * sink).sum(-1, keepdim=True)
        share = rest / rest.sum(-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
        moved = p - (1 - keep) * p * sink + freed * share
        return call.mix(torch.where(centric & there, moved, p))

    heads = tuple(Head(s.layer, h, s.stack) for s in sinks for h in range(s.n_heads))
    return Edit("redistribute", heads, replace, detail=f"keep={keep:g}", of_pattern=True)


def redistribution(
    model: Model,
    inputs: Mapping[str, Any],
    answers: Sequence[int],
    *,
    dims: Sequence[int] | Literal["auto"] = "auto",
    tau: float = 20.0,
    keep: float = 0.6,
    rho: float = 0.5,
    least: float = 0.2,
    first_layer: int = 2,
    last_layer: bool = False,
    n_random: int = 5,
    seed: int = 0,
) -> ResultRows:
    """Measure what moving attention from sinks to the picture does to the answer.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        answers: the token of the answer to each prompt.
        dims: dimensions that mark sinks; "auto" finds them on half of the prompts, and the others
            are measured.
        tau: smallest ratio of a sink.
        keep: factor of the weights on sinks.
        rho: largest share of sinks of an image-centric head.
        least: smallest mass on the picture of an image-centric head.
        first_layer: the first layer that is edited.
        last_layer: also edit the last layer.
        n_random: random sets of the null, with as many tokens of picture and of text per layer.
        seed: seed of the halves and of the random sets.

    Returns:
        One row with the change of log p(answer) in nats; see `token_effects` for the columns, of
        which kept counts the tokens of the picture that are a sink in no layer.

    Raises:
        OptionError: an option is out of range.
        PromptError: the inputs hold no pictures, the answers do not fit, or there are too few.
        UnreadableAttention: the model does not read pictures inside text.

    Reference: Kang et al. 2025, "See What You Are Told: Visual Attention Sink in Large Multimodal
    Models" (arXiv 2503.03321).

    Unit: nats.

    Cost: Three runs per prompt, and one per random set.

    Null: as many random tokens in place of the sinks.

    Not for: models without massive activations: nothing is a sink, and nothing changes.
    """
    view, prompts = prompts_with_pictures(model, inputs, answers)
    require_option(n_random >= 1, "n_random is at least 1")
    sites = edited_sites(view, first_layer, last_layer)
    ratios = [sink_ratios(view, each, sites) for each in prompts]
    judged = list(range(len(prompts)))
    if dims == "auto":
        chosen_on, judged = selection_halves(len(prompts), seed)
        dims = found_dims([ratios[i] for i in chosen_on], tau)
    draw = torch.Generator().manual_seed(seed)
    change, random, counts = (np.zeros((1, len(judged))) for _ in range(3))
    chosen: list[tuple[int, ...]] = []
    for at, i in enumerate(judged):
        prompt, image = prompts[i], prompts[i].image
        none = torch.zeros(len(image), dtype=torch.bool)
        sinks = {
            s: x[:, list(dims)].amax(-1) >= tau if dims else none for s, x in ratios[i].items()
        }
        options: Any = {"keep": keep, "rho": rho, "least": least}
        plain = answer_log_p(view, prompt)

        def rise(
            marks: Mapping[Site, Tensor],
            prompt: PicturePrompt = prompt,
            plain: float = plain,
            options: Any = options,
        ) -> float:
            with view.edited(redistributed([prompt], _marked(sites, [marks]), **options)):
                return answer_log_p(view, prompt) - plain

        change[0, at] = rise(sinks)
        null = [{s: _shuffled(x, image, draw) for s, x in sinks.items()} for _ in range(n_random)]
        random[0, at] = np.mean([rise(marks) for marks in null])
        visual = torch.stack([x & image for x in sinks.values()]).any(0)
        chosen.append(tuple(visual.nonzero().flatten().tolist()))
        counts[0, at] = int((image & ~visual).sum())
    settings = provenance(
        view,
        inputs,
        "interp.vision.language.redistribution",
        dims=tuple(dims),
        tau=tau,
        keep=keep,
        rho=rho,
        least=least,
        first_layer=first_layer,
        last_layer=last_layer,
        n_random=n_random,
        seed=seed,
    )
    measured = ("log_p_of_answer", "nats (+ helps)")
    return token_effects(
        ["redistributed"],
        measured,
        change,
        random,
        counts,
        [chosen],
        [prompts[i] for i in judged],
        settings,
    )


def _shuffled(sinks: Tensor, image: Tensor, draw: torch.Generator) -> Tensor:
    """Return as many random marks inside the picture, and outside it."""
    drawn = torch.zeros_like(sinks)
    for part in (image, ~image):
        places = part.nonzero().flatten()
        picked = torch.randperm(len(places), generator=draw)[: int((sinks & part).sum())]
        drawn[places[picked]] = True
    return drawn


def _marked(sites: Sequence[Site], marks: Sequence[Mapping[Site, Tensor]]) -> Marks:
    return {site: _stacked([each[site] for each in marks]) for site in sites}


def _stacked(masks: Sequence[Tensor]) -> Bool[Tensor, "prompt position"]:
    return torch.nn.utils.rnn.pad_sequence([m.bool() for m in masks], batch_first=True)
