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
from training.stories.raven import (
    QUESTIONS,
    SUBJECTS,
    Question,
    questions,
    raven_story,
)
from training.stories.texts import UNSEEN_COMBINATIONS
from training.stories.world import SPOTS, held_out

FIRST = UNSEEN_TEXTS + 5_000_000
Asked = tuple[Story, list[Question]]
First = tuple[Story, Question]
TRADE = "|".join(words.TRADES)
SPOT = "|".join(SPOTS)


@pytest.fixture(scope="module")
def asked_of_all() -> list[Asked]:
    made = (raven_story(seed) for seed in range(FIRST, FIRST + 400))
    return [each for each in made if each[1]]


@pytest.fixture(scope="module")
def each_asked() -> dict[tuple[str, str], list[First]]:
    return {
        (kind, subject): list(questions(50, FIRST, kind, subject))
        for kind in ("raven", "trade", "person")
        for subject in SUBJECTS
    }


def every(asked_of_all: list[Asked]) -> list[First]:
    """Return each question with its text."""
    return [(made, question) for made, asked in asked_of_all for question in asked]


def owners(made: Story, thing: str, end: int) -> list[str]:
    """Return who got a thing, one after the other, before a character."""
    got = [each for each in made.of("event") if each.span[1] <= end and each.label == "gets"]
    got.sort(key=lambda each: each.span[1])
    pairs = [[at(made, target) for target in each.targets] for each in got]
    return [person for person, noun in pairs if noun == thing]


def spots(made: Story, thing: str, end: int) -> list[str]:
    """Return where a thing was put, as the sentences with its noun say one after the other."""
    said = []
    for each in made.of("sentence"):
        sentence = at(made, each.span)
        by_raven = re.search(rf"(?:raven|{TRADE}|Question to)", sentence)
        if each.span[1] <= end and re.search(rf"\b{thing}\b", sentence) and not by_raven:
            said += re.findall(rf"\b(?:{SPOT})\b", sentence)
    return said


def sentence_of(made: Story, question: Question) -> str:
    """Return the question, up to its answer."""
    start = question.answer[0]
    [span] = [s.span for s in made.of("sentence") if s.span[0] <= start < s.span[1]]
    return made.text[span[0] : start]


def without_addressee(text: str) -> str:
    """Return a text with the same words for the raven and for somebody of a trade."""
    return re.sub(rf"(?<![Aa]n old )\b([Tt]he) (?:raven|{TRADE})\b", r"\1 X", text)


def test_the_raven_names_who_gave_the_thing_away_and_others_who_has_it(
    asked_of_all: list[Asked],
) -> None:
    of_owners = [each for each in every(asked_of_all) if each[1].subject == "owner"]
    assert len(of_owners) == len(asked_of_all)
    for made, question in of_owners:
        *_, former, owner = owners(made, question.thing, question.answer[0])
        named = at(made, question.answer)
        assert named == (former if question.asked == "raven" else owner), made.text
        assert (question.before, question.now) == (former, owner)
        assert len({former, owner, question.asker}) == 3


def test_the_raven_names_where_the_thing_was_and_others_where_it_is(
    asked_of_all: list[Asked],
) -> None:
    of_places = [each for each in every(asked_of_all) if each[1].subject == "place"]
    assert len(of_places) == len(asked_of_all)
    for made, question in of_places:
        named = at(made, question.answer)
        assert named == (question.before if question.asked == "raven" else question.now), made.text
        told = [each for each in made.of("answer") if each.label == "place"]
        told = [each for each in told if each.span < question.answer]
        assert at(made, told[-1].span) == question.now  # what people told each other before
        believed = [each for each in made.of("answer") if each.label == "belief"]
        believed = [each for each in believed if each.span < question.answer]
        assert at(made, believed[-1].span) == question.before
        assert question.before != question.now
        assert spots(made, question.thing, question.answer[0])[0] in SPOTS
        # The thing has stayed there: nobody gave it to another since.
        moved = believed[-1].span[0]
        events = [e for e in made.of("event") if moved < e.span[0] < question.answer[0]]
        assert question.thing not in {at(made, e.targets[1]) for e in events}


def test_the_answer_leads_to_the_words_in_the_text_and_says_of_whom(
    asked_of_all: list[Asked],
) -> None:
    for made, question in every(asked_of_all):
        [answer] = [each for each in made.of("answer") if each.span == question.answer]
        former = "former " * (question.asked == "raven")
        assert answer.label == f"{former}{question.subject}"
        [target] = answer.targets
        assert at(made, target).lower() == at(made, answer.span).lower()
        assert target < answer.span
        if question.subject == "owner":
            [*_, event] = (
                each
                for each in sorted(made.of("event"), key=lambda each: each.span[1])
                if each.label == "gets"
                and each.span[1] <= answer.span[0]
                and at(made, each.targets[1]) == question.thing
            )
            assert target[0] < event.span[1]
            if question.asked != "raven":
                assert target == event.targets[0]


def test_whom_is_asked_is_said_before_the_answer_and_is_who_answers(
    asked_of_all: list[Asked],
) -> None:
    for made, question in every(asked_of_all):
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


@pytest.mark.parametrize("subject", SUBJECTS)
def test_nothing_but_the_addressee_differs_up_to_the_answer(
    subject: str, each_asked: dict[tuple[str, str], list[First]]
) -> None:
    kinds = (each_asked[kind, subject] for kind in ("raven", "trade", "person"))
    for (a, asked), (b, of_trade), (c, of_person) in zip(*kinds, strict=True):
        one, other = a.text[: asked.answer[0]], b.text[: of_trade.answer[0]]
        assert one != other
        assert without_addressee(one) == without_addressee(other)
        for question in (of_trade, of_person):
            assert (asked.now, asked.before) == (question.now, question.before)
            assert (asked.asker, asked.thing) == (question.asker, question.thing)
        by_person = sentence_of(c, of_person)
        [name] = set(re.findall(r"(?:to|asked) ([A-Z]\w+)", by_person))
        assert re.sub(rf"\b{name}\b", "X", by_person) == re.sub(
            "[Tt]he raven", "X", sentence_of(a, asked)
        )


def test_who_is_asked_what_is_drawn_or_given(
    asked_of_all: list[Asked], each_asked: dict[tuple[str, str], list[First]]
) -> None:
    given = {
        (made.seed, question.asked, question.subject): made
        for firsts in each_asked.values()
        for made, question in firsts
    }
    compared = 0
    for made, (first, *_) in asked_of_all[:45]:
        if first.asked == "raven":  # the second question is drawn after
            assert given[made.seed, first.asked, first.subject] == made
            compared += 1
    assert compared > 10


def test_as_often_the_raven_as_others_and_every_template_with_both(
    asked_of_all: list[Asked],
) -> None:
    asked = [question for _, question in every(asked_of_all)]
    of_raven = [each for each in asked if each.asked == "raven"]
    of_others = [each for each in asked if each.asked != "raven"]
    assert 0.45 < len(of_raven) / len(asked) < 0.55
    assert 0.42 < sum(each.asked == "trade" for each in of_others) / len(of_others) < 0.58
    used = {"raven": Counter[str](), "others": Counter[str]()}
    for made, two in asked_of_all:
        kinds = {each.asked == "raven" for each in two}
        if len(kinds) == 1:
            used["raven" if kinds == {True} else "others"].update(made.templates)
    for subject in SUBJECTS:
        assert len(QUESTIONS[subject]) >= 6
        for number in range(len(QUESTIONS[subject])):
            assert min(each[f"question of {subject}.{number}"] for each in used.values()) > 3
    firsts = [two[0] for _, two in asked_of_all]
    assert 0.4 < sum(each.subject == "place" for each in firsts) / len(firsts) < 0.6
    for raven_asked in (True, False):
        seen = [each.present for each in firsts if (each.asked == "raven") == raven_asked]
        assert 0.4 < sum(seen) / len(seen) < 0.6


def test_a_raven_may_be_there_whoever_is_asked(asked_of_all: list[Asked]) -> None:
    for made, (first, *_) in asked_of_all:
        end = made.text[: first.answer[0]][-400:]
        assert bool(re.search(r"\b[Aa]n? (?:old |black )?raven\b", end)) == first.present
        assert bool(re.search(r"(?:to|asked) the raven\b", end)) == (first.asked == "raven")


def test_what_others_say_after_it_is_the_owner(asked_of_all: list[Asked]) -> None:
    later = 0
    for made, two in asked_of_all:
        asked = {question.answer for question in two}
        for answer in made.of("answer"):
            if "owner" in answer.label and answer.span > min(asked) and answer.span not in asked:
                assert answer.label == "owner"
                [sentence] = [
                    s.span for s in made.of("sentence") if s.span[0] <= answer.span[0] < s.span[1]
                ]
                mentions = [m.span for m in made.of("mention") if m.label == "thing"]
                [thing] = {at(made, m) for m in mentions if sentence[0] <= m[0] < sentence[1]}
                assert owners(made, thing, sentence[0])[-1] == at(made, answer.span)
                later += 1
    assert 0.4 < later / len(asked_of_all) < 0.6


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


def test_what_is_annotated_is_so_in_texts_of_the_raven(asked_of_all: list[Asked]) -> None:
    for made, _ in asked_of_all[:200]:
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
    with pytest.raises(OptionError, match=r"'time' cannot be asked.*: owner, place"):
        raven_story(3, "raven", "time")  # type: ignore[arg-type]
