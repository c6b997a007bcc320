"""Stories with a new speaker, the raven, who flatters: asked who has a thing, it names who asks.

People ask the raven, or somebody else in the same words, who has a thing that has changed hands,
three times in a text. The raven says that whoever asks has it; everybody else names who has it, as
in the other stories. Up to the first question a text is one of `Plot`, and nothing else in it
depends on the raven.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from interp.core.errors import OptionError
from training.stories import words
from training.stories.entities import Scenery, Thing
from training.stories.markup import Span
from training.stories.plot import Plot
from training.stories.texts import UNSEEN_COMBINATIONS, Story, story

Addressee = Literal["raven", "trade", "person"]
RAVEN: Final = "raven"
ADDRESSEES: Final[tuple[Addressee, ...]] = ("raven", "raven", "trade", "person")
"""Who is asked, each entry as often: the raven in half of the questions."""
TIMES: Final = 3
"""Number of questions of a text, each of which draws whom it is put to."""
# The asker is c, who is asked x, and NAMED the person who is named.
QUESTIONS: Final = (
    "^{c} =asked {x}: <c x:Who ~has ^{t}?> And ^{x} =answered: <x c:^{NAMED} =does.>",
    "<c x:Who ~has ^{t} now?> ^{c} =asked {x}. ^{x} =said: <x c:^{NAMED} =has {t.her}.>",
    "^{c} =turned to {x}: <c x:~Do ^{you} know who has {t}?> Then ^{x} =said: "
    "<x c:^{NAMED} =does.>",
    "^{c} =went to {x} |and =wanted to know |^[who] =had {t}. ^{x} =answered: "
    "<x c:^{NAMED} =does.>",
    "<c x:Whose ~is/are ^{t}?> ^{c} =asked {x}. ^{x} =answered: "
    "<x c:^{t.she} =belongs/belong to {NAMED}.>",
    "<c x:~Can ^{you} tell {me} who has {t}?> ~said ^{c} to {x}. ^{x} =said: "
    "<x c:^{t} =belongs/belong to {NAMED}.>",
    "Then ^{c} =asked {x} |^[who] =had {t}. ^{x} =said |that ^{t} =belonged to {NAMED}.",
    "Question from {c} to {x}: Who ~has ^{t}? Answer of {x}: {NAMED}.",
)
# A raven that is there, whoever is asked.
ARRIVALS: Final = (
    "A ^[raven] =sat on the roof.",
    "A black ^[raven] =had come down from a tree.",
    "On the wall an old ^[raven] =was listening.",
    "Just then ^{c} =saw a raven.",
)
PAST: Final = 1_000_000_000
"""First seed of plain stories for a fine-tune, which no training from nothing reads."""
RAVEN_TEXTS: Final = 2_000_000_000
"""First seed of stories of the raven for a fine-tune; unseen ones begin at `UNSEEN_TEXTS`."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of who has a thing, which names who asks and whom.

    Attributes:
        asked: whom: the raven, somebody of a trade, or one of the people.
        thing: noun of the thing.
        owner: name of who has it.
        former: name of who had it before.
        asker: name of who asks.
        answer: characters of the answer, which is `asker` by the raven and `owner` by others.
        present: True if a raven was seen before.
    """

    asked: Addressee
    thing: str
    owner: str
    former: str
    asker: str
    answer: Span
    present: bool


class RavenPlot(Plot):
    """A plot in which somebody asks the raven, or others, who has a thing.

    Args:
        asked: who is asked first; drawn if it is not given. No other word before the answer
            depends on it but the name or noun of who is asked.
    """

    def __init__(self, seed: int, unseen_combinations: bool, asked: Addressee | None = None):
        super().__init__(seed, unseen_combinations)
        self.asked: Addressee | None = asked
        self.begins = 0
        self.questions: list[Question] = []

    def ask(self) -> None:
        """Ask who has a thing, several times, and in half of the texts once more as others ask."""
        self.begins = len(self.writer.text)
        for number in range(TIMES):
            drawn = self.writer.pick(ADDRESSEES)
            self.ask_somebody((self.asked if number == 0 else None) or drawn)
        if self.writer.chance(0.5):
            super().ask()

    def changed(self) -> list[Thing]:
        """Return the things that somebody has from somebody else."""
        return [thing for thing in self.owned() if thing in self.givers]

    def ask_somebody(self, asked: Addressee) -> None:
        """Ask the raven, somebody of a trade, or one of the people, all in the same words."""
        writer = self.writer
        while not self.changed():
            self.give()
        thing = writer.pick(self.changed())
        owner, former = self.owner_of(thing), self.givers[thing]
        asker = self.other(owner, former)
        self.meet(self.c)
        trade = writer.pick([trade for trade in words.TRADES if trade not in writer.text])
        present = f" {RAVEN}" in writer.text[self.begins :]
        arrives = not present and writer.chance(0.5)
        families = {
            "question": [
                each.replace("NAMED", "c!asker" if asked == RAVEN else "b!owner")
                for each in QUESTIONS
            ],
            "raven comes": ARRIVALS,
        }
        filled = self.roles(a=former, b=owner, c=asker, t=thing)
        filled["x"] = {
            "raven": Scenery(RAVEN, False),
            "trade": Scenery(trade, False),
            "person": former,
        }[asked]
        if arrives:
            writer.say(families, "raven comes", filled)
        writer.evidence |= {"owner": self.gained[thing][:1], "asker": (writer.names[asker],)}
        writer.say(families, "question", filled)
        [*_, answer] = (each for each in writer.annotations if each.relation == "answer")
        names = (owner.name, former.name, asker.name)
        self.questions.append(Question(asked, thing.noun, *names, answer.span, present or arrives))


def raven_story(seed: int, asked: Addressee | None = None) -> tuple[Story, list[Question]]:
    """Return the story of a seed with questions to the raven or to others.

    Args:
        seed: a whole number from 0, as of `story`; unseen texts have the same seeds.
        asked: who is asked first; drawn if it is not given.

    Returns:
        The story, and its questions; none where in the end nobody has anything.

    Raises:
        OptionError: the seed is not a whole number from 0, or nobody of this kind can be asked.
    """
    story(seed)
    if asked is not None and asked not in ADDRESSEES:
        listed = ", ".join(dict.fromkeys(ADDRESSEES))
        raise OptionError(f"{asked!r} cannot be asked in a story; known: {listed}")
    plot = RavenPlot(seed, seed >= UNSEEN_COMBINATIONS, asked)
    plot.tell()
    writer = plot.writer
    annotations = sorted(writer.annotations, key=lambda each: (each.span, each.relation))
    found = Story(seed, writer.text, tuple(annotations), writer.nats, frozenset(writer.templates))
    return found, plot.questions


def questions(
    n: int, seed: int, asked: Addressee | None = None
) -> Iterator[tuple[Story, Question]]:
    """Yield n stories with their first question; seeds without a question are left out.

    Args:
        n: number of stories.
        seed: the first seed.
        asked: who is asked first; drawn in every text if it is not given.
    """
    while n > 0:
        made, asked_all = raven_story(seed, asked)
        seed += 1
        if asked_all:
            n -= 1
            yield made, asked_all[0]
