"""bundled:stories: its folder, its record and card, its own texts, and what it can do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import interp
from interp import bundled
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError
from interp.report.printed.text_lines import BETTER, text_sentences
from training.stories import card, story
from training.stories.__main__ import OWN_SEED, OWN_TEXTS
from training.stories.abilities import abilities
from training.stories.tokens import load_tokenizer

FOLDER = bundled.path("stories")


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return json.loads((FOLDER / "training.json").read_text())


@pytest.fixture(scope="module")
def story_model() -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(FOLDER, use_safetensors=True)


def test_the_folder_is_whole_and_small(told: dict[str, Any]) -> None:
    assert {each.name for each in FOLDER.iterdir()} == {
        "README.md",
        "checkpoints",
        "config.json",
        "generation_config.json",
        "generator.json",
        "held_out.jsonl",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }
    weights = (FOLDER / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == told["weights_sha256"]
    assert {x.dtype for x in load_file(FOLDER / "model.safetensors").values()} == {torch.bfloat16}
    assert sum(each.stat().st_size for each in FOLDER.iterdir()) < 4e6


def test_the_tokenizer_is_of_this_generator_and_the_card_of_this_record(
    told: dict[str, Any],
) -> None:
    assert len(load_tokenizer(FOLDER)) == told["vocab"]
    assert (FOLDER / "README.md").read_text() == card.text(told)


def test_its_own_texts_are_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.loads(line) for line in (FOLDER / "held_out.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [*range(OWN_SEED, OWN_SEED + OWN_TEXTS)]
    for line in lines[::40]:
        assert line["text"] == story(line["seed"]).text
    assert bundled.own_texts("bundled:stories") == bundled.own_texts(str(FOLDER))
    assert bundled.own_texts("bundled:induction") is None
    assert bundled.own_texts("../bundled/stories") is None
    (tmp_path / "stories").mkdir()
    monkeypatch.chdir(tmp_path)
    assert bundled.own_texts("stories") is None, "a folder of the user's"


def test_it_does_what_its_card_says(told: dict[str, Any], story_model: LlamaForCausalLM) -> None:
    found = abilities(story_model.eval(), load_tokenizer(FOLDER), 160)
    for name, stated in told["abilities"]["tasks"].items():
        low, high = found["tasks"][name]["interval"]
        assert low - 0.05 < stated["accuracy"] < high + 0.05
    loss = found["losses"]["unseen texts"]
    stated = told["abilities"]["losses"]["unseen texts"]
    assert loss["interval"][0] - 0.02 < stated["nats_per_token"] < loss["interval"][1] + 0.02
    assert stated["bound"] < stated["nats_per_token"] < 1.5 * stated["bound"]


def test_a_profile_reads_its_own_texts_by_default() -> None:
    found = interp.profile(
        "bundled:stories",
        heads=["L0H0"],
        rules=["previous_token"],
        n_documents=16,
        effects=False,
        behaviours=False,
    )
    text = found.provenance["text"]
    assert text["own"]
    assert not text["foreign"]
    said = text_sentences(found.provenance)
    assert "These texts come with the model, which was not trained on them." in said
    assert BETTER not in said


@pytest.mark.parametrize("name", ["owner", "pronoun", "recipient"])
def test_its_tasks_differ_in_its_logits(name: str) -> None:
    model = interp.load("bundled:stories")
    mean, sem = make_contrast(model, f"stories:{name}", n=32).gap(model)
    assert mean > 3 * sem


def test_where_a_thing_is_it_does_not_know(told: dict[str, Any]) -> None:
    place = told["abilities"]["tasks"]["place"]
    assert place["interval"][0] < place["chance"]
    model = interp.load("bundled:stories")
    with pytest.raises(OptionError, match="does not do stories:place"):
        make_contrast(model, "stories:place", n=32).gap(model)
