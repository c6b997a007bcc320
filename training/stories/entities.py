"""Who and what a story speaks of: people, groups of people, things, places and scenery."""

from __future__ import annotations

from dataclasses import dataclass

# Forms of the pronoun of a class: subject, object, possessive and reflexive.
PRONOUNS: dict[str, dict[str, str]] = {
    "she": {"she": "she", "her": "her", "his": "her", "self": "herself"},
    "he": {"she": "he", "her": "him", "his": "his", "self": "himself"},
    "it": {"she": "it", "her": "it", "his": "its", "self": "itself"},
    "they": {"she": "they", "her": "them", "his": "their", "self": "themselves"},
}


@dataclass(eq=False, slots=True)
class Person:
    """A person with a name and the pronoun that stands for it, `she` or `he`."""

    name: str
    pronoun: str

    @property
    def plural(self) -> bool:
        """Return False: a person is one."""
        return False


@dataclass(eq=False, slots=True)
class Group:
    """Two people who act together; their pronoun is `they`."""

    members: tuple[Person, Person]
    pronoun: str = "they"
    plural: bool = True


@dataclass(eq=False, slots=True)
class Thing:
    """A thing with its adjective and its owner now; a large one fits in no drawer."""

    noun: str
    adjective: str
    plural: bool
    large: bool = False
    owner: Person | None = None

    @property
    def pronoun(self) -> str:
        """Return the pronoun: `they` for gloves, `it` for a ball."""
        return "they" if self.plural else "it"

    @property
    def phrase(self) -> str:
        """Return adjective and noun."""
        return f"{self.adjective} {self.noun}"


@dataclass(eq=False, slots=True)
class Scenery:
    """Animals and objects that are there, one or several, and own nothing."""

    phrase: str
    plural: bool

    @property
    def pronoun(self) -> str:
        """Return the pronoun."""
        return "they" if self.plural else "it"


@dataclass(eq=False, slots=True)
class Place:
    """A place with the word that stands before it when somebody is there."""

    noun: str
    preposition: str


Entity = Person | Group | Thing | Scenery


@dataclass(eq=False, slots=True)
class Voice:
    """Who speaks or writes, and to whom."""

    speaker: Person
    hearer: Person
    start: int = 0
    mark: tuple[int, int] = (0, 0)
    label: str = ""


def same(one: Entity, other: Entity) -> bool:
    """Return True if both are one entity, or groups of the same people."""
    if isinstance(one, Group) and isinstance(other, Group):
        return set(one.members) == set(other.members)
    return one is other


def rival(one: Entity, other: Entity) -> bool:
    """Return True if a pronoun of the other could be read as the one."""
    return one.pronoun == other.pronoun and not same(one, other)
