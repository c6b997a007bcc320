"""Rules in the explorer's API: what fires on a pair, what the profile says, what is refused."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from report.asking import PORT, TOKEN, Client

import interp
from interp.report.explore.app import application
from interp.report.explore.session import Session

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def ruled_model() -> interp.Model:
    return interp.load("bundled:induction")


@pytest.fixture(scope="module")
def profiled_session(ruled_model):
    rows = [(0, *np.random.default_rng(at).integers(1, 20, 20).tolist()) for at in range(10)]

    def mine(query, key, tokens):
        """Attends to the token after an earlier copy."""
        return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])

    profile = interp.profile(
        ruled_model, rows, rules=["previous_token", "current_token"], n_queries=6, effects=False
    )
    return Session(ruled_model, profile=profile, rules=[mine])


def test_a_pair_is_explained_by_rules_and_the_profile(profiled_session) -> None:
    client = Client(application(str, profiled_session, TOKEN, PORT))
    found = client.post("/api/prompt", {"text": TEXT}).data
    n = len(found["tokens"])
    rules = client.get("/api/rules", prompt=found["prompt"]).data
    assert [one["name"] for one in rules["rules"]] == ["previous_token", "current_token", "mine"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(rules["masks"][0]), np.uint8))[: n * n]
    assert (bits.reshape(n, n) == np.eye(n, k=-1)).all()
    [own] = rules["own"]
    assert own["name"] == "mine"
    head, mass, guess = own["heads"][0]
    assert head.startswith("L1H")  # an induction head of the model
    assert mass > guess
    pair = {"prompt": found["prompt"], "head": head, "query": 9, "key": 8}
    answer = client.get("/api/explain", **pair)
    assert answer.status == 200, answer.body
    assert [one["name"] for one in answer.data["rules"]][:1] == ["previous_token"]
    assert answer.data["row"]["even"] >= 0
    assert answer.data["sentence"]
    assert len(answer.data["examples"]) == 3


def test_questions_on_rules_that_do_not_fit_are_refused(profiled_session) -> None:
    client = Client(application(str, profiled_session, TOKEN, PORT))
    found = client.post("/api/prompt", {"text": TEXT}).data
    pair = {"prompt": found["prompt"], "head": "L0H0", "query": 1, "key": 1}
    for change, said in (
        ({"query": 999}, "the prompt has"),
        ({"head": "L9H9"}, "L9H9"),
        ({"prompt": 99}, "was replaced"),
        ({"rule": "x.py"}, "unknown field rule"),
        ({"after": 5}, "ablation 5 was replaced"),
    ):
        answer = client.get("/api/explain", **(pair | change))
        assert answer.status == 400
        assert said in answer.data["error"]
    # a page cannot bring a rule of its own
    assert client.post("/api/rules", {"rules": ["x.py"]}).status == 405
