"""Seeded draws from torch's global generator that restore its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock

import torch

_drawing = RLock()


def has_generator(device: torch.device) -> bool:
    """Return True if the random numbers of a device can be seeded and restored."""
    if device.type == "cpu":
        return True
    module = torch.get_device_module(device.type)
    return all(hasattr(module, name) for name in ("get_rng_state", "set_rng_state", "manual_seed"))


@contextmanager
def drawn_with(seed: int | None, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block and restore its state afterwards.

    Without a seed the generator continues from its present state. With a device (see
    `has_generator`) its generator is seeded and restored as well. All threads share one generator,
    so only one thread at a time may enter the block.
    """
    here = None if device is None or device.type == "cpu" else device
    with _drawing, torch.random.fork_rng(devices=[]), _seeded(seed, here):
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs' too
        yield


@contextmanager
def _seeded(seed: int | None, device: torch.device | None) -> Iterator[None]:
    if device is None:
        yield
        return
    module = torch.get_device_module(device.type)
    place = () if device.type == "mps" else (device,)  # there is one, which is not named
    state = module.get_rng_state(*place)
    try:
        if seed is not None:
            with module.device(device) if place else nullcontext():
                module.manual_seed(seed)
        yield
    finally:
        module.set_rng_state(state, *place)


def drawing_here() -> bool:
    """Return True if this thread is in a block of `drawn_with`, which other threads wait for."""
    return _drawing._is_owned()  # type: ignore[attr-defined]
