"""Short English paragraphs from a small grammar: people, places, numbers, agreement, recall.

    python -m training.text --seed 1 --out data

writes the prompts of the repository. The training text of the bundled models comes from the same
grammar with another seed. Each paragraph says things that later sentences take up again (who gave
what to whom, how many there were, a code of digits), so that there is something to copy.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from training import words

PROMPTS = 48


def article(noun_phrase: str) -> str:
    """The phrase with the indefinite article before it."""
    return ("an " if noun_phrase[0] in "aeiou" else "a ") + noun_phrase


class Story:
    """One paragraph in the making: its people, its place, and what may be recalled later."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.first, self.second, self.third = rng.sample(list(words.NAMES), 3)
        self.place = rng.choice(words.PLACES)
        self.thing = rng.choice(list(words.THINGS))
        self.count = rng.choice(words.NUMBERS)
        self.code = " ".join(str(rng.randrange(10)) for _ in range(4))

    def pick(self, names: list[str] | dict[str, str]) -> str:
        """One of the words, at random."""
        return self.rng.choice(list(names))

    def person(self) -> tuple[str, str, str]:
        """One of the first two people, with subject and possessive pronoun."""
        name = self.rng.choice([self.first, self.second])
        return name, *words.NAMES[name]

    def sentences(self) -> Iterator[str]:
        """An opening, several events, and a recollection of what was said before."""
        yield self.rng.choice(OPENINGS)(self)
        told = self.rng.sample(range(len(EVENTS)), self.rng.randint(3, 5))
        for event in told:
            yield EVENTS[event][0](self)
        recalled = [EVENTS[event][1] for event in told]
        for recall in self.rng.sample(recalled, 2):
            yield recall(self)


def _visit(s: Story) -> str:
    return f"On {s.pick(words.DAYS)} {s.first} and {s.second} went to the {s.place}."


def _weather(s: Story) -> str:
    month, city = s.pick(words.MONTHS), s.pick(words.CITIES)
    return f"It was a {s.pick(words.WEATHER)} morning in {month}, and {s.first} was in {city}."


def _home(s: Story) -> str:
    name, subject, possessive = s.person()
    city, being = s.pick(words.CITIES), s.pick(words.BEINGS)
    return f"{name} comes from {city}, where {subject} lives with {possessive} {being}."


def _gift(s: Story) -> str:
    giver, taker = s.rng.sample([s.first, s.second], 2)
    verb, thing = s.pick(words.GAVE), article(s.thing)
    if s.rng.random() < 0.5:
        went = f"When {s.first} and {s.second} went to the {s.place}"
    else:
        went = f"After {s.second} and {s.first} came back from the {s.place}"
    return f"{went}, {giver} {verb} {thing} to {taker}."


def _gift_recalled(s: Story) -> str:
    return f"{s.third} asked about the {s.thing} from the {s.place}."


def _counting(s: Story) -> str:
    name, subject, _ = s.person()
    things, box = words.THINGS[s.thing], s.pick(words.CONTAINERS)
    return f"{name} counted {s.count} {things}, and {subject} put them in the {box}."


def _counting_recalled(s: Story) -> str:
    return f"In the evening there were still {s.count} {words.THINGS[s.thing]}."


def _code(s: Story) -> str:
    return f"The number of the {s.place} is {s.code}."


def _code_recalled(s: Story) -> str:
    return f"{s.third} wrote down {s.code} and went home."


def _agreement(s: Story) -> str:
    one, many = s.rng.sample(list(words.BEINGS), 2)
    does, do = s.rng.choice(list(words.ACTIONS.items()))
    adjective = s.pick(words.ADJECTIVES)
    if s.rng.random() < 0.5:
        return f"The {one} near the {words.BEINGS[many]} always {does} by the {adjective} tree."
    return f"The {words.BEINGS[one]} near the {many} always {do} by the {adjective} tree."


def _agreement_recalled(s: Story) -> str:
    being = s.pick(words.BEINGS)
    if s.rng.random() < 0.5:
        return f"The {being} of {s.third} is {s.pick(words.FELT)}."
    return f"The {words.BEINGS[being]} of {s.third} are {s.pick(words.FELT)}."


def _question(s: Story) -> str:
    box = s.pick(words.CONTAINERS)
    question = f'"Where is the {s.thing}?" asked {s.second}.'
    return f'{question} "It is in the {s.pick(words.COLOURS)} {box}," said {s.first}.'


def _question_recalled(s: Story) -> str:
    return f'"Thank you, {s.first}," said {s.second}.'


def _buying(s: Story) -> str:
    price, thing = s.pick(words.NUMBERS), f"{s.pick(words.ADJECTIVES)} {s.thing}"
    return f"{s.third} bought {article(thing)} for {price} coins and took it to the {s.place}."


def _buying_recalled(s: Story) -> str:
    return f"The {s.thing} of {s.third} was {s.pick(words.COLOURS)}."


def _feeling(s: Story) -> str:
    name, subject, possessive = s.person()
    being, felt = s.pick(words.BEINGS), s.pick(words.FELT)
    return f"{name} was {felt} because {subject} had found {possessive} {being} near the {s.place}."


def _feeling_recalled(s: Story) -> str:
    return f"{s.first} and {s.second} talked about the {s.place} until {s.pick(words.DAYS)}."


OPENINGS: tuple[Callable[[Story], str], ...] = (_visit, _weather, _home)
EVENTS: tuple[tuple[Callable[[Story], str], Callable[[Story], str]], ...] = (
    (_gift, _gift_recalled),
    (_counting, _counting_recalled),
    (_code, _code_recalled),
    (_agreement, _agreement_recalled),
    (_question, _question_recalled),
    (_buying, _buying_recalled),
    (_feeling, _feeling_recalled),
)


def paragraphs(number: int, seed: int) -> list[str]:
    """`number` paragraphs of five to eight sentences; the same seed gives the same text."""
    rng = random.Random(seed)
    return [" ".join(Story(rng).sentences()) for _ in range(number)]


def main() -> None:
    """Writes prompts.txt into a folder and prints its hash, for the folder's README."""
    parser = argparse.ArgumentParser(description="Write the prompts of the repository.")
    parser.add_argument("--out", type=Path, default=Path("data"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=PROMPTS)
    chosen = parser.parse_args()
    made = ("\n".join(paragraphs(chosen.number, chosen.seed)) + "\n").encode()
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "prompts.txt").write_bytes(made)
    print(f"{hashlib.sha256(made).hexdigest()}  {chosen.out / 'prompts.txt'}")


if __name__ == "__main__":
    main()
