"""Seeded draws from torch's global generator that restore its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_drawing = RLock()


@contextmanager
def drawn_with(seed: int | None) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block and restore its state afterwards.

    Without a seed the generator continues from its present state. All threads share one generator,
    so only one thread at a time may enter the block.
    """
    with _drawing, torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs' too
        yield
