"""Positions of each segment in the stacks that run on prompts: text, images, sound and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.model.calls.sites import APART, Site
from interp.model.joint_view import view_for
from interp.model.segments import NAMES, segment, segment_labels

if TYPE_CHECKING:
    from interp.model.model import Model


def segment_spans(model: Model, prompts: Any) -> dict[str, dict[str, Tensor]]:
    """Return the positions of each segment in each stack that runs on prompts.

    Args:
        model: the model.
        prompts: prompts of text, or input tensors as `Model.inputs` gives them.

    Returns:
        Per stack and segment a mask `[prompt, position]`; segments that do not occur are left out.
        A packed tower has one row per picture.
    """
    inputs = model.inputs(prompts)
    view = view_for(model, inputs)
    found: dict[str, dict[str, Tensor]] = {}

    def visit(site: Site, call: Any, real: Tensor) -> None:
        if site.stack in found or site.stack in APART:
            return
        labels = segment_labels(view, inputs, site, call.z.shape[0], call.z.shape[2]).to(
            real.device
        )
        masks = {
            name: torch.isin(labels, labels.new_tensor(segment(name))) & real for name in NAMES
        }
        found[site.stack] = {name: x for name, x in masks.items() if bool(x.any())}

    view.read(inputs, visit)
    return found
