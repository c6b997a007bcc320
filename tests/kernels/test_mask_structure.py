"""Masks that are functions of positions are recognised, and others are left as they are."""

from __future__ import annotations

import gc

import pytest
import torch
from together import over

from interp_kernels import Attention, InvalidAttention, mask_structure
from interp_kernels.mask_structure import (
    MaskStructure,
    named_ranges,
    relative_bias_of,
    structure_of,
)
from interp_kernels.masks import visible

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


def as_mask(found: MaskStructure, real: torch.Tensor) -> torch.Tensor:
    """What the kernels make of a structure, with the padding beside it."""
    queries = real.shape[1]
    q = torch.zeros(len(real), 1, queries, 2)
    k = torch.zeros(len(real), 1, N, 2)
    call = Attention(
        q=q,
        k=k,
        v=k,
        causal=found.causal,
        window=found.window,
        ranges=found.ranges,
        key_padding=real if queries == N else None,
    )
    return visible(call).expand(len(real), -1, -1, -1)


def padding(side: str) -> torch.Tensor:
    real = torch.ones(3, N, dtype=torch.bool)
    if side == "left":
        real[1, :3], real[2, :8] = False, False
    if side == "right":
        real[0, 9:], real[1, 4:] = False, False
    return real


@over("side", ["none", "left", "right"])
@over("window", [None, 1, 4, N - 1])
@over("form", [lambda mask: mask, as_numbers])
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
        try:
            found = structure_of(other, real, N)
        except InvalidAttention:  # a row with one visible key lost it
            assert not bool(other[b, 0, i].any())
            continue
        if found is None:  # only rows of padding enter no statistic
            assert bool(real[b, i])
        else:
            differs = as_mask(found, real) != other
            assert not bool(differs[:, 0][real].any()), (b, i, j)


def test_added_numbers_that_are_not_zero_are_a_bias() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    mask = as_numbers(seen(real, True, None))
    mask[0, 0, 5, 2] = -0.5
    assert structure_of(mask, real, N) is None


def masks_of_ranges() -> dict[str, torch.Tensor]:
    causal = torch.ones(N, N, dtype=torch.bool).tril()
    place = torch.arange(N)
    document = torch.tensor([0] * 3 + [1] * 5 + [2] * 4)
    same = document[:, None] == document
    image = (place >= 2) & (place < 6)
    return {
        "chunks of 4": causal & (place[:, None] // 4 == place // 4),
        "packed documents": causal & same,
        "documents": same,
        "prefix of 5": causal | (place < 5),
        "ranges of keys": (place[:, None] - place).abs() <= 2,
        "ranges of keys ": causal | (image[:, None] & image),
    }


@over("kind", masks_of_ranges())
@over("side", ["none", "left", "right"])
@over("form", [lambda mask: mask, as_numbers])
def test_masks_with_one_range_of_keys_per_query(kind, side, form) -> None:
    real = padding(side)
    mask = masks_of_ranges()[kind].expand(len(real), 1, N, N) & real[:, None, None]
    found = structure_of(form(mask), real, N)
    assert found is not None
    assert (found.causal, found.window) == (False, None)
    if side == "none":
        assert str(found) == kind.strip()
    assert torch.equal(as_mask(found, real)[:, 0][real], mask[:, 0][real])


def test_a_token_that_sees_nothing_is_named_unless_it_is_padding() -> None:
    real = torch.ones(2, N, dtype=torch.bool)
    mask = seen(real, True, None)
    mask[1, 0, 4] = False
    with pytest.raises(InvalidAttention, match=r"every key from token 4 of prompt 1 \(1 such"):
        structure_of(mask, real, N)
    real[1, :5] = False
    assert structure_of(mask & real[:, None, None], real, N) == MaskStructure(True)


def test_documents_of_other_lengths_in_each_prompt() -> None:
    real = torch.ones(2, N, dtype=torch.bool)
    document = torch.tensor([[0] * 5 + [1] * 7, [0] * 2 + [1] * 4 + [2] * 6])
    mask = (document[:, :, None] == document[:, None])[:, None].tril()
    found = structure_of(mask, real, N)
    assert found is not None
    assert found.kind == "packed documents"
    assert torch.equal(as_mask(found, real), mask)


def test_other_masks_stay_what_they_are() -> None:
    real = torch.ones(1, N, dtype=torch.bool)
    causal = seen(real, True, None)
    holes = causal.clone()
    holes[..., 8, 4] = False
    assert structure_of(holes, real, N) is None
    assert structure_of(causal.expand(1, 3, N, N), real, N) == MaskStructure(True)
    assert structure_of(causal.repeat(1, 3, 1, 1), real, N) is None  # heads may differ


def test_a_mask_that_shows_padding_stays_what_it_is() -> None:
    real = padding("left")
    assert structure_of(seen(torch.ones_like(real), True, None), real, N) is None


def test_a_cache_before_the_queries_moves_the_diagonal() -> None:
    real = torch.ones(1, 4, dtype=torch.bool)
    full = torch.ones(1, N, dtype=torch.bool)
    mask = seen(full, True, 5)[:, :, N - 4 :]
    assert structure_of(mask, real, N) == MaskStructure(True, 5)
    wide = torch.cat([mask, torch.zeros(1, 1, 4, 3, dtype=torch.bool)], -1)
    assert structure_of(wide, real, N) == MaskStructure(True, 5)
    padded = mask.clone()
    padded[..., 0:6] = False  # the mask hides keys of the cache that nothing else lists
    found = structure_of(padded, real, N)
    assert found is not None
    assert torch.equal(as_mask(found, real), padded)


@pytest.mark.parametrize("sizes", [(12, 12), (1, 12), (4, 12), (12, 4), (12, 1)])
def test_a_bias_of_distances(sizes) -> None:
    queries, keys = sizes
    values = torch.randn(3, queries + keys - 1)
    distance = torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1
    bias = values[None, :, distance]
    found = relative_bias_of(bias, keys)
    assert found is not None
    assert torch.equal(found, values)
    wide = torch.nn.functional.pad(bias, (0, 3))
    assert torch.equal(relative_bias_of(wide, keys), values)
    if min(sizes) == 1:
        return
    for i in range(queries):
        other = bias.clone()
        other[0, 1, i, (i * 5) % keys] += 0.5
        assert relative_bias_of(other, keys) is None


def test_alibi_is_a_bias_of_distances() -> None:
    slopes = torch.tensor([0.5, 0.25])[:, None, None]
    distance = torch.arange(N) - torch.arange(N)[:, None]
    assert relative_bias_of((slopes * distance)[None], N) is not None
    hidden = (slopes * distance)[None].masked_fill(distance > 0, torch.finfo(torch.float32).min)
    assert relative_bias_of(hidden, N) is None  # a mask and a bias in one


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


def test_ranges_that_go_back_are_no_packed_documents() -> None:
    real = torch.ones(1, 5, dtype=torch.bool)
    end = torch.arange(1, 6)
    for first, said in (((0, 0, 2, 2, 4), "chunks of 2"), ((0, 0, 2, 0, 4), "ranges of keys")):
        ranges = torch.stack([torch.tensor(first), end], -1)[None]
        assert named_ranges(ranges, real, 0) == said
