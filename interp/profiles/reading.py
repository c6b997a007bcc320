"""Labels of a document's tokens: words, sentences, lines, and kinds of tokens by their text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from interp.core.tokens import separate_words
from interp.model.segments import special_ids

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from interp.model.model import Model


KINDS = {
    "stop": r"[.!?]+[\"')\]]*",
    "delimiter": r"[.,;:!?]+[\"')\]]*",
    "quote": r"[.,!?]*[\"“”«»]+",
    "opening": r"[\[({<]+",
    "closing": r"[\])}>]+",
    "number": r"[0-9][0-9.,]*",
    "newline": r"\s*\n\s*",
    "capital": r"[A-ZÀ-ÖØ-Þ].*",
    "letters": r"[^\W\d_]+",
}
"""Kinds of tokens, by a pattern that the whole token matches without its spaces."""
WORDS = {
    "article": "a an the",
    "pronoun": "i you he she it we they me him her us them who whom myself himself herself itself"
    " themselves",
    "possessive": "my your his her its our their whose this that these those some any each both"
    " all",
    "conjunction": "and or but nor so yet if then than because while as when where why how that",
    "preposition": "of in on at to for from by with about into over under after before up down out"
    " off",
    "auxiliary": "am is are was were be been being do does did have has had will would can could"
    " shall should may might must not no",
}
"""English words that carry grammar, by kind; a text in another language has few of them."""
_GRAMMAR = {name: frozenset(words.split()) for name, words in WORDS.items()}
_OTHERS = frozenset(["there", "here", "which", "what", "very", "too", "also", "just"])
FUNCTION_WORDS = _OTHERS.union(*_GRAMMAR.values())
RARE, FREQUENT = 5e-4, 1e-2  # share of a token in the corpus
ENDINGS = {"past": "ed", "present": "ing", "plural": "s"}
"""Endings of content words of at least four letters."""

CLASSES = {
    "stop": "ends of sentences",
    "quote": "quotation marks",
    "delimiter": "delimiters",
    "newline": "line ends",
    "number": "numbers",
    "article": "articles",
    "pronoun": "pronouns",
    "possessive": "possessives and demonstratives",
    "conjunction": "conjunctions",
    "preposition": "prepositions",
    "auxiliary": "auxiliary verbs",
    "function": "function words",
    "capital": "capitalised words",
}
"""Words for classes of tokens, the narrower ones first."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Labels of one document's tokens, each an array over positions.

    Args:
        tokens: ids.
        same: number of the token's text without case and spaces; equal for "Dog" and " dog".
        word: number of the word that a token belongs to.
        sentence: number of the sentence.
        line: number of the line.
        kinds: masks by name, those of `KINDS`, `WORDS` and `ENDINGS`, and "function", "content",
            "sentence_start", "word_start", "special", "rare", "frequent".
    """

    tokens: Int[np.ndarray, " pos"]
    same: Int[np.ndarray, " pos"]
    word: Int[np.ndarray, " pos"]
    sentence: Int[np.ndarray, " pos"]
    line: Int[np.ndarray, " pos"]
    kinds: dict[str, Bool[np.ndarray, " pos"]]

    def __len__(self) -> int:
        return len(self.tokens)


class TokenReader:
    """Reader of one model's tokens; without a tokenizer it knows ids and special tokens only.

    Args:
        model: the model.
        corpus: ids of a corpus, by which a token is rare or frequent; no token is either without.
    """

    def __init__(self, model: Model, corpus: Int[np.ndarray, " token"] | None = None) -> None:
        self.model = model
        counts = Counter() if corpus is None else Counter(corpus.tolist())
        total = max(counts.total(), 1)
        self._share = {index: n / total for index, n in counts.items()}
        self.special = frozenset(special_ids(model))
        self.has_text = model.tokenizer is not None
        known = getattr(model.tokenizer, "get_vocab", dict)() if self.has_text else {}
        self._pieces = any(name.startswith("##") for name in known)  # continue a word
        self._text = lru_cache(maxsize=None)(self._written)
        self._known = lru_cache(maxsize=None)(self._about)

    def _written(self, index: int) -> str:
        """Return the text of a token with the space before it, as its vocabulary states it."""
        name = self.model.tokenizer.convert_ids_to_tokens(index)  # type: ignore[union-attr]
        if isinstance(name, str) and self._pieces:
            return name[2:] if name.startswith("##") else f" {name}"
        if isinstance(name, str) and name.startswith("▁"):
            return f" {name[1:]}"
        return separate_words(self.model, [index])[0]

    def _about(self, index: int) -> tuple[str, bool, list[bool]]:
        """Return a token's text without case and spaces, whether a space begins it, its kinds."""
        text = "" if not self.has_text or index in self.special else self._text(index)
        bare = text.strip(" \t")
        kinds = [bool(re.fullmatch(pattern, bare, re.DOTALL)) for pattern in KINDS.values()]
        lower = text.strip().lower()
        kinds += [lower in words for words in _GRAMMAR.values()]
        long = len(lower) > 3 and lower not in FUNCTION_WORDS
        kinds += [long and lower.endswith(end) for end in ENDINGS.values()]
        kinds += [lower in FUNCTION_WORDS, bare[:1].isalnum()]
        return lower, text[:1].isspace(), kinds

    def classes(self, index: int) -> list[str]:
        """Return the classes of words and signs that a token is of, in words."""
        flags = dict(
            zip((*KINDS, *WORDS, *ENDINGS, "function", "word"), self._known(index)[2], strict=True)
        )
        return [words for name, words in CLASSES.items() if flags.get(name)]

    def read(self, ids: Sequence[int]) -> Reading:
        """Label the tokens of a document."""
        tokens = np.asarray(ids, dtype=np.int64)
        special = np.isin(tokens, sorted(self.special))
        about = [self._known(int(i)) for i in ids]
        lower = [text for text, _, _ in about]
        spaced = np.array([space for _, space, _ in about], bool)
        flags = np.array([kinds for _, _, kinds in about], bool).T
        kinds = dict(zip((*KINDS, *WORDS, *ENDINGS, "function", "word"), flags, strict=True))
        kinds["content"] = kinds["letters"] & ~kinds["function"]
        kinds["special"] = special
        shares = np.array([self._share.get(int(i), np.nan) for i in ids])
        kinds["rare"] = (shares < RARE) & kinds["letters"]
        kinds["frequent"] = shares > FREQUENT
        letters = kinds.pop("word")
        before = np.r_[False, letters[:-1]]
        kinds["word_start"] = letters & (spaced | ~before)
        first = kinds["word_start"] | ~letters  # everything else continues a word
        stops = np.r_[True, (kinds["stop"] | kinds["newline"] | special)[:-1]]
        closes = kinds["quote"] | kinds["closing"] | kinds["newline"]
        sentence = np.cumsum(stops & ~closes)
        kinds["sentence_start"] = np.r_[True, sentence[1:] != sentence[:-1]] & ~special
        seen: dict[str, int] = {}
        same = [
            seen.setdefault(text, len(seen)) if text else -1 - int(i)
            for text, i in zip(lower, tokens, strict=True)
        ]
        return Reading(
            tokens,
            np.array(same, dtype=np.int64),
            np.cumsum(first),
            sentence,
            np.cumsum(np.r_[False, kinds["newline"][:-1]]),
            kinds,
        )
