"""Abilities of a language model on unseen stories, each beside chance and simple rules.

    python -m training.stories.abilities FOLDER [FOLDER ...] --out FILE

A question counts as answered if the first token of the right answer gets a higher logit than that
of every wrong one; answers with the same first token count as one. One question per text and
ability, so that questions are independent.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch.nn.functional import cross_entropy

from interp.bundled.special_tokens import BOS, PAD
from interp.core.documents import parse_json
from interp.core.files import write_atomically
from interp.core.intervals import share_interval
from interp.core.statistics import RatioBootstrap
from training.stories.questions import ABILITIES, Question
from training.stories.texts import UNSEEN_COMBINATIONS, UNSEEN_TEXTS, Story, stories, story

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

DATA = Path(__file__).parents[2] / "data"
TRAINED_ON = 1000
"""Training texts that say which answers are frequent, from seed 0."""
OF_COMBINATIONS = ("owner", "new owner")
"""Abilities that are also examined on people and things that no training text has together."""
ROWS = 32
"""Texts of a batch."""
WRITTEN = 120
"""Most tokens of the sample."""
_LONGEST = 512
"""Most tokens of a text that is read: the context of the model."""


class Item(NamedTuple):
    """A question in tokens: the first tokens of its answers, and where they stand in the text."""

    at: int
    right: int
    wrong: tuple[int, ...]
    kind: str
    guesses: tuple[int | None, ...]

    @property
    def answers(self) -> tuple[int, ...]:
        """All answers, the right one first."""
        return (self.right, *self.wrong)


@dataclass(frozen=True, slots=True)
class ExamText:
    """A text in tokens, from `<s>`, with at most one item of each ability.

    Attributes:
        characters: number of characters that these tokens stand for.
        nats: the entropy of the choices that made the text; NaN for a text of another origin.
    """

    ids: list[int]
    characters: int
    nats: float = float("nan")
    items: dict[str, Item] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exam:
    """Texts and questions, the same for every model with this tokenizer.

    Attributes:
        texts: unseen texts.
        combinations: texts whose first thing belongs to somebody who never has it in training.
        others: texts of other origin, by the name of their file.
        frequent: how often each token is the right answer in training texts, by ability.
        counts: how often each token of the vocabulary stands in training texts.
        beginning: of a text, which a model goes on with.
    """

    texts: list[ExamText]
    combinations: list[ExamText]
    others: dict[str, list[ExamText]]
    frequent: dict[str, Counter[int]]
    counts: Float[np.ndarray, " vocab"]
    beginning: list[int]


# From texts to tokens


class _Reader:
    """A tokenizer that remembers the first tokens of answers."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast):
        self._tokenizer = tokenizer
        self._first: dict[str, int] = {}

    def first(self, answer: str) -> int:
        """Return the first token of an answer."""
        if answer not in self._first:
            ids = self._tokenizer(answer, add_special_tokens=False)["input_ids"]
            self._first[answer] = ids[0]
        return self._first[answer]

    def item(self, question: Question, begins: dict[int, int]) -> Item | None:
        """Return a question in tokens, or None if all its answers begin with the same token."""
        right, at = self.first(question.right), begins[question.at]
        wrong = dict.fromkeys(self.first(each) for each in question.wrong)
        wrong.pop(right, None)
        guesses = tuple(None if each is None else self.first(each) for each in question.guesses)
        return Item(at, right, tuple(wrong), question.kind, guesses) if wrong else None

    def read(self, made: Story) -> tuple[list[int], dict[str, list[tuple[Question, Item]]]]:
        """Return the tokens of a story from `<s>` to `<s>`, and all its items by ability."""
        encoded = self._tokenizer(made.text, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        begins = {start: i for i, (start, end) in enumerate(offsets) if end > start}
        found = {
            name: [
                (question, item)
                for question in ability.questions(made)
                if (item := self.item(question, begins)) is not None
            ]
            for name, ability in ABILITIES.items()
        }
        return [*encoded["input_ids"], BOS], found

    def others(self, texts: Iterable[str]) -> list[ExamText]:
        """Return texts of another origin."""
        encoded = [self._tokenizer(text, return_offsets_mapping=True) for text in texts]
        return [
            ExamText(each["input_ids"][:_LONGEST], each["offset_mapping"][:_LONGEST][-1][1])
            for each in encoded
        ]


def _drawn(items: Sequence[Item], rng: random.Random) -> Item:
    """Return one item: every kind is as likely as the others."""
    kinds = sorted({item.kind for item in items})
    kind = kinds[int(rng.random() * len(kinds))]
    of_kind = [item for item in items if item.kind == kind]
    return of_kind[int(rng.random() * len(of_kind))]


def _exam_text(reader: _Reader, made: Story, abilities: Sequence[str], *, first: bool) -> ExamText:
    """Return a text with one item of each ability; `first` keeps those of its first thing alone."""
    ids, found = reader.read(made)
    rng = random.Random(made.seed)
    begin, end = made.of("event")[0].targets[1]
    items = {}
    for name in abilities:
        fitting = [
            item
            for question, item in found[name]
            if not first or question.thing == made.text[begin:end]
        ]
        if fitting:
            items[name] = _drawn(fitting, rng)
    return ExamText(ids, len(made.text), made.nats, items)


def make_exam(tokenizer: PreTrainedTokenizerFast, n: int = 2000) -> Exam:
    """Write the texts and questions of an exam.

    Args:
        tokenizer: of the models that are to be examined.
        n: number of unseen texts; a quarter as many have unseen combinations.
    """
    reader = _Reader(tokenizer)
    frequent: dict[str, Counter[int]] = {name: Counter() for name in ABILITIES}
    counts = np.ones(len(tokenizer))  # one more than the number, so that none is 0
    for made in stories(TRAINED_ON):
        ids, found = reader.read(made)
        np.add.at(counts, ids[1:], 1)
        for name, questions in found.items():
            frequent[name].update(item.right for _, item in questions)
    unseen = stories(n, UNSEEN_TEXTS)
    combined = stories(max(n // 4, 1), UNSEEN_COMBINATIONS)
    corpus = (DATA / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = (DATA / "prompts.txt").read_text(encoding="utf-8").splitlines()
    begun = story(UNSEEN_TEXTS + n)
    sentences = [each.span for each in begun.of("sentence")]
    return Exam(
        [_exam_text(reader, made, list(ABILITIES), first=False) for made in unseen],
        [_exam_text(reader, made, OF_COMBINATIONS, first=True) for made in combined],
        {
            "prompts.txt": reader.others(prompts),
            "corpus.jsonl": reader.others(parse_json(line)["text"] for line in corpus),
        },
        frequent,
        counts,
        tokenizer(begun.text[: sentences[1][1]])["input_ids"],
    )


# From logits to answers


@torch.inference_mode()
def _readings(
    model: Any, texts: Sequence[ExamText]
) -> tuple[Float[np.ndarray, " text"], list[dict[str, bool]]]:
    """Return the nats of each text under a model, and whether it answers each item."""
    nats = np.zeros(len(texts))
    answered: list[dict[str, bool]] = [{} for _ in texts]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].ids))
    for begin in range(0, len(order), ROWS):
        batch = order[begin : begin + ROWS]
        longest = len(texts[batch[-1]].ids)
        rows = [[*texts[i].ids, *[PAD] * (longest - len(texts[i].ids))] for i in batch]
        ids = torch.tensor(rows)
        logits = model(ids).logits.float()[:, :-1]
        losses = cross_entropy(logits.mT, ids[:, 1:], ignore_index=PAD, reduction="none")
        nats[batch] = losses.sum(1).double().numpy()
        for row, i in enumerate(batch):
            for name, item in texts[i].items.items():
                of_item = logits[row, item.at - 1, list(item.answers)]
                answered[i][name] = bool(of_item[0] > of_item[1:].max())
    return nats, answered


def _share(hits: Sequence[bool]) -> dict[str, Any]:
    """Return a share of independent questions with its 95 % interval."""
    return {
        "n": len(hits),
        "correct": sum(hits),
        "accuracy": sum(hits) / len(hits) if hits else None,
        "interval": list(share_interval(sum(hits), len(hits))),
    }


def often_right(frequent: Counter[int], item: Item) -> bool:
    """Say that the answer which is most often right in training texts is right here, too.

    Of equally frequent ones it is the one with the smallest token.
    """
    return max(item.answers, key=lambda token: (frequent[token], -token)) == item.right


def _of_rules(name: str, items: Sequence[Item]) -> dict[str, float]:
    """Return how often simple rules are right; they guess where they name no answer."""
    right = [
        [1 / len(item.answers) if guess is None else guess == item.right for guess in item.guesses]
        for item in items
    ]
    shares = np.mean(right, axis=0).tolist() if right else []
    return dict(zip(ABILITIES[name].rules, shares, strict=bool(right)))


def _graded(
    name: str, texts: Sequence[ExamText], answered: list[dict[str, bool]], exam: Exam
) -> dict[str, Any]:
    """Return how well one ability's items are answered, beside chance and simple rules."""
    pairs = [
        (text.items[name], hits[name])
        for text, hits in zip(texts, answered, strict=True)
        if name in text.items
    ]
    items = [item for item, _ in pairs]
    number = max(len(items), 1)
    kinds = sorted({item.kind for item in items})
    return {
        **_share([hit for _, hit in pairs]),
        "chance": sum(1 / len(item.answers) for item in items) / number,
        "frequent": sum(often_right(exam.frequent[name], item) for item in items) / number,
        "rules": _of_rules(name, items),
        "kinds": {
            kind: {
                **_share([hit for item, hit in pairs if item.kind == kind]),
                "rules": _of_rules(name, [item for item in items if item.kind == kind]),
            }
            for kind in (kinds if len(kinds) > 1 else [])
        },
    }


def _loss(
    texts: Sequence[ExamText], nats: Float[np.ndarray, " text"], exam: Exam
) -> dict[str, Any]:
    """Return the mean loss over tokens with its 95 % interval over texts, and bounds beside it.

    The bound is the entropy of the choices that made the texts; unigram is the loss of a model that
    knows how frequent every token is in training texts.
    """
    tokens = np.array([float(len(text.ids) - 1) for text in texts])
    characters = sum(text.characters for text in texts)
    bound = sum(text.nats for text in texts)
    log_share = np.log(exam.counts / exam.counts.sum())
    unigram = -sum(float(log_share[text.ids[1:]].sum()) for text in texts)
    return {
        "texts": len(texts),
        "tokens": int(tokens.sum()),
        "nats_per_token": float(nats.sum() / tokens.sum()),
        "interval": list(RatioBootstrap(len(texts)).interval(nats, tokens)),
        "nats_per_character": float(nats.sum() / characters),
        "bound": None if np.isnan(bound) else float(bound / tokens.sum()),
        "unigram": unigram / float(tokens.sum()),
        "uniform": float(np.log(len(exam.counts))),
    }


@torch.inference_mode()
def _greedy(model: Any, ids: Sequence[int]) -> list[int]:
    """Return the tokens with which a model goes on, each the most probable one, until `<s>`."""
    written = list(ids)
    while len(written) < len(ids) + WRITTEN:
        written.append(int(model(torch.tensor([written])).logits[0, -1].argmax()))
        if written[-1] == BOS:
            break
    return written[len(ids) :]


def abilities(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    n: int = 2000,
    exam: Exam | None = None,
) -> dict[str, Any]:
    """Examine a language model of the stories, and return plain data for JSON.

    Losses are in nats, of tokens after `<s>` and of the `<s>` that ends a story. Accuracies are
    shares of questions, one per text, with Wilson's 95 % interval.

    Args:
        model: returns an object with `logits` for token ids.
        tokenizer: of the model.
        n: number of unseen texts.
        exam: of this tokenizer and n, made before; several models can share one.

    Raises:
        OptionError: n is not a whole number from 1.
    """
    exam = exam or make_exam(tokenizer, n)
    nats, answered = _readings(model, exam.texts)
    other_nats, other_answered = _readings(model, exam.combinations)
    losses = {
        "unseen texts": _loss(exam.texts, nats, exam),
        "unseen combinations": _loss(exam.combinations, other_nats, exam),
    }
    for name, texts in exam.others.items():
        losses[name] = _loss(texts, _readings(model, texts)[0], exam)
    return {
        "texts": {
            "unseen texts": [len(exam.texts), UNSEEN_TEXTS],
            "unseen combinations": [len(exam.combinations), UNSEEN_COMBINATIONS],
        },
        "tasks": {name: _graded(name, exam.texts, answered, exam) for name in ABILITIES},
        "unseen combinations": {
            name: _graded(name, exam.combinations, other_answered, exam) for name in OF_COMBINATIONS
        },
        "losses": losses,
        "sample": [
            tokenizer.decode(ids, skip_special_tokens=True)
            for ids in (exam.beginning, _greedy(model, exam.beginning))
        ],
    }


def main() -> None:
    """Examine the models of some folders, which have one tokenizer."""
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    parser = argparse.ArgumentParser(description="Examine language models of the stories.")
    parser.add_argument("folders", type=Path, nargs="+", help="folders of models")
    parser.add_argument("--n", type=int, default=2000, help="number of unseen texts")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    chosen = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(chosen.folders[0])
    exam = make_exam(tokenizer, chosen.n)
    found = {}
    for folder in chosen.folders:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        found[folder.name] = abilities(model, tokenizer, chosen.n, exam)
    write_atomically(chosen.out, json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
