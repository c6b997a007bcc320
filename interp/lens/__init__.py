"""The residual stream read as logits: layer by layer, or split into what was added to it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.lens.direct import DirectLogits, direct_logit_attribution
    from interp.lens.logit import LogitLens, logit_lens

_WHERE = {
    "DirectLogits": "direct",
    "LogitLens": "logit",
    "direct_logit_attribution": "direct",
    "logit_lens": "logit",
}

__all__ = ["DirectLogits", "LogitLens", "direct_logit_attribution", "logit_lens"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.lens' has no attribute {name!r}")
    return getattr(import_module(f"interp.lens.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
