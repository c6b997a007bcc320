"""Heads that attend to a picture, and whether the answer about it needs them.

Heads are chosen by their attention on half of the prompts. On the other half each is ablated: a
head that attends to the picture and writes nothing that is read changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.ties import ordered
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import zero
from interp.vision.language.prompts import (
    PicturePrompt,
    answer_log_p,
    prompts_with_pictures,
    provenance,
    require_option,
    selection_halves,
    text_sites,
)

if TYPE_CHECKING:
    from interp.model.model import Model

DRAWS = 3  # heads of the same layer that serve as the null of one head


def grounding_heads(
    model: Model,
    inputs: Mapping[str, Any],
    answers: Sequence[int],
    *,
    n_heads: int = 4,
    seed: int = 0,
) -> ResultRows:
    """Find the heads that attend to a picture, and measure by ablation which ones the answer needs.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`; the answer follows
            the last token.
        answers: the token of the answer to each prompt.
        n_heads: number of heads, those with most attention of the last token to the picture.
        seed: seed of the halves and of the heads of the null.

    Returns:
        One row per head: stack, layer, head, score (log p(answer) of the model minus that with the
        head ablated, nats, mean over the prompts that did not choose heads) with sem, n, null (the
        same for other heads of the layer, or of all layers where it has no others) and image_mass
        (attention of the last token to the picture, on the prompts that chose the heads). Facts, a
        value per prompt: together, the loss with all these heads ablated; swapped, the loss with
        the picture of another prompt, which is what the picture is worth.

    Raises:
        OptionError: k is not between 1 and the number of heads.
        PromptError: the inputs hold no pictures, or are too few.
        UnreadableAttention: the model does not read pictures inside text.

    Unit: share of attention; nats of loss for the ablation.

    Cost: One forward pass, and one more per ablated head.

    Null: the same ablation of other heads of the layer.

    Not for: heads that write what a picture shows without attending to it in the last row.

    Reference: this project.
    """
    view, prompts = prompts_with_pictures(model, inputs, answers)
    sites = text_sites(view)
    every = [(s, h) for s in sites for h in range(s.n_heads)]
    require_option(
        1 <= n_heads < len(every),
        f"n_heads={n_heads}: give a number between 1 and {len(every) - 1}",
    )
    chosen_on, judged = selection_halves(len(prompts), seed)
    mass = torch.stack([_image_mass(view, prompts[i], sites) for i in chosen_on]).mean(0)
    order = ordered(mass)[:n_heads]
    chosen = [every[i] for i in order]
    rng = np.random.default_rng(seed)
    others = [_others(head, every, chosen, rng) for head in chosen]
    halved = [prompts[i] for i in judged]
    plain = np.array([answer_log_p(view, p) for p in halved])

    def loss(heads: Sequence[tuple[Site, int]]) -> np.ndarray:
        edits = [zero([Head(s.layer, h)], stack=s.stack) for s, h in heads]
        with view.edited(*edits):
            return plain - np.array([answer_log_p(view, p) for p in halved])

    known = {each: loss([each]) for each in dict.fromkeys(x for pool in others for x in pool)}
    exchanged = [
        PicturePrompt(_with_picture(p, halved[i - 1]), p.image, p.answer)
        for i, p in enumerate(halved)
    ]
    values = np.stack([loss([each]) for each in chosen])
    columns = {
        "stack": [s.stack for s, _ in chosen],
        "layer": [s.layer for s, _ in chosen],
        "head": [h for _, h in chosen],
        "score": values.mean(1),
        "sem": standard_error(values),
        "n": len(halved),
        "null": [np.mean([known[each] for each in pool]) for pool in others],
        "image_mass": mass[order].numpy(),
    }
    settings = provenance(
        view,
        inputs,
        "interp.vision.language.grounding_heads",
        k=n_heads,
        seed=seed,
        answers=tuple(map(int, answers)),
    )
    swapped = plain - np.array([answer_log_p(view, p) for p in exchanged])
    facts = {"metric": "grounding_loss", "unit": "nats", "together": loss(chosen)}
    return ResultRows(
        "GroundingHeads",
        columns,
        ("stack", "layer", "head"),
        settings,
        facts | {"swapped": swapped},
        values,
    )


def _image_mass(view: Model, prompt: PicturePrompt, sites: Sequence[Site]) -> Tensor:
    """Return the attention of the last token to the picture, for all heads."""
    masses: dict[Site, Tensor] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if not site.of_tower:
            last = torch.tensor([call.z.shape[2] - 1], device=call.z.device)
            masses[site] = call.pattern(last)[0, :, 0].double().cpu()[:, prompt.image].sum(-1)

    view.read(prompt.inputs, visit)
    return torch.cat([masses[site] for site in sites])


def _others(
    head: tuple[Site, int],
    every: Sequence[tuple[Site, int]],
    chosen: Sequence[tuple[Site, int]],
    rng: np.random.Generator,
) -> list[tuple[Site, int]]:
    free = [x for x in every if x not in chosen]
    pool = [x for x in free if x[0] == head[0]] or free
    picked = rng.permutation(len(pool))[:DRAWS]
    return [pool[i] for i in picked]


def _with_picture(prompt: PicturePrompt, other: PicturePrompt) -> dict[str, Any]:
    """Return the inputs of a prompt with another one's picture, which must fill as many slots."""
    require_option(
        int(prompt.image.sum()) == int(other.image.sum()),
        "the pictures fill different numbers of placeholders, so they cannot be exchanged; give "
        "pictures of one size",
    )
    pictures = ("pixel_values", "image_grid_thw", "pixel_attention_mask", "image_sizes")
    return prompt.inputs | {k: x for k, x in other.inputs.items() if k in pictures}


def grounding_heads_summary(found: ResultRows) -> str:
    """Return what the picture is worth, and the heads that the answer needs most."""
    lines = [
        f"GroundingHeads: the picture is worth {found.swapped.mean():.2f} nats of the answer, "
        f"these heads together {found.together.mean():.2f}"
    ]
    for row in found.top(5).to_pandas().to_dict("records"):
        lines.append(
            f"  L{row['layer']}H{row['head']}: {row['image_mass']:.2f} of its attention on the "
            f"picture, {row['score']:.2f} nats when ablated (other heads {row['null']:.2f})"
        )
    return "\n".join(lines)


present("GroundingHeads", summary=grounding_heads_summary)
