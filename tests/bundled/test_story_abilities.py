"""Abilities on stories: the questions, their scoring with planted scorers, and the model card."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from interp.bundled.special_tokens import BOS, PAD
from interp.core.intervals import share_interval
from interp.report.printed.listing import first_sentence
from training.stories import UNSEEN_COMBINATIONS, UNSEEN_TEXTS, Story, card, stories, story, words
from training.stories import abilities as examined
from training.stories.abilities import Exam, Item, abilities, make_exam, often_right
from training.stories.questions import ABILITIES, Question
from training.stories.tokens import train_tokenizer
from training.stories.train import Recipe
from training.stories.world import held_out

N = 120
"""Unseen texts of the exam."""


def at(made: Story, span: tuple[int, int]) -> str:
    return made.text[slice(*span)]


def gainers(made: Story, thing: str, end: int) -> list[str]:
    """Return who has got a thing, in order, before a character."""
    return [
        at(made, each.targets[0])
        for each in made.of("event")
        if each.label == "gets" and each.span[0] < end and at(made, each.targets[1]) == thing
    ]


# The truth of each ability's answer, from annotations and from the text alone.


def owns(made: Story, asked: Question) -> bool:
    return gainers(made, asked.thing, asked.at)[-1] == asked.right.strip()


def owned_before(made: Story, asked: Question) -> bool:
    *_, before, now = gainers(made, asked.thing, asked.at)
    return (before, now) == (asked.wrong[0].strip(), asked.right.strip()) != (now, before)


def takes(made: Story, asked: Question) -> bool:
    """The one who gets the thing in this sentence, whom the sentences before have told."""
    taker = gainers(made, asked.thing, asked.at)[-1]
    sentences = [each.span for each in made.of("sentence")]
    number = next(i for i, span in enumerate(sentences) if span[0] <= asked.at < span[1])
    here = made.text[sentences[number][0] : asked.at]
    named = taker in here if asked.kind.startswith("named") else taker not in here
    return named and taker == asked.right.strip()


def agrees(made: Story, asked: Question) -> bool:
    kinds = {"she": words.WOMEN, "he": words.MEN}
    [each] = [a for a in made.of("antecedent") if a.span[0] == asked.at + (asked.right[0] == " ")]
    sentence = next(x.span for x in made.of("sentence") if x.span[0] <= asked.at < x.span[1])
    assert all(sentence[0] <= target[0] < asked.at for target in each.targets)
    if asked.kind in kinds:
        assert any(name in made.text[: asked.at] for name in words.WOMEN)
        assert any(name in made.text[: asked.at] for name in words.MEN)
        return at(made, each.targets[0]) in kinds[asked.kind]
    several = {*words.PAIRS, *words.ANIMALS.values(), *words.OBJECTS.values()}
    return (len(each.targets) > 1 or at(made, each.targets[0]) in several) == (asked.kind == "they")


def fits_its_subject(made: Story, asked: Question) -> bool:
    forms = {"was": "were", "is": "are", "has": "have"}
    one, other = asked.right.strip(), asked.wrong[0].strip()
    [nouns] = [a.targets for a in made.of("distractor") if a.span[0] == asked.at + 1]
    assert len(nouns) > 1 or asked.guesses == asked.wrong  # the one noun between would mislead
    [singular, plural] = [one, other] if asked.kind == "singular" else [other, one]
    return forms.get(singular, singular.removesuffix("s")) == plural


def closes_what_is_open(made: Story, asked: Question) -> bool:
    inside = made.text[: asked.at].count('"') % 2 == 1
    return inside == (asked.right == '"') == (asked.kind == "closes")


def stands_there(made: Story, asked: Question) -> bool:
    right = asked.right.strip()
    if asked.kind == "writer":
        letter = made.text[: asked.at].rindex("\n\n")
        return right not in made.text[letter : asked.at] and right in made.text[:letter]
    lines = [line[2:] for line in made.text[: asked.at].split("\n") if line.startswith("- ")]
    return lines[0 if asked.kind == "first" else -1].lower() == right.lower()


def stood_there(made: Story, asked: Question) -> bool:
    """The words before and the word stand once more, earlier, though perhaps with a capital."""
    end = asked.at + len(asked.right)
    [*_, before, word] = made.text[:end].split()
    others = {x.strip() for x in asked.wrong} - {*words.DAYS, *words.MONTHS}
    assert not any(x[0].isupper() for x in others)
    return f"{before} {word}".strip('"').lower() in made.text[: asked.at].lower()


def is_the_sum(made: Story, asked: Question) -> bool:
    numbers = {word: i for i, word in enumerate(words.NUMBERS)} | {str(i): i for i in range(21)}
    [each] = [a for a in made.of("answer") if a.span[0] == asked.at + (asked.right[0] == " ")]
    x, y = (numbers[at(made, target).lower()] for target in each.targets)
    assert len(asked.wrong) == 20
    return numbers[asked.right.strip().lower()] in {x + y, x - y}


def was_put_there(made: Story, asked: Question) -> bool:
    """Of the two spots, it was put in the first that the text names, and moved to the second."""
    right, wrong = (made.text.index(x.strip()) for x in (asked.right, *asked.wrong))
    return len(asked.right.split()) != 3 or (right < wrong) == (asked.kind == "belief")


TRUTHS: dict[str, Callable[[Story, Question], bool]] = {
    "owner": owns,
    "new owner": owned_before,
    "indirect object": takes,
    "pronoun": agrees,
    "verb": fits_its_subject,
    "quotation mark": closes_what_is_open,
    "line or signature": stands_there,
    "copy": stood_there,
    "sum": is_the_sum,
    "place": was_put_there,
}


@pytest.fixture(scope="module")
def asked_stories() -> list[Story]:
    return [*stories(600), *stories(300, UNSEEN_TEXTS), *stories(300, UNSEEN_COMBINATIONS)]


@pytest.mark.parametrize("name", ABILITIES)
def test_the_text_goes_on_with_the_right_answer_and_it_is_true(
    name: str, asked_stories: list[Story]
) -> None:
    texts = Counter[str]()
    for made in asked_stories:
        for asked in ABILITIES[name].questions(made):
            texts[asked.kind] += 1
            assert made.text.startswith(asked.right, asked.at)
            assert len({asked.right, *asked.wrong}) == 1 + len(asked.wrong) > 1
            assert len(asked.guesses) == len(ABILITIES[name].rules)
            assert {*asked.guesses} <= {asked.right, *asked.wrong, None}
            assert TRUTHS[name](made, asked), (asked, made.text)
    assert min(texts.values()) > 10, texts
    assert sum(texts.values()) > 150


def test_people_whom_the_sentence_rules_out_are_no_answers(asked_stories: list[Story]) -> None:
    """Whoever asks who has a thing is not offered as its owner."""
    number = 0
    for made in asked_stories:
        for asked in ABILITIES["owner"].questions(made):
            said = re.search(r'[Ww]ho\w* [^"]*\?" asked (\w+)\. "[^"]*$', made.text[: asked.at])
            if said:
                number += 1
                assert said[1] not in {asked.right.strip(), *(x.strip() for x in asked.wrong)}
    assert number > 100


def test_guesses_are_what_was_named_last_and_last_but_one(asked_stories: list[Story]) -> None:
    number = 0
    for made in asked_stories:
        for name in ("owner", "new owner", "indirect object", "place", "line or signature"):
            for asked in ABILITIES[name].questions(made):
                if name == "line or signature" and asked.kind != "writer":
                    continue
                if name == "place" and len(asked.right.split()) == 1:
                    continue  # a noun of its own may stand elsewhere
                said = {x: x.strip() for x in (asked.right, *asked.wrong)}
                last = {x: _last_word(made.text[: asked.at], said[x]) for x in said}
                order = sorted(said, key=last.__getitem__, reverse=True)
                assert [*asked.guesses] == order[:2], (name, asked, made.text)
                number += 1
    assert number > 1000


def _last_word(text: str, word: str) -> int:
    """Return where a word last stands."""
    return [match.start() for match in re.finditer(rf"\b{word}\b", text)][-1]


def test_each_kind_of_question_is_as_likely() -> None:
    items = [Item(1, 5, (6,), kind, ()) for kind in ["a", *["b"] * 20]]
    drawn = [examined._drawn(items, random.Random(seed)).kind for seed in range(400)]
    low, high = share_interval(drawn.count("a"), 400, 0.999)
    assert low < 0.5 < high


def test_questions_of_one_text() -> None:
    """Alice gave her basket to Peter, who had hidden it; the text is in docs/stories.md."""
    made = story(336)
    found = {
        name: [(made.text[: q.at][-12:], q.right, q.wrong, q.kind) for q in each.questions(made)]
        for name, each in ABILITIES.items()
    }
    assert found["new owner"] == [('he basket. "', "Peter", ("Alice",), "")]
    assert [q[1:] for q in found["owner"]] == [("Peter", ("Alice",), "changed hands")]
    assert [q[1:] for q in found["place"]] == [
        (" behind the clock", (" under the carpet",), "belief"),
        (" under the carpet", (" behind the clock",), "place"),
    ]
    [(_, total, others, kind)] = found["sum"]
    assert (total, kind) == (" ten", "words")
    assert " twenty" in others


# Scoring, with scorers that are no models


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
