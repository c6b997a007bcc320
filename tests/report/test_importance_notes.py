"""The sentences below a table of importances: every note of every method, in plain words."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from interp import causal
from interp.causal.shapley_values.surrogate import bias_check
from interp.report.printed.importance_notes import LEFT_OUT, explained_notes

HEADS = ["L0H1", "L1H0", "L1H1"]


@pytest.fixture(scope="module")
def importances(planted_bystander, bystander_repeats):
    """One importance by every method that leaves notes."""
    sampled = {"heads": ["L0H0", "L0H1", "L1H0", "L1H1"], "max_evaluations": 14}
    return {
        "exact": causal.shapley(planted_bystander, bystander_repeats, heads=HEADS),
        "permutations": causal.shapley(
            planted_bystander, bystander_repeats, method="permutations", **sampled
        ),
        "surrogate": causal.shapley(
            planted_bystander, bystander_repeats, method="surrogate", **sampled
        ),
        "banzhaf": causal.banzhaf(planted_bystander, bystander_repeats, heads=HEADS),
        "truncated": causal.truncated_shapley(planted_bystander, bystander_repeats, heads=HEADS),
        "gradients": causal.aumann_shapley(
            planted_bystander, bystander_repeats, steps=4, null="none"
        ),
        "ablation": causal.leave_one_out(planted_bystander, bystander_repeats, null="none"),
    }


def test_every_note_has_a_sentence_or_is_left_out(importances) -> None:
    for name, found in importances.items():
        for line in explained_notes(found):
            for key in found.notes:
                assert key not in LEFT_OUT or key not in line
                assert not line.startswith(f"{key.replace('_', ' ')}:"), f"{name}: {line}"
            assert "_" not in line.replace("second_copy_loss", ""), "the name of a task is as it is"
            assert "nan" not in line.split()


def test_the_sentences_say_what_the_notes_say(importances) -> None:
    told = {name: "\n".join(explained_notes(found)) for name, found in importances.items()}
    for name in ("exact", "permutations", "surrogate"):
        notes = importances[name].notes
        assert (
            f"joint effect of all heads: {notes['v_all_minus_v_none']:.4g} nats/token" in told[name]
        )
        assert "the values of all heads add up to this; this holds on every prompt" in told[name]
    assert (
        "every set of heads was run, 6 besides the full and the empty one: no sampling error"
        in told["exact"]
    )
    sem = importances["surrogate"].notes["sampling_sem"]
    assert (
        f"14 sets of heads were run; the sampling error is at most {sem:.4g} nats/token"
        in (told["surrogate"])
    )
    gap = abs(importances["banzhaf"].notes["efficiency_gap"])
    assert (
        f"need not add up to this; they differ from it by up to {gap:.4g} nats/token"
        in told["banzhaf"]
    )
    assert "biased: not the Shapley value at any number of samples" in told["truncated"]
    alone = importances["ablation"]
    clean, none = alone.notes["v_clean"], alone.notes["v_none"]
    assert told["ablation"] == (
        f"the task second_copy_loss is {clean:.4g} nats/token with all heads and {none:.4g} without"
        f" the {len(alone.score)} heads; without L0H3 alone it is {clean + alone.score.max():.4g}"
    )
    residual = abs(importances["gradients"].notes["completeness_residual"])
    assert f"joint effect of all heads by {residual:.4g} nats/token on average" in told["gradients"]


@pytest.mark.parametrize(
    ("size", "noise", "pairs", "words"),
    [
        (0.045, 0.042, 4, "no bias detected: 0.045 ± 0.042 from 4 pairs of permutations"),
        (0.2, 0.042, 4, "task: bias detected: 0.2 ± 0.042 from 4 pairs"),
        (0.2, math.nan, 1, "one pair of permutations, which cannot separate bias from noise"),
    ],
)
def test_a_bias_is_claimed_only_where_its_error_allows(
    importances, size, noise, pairs, words
) -> None:
    said = bias_check(np.full(8, size), np.full(8, noise), pairs)
    notes = dict(importances["surrogate"].notes) | {"bias_check": said}
    told = explained_notes(replace(importances["surrogate"], notes=notes))
    assert [line for line in told if words in line], told


def test_a_note_without_a_sentence_is_shown_as_it_is(importances) -> None:
    told = explained_notes(replace(importances["ablation"], notes={"something_new": 0.5}))
    assert told == ["something new: 0.5"]
    assert re.match(
        "no null: overflow",
        explained_notes(replace(importances["ablation"], notes={"null": "none: overflow"}))[0],
    )
