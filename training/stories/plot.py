"""The course of a story: an opening, a thing, some acts, and who has what in the end."""

from __future__ import annotations

from training.stories.acts import Acts
from training.stories.written import Written

PAPER_ACTS = ["letter", "a_list", "recipe", "exercises"]


class Plot(Acts, Written):
    """The world with a course of acts."""

    def tell(self) -> None:
        """Write the text: an opening, a thing, some acts, and who has what in the end."""
        self.say("open", day=self.day)
        if self.writer.chance(0.6):
            a, b = self.writer.sample([self.a, self.b], 2)
            self.say("about", a=a, b=b)
        self.new_thing()
        for _ in range(3 + self.writer.below(3)):
            act = self.writer.pick(self.possible())
            self.done |= {act} - {"give", "new_thing"}
            if act in PAPER_ACTS or self.writer.chance(0.5):
                self.writer.paragraph()
            getattr(self, act)()
            if self.writer.chance(0.3):
                self.pause()
        if self.verse is not None or self.writer.chance(0.8):
            self.writer.paragraph()
        if self.verse is not None:
            passage, span = self.verse
            self.writer.sources["passage"] = span
            a, b = self.pair()
            self.say("note again", a=a, b=b, passage=passage)
        if self.owned():
            self.ask()
        if self.writer.chance(0.5):
            a, b = self.pair()
            self.say("close", a=a, b=b, day=self.day)

    def possible(self) -> list[str]:
        """Return the acts that can happen now; giving is the most frequent, and may come again."""
        acts = [*PAPER_ACTS, "scene", "scene", "talk", "count", "message", "pause", "verse_read"]
        acts += ["new_thing", "new_thing"] if len(self.things) < len(self.nouns) else []
        acts += [*["give"] * 4, "hide", "hide", "know", "know", "lose"] if self.owned() else []
        acts += ["swap", "swap"] if len(self.owned()) > 1 else []
        return [act for act in acts if act not in self.done]

    def ask(self) -> None:
        """Say or ask who has a thing now."""
        thing = self.writer.pick(self.owned())
        owner = self.owner_of(thing)
        self.meet(self.c)
        giver = self.givers.get(thing, owner)  # who would not have to ask
        asker = self.other(owner, giver)
        third = self.other(owner, asker)
        self.writer.evidence["owner"] = self.gained[thing][:1]
        family = self.writer.pick(["who_has", "who_has", "ends_with"])
        self.say(family, a=third, b=owner, c=asker, t=thing)
