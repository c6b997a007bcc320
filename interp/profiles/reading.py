"""Labels of a document's tokens: words, sentences, lines, and kinds of tokens by their text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from interp.core.tokens import word_with_space
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
    "comma": r",",
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
NAMED, CAPITAL = 3, 0.8  # uses of a name inside sentences, and its share of capitals there
FREQUENT, COMMON = 30, 500  # ranks of tokens in a corpus
ENDINGS = {"past": "ed", "present": "ing", "plural": "s"}
"""Endings of content words of at least four letters."""

CLASSES = {
    "stop": "ends of sentences",
    "quote": "quotation marks",
    "delimiter": "delimiters",
    "newline": "line ends",
    "number": "numbers",
    "name": "names",
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
            "sentence_start", "word_start", "special", "name", "rare", "frequent".
        words: the word that each token belongs to, in small letters.
    """

    tokens: Int[np.ndarray, " pos"]
    same: Int[np.ndarray, " pos"]
    word: Int[np.ndarray, " pos"]
    sentence: Int[np.ndarray, " pos"]
    line: Int[np.ndarray, " pos"]
    kinds: dict[str, Bool[np.ndarray, " pos"]]
    words: list[str]

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class CorpusWords:
    """Names and frequent tokens, as the documents of a corpus tell them.

    Args:
        names: words in small letters that are capitalised nearly wherever they stand inside a
            sentence.
        frequent: ids of the most frequent tokens.
        common: ids of the tokens that are not rare.
    """

    names: tuple[str, ...]
    frequent: tuple[int, ...]
    common: tuple[int, ...]

    @classmethod
    def of(cls, reader: TokenReader, documents: Iterable[Sequence[int]]) -> CorpusWords:
        """Count the words and tokens of documents."""
        tokens, words, capitals = Counter(), Counter(), Counter()
        for ids in documents:
            tokens.update(ids)
            text = reader.read(ids)
            inside = text.kinds["word_start"] & ~text.kinds["sentence_start"]
            inside &= np.r_[False, (text.kinds["letters"] | (text.kinds["comma"]))[:-1]]
            for at in np.flatnonzero(inside & text.kinds["letters"]).tolist():
                words[text.words[at]] += 1
                capitals[text.words[at]] += bool(text.kinds["capital"][at])
        names = [
            word
            for word, n in words.items()
            if n >= NAMED and capitals[word] > CAPITAL * n and word not in FUNCTION_WORDS
        ]
        order = sorted(tokens, key=lambda token: (-tokens[token], token))
        return cls(tuple(sorted(names)), tuple(order[:FREQUENT]), tuple(order[:COMMON]))


class TokenReader:
    """Reader of one model's tokens; without a tokenizer it knows ids and special tokens only.

    Args:
        model: the model.
        corpus: documents, or what they say of words; without them no token is rare or frequent,
            and a name is what the text itself capitalises inside a sentence.
    """

    def __init__(
        self, model: Model, corpus: Iterable[Sequence[int]] | CorpusWords | None = None
    ) -> None:
        self.model, self.corpus = model, None
        self.special = frozenset(special_ids(model))
        self.has_text = model.tokenizer is not None
        known = getattr(model.tokenizer, "get_vocab", dict)() if self.has_text else {}
        self._pieces = any(name.startswith("##") for name in known)  # continue a word
        self._text = lru_cache(maxsize=None)(self._written)
        self._known = lru_cache(maxsize=None)(self._about)
        if corpus is not None:
            given = isinstance(corpus, CorpusWords)
            self.corpus = corpus if given else CorpusWords.of(self, corpus)

    def _written(self, index: int) -> str:
        """Return the text of a token with the space before it, as its vocabulary states it."""
        if self._pieces:
            name = self.model.tokenizer.convert_ids_to_tokens(index)  # type: ignore[union-attr]
            return name[2:] if name.startswith("##") else f" {name}"
        return word_with_space(self.model, index)

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
        lower, _, known = self._known(index)
        flags = dict(zip((*KINDS, *WORDS, *ENDINGS, "function", "word"), known, strict=True))
        names = self.corpus.names if self.corpus else ()
        flags["name"] = flags["capital"] and not flags["function"] and lower in names
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
        letters = kinds.pop("word")
        before = np.r_[False, letters[:-1]]
        kinds["word_start"] = letters & (spaced | ~before)
        first = kinds["word_start"] | ~letters  # everything else continues a word
        stops = np.r_[True, (kinds["stop"] | kinds["newline"] | special)[:-1]]
        closes = kinds["quote"] | kinds["closing"] | kinds["newline"]
        sentence = np.cumsum(stops & ~closes)
        kinds["sentence_start"] = np.r_[True, sentence[1:] != sentence[:-1]] & ~special
        number = np.cumsum(first)
        whole = _joined(lower, number)
        capital = kinds["capital"] & kinds["letters"] & ~kinds["function"]
        if self.corpus is None:
            named = {whole[at] for at in np.flatnonzero(capital & ~kinds["sentence_start"])}
            kinds["rare"] = kinds["frequent"] = np.zeros(len(tokens), bool)
        else:
            named = self.corpus.names
            kinds["rare"] = ~np.isin(tokens, self.corpus.common) & kinds["letters"]
            kinds["frequent"] = np.isin(tokens, self.corpus.frequent)
        begins = capital & np.isin(whole, [*named])
        kinds["name"] = np.isin(number, number[begins]) & ~special
        seen: dict[str, int] = {}
        same = [
            seen.setdefault(text, len(seen)) if text else -1 - int(i)
            for text, i in zip(lower, tokens, strict=True)
        ]
        return Reading(
            tokens,
            np.array(same, dtype=np.int64),
            number,
            sentence,
            np.cumsum(np.r_[False, kinds["newline"][:-1]]),
            kinds,
            whole,
        )


def _joined(texts: Sequence[str], word: Int[np.ndarray, " pos"]) -> list[str]:
    """Return the whole word of every token."""
    wholes: dict[int, str] = {}
    for at, text in zip(word.tolist(), texts, strict=True):
        wholes[at] = wholes.get(at, "") + text
    return [wholes[at] for at in word.tolist()]
