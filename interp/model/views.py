"""Views of a model with other sites: its softmax layers alone, or its towers beside its text.

A prompt of text alone does not run the towers of a model that reads pictures inside text, so
`Model.sites` are those of the language model. The joint view has the sites of both, and is what
pictures are scored and captured with.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import POOLING, Site, softmax_sites
from interp.model.inputs import holds_pictures, reads_pictures_in_text
from interp.model.transformer import Transformer

SomeModel = TypeVar("SomeModel", bound=Transformer)

# by model and kept sites: the sites of which these were kept, and the view
Views = dict[tuple[Site, ...], tuple[tuple[Site, ...], Transformer]]
_views: WeakKeyDictionary[Transformer, Views] = WeakKeyDictionary()
# by model: its sites with those of its towers, and the view
_joint: WeakKeyDictionary[Transformer, tuple[tuple[Site, ...], Transformer]] = WeakKeyDictionary()


def softmax_view(model: SomeModel) -> SomeModel:
    """Return the model with its softmax layers alone as sites; itself where it has no others.

    The whole model still runs: the other layers compute as they do, and are not read or edited.
    """
    kept = tuple(softmax_sites(model.sites))
    if len(kept) == len(model.sites):
        return model
    if not kept:
        first = model.sites[0]
        raise UnreadableAttention(
            f"{model.name} has no softmax attention ({first.name}: {first.kind}), which this "
            "analysis needs; detectors, entropy and other statistics of maps can be scored"
        )
    return _view(model, kept)


def layers_view(model: SomeModel) -> SomeModel:
    """Return the model without its pooling attention as a site; itself where it has none.

    For what follows the tokens of one stack from layer to layer.
    """
    kept = tuple(s for s in model.sites if s.stack != POOLING)
    return model if len(kept) == len(model.sites) else _view(model, kept)


def _view(model: SomeModel, kept: tuple[Site, ...]) -> SomeModel:
    views = _views.setdefault(model, {})
    known = views.get(kept)
    if known is not None and known[0] == model.sites:
        return known[1]  # type: ignore[return-value]
    view = _with_sites(model, kept)
    view.left_out = tuple(s for s in model.sites if s not in kept)
    views[kept] = model.sites, view
    return view


def _with_sites(model: SomeModel, sites: tuple[Site, ...]) -> SomeModel:
    view = copy.copy(model)
    field_names = {f.name for f in fields(view)}
    for name in [n for n in vars(view) if n not in field_names]:
        del vars(view)[name]  # cached values may depend on the sites
    view.sites = sites
    return view


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
    known = _joint.get(model)
    if known is not None and known[0] == model.joint_sites:
        return known[1]  # type: ignore[return-value]
    view = _with_sites(model, model.joint_sites)
    _joint[model] = model.joint_sites, view
    return view


def view_for(model: SomeModel, prompts: Any) -> SomeModel:
    """Return the view with towers if the prompts hold pictures that run them, else the model."""
    return joint_view(model) if model.joint_sites and holds_pictures(prompts) else model
