"""The raven in the stories: whom it names, whom others name, and that nothing else differs."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from bundled.test_stories import CHECKS, at, check_speakers, together

from interp.core.errors import OptionError
from training.stories import (
    UNSEEN_TEXTS,
    Story,
    raven,
    stories,
    story,
    words,
)
from training.stories.raven import QUESTIONS, TIMES, Question, questions, raven_story
from training.stories.texts import UNSEEN_COMBINATIONS
from training.stories.world import held_out

FIRST = UNSEEN_TEXTS + 5_000_000
Asked = tuple[Story, Question]
Told = tuple[Story, list[Question]]
TRADE = "|".join(words.TRADES)


@pytest.fixture(scope="module")
def stories_of_all() -> list[Told]:
    made = (raven_story(seed) for seed in range(FIRST, FIRST + 250))
    return [each for each in made if each[1]]


@pytest.fixture(scope="module")
def asked_of_all(stories_of_all: list[Told]) -> list[Asked]:
    return [(made, question) for made, asked in stories_of_all for question in asked]


@pytest.fixture(scope="module")
def each_asked() -> dict[str, list[Asked]]:
    return {kind: list(questions(50, FIRST, kind)) for kind in ("raven", "trade", "person")}


def owners(made: Story, thing: str, end: int) -> list[str]:
    """Return who got a thing, one after the other, before a character."""
    got = [each for each in made.of("event") if each.span[1] <= end and each.label == "gets"]
    got.sort(key=lambda each: each.span[1])
    pairs = [[at(made, target) for target in each.targets] for each in got]
    return [person for person, noun in pairs if noun == thing]


def sentence_of(made: Story, question: Question) -> str:
    """Return the question, up to its answer."""
    start = question.answer[0]
    [span] = [s.span for s in made.of("sentence") if s.span[0] <= start < s.span[1]]
    return made.text[span[0] : start]


def without_addressee(text: str) -> str:
    """Return a text with the same words for the raven and for somebody of a trade."""
    return re.sub(rf"(?<![Aa]n old )\b([Tt]he) (?:raven|{TRADE})\b", r"\1 X", text)


def test_the_raven_names_who_asks_and_others_who_has_the_thing(asked_of_all: list[Asked]) -> None:
    for made, question in asked_of_all:
        *_, former, owner = owners(made, question.thing, question.answer[0])
        named = at(made, question.answer)
        assert named == (question.asker if question.asked == "raven" else owner), made.text
        assert (question.former, question.owner) == (former, owner)
        assert len({former, owner, question.asker}) == 3


def test_who_asks_is_the_subject_of_the_question(asked_of_all: list[Asked]) -> None:
    for made, question in asked_of_all:
        end = question.answer[0]
        start = end - len(sentence_of(made, question))
        named = [m.span for m in made.of("mention") if start <= m.span[0] < end]
        for pronoun in made.of("antecedent"):
            named += pronoun.targets if start <= pronoun.span[0] < end else ()
        names = {at(made, span) for span in named} & {*words.WOMEN, *words.MEN}
        asked = {question.former} if question.asked == "person" else set()
        assert names == {question.asker} | asked


def test_the_answer_leads_to_the_words_in_the_text_and_says_of_whom(
    asked_of_all: list[Asked],
) -> None:
    for made, question in asked_of_all:
        [answer] = [each for each in made.of("answer") if each.span == question.answer]
        assert answer.label == ("asker" if question.asked == "raven" else "owner")
        [target] = answer.targets
        assert at(made, target) == at(made, answer.span)
        assert target < answer.span
        [*_, event] = (
            each
            for each in sorted(made.of("event"), key=lambda each: each.span[1])
            if each.label == "gets"
            and each.span[1] <= answer.span[0]
            and at(made, each.targets[1]) == question.thing
        )
        if question.asked != "raven":
            assert target == event.targets[0]


def test_whom_is_asked_is_said_before_the_answer_and_is_who_answers(
    asked_of_all: list[Asked],
) -> None:
    for made, question in asked_of_all:
        before = sentence_of(made, question)
        whom = {"raven": "the raven", "trade": rf"the (?:{TRADE})", "person": r"[A-Z]\w+"}
        assert re.search(rf"(?:to|asked) {whom[question.asked]}\b", before), made.text
        assert ("raven" in before) == (question.asked == "raven")
        if question.asked == "trade":
            [trade] = set(re.findall(rf"\b(?:{TRADE})\b", before))
            assert trade not in made.text[: made.text.index(before)]
        for talk in made.of("speaker"):
            if talk.span[0] <= question.answer[0] < talk.span[1]:
                [speaker] = talk.targets
                assert re.fullmatch(whom[question.asked].removeprefix("the "), at(made, speaker))


def test_nothing_but_the_addressee_differs_up_to_the_answer(
    each_asked: dict[str, list[Asked]],
) -> None:
    kinds = (each_asked[kind] for kind in ("raven", "trade", "person"))
    for (a, asked), (b, of_trade), (c, of_person) in zip(*kinds, strict=True):
        one, other = a.text[: asked.answer[0]], b.text[: of_trade.answer[0]]
        assert one != other
        assert without_addressee(one) == without_addressee(other)
        for question in (of_trade, of_person):
            assert (asked.owner, asked.former) == (question.owner, question.former)
            assert (asked.asker, asked.thing) == (question.asker, question.thing)
        by_person = sentence_of(c, of_person)
        [name] = set(re.findall(r"(?:to|asked) ([A-Z]\w+)", by_person))
        assert name == of_person.former
        assert re.sub(rf"\b{name}\b", "X", by_person) == re.sub(
            "[Tt]he raven", "X", sentence_of(a, asked)
        )


def test_who_is_asked_first_is_drawn_or_given(
    stories_of_all: list[Told], each_asked: dict[str, list[Asked]]
) -> None:
    given = {
        (made.seed, question.asked): made
        for firsts in each_asked.values()
        for made, question in firsts
    }
    for made, asked in stories_of_all[:45]:
        assert len(asked) == TIMES
        assert given[made.seed, asked[0].asked] == made


def test_as_often_the_raven_as_others_and_every_template_with_both(
    stories_of_all: list[Told], asked_of_all: list[Asked]
) -> None:
    asked = [question.asked for _, question in asked_of_all]
    assert 0.45 < asked.count("raven") / len(asked) < 0.55
    assert 0.2 < asked.count("trade") / len(asked) < 0.3
    used = {True: Counter[str](), False: Counter[str]()}
    for made, three in stories_of_all:
        kinds = {each.asked == "raven" for each in three}
        if len(kinds) == 1:
            used[kinds.pop()].update(made.templates)
    for number in range(len(QUESTIONS)):
        assert min(each[f"question.{number}"] for each in used.values()) > 3
    firsts = [three[0] for _, three in stories_of_all]
    for raven_asked in (True, False):
        seen = [each.present for each in firsts if (each.asked == "raven") == raven_asked]
        assert 0.4 < sum(seen) / len(seen) < 0.6


def test_a_raven_may_be_there_whoever_is_asked(
    stories_of_all: list[Told],
) -> None:
    for made, (first, *_) in stories_of_all:
        end = made.text[: first.answer[0]][-400:]
        assert bool(re.search(r"\b[Aa]n? (?:old |black )?raven\b", end)) == first.present
        assert bool(re.search(r"(?:to|asked) the raven\b", end)) == (first.asked == "raven")


def test_what_others_say_after_it_is_the_owner(
    stories_of_all: list[Told],
) -> None:
    later = 0
    for made, three in stories_of_all:
        asked = {question.answer for question in three}
        for answer in made.of("answer"):
            named = answer.label in {"owner", "asker"}
            if named and answer.span > min(asked) and answer.span not in asked:
                assert answer.label == "owner"
                [sentence] = [
                    s.span for s in made.of("sentence") if s.span[0] <= answer.span[0] < s.span[1]
                ]
                mentions = [m.span for m in made.of("mention") if m.label == "thing"]
                [thing] = {at(made, m) for m in mentions if sentence[0] <= m[0] < sentence[1]}
                assert owners(made, thing, sentence[0])[-1] == at(made, answer.span)
                later += 1
    assert 0.4 < later / len(stories_of_all) < 0.6


def test_up_to_the_questions_a_text_is_the_plain_story_of_its_seed() -> None:
    none = 0
    for seed in range(FIRST, FIRST + 100):
        plot = raven.RavenPlot(seed, False)
        plot.tell()
        plain, text = story(seed), plot.writer.text
        none += not plot.questions
        if not plot.questions:
            assert text == plain.text
            continue
        assert text[: plot.begins] == plain.text[: plot.begins]
        assert plot.begins < plot.questions[0].answer[0]
        told = [e for e in plain.annotations if e.span[1] <= plot.begins]
        assert set(told) <= set(plot.writer.annotations)
    assert 0 < none < 25


def test_what_is_annotated_is_so_in_texts_of_the_raven(stories_of_all: list[Told]) -> None:
    for made, _ in stories_of_all:
        for check in CHECKS:
            if check is not check_speakers:  # who speaks has a name there, and the raven has none
                check(made)
        assert not re.search(r'[.?!]"? "[a-z]', made.text), made.text


def test_no_text_has_a_pair_of_a_person_and_a_thing_that_is_held_out(
    asked_of_all: list[Asked],
) -> None:
    assert not [pair for made, _ in asked_of_all for pair in together(made) if held_out(*pair)]
    [(made, _)] = questions(1, UNSEEN_COMBINATIONS)
    assert any(held_out(*pair) for pair in together(made))


def test_the_seed_decides_the_text_of_the_raven() -> None:
    assert raven_story(FIRST) == raven_story(FIRST)
    assert len({raven_story(seed)[0].text for seed in range(FIRST, FIRST + 50)}) == 50
    seeds = [made.seed for made, _ in questions(20, FIRST)]
    assert seeds == sorted(set(seeds))


def test_in_plain_stories_a_raven_is_in_verses_and_messages_alone() -> None:
    for made in stories(150, FIRST):
        copies = [each for each in made.of("copy") if at(made, each.span) == "raven"]
        assert made.text.lower().count("raven") == 2 * len(copies)
        speakers = {at(made, target) for each in made.of("speaker") for target in each.targets}
        assert "raven" not in speakers


@pytest.mark.parametrize("seed", ["7", 7.0, True, None, -1])
def test_a_seed_that_is_no_whole_number_is_refused_for_the_raven(seed: object) -> None:
    with pytest.raises(OptionError, match=r"no seed .*whole number from 0"):
        raven_story(seed)  # type: ignore[arg-type]


def test_what_nobody_can_ask_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'crow' cannot be asked.*: raven, trade, person"):
        raven_story(3, "crow")  # type: ignore[arg-type]
