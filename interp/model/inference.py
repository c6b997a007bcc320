"""Evaluation mode for the length of a run, and every submodule's own mode back after it.

The attention components of a TransformerLens bridge keep their last pattern, with its graph: a
run would hold the patterns of all layers at once. During our runs they are let go layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_KEPT = "_pattern"


def _let_go(module: nn.Module, *_: object) -> None:
    setattr(module, _KEPT, None)


@contextmanager
def inference(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every submodule gets its own mode back."""
    training = [m for m in module.modules() if m.training]
    keeping = [m for m in module.modules() if _KEPT in m.__dict__]
    handles = [m.register_forward_hook(_let_go) for m in keeping]
    for m in training:
        m.training = False
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for m in training:
            m.training = True
