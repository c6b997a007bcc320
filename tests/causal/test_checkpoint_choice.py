"""Heads that a checkpoint keeps: by rankings, in equal groups, and in a form that is no larger."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
import zoo

import interp
from interp.causal import learn_gates, leave_one_out, repeats_task
from interp.causal.checkpoint.choose import gated_parts, ranked_heads
from interp.causal.checkpoint.save import save_pruned
from interp.core.errors import OptionError
from interp.core.table import HeadTable
from interp.model import edits
from interp.model.locate.probe import probe


@cache
def llama():
    one = zoo.FAMILIES["llama"]
    return probe(one.build(one.attentions[-1]), "llama")


def test_compact_never_makes_a_grouped_model_larger(tmp_path):
    """Where kv groups lose different numbers of heads, removed heads stay as zeros, with a note."""
    model = llama()  # 6 heads that share 2 kv heads
    for number, gone in enumerate(((0,), (0, 1), (0, 1, 3), (0, 1, 2, 3), (0, 1, 3, 4))):
        heads = [f"L1H{h}" for h in gone]
        out = save_pruned(model, heads, tmp_path / str(number), form="compact")
        before, after = (out.certificate["size"][x] for x in ("before", "after"))
        assert after["parameters"] <= before["parameters"]
        assert after["cache_bytes_per_token"] <= before["cache_bytes_per_token"]
        uneven = len({sum(h // 3 == g for h in gone) for g in (0, 1)} - {3}) > 1
        assert any("of zeros" in note for note in out.certificate["notes"]) == uneven
        again = interp.load(tmp_path / str(number), trust_remote_code=True)
        prompts = interp.repeats(model, n=2, max_length=6)
        wanted = model.run(prompts, [edits.zero(heads)])
        assert float((again.run(prompts) - wanted).detach().abs().max()) < 1e-5
        larger = after["parameters"] == before["parameters"]
        assert ("zeroed has no more" in repr(out)) == larger == (gone in ((0,), (0, 1)))


def test_equal_keeps_the_best_heads_that_leave_equal_groups(bundled_induction):
    """By hand: of 8 heads in 4 groups, one of each group is worth more than two whole groups."""
    model = bundled_induction
    score = np.array([[9.0, 1, 8, 1, 7, 1, 6, 1], [5.0, 5, 4, 4, 1, 1, 1, 1]])
    order = lambda s: [f"L{at // 8}H{at % 8}" for at in np.argsort(-s.ravel(), kind="stable")]  # noqa: E731
    table = HeadTable.from_scores(
        model=model.name,
        metric="induction",
        score=score,
        n=1,
        provenance={"content_hash": model.content_hash},
    )
    gone = [*ranked_heads(model, table, 8, equal=True).values()]
    # one of each: 30 + 11; whole groups: 18 + 18
    assert gone == [(1, 3, 5, 7), (1, 3, 5, 7)]
    score[1] = [9, 9, 8, 8, 0, 0, 0, 0]  # one of each: 30 + 17; whole groups: 19 + 34
    table = HeadTable.from_scores(
        model=model.name,
        metric="induction",
        score=score,
        n=1,
        provenance={"content_hash": model.content_hash},
    )
    assert [*ranked_heads(model, table, 8, equal=True).values()] == [(4, 5, 6, 7), (4, 5, 6, 7)]
    [first, second] = ranked_heads(model, order(score), 6, equal=True).values()
    assert (len(first), len(second)) == (5, 5), "three of eight heads, of three groups"


def test_rankings_choose_heads_and_equal_keeps_equal_groups(bundled_induction):
    model = bundled_induction
    task = repeats_task(model, n=3, max_length=10)
    ranking = leave_one_out(model, task, null="none")
    order = [f"L{layer}H{h}" for layer in (0, 1) for h in range(8)]
    plain = ranked_heads(model, order, 5)
    assert [len(x) for x in plain.values()] == [3, 8]
    equal = ranked_heads(model, ranking, 8, equal=True)
    kept = {s: [h for h in range(8) if h not in gone] for s, gone in equal.items()}
    sizes = {n for s, x in kept.items() for n in Counter(map(s.kv_head, x)).values()}
    assert [len(x) for x in kept.values()] == [4, 4]
    assert len(sizes) == 1
    with pytest.raises(OptionError, match="keep one of 2, 4, 6, 8, 12, 16 heads"):
        ranked_heads(model, ranking, 10, equal=True)
    with pytest.raises(OptionError, match="another model"):
        ranked_heads(llama(), ranking, 5)
    gates = learn_gates(model, task, n_restarts=1, steps=20, n_random=2)
    with pytest.raises(OptionError, match="another model"):
        gated_parts(llama(), gates)
