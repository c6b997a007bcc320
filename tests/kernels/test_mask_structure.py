"""Masks that are functions of positions are recognised, and others are left as they are."""

from __future__ import annotations

import gc

import pytest
import torch

from interp_kernels import mask_structure
from interp_kernels.mask_structure import MaskStructure, structure_of

N = 12


def seen(real: torch.Tensor, causal: bool, window: int | None) -> torch.Tensor:
    """The mask by its definition, one entry at a time."""
    mask = torch.zeros(len(real), 1, N, N, dtype=torch.bool)
    for b in range(len(real)):
        for i in range(N):
            for j in range(N):
                near = window is None or j > i - window
                mask[b, 0, i, j] = bool(real[b, j]) and (j <= i or not causal) and near
    return mask


def as_numbers(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


def padding(side: str) -> torch.Tensor:
    real = torch.ones(3, N, dtype=torch.bool)
    if side == "left":
        real[1, :3], real[2, :8] = False, False
    if side == "right":
        real[0, 9:], real[1, 4:] = False, False
    return real


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("window", [None, 1, 4, N - 1])
@pytest.mark.parametrize("form", [lambda mask: mask, as_numbers])
def test_causal_masks_and_windows(side, window, form) -> None:
    real = padding(side)
    assert structure_of(form(seen(real, True, window)), real, N) == MaskStructure(True, window)


@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_masks_of_encoders(side) -> None:
    real = padding(side)
    assert structure_of(seen(real, False, None), real, N) == MaskStructure(False)


def test_a_window_that_no_query_fills_is_no_limit() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    assert structure_of(seen(real, True, N), real, N) == MaskStructure(True)


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("rows_at_a_time", [1, 5, N])
def test_every_single_entry_counts(side, window, rows_at_a_time, monkeypatch) -> None:
    real = padding(side)
    monkeypatch.setattr(mask_structure, "ENTRIES", rows_at_a_time * real.numel())
    mask = seen(real, True, window)
    for b, i, j in torch.cartesian_prod(torch.arange(3), torch.arange(N), torch.arange(N)).tolist():
        other = mask.clone()
        other[b, 0, i, j] ^= True
        found = structure_of(other, real, N)
        if found is None:  # only rows of padding enter no statistic
            assert bool(real[b, i])
        else:
            differs = seen(real, found.causal, found.window) != other
            assert not bool(differs[:, 0][real].any()), (b, i, j)


def test_added_numbers_that_are_not_zero_are_a_bias() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    mask = as_numbers(seen(real, True, None))
    mask[0, 0, 5, 2] = -0.5
    assert structure_of(mask, real, N) is None


def test_other_masks_stay_what_they_are() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    causal = seen(real, True, None)
    chunk = torch.arange(N) // 4
    packed = causal & (chunk[:, None] == chunk)
    assert structure_of(packed, real, N) is None
    prefix = causal | (torch.arange(N) < 5)
    assert structure_of(prefix, real, N) is None
    assert structure_of(causal.expand(1, 3, N, N), real, N) == MaskStructure(True)
    assert structure_of(causal.repeat(1, 3, 1, 1), real, N) is None  # heads may differ


def test_a_cache_before_the_queries_moves_the_diagonal() -> None:
    real = torch.ones(1, 4, dtype=torch.bool)
    full = torch.ones(1, N, dtype=torch.bool)
    mask = seen(full, True, 5)[:, :, N - 4 :]
    assert structure_of(mask, real, N) == MaskStructure(True, 5)
    wide = torch.cat([mask, torch.zeros(1, 1, 4, 3, dtype=torch.bool)], -1)
    assert structure_of(wide, real, N) == MaskStructure(True, 5)
    padded = mask.clone()
    padded[..., 0:10] = False  # the mask hides keys of the cache that nothing else lists
    assert structure_of(padded, real, N) is None


def test_a_mask_that_was_changed_in_place_is_read_again() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    mask = seen(real, True, None)
    assert structure_of(mask, real, N) == MaskStructure(True)
    mask.copy_(seen(real, True, 3))
    assert structure_of(mask, real, N) == MaskStructure(True, 3)


def test_no_mask_is_kept_alive() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    before = len(mask_structure._recognised)
    mask = seen(real, True, None)
    structure_of(mask, real, N)
    assert len(mask_structure._recognised) == before + 1
    del mask
    gc.collect()
    assert len(mask_structure._recognised) == before
