"""Adapters of interp's own, registered by import, and the adapters of a model's modules."""

from __future__ import annotations

from torch import nn

from interp.model.mixers import (
    banded,
    block_sparse,
    differential,
    gated_delta,
    gated_recurrence,
    lightning,
    mamba,
    receptance,
    state_space,
    talking_heads,
)
from interp.model.mixers.mixer import REGISTERED, Mixer

BUILT_IN = (
    banded, block_sparse, differential, gated_delta, gated_recurrence, lightning, mamba,
    receptance, state_space, talking_heads,
)  # fmt: skip


def adapters_of(model: nn.Module) -> dict[nn.Module, Mixer]:
    """Return the modules of a model that an adapter reads, with their adapters."""
    known = ((m, REGISTERED.get(type(m).__name__)) for m in model.modules())
    return {m: mixer for m, mixer in known if mixer is not None and mixer.fits(m)}
