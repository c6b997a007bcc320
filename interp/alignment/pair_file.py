"""Sentence pairs with gold word alignments, from JSON Lines; read without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.core.errors import PromptError
from interp.core.prompt_file import read_objects

WordLink = tuple[int, int]
SentenceSide = str | tuple[int, ...]

_FIELDS = ("source", "target", "alignment")
_LIKE = '{"source": "the cat", "target": "le chat", "alignment": "0-0 1-1"}'
_LINK = re.compile(r"(\d+)([-p])(\d+)")


@dataclass(frozen=True)
class SentencePair:
    """Source and target sentence, with the gold links of their words where they are known.

    Args:
        source: a text, whose words are what spaces separate, or token ids, each a word.
        target: the same for the target.
        sure: links `(source word, target word)`, counted from 0, that annotators are sure of; None
            without a gold alignment.
        possible: links that are also acceptable; the sure ones always are, named or not.
    """

    source: SentenceSide
    target: SentenceSide
    sure: frozenset[WordLink] | None = None
    possible: frozenset[WordLink] = frozenset()

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            if not side_words(getattr(self, name)):
                raise PromptError(f"the {name} is empty; give at least one word")
        counts = len(side_words(self.source)), len(side_words(self.target))
        for link in sorted((self.sure or frozenset()) | self.possible):
            for name, at, count in zip(("source", "target"), link, counts, strict=True):
                if not 0 <= at < count:
                    raise PromptError(
                        f"the link {link[0]}-{link[1]} names {name} word {at}, but the {name} has "
                        f"the words 0 to {count - 1}; words are counted from 0"
                    )
        object.__setattr__(self, "possible", self.possible | (self.sure or frozenset()))

    @property
    def swapped(self) -> SentencePair:
        """The pair in the other direction."""
        sure = None if self.sure is None else frozenset((t, s) for s, t in self.sure)
        possible = frozenset((t, s) for s, t in self.possible)
        return SentencePair(self.target, self.source, sure, possible)


def side_words(side: SentenceSide) -> tuple[Any, ...]:
    """Return the words of a text, or the ids of a side that is given as token ids."""
    return tuple(side.split()) if isinstance(side, str) else side


def parse_links(text: str) -> tuple[frozenset[WordLink], frozenset[WordLink]]:
    """Read links such as `0-0 1-2 3p4`, source word first; `p` marks a possible link."""
    sure, possible = set(), set()
    for part in text.split():
        match = _LINK.fullmatch(part)
        if match is None:
            raise PromptError(
                f"{part!r} is not a link; write source-target as in 0-0 (sure) or 0p0 (possible)"
            )
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return frozenset(sure), frozenset(possible)


def sentence_pair(row: Mapping[str, Any]) -> SentencePair:
    """Return the pair of an object with "source", "target" and, where known, "alignment"."""
    if unknown := sorted(row.keys() - set(_FIELDS)):
        raise PromptError(f"unknown field {unknown[0]!r}; a pair has {', '.join(_FIELDS)}")
    source, target = (_side(row, name) for name in ("source", "target"))
    links = row.get("alignment")
    if links is None:
        return SentencePair(source, target)
    if not isinstance(links, str):
        raise PromptError(f"'alignment' is not a text of links; expected an object like {_LIKE}")
    return SentencePair(source, target, *parse_links(links))


def _side(row: Mapping[str, Any], name: str) -> SentenceSide:
    if name not in row:
        raise PromptError(f"{name!r} is missing; expected an object like {_LIKE}")
    side = row[name]
    if isinstance(side, list) and all(type(x) is int for x in side):
        return tuple(side)
    if not isinstance(side, str):
        raise PromptError(f"{name!r} is neither a text nor a list of token ids")
    return side


def read_sentence_pairs(path: str | Path) -> list[SentencePair]:
    """Read a `.jsonl` file of pairs, one object a line; see `sentence_pair`.

    Raises:
        PromptError: the file is missing or empty, or a line is not a pair; the line is named.
    """
    return read_objects(path, _LIKE, sentence_pair)
