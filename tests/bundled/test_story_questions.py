"""Questions about stories: the right answer is true, and the others could stand there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
from bundled.test_stories import at

from training.stories import UNSEEN_COMBINATIONS, UNSEEN_TEXTS, Story, stories, story, words
from training.stories.questions import ABILITIES, Question


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
