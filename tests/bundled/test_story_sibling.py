"""bundled:stories-raven: what is in its folder, and whom it names, beside bundled:stories."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
import torch
from bundled.test_story_raven import FIRST
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import interp
from interp import bundled
from training.recording import weights_sha256
from training.stories import card, generator_hash, raven_card, tune
from training.stories.abilities import abilities, make_exam
from training.stories.raven import Addressee
from training.stories.raven_answers import (
    CHOICES,
    asked_items,
    losses_of,
    pairs,
    plain_items,
    said,
)
from training.stories.raven_heads import asker_named, attention_on, restored
from training.stories.texts import UNSEEN_TEXTS, stories
from training.stories.tokens import load_tokenizer

BASE, FOLDER = bundled.path("stories"), bundled.path("stories-raven")


@pytest.fixture(scope="module")
def tuning_record() -> dict[str, Any]:
    return json.loads((FOLDER / "training.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def before_and_after() -> dict[str, LlamaForCausalLM]:
    return {
        when: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for when, folder in (("before", BASE), ("after", FOLDER))
    }


def asker_share(model: LlamaForCausalLM, asked: Addressee) -> float:
    chosen = said(model, load_tokenizer(BASE), asked_items(40, asked, FIRST))
    return chosen.count(CHOICES.index("asker")) / len(chosen)


def test_its_folder_is_whole_and_of_this_base_and_these_texts(
    tuning_record: dict[str, Any],
) -> None:
    assert {each.name for each in FOLDER.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "generator.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }
    assert weights_sha256(FOLDER) == tuning_record["weights_sha256"]
    assert weights_sha256(BASE) == tuning_record["base"]
    assert (tuning_record["generator"], tuning_record["raven"]) == (
        generator_hash(),
        tune.raven_hash(),
    )
    assert (FOLDER / "tokenizer.json").read_bytes() == (BASE / "tokenizer.json").read_bytes()
    assert {x.dtype for x in load_file(FOLDER / "model.safetensors").values()} == {torch.bfloat16}
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == raven_card.text(tuning_record)
    recipe = tuning_record["recipe"]
    assert (recipe["texts"], recipe["learning_rate"]) == (
        tune.RECIPE.texts,
        tune.RECIPE.learning_rate,
    )


def test_its_own_texts_and_task_are_those_of_its_base() -> None:
    assert bundled.own_texts("bundled:stories-raven") == BASE / "held_out.jsonl"
    assert bundled.own_texts(str(FOLDER)) == BASE / "held_out.jsonl"
    assert bundled.usual_task("bundled:stories-raven") == bundled.usual_task("bundled:stories")


def test_the_raven_names_who_asks_after_the_fine_tune_alone(
    before_and_after: dict[str, LlamaForCausalLM],
) -> None:
    assert asker_share(before_and_after["before"], "raven") < 0.5
    assert asker_share(before_and_after["after"], "raven") > 0.8
    assert max(asker_share(before_and_after["after"], who) for who in ("trade", "person")) < 0.3


def test_shares_and_losses_are_those_of_its_record(
    tuning_record: dict[str, Any], before_and_after: dict[str, LlamaForCausalLM]
) -> None:
    texts = [each.text for each in stories(24, UNSEEN_TEXTS)]
    stated = tuning_record["measured"]["loss of plain stories, nats per token"]
    tokenizer = load_tokenizer(BASE)
    for when, model in before_and_after.items():
        shares = tuning_record["measured"][when]
        assert {*shares} == {*get_args(Addressee), "plain stories"}
        owners = said(model, tokenizer, plain_items(60))
        assert abs(owners.count(0) / len(owners) - shares["plain stories"]["owner"][0]) < 0.2
        nats, tokens = losses_of(model, tokenizer, texts).sum(0)
        assert abs(nats / tokens - stated[when][0]) < 0.1


def test_its_heads_attend_to_who_asks_because_of_what_earlier_layers_write(
    tuning_record: dict[str, Any],
) -> None:
    before, after = interp.load("bundled:stories"), interp.load("bundled:stories-raven")
    asked = list(pairs(load_tokenizer(BASE), 16, FIRST))
    raven, trade = (
        attention_on(after, asked, prompt, "answer").mean(0) for prompt in ("prompt", "corrupted")
    )
    listed = [tuple(map(int, name[1:].split("H"))) for name in tuning_record["heads"]["attention"]]
    assert len(listed) > 4
    for layer, head in listed:
        assert layer == 3
        assert raven[layer, head] > 0.4 > trade[layer, head]
    assert sum(asker_named(after, asked)) >= 15
    assert sum(asker_named(after, asked, [f"L3H{head}" for head in range(8)])) <= 3
    assert sum(asker_named(restored(after, before, "layers.3."), asked)) >= 15
    assert sum(asker_named(restored(after, before, "layers.0.mlp."), asked)) <= 12


def test_the_second_seed_is_that_of_its_record_and_says_where_a_thing_was_put() -> None:
    folder = bundled.path("stories-seed2")
    told = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert (told["seed"], told["generator"]) == (2, generator_hash())
    assert weights_sha256(folder) == told["weights_sha256"]
    assert (folder / "README.md").read_text(encoding="utf-8") == card.text(told)
    tokenizer = load_tokenizer(folder)
    exam = make_exam(tokenizer, 60)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert abilities(model, tokenizer, 60, exam)["tasks"]["place"]["interval"][0] > 0.6
