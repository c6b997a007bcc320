"""Evaluation mode for the length of a run, and every submodule's own mode back after it.

Several threads may run one module: it is in evaluation mode until the last of them is done.

The attention components of a TransformerLens bridge keep their last pattern, with its graph: a
run would hold the patterns of all layers at once. During our runs they are let go layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from interp.model.hooks.threads import Flag, in_this_thread
from interp.model.hooks.unchanged import unchanged
from interp.model.sources.wrappers import eager

_KEPT = "_pattern"


def _let_go(module: nn.Module, *_: object) -> None:
    setattr(module, _KEPT, None)


def _set_training(module: nn.Module, on: bool) -> None:
    module.training = on


_training = Flag[nn.Module](lambda module: module.training, _set_training)


@contextmanager
def inference(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every submodule gets its own mode back.

    What the module changes in itself as it runs is put back as well.
    """
    keeping = [m for m in module.modules() if _KEPT in m.__dict__]
    handles = [m.register_forward_hook(in_this_thread(_let_go)) for m in keeping]
    try:
        with unchanged(module), eager(module), _training.off(module.modules()):
            yield
    finally:
        for handle in handles:
            handle.remove()
