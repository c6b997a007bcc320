"""The bundled models: what is in their folders, what they learned, and that training repeats."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    LlamaForCausalLM,
)

import interp
from interp import bundled
from interp.bundled.special_tokens import BOS
from interp.core.errors import OptionError, UnknownName
from interp.core.resources import folder
from training import measure
from training.batches import Corpus, repeats, two_copies
from training.text import paragraphs
from training.train import PERIODS, RECIPES, train

PERIOD = 40  # not one of the periods the card was measured on


# With tests of their own: test_deceive.py, test_safety_learned.py, test_reorder.py,
# test_story_model.py and test_story_tune.py.
APART = ("deceive", "refusal", "reorder", "stories", "stories-raven", "stories-seed2")


@pytest.fixture(scope="module", params=[n for n in bundled.names() if n not in APART])
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def induction_module() -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(bundled.path("induction"), use_safetensors=True)


@pytest.fixture(scope="module")
def induction_record() -> dict:
    return json.loads((bundled.path("induction") / "training.json").read_text())


def copies(model: LlamaForCausalLM, seed: int = 7) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(two_copies(rng, 32, PERIOD, model.config.vocab_size))


def test_there_is_one_to_begin_with():
    assert bundled.names()[0] == "stories"
    with pytest.raises(UnknownName, match="induction"):
        bundled.path("inductoin")


@pytest.mark.parametrize(
    ("whose", "last", "size"), [("induction", 3000, 3.1e6), ("stories", 4596, 26e6)]
)
def test_checkpoints_are_those_of_their_record(whose, last, size):
    home = bundled.path(whose) / "checkpoints"
    record = json.loads((home / "checkpoints.json").read_text())
    found = bundled.checkpoints(whose)
    assert [*found][-1] == last
    assert [x["step"] for x in record["checkpoints"]] == [*found][:-1]
    for each in record["checkpoints"]:
        weights = (found[each["step"]] / "model.safetensors").read_bytes()
        assert hashlib.sha256(weights).hexdigest() == each["weights_sha256"]
        assert each.get("largest_difference_float16", 0) < 2e-4
    assert sum(x.stat().st_size for x in home.rglob("*") if x.is_file()) < size


def test_folder_is_whole_and_its_weights_are_those_of_the_record(name):
    folder = bundled.path(name)
    record = json.loads((folder / "training.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == record["weights_sha256"]
    assert {p.name for p in folder.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
        *(["checkpoints"] if name == "induction" else []),
    }
    card = (folder / "README.md").read_text()
    assert "license: mit" in card
    for found in record["scores"]["copies"].values():
        assert f"{found['factor']:.2f} [" in card


def test_all_others_together_stay_under_two_megabytes():
    names = [name for name in bundled.names("all") if "stories" not in name]
    sizes = [p.stat().st_size for name in names for p in bundled.path(name).iterdir()]
    assert sum(sizes) < 1.5e6


def test_weights_are_stored_in_half_precision_and_computed_in_single():
    folders = [bundled.path(name) for name in bundled.names()]
    moments = [y for x in ("induction", "stories") for y in bundled.checkpoints(x).values()]
    for each in [*folders, *moments]:
        stored = load_file(each / "model.safetensors")
        half = torch.bfloat16 if "stories" in str(each) else torch.float16
        assert {x.dtype for x in stored.values()} == {half}
        both = each.name == "reorder"  # encoder and decoder
        kind = AutoModelForSeq2SeqLM if both else AutoModelForCausalLM
        module = kind.from_pretrained(each, use_safetensors=True)
        assert module.dtype == torch.float32
        loaded = module.state_dict()
        assert all(torch.equal(loaded[name], value.float()) for name, value in stored.items())


def test_rounding_changes_no_score_of_the_record(induction_module, induction_record):
    """The record was measured on the weights as they were trained, in float32."""
    exam = np.random.default_rng([induction_record["seed"], 1])
    tokenizer = AutoTokenizer.from_pretrained(bundled.path("induction"))
    corpus = Corpus(paragraphs(1000, induction_record["seed"] + 1), tokenizer)
    corpus.rows(exam, 64, induction_record["recipe"]["length"])
    ids = torch.from_numpy(two_copies(exam, 64, PERIODS[0], induction_record["vocab"]))
    found = measure.stripes(induction_module, ids, PERIODS[0])
    told = induction_record["emergence"][-1]
    for name, scores in found.items():
        assert np.allclose(scores, told[name], atol=2e-4)  # the record has four decimals


def test_a_wheel_says_where_the_checkpoints_are(tmp_path, monkeypatch):
    whole = bundled.path("induction") / "checkpoints"
    place = tmp_path / "induction" / "checkpoints"
    place.mkdir(parents=True)
    (place.parent / "model.safetensors").touch()
    shutil.copy(whole / "emergence.json", place)  # what a wheel holds
    monkeypatch.setattr(bundled, "HERE", tmp_path)
    with pytest.raises(OptionError, match=r"in the repository .* interp atlas .*checkpoints"):
        bundled.checkpoints("induction")


def test_a_wheel_says_where_the_fine_tune_of_the_stories_is(tmp_path, monkeypatch):
    for name, file in (("stories", "model.safetensors"), ("stories-raven", "config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()  # a wheel holds no weights of the fine-tune
    monkeypatch.setattr(bundled, "HERE", tmp_path)
    assert bundled.names("all") == ["stories"]
    for asked in (bundled.path, lambda name: interp.load(f"bundled:{name}")):
        with pytest.raises(OptionError, match=r"stories-raven is in the repository .* wheel"):
            asked("stories-raven")


def test_text_goes_through_the_tokenizer_and_back(name):
    tokenizer = AutoTokenizer.from_pretrained(bundled.path(name))
    assert tokenizer.is_fast
    for text in [*paragraphs(20, 9), "Zagreb, 12:30 - {why} not?\n  <done>~"]:
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == BOS == tokenizer.bos_token_id
        assert BOS not in ids[1:]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    words = " ".join(paragraphs(20, 9))
    assert len(tokenizer(words)["input_ids"]) < 3 * len(words.split())
    assert tokenizer("é")["input_ids"] == [BOS, tokenizer.unk_token_id, tokenizer.unk_token_id]


def test_second_copy_is_predicted_and_the_first_is_not(induction_module):
    ids = copies(induction_module)
    losses = measure.token_losses(induction_module, ids)
    first, second = losses[:, :PERIOD].mean(), losses[:, PERIOD + 1 :].mean()
    assert first > 0.9 * np.log(induction_module.config.vocab_size)
    assert second < 0.25 * first


def test_learned_heads_attend_like_induction_heads(induction_module):
    found = measure.stripes(induction_module, copies(induction_module), PERIOD)
    assert np.sort(found["induction"], axis=None)[-2] > 0.5
    assert found["previous_token"].max() > 0.5
    # What repeats are copied by is above the heads that look back by one token.
    assert np.unravel_index(found["induction"].argmax(), found["induction"].shape)[0] >= 1


def test_induction_heads_are_learned_from_the_tokens_not_from_the_distance(induction_module):
    ids = copies(induction_module)
    null = ids.clone()
    order = torch.randperm(PERIOD, generator=torch.Generator().manual_seed(0))
    null[:, PERIOD + 1 :] = ids[:, 1 : PERIOD + 1][:, order]
    found = measure.stripes(induction_module, ids, PERIOD)["induction"]
    shuffled = measure.stripes(induction_module, null, PERIOD)["induction"]
    top = np.unravel_index(found.argmax(), found.shape)
    assert found[top] > 0.5
    assert shuffled[top] < 0.15


def test_zeroing_the_top_heads_raises_the_loss_on_repeats(induction_module, induction_record):
    ids = copies(induction_module)
    top = [(layer, head) for layer, head, _ in induction_record["scores"]["top_induction_heads"]]
    before = measure.copied_loss(induction_module, ids, PERIOD)
    with measure.zeroed(induction_module, top):
        after = measure.copied_loss(induction_module, ids, PERIOD)
    low, high = measure.ratio_interval(after, before)
    assert low < after.mean() / before.mean() < high
    assert low > 2
    # It is the repetition that suffers: the first copy, which nobody can predict, stays as it was.
    first = measure.token_losses(induction_module, ids)[:, :PERIOD].mean()
    with measure.zeroed(induction_module, top):
        first_after = measure.token_losses(induction_module, ids)[:, :PERIOD].mean()
    assert abs(float(first_after / first) - 1) < 0.05


def test_the_negative_control_cannot_do_it(induction_record):
    control = AutoModelForCausalLM.from_pretrained(bundled.path("one-layer"), use_safetensors=True)
    ids = copies(control)
    assert measure.copied_loss(control, ids, PERIOD).mean() > 4
    assert measure.stripes(control, ids, PERIOD)["induction"].max() < 0.15


def test_record_tells_how_the_heads_emerged(induction_record):
    steps = [look["step"] for look in induction_record["emergence"]]
    assert steps[0] == 0
    assert steps[-1] == induction_record["recipe"]["steps"]
    assert 8 <= len(steps) <= 12
    best = [np.max(look["induction"]) for look in induction_record["emergence"]]
    assert best[0] < 0.1
    assert best[-1] > 0.5
    shape = (induction_record["recipe"]["layers"], induction_record["recipe"]["heads"])
    assert np.shape(induction_record["emergence"][0]["induction"]) == shape


def test_text_of_the_grammar_is_predicted(induction_module, induction_record):
    tokenizer = AutoTokenizer.from_pretrained(bundled.path("induction"))
    corpus = Corpus(paragraphs(200, 12345), tokenizer)
    ids = torch.from_numpy(corpus.rows(np.random.default_rng(0), 16, 200))
    loss = float(measure.token_losses(induction_module, ids).mean())
    mean, error = induction_record["scores"]["text_loss"]
    assert loss == pytest.approx(mean, abs=0.1 + 4 * error)
    assert loss < 2


def test_generation_continues_a_repeat(induction_module):
    ids = copies(induction_module)[:4]
    prompt = ids[:, : PERIOD + 10]
    said = induction_module.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, do_sample=False
    )
    right = (said[:, PERIOD + 10 :] == ids[:, PERIOD + 10 : PERIOD + 20]).float().mean()
    assert right > 0.8


def test_repeats_repeat_and_vary():
    rows, known = repeats(np.random.default_rng(0), 200, 128, 500)
    assert rows.shape == known.shape == (200, 128)
    assert (rows[:, 0] == BOS).all()
    assert rows[:, 1:].min() >= 3
    periods = set()
    for row, copied in zip(rows, known, strict=True):
        first = int(np.argmax(copied))
        assert copied[first:].all()  # once it repeats, it repeats to the end
        period = first - 2
        periods.add(period)
        np.testing.assert_array_equal(row[1 + period :], row[1:-period])
    assert min(periods) == 5
    assert max(periods) == 63
    assert len(periods) > 40


SMOKE = replace(
    RECIPES["induction"],
    steps=20,
    rows=8,
    text_rows=4,
    length=32,
    long_after=10,
    paragraphs=300,
    d_model=32,
    heads=4,
    kv_heads=2,
    d_head=8,
    d_mlp=32,
)


def test_training_twice_gives_the_same_weights_and_leaves_torch_alone(tmp_path):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    threads = torch.get_num_threads()
    lines = []
    records = [
        train("induction", SMOKE, seed, 1, tmp_path / str(i), lines.append)
        for i, seed in enumerate([3, 3, 4])
    ]
    hashes = [r["weights_sha256"] for r in records]
    assert hashes[0] == hashes[1] != hashes[2]
    assert records[0]["batches_sha256"] == records[1]["batches_sha256"]
    tokenizers = [(tmp_path / str(i) / "tokenizer.json").read_bytes() for i in (0, 1)]
    assert tokenizers[0] == tokenizers[1]
    assert records[0]["loss_curve"][0][1] > records[0]["emergence"][-1]["text_loss"]
    assert lines
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "0").config.num_key_value_heads == 2


def test_plain_texts_are_those_of_the_model_where_it_has_some():
    told = {
        name: bundled.plain_texts(interp.load(f"bundled:{name}"))
        for name in ("stories", "induction")
    }
    held_out = (bundled.path("stories") / "held_out.jsonl").read_text().splitlines()
    assert told["stories"] == [json.loads(line)["text"] for line in held_out]
    assert told["induction"] == (folder("data") / "prompts.txt").read_text().splitlines()
