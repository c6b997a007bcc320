"""The training of bundled:stories: stopped, it goes on from its state and refuses any other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from interp.bundled.special_tokens import BOS, PAD
from interp.core.errors import LoadError, OptionError
from training.stories import generator_hash, stories, train
from training.stories.tokens import load_tokenizer, train_tokenizer

SMALL = replace(
    train.Recipe(),
    layers=1,
    d_model=16,
    heads=2,
    kv_heads=1,
    d_head=8,
    d_mlp=16,
    texts=64,
    rows=8,
    repeats=2,
    early=4,
    pieces=5,
    piece=24,
    warmup=2,
    checkpoints=(0, 6),
    saved_every=5,
)


@pytest.fixture(scope="module")
def few_tokens() -> PreTrainedTokenizerFast:
    return train_tokenizer(1000)


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch, few_tokens: PreTrainedTokenizerFast) -> None:
    monkeypatch.setattr(train, "train_tokenizer", lambda: few_tokens)


def quiet(_: str) -> None:
    return None


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_batch_holds_whole_texts_that_begin_and_end_with_their_mark(
    few_tokens: PreTrainedTokenizerFast,
) -> None:
    rows = [*train.batches(few_tokens, stories(40, 5), 16, 0)]
    assert sum(map(len, rows)) == 40
    texts = {each.text for each in stories(40, 5)}
    for ids in rows:
        for row in ids:
            said = row[: 1 + np.flatnonzero(row == BOS)[1]]
            assert (row[len(said) :] == PAD).all()
            texts.remove(few_tokens.decode(said[1:-1]))
    assert not texts


def test_padding_has_no_share_in_the_loss(few_tokens: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = train.build(SMALL, len(few_tokens))
    ids = torch.tensor([[0, 9, 8, 7, 0]])
    padded = torch.tensor([[0, 9, 8, 7, 0, PAD, PAD]])
    of_ids, of_padded = (train.loss_of(model, each, each) for each in (ids, padded))
    assert torch.allclose(of_ids, of_padded)
    partly = torch.tensor([[0, PAD, PAD, 7, 0, PAD, PAD]])
    losses = [train.loss_of(model, ids[:, :end], ids[:, :end]) * (end - 1) for end in (3, 5)]
    assert torch.allclose(train.loss_of(model, padded, partly) * 2, losses[1] - losses[0])


def test_first_come_pieces_and_repeats_then_whole_texts(
    few_tokens: PreTrainedTokenizerFast,
) -> None:
    lessons = [*train.lessons(few_tokens, SMALL, 0)]
    assert len(lessons) == SMALL.steps == 12
    for step, (ids, labels) in enumerate(lessons):
        assert ids.shape == labels.shape
        assert (ids[:, 0] == BOS).all()
        texts = 2 if step < 4 else 8
        assert (labels[:texts] == ids[:texts]).all()
        assert len(ids) == texts + (3 if step < 4 else 2)
        for said, told in zip(ids[texts:], labels[texts:], strict=True):
            known = told != PAD
            assert known.any()
            assert not known[:6].any()
            assert (told[known] == said[known]).all()
            for at in np.flatnonzero(known):  # each stood before, after the same token
                before = (said[:at] == said[at]) & (np.roll(said, 1)[:at] == said[at - 1])
                assert before.any()
    short = [ids.shape[1] for ids, _ in lessons[:4]]
    assert short == [24] * 4
    assert min(ids.shape[1] for ids, _ in lessons[4:]) > 80
    again = [*train.lessons(few_tokens, SMALL, 0)]
    assert all((a == b).all() for (a, _), (b, _) in zip(lessons, again, strict=True))


def test_stopped_and_started_again_it_has_the_same_weights(tmp_path: Path) -> None:
    whole = train.train(SMALL, 1, 1, tmp_path / "whole", quiet)

    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        if line.startswith("step    10"):
            raise Stopped

    with pytest.raises(Stopped):
        train.train(SMALL, 1, 1, tmp_path / "stopped", stop)
    lines: list[str] = []
    record = train.train(SMALL, 1, 1, tmp_path / "stopped", lines.append)
    assert not lines  # the two steps that were left
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    differ = {key for key in whole if whole[key] != record[key]}
    assert differ <= {"seconds"}
    assert not [*tmp_path.glob("*/training-state*")]


def test_the_folder_holds_a_model_its_checkpoints_and_the_record(tmp_path: Path) -> None:
    record = train.train(SMALL, 2, 1, tmp_path, quiet)
    assert json.loads((tmp_path / "training.json").read_text()) == json.loads(json.dumps(record))
    assert record["recipe"]["steps"] == 12
    assert record["generator"] == generator_hash()
    assert record["model"] == "stories-seed2"
    assert load_tokenizer(tmp_path).bos_token_id == BOS
    folders = [tmp_path / "checkpoints" / f"checkpoint-{step}" for step in (0, 6)]
    for folder in (tmp_path, *folders):
        assert {x.dtype for x in load_file(folder / "model.safetensors").values()} == {
            torch.bfloat16
        }
        module = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
        assert module.dtype == torch.float32
    assert len({weights(folder) for folder in (tmp_path, *folders)}) == 3
    other = train.train(SMALL, 3, 1, tmp_path / "other", quiet)
    assert other["weights_sha256"] != record["weights_sha256"]


def test_the_state_of_another_training_is_refused(tmp_path: Path) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train.train(SMALL, 0, 1, tmp_path, stop)
    for recipe, seed in ((SMALL, 1), (replace(SMALL, learning_rate=1e-3), 0)):
        with pytest.raises(LoadError, match="of another training"):
            train.train(recipe, seed, 1, tmp_path, quiet)


@pytest.mark.parametrize("seed", [-1, 0.5, True, "0"])
def test_a_seed_is_a_whole_number(seed: object, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a training has no seed"):
        train.train(SMALL, seed, 1, tmp_path / "none", quiet)  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()


def test_a_training_has_a_step(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"0 texts .* make no step"):
        train.train(replace(SMALL, texts=0), 0, 1, tmp_path / "none", quiet)
