"""A bias with one row serves every query: what it hides, and one mask for all heads."""

from __future__ import annotations

import pytest
import torch

from interp_kernels.masks import visible
from interp_kernels.problem import Attention

HEADS, QUERIES = 3, 5


def attention(bias: torch.Tensor) -> Attention:
    q, k, v = (torch.randn(1, HEADS, QUERIES, 4) for _ in range(3))
    return Attention(q=q, k=k, v=v, bias=bias, causal=True)


def test_a_bias_that_hides_nothing_leaves_one_mask_for_all_heads() -> None:
    seen = visible(attention(torch.randn(1, HEADS, 1, QUERIES)))
    assert seen.shape == (1, 1, QUERIES, QUERIES)
    assert torch.equal(seen[0, 0], torch.ones(QUERIES, QUERIES).tril().bool())


@pytest.mark.parametrize("hidden", [-torch.inf, False])
def test_a_bias_hides_a_key_of_one_head_from_every_query(hidden) -> None:
    shape = (1, HEADS, 1, QUERIES)
    bias = torch.zeros(shape) if hidden else torch.ones(shape, dtype=torch.bool)
    bias[0, 1, 0, 2] = hidden
    seen = visible(attention(bias))
    expected = torch.ones(QUERIES, QUERIES).tril().bool().expand(1, HEADS, -1, -1).clone()
    expected[0, 1, :, 2] = False
    assert torch.equal(seen, expected)
