"""Profiles of heads whose behaviour is known: the right rules, shares and examples, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from profiles.planted_rows import documents, elsewhere, even, hidden_keys, mixture, on, plant

import interp
from interp.profiles import Profile
from interp.profiles.corpus import DocumentCorpus, sample_corpus
from interp.profiles.log_linear import (
    Features,
    Sheet,
    fit_row_models,
    fit_single_rules,
    log_rows,
    mass_on_rules,
)
from interp.report.printed.profile import head_text


def previous(query, key):
    """Attends to the token just before."""
    return key == query - 1


def induction(query, key, tokens):
    """Attends to the token after an earlier copy."""
    return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])


def copies(query, key, tokens):
    """Attends to earlier copies."""
    return (tokens[key] == tokens[query]) & (key < query)


def alike(query, key, tokens):
    """Attends to tokens of the same parity."""
    return (tokens[key] % 3 == tokens[query] % 3) & (key < query)


RULES = [previous, induction, copies, alike]
HEADS = [
    mixture((0.9, induction)),
    mixture((0.5, induction), (0.3, copies)),
    mixture((0.4, alike), (0.4, copies)),
    elsewhere,
    mixture((0.9, previous)),
    mixture(),
    mixture((0.6, copies), sink=0.99),
    mixture((0.6, copies), sink=0.7),
]


@pytest.fixture(scope="module")
def corpus() -> list[tuple[int, ...]]:
    return [*documents(40, 32, seed=3).ids]


@pytest.fixture(scope="module")
def planted_profile(corpus: list) -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, HEADS)
        return interp.profile("planted:noise", corpus, rules=RULES, n_queries=16, effects=False)


def labels(planted_profile: Profile, head: str) -> dict[str, dict]:
    return {label["rule"]: label for label in planted_profile.description(head)["labels"]}


def number(planted_profile: Profile, head: str, metric: str) -> float:
    about = planted_profile.description(head)
    frame = planted_profile.to_pandas()
    mine = frame[(frame["layer"] == about["layer"]) & (frame["head"] == about["head"])]
    return float(mine.set_index("metric").loc[metric, "score"])


def true_share(corpus: list, head: int, mask) -> float:
    """Share of a head's attention off the sink on the keys of a predicate, over all queries."""
    sample = sample_corpus(DocumentCorpus(corpus), interp.load("planted:noise"), n_queries=None)
    top = under = 0.0
    for window in sample.windows:
        row = HEADS[head](window)
        top += float((row * (on(window, mask) > 0)).sum())
        under += float(row.sum())
    return top / under


def test_one_rule_is_found_with_its_share(planted_profile: Profile, corpus: list) -> None:
    assert planted_profile.description("L0H0")["status"] == "rules"
    [label] = labels(planted_profile, "L0H0").values()
    assert label["rule"] == "induction"
    truth = true_share(corpus, 0, induction)
    assert label["share"]["low"] < truth < label["share"]["high"]
    assert number(planted_profile, "L0H0", "explained_rules") > 0.9
    assert number(planted_profile, "L0H0", "needs_context") < 0.1


def test_both_rules_of_a_mixture_are_found(planted_profile: Profile, corpus: list) -> None:
    mine = labels(planted_profile, "L0H1")
    assert set(mine) == {"induction", "copies"}
    for rule in (induction, copies):
        share = mine[rule.__name__]["share"]
        assert share["low"] < true_share(corpus, 1, rule) < share["high"]


def test_a_rule_alone_explains_what_the_rules_of_its_head_do(planted_profile: Profile) -> None:
    [label] = labels(planted_profile, "L0H0").values()
    gain = number(planted_profile, "L0H0", "beyond_position")
    assert label["alone"]["value"] == pytest.approx(gain, abs=0.01)
    assert label["alone"]["low"] < gain < label["alone"]["high"]


def test_no_rule_of_a_mixture_explains_alone_what_both_do(planted_profile: Profile) -> None:
    gain = number(planted_profile, "L0H1", "beyond_position")
    alone = [label["alone"] for label in labels(planted_profile, "L0H1").values()]
    assert all(0.05 < one["low"] < one["high"] < gain for one in alone)
    assert "alone*" in head_text(planted_profile, "L0H1")


def test_a_rule_that_a_head_does_not_follow_explains_nothing_alone(
    planted_profile: Profile,
) -> None:
    [nearest] = labels(planted_profile, "L0H3").values()
    assert abs(nearest["alone"]["value"]) < 0.05


def test_single_rules_are_fitted_as_models_of_one_rule() -> None:
    rng = torch.Generator().manual_seed(0)
    masks = (torch.rand(3, 8, 12, generator=rng) < 0.3).float()
    visible = torch.ones(8, 12, dtype=torch.bool)
    base = torch.randn(2, 8, 12, generator=rng)
    weight = torch.rand(2, 8, generator=rng) + 0.2
    pull = (masks * torch.tensor([2.0, -1.0, 0.0])[:, None, None]).sum(0)
    mass = torch.softmax(base + pull, -1) * weight[..., None]
    observed = mass.flatten(1) @ masks.flatten(1).T
    share = mass_on_rules(log_rows(base, visible).exp(), masks)
    alone = fit_single_rules([(share, weight)], observed)
    for rule in range(3):
        sheet = Sheet(Features.of(masks[rule : rule + 1]), visible, weight, base)
        fit = fit_row_models(
            lambda heads, one=sheet: [replace(one, weight=weight[heads], base=base[heads])],
            observed[:, rule : rule + 1],
            weight.sum(1),
        )
        assert torch.allclose(alone[:, rule], fit.parameters[:, 0], atol=0.02)


def test_overlapping_rules_share_what_both_cover(planted_profile: Profile, corpus: list) -> None:
    mine = labels(planted_profile, "L0H2")
    assert set(mine) == {"alike", "copies"}
    total = true_share(corpus, 2, alike)  # every copy is alike, so this is the union
    assert sum(x["share"]["value"] for x in mine.values()) == pytest.approx(total, abs=0.02)
    assert mine["alike"]["total"] == pytest.approx(total, abs=0.02)
    assert mine["copies"]["share"]["value"] == pytest.approx(mine["copies"]["total"] / 2, abs=0.01)


def test_examples_of_a_rule_show_this_rule_alone(planted_profile: Profile) -> None:
    for head, rules in (("L0H0", ["induction"]), ("L0H1", ["induction", "copies"])):
        mine = labels(planted_profile, head)
        for rule in rules:
            shown = mine[rule]["examples"]
            assert len(shown) == 3
            assert len({one["document"] for one in shown}) == 3
            for one in shown:
                assert rule in one["rules"]
                assert one["rules"] == [rule] or rule == "copies"  # these fire with induction
                tokens, query, key = one["tokens"], one["query"], one["keys"][0][0]
                assert tokens[key - (rule == "induction")] == tokens[query]
    for one in planted_profile.examples_of("L0H1", "surprise"):
        assert set(one["rules"]) <= {"induction", "copies"}


def test_what_no_rule_covers_is_unclear_and_its_examples_show_it(
    planted_profile: Profile, corpus: list
) -> None:
    assert planted_profile.description("L0H3")["status"] == "unclear"
    assert planted_profile.description("L0H3")["sentence"].startswith("Unclear: none of 4 rules")
    assert number(planted_profile, "L0H3", "needs_context") > 0.8
    sample = sample_corpus(DocumentCorpus(corpus), interp.load("planted:noise"), n_queries=16)
    hidden = {
        w.name: dict(zip(w.queries.tolist(), hidden_keys(w), strict=True)) for w in sample.windows
    }
    surprising = planted_profile.examples_of("L0H3", "surprise")
    assert surprising
    for one in surprising:
        window = next(w for w in sample.windows if w.name == one["document"])
        key = hidden[window.name][one["position"]]
        start = max(0, one["position"] - 40)
        assert one["keys"][0][0] == key - start  # documents are shorter than the context shown


def test_a_position_is_no_discovery_of_a_rule(planted_profile: Profile) -> None:
    assert planted_profile.description("L1H0")["status"] == "position"
    assert number(planted_profile, "L1H0", "explained_position") > 0.95


def test_even_attention_is_unclear(planted_profile: Profile) -> None:
    assert planted_profile.description("L1H1")["status"] == "unclear"


def test_a_head_on_the_sink_has_no_pattern_to_describe(planted_profile: Profile) -> None:
    about = planted_profile.description("L1H2")
    assert about["sentence"].startswith("Attends to the sink")
    assert about["status"] == "unclear"
    assert np.isnan(number(planted_profile, "L1H2", "explained_rules"))


def test_the_sink_does_not_change_the_shares_of_the_rest(planted_profile: Profile) -> None:
    assert number(planted_profile, "L1H3", "off_sink") == pytest.approx(0.3, abs=1e-6)
    [label] = labels(planted_profile, "L1H3").values()
    assert label["rule"] == "copies"


def test_controls_fail_where_the_rules_hold(planted_profile: Profile) -> None:
    for head in ("L0H0", "L0H1", "L0H2"):
        right = number(planted_profile, head, "explained_rules")
        for control in ("swapped_document", "random_keys", "other_head"):
            assert number(planted_profile, head, f"control_{control}") < right - 0.2


def test_both_parts_give_the_same_numbers_within_the_error(planted_profile: Profile) -> None:
    for head in ("L0H0", "L0H1", "L0H2"):
        parts = [number(planted_profile, head, f"explained_rules_part_{part}") for part in (0, 1)]
        assert parts[0] == pytest.approx(parts[1], abs=0.05)


def test_uniform_examples_come_from_every_fifth_even_if_values_are_equal(
    planted_profile: Profile,
) -> None:
    for head in ("L0H0", "L1H1"):
        every = planted_profile.examples_of(head, "uniform")
        assert len(every) == 5
        peaks = [max(mass for _, mass in one["keys"]) for one in every]
        assert peaks == sorted(peaks, reverse=True)


def test_the_null_of_random_heads_gets_no_sentence_beyond_position() -> None:
    corpus = [*documents(32, 32, seed=5, vocab=64).ids]
    planted_profile = interp.profile("planted:noise", corpus, n_queries=16, effects=False)
    assert planted_profile.counts()["rules"] == 0
    frame = planted_profile.to_pandas()
    gain = frame[frame["metric"] == "beyond_position"]
    assert gain["score"].max() < 0.02


def test_rules_on_shuffled_documents_explain_nothing_beyond_position(
    monkeypatch: pytest.MonkeyPatch, corpus: list
) -> None:
    """The attention follows one document, the rules read another one."""
    heads = [lambda window, row=row: row(_reversed(window)) for row in HEADS[:3]]
    plant(monkeypatch, heads)
    planted_profile = interp.profile(
        "planted:noise", corpus, rules=RULES, n_queries=16, effects=False
    )
    assert planted_profile.counts()["rules"] == 0
    frame = planted_profile.to_pandas()
    gain = frame[frame["metric"] == "beyond_position"]
    assert (gain["low"] < 0.01).all()
    assert gain["score"].max() < 0.02


def _reversed(window):
    return replace(window, ids=(window.ids[0], *window.ids[:0:-1]))


def test_planted_heads_of_a_real_model_are_named() -> None:
    rows = [*documents(24, 40, seed=1, vocab=40).ids]
    planted_profile = interp.profile("planted:zoo", rows, n_queries=12, effects=False)
    status = {row["name"]: row["status"] for row in planted_profile.descriptions}
    assert "rules" in status.values()


@pytest.mark.slow
def test_intervals_hold_the_true_share_at_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, HEADS[:2])
    truth = true_share([*documents(400, 20, seed=0).ids], 0, induction)
    held = []
    for seed in range(1, 13):
        rows = [*documents(24, 20, seed=seed).ids]
        planted_profile = interp.profile(
            "planted:noise", rows, rules=RULES, n_queries=None, effects=False
        )
        share = labels(planted_profile, "L0H0")["induction"]["share"]
        held.append(share["low"] < truth < share["high"])
        assert set(labels(planted_profile, "L0H0")) == {"induction"}  # no rule that it has not
        assert set(labels(planted_profile, "L0H1")) == {"induction", "copies"}
    assert sum(held) >= 9  # of 12; with a rate of 0.95 fewer are rarer than 3 in 1,000


def test_even_rows_are_over_visible_keys(corpus: list) -> None:
    sample = sample_corpus(DocumentCorpus(corpus), interp.load("planted:noise"), n_queries=4)
    assert (even(sample.windows[0])[:, 0] == 0).all()
