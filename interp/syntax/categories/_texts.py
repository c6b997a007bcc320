"""Texts with labelled spans of characters, and the code that each token of a tokenizer gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int

from interp.core.errors import PromptError
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model

NO_WORD = -1  # code of a token without a character other than white space
SHARED = 2**20  # more groups than a text has; see `linked_codes`
LEAST_KNOWN = 0.5  # share of the tokens of words that the vocabulary must know


class Span(NamedTuple):
    """Characters `start` to `end` (exclusive) of a text, with a label and the group it belongs to.

    Spans of one group are linked: mentions of one entity, words of one topic, two brackets. Spans
    of one `unit`, such as a sentence, are not linked with each other.
    """

    start: int
    end: int
    label: str
    group: str = ""
    unit: str = ""


@dataclass(frozen=True)
class LabelledText:
    """One text with its spans; texts of one `document` are not independent of each other."""

    text: str
    spans: tuple[Span, ...]
    document: str = ""

    def with_spans(self, spans: Iterable[Span]) -> LabelledText:
        """Return the same text with other spans."""
        return replace(self, spans=tuple(spans))


Codes = Int[np.ndarray, " token"]


@dataclass(frozen=True, eq=False)
class Tokenized:
    """Token ids of the texts, and per token the characters that are not white space.

    Args:
        texts: the texts.
        ids: their tokens.
        characters: per token its characters.
        n_cut: number of texts of which only the first tokens are read.
    """

    texts: tuple[LabelledText, ...]
    ids: tuple[tuple[int, ...], ...]
    characters: tuple[tuple[tuple[int, ...], ...], ...]
    n_cut: int = 0

    def codes(self, marked: Sequence[Sequence[tuple[int, int, int]]]) -> list[Codes]:
        """Return the code of every token, from spans `(start, end, code)` of each text.

        A token has the code of most of its characters without white space, the first of equal
        ones; of nested spans the innermost counts; 0 outside of all spans. `NO_WORD` for a token
        without such characters: a special token, or white space alone.
        """
        out = []
        for text, tokens, spans in zip(self.texts, self.characters, marked, strict=True):
            at = np.zeros(len(text.text), dtype=np.int64)
            for start, end, code in sorted(spans, key=lambda s: s[0] - s[1]):
                at[start:end] = code
            token_codes = [
                Counter(at[list(t)].tolist()).most_common(1)[0][0] if t else NO_WORD for t in tokens
            ]
            out.append(np.array(token_codes, dtype=np.int64))
        return out

    def words(self) -> list[Codes]:
        """Return the number of the word that every token is a piece of, from 1; `NO_WORD` for none.

        A span without white space is a word (the innermost, where they are nested); elsewhere words
        are runs of letters and digits, with their apostrophes, and single other characters.
        """
        marked = []
        for text in self.texts:
            whole = {
                (s.start, s.end)
                for s in text.spans
                if not any(c.isspace() for c in text.text[s.start : s.end])
            }
            rest = list(text.text)
            for start, end in whole:
                rest[start:end] = " " * (end - start)
            others = [m.span() for m in re.finditer(r"\w+(?:['\u2019]\w+)*|[^\w\s]", "".join(rest))]
            numbers = enumerate(sorted({*whole, *others}), 1)
            marked.append([(start, end, number) for number, (start, end) in numbers])
        return self.codes(marked)


def tokenized(model: Model, texts: Sequence[LabelledText], length: int) -> Tokenized:
    """Tokenize texts and cut them to `length` tokens, or to what the model has positions for."""
    tokenizer: Any = model.tokenizer
    if tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so words have no tokens; load one")
    if not getattr(tokenizer, "is_fast", False):
        raise PromptError(
            f"{type(tokenizer).__name__} of {model.name} is not a fast tokenizer, so tokens cannot "
            f"be assigned to words; convert it with AutoTokenizer(..., use_fast=True)"
        )
    length = min(x for x in (length, model.limit) if x is not None)
    unknown, read = tokenizer.unk_token_id, []
    words = lost = n_cut = 0
    for text in texts:
        encoding = encoded_text(tokenizer, text.text, return_offsets_mapping=True, verbose=False)
        ids = tuple(encoding["input_ids"])[:length]
        n_cut += len(encoding["input_ids"]) > length
        inside = [
            tuple(i for i in range(a, b) if not text.text[i].isspace())
            for a, b in encoding["offset_mapping"][: len(ids)]
        ]
        here = [i for i, x in zip(ids, inside, strict=True) if x]
        words, lost = words + len(here), lost + sum(i == unknown for i in here)
        if here:
            read.append((text, ids, tuple(inside)))
    if words and lost > LEAST_KNOWN * words:
        raise PromptError(
            f"the vocabulary of {model.name} has no text: {lost} of {words} tokens of the labelled "
            f"texts are unknown to it; use a model of text"
        )
    if len({text.document or str(i) for i, (text, _, _) in enumerate(read)}) < 2:
        raise PromptError(
            f"{len(read)} of the labelled texts have words; give at least two documents, so that "
            f"the labels of one can be compared with those of another"
        )
    texts, ids, inside = zip(*read, strict=True)
    return Tokenized(texts, ids, inside, n_cut)


def key_codes(at: Tokenized, label: str | None) -> list[Codes]:
    """Return 1 for tokens with a label (of any label if None), 0 for other words."""
    return at.codes(
        [[(s.start, s.end, 1) for s in t.spans if label in (None, s.label)] for t in at.texts]
    )


def linked_codes(at: Tokenized, label: str | None, *, common: bool = False) -> list[Codes]:
    """Get the codes of linked spans: the number of the span, or of its unit, and of its group."""
    groups: dict[tuple[int, str], int] = {}
    marked = []
    for i, text in enumerate(at.texts):
        units: dict[str, int] = {}
        spans = []
        for n, s in enumerate(x for x in text.spans if label in (None, x.label) and x.group):
            unit = units.setdefault(s.unit or f"span {n}", len(units) + 1)
            group = groups.setdefault((0 if common else i, s.group), len(groups))
            spans.append((s.start, s.end, unit * SHARED + group))
        marked.append(spans)
    return at.codes(marked)


def bracket_codes(at: Tokenized) -> list[Codes]:
    """Return the codes of opening and closing brackets that match: pair number and side.

    They are the spans with the labels `opening` and `closing`, whose groups are the pairs.
    """
    marked, pairs = [], 0
    for text in at.texts:
        side = {"opening": 1, "closing": 2}
        mine = [s for s in text.spans if s.label in side and s.group]
        number = {group: pairs + n for n, group in enumerate(dict.fromkeys(s.group for s in mine))}
        pairs += len(number)
        marked.append([(s.start, s.end, 4 * number[s.group] + side[s.label]) for s in mine])
    return at.codes(marked)
