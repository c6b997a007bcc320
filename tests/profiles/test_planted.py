"""Profiles of heads whose behaviour is known: the right rules, shares and examples, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from profiles.planted_rows import documents, elsewhere, even, hidden_keys, mixture, on, plant

import interp
from interp.profiles import Profile
from interp.profiles.corpus import DocumentCorpus, sample_corpus
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


def entries(planted_profile: Profile, head: str) -> dict[str, dict]:
    return {entry["rule"]: entry for entry in planted_profile.description(head)["entries"]}


def number(planted_profile: Profile, head: str, metric: str) -> float:
    about = planted_profile.description(head)
    frame = planted_profile.to_pandas()
    mine = frame[(frame["layer"] == about["layer"]) & (frame["head"] == about["head"])]
    return float(mine.set_index("metric").loc[metric, "score"])


def true_share(corpus: list, head: int, mask, before=None) -> float:
    """Share of a head's attention off the sink on keys of a predicate and of none before it."""
    sample = sample_corpus(DocumentCorpus(corpus), interp.load("planted:noise"), n_queries=None)
    top = under = 0.0
    for window in sample.windows:
        row = HEADS[head](window)
        held = on(window, mask) > 0
        if before is not None:
            held &= ~(on(window, before) > 0)
        top += float((row * held).sum())
        under += float(row.sum())
    return top / under


def test_one_rule_is_found_with_its_share(planted_profile: Profile, corpus: list) -> None:
    assert planted_profile.description("L0H0")["status"] == "described"
    [entry] = entries(planted_profile, "L0H0").values()
    assert entry["rule"] == "induction"
    truth = true_share(corpus, 0, induction)
    assert entry["share"]["low"] < truth < entry["share"]["high"]
    assert number(planted_profile, "L0H0", "explained_list") > 0.9
    assert number(planted_profile, "L0H0", "needs_context") < 0.1


def test_both_rules_of_a_mixture_are_found(planted_profile: Profile, corpus: list) -> None:
    mine = entries(planted_profile, "L0H1")
    assert [*mine] == ["induction", "copies"]
    for rule, before in ((induction, None), (copies, induction)):
        share = mine[rule.__name__]["share"]
        assert share["low"] < true_share(corpus, 1, rule, before) < share["high"]


def test_an_entry_adds_what_is_lost_without_it(planted_profile: Profile) -> None:
    [entry] = entries(planted_profile, "L0H0").values()  # without its one entry a list is position
    beyond = number(planted_profile, "L0H0", "list_beyond_position")
    assert entry["gain"]["value"] == pytest.approx(beyond, abs=0.04)
    for entry in entries(planted_profile, "L0H1").values():
        assert 0.05 < entry["gain"]["low"] < entry["gain"]["high"]
    assert "adds*" in head_text(planted_profile, "L0H1")


def test_a_key_counts_for_the_first_entry_that_holds_it(
    planted_profile: Profile, corpus: list
) -> None:
    """Every copy is alike: the second entry has what the first one leaves."""
    mine = entries(planted_profile, "L0H2")
    assert [*mine] == ["copies", "alike"]
    both = true_share(corpus, 2, alike)
    assert sum(x["share"]["value"] for x in mine.values()) == pytest.approx(both, abs=0.02)
    left = true_share(corpus, 2, alike, copies)
    assert mine["alike"]["share"]["low"] < left < mine["alike"]["share"]["high"]


def test_examples_of_an_entry_show_this_entry(planted_profile: Profile) -> None:
    for head in ("L0H0", "L0H1"):
        for rule, entry in entries(planted_profile, head).items():
            assert len({one["document"] for one in entry["examples"]}) == 3
            for one in entry["examples"]:
                tokens, query = one["tokens"], one["query"]
                keys = [key - (rule == "induction") for key, _ in one["keys"]]
                assert tokens[query] in [tokens[key] for key in keys]


def test_what_no_entry_covers_is_not_described_and_its_examples_show_it(
    planted_profile: Profile, corpus: list
) -> None:
    about = planted_profile.description("L0H3")
    assert (about["status"], about["entries"]) == ("not described", [])
    assert about["sentence"].startswith("No kind of token and no place stands out")
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


def test_a_previous_token_head_is_named_by_its_place(planted_profile: Profile) -> None:
    about = planted_profile.description("L1H0")
    assert about["status"] == "described"
    assert about["entries"][0]["rule"] == "previous"
    assert about["entries"][0]["share"]["value"] == pytest.approx(0.9, abs=0.03)
    assert "goes to the previous token" in about["sentence"]
    assert number(planted_profile, "L1H0", "explained_position") > 0.95


def test_a_head_of_two_kinds_of_documents_says_so(
    monkeypatch: pytest.MonkeyPatch, corpus: list
) -> None:
    def either(window) -> np.ndarray:
        odd = window.ids[1] % 2 == 1
        return mixture((0.95, previous if odd else lambda query, key: key == 1))(window)

    plant(monkeypatch, [either, HEADS[1]])
    found = interp.profile("planted:noise", corpus, rules=RULES, n_queries=16, effects=False)
    about, other = found.description("L0H0"), found.description("L0H1")
    assert {x["rule"] for x in about["entries"]} == {"previous", "second"}
    assert 0.3 < about["mixed"]["documents"] < 0.7
    sides = {about["mixed"]["inside"][0], about["mixed"]["others"][0]}
    assert sides == {"to the previous token", "to the second token of the text"}
    assert " of the documents 9" in about["sentence"]
    assert other["mixed"] == {}


def test_even_attention_is_said_to_be_even(planted_profile: Profile) -> None:
    about = planted_profile.description("L1H1")
    assert (about["status"], about["entries"]) == ("even", [])
    assert about["sentence"].startswith("Attends evenly")


def test_a_head_on_the_sink_has_no_pattern_to_describe(planted_profile: Profile) -> None:
    about = planted_profile.description("L1H2")
    assert about["sentence"].startswith("Attends to the sink")
    assert about["status"] == "on the sink"
    assert np.isnan(number(planted_profile, "L1H2", "explained_rules"))


def test_the_sink_does_not_change_the_shares_of_the_rest(planted_profile: Profile) -> None:
    assert number(planted_profile, "L1H3", "off_sink") == pytest.approx(0.3, abs=1e-6)
    assert [*entries(planted_profile, "L1H3")] == ["copies"]


def test_controls_fail_where_the_rules_hold(planted_profile: Profile) -> None:
    for head in ("L0H0", "L0H1", "L0H2"):
        right = number(planted_profile, head, "explained_rules")
        assert number(planted_profile, head, "control_swapped_document") < right - 0.2
        listed = number(planted_profile, head, "explained_list")
        for control in ("swapped_document", "other_head"):
            assert number(planted_profile, head, f"control_list_{control}") < listed - 0.2


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
    assert not [one for one in planted_profile.descriptions if _beyond(one)]
    frame = planted_profile.to_pandas()
    gain = frame[frame["metric"].isin(["beyond_position", "list_beyond_position"])]
    assert gain["score"].max() < 0.02


def _beyond(about) -> list[dict]:
    return [entry for entry in about["entries"] if not entry["place"]]


def test_rules_on_shuffled_documents_explain_nothing_beyond_position(
    monkeypatch: pytest.MonkeyPatch, corpus: list
) -> None:
    """The attention follows one document, the rules read another one."""
    heads = [lambda window, row=row: row(_reversed(window)) for row in HEADS[:3]]
    plant(monkeypatch, heads)
    planted_profile = interp.profile(
        "planted:noise", corpus, rules=RULES, n_queries=16, effects=False
    )
    assert not [one for one in planted_profile.descriptions if _beyond(one)]
    frame = planted_profile.to_pandas()
    gain = frame[frame["metric"] == "beyond_position"]
    assert (gain["low"] < 0.01).all()
    assert gain["score"].max() < 0.02


def _reversed(window):
    return replace(window, ids=(window.ids[0], *window.ids[:0:-1]))


def test_planted_heads_of_a_real_model_are_named() -> None:
    rows = [*documents(24, 40, seed=1, vocab=40).ids]
    planted_profile = interp.profile("planted:zoo", rows, n_queries=12, effects=False)
    assert any(_beyond(one) for one in planted_profile.descriptions)


@pytest.mark.slow
def test_intervals_hold_the_true_share_at_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, HEADS[:2])
    many = [*documents(400, 20, seed=0).ids]
    truths = (
        ("L0H0", "induction", true_share(many, 0, induction)),
        ("L0H1", "induction", true_share(many, 1, induction)),
        ("L0H1", "copies", true_share(many, 1, copies, induction)),
    )
    held = []
    for seed in range(1, 13):
        rows = [*documents(24, 20, seed=seed).ids]
        planted_profile = interp.profile(
            "planted:noise", rows, rules=RULES, n_queries=None, effects=False
        )
        assert [*entries(planted_profile, "L0H0")] == ["induction"]  # no rule that it has not
        assert [*entries(planted_profile, "L0H1")] == ["induction", "copies"]
        for head, rule, truth in truths:
            share = entries(planted_profile, head)[rule]["share"]
            held.append(share["low"] < truth < share["high"])
    assert sum(held) >= 30  # of 36; with a rate of 0.95 fewer are rarer than 1 in 100


def test_even_rows_are_over_visible_keys(corpus: list) -> None:
    sample = sample_corpus(DocumentCorpus(corpus), interp.load("planted:noise"), n_queries=4)
    assert (even(sample.windows[0])[:, 0] == 0).all()
