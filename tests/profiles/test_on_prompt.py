"""A description of heads on one prompt: rules that fire, what is explained, rules of the user."""

from __future__ import annotations

import numpy as np
import pytest
from profiles.planted_rows import documents

import interp
from interp.core.errors import OptionError
from interp.heads.patterns import view
from interp.profiles import Profile
from interp.profiles.on_prompt import PromptRules
from interp.profiles.rules import chosen_rules

DOCUMENTS = [*documents(16, 24, seed=0).ids]
RULES = ["induction", "previous_token", "duplicate_token"]


@pytest.fixture(scope="module")
def prompted_model() -> interp.Model:
    return interp.load("planted:induction")


@pytest.fixture(scope="module")
def described_model(prompted_model: interp.Model) -> Profile:
    return interp.profile(prompted_model, DOCUMENTS, rules=RULES, n_queries=23, effects=False)


def weights_of(model: interp.Model, ids) -> dict:
    [stack] = view(model, ids).stacks
    return {(stack.name, head.layer, head.head): w for head, w in stack.weights.items()}


def test_rules_fire_where_their_detectors_say(prompted_model, described_model) -> None:
    ids = [0, 5, 7, 9, 5, 7, 3]
    found = PromptRules(prompted_model, ids, described_model)
    names = [found.rules[at].name for at in found.firing(4, 2)]
    assert names == ["induction"]  # 7 follows an earlier 5
    assert [found.rules[at].name for at in found.firing(4, 3)] == ["previous_token"]
    assert found.firing(6, 2) == []


def test_rows_of_the_corpus_are_explained_as_the_profile_says(
    prompted_model, described_model
) -> None:
    frame = described_model.to_pandas().set_index(["layer", "head", "metric"])["score"]
    sums = np.zeros((2, 3))
    heads = [("decoder", 0, 1), ("decoder", 1, 0)]
    for ids in DOCUMENTS:
        weights = weights_of(prompted_model, ids)
        found = PromptRules(prompted_model, ids, described_model)
        for at, head in enumerate(heads):
            for query in range(2, len(ids)):
                row = found.explain(head, weights[head], query, 1).get("row")
                if row:
                    nats = [row[name] for name in ("even", "position", "rules")]
                    sums[at] += np.array(nats) * row["off_sink"]
    for (_, layer, head), (even, position, rules) in zip(heads, sums, strict=True):
        for name, left in (("position", position), ("rules", rules)):
            # the mean of two fits explains a little more than either on the other half
            stated = frame[layer, head, f"explained_{name}"]
            assert 1 - left / even == pytest.approx(stated, abs=0.05)
            assert 1 - left / even >= stated - 0.01


def test_a_row_says_what_is_predicted_of_a_key(prompted_model, described_model) -> None:
    ids = [0, 5, 7, 9, 5, 7, 3]
    weights = weights_of(prompted_model, ids)
    head = ("decoder", 1, 0)
    found = PromptRules(prompted_model, ids, described_model).explain(head, weights[head], 4, 2)
    row = found["row"]
    mine = weights[head][4, 1:5] / weights[head][4, 1:5].sum()  # off the sink, the first token
    assert row["weight"] == pytest.approx(mine[1], abs=1e-5)
    even = np.log(4) + (mine[mine > 0] * np.log(mine[mine > 0])).sum()
    assert row["even"] == pytest.approx(even, abs=1e-4)
    assert 0 < row["rules"] < row["position"]
    [rule] = found["rules"]
    assert rule["nats"] > 0
    assert not rule["own"]


def test_a_sink_and_a_head_without_a_profile_are_said(prompted_model, described_model) -> None:
    ids = [0, 5, 7, 9]
    weights = weights_of(prompted_model, ids)
    head = ("decoder", 0, 0)
    assert PromptRules(prompted_model, ids, described_model).explain(head, weights[head], 2, 0)[
        "sink"
    ]
    alone = PromptRules(prompted_model, ids).explain(head, weights[head], 2, 1)
    assert "row" not in alone
    assert "no profile of this head is loaded" in alone["why"]
    assert "previous_token" in [rule["name"] for rule in alone["rules"]]
    with pytest.raises(OptionError, match="the prompt has 4 tokens"):
        PromptRules(prompted_model, ids).explain(head, weights[head], 2, 4)


def test_a_rule_of_the_user_is_scored_beside_the_description(prompted_model) -> None:
    def mine(query, key, tokens):
        """Attends to the token after an earlier copy."""
        return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])

    poor = interp.profile(
        prompted_model, DOCUMENTS, rules=["previous_token"], n_queries=8, effects=False
    )
    ids = DOCUMENTS[3]
    own = chosen_rules([mine], False)
    patterns = weights_of(prompted_model, ids)
    [found] = PromptRules(prompted_model, ids, poor, own).own_scores(patterns)
    assert found["name"] == "mine"
    assert found["described"]
    head, mass, guess = found["heads"][0]
    assert head == ("decoder", 1, 0)
    assert mass > 0.5
    assert guess < 0.3
    # what it attends to is counted by hand, on rows off the sink that have a choice
    rule = own[0].mask(np.arange(24)[:, None], np.arange(24), PromptStandIn(np.array(ids)))
    weights = patterns[head].copy()
    weights[:, 0] = 0
    weights[:2] = 0
    kept = weights.sum(1) >= 0.02
    assert mass == pytest.approx((weights * rule)[kept].sum() / weights[kept].sum(), abs=1e-5)


class PromptStandIn:
    """Tokens alone, which are all that the rule reads."""

    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens = tokens
