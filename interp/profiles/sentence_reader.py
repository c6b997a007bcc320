"""A sentence about a head, read by a language model that the user serves.

The language model is given the sentence and the numbered tokens of a document, and names the keys
that the sentence expects of each marked query. It sees nothing of the head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from interp.core.documents import parse_json
from interp.core.errors import LoadError, OptionError
from interp.core.request import asked, served_model
from interp.core.tokens import words
from interp.profiles.rules import KeyRule

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from interp.model.model import Model
    from interp.profiles.reading import Reading

LONGEST = 500  # characters of a sentence
REPLIES = 5  # of which one must be readable
FOREIGN = (
    "the verb of the current clause",
    "the first noun of the text",
    "the most recent adjective",
    "the last place that was mentioned",
    "the word that begins the current sentence",
)
"""Sentences of which one is a control: what the language model names for any sentence."""
_KEYS = """\
A description says to which tokens an attention head of a language model attends. You are given the
description and the numbered tokens of a text. For every query listed, give the numbers of the
tokens, none after the query, to which the head attends there if the description is true; give an
empty list where it names none. Answer with one JSON object and nothing else, such as
{"12": [3, 7], "15": []}.
"""
_ACTS = """\
A description says to which tokens an attention head of a language model attends. At some tokens the
head finds what it looks for; at others it finds nothing. You are given the description and two
texts, each of which ends at the token in question. In which does the head find what it looks for if
the description is true? Answer with one JSON object and nothing else: {"text": "A"} or
{"text": "B"}.
"""


@dataclass(frozen=True, eq=False)
class SentenceReader:
    """Language model that reads sentences about heads of another model.

    Args:
        model: the model whose heads the sentences are about, and whose tokens are numbered.
        url: address of the chat completions.
        name: name of the language model there.
        timeout: seconds to wait for a reply, as a whole.
        read: for each reply so far, True if it could be read.
    """

    model: Model
    url: str
    name: str
    timeout: float = 120.0
    read: list[bool] = field(default_factory=list)

    @classmethod
    def at(cls, address: str, model: Model) -> SentenceReader:
        """Return the reader at an address, such as http://localhost:8000/v1#NAME."""
        if model.tokenizer is None:
            raise OptionError(f"a sentence is about text, and {model.name} has no tokenizer")
        base, name, _ = served_model(address)
        return cls(model, f"{base}/chat/completions", name)

    @property
    def server(self) -> str:
        """Name of the language model and its server, without the rest of the address."""
        return f"{self.name} at {urlsplit(self.url).netloc}"

    def rule(self, sentence: str) -> KeyRule:
        """Return the keys that a sentence names, as a rule."""

        def mask(query: Any, key: Any, text: Reading) -> Any:
            return self.keys(sentence, text.tokens.tolist(), query[:, 0])

        return KeyRule(f"“{sentence}”", f"as “{sentence}” says", mask)

    def keys(
        self, sentence: str, ids: Sequence[int], queries: Int[np.ndarray, " row"]
    ) -> Bool[np.ndarray, "row pos"]:
        """Return the keys that the language model expects; none where it cannot be read."""
        shown = "\n".join(
            f"{at} {json.dumps(word, ensure_ascii=False)}"
            for at, word in enumerate(words(self.model, ids[: int(max(queries)) + 1]))
        )
        listed = ", ".join(map(str, queries.tolist()))
        named = self._answer(
            _KEYS, f"Description: {sentence}\n\nTokens:\n{shown}\n\nQueries: {listed}"
        )
        mask = np.zeros((len(queries), len(ids)), bool)
        self.note(bool(named) and all(isinstance(keys, list) for keys in named.values()))
        for row, query in enumerate(queries.tolist()):
            keys = named.get(str(query), [])
            known = keys if isinstance(keys, list) else []
            mask[row, [k for k in known if type(k) is int and 0 <= k <= query]] = True
        return mask

    def pick(self, sentence: str, first: Sequence[int], second: Sequence[int]) -> str:
        """Return A or B, the text at whose end the head is said to act; empty if unreadable."""
        texts = ["".join(words(self.model, ids)) for ids in (first, second)]
        shown = "\n\n".join(f"Text {x}:\n{text}" for x, text in zip("AB", texts, strict=True))
        picked = self._answer(_ACTS, f"Description: {sentence}\n\n{shown}").get("text")
        self.note(readable := picked in ("A", "B"))
        return str(picked) if readable else ""

    def note(self, readable: bool) -> None:
        """Count a reply; refuse a language model whose replies can hardly be read."""
        self.read.append(readable)
        if len(self.read) >= REPLIES and sum(self.read) * REPLIES < len(self.read):
            raise LoadError(
                f"{self.server}: only {sum(self.read)} of {len(self.read)} replies are the JSON"
                " object that was asked for; give a language model that follows instructions"
            )

    def _answer(self, task: str, material: str) -> dict[str, Any]:
        """Return the JSON object of a reply; an empty one if its text holds none."""
        messages = [{"role": "system", "content": task}, {"role": "user", "content": material}]
        sent = {"model": self.name, "messages": messages, "temperature": 0}
        reply = asked(self.url, sent, self.timeout)
        try:
            content = str(reply["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise LoadError(
                f"{self.url} returned no message; it must answer as chat completions do"
            ) from error
        if (match := re.search(r"\{.*\}", content, re.DOTALL)) is None:
            return {}
        try:
            found = parse_json(match[0])
        except ValueError:  # counted as a reply that cannot be read
            return {}
        return found if isinstance(found, dict) else {}


def plain_sentence(given: str) -> str:
    """Return a sentence on one line; refuse one that is too long or not printable."""
    sentence = " ".join(given.split())
    if not sentence.isprintable() or not 1 <= len(sentence) <= LONGEST:
        raise OptionError(
            f"the sentence {sentence[:60]!r} has {len(sentence)} characters; give 1 to {LONGEST}"
            " printable ones"
        )
    return sentence


def foreign_sentence(sentence: str, seed: int) -> str:
    """Return a sentence about something else, as a control: one that shares no content word."""
    own = set(re.findall(r"\w{4,}", sentence.lower()))
    start = seed % len(FOREIGN)
    order = [*FOREIGN[start:], *FOREIGN[:start]]
    return next((x for x in order if not own & {*re.findall(r"\w{4,}", x)}), order[0])


def at_one_distance(masks: Sequence[Bool[np.ndarray, "row pos"]], queries: Sequence[Any]) -> bool:
    """Return whether most keys that are named lie equally far from their queries."""
    distances = [
        int(at[row] - key)
        for mask, at in zip(masks, queries, strict=True)
        for row, key in zip(*np.nonzero(mask), strict=True)
    ]
    return bool(distances) and 2 * np.bincount(distances).max() > len(distances)
