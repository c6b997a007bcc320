"""Which words the pieces of a tokenizer belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from interp.core.errors import OptionError, PromptError
from interp.syntax.treebank import Sentence

if TYPE_CHECKING:
    from interp.model.model import Model

By = Literal["auto", "words", "offsets"]
SPECIAL = -1  # of a piece that belongs to no word


@dataclass(frozen=True)
class Aligned:
    """Token ids of one sentence, and the word of each, `SPECIAL` for those of no word."""

    ids: tuple[int, ...]
    words: tuple[int, ...]

    def missing(self, n_words: int) -> list[int]:
        """Words that no piece belongs to."""
        return sorted(set(range(n_words)) - set(self.words))


def how(model: Model, by: By = "auto") -> Literal["words", "offsets"]:
    """How words are told from pieces: given one by one, or by their characters in the text.

    Models that read in both directions get the words one by one, as their tokenizers split at
    spaces anyway. Decoders would see other text then (their pieces hold the space before a word),
    so they get the text, and the pieces are matched by character.

    Raises:
        OptionError: another `by`.
        PromptError: no tokenizer, or one that cannot say where its pieces come from.
    """
    if by not in ("auto", "words", "offsets"):
        raise OptionError(f"by={by!r}; it is 'auto', 'words' or 'offsets'")
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, and trees need words; give one")
    if not getattr(model.tokenizer, "is_fast", False):
        raise PromptError(
            f"{type(model.tokenizer).__name__} of {model.name} is no fast tokenizer, and cannot say"
            " which word a piece belongs to; convert it with AutoTokenizer(..., use_fast=True)"
        )
    if by == "auto":
        return "offsets" if model.kind == "causal" else "words"
    return by


def align(model: Model, sentence: Sentence, by: Literal["words", "offsets"]) -> Aligned | None:
    """The pieces of a sentence; None where its text is not made of its words."""
    if by == "words":
        return _by_words(model.tokenizer, sentence.words)
    if sentence.spans is None:
        return None
    return by_offsets(model.tokenizer, sentence.text, refined(sentence))


def _by_words(tokenizer: object, words: Sequence[str]) -> Aligned:
    found = tokenizer(list(words), is_split_into_words=True)  # type: ignore[operator]
    at = [SPECIAL if w is None else w for w in found.word_ids()]
    return Aligned(tuple(found["input_ids"]), tuple(at))


def by_offsets(tokenizer: object, text: str, spans: Sequence[tuple[int, int]]) -> Aligned:
    """Pieces by the word that most of their characters lie in, the first of equals."""
    found = tokenizer(text, return_offsets_mapping=True)  # type: ignore[operator]
    # a tokenizer may call a piece special that it made of text, such as a word it does not know
    at = []
    for start, end in found["offset_mapping"]:
        common = [min(end, b) - max(start, a) for a, b in spans]
        best = max(range(len(spans)), key=lambda i: common[i])
        at.append(best if common[best] > 0 else SPECIAL)
    return Aligned(tuple(found["input_ids"]), tuple(at))


def refined(sentence: Sentence) -> list[tuple[int, int]]:
    """Characters of every word; those of a multi-word token share its range only if they must.

    *don't* is *do* and *n't*, letter by letter; where the words are not the letters of the token
    (*du* is *de le*), the range goes to the first, and the others have no characters.
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
