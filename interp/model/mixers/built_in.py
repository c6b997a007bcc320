"""Adapters of interp's own, registered by import."""

from __future__ import annotations

from interp.model.mixers import (
    banded,
    block_sparse,
    differential,
    dynamic_convolution,
    gated_delta,
    gated_recurrence,
    lightning,
    mamba,
    neurons,
    receptance,
    state_space,
    talking_heads,
)

BUILT_IN = (
    banded,
    block_sparse,
    differential,
    dynamic_convolution,
    gated_delta,
    gated_recurrence,
    lightning,
    mamba,
    neurons,
    receptance,
    state_space,
    talking_heads,
)
