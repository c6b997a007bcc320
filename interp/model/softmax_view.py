"""Views of a model with some of its sites: its softmax layers, or all but its pooling attention."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import TypeVar
from weakref import WeakKeyDictionary

from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import POOLING, Site, softmax_sites
from interp.model.transformer import Transformer

SomeModel = TypeVar("SomeModel", bound=Transformer)

# by model and kept sites: the sites of which these were kept, and the view
Views = dict[tuple[Site, ...], tuple[tuple[Site, ...], Transformer]]
_views: WeakKeyDictionary[Transformer, Views] = WeakKeyDictionary()


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
    view = copy.copy(model)
    field_names = {f.name for f in fields(view)}
    for name in [n for n in vars(view) if n not in field_names]:
        del vars(view)[name]  # cached values may depend on the sites
    view.sites = kept
    view.left_out = tuple(s for s in model.sites if s not in kept)
    views[kept] = model.sites, view
    return view
