"""Tokens of a picture that are attention sinks, and the heads that attend to them.

A token is a sink if one of a few dimensions of its residual stream is far above the root mean
square of all. The dimensions are given, as published for one model, or found on half of the
prompts; heads are judged on the other half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.statistics import finite_mean
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.capture import capture
from interp.vision.language.prompts import (
    PicturePrompt,
    prompts_with_pictures,
    provenance,
    require_option,
    selection_halves,
    text_sites,
)

if TYPE_CHECKING:
    from interp.model.model import Model

DRAWS = 20  # random sets of tokens of the null


def visual_sinks(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    dims: Sequence[int] | Literal["auto"] = "auto",
    tau: float = 20.0,
    first_layer: int = 2,
    rho: float = 0.5,
    least: float = 0.2,
    seed: int = 0,
) -> ResultRows:
    """Find sinks among the tokens of pictures, and score every head by its attention to them.

    Token j of layer l is a sink if max over d in `dims` of |x_jd| / RMS(x_j) is at least `tau`,
    with x the residual stream before that layer. A head is image-centric for a query if at least
    `least` of its attention is on the picture and at most `rho` of that on sinks. Queries are the
    tokens after the picture.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        dims: dimensions that mark sinks, such as (1415, 2533), published for LLaMA-2-7B; "auto"
            takes those that reach `tau` in at least half of the prompts of one half.
        tau: smallest ratio of a sink. It cannot exceed the square root of the model's width.
        first_layer: the first layer that is read; earlier ones have no massive values.
        rho: largest share of sinks of an image-centric head.
        least: smallest mass on the picture of an image-centric head.
        seed: seed of the halves and of the random tokens.

    Returns:
        One row per head: stack, layer, head, score (share of its attention to the picture that is
        on sinks, mean over the n judged prompts in which it attends to the picture) with sem, null
        (the share of as many random tokens), image_mass (attention mass on the picture) and centric
        (share of the queries for which the head is image-centric). Facts: dims; sinks, their
        positions in each judged prompt, in any layer; judged, the indices of these prompts.

    Raises:
        OptionError: `tau` cannot be reached, or a dimension or layer does not exist.
        PromptError: the inputs hold no pictures, or are too few.
        UnreadableAttention: the model does not read pictures inside text.

    Reference: Kang et al. 2025, "See What You Are Told: Visual Attention Sink in Large Multimodal
    Models" (arXiv 2503.03321).

    Unit: share of attention.

    Cost: One forward pass per prompt.

    Null: as many random tokens of the picture.

    Not for: towers: the streams are those of the text; for a tower see `high_norm_tokens`.
    """
    view, prompts = prompts_with_pictures(model, inputs)
    sites = [s for s in text_sites(view) if s.layer >= first_layer]
    require_option(
        bool(sites), f"first_layer={first_layer}: {model.name} has no attention from it on"
    )
    ratios = [sink_ratios(view, each, sites) for each in prompts]
    width = next(iter(ratios[0].values())).shape[-1]
    require_option(
        0 < tau <= width**0.5,
        f"tau={tau:g} cannot be reached: the ratio is at most {width**0.5:.1f}, the square root of "
        f"the width {width}",
    )
    if dims == "auto":
        chosen_on, judged = selection_halves(len(prompts), seed)
        dims = found_dims([ratios[i] for i in chosen_on], tau)
    else:
        judged = list(range(len(prompts)))
        wrong = [d for d in dims if not 0 <= d < width]
        require_option(
            not wrong, f"dims={wrong}: the residual stream has the dimensions 0 to {width - 1}"
        )
    draw = torch.Generator().manual_seed(seed)
    measured = [
        _measured(view, prompts[i], ratios[i], list(dims), tau, (rho, least), draw) for i in judged
    ]
    rows = [(s.stack, s.layer, h) for s in sites for h in range(s.n_heads)]
    share, null, mass, centric = (
        torch.stack([torch.cat([m[site][k] for site in sites]) for m, _ in measured], 1).numpy()
        for k in range(4)
    )
    options = {
        "dims": tuple(dims),
        "tau": tau,
        "first_layer": first_layer,
        "rho": rho,
        "least": least,
        "seed": seed,
    }
    valid = [x[~np.isnan(x)] for x in share]
    columns = {
        "stack": [s for s, _, _ in rows],
        "layer": [layer for _, layer, _ in rows],
        "head": [h for _, _, h in rows],
        "score": [x.mean() if len(x) else np.nan for x in valid],
        "sem": [standard_error(x[None])[0] if len(x) > 1 else np.nan for x in valid],
        "n": list(map(len, valid)),
        "null": finite_mean(null),
        "image_mass": finite_mean(mass),
        "centric": finite_mean(centric),
    }
    facts = {
        "metric": "visual_sink_share",
        "unit": "share of the mass on the picture",
        "dims": tuple(map(int, dims)),
        "judged": tuple(judged),
        "sinks": tuple(positions for _, positions in measured),
    }
    settings = provenance(view, inputs, "interp.vision.language.visual_sinks", **options)
    return ResultRows("VisualSinks", columns, ("stack", "layer", "head"), settings, facts, share)


def sink_ratios(view: Model, prompt: PicturePrompt, sites: Sequence[Site]) -> dict[Site, Tensor]:
    """Return |x| / RMS(x) of the residual stream before each layer, `[position, dimension]`."""
    layers = [s.layer for s in sites]
    cache = capture(view, prompt.inputs, ["resid_pre"], layers=layers, stack=sites[0].stack)
    ratios = {}
    for site in sites:
        x = cache["resid_pre", site.layer, site.stack][0].double().cpu()
        ratios[site] = x.abs() / x.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)
    return ratios


def found_dims(ratios: Sequence[Mapping[Site, Tensor]], tau: float) -> list[int]:
    """Return the dimensions in which some token reaches tau in at least half of the prompts."""
    reached = [torch.stack([(x >= tau).any(0) for x in each.values()]).any(0) for each in ratios]
    share = torch.stack(reached).double().mean(0)
    return (share >= 0.5).nonzero().flatten().tolist()


def _measured(
    view: Model,
    prompt: PicturePrompt,
    ratios: Mapping[Site, Tensor],
    dims: list[int],
    tau: float,
    limits: tuple[float, float],
    draw: torch.Generator,
) -> tuple[dict[Site, tuple[Tensor, ...]], tuple[int, ...]]:
    """Return per attention the share of sinks, its null, image mass and image-centric queries."""
    image = prompt.image
    after = torch.arange(len(image)) > int(image.nonzero().max())
    sinks: dict[Site, Bool[Tensor, " position"]] = {
        site: (x[:, dims].amax(-1) >= tau if dims else torch.zeros(len(image)).bool()) & image
        for site, x in ratios.items()
    }
    measures: dict[Site, tuple[Tensor, ...]] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site not in sinks:
            return
        weight = call.pattern(after.nonzero().flatten().to(call.z.device))[0].double().cpu()
        on_image = weight[..., image].sum(-1)  # [head, query]
        on_sinks = weight[..., sinks[site]].sum(-1)
        total = on_image.sum(-1)
        share = torch.where(total > 0, on_sinks.sum(-1) / total.clamp_min(1e-30), torch.nan)
        number, places = int(sinks[site].sum()), image.nonzero().flatten()
        random = torch.stack(
            [
                weight[..., places[torch.randperm(len(places), generator=draw)[:number]]].sum(
                    (-1, -2)
                )
                for _ in range(DRAWS)
            ]
        ).mean(0)
        null = torch.where(total > 0, random / total.clamp_min(1e-30), torch.nan)
        rho, least = limits
        centric = (on_image >= least) & (on_sinks <= rho * on_image)
        measures[site] = share, null, on_image.mean(-1), centric.double().mean(-1)

    require_option(bool(after.any()), "a prompt ends with its picture; give text after it")
    view.read(prompt.inputs, visit)
    anywhere = torch.stack([*sinks.values()]).any(0)
    return measures, tuple(anywhere.nonzero().flatten().tolist())


def visual_sinks_summary(found: ResultRows) -> str:
    """Return how many pictures have sinks, and the heads that attend to them most."""
    number = sum(map(bool, found.sinks))
    where = f"dimensions {', '.join(map(str, found.dims))}" if found.dims else "no dimension"
    lines = [
        f"VisualSinks: sinks in the pictures of {number} of {len(found.sinks)} prompts ({where})"
    ]
    for row in found.top(3).to_pandas().to_dict("records"):
        lines.append(
            f"  {row['stack']} L{row['layer']}H{row['head']}: {row['score']:.2f} of its "
            f"attention to the picture is on sinks (random tokens {row['null']:.2f})"
        )
    return "\n".join(lines)


present("VisualSinks", summary=visual_sinks_summary)
