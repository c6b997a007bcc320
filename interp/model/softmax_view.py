"""View of a hybrid model that has only its softmax layers, for analyses that need scores."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import TypeVar
from weakref import WeakKeyDictionary

from interp.core.errors import UnreadableAttention
from interp.model.locate.sites import Site, softmax_sites
from interp.model.transformer import Transformer

SomeModel = TypeVar("SomeModel", bound=Transformer)

_views: WeakKeyDictionary[Transformer, tuple[tuple[Site, ...], Transformer]] = WeakKeyDictionary()


def softmax_view(model: SomeModel) -> SomeModel:
    """Return the model with its softmax layers alone as sites; itself where it has no others.

    The whole model still runs: the other layers compute as they do, and are not read or edited.

    Raises:
        UnreadableAttention: it has no softmax layer.
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
    known = _views.get(model)
    if known is not None and known[0] == model.sites:
        return known[1]  # type: ignore[return-value]
    made = copy.copy(model)
    own = {f.name for f in fields(made)}
    for name in [n for n in vars(made) if n not in own]:
        del vars(made)[name]  # cached values may depend on the sites
    made.sites = kept
    made.left_out = tuple(s for s in model.sites if s.kind != "softmax")
    _views[model] = model.sites, made
    return made
