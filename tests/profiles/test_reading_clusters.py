"""Several behaviours of a head: found on planted heads of two, and not on heads of one rule."""

from __future__ import annotations

import numpy as np
import pytest
from profiles.effects_by_hand import ALL, repeats
from profiles.planted_rows import documents, mixture, plant

import interp
from interp.profiles import Profile
from interp.profiles.behaviour_facts import BehaviourFacts
from interp.profiles.corpus import TextWindow
from interp.profiles.head_edges import HeadEdges
from interp.report.atlas.profiles import _card
from interp.report.printed.profile import head_text

VOCAB = 13
# a query and a key share four directions: heads of real models use 2 to 11
TOKENS = np.random.default_rng(0).choice([-1.0, 1.0], (VOCAB, 6))
TOKENS[np.arange(VOCAB) % 6 == 0] += 3 * np.eye(6)[0]  # two kinds of tokens that stand apart
TOKENS[np.arange(VOCAB) % 6 == 1] += 3 * np.eye(6)[1]


def previous(query, key):
    """Attends to the token just before."""
    return key == query - 1


def induction(query, key, tokens):
    """Attends to the token after an earlier copy."""
    return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])


def copies(query, key, tokens):
    """Attends to earlier copies."""
    return (tokens[key] == tokens[query]) & (key < query)


def first_kind(query, key, tokens):
    """Attends to tokens of the first kind."""
    return (tokens[key] % 6 == 0) & (key < query)


def second_kind(query, key, tokens):
    """Attends to tokens of the second kind."""
    return (tokens[key] % 6 == 1) & (key < query)


RULES = [previous, induction, copies, first_kind, second_kind]
SINGLE = [
    mixture((0.9, induction)),
    mixture((0.6, first_kind)),
    mixture((0.8, copies)),
    mixture((0.9, previous)),
    mixture(),
]
TWO = [
    mixture((0.45, first_kind), (0.45, second_kind)),
    mixture((0.4, first_kind), (0.5, induction)),
    mixture((0.45, induction), (0.45, copies)),
]
NAMES = [{"first_kind", "second_kind"}, {"first_kind", "induction"}, {"induction", "copies"}]


def vectors(window: TextWindow) -> list[np.ndarray]:
    """Return queries for a token, keys with the token before and their own, and values."""
    own = TOKENS[np.asarray(window.ids) % VOCAB]
    before = np.concatenate([own[:1], own[:-1]])
    own, before = own[:, 2:], before[:, 2:]
    return [np.hstack([own, own]), np.hstack([before, own]), TOKENS[np.asarray(window.ids) % VOCAB]]


def planted(heads: list, seed: int, **options) -> Profile:
    rows = [*documents(48, 40, seed=seed, vocab=VOCAB).ids]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, heads, vectors)
        return interp.profile(
            "planted:noise", rows, rules=RULES, n_queries=24, effects=False, **options
        )


def rules_of(found: Profile, head: int, n: int) -> list[set[str]]:
    """Return the rules of the behaviours of the copies of a planted head."""
    return [
        {one["rule"] for one in about.get("behaviours", {}).get("each", ())}
        for about in found.descriptions[head::n]
    ]


@pytest.fixture(scope="module")
def clustered_profile() -> Profile:
    return planted(TWO, seed=107)


@pytest.mark.parametrize("head", range(len(TWO)))
def test_both_behaviours_of_a_head_of_two_are_found(clustered_profile: Profile, head: int) -> None:
    assert rules_of(clustered_profile, head, len(TWO))[0] == NAMES[head]


def test_queries_and_keys_tell_behaviours_apart_that_values_do_not(
    clustered_profile: Profile,
) -> None:
    by = [about["behaviours"]["by"] for about in clustered_profile.descriptions[: len(TWO)]]
    assert by == ["values", "values", "matches"]


def test_a_behaviour_has_its_share_and_examples_of_its_own(clustered_profile: Profile) -> None:
    each = clustered_profile.descriptions[0]["behaviours"]["each"]
    shares = [one["share"]["value"] for one in each]
    assert 0.9 < sum(shares) <= 1 + 1e-9
    for one in each:
        kind = 0 if one["rule"] == "first_kind" else 1
        assert 0.4 < one["share"]["low"] < one["share"]["value"] < one["share"]["high"] < 0.6
        assert one["beyond_position"]["low"] > 0.4
        assert len(one["examples"]) == 3
        for shown in one["examples"]:
            assert any(int(shown["tokens"][key]) % 6 == kind for key, _ in shown["keys"])


def test_behaviours_are_on_the_screen_and_the_card(clustered_profile: Profile) -> None:
    text = head_text(clustered_profile, "L0H0")
    assert "2 behaviours: clusters of the values that it reads" in text
    assert "of it goes " in text
    assert [line for line in text.splitlines() if len(line) > 100] == []
    card = _card(clustered_profile.description("L0H0"), [])
    assert len(card["facts"]["clusters of its edges by what it reads"]) == 2
    assert sum("as a cluster of its own" in phrase for phrase, _ in card["by_entry"]) == 2


def test_heads_of_one_rule_have_one_behaviour_and_say_nothing_of_it() -> None:
    found = planted(SINGLE, seed=2)
    assert "behaviours:" not in head_text(found, "L0H0")
    assert not any("behaviours" in about for about in found.descriptions)


@pytest.mark.slow
@pytest.mark.exhaustive  # a calibration: some minutes
def test_false_splits_and_missed_ones_are_rare() -> None:
    false = missed = n = 0
    for seed in range(10, 20):
        single, two = planted(SINGLE, seed), planted(TWO, seed)
        false += sum("behaviours" in about for about in single.descriptions[: len(SINGLE)])
        for head in range(len(TWO)):
            missed += rules_of(two, head, len(TWO))[0] != NAMES[head]
        n += 1
    assert false <= 0.05 * n * len(SINGLE)
    assert missed <= 0.2 * n * len(TWO)


def test_clusters_have_their_effects_and_output_tokens() -> None:
    """The loss without all edges of a head is the sum of that without those of its clusters."""
    model = interp.load("planted:induction")
    corpus = repeats(16, seed=0)
    seen: list[tuple] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            BehaviourFacts,
            "of",
            lambda self, head, edges, rules, texts: (seen.append((self, head)), {})[1],
        )
        found = interp.profile(model, corpus, rules=["induction"], n_queries=ALL, n_ablated=0)
    at = next(i for i, about in enumerate(found.descriptions) if about["name"] == "L1H0")
    facts, head = seen[at]
    edges = HeadEdges.of(facts.judged, head)
    inside = edges.fired[0][:, 0]
    parts = [facts.effects.of(head, edges, members) for members in (inside, ~inside)]
    whole = facts.effects.of(head, edges, np.ones(len(inside), bool))
    total = sum(one["loss_estimate"]["value"] for one in parts)
    assert whole["loss_estimate"]["value"] == pytest.approx(total, abs=1e-9)
    assert abs(parts[0]["loss_estimate"]["value"]) > 10 * abs(parts[1]["loss_estimate"]["value"])
    assert set(parts[0]) == {"loss_estimate", "raises", "lowers"}
