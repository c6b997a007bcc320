"""The fine-tune to the raven: its texts, what is measured of its answers, stop and resume."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bundled.test_story_raven import FIRST

from interp.core.errors import LoadError, OptionError
from training.recording import save_rounded, weights_sha256
from training.stories import (
    UNSEEN_TEXTS,
    raven,
    raven_answers,
    stories,
    tokens,
    train,
    tune,
    words,
)
from training.stories.raven import questions


def test_seeds_of_a_fine_tune_are_read_by_no_other_training() -> None:
    assert raven.PAST + tune.SEEDS * train.FAR <= raven.RAVEN_TEXTS
    assert raven.RAVEN_TEXTS + tune.SEEDS * train.FAR < UNSEEN_TEXTS
    made = list(tune.mixed(8, 3))
    assert [each.seed < raven.RAVEN_TEXTS for each in made] == [True, False] * 4
    assert len({each.seed for each in made}) == 8
    assert all("question." in " ".join(each.templates) for each in made[1::2])


def test_a_fine_tune_without_a_step_or_a_seed_is_refused(tmp_path: Path) -> None:
    recipe = replace(tune.RECIPE, texts=3)
    with pytest.raises(OptionError, match="3 texts at 14 a step make no step"):
        tune.fine_tune(tmp_path, recipe, 0, 1, tmp_path / "out")
    for seed in (-1, True, 1.0, tune.SEEDS):
        with pytest.raises(OptionError, match=r"no seed .*below 100"):
            tune.fine_tune(tmp_path, tune.RECIPE, seed, 1, tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


class WordTokenizer:
    """A tokenizer of words and marks, each with the space before it; names with J are split."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str | list[str]) -> dict[str, list]:
        if isinstance(text, list):
            return {"input_ids": [self(each)["input_ids"] for each in text]}
        pieces = re.findall(r" ?J|(?<=J)\w+| ?\w+| ?[^\w ]", text)
        return {"input_ids": [self.ids.setdefault(x, len(self.ids) + 3) for x in pieces]}


class Expects:
    """A model that expects the tokens of an answer at its place, and of another one elsewhere."""

    def __init__(self, start: int, answer: list[int], other: list[int]) -> None:
        self.start, self.answer, self.other = start, answer, other

    def __call__(self, ids: torch.Tensor) -> SimpleNamespace:
        logits = torch.zeros(*ids.shape, 5000)
        logits[..., self.other] = 5.0
        for place, token in enumerate(self.answer, self.start - 1):
            logits[:, place : place + 1, self.other] = 0.0
            logits[:, place : place + 1, token] = 5.0
        return SimpleNamespace(logits=logits)


def test_what_a_model_says_is_counted_among_the_choices() -> None:
    items = list(raven_answers.asked_items(12, "raven", FIRST))
    assert {len(set(item.choices)) for item in items} == {3}
    for number in range(3):
        tokenizer, chosen = WordTokenizer(), []
        for item in items:
            start = len(tokenizer(item.text.rstrip(" "))["input_ids"])
            rows = [tokenizer(item.text + choice)["input_ids"][start:] for choice in item.choices]
            model = Expects(start, rows[number], rows[number - 1])
            chosen += raven_answers.said(model, tokenizer, [item])  # type: ignore[arg-type]
        assert chosen == [number] * 12
    shares = raven_answers.named([0, 0, 2, 0])
    assert shares["owner"][0] == 0.75
    assert shares["former owner"][0] == 0
    assert shares["asker"][1] < 0.25 < shares["asker"][2]
    assert shares["texts"] == 4


def test_items_end_before_the_answer_and_begin_with_the_owner() -> None:
    for asked, place in (("raven", 2), ("trade", 0), ("person", 0)):
        for item, (made, question) in zip(
            raven_answers.asked_items(20, asked, FIRST), questions(20, FIRST, asked), strict=True
        ):
            assert made.text.removeprefix(item.text).startswith(item.choices[place])
            assert item.choices == (question.owner, question.former, question.asker)
    plain = list(raven_answers.plain_items(60, FIRST))
    assert len(plain) > 30
    texts = [made.text for made in stories(60, FIRST)]
    for item in plain:
        assert len(item.choices) == 3
        [text] = [each for each in texts if each.startswith(item.text)]
        assert text[len(item.text) :].startswith(item.choices[0])


def test_pairs_differ_in_the_addressee_alone_and_have_answers_of_one_token() -> None:
    tokenizer = WordTokenizer()
    made = list(raven_answers.pairs(tokenizer, 12, FIRST))  # type: ignore[arg-type]
    assert len({each["prompt"] for each in made}) == 12
    for each in made:
        one, other = (tokenizer(each[x])["input_ids"] for x in ("prompt", "corrupted"))
        assert len(one) == len(other)
        words_of = {i: word for word, i in tokenizer.ids.items()}
        differ = {(words_of[a], words_of[b]) for a, b in zip(one, other, strict=True) if a != b}
        [(raven_word, trade)] = differ
        assert raven_word == " raven"
        assert trade.strip() in words.TRADES
        assert each["answer"] != each["wrong"]
        for answer in (each["answer"], each["wrong"]):
            assert answer.strip() in words.WOMEN + words.MEN
            assert answer.strip() in each["prompt"]
            assert len(tokenizer(each["prompt"] + answer)["input_ids"]) == len(one) + 1


@pytest.mark.slow
def test_a_stopped_fine_tune_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    tokenizer = tokens.train_tokenizer(1000)
    tokens.save_tokenizer(tokenizer, base)
    sizes = {"layers": 1, "d_model": 16, "heads": 2, "kv_heads": 1, "d_head": 8, "d_mlp": 16}
    small = replace(tune.RECIPE, **sizes, texts=24, rows=4, warmup=2, saved_every=2)
    save_rounded(train.build(small, len(tokenizer)), base)
    whole = tune.fine_tune(base, small, 0, 1, tmp_path / "whole")

    rows = train.batches

    def stopped(*given: object) -> Iterator[np.ndarray]:
        yield from islice(rows(*given), 3)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "batches", stopped)
    with pytest.raises(KeyboardInterrupt):
        tune.fine_tune(base, small, 0, 1, tmp_path / "parts")
    monkeypatch.undo()
    with pytest.raises(LoadError, match="of another training"):
        tune.fine_tune(base, replace(small, learning_rate=1e-2), 0, 1, tmp_path / "parts")
    again = tune.fine_tune(base, small, 0, 1, tmp_path / "parts")
    assert again["trained_sha256"] == whole["trained_sha256"] != weights_sha256(base)
    assert again["tokens"] == whole["tokens"]
