"""Which input tokens a number of the model comes from.

    target    the number that is explained               target.py
    example   one input, its tokens, and the target      example.py
    method    one declared function per file             the room `interp.attribution.methods`
    result    a score per input token                    result.py

`attribute(model, text, "attn_lrp")` gives an `Attribution`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.attribution.declaration import Method, Scores, attribute, attribution
    from interp.attribution.example import Example
    from interp.attribution.result import Attribution
    from interp.attribution.target import Target, label, similarity, token_logit

_WHERE = {
    "Attribution": "result",
    "Example": "example",
    "Method": "declaration",
    "Scores": "declaration",
    "Target": "target",
    "attribute": "declaration",
    "attribution": "declaration",
    "label": "target",
    "similarity": "target",
    "token_logit": "target",
}

__all__ = [
    "Attribution",
    "Example",
    "Method",
    "Scores",
    "Target",
    "attribute",
    "attribution",
    "label",
    "similarity",
    "token_logit",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.attribution' has no attribute {name!r}")
    return getattr(import_module(f"interp.attribution.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
