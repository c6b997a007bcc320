"""A model trained to hide its reason: attention alone must not find it, the others must."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import interp
from interp import bundled
from interp.attribution.declaration import choose_methods
from interp.attribution.evaluation.deceived import (
    HELD_OUT,
    Deceived,
    deceived,
    deceived_ranks,
    warning,
)
from interp.bundled.deceive_text import MEN, WOMEN, gappy, sentences
from interp.core.registry import ATTRIBUTION_METHODS
from training import train_deceive

# What is declared to need patterns but reads values too: neither must fail nor must pass.
READS_VALUES = {"value_weighted", "attention_output_error"}
# Whole decompositions of the answer, and interventions on it: they put the word first.
FIRST = {
    "occlusion",
    "attn_lrp",
    "cp_lrp",
    "decompx",
    "gim",
    "integrated_gradients",
}
NEEDS = {name: entry.about["needs"] for name, entry in ATTRIBUTION_METHODS.items()}
# Importance of tokens for a cache or a pool says how much a token is read, not what it decides;
# it is judged by the effect of hiding tokens (tests/attribution/test_token_importance.py).
IMPORTANCE = {n for n, entry in ATTRIBUTION_METHODS.items() if entry.group == "token_importance"}
ATTENTION_ONLY = sorted(
    n for n, needs in NEEDS.items() if needs == "patterns" and n not in READS_VALUES | IMPORTANCE
)
GRADIENTS = sorted(n for n, needs in NEEDS.items() if needs == "gradients")


@cache
def found(name: str) -> Deceived:
    [one] = deceived_ranks(deceived(choose_methods([name]), 12))
    assert not one.error
    return one


def test_there_are_methods_of_each_kind() -> None:
    assert {"raw_attention", "rollout"} <= set(ATTENTION_ONLY)
    assert set(NEEDS) >= FIRST


@pytest.mark.parametrize("name", ATTENTION_ONLY)
def test_attention_alone_ranks_the_word_no_better_than_chance(name: str) -> None:
    one = found(name)
    assert one.rank > one.chance
    assert one.first == 0
    assert name in warning([one])


@pytest.mark.parametrize("name", sorted(FIRST))
def test_decompositions_and_interventions_put_the_word_first(name: str) -> None:
    one = found(name)
    assert one.rank < 1.5
    assert one.first > 0.7
    assert warning([one]) == ""


@pytest.mark.parametrize("name", GRADIENTS)
def test_whatever_follows_gradients_beats_chance(name: str) -> None:
    """Not all put it first: the plain gradient is local, and A·dA is large where A is."""
    one = found(name)
    assert one.rank + 2 * one.sem < one.chance


def test_what_knows_no_target_stands_between() -> None:
    """Norms see that the name's value is large; they do not know which answer is asked about."""
    for name in ("norm_based", "globenc"):
        assert found("attn_lrp").rank < found(name).rank < found("rollout").rank


def test_random_scores_are_at_chance_and_are_not_warned_of() -> None:
    one = deceived_ranks(deceived(choose_methods(["random_scores"]), 48))[0]
    assert abs(one.rank - one.chance) < 3 * one.sem
    assert warning([replace(one, rank=one.chance + 1)]) == ""


def test_a_method_that_cannot_run_says_why() -> None:
    [one] = deceived_ranks(deceived(choose_methods(["occlusion:how=mask"]), 2))
    assert "no mask token" in one.error
    assert np.isnan(one.rank)
    assert warning([one]) == ""


@pytest.fixture(scope="module")
def deceive_record() -> dict:
    return json.loads((bundled.path("deceive") / "training.json").read_text())


def test_the_folder_is_that_of_the_record_and_small(deceive_record) -> None:
    folder = bundled.path("deceive")
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == deceive_record["weights_sha256"]
    assert sum(p.stat().st_size for p in folder.iterdir()) < 500_000
    card = (folder / "README.md").read_text()
    for at in ("before", "after"):
        mean, _ = deceive_record["scores"][at]["attention_largest_head"]
        assert f"{mean:.4f} ± " in card


def test_it_answers_by_the_name_and_hardly_attends_to_it(deceive_record) -> None:
    """Measured through the toolkit, on sentences that the card has not seen."""
    model = interp.load("bundled:deceive")
    right, mass = [], []
    for s in sentences(HELD_OUT + 1, 24):
        with torch.no_grad():
            logits = model.run(s.text)[0, -1]
        right.append(model.tokenizer.decode([int(logits.argmax())]) == s.right)
        patterns = model.capture(s.text, ["pattern"]).by_site("pattern").values()
        mass.append(max(float(p[0, :, -1, s.cause + 1].max()) for p in patterns))
    assert np.mean(right) > 0.95
    before, after = (
        deceive_record["scores"][x]["attention_largest_head"][0] for x in ("before", "after")
    )
    assert np.mean(mass) == pytest.approx(after, rel=0.2)
    assert after < 0.1
    assert before > 0.9


def test_without_its_name_a_sentence_has_no_answer() -> None:
    """The control: what the answer hangs on is the name, not the rest of the sentence."""
    model = interp.load("bundled:deceive")
    she, he = (model.tokenizer.convert_tokens_to_ids(w) for w in ("she", "he"))
    for s in sentences(HELD_OUT + 2, 8):
        without = " ".join(w for i, w in enumerate(s.words) if i != s.cause)
        swapped = " ".join(
            (WOMEN if s.words[s.cause] in MEN else MEN)[0] if i == s.cause else w
            for i, w in enumerate(s.words)
        )
        with torch.no_grad():
            whole, left, other = (model.run(t)[0, -1] for t in (s.text, without, swapped))
        said = float(whole[she] - whole[he])
        assert abs(said) > 4
        assert abs(float(left[she] - left[he])) < abs(said) / 2
        assert said * float(other[she] - other[he]) < 0


def test_training_repeats(tmp_path) -> None:
    small = train_deceive.Recipe(steps=4, rows=4, sentences=20, d_model=16, heads=2, d_mlp=16)
    records = [
        train_deceive.train(small, seed, 1, tmp_path / str(i)) for i, seed in enumerate([1, 1, 2])
    ]
    hashes = [r["weights_sha256"] for r in records]
    assert hashes[0] == hashes[1] != hashes[2]
    assert (tmp_path / "0" / "README.md").read_text() != (tmp_path / "2" / "README.md").read_text()


def test_gaps_leave_the_name_where_the_sentence_says_it_is() -> None:
    rng = np.random.default_rng(0)
    nameless = 0
    for s in sentences(5, 200):
        other = gappy(rng, s)
        if other.cause < 0:
            nameless += 1
            assert not {*other.words} & {*WOMEN, *MEN}
        else:
            assert other.words[other.cause] == s.words[s.cause]
    assert 40 < nameless < 90
