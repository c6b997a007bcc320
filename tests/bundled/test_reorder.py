"""The bundled model that reorders words: its languages, its folder, and that training repeats."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import interp
from interp import bundled
from interp.bundled.reorder_text import ORDERS, SOURCE, TARGET, reorder_pairs, reordered
from training import train_reorder

HOME = bundled.path("reorder")
RECORD = json.loads((HOME / "training.json").read_text(encoding="utf-8"))
SHORT = replace(train_reorder.Recipe(), steps=3, rows=4, d_model=8, d_mlp=8)


def test_orders_are_what_they_are_called() -> None:
    assert reordered("keep", 4) == [0, 1, 2, 3]
    assert reordered("turn", 4) == [3, 2, 1, 0]
    assert reordered("swap", 4) == [1, 0, 3, 2]
    assert reordered("swap", 5) == [1, 0, 3, 2, 4]


def test_links_join_a_word_with_its_translation() -> None:
    made = reorder_pairs(5, 200)
    assert made == reorder_pairs(5, 300)[:200]
    assert made != reorder_pairs(6, 200)
    translation = dict(zip(SOURCE, TARGET, strict=True))
    assert len({*SOURCE, *TARGET, *ORDERS}) == len(SOURCE) + len(TARGET) + len(ORDERS)
    for one in made:
        assert len(set(one.source)) == len(one.source) == len(one.target) + 1
        assert all(translation[one.source[s]] == one.target[t] for s, t in one.links)
        assert [t for _, t in one.links] == list(range(len(one.target)))
    assert {one.source[0] for one in made} == set(ORDERS)


def test_folder_of_the_reordering_model_is_that_of_its_record() -> None:
    weights = (HOME / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == RECORD["weights_sha256"]
    assert len(weights) < 150_000
    card = (HOME / "README.md").read_text(encoding="utf-8")
    assert "license: mit" in card
    assert card == train_reorder.card(RECORD)


def test_it_translates_pairs_of_another_seed() -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(HOME, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(HOME)
    made = reorder_pairs(77, 24)
    given = tokenizer([" ".join(one.source) for one in made], padding=True, return_tensors="pt")
    said = model.generate(
        input_ids=given["input_ids"],
        attention_mask=given["attention_mask"],
        max_new_tokens=12,
        do_sample=False,
        num_beams=1,
    )
    read = tokenizer.batch_decode(said, skip_special_tokens=True)
    assert np.mean([a == " ".join(one.target) for a, one in zip(read, made, strict=True)]) > 0.9


def test_training_of_the_reordering_model_repeats(tmp_path) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    records = [
        train_reorder.train(SHORT, seed, 1, tmp_path / str(at)) for at, seed in enumerate((3, 3, 4))
    ]
    hashes = [record["weights_sha256"] for record in records]
    assert hashes[0] == hashes[1] != hashes[2]
    assert torch.equal(torch.get_rng_state(), state)
    assert records[0]["scores"]["sentences_right"][0] < 0.5


def test_a_table_of_fewer_positions_than_words_is_no_token_table() -> None:
    """Reading weights by value probes every embedding with the ids: 26 positions, 39 words."""
    frame = interp.score("bundled:reorder", ["ov_copying"], null="none").to_pandas()
    assert set(frame["stack"]) >= {"decoder", "cross"}
    assert np.isfinite(frame["score"]).all()


@pytest.mark.slow
def test_a_tenth_of_the_training_already_lowers_the_loss(tmp_path) -> None:
    recipe = replace(train_reorder.Recipe(), steps=300)
    record = train_reorder.train(recipe, 0, 1, tmp_path)
    assert record["loss_curve"][0][1] > 3.5
    assert record["scores"]["words_right"][0] > 0.3  # one of 16 words by chance
