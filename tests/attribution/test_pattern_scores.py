"""Scores from patterns and values: each against its definition, computed head by head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attribution.graphs import example_of

from interp.attribution import Example
from interp.attribution.methods import (
    attention_output_error,
    column_concentration,
    mean_attention,
    raw_attention,
    value_weighted,
)
from interp.attribution.methods.attention_output_error import errors
from interp.core.errors import OptionError

FAMILIES = ["bert", "llama", "gpt_oss"]


def values_of(example: Example) -> dict[int, np.ndarray]:
    """Values of every layer, one per query head."""
    held = example.capture(("v",))
    found = {}
    for site in example.model.sites:
        v = held["v", site.layer][0].double().numpy()
        found[site.layer] = v[[site.kv_head(h) for h in range(site.n_heads)]]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_raw_and_mean_attention(family: str) -> None:
    example, patterns = example_of(family, position=-2)
    every = np.stack(list(patterns.values()))
    for layer in (0, -1):
        found = raw_attention.of(example, layer=layer)
        np.testing.assert_allclose(found.scores, every[layer].mean(0)[-2], atol=1e-6)
    found = mean_attention.of(example)
    np.testing.assert_allclose(found.matrix, every.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(found.scores, every.mean((0, 1))[-2], atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("norm", [1, 2])
def test_value_weighted_is_attention_times_the_size_of_the_value(family: str, norm: int) -> None:
    example, patterns = example_of(family, position=-2)
    values = values_of(example)
    terms, sums = [], []
    for (_, layer), pattern in patterns.items():
        for head, attention in enumerate(pattern):
            v = values[layer][head]
            size = np.abs(v).sum(-1) if norm == 1 else np.sqrt((v**2).sum(-1))
            terms.append(attention[-2] * size)
            sums.append(attention.sum(0) * size)
    found = value_weighted.of(example, norm=norm)
    np.testing.assert_allclose(found.scores, np.mean(terms, 0), rtol=1e-4, atol=1e-6)
    found = value_weighted.of(example, norm=norm, received=True)
    np.testing.assert_allclose(found.scores, np.mean(sums, 0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_output_error_is_what_the_softmax_without_the_key_changes(family: str) -> None:
    example, _ = example_of(family, position=-2)
    values = values_of(example)
    held = example.capture(("scores", "pattern", "z"))
    sinks = {
        site.layer: getattr(example.model.module.get_submodule(site.module), "sinks", None)
        for site in example.model.sites
    }
    assert (sinks[0] is None) == (family != "gpt_oss")
    terms = []
    for site in example.model.sites:
        scores = held["scores", site.layer][0, :, -2].double()
        z = held["z", site.layer][0, :, -2].double().numpy()
        for head in range(site.n_heads):
            moved = []
            for key in range(len(example)):
                row = scores[head].clone()
                row[key] = -torch.inf
                if sinks[site.layer] is not None:
                    row = torch.cat([row, sinks[site.layer][head].detach().double()[None]])
                left = row.softmax(-1)[: len(example)].numpy() @ values[site.layer][head]
                moved.append(np.linalg.norm(left - z[head]))
            terms.append(moved)
    found = attention_output_error.of(example).scores
    np.testing.assert_allclose(found, np.mean(terms, 0), rtol=1e-4, atol=1e-6)


def test_output_error_where_one_key_is_nearly_or_wholly_everything() -> None:
    value = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]], dtype=torch.double)
    for rest in (1e-3, 1e-12):
        weight = torch.tensor([[1 - rest, rest, 0.0]], dtype=torch.double)
        output = (weight[..., None] * value).sum(1)
        found = errors(weight, value, output)[0]
        # without the first key only the second is left
        assert found[0] == pytest.approx(float((value[0, 1] - output[0]).norm()), rel=1e-3)
        assert found[1] == pytest.approx(
            rest / (1 - rest) * float((output[0] - value[0, 1]).norm())
        )
        assert found[2] == 0
    # float32 rounds the larger weight to 1: what is left is the other key all the same
    rounded = torch.tensor([[1.0, 1e-7, 0.0]], dtype=torch.double)
    output = (rounded[..., None] * value).sum(1)
    assert errors(rounded, value, output)[0, 0] == pytest.approx(5**0.5, rel=1e-5)
    alone = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.double)
    found = errors(alone, value, value[:, 0])[0]
    np.testing.assert_array_equal(found, [1.0, 0.0, 0.0])  # nothing is left: the output's own norm
    nothing = torch.zeros(1, 3, dtype=torch.double)
    np.testing.assert_array_equal(errors(nothing, value, torch.zeros(1, 2)), 0)
    # half a sink: dropping the key leaves nothing but the sink
    sink = torch.tensor([[0.5, 0.0, 0.0]], dtype=torch.double)
    assert errors(sink, value, 0.5 * value[:, 0])[0, 0] == pytest.approx(0.5)


@pytest.mark.parametrize("family", FAMILIES)
def test_column_concentration_is_the_square_of_the_share_received(family: str) -> None:
    example, patterns = example_of(family)
    n = len(example)
    seen_by = np.full(n, n) if family == "bert" else n - np.arange(n)
    shares = []
    for pattern in patterns.values():
        received = pattern.sum(1) / seen_by
        shares.append(received / received.sum(1, keepdims=True))
    squares = np.concatenate(shares) ** 2
    found = column_concentration.of(example)
    np.testing.assert_allclose(found.scores, squares.mean(0), rtol=1e-4, atol=1e-7)
    assert found.total == pytest.approx(squares.sum(1).mean(), rel=1e-5)
    assert abs(found.residual) < 1e-12
    assert 1 / n <= found.total <= 1
    assert found.notes["effective tokens"] == pytest.approx(1 / found.total)


def test_cross_attention_scores_the_encoder_s_tokens_and_other_stacks_are_refused() -> None:
    example, patterns = example_of("t5")
    cross = np.stack([p for (stack, _), p in patterns.items() if stack == "cross"])
    found = mean_attention.of(example, stack="cross")
    np.testing.assert_allclose(found.scores, cross.mean((0, 1))[-1], atol=1e-6)
    encoder = np.stack([p for (stack, _), p in patterns.items() if stack == "encoder"])
    found = raw_attention.of(example, stack="encoder")
    np.testing.assert_allclose(found.scores, encoder[-1].mean((0, 1)), atol=1e-6)
    for method in (
        raw_attention,
        mean_attention,
        value_weighted,
        attention_output_error,
        column_concentration,
    ):
        with pytest.raises(OptionError, match="not a score of these tokens"):
            method.of(example, stack="decoder")
        with pytest.raises(OptionError, match="choose one"):
            method.of(example)


def test_options_that_do_not_fit() -> None:
    example, _ = example_of("bert", length=4)
    with pytest.raises(OptionError, match="known: 1, 2"):
        value_weighted.of(example, norm=3)
    with pytest.raises(OptionError, match="layer=9 does not exist; there are"):
        raw_attention.of(example, layer=9)
