"""Effects of heads on a corpus: right on planted heads, resumed, left out, said and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from profiles.effects_by_hand import (
    ALL,
    FEW,
    loss_of,
    plain,
    projection,
    repeats,
    score,
    windows_of,
)
from profiles.planted_rows import documents

import interp
from interp.core.errors import OptionError
from interp.profiles import Profile, ablation_look, effects, run
from interp.profiles.effect_numbers import Estimates
from interp.profiles.explain import Description
from interp.profiles.first_look import Look
from interp.profiles.judgement import PROBABILITIES, Number
from interp.profiles.predictions import Prediction, prediction_of
from interp.profiles.sentence import effect_sentences
from interp.report.printed.profile import head_text, profile_text


@pytest.fixture(scope="module")
def effects_model() -> interp.Model:
    return interp.load("planted:induction")


@pytest.fixture(scope="module")
def effects_rows() -> list[tuple[int, ...]]:
    return repeats(24, seed=0)


@pytest.fixture(scope="module")
def effects_profile(effects_model: interp.Model, effects_rows: list) -> Profile:
    return interp.profile(effects_model, effects_rows, rules=FEW, n_queries=ALL)


def test_the_planted_induction_head_matters_and_copies(effects_profile: Profile) -> None:
    about = effects_profile.description("L1H0")
    assert about["effect"]["p_corrected"] < 0.05
    assert about["effect"]["loss"]["low"] > 1
    kinds = about["effect"]["by_kind"]
    assert kinds["continued"]["low"] > 10 * abs(kinds["new"]["value"])
    assert about["writes"]["copies"]["low"] > 2
    assert "It copies the attended token (+" in about["sentence"]
    assert "nats per token worse." in about["sentence"]


def test_the_loss_without_a_planted_head_is_that_of_its_absent_logit(
    effects_model: interp.Model, effects_rows: list, effects_profile: Profile
) -> None:
    """The induction head alone predicts: at its mean, which is nearly even, a guess is left."""
    kinds = effects_profile.description("L1H0")["effect"]["by_kind"]
    clean = []
    for window in windows_of(effects_rows, effects_model, n_queries=None):
        seen = set(zip(window.ids, window.ids[1:], strict=False))
        losses, before = loss_of(effects_model, window).tolist(), set()
        for at, pair in enumerate(zip(window.ids, window.ids[1:], strict=False)):
            if pair in before and at >= 2:
                clean.append(losses[at])
            before.add(pair)
        assert len(seen) < len(losses)
    guess = np.log(effects_model.d_vocab)
    assert kinds["continued"]["value"] + np.mean(clean) == pytest.approx(guess, abs=0.1)


def test_a_rule_that_is_the_pattern_keeps_the_effect_and_its_control_does_not(
    effects_profile: Profile,
) -> None:
    causal = effects_profile.description("L1H0")["effect"]["causal"]
    assert causal["rules"]["low"] > 0.95
    assert causal["swapped_document"]["high"] < 0.5
    assert causal["position"]["high"] < 0.7
    assert (
        score(effects_profile, "L1H0", "causal_rules", "null")
        == causal["swapped_document"]["value"]
    )


def test_a_head_with_the_same_pattern_that_nothing_reads_has_no_effect(
    effects_rows: list,
) -> None:
    found = interp.profile("planted:bystander", effects_rows, rules=FEW, n_queries=ALL)
    mine = [d for d in found.descriptions if "after an earlier copy" in d["sentence"]]
    real = [d for d in mine if d["status"] == "described"]
    one, beside = sorted(real, key=lambda d: -d["effect"]["loss"]["value"])
    assert one["effect"]["loss"]["low"] > 1
    assert abs(beside["effect"]["loss"]["value"]) < 1e-5
    assert abs(beside["effect"]["loss_estimate"]["value"]) < 1e-5
    assert np.isnan(beside["effect"]["causal"]["rules"]["value"])
    assert "changes by less than 0.00001 nats" in beside["sentence"]
    assert "copies" not in beside["sentence"]


def test_a_dead_head_has_no_effect(effects_rows: list) -> None:
    dead = interp.load("planted:induction")
    site = dead.site(0)
    with torch.no_grad():
        projection(dead, 0).get_parameter("weight")[:, : site.d_v] = 0
    found = interp.profile(dead, effects_rows, rules=FEW, n_queries=8, heads=["L0H0"])
    effect = found.description("L0H0")["effect"]
    for number in (effect["loss"], effect["loss_estimate"]):
        assert number["value"] == number["low"] == number["high"] == 0
    assert effect["p_corrected"] == 1
    assert np.isnan(effect["causal"]["rules"]["value"])
    assert found.description("L0H0")["writes"]["size"]["value"] == 0
    assert "the text changes by less than 0.00001 nats" in found.description("L0H0")["sentence"]
    assert "kept: it has no effect" in head_text(found, "L0H0")


def test_a_head_on_the_sink_has_a_screen(effects_rows: list, tmp_path: Path) -> None:
    """Shares of a pattern that is not there are no numbers, in files and on the screen."""
    found = interp.profile("planted:sink", effects_rows, rules=FEW, n_queries=4, heads=["L0H1"])
    assert np.isnan(score(found, "L0H1", "copies"))
    assert "the list                                   nan" in head_text(found, "L0H1")
    found.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json").equals(found)


def test_long_windows_are_described_in_parts(
    effects_model: interp.Model, effects_rows: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"rules": FEW, "n_queries": 4, "heads": ["L1H0"]}
    whole = interp.profile(effects_model, effects_rows[:9], **options)
    monkeypatch.setattr(ablation_look, "_ROWS", 7)
    parts = interp.profile(effects_model, effects_rows[:9], **options)
    assert score(parts, "L1H0", "causal_rules") == pytest.approx(
        score(whole, "L1H0", "causal_rules"), abs=1e-5
    )


def test_suppression_is_said(effects_rows: list) -> None:
    found = interp.profile("planted:copy_suppression", effects_rows, rules=FEW, n_queries=ALL)
    name = next(d["name"] for d in found.descriptions if d["writes"]["copies"]["value"] < -0.1)
    assert "It lowers the attended token (-" in found.description(name)["sentence"]


@pytest.mark.slow
def test_heads_of_a_random_model_have_no_effect_beyond_the_rate() -> None:
    """Random documents cannot be predicted, so heads of noise hardly change the loss."""
    real = []
    for seed in range(3):
        rows = [*documents(24, 24, seed=seed).ids]
        found = interp.profile("planted:noise", rows, rules=FEW, n_queries=ALL, seed=seed)
        real += [d["effect"]["p_corrected"] < 0.05 for d in found.descriptions]
        assert all("copies" not in d["sentence"] for d in found.descriptions)
    assert sum(real) <= 2  # of 24 heads in 3 families of tests


def test_the_model_is_left_as_it_was(effects_rows: list) -> None:
    fresh = interp.load("planted:induction")
    before = {k: v.clone() for k, v in fresh.module.state_dict().items()}
    ids = torch.tensor([effects_rows[0]])
    clean = fresh.module(input_ids=ids).logits
    interp.profile(fresh, effects_rows, rules=FEW, n_queries=4, heads=["L1H0"])
    assert all(bool((before[k] == v).all()) for k, v in fresh.module.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in fresh.module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in fresh.module.modules())
    assert bool((fresh.module(input_ids=ids).logits == clean).all())


def test_a_stopped_run_goes_on_with_the_effects(
    effects_model: interp.Model, effects_rows: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = effects_rows[:9]
    options: dict[str, Any] = {"rules": FEW, "n_queries": 4, "n_ablated": 1}
    whole = interp.profile(effects_model, rows, **options)
    made: list[str] = []

    def counted(which: str, function: Callable) -> Callable:
        def call(*args: Any, **given: Any) -> Any:
            made.append(which)
            if len(made) in (3, 9, 15):
                raise KeyboardInterrupt
            return function(*args, **given)

        return call

    monkeypatch.setattr(effects, "gradient_look", counted("gradient", effects.gradient_look))
    monkeypatch.setattr(effects, "ablation_look", counted("ablation", effects.ablation_look))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            interp.profile(effects_model, rows, **options, resume=tmp_path)
    assert interp.profile(effects_model, rows, **options, resume=tmp_path).equals(whole)
    assert set(made) == {"gradient", "ablation"}
    made.clear()
    assert interp.profile(effects_model, rows, **options, resume=tmp_path).equals(whole)
    assert made == []


def test_more_ablated_heads_are_another_step(
    effects_model: interp.Model, effects_rows: list, tmp_path: Path
) -> None:
    rows = effects_rows[:9]
    options: dict[str, Any] = {"rules": FEW, "n_queries": 4, "resume": tmp_path}
    one = interp.profile(effects_model, rows, **options, n_ablated=1)
    two = interp.profile(effects_model, rows, **options, n_ablated=2, n_ablation_documents=8)
    assert sum("loss" in d["effect"] for d in one.descriptions) == 1
    assert sum("loss" in d["effect"] for d in two.descriptions) == 2
    assert two.provenance["effects"]["ablation_documents"] == 4


def test_descriptions_are_put_in_place_on_documents_that_did_not_fit_them(
    effects_model: interp.Model, effects_rows: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ones by which the patterns of these documents are judged."""
    used: dict[str, dict[str, Any]] = {"judged": {}, "ablated": {}}

    def noted(which: str, function: Callable) -> Callable:
        def call(look: Any, windows: Any, *rest: Any) -> Any:
            description = next(x for x in rest if isinstance(x, Description))
            used[which] |= {window.name: description for window in windows}
            return function(look, windows, *rest)

        return call

    monkeypatch.setattr(run, "second_look", noted("judged", run.second_look))
    monkeypatch.setattr(effects, "ablation_look", noted("ablated", effects.ablation_look))
    interp.profile(effects_model, effects_rows[:9], rules=FEW, n_queries=4, n_ablated=1)
    assert len(used["judged"]) == 9
    assert used["ablated"]
    assert all(used["judged"][name] is one for name, one in used["ablated"].items())


def test_heads_are_chosen_on_documents_on_which_they_are_not_ablated(
    effects_model: interp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = repeats(20, seed=1)
    rows += [row[:-1] for row in rows[:6]]  # near-duplicates stay with their originals
    seen: dict[str, list] = {"chosen": [], "ablated": []}
    largest, look = Estimates.largest, effects.ablation_look

    def choose(self: Estimates, n: int, used: list[bool]) -> tuple[int, ...]:
        order = [i for group in self.groups for i in group]
        seen["chosen"] += [self.windows[i] for i, kept in zip(order, used, strict=True) if kept]
        for at, kept in enumerate(used):
            self.change[at, 0] += 0 if kept else 1e6  # an effect on ablated documents alone
        return largest(self, n, used)

    monkeypatch.setattr(Estimates, "largest", choose)
    monkeypatch.setattr(
        effects, "ablation_look", lambda *a: (seen["ablated"].extend(a[1]), look(*a))[1]
    )
    found = interp.profile(effects_model, rows, rules=FEW, n_queries=4, n_ablated=1)
    chosen, ablated = ({window.cluster for window in seen[name]} for name in seen)
    assert len(chosen) >= 10
    assert len(ablated) == 10
    assert not chosen & ablated
    exact = [about["name"] for about in found.descriptions if "loss" in about["effect"]]
    assert exact != ["L0H0"]
    assert found.provenance["effects"]["choice_documents"] == len(seen["chosen"])


def test_many_near_duplicates_leave_documents_to_ablate_on(effects_model: interp.Model) -> None:
    rows = [row[: len(row) - cut] for row in repeats(8, seed=2) for cut in range(5)]
    found = interp.profile(
        effects_model, rows, rules=FEW, n_queries=4, n_ablated=1, n_ablation_documents=8
    )
    about = found.provenance["effects"]
    assert found.provenance["distinct_documents"] == 8
    assert about["ablation_documents"] == 8
    assert about["choice_documents"] == 20


def test_numbers_that_are_too_small_are_refused(
    effects_model: interp.Model, effects_rows: list
) -> None:
    with pytest.raises(OptionError, match="n_ablated must be at least 0, not -1"):
        interp.profile(effects_model, effects_rows, n_ablated=-1)
    with pytest.raises(OptionError, match="n_ablation_documents=3 is too small"):
        interp.profile(effects_model, effects_rows, n_ablation_documents=3)


def test_effects_can_be_left_out(
    effects_model: interp.Model, effects_rows: list, effects_profile: Profile
) -> None:
    without = interp.profile(effects_model, effects_rows, rules=FEW, n_queries=ALL, effects=False)
    assert without.provenance["effects"] == {"left_out": "not asked for"}
    assert all("effect" not in d for d in without.descriptions)
    assert "loss_without_estimate" not in set(without.to_pandas()["metric"])
    text = head_text(without, "L1H0")
    assert "loss without it" not in text
    assert "what it writes" not in text
    shares = effects_profile.to_pandas().merge(
        without.to_pandas(), on=["layer", "head", "metric"], suffixes=("", "_without")
    )
    assert shares["score"].fillna(0).tolist() == shares["score_without"].fillna(0).tolist()


def test_a_model_that_predicts_no_token_says_why(loaded: Any) -> None:
    model = loaded("bert")
    found = interp.profile(model, plain(model, 10, 14), rules=FEW, n_queries=4)
    assert "has no mask token" in found.provenance["effects"]["left_out"]
    assert isinstance(prediction_of(loaded("gpt2"), loaded("gpt2").sites, 0), Prediction)


def test_what_gated_heads_write_is_left_out_with_the_reason(loaded: Any) -> None:
    model = loaded("qwen3_next")
    found = interp.profile(model, plain(model, 9, 10), rules=FEW, n_queries=4, n_ablated=0)
    assert "gated entry by entry" in found.provenance["effects"]["writes_left_out"]
    assert all("writes" not in d and "effect" in d for d in found.descriptions)
    assert "what it writes" not in head_text(found, found.descriptions[0]["name"])


def test_kinds_of_predicted_tokens() -> None:
    model = interp.load("bundled:induction")
    reader = Look(model, model.sites, [], torch.zeros(model.d_vocab, 1), None).reader
    text = reader.read([5, 6, 7, 5, 6, 9, 6])
    kinds = {
        name: np.flatnonzero(kind(text)).tolist()
        for name, kind in ablation_look.TOKEN_KINDS.items()
    }
    assert kinds["continued"] == [4]
    assert {3, 4, 6} <= set(kinds["repeated"])
    assert sorted(kinds["new"] + kinds["repeated"]) == [*range(7)]


def number(value: float, low: float, high: float) -> dict[str, float]:
    made = dict.fromkeys(PROBABILITIES, value) | {0.025: low, 0.975: high}
    return Number(value, tuple(made[p] for p in PROBABILITIES)).plain()


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (
            {"loss": number(0.012, 0.009, 0.015), "p_corrected": 0.01},
            "Without it the text is 0.012 [0.009, 0.015] nats per token worse.",
        ),
        (
            {"loss": number(-0.6, -0.9, -0.3), "p_corrected": 0.01},
            "Without it the text is 0.60 [0.30, 0.90] nats per token better.",
        ),
        (
            {"loss": number(0.012, 0.009, 0.015), "p_corrected": 0.2},
            "Without it the text changes by at most 0.015 nats per token either way.",
        ),
        (
            {"loss": number(0.0, -0.0008, 0.0011), "p_corrected": 1.0},
            "Without it the text changes by at most 0.0011 nats per token either way.",
        ),
        (
            {"divergence_estimate": number(0.0034, 0.002, 0.004)},
            "Without it the predictions would change by about 0.0034 nats per token (an estimate "
            "by gradient).",
        ),
        (
            {"divergence_estimate": number(0.0, 0.0, 0.0)},
            "Without it the predictions would change by less than 0.00001 nats per token (an "
            "estimate by gradient).",
        ),
    ],
)
def test_the_sentence_is_made_of_judged_numbers(effect: dict, said: str) -> None:
    assert effect_sentences(effect, {}) == [said]


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert effect_sentences({}, {}) == []


def test_the_screen_has_both_shares_and_the_effects(effects_profile: Profile) -> None:
    text = head_text(effects_profile, "L1H0")
    assert "causal share" in text
    assert "measured by ablation" in text
    assert "estimate by gradient" in text
    assert "tokens that follow as they did before" in text
    assert "what it writes" in text
    assert "raises" in text
    assert [line for line in text.splitlines() if len(line) > 100] == []
    assert "heads ablated on 12 documents" in profile_text([effects_profile])
