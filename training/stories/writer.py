"""Writer of sentences from templates, which notes what every word refers to as it writes it.

A pronoun is written only where one name fits it: one that the sentence has said, with no other of
its kind in the sentence, or one of the sentence before, with no other of its kind in both. In other
cases the name is repeated, and a sentence that would say a name twice gives way to another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from training.stories.choices import Choices
from training.stories.entities import (
    PRONOUNS,
    Entity,
    Group,
    Person,
    Place,
    Scenery,
    Thing,
    Voice,
    rival,
    same,
)
from training.stories.markup import (
    NO_REFERENCE,
    SENTENCE_BREAK,
    SPEECH,
    WORD,
    Annotation,
    Roles,
    Span,
    next_is_plural,
    parts_of,
)


class Writer(Choices):
    """A text in the making with its annotations, choices and used templates.

    Attributes:
        placed: the span of what each slot last wrote.
        sources: where a passage stands first, by the slot that repeats it.
        evidence: the spans, or names of slots, that determine an answer, by its label.
    """

    def __init__(self, seed: int):
        super().__init__(seed)
        self._pieces: list[str] = []
        self._length = 0
        self.annotations: list[Annotation] = []
        self.templates: set[str] = set()
        self.placed: dict[str, Span] = {}
        self.evidence: dict[str, tuple[Span | str, ...]] = {}
        self.sources: dict[str, Span] = {}
        self.names: dict[Entity, Span] = {}
        self.voice: Voice | None = None
        self._sentence = 0
        self._mentions: list[tuple[int, Entity]] = []
        self._capital = True
        self._subject: tuple[tuple[Span, ...], str, Entity | None] = ((), "", None)
        self._nouns: list[tuple[Span, bool]] = []
        self._waiting_verbs: list[tuple[Span, str]] = []
        self._unresolved: list[tuple[str, Span, Entity, str]] = []
        self._cuts: list[int] = []
        self._open_marks: list[Span] = []
        self._fragment = False
        self._repeats = False
        self._within_paragraph = False
        self._break = " "

    # Text

    @property
    def text(self) -> str:
        """Return what has been written."""
        return "".join(self._pieces)

    def put(self, piece: str) -> Span:
        """Append characters, with a capital where a sentence begins."""
        if self._capital and piece and (piece[0].isalpha() or piece[0].isdigit()):
            piece = piece[0].upper() + piece[1:]
            self._capital = False
        start = self._length
        self._pieces.append(piece)
        self._length += len(piece)
        if piece.endswith((". ", "? ", "! ")):
            self._capital = True
        return start, self._length

    def note(
        self, relation: str, span: Span, targets: Sequence[Span] = (), label: str = ""
    ) -> None:
        """Annotate a span."""
        self.annotations.append(Annotation(relation, span, tuple(targets), label))

    def paragraph(self) -> None:
        """Begin a new paragraph with the next sentence."""
        if self._length:
            self._break = "\n\n"

    def line(self, start: str = "") -> None:
        """Begin a new line, such as one of a list, with the next sentence."""
        self._break = "\n" + start

    def say(self, family: Mapping[str, Sequence[str]], name: str, roles: Roles) -> Span:
        """Write a sentence of one of the templates of a family."""
        templates = family[name]
        fresh = [i for i in range(len(templates)) if f"{name}.{i}" not in self.templates]
        left = fresh or list(range(len(templates)))
        while True:
            number = left.pop(self.below(len(left)))
            before = self._state()
            span = self.write(templates[number], roles)
            if not self._repeats or not left:
                self.templates.add(f"{name}.{number}")
                return span
            self._restore(before)

    def _state(self) -> tuple[Any, ...]:
        """Return what a sentence changes, to take it back."""
        return (
            len(self._pieces),
            self._length,
            len(self.annotations),
            dict(self.placed),
            dict(self.names),
            list(self._mentions),
            self._sentence,
            self.voice,
            self._break,
        )

    def _restore(self, state: tuple[Any, ...]) -> None:
        pieces, self._length, annotations, *others = state
        del self._pieces[pieces:]
        del self.annotations[annotations:]
        self.placed, self.names, self._mentions, self._sentence, self.voice, self._break = others

    def write(self, template: str, roles: Roles, *, capital: bool = True) -> Span:
        """Write a sentence, and return its span."""
        self._within_paragraph = bool(self._pieces) and self._break == " "
        if self._pieces:
            self.put(self._break)
        self._break = " "
        self._sentence += 1
        self._mentions = [m for m in self._mentions if m[0] >= self._sentence - 1]
        self._capital, self._fragment, self._repeats = capital, False, False
        start = self._length
        self._cuts = [start]
        self._subject, self._nouns = ((), "", None), []
        parts = parts_of(template)
        for at, (kind, content, beside) in enumerate(parts):
            if beside == "~":
                several = "/" in content and next_is_plural(parts[at:], roles)
                self._verb_before_subject(content.split("/"), several)
            else:
                getattr(self, f"_write_{kind}")(content, beside, roles)
        span = (start, self._length)
        self._finish(span)
        return span

    def _finish(self, span: Span) -> None:
        """Annotate the sentence and its clauses, and what refers to names that came later."""
        self.note("sentence", span)
        text = self.text
        for begin, end in zip(self._cuts, [*self._cuts[1:], span[1]], strict=True):
            words = list(WORD.finditer(text, begin, end))
            if words:
                self.note("clause", (words[0].start(), words[-1].end()))
        waiting, self._unresolved = self._unresolved, []
        for each in waiting:
            self._refer(*each)
        assert not self._unresolved, f"nobody is named in {text[span[0] :]!r}"
        assert not self._waiting_verbs, f"a verb without a subject in {text[span[0] :]!r}"

    def _refer(self, relation: str, span: Span, entity: Entity, label: str) -> None:
        """Annotate with the last names of an entity, or those that the sentence goes on to say."""
        members = entity.members if isinstance(entity, Group) else (entity,)
        if all(member in self.names for member in members):
            self.note(relation, span, [self.names[member] for member in members], label)
        else:
            self._unresolved.append((relation, span, entity, label))

    # Parts of a template

    def _write_plain(self, content: str, beside: str, roles: Roles) -> None:
        content = SENTENCE_BREAK.sub(lambda m: m[1] + m[2].upper(), content)
        for piece in re.split(r"([()])", content):
            if piece == "(":
                self._open_marks.append(self.put(piece))
            elif piece == ")":
                self.note("mark", self.put(piece), [self._open_marks.pop()], "bracket")
            elif piece:
                self.put(piece)

    def _write_clause(self, content: str, beside: str, roles: Roles) -> None:
        self._cuts.append(self._length)

    def _write_subject(self, content: str, beside: str, roles: Roles) -> None:
        self._subject = ((), "next", None)

    def _write_head(self, content: str, beside: str, roles: Roles) -> None:
        span = self.put(content)
        if content.lower() not in NO_REFERENCE:
            self._mentions.append((self._sentence, Scenery(content, bool(beside))))
        self._set_subject([span], "plural" if beside else "singular", None)

    def _set_subject(self, spans: Sequence[Span], number: str, entity: Entity | None) -> None:
        self._subject = (tuple(spans), number, entity)
        for verb, agreement in self._waiting_verbs:
            self.note("subject", verb, spans, agreement)
        self._waiting_verbs.clear()

    def _verb_before_subject(self, forms: Sequence[str], several: bool) -> None:
        number = ("plural" if several else "singular") if len(forms) > 1 else ""
        self._waiting_verbs.append((self.put(forms[several]), number))

    def _write_verb(self, content: str, beside: str, roles: Roles) -> None:
        spans, number, _ = self._subject
        forms = content.split("/")
        if number == "first":
            form = forms[2] if len(forms) == 3 else forms[-1]
        else:
            form = forms[min(number == "plural", len(forms) - 1)]
        assert spans, f"{content!r} has no subject"
        verb = self.put(form)
        self.note("subject", verb, spans, number if len(forms) > 1 else "")
        between = [(noun, several) for noun, several in self._nouns if noun > spans[-1]]
        if len(forms) > 1 and between:
            other = any(several != (number == "plural") for _, several in between)
            label = f"{'other' if other else 'same'} number"
            self.note("distractor", verb, [noun for noun, _ in between], label)

    def _write_voice(self, content: str, beside: str, roles: Roles) -> None:
        speaker, hearer = (roles[role] for role in content.split())
        self._cuts.append(self._length)
        mark = self.put('"')
        self._open_marks.append(mark)
        self._capital = not self._fragment
        self.voice = Voice(speaker, hearer, self._length, mark, roles.get("turn", ""))

    def _write_close(self, content: str, beside: str, roles: Roles) -> None:
        voice = self.voice
        assert voice is not None
        words = (voice.start, self._length)
        self.voice, self._capital = None, False
        self.note("mark", self.put('"'), [self._open_marks.pop()], "quotation")
        self._unresolved.append(("speaker", words, voice.speaker, voice.label))
        self._cuts.append(self._length)
        self._fragment = self.text[words[1] - 1] == ","

    def _write_slot(self, content: str, beside: str, roles: Roles) -> None:
        """Write what a slot stands for, and annotate it."""
        slot, _, answer = content.partition("!")
        wanted = self._subject[1] == "next"
        before, _, role = slot.rpartition(" ")
        role, _, form = role.partition(".")
        if slot in SPEECH:
            self._speech(slot, wanted)
            return
        possessive = role.endswith("'s")
        role = role.removesuffix("'s")
        value = roles[role]
        if isinstance(value, str):
            span = self._copy(role, value) if answer == "copy" else self.put(value)
            if not answer:
                self.placed[role] = span
            if wanted:
                self._set_subject([span], "singular", None)
        elif isinstance(value, Place):
            self.put(f"{value.preposition} the " if before == "in" else "the ")
            span = self.put(value.noun)
        elif form:
            span = self._pronoun(value, form, wanted)
        elif wanted and not answer and not possessive and self._goes_on(value):
            span = self._pronoun(value, "she", wanted)
        else:
            span = self._named(value, before, wanted)
        if possessive:
            self.put("'s")
        if answer and answer != "copy":
            targets = [self.placed[x] if isinstance(x, str) else x for x in self.evidence[answer]]
            self.note("answer", span, targets, answer)

    def _goes_on(self, entity: Entity) -> bool:
        """Return True if a pronoun takes up somebody of the sentence before, which is a choice."""
        return (
            isinstance(entity, Person)
            and self._within_paragraph
            and self.voice is None
            and not self._waiting_verbs
            and (self._sentence, entity) not in self._mentions
            and self._clear(entity, "she")
            and self.chance(0.5)
        )

    def _speech(self, word: str, wanted: bool) -> None:
        """Write `I`, `your` or `us`, which stand for who speaks and who listens."""
        voice = self.voice
        assert voice is not None, f"{word!r} outside of speech"
        who: Entity = {
            "speaker": voice.speaker,
            "hearer": voice.hearer,
            "both": Group((voice.speaker, voice.hearer)),
        }[SPEECH[word]]
        span = self.put(word)
        self._refer("antecedent", span, who, word)
        if wanted:
            self._set_subject([span], "first" if word == "I" else "plural", who)

    def _copy(self, role: str, passage: str) -> Span:
        """Write a passage again, each word with the place that it repeats."""
        (start, end), here = self.sources[role], self._length
        assert self.text[start:end] == passage
        self._capital = False
        span = self.put(passage)
        for word in WORD.finditer(passage):
            to = (start + word.start(), start + word.end())
            self.note("copy", (here + word.start(), here + word.end()), [to])
        return span

    def _named(self, entity: Entity, before: str, wanted: bool) -> Span:
        """Write the name of an entity with its article."""
        if isinstance(entity, Group):
            first = self._named(entity.members[0], "", False)
            self.put(" and ")
            second = self._named(entity.members[1], "", False)
            self._mentions.append((self._sentence, entity))
            if wanted:
                self._set_subject([first, second], "plural", entity)
            return first[0], second[1]
        if isinstance(entity, Person):
            span = self._mention(entity, entity.name)
        else:
            article = {"bare": "", "": "the "}.get(before)
            if article is None:
                article = "some " if entity.plural else _article(entity.phrase)
            adjectives, _, noun = entity.phrase.rpartition(" ")
            if before != "a" and isinstance(entity, Thing) and entity in self.names:
                adjectives = adjectives if self.chance(0.3) else ""
            self.put(f"{article}{adjectives} " if adjectives else article)
            span = self._mention(entity, noun)
        self._nouns.append((span, entity.plural))
        if wanted:
            self._set_subject([span], "plural" if entity.plural else "singular", entity)
        return span

    def _mention(self, entity: Person | Thing | Scenery, word: str) -> Span:
        span = self.put(word)
        if not isinstance(entity, Scenery):
            earlier = [self.names[entity]] if entity in self.names else []
            self.note("mention", span, earlier, "person" if isinstance(entity, Person) else "thing")
        self.names[entity] = span
        self._mentions.append((self._sentence, entity))
        if isinstance(entity, Thing) and entity.owner is not None:
            self._refer("owner", span, entity.owner, "")
        return span

    def _pronoun(self, entity: Entity, form: str, wanted: bool) -> Span:
        """Write a pronoun, or the name where the pronoun could be another's."""
        if not self._clear(entity, form):
            self._repeats |= (self._sentence, entity) in self._mentions
            span = self._named(entity, "", wanted)
            if form == "his":
                self.put("'s" if not (isinstance(entity, Thing) and entity.plural) else "'")
            return span
        word = PRONOUNS[entity.pronoun][form]
        span = self.put(word)
        members = entity.members if isinstance(entity, Group) else (entity,)
        targets = [self.names[member] for member in members]  # type: ignore[index]
        self.note("antecedent", span, targets, entity.pronoun)
        self._mentions.append((self._sentence, entity))
        if wanted:
            self._set_subject([span], "plural" if entity.plural else "singular", entity)
        return span

    def _clear(self, entity: Entity, form: str) -> bool:
        """Return True if a pronoun could stand for nobody else."""
        recent = self._mentions
        if not any(same(e, entity) for _, e in recent):
            return False
        if any(n == self._sentence and same(e, entity) for n, e in recent):
            recent = [(n, e) for n, e in recent if n == self._sentence]
        subject = self._subject[2]
        if form in {"his", "self"} and subject is not None and same(subject, entity):
            after = [e for _, e in recent]
            last = max((i for i, e in enumerate(after) if same(e, entity)), default=None)
            if last is not None and not any(rival(e, entity) for e in after[last + 1 :]):
                return True
        speaking = (self.voice.speaker, self.voice.hearer) if self.voice else ()
        return not any(rival(e, entity) for _, e in recent if e not in speaking)


def _article(phrase: str) -> str:
    return "an " if phrase[0] in "aeiou" else "a "
