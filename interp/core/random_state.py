"""Draws from torch's global generator that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_drawing = RLock()


@contextmanager
def drawn_with(seed: int | None) -> Iterator[None]:
    """In the block torch's global CPU generator starts from the seed; afterwards it is as it was.

    Without a seed it starts from where it is. There is one generator for all threads, and draws of
    two would mix, so one thread at a time is let in.
    """
    with _drawing, torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs' too
        yield
