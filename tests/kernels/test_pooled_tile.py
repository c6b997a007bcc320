"""Parts of a pattern in blocks equal the same sums of the whole pattern, for every mask."""

from __future__ import annotations

import pytest
import torch
from together import over

from interp_kernels import Attention, attention_statistics, reference
from interp_kernels.errors import InvalidReduction
from interp_kernels.pooled_tile import pooled_tile
from interp_kernels.reductions import LogSumExp

N, KEYS = 37, 37


def call(**options) -> Attention:
    seeded = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=seeded)

    given = {"causal": True, **options}
    return Attention(q=draw(1, 4, N, 8), k=draw(1, 2, KEYS, 8), v=draw(1, 2, KEYS, 8), **given)


MASKS = {
    "causal": {},
    "both ways": {"causal": False},
    "window": {"window": 9},
    "soft-cap": {"softcap": 2.0},
    "sink": {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "bias": {"bias": torch.linspace(-2, 2, 4 * N * KEYS).reshape(1, 4, N, KEYS)},
    "hidden by a bias": {"bias": torch.arange(N * KEYS).reshape(1, 1, N, KEYS) % 5 > 0},
    "relative": {"relative_bias": torch.linspace(-3, 1, 4 * 73).reshape(4, 73)},
    "ranges": {
        "ranges": torch.stack([(torch.arange(N) // 10) * 10, torch.arange(N) + 1], -1)[None]
    },
}


@over("mask", MASKS)
@over("block", [1, 3, 8, 64])
def test_blocks_are_sums_and_maxima_of_the_whole_pattern(mask, block):
    attention = call(**MASKS[mask])
    whole = reference.pattern(attention, reference.scores(attention, torch.float64))[0]
    lse = attention_statistics(attention, [LogSumExp()], backend="auto")["lse"]
    for head, rows, keys in ((0, range(N), range(KEYS)), (3, range(5, 31), range(2, 30))):
        found = pooled_tile(attention, lse, head, rows, keys, block)
        part = whole[head][rows.start : rows.stop, keys.start : keys.stop]
        down, across = found.shape
        padded = torch.zeros(down * block, across * block, dtype=torch.float64)
        padded[: part.shape[0], : part.shape[1]] = part
        in_blocks = padded.reshape(down, block, across, block)
        torch.testing.assert_close(found.double(), in_blocks.sum((1, 3)), atol=3e-6, rtol=3e-6)
        found = pooled_tile(attention, lse, head, rows, keys, block, largest=True)
        torch.testing.assert_close(found.double(), in_blocks.amax((1, 3)), atol=3e-6, rtol=3e-6)


def test_small_steps_change_nothing(monkeypatch):
    attention = call()
    lse = attention_statistics(attention, [LogSumExp()], backend="auto")["lse"]
    whole = pooled_tile(attention, lse, 1, range(N), range(KEYS), 4)
    most_of = pooled_tile(attention, lse, 1, range(N), range(KEYS), 4, largest=True)
    for most in (1, 3 * KEYS, 9 * KEYS):
        monkeypatch.setattr("interp_kernels.pooled_tile.SCORES", most)
        again = pooled_tile(attention, lse, 1, range(N), range(KEYS), 4)
        torch.testing.assert_close(again, whole, atol=1e-6, rtol=1e-6)
        again = pooled_tile(attention, lse, 1, range(N), range(KEYS), 4, largest=True)
        torch.testing.assert_close(again, most_of, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("head", "queries", "keys", "block"),
    [
        (4, range(1, 3), range(1, 3), 1),
        (0, range(0, N + 1), range(1, 3), 1),
        (0, range(3, 3), range(1, 3), 1),
        (0, range(1, 3), range(1, 3), 0),
    ],
)
def test_what_does_not_exist_is_refused(head, queries, keys, block):
    attention = call()
    lse = attention_statistics(attention, [LogSumExp()], backend="auto")["lse"]
    with pytest.raises(InvalidReduction, match="pooled_tile: "):
        pooled_tile(attention, lse, head, queries, keys, block)


def test_a_caller_can_end_it():
    attention = call()
    lse = attention_statistics(attention, [LogSumExp()], backend="auto")["lse"]

    def enough():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pooled_tile(attention, lse, 0, range(N), range(KEYS), 1, going_on=enough)
