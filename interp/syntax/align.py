"""Alignment of tokenizer pieces with words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from interp.core.errors import OptionError, PromptError
from interp.core.tokens import encoded_text
from interp.syntax.treebank import Sentence

if TYPE_CHECKING:
    from interp.model.model import Model

By = Literal["auto", "words", "offsets"]
SPECIAL = -1  # word index of a piece that belongs to no word


@dataclass(frozen=True)
class Aligned:
    """Token ids of one sentence, and the word of each; `SPECIAL` for those without a word."""

    ids: tuple[int, ...]
    words: tuple[int, ...]

    def missing(self, n_words: int) -> list[int]:
        """Return the words without any piece."""
        return sorted(set(range(n_words)) - set(self.words))


def how(model: Model, by: By = "auto") -> Literal["words", "offsets"]:
    """Return the method of alignment: words given one by one, or matched by characters.

    Bidirectional models receive the words one by one, since their tokenizers split at spaces
    anyway. Decoders would then see a different text (their pieces include the space before a word),
    so they receive the text, and the pieces are matched by character.
    """
    if by not in ("auto", "words", "offsets"):
        raise OptionError(f"pieces={by!r} is not known; use 'auto', 'words' or 'offsets'")
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, but trees need words; load it with one")
    if not getattr(model.tokenizer, "is_fast", False):
        raise PromptError(
            f"{type(model.tokenizer).__name__} of {model.name} is not a fast tokenizer, so pieces "
            f"cannot be assigned to words; convert it with AutoTokenizer(..., use_fast=True)"
        )
    if by == "auto":
        return "offsets" if model.kind == "causal" else "words"
    return by


def align(model: Model, sentence: Sentence, by: Literal["words", "offsets"]) -> Aligned | None:
    """Return the pieces of a sentence; None if its text does not consist of its words."""
    if by == "words":
        return _by_words(model.tokenizer, sentence.words)
    if sentence.spans is None:
        return None
    return by_offsets(model.tokenizer, sentence.text, refined(sentence))


def _by_words(tokenizer: object, words: Sequence[str]) -> Aligned:
    encoding = encoded_text(tokenizer, list(words), is_split_into_words=True)  # type: ignore[operator]
    at = [SPECIAL if w is None else w for w in encoding.word_ids()]
    return Aligned(tuple(encoding["input_ids"]), tuple(at))


def by_offsets(tokenizer: object, text: str, spans: Sequence[tuple[int, int]]) -> Aligned:
    """Assign pieces to the word with most of their characters, the first of equal ones."""
    encoding = encoded_text(tokenizer, text, return_offsets_mapping=True)  # type: ignore[operator]
    # a tokenizer may mark a piece of the text as special, such as an unknown word
    at = []
    for start, end in encoding["offset_mapping"]:
        common = [min(end, b) - max(start, a) for a, b in spans]
        best = max(range(len(spans)), key=lambda i: common[i])
        at.append(best if common[best] > 0 else SPECIAL)
    return Aligned(tuple(encoding["input_ids"]), tuple(at))


def refined(sentence: Sentence) -> list[tuple[int, int]]:
    """Return the characters of every word, splitting multi-word tokens where possible.

    *don't* is split into *do* and *n't*; if the words do not spell the token (*du* is *de le*), the
    range is assigned to the first, and the others have no characters.
    """
    assert sentence.spans is not None
    spans = list(sentence.spans)
    for first, end in sentence.multiword:
        begin, stop = spans[first]
        words = sentence.words[first:end]
        at = begin
        if "".join(words).lower() == sentence.text[begin:stop].lower():
            for i, word in enumerate(words, start=first):
                spans[i] = (at, at + len(word))
                at += len(word)
        else:
            spans[first + 1 : end] = [(stop, stop)] * (end - first - 1)
    return spans
