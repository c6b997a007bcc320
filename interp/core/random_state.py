"""Seeded draws from torch's global generator that restore its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_drawing = RLock()


@contextmanager
def drawn_with(seed: int | None, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block and restore its state afterwards.

    Without a seed the generator continues from its present state. With a device its generator is
    seeded and restored as well. All threads share one generator, so only one thread at a time may
    enter the block.
    """
    kind = "cpu" if device is None else device.type
    beside = [] if kind in ("cpu", "meta") else [device]
    with _drawing, torch.random.fork_rng(devices=beside, device_type=kind if beside else "cuda"):
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs' too
            for _ in beside:
                with torch.get_device_module(kind).device(device):
                    torch.get_device_module(kind).manual_seed(seed)
        yield


def drawing_here() -> bool:
    """Return True if this thread is in a block of `drawn_with`, which other threads wait for."""
    return _drawing._is_owned()  # type: ignore[attr-defined]
