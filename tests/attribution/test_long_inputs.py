"""Methods on patterns and their gradients, streamed: the stored numbers, and no stored pattern."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attribution.graphs import example_of, last_row, tiny_llama

import interp
from interp.attribution import Example
from interp.attribution.gradients import WeightedPattern
from interp.attribution.graph import mixing, streamed_patterns
from interp.core.errors import OptionError
from interp.core.registry import ATTRIBUTION_METHODS
from interp.model.calls.call import ComputedCall

METHODS = [
    ("raw_attention", {"layer": 0}),
    ("raw_attention", {}),
    ("mean_attention", {}),
    ("value_weighted", {}),
    ("value_weighted", {"norm": 2}),
    ("value_weighted", {"received": True}),
    ("value_weighted", {"received": True, "norm": 2}),
    ("column_concentration", {}),
    ("attention_output_error", {}),
    ("attention_gradient", {}),
    ("chefer", {}),
]
EVERY = {"raw_attention", "column_concentration", "chefer"}
"""Methods that are tried on every family, as each kind of attention gives them other patterns."""
CASES = [
    pytest.param(method, options, family, id=f"{method}-{options}-{family}")
    for method, options in METHODS
    for family in ("bert", "gpt2", "llama", "mistral_sliding", "gemma2", "gpt_oss")
    if family in ("bert", "gpt_oss") or method in EVERY
]


def both(monkeypatch: pytest.MonkeyPatch, method: str, family: str, options: dict, position=-2):
    """The scores from stored patterns and streamed."""
    run = ATTRIBUTION_METHODS.load(method)
    stored = run.of(example_of(family, position=position)[0], **options)
    monkeypatch.setattr(streamed_patterns, "STORED_BYTES", 0)
    return stored, run.of(example_of(family, position=position)[0], **options)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options", "family"), CASES)
def test_streamed_is_stored(monkeypatch, method, options, family) -> None:
    stored, streamed = both(monkeypatch, method, family, options)
    assert "engine" not in stored.notes
    assert streamed.notes["engine"] == "streamed"
    size = np.abs(stored.scores).max()
    np.testing.assert_allclose(streamed.scores, stored.scores, rtol=1e-4, atol=2e-6 * size)
    assert np.ptp(stored.scores) > 1e-3 * size  # not scores that any method would get right


@pytest.mark.parametrize("method", ["mean_attention", "value_weighted"])
def test_a_target_of_all_positions_is_a_weighted_sum(monkeypatch, method) -> None:
    monkeypatch.setattr(streamed_patterns, "FEW", 3)
    stored, streamed = both(monkeypatch, method, "llama", {}, position=None)
    np.testing.assert_allclose(streamed.scores, stored.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("method", ["raw_attention", "attention_gradient", "chefer"])
def test_no_block_is_a_whole_pattern(monkeypatch, method) -> None:
    """Blocks of queries make the same scores, whatever their size."""
    model = interp.load(tiny_llama(), name="tiny")
    ids = torch.randint(64, (1, 200), generator=torch.Generator().manual_seed(0))
    stored = ATTRIBUTION_METHODS.load(method).of(Example(model, {"input_ids": ids}, last_row()))
    own, seen = ComputedCall.pattern, []

    def pattern(self, rows=slice(None)):
        found = own(self, rows)
        seen.append(found.shape[2])
        return found

    monkeypatch.setattr(ComputedCall, "pattern", pattern)
    monkeypatch.setattr(streamed_patterns, "STORED_BYTES", 0)
    monkeypatch.setattr("interp.attribution.gradients.ENTRIES", 4 * 200 * 32)
    streamed = ATTRIBUTION_METHODS.load(method).of(Example(model, {"input_ids": ids}, last_row()))
    assert max(seen, default=0) <= 32
    np.testing.assert_allclose(streamed.scores, stored.scores, rtol=2e-4, atol=1e-7)


def test_weights_times_derivatives_by_hand() -> None:
    """One head, two tokens, zero scores: P is known, G is the outer product of g and v."""
    q, v = torch.zeros(1, 1, 2, 1), torch.tensor([[[[2.0], [3.0]]]])
    call = ComputedCall(q=q, k=q, v=v, z=v, scale=1.0, causal=True)
    ((_, block),) = WeightedPattern(call, torch.tensor([[[1.0], [10.0]]])).blocks()
    expected = torch.tensor([[[2.0, 0.0], [10.0, 15.0]]]).double()
    torch.testing.assert_close(block, expected)


@pytest.mark.parametrize(
    ("method", "options"),
    [("rollout", {"full": True}), ("attention_flow", {}), ("rollout", {"heads": "max"})],
)
def test_a_matrix_too_large_is_refused_in_one_line(monkeypatch, method, options) -> None:
    monkeypatch.setattr(mixing, "MOST_BYTES", 1000)
    with pytest.raises(OptionError, match=r"10 tokens have patterns of 0 GiB.*rollout \(without"):
        ATTRIBUTION_METHODS.load(method).of(example_of("llama")[0], **options)


def test_stored_patterns_and_own_code_do_not_stream(monkeypatch) -> None:
    monkeypatch.setattr(streamed_patterns, "STORED_BYTES", 0)
    kept, _ = example_of("llama")
    kept.patterns()
    assert not streamed_patterns.is_streamed(kept, "")
    assert not streamed_patterns.is_streamed(example_of("deberta")[0], "")
    assert streamed_patterns.is_streamed(example_of("llama")[0], "")
