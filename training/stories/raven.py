"""Stories with a new speaker, the raven, who says what was so before: who had a thing, or where.

One of the people asks the raven, or somebody else in the same words, who has a thing that has
changed hands, or where a thing is that was moved. The raven names who had it before, or where it
was put first; everybody else names who has it and where it is, as in the other stories. Up to the
question a text is one of `Plot`, and nothing else in it depends on the raven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from interp.core.errors import OptionError
from training.stories import words
from training.stories.entities import Person, Scenery, Thing
from training.stories.markup import Span
from training.stories.plot import Plot
from training.stories.texts import UNSEEN_COMBINATIONS, Story, story

Addressee = Literal["raven", "trade", "person"]
Subject = Literal["owner", "place"]
RAVEN: Final = "raven"
ADDRESSEES: Final[tuple[Addressee, ...]] = ("raven", "raven", "trade", "person")
"""Who is asked, each entry as often: the raven in half of the questions."""
SUBJECTS: Final[tuple[Subject, ...]] = ("owner", "place")
"""What is asked, which is also the label of the answers of ordinary people."""
# The asker is c, who is asked x, and NAMED the person or place that is named.
QUESTIONS: Final[dict[Subject, tuple[str, ...]]] = {
    "owner": (
        "^{c} =asked {x}: <c x:Who ~has ^{t}?> <x c:^{NAMED} =does,> ~said ^{x}.",
        "<c x:Who ~has ^{t} now?> ^{c} =asked {x}. <x c:^{NAMED} =has {t.her},> ~said ^{x}.",
        "^{c} =turned to {x}: <c x:~Do ^{you} know who has {t}?> <x c:^{NAMED} =does,> ~said ^{x}.",
        "^{c} =went to {x} |and =wanted to know |^[who] =had {t}. "
        "<x c:^{NAMED} =does,> ~said ^{x}.",
        "<c x:Whose ~is/are ^{t}?> ^{c} =asked {x}. <x c:^{t.she} =belongs/belong to {NAMED},> "
        "~answered ^{x}.",
        "<c x:~Can ^{you} tell {me} who has {t}?> ~said ^{c} to {x}. "
        "<x c:^{t} =belongs/belong to {NAMED},> ~answered ^{x}.",
        "Then ^{c} =asked {x} |^[who] =had {t}. ^{x} =said |that ^{t} =belonged to {NAMED}.",
        "Question to {x}: Who ~has ^{t}? Answer: {NAMED}.",
    ),
    "place": (
        "^{c} =asked {x}: <c x:Where ~is/are ^{t}?> <x c:^{t.she} =is/are {NAMED},> ~said ^{x}.",
        "<c x:Where ~is/are ^{t} now?> ^{c} =asked {x}. <x c:Look {NAMED},> ~said ^{x}.",
        "^{c} =turned to {x}: <c x:~Do ^{you} know where {t} went?> "
        "<x c:^{t} =is/are {NAMED},> ~said ^{x}.",
        "^{c} =went to {x} |and =wanted to know |where ^{t} =was/were. "
        "<x c:Look {NAMED},> ~answered ^{x}.",
        "<c x:^{I} =cannot find {t}!> ~said ^{c} to {x}. "
        "<x c:^{t.she} =is/are {NAMED},> ~answered ^{x}.",
        "Then ^{c} =asked {x} |where ^{t} =was/were. ^{x} =said |that ^{t} =was/were {NAMED}.",
        "Question to {x}: Where ~is/are ^{t}? Answer: {NAMED}.",
    ),
}
# A raven that is there, whoever is asked.
ARRIVALS: Final = (
    "A ^[raven] =sat on the roof.",
    "A black ^[raven] =had come down from a tree.",
    "On the wall an old ^[raven] =was listening.",
    "Just then ^{c} =saw a raven.",
)
# Sentences after which a thing is still where somebody put it.
_IN_PLACE: Final = frozenset({"moved", "leave", "believes", "asks_place", "tells_place"})
PAST: Final = 1_000_000_000
"""First seed of plain stories for a fine-tune, which no training from nothing reads."""
RAVEN_TEXTS: Final = 2_000_000_000
"""First seed of stories of the raven for a fine-tune; unseen ones begin at `UNSEEN_TEXTS`."""


def _families(subject: Subject, named: str) -> dict[str, Sequence[str]]:
    """Return the sentences of a question, with the slot that answers it."""
    templates = tuple(each.replace("NAMED", named) for each in QUESTIONS[subject])
    return {f"question of {subject}": templates, "raven comes": ARRIVALS}


@dataclass(frozen=True, slots=True)
class Question:
    """A question of who has a thing, or where it is, which names whom it is put to.

    Attributes:
        asked: whom: the raven, somebody of a trade, or one of the people.
        subject: what: who has the thing, or where it is.
        asker: name of who asks.
        thing: noun of the thing.
        now: name of who has the thing, or the words of the place where it is.
        before: name of who had it, or the words of the place where it was.
        answer: characters of the answer, which is `before` by the raven and `now` by others.
        present: True if a raven was seen before.
    """

    asked: Addressee
    subject: Subject
    asker: str
    thing: str
    now: str
    before: str
    answer: Span
    present: bool


class RavenPlot(Plot):
    """A plot in which people ask the raven, and others, who has a thing and where a thing is.

    Args:
        asked: who is asked first; drawn if it is not given. No other word before the answer
            depends on it but the name or noun of who is asked.
        subject: what is asked first; drawn if it is not given.
    """

    def __init__(
        self,
        seed: int,
        unseen_combinations: bool,
        asked: Addressee | None = None,
        subject: Subject | None = None,
    ):
        super().__init__(seed, unseen_combinations)
        self.asked: Addressee | None = asked
        self.subject: Subject | None = subject
        self.gave: dict[Thing, Span] = {}
        self.hidden: dict[str, Any] | None = None
        self.begins = 0
        self.questions: list[Question] = []

    def gets(self, person: Person, thing: Thing, sentence: Span) -> None:
        """Note who owns a thing from now on, and where the one who owned it was named last."""
        before = thing.owner
        super().gets(person, thing, sentence)
        if before is not None:
            self.gave[thing] = self.writer.names[before]

    def say(self, family: str, **given: Any) -> Span:
        """Write a sentence of a family, and note where a thing was put while its owner was away."""
        said = super().say(family, **given)
        if family == "moved":
            places = {role: self.writer.placed[role] for role in ("spot", "spot2")}
            self.hidden = given | {"places": places}
        elif self.hidden and family not in _IN_PLACE and self.hidden["t"] in given.values():
            self.hidden = None
        return said

    def ask(self) -> None:
        """Ask who has a thing and where one is, and in half of the texts as others ask."""
        self.begins = len(self.writer.text)
        first = self.writer.pick(SUBJECTS)
        first = self.subject or first
        for number, subject in enumerate(sorted(SUBJECTS, key=lambda each: each != first)):
            drawn = self.writer.pick(ADDRESSEES)
            asked = self.asked or drawn if number == 0 else drawn
            if subject == "owner":
                self.ask_owner(asked)
            else:
                self.ask_place(asked)
        if self.owned() and self.writer.chance(0.5):
            super().ask()

    def changed(self) -> list[Thing]:
        """Return the things that somebody has from somebody else."""
        return [thing for thing in self.owned() if thing in self.givers]

    def ask_owner(self, asked: Addressee) -> None:
        """Ask who has a thing that has changed hands."""
        while not self.changed():
            self.give()
        thing = self.writer.pick(self.changed())
        owner, former = self.owner_of(thing), self.givers[thing]
        self.meet(self.c)
        evidence = {"owner": self.gained[thing][0], "former owner": self.gave[thing]}
        named = ("b!owner", "a!former owner")
        roles = {"a": former, "b": owner, "c": self.other(owner, former), "t": thing}
        now, before = owner.name, former.name
        self.ask_somebody("owner", asked, roles, named, evidence, (now, before))

    def ask_place(self, asked: Addressee) -> None:
        """Ask where a thing is that was moved."""
        while self.hidden is None:
            self.hide()
        hidden = self.hidden
        self.meet(self.c)
        places = hidden["places"]
        evidence = {"place": places["spot2"], "former place": places["spot"]}
        named = ("spot2!place", "spot!former place")
        roles = {role: hidden[role] for role in ("t", "spot", "spot2")}
        roles |= {"a": hidden["b"], "c": self.other(hidden["a"], hidden["b"])}
        now, before = hidden["spot2"], hidden["spot"]
        self.ask_somebody("place", asked, roles, named, evidence, (now, before))

    def ask_somebody(
        self,
        subject: Subject,
        asked: Addressee,
        roles: dict[str, Any],
        named: tuple[str, str],
        evidence: dict[str, Span],
        answers: tuple[str, str],
    ) -> None:
        """Ask the raven, somebody of a trade, or one of the people, all in the same words."""
        writer = self.writer
        trade = writer.pick([trade for trade in words.TRADES if trade not in writer.text])
        present = f" {RAVEN}" in writer.text[self.begins :]
        arrives = not present and writer.chance(0.5)
        raven = asked == "raven"
        families = _families(subject, named[raven])
        filled = self.roles(**roles)
        filled["x"] = {
            "raven": Scenery(RAVEN, False),
            "trade": Scenery(trade, False),
            "person": roles["a"],
        }[asked]
        if arrives:
            writer.say(families, "raven comes", filled)
        writer.evidence |= {label: (span,) for label, span in evidence.items()}
        writer.say(families, f"question of {subject}", filled)
        [*_, answer] = (each for each in writer.annotations if each.relation == "answer")
        who, what = roles["c"].name, roles["t"].noun
        seen = present or arrives
        self.questions.append(Question(asked, subject, who, what, *answers, answer.span, seen))


def raven_story(
    seed: int, asked: Addressee | None = None, subject: Subject | None = None
) -> tuple[Story, list[Question]]:
    """Return the story of a seed with questions to the raven or to others.

    Args:
        seed: a whole number from 0, as of `story`; unseen texts have the same seeds.
        asked: who is asked first; drawn if it is not given.
        subject: what is asked first; drawn if it is not given.

    Returns:
        The story, and its questions; none where in the end nobody has anything.

    Raises:
        OptionError: the seed is not a whole number from 0, or nobody of this kind can be asked.
    """
    story(seed)
    for given, known in ((asked, ADDRESSEES), (subject, SUBJECTS)):
        if given is not None and given not in known:
            listed = ", ".join(dict.fromkeys(known))
            raise OptionError(f"{given!r} cannot be asked in a story; known: {listed}")
    plot = RavenPlot(seed, seed >= UNSEEN_COMBINATIONS, asked, subject)
    plot.tell()
    writer = plot.writer
    annotations = sorted(writer.annotations, key=lambda each: (each.span, each.relation))
    found = Story(seed, writer.text, tuple(annotations), writer.nats, frozenset(writer.templates))
    return found, plot.questions


def questions(
    n: int, seed: int, asked: Addressee | None = None, subject: Subject | None = None
) -> Iterator[tuple[Story, Question]]:
    """Yield n stories with their first question; seeds without a question are left out.

    Args:
        n: number of stories.
        seed: the first seed.
        asked: who is asked first; drawn in every text if it is not given.
        subject: what is asked first; drawn in every text if it is not given.
    """
    while n > 0:
        made, asked_all = raven_story(seed, asked, subject)
        seed += 1
        if asked_all:
            n -= 1
            yield made, asked_all[0]
