"""The world of a story: who is there, who has what, where it was put, and what happens next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from training.stories import words
from training.stories.entities import Group, Person, Place, Scenery, Thing
from training.stories.papers import PAPERS
from training.stories.sentences import SENTENCES
from training.stories.speech import TAGS
from training.stories.writer import Span, Writer

NAMES = [*((name, "she") for name in words.WOMEN), *((name, "he") for name in words.MEN)]
NOUNS = [(noun, kind) for kind, (_, nouns) in words.THINGS.items() for noun in nouns.split()]
PLACES = [(noun, before) for before, nouns in words.PLACES.items() for noun in nouns.split()]
SPOTS = [f"{before} the {noun}" for before, nouns in words.SPOTS.items() for noun in nouns.split()]
_PERSON = {name: i for i, (name, _) in enumerate(NAMES)}
_THING = {noun: i for i, (noun, _) in enumerate(NOUNS)}
FAMILIES = {**SENTENCES, **TAGS, **PAPERS}
_SEVERAL = words.NUMBERS[2:10]
# Words that a slot draws when a template asks for it; `day2` is another day than `day`.
FILLS: dict[str, Sequence[str]] = {
    "day": words.DAYS,
    "month": words.MONTHS,
    "time": words.TIMES,
    "weather": words.WEATHER,
    "colour": words.COLOURS,
    "mood": words.MOODS,
    "glad": words.GLAD,
    "trade": words.TRADES,
    "animal": list(words.ANIMALS),
    "animals": list(words.ANIMALS.values()),
    "pet": words.PETS,
    "pets": [words.ANIMALS[pet] for pet in words.PETS],
    "coat": words.COATS,
    "looks": words.LOOKS,
    "object": list(words.OBJECTS),
    "few": _SEVERAL,
    "number": words.NUMBERS[2:13],
    "price": words.NUMBERS[2:],
    "counted": words.COUNTED,
    "snack": words.SNACKS,
    "furniture": words.FURNITURE,
    "vegetable": words.VEGETABLES,
    "fat": words.FATS,
    "plant": words.PLANTS,
    "relative": words.RELATIVES,
    "v": words.VERSE_NOUNS,
    "w": words.VERSE_VERBS,
    "j": words.VERSE_ADJECTIVES,
    "in": words.NEAR,
}


def held_out(name: str, noun: str) -> bool:
    """Return True for the tenth of all people and things that no training text has together."""
    return (_PERSON[name] * 7 + _THING[noun] * 3) % 10 == 0


class Roles(dict[str, Any]):
    """Roles of a sentence; a word that nobody gave is drawn when it is asked for."""

    def __init__(self, writer: Writer, given: dict[str, Any]):
        super().__init__(given)
        self._writer = writer

    def __missing__(self, role: str) -> Any:
        kind = role.rstrip("12")
        if kind in FILLS:
            others = {self.get(kind), self.get(f"{kind}1"), self.get(f"{kind}2")}
            value: Any = self._writer.pick([x for x in FILLS[kind] if x not in others])
        else:
            value = Group(tuple(self[member] for member in role))  # type: ignore[arg-type]
        self[role] = value
        return value

    def filled(self, template: str) -> str:
        """Return the words of a template of plain slots."""

        def word(match: re.Match[str]) -> str:
            before, _, role = match[1].rpartition(" ")
            value = self[role]
            if isinstance(value, Place):
                return f"{value.preposition if before else ''} the {value.noun}".lstrip()
            return value

        return re.sub(r"\{([^}]*)\}", word, template)


class World:
    """Three people, up to three things and two places, in a text that is being written."""

    def __init__(self, seed: int, unseen_combinations: bool):
        self.writer = writer = Writer(seed)
        self.people = [Person(*each) for each in writer.sample(NAMES, 3)]
        self.a, self.b, self.c = self.people
        self.here, self.there = (Place(*each) for each in writer.sample(PLACES, 2))
        self.nouns = self._nouns(unseen_combinations)
        self.day, self.time = writer.pick(words.DAYS), writer.pick(words.TIMES)
        self.things: list[Thing] = []
        self.known = {self.a, self.b}
        self.gained: dict[Thing, tuple[Span, ...]] = {}
        self.givers: dict[Thing, Person] = {}
        self.verse: tuple[str, Span] | None = None
        self.done: set[str] = set()

    def _nouns(self, unseen: bool) -> list[tuple[str, str]]:
        """Draw things that these people may have in training, or whose first owner may not."""

        def seen(noun: str) -> bool:
            return not any(held_out(person.name, noun) for person in self.people)

        nouns = self.writer.sample([each for each in NOUNS if seen(each[0])], 3)
        if unseen:
            held = [each for each in NOUNS if held_out(self.a.name, each[0])]
            nouns[0] = self.writer.pick(held)
        return nouns

    # Saying

    def roles(self, **given: Any) -> Roles:
        """Return the roles of a sentence: the cast, the places, and what is given."""
        cast = {"a": self.a, "b": self.b, "c": self.c, "p": self.here, "q": self.there}
        return Roles(self.writer, cast | {"time": self.time} | given)

    def say(self, family: str, **given: Any) -> Span:
        """Write a sentence of a family."""
        return self.writer.say(FAMILIES, family, self.roles(**given))

    def pair(self) -> tuple[Person, Person]:
        """Return two of the people who are there, in random order; a third may come along."""
        first, second = self.writer.sample(self.people, 2)
        self.meet(first, second)
        return first, second

    def meet(self, *people: Person) -> None:
        """Let the third person arrive if an event needs them."""
        if self.c in people and self.c not in self.known:
            self.known.add(self.c)
            self.say("arrives")

    def other(self, *people: Person) -> Person:
        """Return one of the people who is none of these, the third of all if two are given."""
        return self.writer.pick([each for each in self.people if each not in people])

    def thing(self) -> Thing:
        """Return a thing that nobody has had yet."""
        noun, kind = self.nouns[len(self.things)]
        adjectives = words.THINGS[kind][0].split()
        adjectives += words.COLOURS if kind in words.COLOURED else []
        thing = Thing(noun, self.writer.pick(adjectives), noun in words.PAIRS, kind in words.LARGE)
        self.things.append(thing)
        return thing

    def owned(self) -> list[Thing]:
        """Return the things that somebody has."""
        return [thing for thing in self.things if thing.owner is not None]

    def owner_of(self, thing: Thing) -> Person:
        """Return who has a thing that somebody has."""
        assert thing.owner is not None
        return thing.owner

    def gets(self, person: Person, thing: Thing, sentence: Span) -> None:
        """Note that from this sentence on a person owns a thing."""
        if thing.owner is not None:
            self.givers[thing] = thing.owner
        thing.owner = person
        self.gained[thing] = (self.writer.names[person], self.writer.names[thing])
        self.writer.note("event", sentence, self.gained[thing], "gets")

    def scenery(self, kind: str, beside: Scenery | None = None) -> Scenery:
        """Return one or several animals or objects, of another kind than those beside."""
        known = words.ANIMALS if kind == "animal" else words.OBJECTS
        adjectives = words.COATS if kind == "animal" else words.LOOKS
        shown = beside.phrase.rpartition(" ")[2] if beside else ""
        noun = self.writer.pick([n for n, several in known.items() if shown not in {n, several}])
        plural = self.writer.chance(0.5)
        adjective = f"{self.writer.pick(adjectives)} " if self.writer.chance(0.4) else ""
        return Scenery(adjective + (known[noun] if plural else noun), plural)


def capital(text: str) -> str:
    """Return the text with a capital letter."""
    return text[0].upper() + text[1:]
