"""What happens in a story: things change hands and places, and people speak in turns."""

from __future__ import annotations

from training.stories import words
from training.stories.entities import Scenery
from training.stories.speech import TAGS, TALK
from training.stories.world import SPOTS, Roles, World


class Acts(World):
    """The world with what happens in it; every act writes sentences and changes the world."""

    def new_thing(self) -> None:
        """Let somebody have, find or buy a thing, perhaps after a wish."""
        thing = self.thing()
        way = self.writer.pick(["has", "has", "find", "buy"])
        person = self.a if len(self.things) == 1 else self.pair()[0]
        friend = self.other(person, self.c) if way == "has" else self.other(person)
        self.gets(person, thing, self.say(way, a=person, b=friend, t=thing))

    def give(self) -> None:
        """Let a thing change hands, by a gift or a sale, or come back to its owner."""
        thing = self.writer.pick(self.owned())
        giver = self.owner_of(thing)
        taker = self.other(giver)
        self.meet(giver, taker)
        way = self.writer.pick(["give", "give", "sell", "lend"])
        roles = {"a": giver, "b": taker, "t": thing}
        if way != "lend" and self.writer.chance(0.4):
            self.say("wish", **roles)
        sentence = self.say(way, **roles)
        if way == "lend":
            return
        self.gets(taker, thing, sentence)
        if way == "give" and self.writer.chance(0.6):
            self.say("thanks", **roles)

    def swap(self) -> None:
        """Let two people exchange things."""
        t, u = self.owned()[:2]
        one, other = self.owner_of(t), self.owner_of(u)
        if one is other:
            self.give()
            return
        self.meet(one, other)
        sentence = self.say("swap", a=one, b=other, t=t, u=u)
        self.gets(other, t, sentence)
        self.gets(one, u, sentence)

    def lose(self) -> None:
        """Let a thing get lost."""
        thing = self.writer.pick(self.owned())
        owner = self.owner_of(thing)
        self.meet(owner)
        sentence = self.say("lost", a=owner, b=self.other(owner), t=thing)
        thing.owner = None
        spans = (self.writer.names[owner], self.writer.names[thing])
        self.writer.note("event", sentence, spans, "loses")

    def hide(self) -> None:
        """Let a thing be moved while its owner is away, who looks where it was."""
        thing = self.writer.pick(self.owned())
        owner = self.owner_of(thing)
        friend = self.other(owner)
        self.meet(owner, friend)
        room = [x for x in SPOTS if not thing.large or x.startswith(("under", "behind"))]
        spot, spot2 = self.writer.sample(room, 2)
        roles = {"a": owner, "b": friend, "t": thing, "spot": spot, "spot2": spot2}
        self.writer.evidence |= {"belief": ("spot",), "place": ("spot2",)}
        for family in ("put", "leave", "moved", "believes", "asks_place", "tells_place"):
            self.say(family, **roles)

    def know(self) -> None:
        """Say what somebody knows of who has what."""
        thing = self.writer.pick(self.owned())
        owner = self.owner_of(thing)
        self.meet(*self.people)
        a = self.other(owner, self.givers.get(thing, owner))
        c = self.other(owner, a)
        self.writer.evidence["owner"] = self.gained[thing][:1]
        self.say("known", a=a, b=owner, c=c, t=thing)

    def scene(self) -> None:
        """Describe animals and objects, with another noun between a subject and its verb."""
        for _ in range(1 + self.writer.below(2)):
            family = self.writer.pick(["animals", "objects"])
            n = self.scenery("animal" if family == "animals" else "object")
            self.say(family, n=n, m=self.scenery("object", n))

    def talk(self) -> None:
        """Let two people speak in turns; after the first two lines nobody says who speaks."""
        first, second = self.pair()
        uncounted = [snack for snack in words.SNACKS if not snack.endswith("s")]
        self.writer.paragraph()
        for number, (line, answers) in enumerate(self.writer.sample(TALK, 2)):
            shared = self.roles(
                n=self.plain(words.ANIMALS),
                m=self.plain(words.ANIMALS),
                s=Scenery(self.writer.pick(uncounted), False),
                counted=Scenery(self.writer.pick(words.COUNTED), True),
                furniture=Scenery(f"heavy {self.writer.pick(words.FURNITURE)}", False),
                door=Scenery("door", False),
                roof=Scenery("roof", False),
                letter=Scenery("letter", False),
                riddle=Scenery("riddle", False),
            )
            turns = ((line, first, second), (self.writer.pick(answers), second, first))
            for turn, (sentence, a, b) in enumerate(turns, 1 + 2 * number):
                shared |= {"a": a, "b": b, "turn": f"turn {turn}"}
                if turn > 1:
                    self.writer.line()
                self.utter(sentence, shared, tagged=number == 0)
        self.writer.paragraph()

    def plain(self, known: dict[str, str]) -> Scenery:
        """Return several animals without an adjective."""
        return Scenery(self.writer.pick(list(known.values())), True)

    def utter(self, line: str, roles: Roles, *, tagged: bool) -> None:
        """Write a line of a conversation, with or without a tag that names the speaker."""
        self.writer.templates.add(line)
        if not tagged:
            self.writer.write(f"<a b:{line}>", roles)
            return
        kind = {"?": "question", "!": "cry"}.get(line[-1], "statement")
        said = line if line[-1] in "?!" else f"{line[:-1]},"
        tags = [f"<a b:{said}> {tag}" for tag in TAGS[f"tag of a {kind}"]]
        self.writer.say({f"tag of a {kind}": tags}, f"tag of a {kind}", roles)

    def pause(self) -> None:
        """Say how somebody feels, or what goes on around."""
        a, b = self.pair()
        self.say(self.writer.pick(["mood", "about", "aside"]), a=a, b=b)
