"""Importance of the tokens of a picture by what the vision tower and the pixels say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import PromptError
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.segments import SPECIAL, segment_labels
from interp.vision.language.prompts import PicturePrompt

if TYPE_CHECKING:
    from interp.model.model import Model

Rows: TypeAlias = Float[Tensor, "picture patch"]

BINS = 32  # of the grey values of a picture, for the entropy of a patch


def class_attention(view: Model, prompt: PicturePrompt) -> Float[Tensor, " image_token"]:
    """Return the attention of the tower's class token to each patch, mean over last heads."""
    return _tower_attention(view, prompt)[0].flatten()


def flow_importance(view: Model, prompt: PicturePrompt) -> Float[Tensor, " image_token"]:
    """Return context relevance plus entropy, each scaled to 0 to 1 over the patches of a picture.

    Relevance is the attention that a patch receives from all patches in the tower's last layer,
    mean over heads; entropy is of the grey values of its pixels, in 32 bins between the extremes of
    the picture.

    Reference: Yang et al. 2025, "VFlowOpt" (arXiv 2508.05211). Its abstract names the two parts;
    that they are added with equal weights is a choice made here.
    """
    relevance = _tower_attention(view, prompt)[1]
    grey = prompt.inputs["pixel_values"].double().cpu().flatten(0, -4).mean(1)
    scores = []
    for picture, rows in zip(grey, relevance, strict=True):
        side = round(len(rows) ** 0.5)
        low = picture - picture.min()
        bins = (low / low.max().clamp_min(1e-12) * BINS).long().clamp_max(BINS - 1)
        tall, wide = (n // side for n in bins.shape)
        patches = bins.unfold(0, tall, tall).unfold(1, wide, wide).flatten(0, 1).flatten(1)
        counts = torch.nn.functional.one_hot(patches, BINS).sum(1)
        entropy = torch.special.entr(counts / patches.shape[1]).sum(-1)
        scores.append(_scaled(rows) + _scaled(entropy[: len(rows)]))
    return torch.cat(scores)


def _scaled(x: Float[Tensor, " patch"]) -> Float[Tensor, " patch"]:
    return (x - x.min()) / (x.max() - x.min()).clamp_min(1e-12)


def _tower_attention(view: Model, prompt: PicturePrompt) -> tuple[Rows, Rows]:
    """Return what patches receive in the tower's last layer: from the class token, from patches."""
    number = int(prompt.image.sum())
    last = max((s for s in view.sites if s.of_tower), key=lambda s: s.layer)
    patterns: list[Float[Tensor, "picture token token"]] = []

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site == last:
            patterns.append(call.pattern().double().mean(1).cpu())

    view.read(prompt.inputs, visit)
    [rows] = patterns
    pictures, length = rows.shape[:2]
    patch = segment_labels(view, prompt.inputs, last, pictures, length)[0] != SPECIAL
    if bool(patch.all()) or pictures * int(patch.sum()) != number:
        raise PromptError(
            f"{view.name}: outliers are the patches that a class token attends to, one per "
            f"placeholder; its tower has {int((~patch).sum())} class tokens and "
            f"{int(patch.sum()) * pictures} patches for {number} placeholders; rank them by the "
            "text's attention (with contrast_pictures: use the branch 'blind')"
        )
    return rows[:, 0, patch], rows[:, patch][:, :, patch].mean(1)
