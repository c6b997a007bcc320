"""View of a model that reads pictures inside text: the attentions of its towers and of its text.

A prompt of text alone does not run the towers, so `Model.sites` are those of the language model.
The view has the sites of both, and is what pictures are scored and captured with.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import Site
from interp.model.inputs import holds_pictures, reads_pictures_in_text
from interp.model.transformer import Transformer

SomeModel = TypeVar("SomeModel", bound=Transformer)

_views: WeakKeyDictionary[Transformer, tuple[tuple[Site, ...], Transformer]] = WeakKeyDictionary()


def joint_view(model: SomeModel) -> SomeModel:
    """Return the model with the attentions of its towers as sites, beside those of its text."""
    if not model.joint_sites:
        raise UnreadableAttention(
            f"{model.name} has no towers that could be read: {model.unread_why}"
            if reads_pictures_in_text(model.module)
            else f"{model.name} ({model.kind}) does not read pictures inside text, so it has no "
            "towers beside the attentions in Model.sites"
        )
    if model.sites == model.joint_sites:
        return model
    known = _views.get(model)
    if known is not None and known[0] == model.joint_sites:
        return known[1]  # type: ignore[return-value]
    view = copy.copy(model)
    field_names = {f.name for f in fields(view)}
    for name in [n for n in vars(view) if n not in field_names]:
        del vars(view)[name]  # cached values may depend on the sites
    view.sites = model.joint_sites
    _views[model] = model.joint_sites, view
    return view


def view_for(model: SomeModel, prompts: Any) -> SomeModel:
    """Return the view with towers if the prompts hold pictures that run them, else the model."""
    return joint_view(model) if model.joint_sites and holds_pictures(prompts) else model
