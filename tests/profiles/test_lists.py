"""Lists of a trained model's heads beside counts by other code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from beside import FOLDER, STORIES, needs

import interp
from interp.profiles import Profile
from interp.profiles.corpus import DocumentCorpus, sample_corpus
from interp.profiles.listed_site import FITTED

STORY_FILE = FOLDER / "data" / "stories" / "tinystories_1000.json"
SIZE: dict[str, Any] = {"n_documents": 48, "n_queries": 16, "max_length": 128}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stories() -> list[str]:
    return json.loads(STORY_FILE.read_text(encoding="utf-8"))[300:400]


@pytest.fixture(scope="module")
def described(stories: list[str]) -> Profile:
    return interp.profile(str(STORIES), stories, effects=False, **SIZE)


@needs(STORY_FILE)
def test_shares_of_places_are_those_of_the_models_own_attentions(
    described: Profile, stories: list[str]
) -> None:
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(STORIES, attn_implementation="eager").eval()
    windows = sample_corpus(DocumentCorpus(stories), interp.load(str(STORIES)), **SIZE).windows
    back = {"itself": (0, 0), "previous": (1, 1), "back_2_4": (2, 4)}
    counted, total = np.zeros((3, 8, 16)), np.zeros((8, 16))
    for window in windows:
        if window.part == FITTED:
            continue
        with torch.no_grad():
            maps = plain(torch.tensor([window.ids]), output_attentions=True).attentions
        rows = torch.stack([x[0] for x in maps])[:, :, window.queries, 1:].double().numpy()
        rows = rows * (rows.sum(-1, keepdims=True) >= 0.02)
        distance = window.queries[:, None] - np.arange(1, len(window.ids))[None]
        total += rows.sum((2, 3))
        for at, (low, high) in enumerate(back.values()):
            counted[at] += (rows * ((distance >= low) & (distance <= high))).sum((2, 3))
    checked = 0
    for about in described.descriptions:
        for entry in about["entries"]:
            if entry["place"] and entry["rule"] in back:
                where = about["layer"], about["head"]
                share = counted[[*back].index(entry["rule"])][where] / total[where]
                assert entry["share"]["value"] == pytest.approx(share, abs=2e-3), about["name"]
                checked += 1
    assert checked > 100
    head = described.description("L1H9")
    assert head["entries"][0]["rule"] == "previous"
    assert head["status"] == "described"


@needs(STORY_FILE)
def test_a_head_on_people_shows_whom_it_favours(described: Profile) -> None:
    words = " ".join(x for e in described.description("L5H4")["entries"] for x in e["members"])
    assert any(name in words.split() for name in ("He", "She", "They", "Lily", "mom"))


@needs(STORY_FILE)
def test_parts_of_characters_stand_together(described: Profile) -> None:
    entries = [e for about in described.descriptions for e in about["entries"]]
    several = [e["phrase"] for e in entries if sum(x[0] == "<" for x in e["members"]) > 1]
    assert several
    assert all("parts of characters: <" in phrase for phrase in several)
