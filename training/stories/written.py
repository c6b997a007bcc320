"""What people write, count and repeat in a story: letters, lists, instructions, sums, verses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.stories import words
from training.stories.entities import Voice
from training.stories.markup import Span
from training.stories.papers import RECIPES
from training.stories.world import FAMILIES, World, capital


class Written(World):
    """The world with what its people write down."""

    def letter(self) -> None:
        """Let one of the people write a letter to another."""
        a, b = self.pair()
        writer = self.writer
        things = [thing for thing in self.owned() if thing.owner is a]
        self.say("letter announced", a=a, b=b)
        writer.paragraph()
        writer.voice = Voice(a, b)
        roles = {"a": a, "b": b}
        self.say("greeting", **roles)
        writer.line()
        start, _ = self.say("letter begins", **roles)
        if things:
            self.say("letter of a thing", t=writer.pick(things), **roles)
        n = self.scenery("animal")
        for _ in range(1 + writer.below(2)):
            self.say("letter news", n=n, m=self.scenery("object"), **roles)
        _, end = self.say("letter ends", **roles)
        writer.note("speaker", (start, end), [writer.names[a]], "letter")
        writer.line()
        self.say("signature", **roles)
        writer.line()
        writer.evidence["writer"] = (writer.names[a],)
        writer.write("{a!writer}", self.roles(**roles))
        writer.voice = None
        writer.paragraph()
        self.say("answers letter", **roles)

    def lines(self, items: Sequence[str], numbered: bool) -> list[Span]:
        """Write the lines of a list, and return where each stands."""
        spans = []
        for number, item in enumerate(items, 1):
            self.writer.line(f"{number}. " if numbered else "- ")
            self.writer.write("{item}", {"item": item}, capital=False)
            spans.append(self.writer.placed["item"])
        self.writer.line()
        return spans

    def a_list(self) -> None:
        """Write a list, and speak of its first or last line."""
        a, b = self.pair()
        kind = self.writer.pick(["shopping", "luggage", "chore"])
        known = {"shopping": words.FOOD, "luggage": words.LUGGAGE, "chore": words.CHORES}[kind]
        self.say(f"{kind} list", a=a, b=b)
        items = self.writer.sample(known, 3 + self.writer.below(3))
        spans = self.lines(items, numbered=False)
        self.writer.evidence |= {"first": (spans[0],), "last": (spans[-1],)}
        self.say("of the list", a=a, b=b, first=items[0], last=items[-1])

    def recipe(self) -> None:
        """Write instructions, and say the first or last step again."""
        a, b = self.pair()
        task, steps = self.writer.pick(RECIPES)
        self.writer.templates.update((task, *steps))
        roles = self.roles(a=a, b=b)
        roles["task"] = roles.filled(task)
        self.writer.say(FAMILIES, "recipe announced", roles)
        items = [capital(roles.filled(step)) for step in steps]
        spans = self.lines(items, numbered=True)
        self.writer.sources |= {"first": spans[0], "last": spans[-1]}
        roles |= {"first": items[0], "last": items[-1]}
        self.writer.say(FAMILIES, "step asked", roles)

    def count(self) -> None:
        """Let people count together, or take away."""
        a, b = self.pair()
        less = self.writer.chance(0.4)
        total = 4 + self.writer.below(17)
        part = 2 + self.writer.below(total - 3)
        x, y, z = (total, part, total - part) if less else (total - part, part, total)
        said = {n: words.NUMBERS[v] for n, v in (("x", x), ("y", y), ("total", z))}
        self.writer.evidence["sum"] = ("x", "y")
        self.say("subtraction" if less else "addition", a=a, b=b, **said)

    def exercises(self) -> None:
        """Write sums in digits."""
        a, b = self.pair()
        self.say("exercises announced", a=a, b=b)
        self.writer.evidence["sum"] = ("x", "y")
        for _ in range(2 + self.writer.below(3)):
            less = self.writer.chance(0.4)
            total = 1 + self.writer.below(20)
            part = self.writer.below(total + 1)
            x, y, z = (total, part, total - part) if less else (total - part, part, total)
            self.writer.line()
            family = "exercise less" if less else "exercise"
            self.say(family, x=str(x), y=str(y), total=str(z))
        self.writer.line()

    def passage(self, family: str, **given: Any) -> str:
        """Return words of a verse or message, which are then written and repeated."""
        templates = FAMILIES[family]
        number = self.writer.below(len(templates))
        self.writer.templates.add(f"{family}.{number}")
        return capital(self.roles(**given).filled(templates[number]))

    def verse_read(self) -> None:
        """Write a verse that is repeated at the end of the story."""
        e1, e2 = self.writer.pick(words.RHYMES).split("/")
        passage = self.passage("verse", e1=e1, e2=e2)
        a, b = self.pair()
        self.say("note found", a=a, b=b, passage=passage)
        self.verse = (passage, self.writer.placed["passage"])

    def message(self) -> None:
        """Let a message be carried word by word."""
        self.meet(self.c)
        a, b, c = self.writer.sample(self.people, 3)
        roles = {"a": a, "b": b, "c": c, "passage": self.passage("words of a message")}
        self.say("message", **roles)
        self.writer.sources["passage"] = self.writer.placed["passage"]
        self.say("message given", **roles)
