"""Measures of attention patterns at their analytic values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from heads.geometry.layers import layer_of, patterned, uniform, value
from scipy.stats import norm

T = 12
SEEN = range(1, T + 1)
SHARP = 60.0


def mean(values) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("top_keys", mean(4 / n for n in SEEN if n > 4)),
        ("budget", mean(math.ceil(0.95 * n - 1e-5) for n in SEEN if n > 1)),
        ("span", mean(math.ceil(0.95 * n - 1e-5) - 1 for n in SEEN)),
        ("spectral_gap", 0.5),  # the diagonal is 1, 1/2, 1/3, ...
        ("softmax_sensitivity", mean(math.sqrt(n - 1) / n for n in SEEN if n > 1)),
        ("score_spread", 0.0),
        ("similar_head", 1.0),
        ("head_divergence", 0.0),
        ("log_normal_fit", math.nan),  # equal scores have no distribution
    ],
)
def test_uniform_causal_attention(name, expected) -> None:
    layer = uniform(T)
    found = value(name, layer)
    assert found.shape == (1, 2)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("spectral_gap", 1.0),
        ("singular_gap", 1.0),
        ("pattern_rank", 1.0),
        ("low_pass", 1.0),
        ("output_condition", 7.0),
        ("block_budget", 1.0),
        ("budget", 12.0),
        ("key_norm", math.nan),
    ],
)
def test_uniform_bidirectional_attention_mixes_at_once(name, expected) -> None:
    np.testing.assert_allclose(value(name, uniform(T, causal=False)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("spectral_gap", 0.0),
        ("singular_gap", 0.0),
        ("pattern_rank", T),
        ("budget", 1.0),
        ("span", 0.0),
        ("window_without_sink", 0.0),
        ("softmax_sensitivity", 0.0),
        ("top_keys", 1.0),
    ],
)
def test_a_head_on_the_current_token(name, expected) -> None:
    scores = SHARP * torch.eye(T)[None, None]
    np.testing.assert_allclose(value(name, patterned(scores)), expected, atol=1e-4)


def test_keys_last_in_a_sink_and_move_on_with_a_window() -> None:
    at = torch.arange(T)
    sink = -at.float().expand(T, T)
    window = -SHARP * (at[:, None] - at - 1).abs().float()
    found = value("lasting_keys", patterned(torch.stack([sink, window])[None]), k=1)
    assert found.tolist() == [[1, 0]]


def test_a_sink_is_dropped_before_heads_are_compared() -> None:
    """Both heads put most on key 0; beyond it one attends to itself, the other one back."""
    at = torch.arange(T)
    itself = (at[:, None] == at).float()
    back = (at[:, None] == at + 1).float()
    scores = torch.stack([itself, back]) * 20
    scores[..., 0] = 22
    layer = patterned(scores[None])
    assert value("similar_head", layer, drop=0).min() > 0.85
    assert value("similar_head", layer).max() < 0.05
    assert value("window_without_sink", layer)[0].round().tolist() == [0, 1]


def test_divergence_of_two_opposite_heads_is_ln_2() -> None:
    at = torch.arange(T)
    scores = SHARP * torch.stack([(at == 0).float(), (at == 1).float()])[:, None].expand(2, T, T)
    found = value("head_divergence", patterned(scores[None], causal=False))
    np.testing.assert_allclose(found, math.log(2), atol=1e-6)


def test_log_normal_weights_fit_and_an_outlier_does_not() -> None:
    rank = torch.arange(1, T + 1)
    exact = torch.tensor(norm.ppf((rank - 0.375) / (T + 0.25)), dtype=torch.float32)
    outlier = torch.zeros(T)
    outlier[3] = 9.0
    scores = torch.stack([exact, outlier])[:, None].expand(2, T, T)
    found = value("log_normal_fit", patterned(scores[None], causal=False))[0]
    assert float(found[0]) == pytest.approx(1, abs=1e-6)
    assert float(found[1]) < 0.4
    spread = value("score_spread", patterned(scores[None], causal=False))[0]
    np.testing.assert_allclose(spread, [exact.std(correction=0), outlier.std(correction=0)])


def test_vertical_and_slash_heads_are_covered_and_a_scattered_one_is_not() -> None:
    tokens, rng = 40, np.random.default_rng(0)
    at = torch.arange(tokens)
    column = (at == 5).float().expand(tokens, tokens)
    diagonal = (at[:, None] - at == 7).float()
    scattered = torch.zeros(tokens, tokens)
    for row in range(1, tokens):
        scattered[row, rng.integers(row)] = 1
    layer = patterned(SHARP * torch.stack([column, diagonal, scattered])[None])
    found = value("vertical_slash", layer, vertical=1, slash=1)[0]
    rows = range(7, tokens - 8)  # the diagonal exists from row 7 on; before it rows are uniform
    assert float(found[0]) > 0.85
    assert float(found[1]) >= len(rows) / (tokens - 8 - 2) - 1e-6
    assert float(found[2]) < 0.3


def test_blocks_that_hold_the_attention() -> None:
    scores = torch.zeros(16, 16)
    scores[:, 4:8] = SHARP  # all on the second block of keys, once it is seen
    found = value("block_budget", patterned(scores[None, None]), size=4)
    # rows of blocks 1, 2, 3 see 2, 3, 4 blocks and need one each
    assert float(found) == pytest.approx(mean([1 / 2, 1 / 3, 1 / 4]), abs=1e-6)


def test_keys_of_the_layer_before() -> None:
    at = torch.arange(T)
    first = SHARP * (at == 2).float().expand(1, 1, T, T)
    before = patterned(first, depth=0)
    for key, low, high in ((2, 0.9, 1.0), (3, 0.0, 0.3)):
        after = patterned(SHARP * (at == key).float().expand(1, 1, T, T), depth=1)
        after.previous = before
        found = float(value("keys_of_layer_before", after, k=1))
        assert low <= found <= high
        assert 0 <= float(value("reused_pattern", after)) <= 1
    after.previous = None
    assert torch.isnan(value("keys_of_layer_before", after)).all()
    assert torch.isnan(value("reused_pattern", after)).all()


def test_a_bidirectional_pattern_that_is_too_long_for_eigenvalues_is_refused() -> None:
    from interp.core.errors import PromptError
    from interp.heads.geometry.spectra import LONGEST

    q = torch.zeros(1, 1, LONGEST + 1, 2)
    with pytest.raises(PromptError, match="use singular_gap or shorter prompts"):
        value("spectral_gap", layer_of(q, q, causal=False))
