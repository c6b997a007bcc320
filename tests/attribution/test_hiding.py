"""Tokens hidden from attention, and measures of importance judged by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attribution.graphs import example_of, last_row, tiny_llama

import interp
from interp.attribution import Example, compare_importance
from interp.attribution.evaluation.paired import p_against
from interp.attribution.evaluation.removal import one_by_one, values_without
from interp.bundled import deceive_text
from interp.core.errors import OptionError

TEXTS = [s.text for s in deceive_text.sentences(31_000, 6)]


def test_it_is_a_mask_of_the_keys() -> None:
    """Against the model with an attention mask of its own, written out."""
    module = tiny_llama()
    ids = torch.randint(0, 64, (1, 9), generator=torch.Generator().manual_seed(3))
    example = Example(interp.load(module, name="tiny"), {"input_ids": ids}, last_row())
    gone = np.zeros((3, 9), bool)
    gone[0, 0] = gone[1, [2, 5]] = gone[2, 8] = True
    found = values_without(example, gone, "hide")
    for row, value in zip(gone, found, strict=True):
        seen = torch.ones(9, 9).tril().bool()
        seen &= ~torch.from_numpy(row)[None] | torch.eye(9).bool()
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        with torch.no_grad():
            output = module(input_ids=ids, attention_mask=mask).logits
        assert value == pytest.approx(float(output[:, -1].mean(-1)), abs=1e-5)
    assert found[2] == pytest.approx(example.value, abs=1e-6)  # no other token sees the last one
    assert abs(found[0] - example.value) > 1e-4


@pytest.mark.parametrize("family", ["bert", "gpt_oss", "t5"])
def test_hiding_nothing_changes_nothing_and_a_sink_keeps_its_weight(family: str) -> None:
    example, _ = example_of(family)
    n = len(example)
    nothing, one = np.zeros((1, n), bool), one_by_one([1], n)
    before = example.value
    assert values_without(example, nothing, "hide")[0] == pytest.approx(before, abs=1e-5)
    assert abs(values_without(example, one, "hide")[0] - before) > 1e-9
    batched = values_without(example, np.concatenate([nothing, one]), "hide", 2)
    apart = [values_without(example, x, "hide", 1)[0] for x in (nothing, one)]
    np.testing.assert_allclose(batched, apart, atol=1e-5)


def test_a_softmax_with_a_sink_logit_is_normalised_with_it() -> None:
    from interp.attribution.evaluation.hiding import pattern_without

    class Given:
        def __init__(self, scores, sink):
            self._scores, self._sink = scores, sink

        def scores(self):
            return self._scores

        def pattern(self):
            whole = torch.cat([self._scores, self._sink.expand(*self._scores.shape[:-1], 1)], -1)
            return whole.softmax(-1)[..., :-1]

    scores = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    hidden = torch.tensor([False, True, False, False])[None, None, None]
    call = Given(scores, torch.tensor(0.3))
    found = pattern_without(call, None, hidden)  # type: ignore[arg-type]
    again = Given(scores.masked_fill(hidden, -torch.inf), torch.tensor(0.3))
    torch.testing.assert_close(found, again.pattern())


def test_hiding_the_token_that_an_induction_head_copies_changes_most() -> None:
    model = interp.load("planted:induction")
    rng = np.random.default_rng(0)
    for _ in range(4):
        first = (2 + rng.permutation(12)[:6]).tolist()
        ids = [0, *first, *first[:3]]  # the next token is first[3], at position 4
        example = Example(model, [ids], f"id:{first[3]}")
        effect = example.value - values_without(example, one_by_one(range(9), 10), "hide")
        assert effect.argmax() in (3, 4)  # what is copied, or what marks it


def test_measures_are_judged_on_held_out_texts() -> None:
    model = interp.load("bundled:deceive")
    found = compare_importance(model, TEXTS, ["ditto", "rsq"], "she|he", n_selection=2)
    assert found.texts == tuple(TEXTS[2:])
    head = found.provenance["chosen_head"]
    assert found.methods[:2] == [f"ditto:head={head}", "rsq"]
    table = found["spearman"].interval()
    one = table.set_index("method")
    assert one.loc["occlusion:how=hide", "score"] == pytest.approx(1)
    assert (one["low"] <= one["score"] + 1e-9).all()
    assert set(found.against_random()) == {*found.methods} - {"random_scores"}
    with pytest.raises(OptionError, match="leaves nothing to judge"):
        compare_importance(model, TEXTS[:2], ["rsq"], n_selection=2)


def test_p_values_against_random_order_are_calibrated() -> None:
    """Scores without any relation to the effect beat random order in 5 % of the tables."""
    rng = np.random.default_rng(0)
    below, tables = 0, 400
    for _ in range(tables):
        values = {name: rng.uniform(-1, 1, 9) for name in ("a", "b", "random")}
        below += min(p_against(values, "random").values()) < 0.05
    assert below / tables < 0.075
    better = {"a": 0.7 + 0.1 * rng.normal(size=9), "random": 0.1 * rng.normal(size=9)}
    assert p_against(better, "random")["a"] < 0.01
    assert p_against({"random": np.zeros(3)}, "random") == {}
