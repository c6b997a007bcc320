"""Gaze heads: heads whose last row moves to the part of a picture that the text asks about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.vision.language.prompts import (
    PicturePrompt,
    prompts_with_pictures,
    provenance,
    require_option,
    text_sites,
)

if TYPE_CHECKING:
    from interp.model.model import Model


def gaze_heads(
    model: Model,
    inputs: Mapping[str, Any],
    targets: Sequence[int],
    *,
    n_panels: int = 6,
    columns: int = 0,
) -> ResultRows:
    """Measure how much of each head's last row lies on the panel that the text asks about.

    A picture is a strip of panels side by side, as wide as each other; each prompt asks about one
    of them. Score = the attention mass from the last token of the prompt to the tokens of that
    panel, averaged over prompts; it is not divided by the mass on the other panels. Ask about
    every panel of a strip, so that a head that looks at one place is not mistaken for one that
    looks where it is asked to.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        targets: the panel that each prompt asks about, counted from 0.
        n_panels: number of panels of a picture.
        columns: columns of the picture's grid of tokens, row by row; 0 for a square grid.

    Returns:
        One row per head: stack, layer, head, score, sem, n and null (the mean over the panels that
        the prompt does not ask about).

    Raises:
        OptionError: fewer than two panels, or a panel that does not exist.
        PromptError: the inputs hold no pictures, the panels do not fit the prompts, or the tokens
            of a picture cannot be divided into panels of equal width.
        UnreadableAttention: the model does not read pictures inside text.

    Reference: Gandikota and Bau 2026 (arXiv 2606.14703).

    Unit: attention mass.

    Cost: One forward pass.

    Null: the mass on the panels that are not asked about, their mean.

    Not for: whether the answer needs the head; `grounding_heads` ablates.
    """
    require_option(n_panels >= 2, f"n_panels={n_panels}: a strip has at least 2 panels")
    view, prompts = prompts_with_pictures(model, inputs)
    if len(targets) != len(prompts):
        raise PromptError(f"{len(targets)} panels for {len(prompts)} prompts; give one for each")
    for panel in targets:
        require_option(
            0 <= panel < n_panels, f"panel {panel} does not exist; there are 0 to {n_panels - 1}"
        )
    sites = text_sites(view)
    each = []
    for prompt in prompts:
        panels = panel_of_tokens(int(prompt.image.sum()), n_panels, columns)
        each.append(_panel_masses(view, prompt, sites, panels))
    masses = np.stack(each)  # prompt head panel
    asked = np.take_along_axis(masses, np.array(targets)[:, None, None], 2)[..., 0].T
    rest = (masses.sum(-1).T - asked) / (n_panels - 1)
    every = [(s, h) for s in sites for h in range(s.n_heads)]
    table = {
        "stack": [s.stack for s, _ in every],
        "layer": [s.layer for s, _ in every],
        "head": [h for _, h in every],
        "score": asked.mean(1),
        "sem": standard_error(asked),
        "n": len(prompts),
        "null": rest.mean(1),
    }
    settings = provenance(
        view,
        inputs,
        "interp.vision.language.gaze_heads",
        n_panels=n_panels,
        columns=columns,
        targets=tuple(map(int, targets)),
    )
    facts = {"metric": "gaze", "unit": "attention mass"}
    return ResultRows("GazeHeads", table, ("stack", "layer", "head"), settings, facts, asked)


def panel_of_tokens(n_tokens: int, n_panels: int, columns: int = 0) -> Int[np.ndarray, " token"]:
    """Return the panel of every token of a picture, whose grid of tokens is read row by row."""
    wide = columns or round(n_tokens**0.5)
    if wide < 1 or n_tokens % wide or (not columns and wide * wide != n_tokens):
        raise PromptError(
            f"a picture of {n_tokens} tokens is not a grid of {columns or 'as many'} columns"
            f"{'' if columns else ' as rows'}; give columns"
        )
    if wide % n_panels:
        raise PromptError(
            f"{wide} columns of tokens cannot be divided into {n_panels} panels of equal width; "
            "use pictures whose panels are whole columns of tokens"
        )
    return np.tile(np.arange(wide) // (wide // n_panels), n_tokens // wide)


def _panel_masses(
    view: Model, prompt: PicturePrompt, sites: Sequence[Site], panels: np.ndarray
) -> Float[np.ndarray, "head panel"]:
    """Return the attention of the last token to each panel, for all heads."""
    masses: dict[Site, np.ndarray] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site.of_tower:
            return
        last = torch.tensor([call.z.shape[2] - 1], device=call.z.device)
        row = call.pattern(last)[0, :, 0].double().cpu()[:, prompt.image].numpy()
        masses[site] = np.stack([row[:, panels == p].sum(1) for p in range(panels.max() + 1)], 1)

    view.read(prompt.inputs, visit)
    return np.concatenate([masses[site] for site in sites])
