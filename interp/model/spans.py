"""Positions of each segment in the stacks that run on prompts: text, images, sound and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.prompts import Prompts
from interp.model.calls.sites import APART, Site
from interp.model.segments import NAMES, read_inputs, segment, segment_labels
from interp.model.views import view_for

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

    Raises:
        PromptError: the roles of a chat cannot be told.
    """
    if not isinstance(prompts, Mapping):
        prompts = Prompts.of(prompts, model)
    view, inputs = view_for(model, prompts), read_inputs(prompts)
    spans: dict[str, dict[str, Tensor]] = {}

    def visit(site: Site, call: Any, real: Tensor) -> None:
        if site.stack in spans or site.stack in APART:
            return
        labels = segment_labels(view, inputs, site, call.z.shape[0], call.z.shape[2]).to(
            real.device
        )
        masks = {
            name: torch.isin(labels, labels.new_tensor(segment(name))) & real for name in NAMES
        }
        spans[site.stack] = {name: x for name, x in masks.items() if bool(x.any())}

    view.read(prompts, visit)
    return spans
