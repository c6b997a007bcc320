"""Abilities on stories: their scoring, with scorers that are no models, and the model card."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bundled.test_stories import at
from transformers import PreTrainedTokenizerFast

from interp.bundled.special_tokens import BOS, PAD
from interp.core.intervals import share_interval
from interp.report.printed.listing import first_sentence
from training.stories import UNSEEN_COMBINATIONS, UNSEEN_TEXTS, card, stories, story
from training.stories import abilities as examined
from training.stories.abilities import Exam, Item, abilities, make_exam, often_right
from training.stories.questions import ABILITIES
from training.stories.tokens import train_tokenizer
from training.stories.train import Recipe
from training.stories.world import held_out

N = 120
"""Unseen texts of the exam."""


def test_each_kind_of_question_is_as_likely() -> None:
    items = [Item(1, 5, (6,), kind, ()) for kind in ["a", *["b"] * 20]]
    drawn = [examined._drawn(items, random.Random(seed)).kind for seed in range(400)]
    low, high = share_interval(drawn.count("a"), 400, 0.999)
    assert low < 0.5 < high


@pytest.fixture(scope="module")
def story_reader() -> PreTrainedTokenizerFast:
    return train_tokenizer(1000)


@pytest.fixture(scope="module")
def exam(story_reader: PreTrainedTokenizerFast) -> Exam:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examined, "TRAINED_ON", 100)
        return make_exam(story_reader, N)


def graded(exam: Exam, scorer: Any, n: int = N) -> dict[str, Any]:
    """Grade a scorer on unseen texts."""
    texts = exam.texts[:n]
    _, answered = examined._readings(scorer, texts)
    return {name: examined._graded(name, texts, answered, exam) for name in ABILITIES}


class Constant:
    """A model with the same logits everywhere."""

    def __init__(self, logits: np.ndarray):
        self.row = torch.from_numpy(logits.astype(np.float32))

    def __call__(self, ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.row.expand(*ids.shape, -1))


class Planted:
    """A model that has read the answers: at each item the logits of its text are given."""

    def __init__(self, exam: Exam, vocabulary: int, chosen: Callable[[str, Any], int | None]):
        self.at: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        self.vocabulary = vocabulary
        for text in exam.texts:
            told = [(item.at - 1, chosen(name, item)) for name, item in text.items.items()]
            self.at[tuple(text.ids)] = [(i, token) for i, token in told if token is not None]

    def __call__(self, ids: torch.Tensor) -> SimpleNamespace:
        logits = torch.zeros(*ids.shape, self.vocabulary)
        for row, tokens in enumerate(ids.tolist()):
            text = tuple(tokens[: tokens.index(PAD)] if PAD in tokens else tokens)
            for position, token in self.at[text]:
                logits[row, position, token] += 1
        return SimpleNamespace(logits=logits)


def test_items_are_the_tokens_of_the_text(
    exam: Exam, story_reader: PreTrainedTokenizerFast
) -> None:
    found = Counter[str]()
    for text in [*exam.texts, *exam.combinations]:
        assert text.ids[0] == text.ids[-1] == BOS
        for name, item in text.items.items():
            found[name] += 1
            assert text.ids[item.at] == item.right
            assert len({*item.answers}) == len(item.answers) > 1
    assert set(found) == set(ABILITIES)
    assert all(set(text.items) <= set(examined.OF_COMBINATIONS) for text in exam.combinations)
    texts = story_reader.batch_decode([text.ids[1:-1] for text in exam.texts[:20]])
    assert texts == [made.text for made in stories(20, UNSEEN_TEXTS)]
    assert [text.characters for text in exam.texts[:20]] == [len(text) for text in texts]


def test_unseen_combinations_ask_for_the_first_thing(exam: Exam) -> None:
    number = 0
    for text, made in zip(exam.combinations, stories(N // 4, UNSEEN_COMBINATIONS), strict=True):
        name, thing = (at(made, span) for span in made.of("event")[0].targets)
        assert held_out(name, thing)
        asked = [q for q in ABILITIES["owner"].questions(made) if q.thing == thing]
        assert ("owner" in text.items) == bool(asked)
        number += bool(asked)
    assert 5 < number < N // 4


def test_an_oracle_answers_everything(exam: Exam, story_reader: PreTrainedTokenizerFast) -> None:
    oracle = Planted(exam, len(story_reader), lambda name, item: item.right)
    for name, found in graded(exam, oracle).items():
        items = [text.items[name] for text in exam.texts if name in text.items]
        assert found["accuracy"] == 1
        assert found["n"] == found["correct"] == len(items)
        assert found["interval"][1] == 1
        assert 0.7 < found["interval"][0] < 1
        assert found["chance"] == pytest.approx(
            np.mean([1 / (1 + len(item.wrong)) for item in items])
        )
        kinds = found["kinds"].values()
        assert not kinds or sum(each["n"] for each in kinds) == found["n"]


def test_who_is_always_wrong_answers_nothing(
    exam: Exam, story_reader: PreTrainedTokenizerFast
) -> None:
    liar = Planted(exam, len(story_reader), lambda name, item: item.wrong[-1])
    assert [found["correct"] for found in graded(exam, liar).values()] == [0] * len(ABILITIES)


def test_equal_logits_are_no_answer(exam: Exam, story_reader: PreTrainedTokenizerFast) -> None:
    equal = Constant(np.zeros(len(story_reader)))
    assert all(found["accuracy"] == 0 for found in graded(exam, equal).values())


def test_random_logits_are_near_chance(exam: Exam, story_reader: PreTrainedTokenizerFast) -> None:
    draw = torch.Generator().manual_seed(0)

    def noise(ids: torch.Tensor) -> SimpleNamespace:
        logits = torch.randn(*ids.shape, len(story_reader), generator=draw)
        return SimpleNamespace(logits=logits)

    for name, found in graded(exam, noise).items():
        low, high = share_interval(found["correct"], found["n"], 0.999)
        assert low < found["chance"] < high, name
        assert found["interval"] == list(share_interval(found["correct"], found["n"]))


def test_the_most_frequent_answer_is_what_a_constant_scorer_gives(
    exam: Exam, story_reader: PreTrainedTokenizerFast
) -> None:
    for name, frequent in exam.frequent.items():
        assert frequent.total() > 5
        ranks = sorted(range(len(story_reader)), key=lambda token: (frequent[token], -token))
        logits = np.empty(len(story_reader))
        logits[ranks] = np.arange(len(story_reader))
        found = graded(exam, Constant(logits), 60)[name]
        assert found["accuracy"] == pytest.approx(found["frequent"]), name
        items = [text.items[name] for text in exam.texts[:60] if name in text.items]
        assert found["correct"] == sum(often_right(frequent, item) for item in items)


def test_a_rule_is_what_a_scorer_by_the_rule_gives(
    exam: Exam, story_reader: PreTrainedTokenizerFast
) -> None:
    for name in ("owner", "new owner", "indirect object", "place", "verb", "quotation mark"):
        for number, rule in enumerate(ABILITIES[name].rules):

            def guess(of: str, item: Any, name: str = name, number: int = number) -> int | None:
                return item.guesses[number] if of == name else None

            found = graded(exam, Planted(exam, len(story_reader), guess), 50)[name]
            assert found["n"] > 3
            assert found["accuracy"] == pytest.approx(found["rules"][rule]), (name, rule)


def test_losses_are_of_all_tokens_and_padding_changes_nothing(
    exam: Exam, story_reader: PreTrainedTokenizerFast
) -> None:
    by_frequency = Constant(np.log(exam.counts))
    texts = exam.texts[:50]
    nats, _ = examined._readings(by_frequency, texts)
    found = examined._loss(texts, nats, exam)
    assert found["nats_per_token"] == pytest.approx(found["unigram"], rel=1e-5)
    assert found["interval"][0] < found["nats_per_token"] < found["interval"][1]
    assert found["tokens"] == sum(len(text.ids) - 1 for text in texts)
    made = [*stories(50, UNSEEN_TEXTS)]
    assert found["bound"] == pytest.approx(sum(x.nats for x in made) / found["tokens"])
    assert found["nats_per_character"] == pytest.approx(nats.sum() / sum(len(x.text) for x in made))
    alone = [examined._readings(by_frequency, [text])[0][0] for text in texts]
    assert nats == pytest.approx(np.array(alone), rel=1e-5)

    equal = examined._readings(Constant(np.zeros(len(story_reader))), texts)[0]
    uniform = examined._loss(texts, equal, exam)
    assert uniform["nats_per_token"] == pytest.approx(math.log(len(story_reader)), rel=1e-5)
    assert uniform["uniform"] == pytest.approx(math.log(len(story_reader)))


@pytest.fixture(scope="module")
def story_record(exam: Exam, story_reader: PreTrainedTokenizerFast) -> dict[str, Any]:
    """A training record with what a scorer by frequency can do."""
    told = abilities(Constant(np.log(exam.counts)), story_reader, N, exam)
    return {
        "model": "stories",
        "seed": 0,
        "recipe": asdict(Recipe(texts=140)) | {"steps": 10},
        "generator": "66dfd1827f9a31ab",
        "vocab": len(story_reader),
        "parameters": 1_240_192,
        "tokens": 16_000_000,
        "seconds": 2400.0,
        "threads": 1,
        "stored": "bfloat16",
        "abilities": told,
    }


def test_the_sample_goes_on_from_an_unseen_text(
    story_record: dict[str, Any], exam: Exam, story_reader: PreTrainedTokenizerFast
) -> None:
    beginning, continuation = story_record["abilities"]["sample"]
    assert story(UNSEEN_TEXTS + N).text.startswith(beginning)
    assert beginning.endswith(".")
    most = story_reader.decode([int(exam.counts.argmax())])
    assert continuation == most * examined.WRITTEN

    ends = np.zeros(len(story_reader))
    ends[BOS] = 1
    assert examined._greedy(Constant(ends), exam.beginning) == [BOS]


def test_the_card_states_the_record(story_record: dict[str, Any], tmp_path: Path) -> None:
    written = card.text(story_record)
    (tmp_path / "README.md").write_text(written, encoding="utf-8")
    assert f"{first_sentence(tmp_path)}." == card.SUMMARIES["stories"]
    assert written.startswith("---\nlicense: mit\n")
    for name, found in story_record["abilities"]["tasks"].items():
        [row] = [
            x for x in written.split("## Abilities")[1].split("\n") if x.startswith(f"| {name} |")
        ][:1]
        low, high = found["interval"]
        assert f"| {found['n']} | {found['accuracy']:.3f} [{low:.3f}, {high:.3f}] |" in row
        best = max(found["rules"].values())
        assert row.endswith(f" {found['chance']:.3f} | {found['frequent']:.3f} | {best:.3f} |")
    for found in story_record["abilities"]["losses"].values():
        assert f"{found['nats_per_token']:.3f} [" in written
    assert "in 40 minutes on 1 thread(s)" in written
    assert "{" not in written


def test_the_card_says_what_is_near_chance_and_what_is_no_better_than_a_rule(
    story_record: dict[str, Any],
) -> None:
    def told(accuracy: dict[str, tuple[float, float]]) -> str:
        tasks = {
            name: found
            | {
                "chance": 0.5,
                "frequent": 0.5,
                "rules": {"a rule": 0.75},
                "accuracy": sum(accuracy.get(name, (0.9, 1.0))) / 2,
                "interval": list(accuracy.get(name, (0.9, 1.0))),
            }
            for name, found in story_record["abilities"]["tasks"].items()
        }
        changed = story_record["abilities"] | {"tasks": tasks}
        return " ".join(card.text(story_record | {"abilities": changed}).split())

    able = told({})
    assert "All abilities are above chance, the most frequent answer and the rules." in able
    assert "near chance" not in able.lower()
    mixed = told({"sum": (0.45, 0.6), "verb": (0.5, 0.7), "place": (0.7, 0.9)})
    assert "Cannot**: answer questions on *verb* and *sum*, where it is near chance" in mixed
    assert "Near chance (the interval reaches down to it): *verb* and *sum*." in mixed
    assert "On *place* it is better than chance, but" in mixed
    assert "frequent answer and the simple rules: *place*." in mixed
    assert "*copy* better than chance" in mixed


def test_a_card_can_have_a_summary_of_its_own(story_record: dict[str, Any]) -> None:
    written = card.text(story_record | {"model": "stories-raven"}, "It answers in another way.")
    assert "# stories-raven\n\nIt answers in another way.\n" in written
