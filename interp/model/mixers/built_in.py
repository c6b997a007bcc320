"""Adapters of interp's own, registered by import."""

from __future__ import annotations

from interp.model.mixers import (
    banded,
    block_sparse,
    dynamic_convolution,
    gated_delta,
    gated_recurrence,
    lightning,
    mamba,
    mixtures,
    neurons,
    receptance,
    state_space,
)

BUILT_IN = (
    banded,
    block_sparse,
    dynamic_convolution,
    gated_delta,
    gated_recurrence,
    lightning,
    mamba,
    mixtures,
    neurons,
    receptance,
    state_space,
)
