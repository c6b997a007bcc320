"""Questions about stories: places in a text where the world determines which answer stands there.

A question has the text before it, the answer that stands there and others that could: which people
the text has named, which lines are in its list, which forms the verb has. Answers that the sentence
of the question rules out are not offered, such as a person who asks the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from training.stories import words
from training.stories.markup import WORD, Annotation, Span
from training.stories.papers import PAPERS
from training.stories.sentences import SENTENCES
from training.stories.speech import TALK
from training.stories.texts import Story
from training.stories.world import capital


@dataclass(frozen=True, slots=True)
class Question:
    """A place in a text, the answer that stands there, and others that could.

    Attributes:
        at: number of characters of the text before the answer.
        right: how the text goes on, with the space before a word.
        wrong: how it could go on otherwise.
        kind: kind of question within an ability, such as `belief`.
        guesses: the answer of each simple rule of the ability, which is one of `right` and `wrong`,
            or None where the rule names none of them.
        thing: the noun of the thing that is asked for, if one is.
    """

    at: int
    right: str
    wrong: tuple[str, ...]
    kind: str = ""
    guesses: tuple[str | None, ...] = ()
    thing: str = ""


@dataclass(frozen=True, slots=True)
class Ability:
    """What is asked, simple rules to compare with, and the questions of a text.

    Attributes:
        about: what is asked.
        rules: what simple rules answer.
        questions: all questions of a text.
    """

    about: str
    rules: tuple[str, ...]
    questions: Callable[[Story], Iterator[Question]]


def _asked(
    made: Story,
    start: int,
    right: str,
    others: list[str],
    kind: str = "",
    guesses: tuple[str | None, ...] = (),
    thing: str = "",
) -> Iterator[Question]:
    """Yield the question whose answer is a word at a character, unless nothing else could stand."""
    space = " " if made.text[start - 1] == " " else ""
    wrong = tuple(space + x for x in dict.fromkeys(others) if x != right)
    if wrong:
        guesses = tuple(guess and space + guess for guess in guesses)
        yield Question(start - len(space), space + right, wrong, kind, guesses, thing)


# What a text has said


def _at(made: Story, span: Span) -> str:
    return made.text[slice(*span)]


def _sentence(made: Story, span: Span) -> Span:
    """Return the sentence of a span."""
    sentences = [each.span for each in made.of("sentence")]
    return next(each for each in sentences if each[0] <= span[0] and span[1] <= each[1])


def _named(made: Story, start: int, end: int, label: str = "person") -> list[str]:
    """Return the names or nouns between two characters, in order, with repetitions."""
    return [
        _at(made, each.span)
        for each in made.of("mention")
        if each.label == label and start <= each.span[0] and each.span[1] <= end
    ]


def _meant(made: Story, start: int, end: int) -> list[str]:
    """Return the people between two characters whom a name or a pronoun stands for."""
    pronouns = [each for each in made.of("antecedent") if each.label in {"she", "he", "they"}]
    inside = [each for each in pronouns if start <= each.span[0] and each.span[1] <= end]
    targets = [_at(made, target) for each in inside for target in each.targets]
    people = {*words.WOMEN, *words.MEN}
    return [*_named(made, start, end), *(name for name in targets if name in people)]


def _latest(said: list[str], among: list[str]) -> tuple[str | None, ...]:
    """Return which of some was said last, and which of the others before."""
    order = [each for each in dict.fromkeys(reversed(said)) if each in among]
    return (*order[:2], None, None)[:2]


def _gender(name: str) -> str:
    return "she" if name in words.WOMEN else "he"


# Who has what


def _owners(made: Story) -> Iterator[tuple[Annotation, str, list[str], list[str]]]:
    """Yield each answer that is an owner: the thing, its owners so far, who could have it."""
    for answer in made.of("answer"):
        if answer.label != "owner":
            continue
        sentence = _sentence(made, answer.span)
        [thing] = {*_named(made, *sentence, "thing")}
        owners = [
            _at(made, event.targets[0])
            for event in made.of("event")
            if event.label == "gets"
            and event.span[1] <= answer.span[0]
            and _at(made, event.targets[1]) == thing
        ]
        ruled_out = _meant(made, sentence[0], answer.span[0])
        people = dict.fromkeys(_named(made, 0, answer.span[0]))
        yield answer, thing, owners, [name for name in people if name not in ruled_out]


def _owner(made: Story) -> Iterator[Question]:
    for answer, thing, owners, people in _owners(made):
        guesses = _latest(_named(made, 0, answer.span[0]), people)
        kind = "changed hands" if len(owners) > 1 else "never changed hands"
        yield from _asked(made, answer.span[0], owners[-1], people, kind, guesses, thing)


def _new_owner(made: Story) -> Iterator[Question]:
    for answer, thing, owners, people in _owners(made):
        if len(owners) > 1 and {*owners[-2:]} <= {*people}:
            guesses = _latest(_named(made, 0, answer.span[0]), owners[-2:])
            yield from _asked(made, answer.span[0], owners[-1], owners[-2:], "", guesses, thing)


_BEFORE_TAKER = re.compile(r"\b(to|gave|sold|let) $")
_WISH = re.compile(
    r"(wanted|wished for|needed|dreamed of having|hoping for|stop thinking about|If only I had) "
    r"(a|an|some) "
)


def _indirect_object(made: Story) -> Iterator[Question]:
    """Yield gifts and sales whose taker is known: from a wish before, or from the sentence."""
    sentences = [each.span for each in made.of("sentence")]
    owner: dict[str, str] = {}
    for event in made.of("event"):
        span, thing = event.targets[0], _at(made, event.targets[1])
        taker, giver = _at(made, span), owner.get(thing)
        owner[thing] = taker
        start = event.span[0]
        here = _meant(made, start, span[0])
        if giver not in here or span < event.span or not _BEFORE_TAKER.search(made.text[: span[0]]):
            continue
        number = sentences.index(event.span)
        before = sentences[number - 1]
        wished = _WISH.search(_at(made, before)) and taker in _meant(made, *before)
        if taker in here:
            kind = "named before in the sentence"
        elif wished:
            kind = "wished for the thing"
        else:
            continue
        said = _named(made, 0, span[0])
        yield from _asked(made, span[0], taker, said, kind, _latest(said, said), thing)


# Forms


def _pronoun(made: Story) -> Iterator[Question]:
    """Yield subjects whose sentence has named what they stand for; people after both genders.

    At the beginning of a sentence several pronouns could go on.
    """
    subjects = {span for each in made.of("subject") for span in each.targets}
    for each in made.of("antecedent"):
        word, start = _at(made, each.span), each.span[0]
        genders = [_gender(name) for name in _named(made, 0, start)]
        if (
            each.label not in _PRONOUNS
            or each.span not in subjects
            or min(each.targets) < _sentence(made, each.span)
            or (each.label in {"she", "he"} and len(set(genders)) < 2)
        ):
            continue
        said, guess = [*_PRONOUNS], genders[-1]
        if word[0].isupper():
            said, guess = [capital(x) for x in said], capital(guess)
        yield from _asked(made, start, word, said, each.label, (guess,))


_PRONOUNS = ("she", "he", "it", "they")


def _verb_forms() -> dict[str, str]:
    """Return the other form of each verb form: `are` of `is`, `needs` of `need`."""
    talks = chain.from_iterable((line, *answers) for line, answers in TALK)
    templates = chain(*SENTENCES.values(), *PAPERS.values(), talks)
    pairs = {pair for each in templates for pair in re.findall(r"[=~]([a-z]+)/([a-z]+)", each)}
    return {**dict(pairs), **{several: one for one, several in pairs}}


_OTHER_FORM = _verb_forms()
_SEVERAL = {*words.ANIMALS.values(), *words.OBJECTS.values(), *words.PAIRS, *words.COUNTED}


def _verb(made: Story) -> Iterator[Question]:
    subjects = {each.span: each for each in made.of("subject")}
    for each in made.of("distractor"):
        if each.label != "other number":
            continue
        right, label = _at(made, each.span), subjects[each.span].label
        nearest = "plural" if _at(made, each.targets[-1]) in _SEVERAL else "singular"
        other = _OTHER_FORM[right]
        guess = right if nearest == label else other
        yield from _asked(made, each.span[0], right, [other], label, (guess,))


def _mark(made: Story) -> Iterator[Question]:
    """Yield quotation marks after a sentence: does one close, or does the next speech open?"""
    for each in made.of("mark"):
        if each.label != "quotation":
            continue
        for span, kind in ((each.targets[0], "opens"), (each.span, "closes")):
            before = made.text[: span[0]]
            if re.search(r"[.?!]$" if kind == "closes" else r"[.?!] $", before):
                right, wrong = (' "', '"') if kind == "opens" else ('"', ' "')
                guess = ' "' if before.rstrip().endswith(".") else '"'
                yield Question(len(before.rstrip()), right, (wrong,), kind, (guess,))


# What was written before


def _line_or_signature(made: Story) -> Iterator[Question]:
    items = [s.span for s in made.of("sentence") if made.text[: s.span[0]].endswith("\n- ")]
    lines = [_at(made, span) for span in items]
    for each in made.of("answer"):
        start, right = each.span[0], _at(made, each.span)
        if each.label == "writer":
            said = _named(made, 0, start)
            yield from _asked(made, start, right, said, "writer", _latest(said, said))
        elif each.label in {"first", "last"}:
            said = [capital(line) for line in lines] if right[0].isupper() else lines
            yield from _asked(made, start, right, said, each.label, _latest(said, said))


def _passages(made: Story) -> list[list[Annotation]]:
    """Return the copied words of each passage that is repeated."""
    passages: list[list[Annotation]] = []
    end = 0
    for each in made.of("copy"):
        if not passages or made.text[end : each.span[0]] not in {" ", ", ", ": "}:
            passages.append([])
        passages[-1].append(each)
        end = each.span[1]
    return passages


def _copy(made: Story) -> Iterator[Question]:
    for passage in _passages(made):
        said = [_at(made, each.span) for each in passage]
        said[0] = said[0].lower()
        for each in passage[1:]:
            start, right = each.span[0], _at(made, each.span)
            before = [match[0].lower() for match in WORD.finditer(made.text, 0, start)]
            follows = dict(pairwise(before))
            guess = follows.get(before[-1])
            yield from _asked(made, start, right, said, "", (guess if guess in said else None,))


def _sum(made: Story) -> Iterator[Question]:
    for each in made.of("answer"):
        if each.label != "sum":
            continue
        start, right = each.span[0], _at(made, each.span)
        latest = _at(made, max(each.targets)).lower()
        numbers, kind = list(words.NUMBERS), "words"
        if right.isdigit():
            numbers, kind = [str(number) for number in range(len(numbers))], "digits"
        elif right[0].isupper():
            numbers, latest = list(map(capital, numbers)), capital(latest)
        yield from _asked(made, start, right, numbers, kind, (latest,))


def _place(made: Story) -> Iterator[Question]:
    answers = {each.label: each for each in made.of("answer") if each.label in {"place", "belief"}}
    for label, each in answers.items():
        other = answers["belief" if label == "place" else "place"]
        spots = [_at(made, each.targets[0]), _at(made, other.targets[0])]
        one, two = (spot.split() for spot in spots)
        begin = len(f"{one[0]} the ") if one[0] == two[0] else 0  # what both begin with
        before = sorted(spots, key=lambda spot: made.text.rfind(spot, 0, each.span[0]))
        latest = tuple(spot[begin:] for spot in reversed(before))
        right, wrong = (spot[begin:] for spot in spots)
        yield from _asked(made, each.span[0] + begin, right, [wrong], label, latest)


_LATEST = ("the one of these named last", "the one named last but one")

ABILITIES = {
    "owner": Ability(
        "who has the thing, of the people whom the sentence leaves open", _LATEST, _owner
    ),
    "new owner": Ability(
        "who has a thing that changed hands: its owner or the one before", _LATEST, _new_owner
    ),
    "indirect object": Ability(
        "to whom somebody gives or sells a thing, of all people of the text, where a wish or the "
        "sentence has said so",
        _LATEST,
        _indirect_object,
    ),
    "pronoun": Ability(
        "she, he, it or they, for what the sentence has named; people after names of both genders",
        ("the gender of the person named last",),
        _pronoun,
    ),
    "verb": Ability(
        "the form of a verb for one or several, after a noun of the other number",
        ("the form that fits the nearest noun",),
        _verb,
    ),
    "quotation mark": Ability(
        "after a sentence, the mark that closes a quotation or the one that opens the next",
        ("it closes after ? and !, and opens after a full stop",),
        _mark,
    ),
    "line or signature": Ability(
        "the first or last line of a list, of its lines; who signs a letter, of all people",
        _LATEST,
        _line_or_signature,
    ),
    "copy": Ability(
        "the next word of a passage that is repeated, of its words",
        ("the word that followed when the word before stood last",),
        _copy,
    ),
    "sum": Ability(
        "a sum or difference up to 20, of all numbers to 20", ("the number named last",), _sum
    ),
    "place": Ability(
        "where a thing is or is believed to be: where it was put, or where it was moved to",
        _LATEST,
        _place,
    ),
}
"""The ten abilities, by their names."""
