"""Evaluation mode for the length of a run, and every submodule's own mode back after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def inference(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every submodule gets its own mode back."""
    training = [m for m in module.modules() if m.training]
    for m in training:
        m.training = False
    try:
        yield
    finally:
        for m in training:
            m.training = True
