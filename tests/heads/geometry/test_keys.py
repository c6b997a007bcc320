"""Measures of queries, keys and outputs at planted and analytic values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from heads.geometry.layers import layer_of, uniform, value, writing
from scipy.spatial import ConvexHull
from scipy.stats import spearmanr

from interp.core.errors import PromptError
from interp.heads.geometry.key_norm import received_per_query
from interp.heads.geometry.selection import selectable


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def orthonormal(tokens: int, rank: int) -> torch.Tensor:
    """Centred columns of equal length."""
    x = drawn(tokens, rank)
    return torch.linalg.qr(x - x.mean(0)).Q


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_keys_of_a_rank_have_it(rank) -> None:
    k = (orthonormal(32, rank) @ drawn(rank, 8))[None, None]
    equal = (orthonormal(32, rank) @ torch.linalg.qr(drawn(8, 8)).Q[:rank] + 3.0)[None, None]
    layer = layer_of(equal, equal)
    assert float(value("key_rank", layer)) == rank  # all of r equal variances for 90 %
    assert float(value("query_rank", layer)) == rank
    assert float(value("key_rank", layer, share=0.45)) == int(0.45 * rank) + 1
    assert float(value("key_rank", layer_of(k, k), share=0.999999)) == rank


def test_rotary_embedding_raises_the_rank() -> None:
    """Keys on one line before they are rotated by position span a plane after it."""
    tokens = 24
    flat = torch.zeros(1, 1, tokens, 4, dtype=torch.double)
    flat[..., 0] = drawn(tokens)
    angle = 1.3 * torch.arange(tokens)
    turn = torch.eye(4, dtype=torch.double).repeat(tokens, 1, 1)
    turn[:, 0, 0], turn[:, 0, 1] = angle.cos(), angle.sin()
    turn[:, 1, 0], turn[:, 1, 1] = -angle.sin(), angle.cos()
    turned = (flat[0, 0, :, None] @ turn)[:, 0][None, None]
    layer = layer_of(turned, turned)
    layer.turns = {"k": turn.mT[None], "q": turn.mT[None]}  # backwards
    assert float(value("key_rank", layer)) == 2
    assert float(value("key_rank_before_rotary", layer)) == 1
    assert float(value("query_rank_before_rotary", layer)) == 1
    torch.testing.assert_close(layer.before_turning("k"), flat)
    layer.turns = {}
    with pytest.raises(PromptError, match="give texts, ids or Prompts"):
        value("key_rank_before_rotary", layer)


def test_constant_keys_have_no_rank() -> None:
    k = torch.ones(1, 1, 9, 4)
    assert torch.isnan(value("key_rank", layer_of(k, k))).all()


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_main_query_direction_predicts_attention(side) -> None:
    tokens = 24
    line = side * torch.tensor([3.0, 0.0, 0.0, 0.0], dtype=torch.double)
    q = line + 0.05 * drawn(1, 2, tokens, 4, seed=1)
    k = drawn(1, 1, tokens, 4, seed=2)
    found = value("query_direction", layer_of(q, k, causal=False))
    assert float(found.min()) > 0.95
    away = value("query_direction", layer_of(drawn(1, 2, tokens, 4), k * 0 + 1.0, causal=False))
    assert torch.isnan(away).all()  # equal keys cannot be ranked


def test_opposite_heads_of_a_group_cancel() -> None:
    tokens = 24
    line = torch.tensor([3.0, 0.0, 0.0, 0.0], dtype=torch.double)
    q = torch.stack([line, -line])[None, :, None] + 0.05 * drawn(1, 2, tokens, 4, seed=1)
    layer = layer_of(q, drawn(1, 1, tokens, 4, seed=2), causal=False)
    assert float(value("query_direction", layer).min()) > 0.95
    assert float(value("query_direction", layer, by_group=True).abs().max()) < 0.9


@pytest.mark.parametrize("sign", [1, -1])
def test_short_keys_receive_more_where_queries_point_away(sign) -> None:
    tokens = 16
    size = 1 + torch.arange(tokens, dtype=torch.double)[torch.randperm(tokens)] / tokens
    k = torch.zeros(1, 1, tokens, 4, dtype=torch.double)
    k[..., 0] = size
    q = torch.zeros(1, 1, tokens, 4, dtype=torch.double)
    q[..., 0] = sign
    found = value("key_norm", layer_of(q, k, causal=False))
    assert float(found) == pytest.approx(sign)


def test_keys_of_one_vector_are_ties_and_small_attention_is_ranked() -> None:
    """Rounding in bfloat16, with rotary embedding, breaks no tie, and a sink makes none."""
    x = drawn(4, 32)[torch.tensor([0, 1, 2, 3] * 6)]  # four vectors, each at six positions
    angle = torch.arange(24)[:, None] * 10000 ** (-torch.arange(16) / 16)
    cos, sin = angle.cos(), angle.sin()
    turned = torch.cat([x[:, :16] * cos - x[:, 16:] * sin, x[:, 16:] * cos + x[:, :16] * sin], -1)
    for dtype in (torch.float32, torch.bfloat16):
        k = turned.to(dtype)[None, None]
        layer = layer_of(drawn(1, 1, 24, 32, seed=3).to(dtype), k)
        got = float(value("key_norm", layer))
        received = received_per_query(layer)[0, 0]
        kept = received.isfinite()
        norms = x.norm(dim=-1)[kept].numpy().round(9)  # exact ties
        assert got == pytest.approx(spearmanr(norms, received[kept]).statistic, abs=1e-3)
    size = torch.linspace(1, 2, 24, dtype=torch.double)
    k = torch.zeros(1, 1, 24, 4, dtype=torch.double)
    k[..., 0] = size
    steep = layer_of(torch.full_like(k, 40.0), k, causal=False)  # nearly all on the longest key
    assert float(received_per_query(steep).max()) > 0.7
    assert float(value("key_norm", steep)) == pytest.approx(1, abs=1e-12)


def test_few_short_keys_have_no_correlation() -> None:
    assert torch.isnan(value("key_norm", uniform(2))).all()
    assert torch.isnan(value("query_direction", uniform(2))).all()


def test_the_centre_of_a_square_cannot_be_selected() -> None:
    square = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1], [0, 0], [0.3, 0.2]], dtype=float)
    assert selectable(square).tolist() == [True] * 4 + [False] * 2
    k = torch.tensor(square)[None, None]
    assert float(value("unselectable_keys", layer_of(k.repeat(1, 2, 1, 1), k))[0, 1]) == 1 / 3


@pytest.mark.parametrize("seed", range(4))
def test_selectable_keys_are_the_corners_of_their_hull(seed) -> None:
    keys = np.random.default_rng(seed).standard_normal((30, 3))
    corners = np.isin(np.arange(30), ConvexHull(keys).vertices)
    assert selectable(keys).tolist() == corners.tolist()


def test_degenerate_keys() -> None:
    assert selectable(np.ones((1, 3))).tolist() == [True]
    assert selectable(np.ones((4, 3))).tolist() == [False] * 4
    twice = np.array([[1.0, 0], [1.0, 0], [0, 1], [-1, -1]])
    assert selectable(twice).tolist() == [False, False, True, True]
    assert selectable(np.eye(6)).all()  # a simplex: by rank


def test_condition_of_outputs() -> None:
    basis = torch.linalg.qr(drawn(12, 2)).Q
    layer = uniform(12, heads=2)
    one = basis * torch.tensor([10.0, 1.0])
    layer.call.z = torch.stack([one, torch.cat([one[:, :1], one[:, :1]], 1)])[None]
    found = value("output_condition", layer)[0]
    assert float(found[0]) == pytest.approx(1)
    assert float(found[1]) == 7
    layer.call.z = torch.stack([basis[:, :1] * 10, basis[:, 1:]])[None]
    layer.writing = writing(torch.eye(2, dtype=torch.double)[:, None])
    del layer.__dict__["z"]
    np.testing.assert_allclose(value("block_condition", layer), [[1, 1]], atol=1e-9)


def test_distance_from_the_semantic_centre() -> None:
    layer = uniform(12, heads=2)
    x = drawn(1, 1, 12, 3)
    matrix = drawn(2, 3, 6)
    matrix[1] = matrix[0]
    layer.writing = writing(matrix)
    for other, expected in ((x, 0.0), (-x, 1.0)):
        layer.call.z = torch.cat([x, other], 1)
        layer.__dict__.pop("z", None)
        np.testing.assert_allclose(value("heterogeneity", layer), expected, atol=1e-12)


def test_low_pass_energy_of_noise_is_one_over_the_tokens() -> None:
    layer = uniform(50, heads=40)
    layer.call.z = drawn(1, 40, 50, 64)
    assert float(value("low_pass", layer).mean()) == pytest.approx(1 / 50, rel=0.05)
    layer.call.z = torch.ones(1, 40, 50, 64)
    del layer.__dict__["z"]
    assert math.isclose(float(value("low_pass", layer).min()), 1)


def test_the_wave_of_a_rotated_channel() -> None:
    tokens, angle = 9, 0.5 * torch.arange(9)
    turn = torch.zeros(tokens, 2, 2, dtype=torch.double)
    turn[:, 0, 0], turn[:, 0, 1] = angle.cos(), angle.sin()
    turn[:, 1, 0], turn[:, 1, 1] = -angle.sin(), angle.cos()
    flat = torch.tensor([2.0, 0.0], dtype=torch.double).expand(1, 1, tokens, 2)
    still = torch.eye(2, dtype=torch.double).expand(1, tokens, 2, 2)
    for turns, expected in ((turn.mT[None], 4 * (1 - float(angle.cos().min()))), (still, 0.0)):
        entering = torch.linalg.solve(turns.mT, flat[..., None])[..., 0]
        layer = layer_of(entering, entering)
        layer.turns = {"q": turns, "k": turns}
        assert float(value("position_wave", layer)) == pytest.approx(expected, abs=1e-6)
