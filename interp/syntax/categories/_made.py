"""Seeded documents whose labels are known: prose of several topics, people and code."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.syntax.categories._source import bracket_spans, code_spans
from interp.syntax.categories._texts import LabelledText, Span

TOPICS = {
    "sea": "boat wave sailor net harbor fish storm anchor island gull rope beach",
    "kitchen": "pan soup cook knife oven bread plate sugar spoon butter onion table",
    "forest": "tree fox leaf owl path deer mushroom branch stone root bear moss",
    "school": "teacher book pencil lesson desk pupil board number page map ruler exam",
    "music": "song drum singer piano string dance flute concert note stage band violin",
    "garden": "flower seed bee fence rose spade grass tomato wall worm gate basket",
}
SEEN = ("saw", "found", "liked", "wanted", "had", "took")
WORD = (
    "The {a} was near the {b}.",
    "A {a} and a {b} were there.",
    "It was the {a} by the {b}.",
    "They {v} {n} of the {a} and the {b}.",
    "One {a}, one {b}; that was all.",
)
PEOPLE = {"Anna": "she", "Tom": "he", "Lily": "she", "Ben": "he", "Mia": "she", "Max": "he"}
PLACES = ("London", "Paris", "Rome", "Berlin", "Madrid", "Oslo")
SAID = (
    "{p} went to {c}.",
    "In {c}, {p} had a {w}.",
    "{p} liked the {w}.",
    "Then {p} was happy.",
    "{p} said {n} words.",
    "Now {p} is in {c}.",
)


def topic_texts(
    n: int = 16, *, topics: int = 3, each: int = 2, seed: int = 0
) -> list[LabelledText]:
    """Write documents whose sentences are on several topics, in random order.

    Each segment is one sentence with two nouns of its topic. No noun occurs twice in a document, so
    that a head that attends to equal tokens finds none; the order of the topics differs between
    documents. Spans are the nouns, with the label `topic`, the topic as group and the segment as
    unit: nouns of one segment are not linked.

    Args:
        n: number of documents.
        topics: topics of each document.
        each: segments of each topic.
        seed: seed of topics, nouns and order.

    Raises:
        OptionError: there are fewer than two documents, topics or segments per topic, or more
            than there are words for.
    """
    most = min(len(x.split()) for x in TOPICS.values()) // 2
    if not 2 <= topics <= len(TOPICS) or not 2 <= each <= most or n < 2:
        raise OptionError(
            f"n={n}, topics={topics}, each={each}: give at least 2 documents, 2 to {len(TOPICS)} "
            f"topics, and 2 to {most} sentences on each"
        )
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(n):
        chosen = rng.choice(list(TOPICS), topics, replace=False)
        words = {t: rng.permutation(TOPICS[t].split()).tolist() for t in chosen}
        text, spans = "", []
        for segment, topic in enumerate(rng.permutation(np.repeat(chosen, each)).tolist()):
            a, b = words[topic].pop(), words[topic].pop()
            line = str(rng.choice(WORD))
            filled = line.format(a=a, b=b, v=rng.choice(SEEN), n=rng.integers(2, 100))
            text += " " * bool(text)
            at = len(text)
            spans += [
                Span(at + m.start(), at + m.end(), "topic", topic, f"segment {segment}")
                for m in re.finditer(rf"\b({a}|{b})\b", filled)
            ]
            text += filled
        texts.append(LabelledText(text, tuple(spans), f"made {number}"))
    return texts


def people_texts(n: int = 16, *, n_sentences: int = 7, seed: int = 0) -> list[LabelledText]:
    """Write documents about two people, by name or pronoun, and places.

    Spans: `mention` with the person as group, `person` for names, and `place` with its name as
    group. The two people of a document have different pronouns.
    """
    rng = np.random.default_rng(seed)
    women, men = ([p for p, pronoun in PEOPLE.items() if pronoun == x] for x in ("she", "he"))
    nouns = [w for words in TOPICS.values() for w in words.split()]
    texts = []
    for number in range(n):
        both = [str(rng.choice(women)), str(rng.choice(men))]
        met: set[str] = set()
        growing = _Filled()
        for _ in range(n_sentences):
            who = both[int(rng.integers(2))]
            named = who not in met or rng.random() < 0.5
            met.add(who)
            growing.add(
                str(rng.choice(SAID)),
                who,
                who if named else PEOPLE[who],
                c=str(rng.choice(PLACES)),
                w=str(rng.choice(nouns)),
                n=str(rng.integers(2, 100)),
            )
        texts.append(LabelledText(growing.text, tuple(growing.spans), f"made {number}"))
    return texts


class _Filled:
    """A text of filled sentences, with the spans of people and places."""

    def __init__(self) -> None:
        self.text, self.spans = "", []

    def add(self, line: str, who: str, said: str, **words: str) -> None:
        self.text += " " * bool(self.text)
        first = len(self.text)
        for part in re.split(r"(\{\w\})", line):
            at = len(self.text)
            if part == "{p}":
                self.text += said.capitalize() if at == first else said
                self.spans.append(Span(at, len(self.text), "mention", who))
                if said == who:
                    self.spans.append(Span(at, len(self.text), "person"))
            elif part == "{c}":
                self.text += words["c"]
                self.spans.append(Span(at, len(self.text), "place", words["c"]))
            else:
                self.text += words[part[1]] if part in ("{w}", "{n}") else part


class _Names(NamedTuple):
    """Names and numbers of one function."""

    f: str
    a: str
    b: str
    c: str
    i: int
    j: int


CODE = (
    "def {f}({a}, {b}={i}):\n    {c} = [({a} + {b}) * {j}, {a}[{i}]]\n    return {c}\n",
    "def {f}({a}):\n    # the {b} of {a}\n    {b} = max(min({a}[0], {i}), ({j}))\n"
    "    return {{'{c}': ({b}, {a}[{j}])}}\n",
    "class {f}:\n    {a} = ({i}, [{j}, ({i})])\n\n    def {b}(self, {c}):\n"
    "        return self.{a}[{c}(({i}))]\n",
    "for {a} in range(len({b}[{i}:])):\n    if ({a} > {j}) and not ({b}[{a}]):\n"
    "        print('{c}', {f}({a}))\n",
)
NAMES = ("total", "item", "size", "left", "result", "value", "index", "name", "data", "line")


def code_documents(n: int = 16, *, seed: int = 0) -> list[LabelledText]:
    """Write pieces of Python with nested brackets, with the kinds of its tokens as spans."""
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(n):
        source = ""
        for piece in rng.permutation(len(CODE))[:2]:
            f, a, b, c = map(str, rng.choice(NAMES, 4, replace=False))
            i, j = map(int, rng.integers(1, 90, 2))
            source += CODE[piece].format(**_Names(f, a, b, c, i, j)._asdict()) + "\n"
        spans = code_spans(source, "python", "generated code")
        texts.append(LabelledText(source, tuple(spans), f"made {number}"))
    return texts


NUMBER = r"\d+(?:[.,]\d+)*"
DELIMITER = r"[.,;:!?]+(?=\s|$)"


def with_pattern(texts: list[LabelledText], pattern: str, label: str) -> list[LabelledText]:
    """Return the texts with the matches of a regular expression as their spans."""
    marked = [
        t.with_spans(Span(*m.span(), label) for m in re.finditer(pattern, t.text)) for t in texts
    ]
    if not any(t.spans for t in marked):
        raise PromptError(f"the texts hold no {label}; give texts with some")
    return marked


def with_brackets(texts: list[LabelledText]) -> list[LabelledText]:
    """Return the texts with their brackets as spans; those of code are kept, others are matched."""
    sides = ("opening", "closing")
    marked = []
    for text in texts:
        brackets = [s for s in text.spans if s.label in sides and s.group]
        marked.append(text.with_spans(brackets or bracket_spans(text.text)))
    if not any(t.spans for t in marked):
        raise PromptError("the texts hold no matching brackets; give texts with some")
    return marked
